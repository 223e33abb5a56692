"""The form of a bundle put around a TensorFlow Lite file: operators in front of and behind its graph.

The file's own operators, weights and steps stay as they are. Integers at its edges get a QUANTIZE in front and a
DEQUANTIZE behind, so that the engine computes what numpy would have to at every call: the same integers in a tenth of
the time. Only a value that lies between two integers to the last bit may go to the other one.

Source: schema version 3 of LiteRT.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from ai_edge_litert import schema_py_generated as schema

from edge_export.card.onnx_edges import CONTINUOUS, Fitted, several_ends
from edge_export.card.spec import Card, check_numbers, layout_of
from edge_export.tflite import editing, versions
from edge_runtime.errors import ConfigError

_NUMBERS = {dtype: number for number, dtype in editing.TYPES.items()}
_QUANTIZED = frozenset({np.dtype(np.int8), np.dtype(np.uint8)})
"""Types of which QUANTIZE makes the integers that numpy makes. Those of int16 differ by one, once in 100,000."""
_STATE = ("VAR_HANDLE", "READ_VARIABLE", "ASSIGN_VARIABLE", "SVDF")
"""Operators that remember the call before. LSTM layers are none of them: their steps lie within a window."""


class _Graph:
    """A file's first graph, to which operators are added.

    Args:
        model: the unpacked file.
    """

    def __init__(self, model: Any) -> None:
        self.model = model
        self.graph = model.subgraphs[0]
        self.front: list[Any] = []
        self.back: list[Any] = []

    def dtype(self, index: int) -> np.dtype[Any] | None:
        """Element type; None for one that neither windows nor probabilities have: text, or plain integers."""
        tensor = self.graph.tensors[index]
        found = editing.TYPES.get(tensor.type)
        steps = None if tensor.quantization is None else tensor.quantization.scale
        return found if found is None or found.kind == "f" or (steps is not None and len(steps)) else None

    def sizes(self, index: int) -> list[int]:
        """Sizes, -1 for those that the file leaves open; the batch is open or as it is."""
        tensor = self.graph.tensors[index]
        stated = tensor.shapeSignature if tensor.shapeSignature is not None and len(tensor.shapeSignature) else None
        shape = [] if tensor.shape is None else [int(size) for size in tensor.shape]
        if stated is None:
            return shape
        return [int(size) if int(size) < 0 and place else shape[place] for place, size in enumerate(stated)]

    def tensor(self, name: str, shape: Sequence[int], dtype: npt.DTypeLike, *, quantized_as: int | None = None) -> int:
        """Add a tensor that an operator or the caller fills."""
        made = schema.TensorT()
        made.name, made.shape, made.buffer = name, [int(size) for size in shape], 0
        made.type = _NUMBERS[np.dtype(dtype)]
        if quantized_as is not None:
            made.quantization = self.graph.tensors[quantized_as].quantization
        self.graph.tensors.append(made)
        return len(self.graph.tensors) - 1

    def constant(self, name: str, value: npt.NDArray[Any]) -> int:
        """Add a tensor with fixed content."""
        index = self.tensor(name, value.shape, value.dtype)
        buffer = schema.BufferT()
        buffer.data = np.frombuffer(np.ascontiguousarray(value).tobytes(), np.uint8)
        self.model.buffers.append(buffer)
        self.graph.tensors[index].buffer = len(self.model.buffers) - 1
        return index

    def operator(
        self, to: list[Any], name: str, inputs: Sequence[int], output: int, *, options: str = "", **settings: Any
    ) -> int:
        """Add an operator with one result, and return that."""
        tensors = self.graph.tensors
        dtypes = [editing.TYPES.get(tensors[i].type, np.dtype(np.int32)) for i in inputs]
        shapes = [tuple(int(size) for size in tensors[i].shape) for i in inputs]
        made = schema.OperatorT()
        made.opcodeIndex = self._code(name, versions.oldest(name, dtypes, shapes, settings))
        made.inputs, made.outputs = list(inputs), [output]
        if options:
            made.builtinOptions = getattr(schema, f"{options}T")()
            made.builtinOptionsType = getattr(schema.BuiltinOptions, options)
            for field, value in settings.items():
                setattr(made.builtinOptions, field, value)
        to.append(made)
        return output

    def reshape(self, to: list[Any], source: int, target: int) -> int:
        """Other axes over the same numbers; the batch is what is left."""
        shape = [int(size) for size in self.graph.tensors[target].shape]
        wanted = self.constant("card/shape", np.array([-1, *shape[1:]], np.int32))
        return self.operator(
            to, "RESHAPE", [source, wanted], target, options="ReshapeOptions", newShape=[-1, *shape[1:]]
        )

    def _code(self, name: str, version: int) -> int:
        number = getattr(schema.BuiltinOperator, name)
        for place, code in enumerate(self.model.operatorCodes):
            if editing.builtin(code) == number and code.version == version:
                return place
        made = schema.OperatorCodeT()
        made.builtinCode, made.version = number, version
        made.deprecatedBuiltinCode = min(number, 127)
        self.model.operatorCodes.append(made)
        return len(self.model.operatorCodes) - 1


def fit_tflite(data: bytes, card: Card, file: str) -> Fitted:
    """Write a copy of a TensorFlow Lite file that takes windows in physical units and answers with probabilities.

    Args:
        data: the file's bytes.
        card: what it eats and answers.
        file: named in errors.

    Raises:
        ConfigError: it is no such file, has several inputs or outputs, keeps state, holds NaN, or does not fit the
            card.
    """
    graph = _Graph(editing.unpack(data, file))
    _refuse(graph, file)
    source, answer = int(graph.graph.inputs[0]), int(graph.graph.outputs[0])
    sizes = graph.sizes(source)
    if len(sizes) < 2:
        raise ConfigError(f"{file}: its input has the shape {sizes}, without an axis for the batch")
    if graph.dtype(source) is None:
        raise ConfigError(f"{file}: its input takes integers without steps, or no numbers; {CONTINUOUS}")
    layout = layout_of(sizes[1:], card.input, file)
    precision = _precision(graph)
    changes: list[str] = []
    channels, samples = len(card.input.channels), card.input.window
    wanted = [channels, samples] if layout == "NCW" else [samples, channels]
    batch = int(graph.graph.tensors[source].shape[0])
    if -1 in sizes[1:]:
        raise ConfigError(
            f"{file}: its input leaves sizes open ({sizes[1:]}), and with them those of every layer behind; convert it "
            f"again for a window of {samples} samples"
        )
    changes += _front(graph, card, source, [batch, *wanted], channels_at=1 if layout == "NCW" else 2)
    changes += _back(graph, card, answer, file)
    inner = graph.graph.operators
    graph.graph.operators = [*graph.front, *inner, *graph.back]
    # The signature names tensors that are no longer at the edges; engines go by the graph's own lists.
    graph.model.signatureDefs = None
    return Fitted(
        model=editing.repack(graph.model) if changes else data,
        layout=layout,
        precision=precision,
        changes=tuple(changes),
    )


def _refuse(graph: _Graph, file: str) -> None:
    names = {editing.operator_name(code) for code in graph.model.operatorCodes}
    if custom := [editing.text(code.customCode) for code in graph.model.operatorCodes if code.customCode]:
        listed = ", ".join(sorted(custom))
        raise ConfigError(f"{file}: needs operators that are no part of LiteRT: {listed}")
    if state := sorted(names & set(_STATE)):
        raise ConfigError(
            f"{file}: keeps state between calls ({', '.join(state)}); a bundle's model answers each window alone; "
            "give a version of the model that takes its whole window"
        )
    for what, ends in (("input", graph.graph.inputs), ("output", graph.graph.outputs)):
        if len(ends) != 1:
            raise ConfigError(several_ends(file, what, [editing.text(graph.graph.tensors[i].name) for i in ends]))
    for tensor in graph.graph.tensors:
        buffer = graph.model.buffers[tensor.buffer].data
        dtype = editing.TYPES.get(tensor.type)
        if buffer is None or dtype is None or dtype.kind != "f" or len(buffer) % dtype.itemsize:
            continue
        array = np.frombuffer(bytes(bytearray(buffer)), dtype)
        if np.isnan(array).any() or (len(array) > 1 and not np.isfinite(array).all()):
            raise ConfigError(
                f"{file}: weight {editing.text(tensor.name)} holds NaN or infinity; the file is damaged or diverged"
            )


def _front(graph: _Graph, card: Card, source: int, shape: Sequence[int], *, channels_at: int) -> Iterator[str]:
    """From the window in physical units to what the graph reads."""
    own = [int(size) for size in graph.graph.tensors[source].shape]
    dtype, to = graph.dtype(source), graph.front
    integers = dtype is not None and dtype.kind in "iu"
    quantized = dtype in _QUANTIZED or (integers and card.input.scaled)
    if not (card.input.scaled or quantized or own != list(shape)):
        return
    # An edge that no operator turns into floats keeps its integers; the engine turns windows into them.
    outside = np.float32 if card.input.scaled or quantized else dtype or np.float32
    kept = None if outside == np.float32 else source
    flow = window = graph.tensor("window", shape, outside, quantized_as=kept)
    if card.input.scaled:
        broadcast = [1] * len(shape)
        broadcast[channels_at] = shape[channels_at]
        for name, values in (
            ("SUB", [c.offset for c in card.input.channels]),
            ("MUL", [c.scale for c in card.input.channels]),
        ):
            if name == "SUB" and not any(values):
                continue
            factor = graph.constant(f"card/{name.lower()}", np.array(values, np.float32).reshape(broadcast))
            result = graph.tensor(f"card/{name.lower()}/result", shape, np.float32)
            flow = graph.operator(to, name, [flow, factor], result, options=f"{name.title()}Options")
        yield "scaling of each channel"
    if own != list(shape):
        flow = graph.reshape(to, flow, graph.tensor("card/axes", own, outside, quantized_as=kept))
        yield f"axes as the file has them ({', '.join(map(str, own[1:]))})"
    if quantized:
        graph.operator(to, "QUANTIZE", [flow], source, options="QuantizeOptions")
        yield f"quantisation of the window to {dtype}"
    else:
        to[-1].outputs = [source]
    graph.graph.inputs = [window]


def _back(graph: _Graph, card: Card, answer: int, file: str) -> Iterator[str]:
    """From what the graph answers to probabilities of the labels."""
    output, to = card.output, graph.back
    own = [int(size) for size in graph.graph.tensors[answer].shape]
    dtype = graph.dtype(answer)
    name = editing.text(graph.graph.tensors[answer].name)
    if dtype is None:
        raise ConfigError(f"{file}: output {name} is no float32 and no quantised number; it cannot be a probability")
    check_numbers(int(np.prod(own[1:])) if len(own) > 1 else 0, card, file, name)
    shape, flow = [own[0], output.numbers], answer
    computes = output.values != "probabilities" or dtype in _QUANTIZED
    if computes and dtype != np.float32:
        flow = graph.operator(to, "DEQUANTIZE", [flow], graph.tensor("card/answer", own, np.float32))
        yield f"answers of {dtype} as floats"
    if own != shape:
        kept = None if computes or dtype == np.float32 else answer
        result = graph.tensor("card/row", shape, np.float32 if computes else dtype, quantized_as=kept)
        flow = graph.reshape(to, flow, result)
        yield "answers as one row per window"
    if output.temperature != 1:
        factor = graph.constant("card/temperature", np.array([1 / output.temperature], np.float32))
        warm = graph.tensor("card/warm", shape, np.float32)
        flow = graph.operator(to, "MUL", [flow, factor], warm, options="MulOptions")
        yield f"temperature {output.temperature:g}"
    if output.values == "logits":
        result = graph.tensor("probabilities", shape, np.float32)
        flow = graph.operator(to, "SOFTMAX", [flow], result, options="SoftmaxOptions", beta=1.0)
        yield "softmax"
    if output.values == "logit":
        flow = graph.operator(to, "LOGISTIC", [flow], graph.tensor("card/second", shape, np.float32))
        yield "sigmoid"
    if output.numbers == 1:
        one = graph.constant("card/one", np.array([1.0], np.float32))
        first = graph.operator(
            to, "SUB", [one, flow], graph.tensor("card/first", shape, np.float32), options="SubOptions"
        )
        result = graph.tensor("probabilities", [own[0], 2], np.float32)
        flow = graph.operator(to, "CONCATENATION", [first, flow], result, options="ConcatenationOptions", axis=1)
        yield "the first label's probability"
    graph.graph.outputs = [flow]


def precision_of(data: bytes, file: str) -> str:
    """Return the precision of a file's numbers, as `Variant.precision`.

    Raises:
        ConfigError: it is no TensorFlow Lite file, or a damaged one.
    """
    return _precision(_Graph(editing.unpack(data, file)))


def input_shapes(data: bytes, file: str) -> dict[str, tuple[int, ...]]:
    """Return the sizes of each input, -1 for open ones.

    Raises:
        ConfigError: it is no TensorFlow Lite file, or a damaged one.
    """
    graph = editing.unpack(data, file).subgraphs[0]
    found = {}
    for tensor in (graph.tensors[i] for i in graph.inputs):
        sizes = tensor.shape if tensor.shapeSignature is None else tensor.shapeSignature
        found[editing.text(tensor.name) if tensor.name else ""] = () if sizes is None else tuple(map(int, sizes))
    return found


def custom_operators(data: bytes, file: str) -> list[str]:
    """Return the names of operators that are no part of the format: custom ones, and TensorFlow's own (Flex).

    Raises:
        ConfigError: it is no TensorFlow Lite file, or a damaged one.
    """
    codes = editing.unpack(data, file).operatorCodes
    return sorted(editing.text(code.customCode) for code in codes if code.customCode)


def _precision(graph: _Graph) -> str:
    """By what flows between operators: integers all the way, floats all the way, or both."""
    fixed = {i for i, tensor in enumerate(graph.graph.tensors) if graph.model.buffers[tensor.buffer].data is not None}
    flowing = {
        graph.dtype(int(i))
        for op in graph.graph.operators
        for i in (*op.inputs, *op.outputs)
        if i not in fixed and i >= 0
    }
    stored = {editing.TYPES.get(graph.graph.tensors[i].type) for i in fixed}
    integers = {dtype for dtype in flowing if dtype is not None and dtype.kind in "iu"}
    if integers and np.dtype(np.float32) not in flowing:
        return "int8"
    if integers or np.dtype(np.int8) in stored:
        return "mixed"
    return "fp16" if np.dtype(np.float16) in stored else "fp32"
