"""What the TensorFlow Lite writer knows of the ONNX graph it walks: constants, shapes, readers, and tensors made.

`to_tflite` holds the operators; this module answers their questions. The rules it keeps are listed there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import numpy_helper, shape_inference

from edge_runtime.errors import ConfigError
from export.tflite_file import Quantization, TfliteFile

Array = npt.NDArray[Any]

NO_ACTIVATION, RELU, RELU6 = 0, 1, 3
"""Values of ``ActivationFunctionType`` in the TensorFlow Lite schema."""


class UnsupportedNodeError(ConfigError):
    """The graph holds a node that has no TensorFlow Lite form here.

    Attributes:
        node: name of the ONNX node, or of its first output where it has none.
        op_type: its operator.
    """

    def __init__(self, node: onnx.NodeProto, why: str) -> None:
        self.node = node.name or (node.output[0] if node.output else "unnamed")
        self.op_type = node.op_type
        super().__init__(f"node {self.node!r} ({self.op_type}) cannot be written as TensorFlow Lite: {why}")


@dataclass(slots=True, kw_only=True)
class Value:
    """An activation.

    Attributes:
        name: of the ONNX tensor.
        shape: in ONNX's axis order, with a batch of 1.
        quantization: None for floats.
        tensors: index of the TFLite tensor that holds it with channels last (True) or in ONNX's order (False).
    """

    name: str
    shape: tuple[int, ...]
    quantization: Quantization | None
    tensors: dict[bool, int] = field(default_factory=dict)

    @property
    def channels_last(self) -> bool:
        """The layout to prefer: the plain one where it exists."""
        return False not in self.tensors

    @property
    def dtype(self) -> type[np.generic]:
        """Type of the stored numbers."""
        return np.float32 if self.quantization is None else np.int8

    def version(self, floats: int, integers: int) -> int:
        """Pick an operator version by the type of the numbers."""
        return floats if self.quantization is None else integers


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """Fixed parameters of a convolution or a dense layer.

    Attributes:
        stored: int8, or float32 where `scale` is None.
        bias: (outputs,) real values.
        scale: one step, or one per output.
    """

    stored: Array
    bias: Array
    scale: npt.NDArray[np.float32] | None


class Graph:
    """An ONNX graph being rewritten into a `TfliteFile`.

    Args:
        model: see `export.to_tflite.convert`.
    """

    def __init__(self, model: onnx.ModelProto) -> None:
        self.onnx = _with_batch_of_one(model).graph
        self.file = TfliteFile()
        self.constants: dict[str, Array] = {
            tensor.name: numpy_helper.to_array(tensor) for tensor in self.onnx.initializer
        }
        self.constants |= {
            node.output[0]: numpy_helper.to_array(node.attribute[0].t)
            for node in self.onnx.node
            if node.op_type == "Constant" and node.attribute[0].name == "value"
        }
        self.values: dict[str, Value] = {}
        self.written: set[str] = set()
        """Outputs of nodes that an earlier node has taken over, and that the walk skips."""
        self.producers = {name: node for node in self.onnx.node for name in node.output}
        self._readers: dict[str, list[onnx.NodeProto]] = {}
        for node in self.onnx.node:
            for name in node.input:
                self._readers.setdefault(name, []).append(node)
        infos = (*self.onnx.input, *self.onnx.value_info, *self.onnx.output)
        self._shapes = {i.name: tuple(d.dim_value for d in i.type.tensor_type.shape.dim) for i in infos}
        self._results = {info.name for info in self.onnx.output}

    # ---- what the ONNX graph says -------------------------------------------------------------------------

    def shape(self, name: str) -> tuple[int, ...]:
        """Sizes of a tensor.

        Raises:
            ConfigError: they are not known before the model runs.
        """
        shape = self._shapes.get(name)
        if shape is None or 0 in shape:
            raise ConfigError(f"the shape of tensor {name!r} is not known; export with fixed sizes except the batch")
        return shape

    def sole_reader(self, name: str) -> onnx.NodeProto | None:
        """The one node that reads a tensor; None where several do, or the caller of the model does."""
        readers = self._readers.get(name, [])
        return readers[0] if len(readers) == 1 and name not in self._results else None

    def constant(self, name: str) -> Array | None:
        """The fixed real values of a tensor, dequantised where they are stored as integers; None for activations."""
        if name in self.constants:
            return self.constants[name]
        producer = self.producers.get(name)
        if producer is None or producer.op_type != "DequantizeLinear" or producer.input[0] not in self.constants:
            return None
        stored = self.constants[producer.input[0]]
        scale, zero = self._steps(producer)
        if scale.size > 1:
            along = [1] * stored.ndim
            along[attributes(producer).get("axis", 1)] = -1
            scale, zero = scale.reshape(along), zero.reshape(along)
        return ((stored.astype(np.float64) - zero) * scale.astype(np.float64)).astype(np.float32)

    def _steps(self, node: onnx.NodeProto) -> tuple[Array, Array]:
        scale = self.constants.get(node.input[1])
        if scale is None:
            raise UnsupportedNodeError(node, "its scale is computed at run time")
        zero = self.constants[node.input[2]] if len(node.input) > 2 else np.zeros(scale.shape, np.uint8)
        return scale.astype(np.float32), zero.astype(np.int64)

    def quantization(self, node: onnx.NodeProto) -> Quantization:
        """Scale and zero point of an activation's QuantizeLinear."""
        scale, zero = self._steps(node)
        stored = self.constants[node.input[2]].dtype if len(node.input) > 2 else np.dtype(np.uint8)
        if stored != np.int8:
            raise UnsupportedNodeError(node, f"its activations are {stored}; quantise the model as s8s8")
        if scale.size != 1:
            raise UnsupportedNodeError(node, f"activations need one scale, this has {scale.size}")
        return Quantization(scale=scale.reshape(1), zero_point=int(zero.reshape(-1)[0]))

    def weights(self, node: onnx.NodeProto, *, outputs: int, quantized: bool) -> Weights:
        """Parameters of a node whose second input holds its weights and whose third, if any, its bias."""
        real = self.constant(node.input[1])
        bias = self.constant(node.input[2]) if len(node.input) > 2 and node.input[2] else np.zeros(outputs)
        if real is None or bias is None:
            raise UnsupportedNodeError(node, "its weights and bias must be constant")
        if not quantized:
            return Weights(stored=real.astype(np.float32), bias=bias, scale=None)
        producer = self.producers.get(node.input[1])
        stored = None if producer is None else self.constants.get(producer.input[0])
        if producer is None or stored is None or stored.dtype != np.int8:
            raise UnsupportedNodeError(node, "its input is int8 but its weights are not")
        scale, zero = self._steps(producer)
        if np.any(zero):
            raise UnsupportedNodeError(node, "its weights need zero point 0; quantise them symmetrically")
        if scale.size > 1 and stored.shape[attributes(producer).get("axis", 1)] != outputs:
            raise UnsupportedNodeError(node, "the scales of its weights must run along the outputs")
        return Weights(stored=stored, bias=bias, scale=scale.reshape(-1))

    # ---- values -------------------------------------------------------------------------------------------

    def new(
        self,
        name: str,
        shape: tuple[int, ...],
        quantization: Quantization | None,
        *,
        channels_last: bool = False,
        label: str = "",
        batched: bool = False,
    ) -> tuple[Value, int]:
        """Declare an activation and the tensor that is about to be filled with it."""
        value = Value(name=name, shape=shape, quantization=quantization)
        sizes = channels_last_shape(shape) if channels_last else shape
        index = self.file.tensor(label or name, sizes, value.dtype, quantization, batched=batched)
        value.tensors[channels_last] = index
        self.values[name] = value
        return value, index

    def float_value(self, name: str, node: onnx.NodeProto) -> Value:
        """A float activation, with a DEQUANTIZE where only its integers exist so far."""
        if name not in self.values:
            stored = self.int8_value(name)
            if stored is None:
                raise UnsupportedNodeError(node, f"it reads {name!r}, which is a constant; fold it first")
            last = stored.channels_last
            _, index = self.new(name, stored.shape, None, channels_last=last)
            self.file.operator("DEQUANTIZE", [stored.tensors[last]], [index], version=2, options="DequantizeOptions")
        return self.values[name]

    def int8_value(self, name: str) -> Value | None:
        """The integers behind a tensor that comes straight out of DequantizeLinear."""
        producer = self.producers.get(name)
        if producer is None or producer.op_type != "DequantizeLinear":
            return None
        return self.values.get(producer.input[0])

    def inputs(self, node: onnx.NodeProto, names: Sequence[str], result: str) -> tuple[list[Value], bool]:
        """The values a node reads, and whether it becomes an int8 operator (rule 1)."""
        stored = [value for value in map(self.int8_value, names) if value is not None]
        reader = self.sole_reader(result)
        if reader is not None and reader.op_type == "QuantizeLinear" and len(stored) == len(names):
            return stored, True
        return [self.float_value(name, node) for name in names], False

    def output(self, name: str, *, quantized: bool, channels_last: bool = False) -> tuple[Value, int]:
        """Declare a node's result: under the name of the QuantizeLinear that reads it, or as floats."""
        shape = self.shape(name)
        reader = self.sole_reader(name) if quantized else None
        if reader is None:
            return self.new(name, shape, None, channels_last=channels_last)
        self.written.add(reader.output[0])
        return self.new(reader.output[0], shape, self.quantization(reader), channels_last=channels_last)

    def fused_activation(self, node: onnx.NodeProto) -> tuple[str, int]:
        """Name of a node's result behind the activation that alone reads it, and that activation."""
        name = node.output[0]
        reader = self.sole_reader(name)
        if reader is None or reader.op_type not in ("Relu", "Clip"):
            return name, NO_ACTIVATION
        self.written.add(reader.output[0])
        return reader.output[0], self.activation(reader)

    def activation(self, node: onnx.NodeProto) -> int:
        """The TensorFlow Lite activation that a Relu or Clip node is."""
        if node.op_type == "Relu":
            return RELU
        bounds = [self.constants.get(name) for name in node.input[1:]]
        if len(bounds) != 2 or any(b is None for b in bounds) or [float(b) for b in bounds if b is not None] != [0, 6]:
            raise UnsupportedNodeError(node, "of all Clip only the one between 0 and 6 has a form")
        return RELU6

    # ---- layouts ------------------------------------------------------------------------------------------

    def plain(self, value: Value) -> int:
        """The tensor in ONNX's axis order, transposed once where only the other layout exists."""
        if False not in value.tensors:
            index = value.tensors[True]
            n, h, w, c = channels_last_shape(value.shape)
            if h * w == 1:
                value.tensors[False] = self._reshaped(value, index, value.shape, "plain")
            else:
                rank = len(value.shape)
                shape = (n, w, c) if rank == 3 else (n, h, w, c)
                if rank == 3:
                    index = self._reshaped(value, index, shape, "rows")
                order = (0, rank - 1, *range(1, rank - 1))
                value.tensors[False] = self._transposed(value, index, shape, order, "plain")
        return value.tensors[False]

    def channels_last(self, value: Value, node: onnx.NodeProto) -> int:
        """The tensor with channels last, transposed once where only the other layout exists."""
        if True not in value.tensors:
            rank = len(value.shape)
            if rank not in (3, 4):
                raise UnsupportedNodeError(node, f"it needs (N, C, W) or (N, C, H, W), not {rank} axes")
            index = self._transposed(value, value.tensors[False], value.shape, (0, *range(2, rank), 1), "channels_last")
            if rank == 3:
                index = self._reshaped(value, index, channels_last_shape(value.shape), "height_one")
            value.tensors[True] = index
        return value.tensors[True]

    def in_layout(self, value: Value, node: onnx.NodeProto, *, channels_last: bool) -> int:
        """The tensor in the layout asked for."""
        return self.channels_last(value, node) if channels_last else self.plain(value)

    def integers(self, numbers: Sequence[int], name: str) -> int:
        """A constant int32 vector."""
        return self.file.constant(name, np.array(numbers, np.int32))

    def write_reshape(self, source: int, target: int, shape: Sequence[int]) -> None:
        """Append a RESHAPE that leaves the batch open, so that the caller may resize it."""
        sizes = [-1, *shape[1:]]
        self.file.operator(
            "RESHAPE", [source, self.integers(sizes, "shape")], [target], options="ReshapeOptions", newShape=sizes
        )

    def _reshaped(self, value: Value, index: int, shape: Sequence[int], suffix: str) -> int:
        target = self.file.tensor(f"{value.name}:{suffix}", shape, value.dtype, value.quantization)
        self.write_reshape(index, target, shape)
        return target

    def _transposed(self, value: Value, index: int, shape: Sequence[int], order: Sequence[int], suffix: str) -> int:
        sizes = [shape[axis] for axis in order]
        target = self.file.tensor(f"{value.name}:{suffix}", sizes, value.dtype, value.quantization)
        self.file.operator(
            "TRANSPOSE",
            [index, self.integers(order, "order")],
            [target],
            version=value.version(1, 2),
            options="TransposeOptions",
        )
        return target


def attributes(node: onnx.NodeProto) -> dict[str, Any]:
    """A node's attributes as plain values."""
    return {attribute.name: onnx.helper.get_attribute_value(attribute) for attribute in node.attribute}


def channels_last_shape(shape: Sequence[int]) -> tuple[int, int, int, int]:
    """(N, C, W) or (N, C, H, W) as (N, H, W, C), with height 1 for the former."""
    return (shape[0], 1 if len(shape) == 3 else shape[2], shape[-1], shape[1])


def _with_batch_of_one(model: onnx.ModelProto) -> onnx.ModelProto:
    fixed = onnx.ModelProto()
    fixed.CopyFrom(model)
    for info in fixed.graph.input:
        dims = info.type.tensor_type.shape.dim
        if dims:
            dims[0].dim_value = 1
    # Shapes noted for an open batch would contradict the ones inferred now.
    del fixed.graph.value_info[:]
    for info in fixed.graph.output:
        info.type.tensor_type.ClearField("shape")
    try:
        return shape_inference.infer_shapes(fixed, strict_mode=True, data_prop=True)
    except shape_inference.InferenceError as error:
        raise ConfigError(f"the model's shapes contradict each other: {str(error).splitlines()[0]}") from error
