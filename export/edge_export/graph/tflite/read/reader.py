"""A float TensorFlow Lite file read as an ONNX graph, so that every tool for ONNX works on it.

1. Inputs and outputs keep their names, sizes and order of axes (channels last).
2. Between convolutions and pools, values of four axes are kept channels first; a Transpose is written where an operator
   needs the file's own order.
3. Weights in half precision become float32. Integers with steps are refused: such a file is quantised already.
4. An operator that is not known here is refused by name, and so is one that keeps state from call to call.

Source: schema version 3 of LiteRT; the kernels' definitions in tensorflow/lite/kernels.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import onnx
from ai_edge_litert import schema_py_generated as schema
from onnx import helper, numpy_helper

from edge_runtime.errors import ConfigError

Array = npt.NDArray[Any]

OPSET = 17

_TYPES: dict[int, np.dtype[Any]] = {
    schema.TensorType.FLOAT32: np.dtype(np.float32),
    schema.TensorType.FLOAT16: np.dtype(np.float16),
    schema.TensorType.INT32: np.dtype(np.int32),
    schema.TensorType.INT64: np.dtype(np.int64),
    schema.TensorType.BOOL: np.dtype(np.bool_),
}
_NAMES = {number: name for name, number in vars(schema.BuiltinOperator).items() if isinstance(number, int)}

_FIRST, _LAST = (0, 3, 1, 2), (0, 2, 3, 1)
"""Permutations to channels first and back."""


Made: TypeAlias = Iterator[tuple[int, tuple[str, bool]]]
"""Place of an output, and (name, whether its channels come first) of what is to be it."""

Read: TypeAlias = "Callable[[Reader, Any], Made]"


class Reader:
    """Graph under construction, by the indices of the file's tensors.

    Args:
        data: the file's bytes.
        file: named in errors.
        open_batch: whether the first axis of every input is left open, as far as the operators let it be.
    """

    def __init__(self, data: bytes, file: str, *, open_batch: bool = False) -> None:
        if data[4:8] != b"TFL3":
            raise ConfigError(f"{file}: not a TensorFlow Lite file")
        self.file = file
        self.model = schema.ModelT.InitFromPackedBuf(data, 0)
        if len(self.model.subgraphs) != 1:
            raise ConfigError(f"{file}: holds {len(self.model.subgraphs)} graphs; only files with one can be read")
        self.graph = self.model.subgraphs[0]
        self.open_batch = open_batch and all(self.shape(int(i))[:1] == (1,) for i in self.graph.inputs)
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        widened = [op for op in self.graph.operators if self.kind(op) == "DEQUANTIZE"]
        self._stored = {int(op.outputs[0]): int(op.inputs[0]) for op in widened if self._holds(int(op.inputs[0]))}
        """Constant in half precision by the tensor that it is widened into."""
        self._names: dict[tuple[int, bool], str] = {}
        """By tensor and whether its channels come first."""
        self._count = 0
        edges = [text(self.graph.tensors[int(i)].name) for i in (*self.graph.inputs, *self.graph.outputs)]
        self._prefix = next(mark for mark in map("_".__mul__, itertools.count(1)) if not _starts(edges, mark))

    def kind(self, operator: Any) -> str:
        """Name of an operator; old writers know the one-byte field only."""
        code = self.model.operatorCodes[operator.opcodeIndex]
        kind = _NAMES.get(max(int(code.builtinCode), int(code.deprecatedBuiltinCode)), "?")
        return text(code.customCode) if kind == "CUSTOM" else kind

    def _holds(self, index: int) -> bool:
        data = self.model.buffers[self.graph.tensors[index].buffer].data
        return data is not None and len(data) > 0

    # -- tensors ---------------------------------------------------------------------------------------------------

    def shape(self, index: int) -> tuple[int, ...]:
        """Sizes of a tensor as the file states them."""
        shape = self.graph.tensors[index].shape
        return () if shape is None else tuple(int(size) for size in shape)

    def dtype(self, index: int) -> np.dtype[Any]:
        """Element type; half precision is float32 here.

        Raises:
            ConfigError: it is one that floats have no part in.
        """
        tensor = self.graph.tensors[index]
        steps = None if tensor.quantization is None else tensor.quantization.scale
        if tensor.type not in _TYPES or (steps is not None and len(steps) and tensor.type != 0):
            raise ConfigError(
                f"{self.file}: tensor {text(tensor.name)!r} holds integers with steps; the file is quantised already: "
                "give the float file that it was made from"
            )
        found = _TYPES[tensor.type]
        return np.dtype(np.float32) if found == np.float16 else found

    def fixed(self, index: int) -> Array | None:
        """Content of a constant; None for what an operator or the caller fills."""
        index = self._stored.get(index, index)
        if not self._holds(index):
            return None
        tensor, dtype = self.graph.tensors[index], self.dtype(index)
        data = self.model.buffers[tensor.buffer].data
        stored = _TYPES[tensor.type]
        return np.frombuffer(np.asarray(data, np.uint8).tobytes(), stored).reshape(self.shape(index)).astype(dtype)

    def name(self, index: int, *, first: bool = False) -> str:
        """Name of a tensor in the order of axes that is asked for; a Transpose is written where it has the other."""
        if (index, first) not in self._names:
            if (index, not first) in self._names:
                order = _FIRST if first else _LAST
                made = self.node("Transpose", [self._names[index, not first]], perm=order)
            else:
                array = self.fixed(index)
                if array is None:
                    missing = text(self.graph.tensors[index].name)
                    raise ConfigError(f"{self.file}: tensor {missing!r} is made by no operator")
                made = self.constant(array.transpose(_FIRST) if first else array)
            self._names[index, first] = made
        return self._names[index, first]

    def is_first(self, index: int) -> bool:
        """Say whether a tensor is there with its channels first, and not in the file's order."""
        return (index, True) in self._names and (index, False) not in self._names

    def give(self, index: int, name: str, *, first: bool = False) -> None:
        """Note what an operator made."""
        self._names[index, first] = name

    # -- nodes -----------------------------------------------------------------------------------------------------

    def node(self, kind: str, inputs: Sequence[str], outputs: int = 1, **attributes: Any) -> str:
        """Add a node, and return the name of its first result; others have ``:1``, ``:2`` behind it."""
        base = f"{self._prefix}t{self._count}"
        self._count += 1
        names = [base, *(f"{base}:{i}" for i in range(1, outputs))]
        self.nodes.append(helper.make_node(kind, inputs, names, name=f"{kind}_{base}", **attributes))
        return base

    def constant(self, array: npt.ArrayLike, dtype: npt.DTypeLike | None = None) -> str:
        """Add a constant."""
        name = f"{self._prefix}c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.array(array, dtype, order="C"), name))
        return name

    def integers(self, values: npt.ArrayLike) -> str:
        """Add a list of int64."""
        return self.constant(np.asarray(values, np.int64))

    def reshape(self, name: str, before: Sequence[int], after: Iterable[int]) -> str:
        """Add other axes over the same numbers; the batch, where it is left open, stays what it is."""
        sizes = [int(size) for size in after]
        if self.open_batch and tuple(before[:1]) == (1,) and sizes[:1] == [1]:
            sizes[0] = 0
        return self.node("Reshape", [name, self.integers(sizes)])

    def activated(self, name: str, kind: int) -> str:
        """Apply an operator's own activation."""
        kinds = schema.ActivationFunctionType
        if kind == kinds.NONE:
            return name
        if kind == kinds.RELU:
            return self.node("Relu", [name])
        if kind in (kinds.RELU6, kinds.RELU_N1_TO_1):
            low, high = (0, 6) if kind == kinds.RELU6 else (-1, 1)
            return self.node("Clip", [name, self.constant(np.float32(low)), self.constant(np.float32(high))])
        if kind == kinds.TANH:
            return self.node("Tanh", [name])
        raise ConfigError(f"{self.file}: an operator has an activation of kind {kind}, which cannot be read")

    # -- the whole -------------------------------------------------------------------------------------------------

    def read(self, readers: Mapping[str, Read]) -> onnx.ModelProto:
        """Read every operator.

        Args:
            readers: the functions that write nodes, by operator.

        Raises:
            ConfigError: one cannot be read.
        """
        inputs = [self._edge(int(i)) for i in self.graph.inputs]
        for info in inputs if self.open_batch else ():
            info.type.tensor_type.shape.dim[0].dim_param = "batch"
        for index, info in zip(self.graph.inputs, inputs, strict=True):
            self.give(int(index), info.name)
        for operator in self.graph.operators:
            kind = self.kind(operator)
            if kind == "DEQUANTIZE" and int(operator.outputs[0]) in self._stored:
                continue
            if kind not in readers:
                raise ConfigError(f"{self.file}: operator {kind} cannot be read; give the model as ONNX")
            for place, made in readers[kind](self, operator):
                self.give(int(operator.outputs[place]), made[0], first=made[1])
        outputs = [self._edge(int(i)) for i in self.graph.outputs]
        for index, info in zip(self.graph.outputs, outputs, strict=True):
            self.nodes.append(helper.make_node("Identity", [self.name(int(index))], [info.name]))
            # What an operator makes has the sizes of a run; a file may state others.
            info.type.tensor_type.ClearField("shape")
        graph = helper.make_graph(self.nodes, "model", inputs, outputs, self.constants)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8)
        return onnx.shape_inference.infer_shapes(model, data_prop=True)

    def _edge(self, index: int) -> onnx.ValueInfoProto:
        tensor = self.graph.tensors[index]
        kind = helper.np_dtype_to_tensor_dtype(self.dtype(index))
        return helper.make_tensor_value_info(text(tensor.name), kind, self.shape(index))


def _starts(names: Sequence[str], mark: str) -> bool:
    return any(name.startswith(mark) for name in names)


def text(name: Any) -> str:
    """Return a name of the file as text."""
    return name.decode("utf-8", "replace") if isinstance(name, bytes) else str(name)
