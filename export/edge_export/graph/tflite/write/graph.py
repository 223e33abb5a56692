"""ONNX graph as the TensorFlow Lite writers see it: constants, readers, layouts, and the tensors made so far.

The writers hold the operators; this module holds what they ask of the graph. The rules it keeps are listed in
`edge_export.graph.tflite.convert`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx

from edge_export.graph.onnx_graph.exact_downcast import exact_downcast
from edge_export.graph.tflite.errors import UnsupportedNodeError
from edge_export.graph.tflite.lower.prepare import Prepared
from edge_export.graph.tflite.watch import Watched
from edge_export.graph.tflite.write.file import TYPES, Quantization, TfliteFile
from edge_export.graph.tflite.write.values import LAST_ORDER, Array, ConstantOperand, Operand, Value, Weights
from edge_runtime.errors import ConfigError

NO_ACTIVATION, RELU, RELU_N1_TO_1, RELU6 = 0, 1, 2, 3
"""Values of ``ActivationFunctionType`` in the TensorFlow Lite schema."""

_CLIPS: dict[tuple[float | None, float | None], int] = {
    (0.0, 6.0): RELU6,
    (-1.0, 1.0): RELU_N1_TO_1,
    (0.0, None): RELU,
}

_LAST_AXIS = {3: (0, 3, 2), 4: (0, 3, 1, 2)}
"""Place of each ONNX axis in the layout with channels last, that height included."""


class Graph:
    """An ONNX graph being rewritten into a `TfliteFile`.

    Args:
        prepared: see `edge_export.graph.tflite.lower.prepare`.
        compact: store weights in fewer bits where those hold them exactly.
    """

    def __init__(self, prepared: Prepared, *, compact: bool = False) -> None:
        self.onnx = prepared.graph
        self.opset = prepared.opset
        self.constants = prepared.constants
        self.file = TfliteFile()
        self.values: dict[str, Value] = {}
        self.written: set[str] = set()
        """Outputs of nodes that an earlier node has taken over, and that the walk skips."""
        self.producers = {name: node for node in self.onnx.node for name in node.output}
        self.open_axes = dict(prepared.open_axes)
        self._compact = compact
        self._widened: dict[int, int] = {}
        self._readers: dict[str, list[onnx.NodeProto]] = {}
        for node in self.onnx.node:
            for name in node.input:
                self._readers.setdefault(name, []).append(node)
        self._shapes, self._dtypes = prepared.shapes, prepared.dtypes
        self._results = {info.name for info in self.onnx.output}

    # ---- what the ONNX graph says -------------------------------------------------------------------------

    def shape(self, name: str) -> tuple[int, ...]:
        """Sizes of a tensor.

        Raises:
            ConfigError: they are not known before the model runs, or one is zero.
        """
        shape = self._shapes.get(name)
        if shape is None or 0 in shape:
            raise ConfigError(f"the shape of tensor {name!r} is not known; export with fixed sizes except the batch")
        return shape

    def dtype(self, name: str) -> np.dtype[Any]:
        """Element type of a tensor.

        Raises:
            ConfigError: TensorFlow Lite's operators do not take it.
        """
        dtype = self._dtypes.get(name, np.dtype(np.float32))
        if dtype not in TYPES:
            raise ConfigError(f"tensor {name!r} holds {dtype}; export the model in float32")
        return dtype

    def sole_reader(self, name: str) -> onnx.NodeProto | None:
        """Find the one node that reads a tensor; None where several do, or the caller of the model does."""
        readers = self._readers.get(name, [])
        return readers[0] if len(readers) == 1 and name not in self._results else None

    def readers(self, name: str) -> Sequence[onnx.NodeProto]:
        """All nodes that read a tensor."""
        return self._readers.get(name, [])

    def is_result(self, name: str) -> bool:
        """Report that the model's caller reads a tensor."""
        return name in self._results

    def fixed(self, name: str) -> ConstantOperand | None:
        """Look up a constant, dequantised where it is stored as integers; None for activations."""
        if name in self.constants:
            return ConstantOperand(name=name, real=self.constants[name])
        producer = self.producers.get(name)
        if producer is None or producer.op_type != "DequantizeLinear" or producer.input[0] not in self.constants:
            return None
        stored = self.constants[producer.input[0]]
        scale, zero = self._steps(producer)
        single = scale.size == 1
        quantization = Quantization.of(scale.item(), zero.item()) if single and stored.dtype == np.int8 else None
        if not single:
            along = [1] * stored.ndim
            along[attributes(producer).get("axis", 1)] = -1
            scale, zero = scale.reshape(along), zero.reshape(along)
        real = ((stored.astype(np.float64) - zero) * scale.astype(np.float64)).astype(np.float32)
        kept = stored if quantization is not None else None
        return ConstantOperand(name=name, real=real.reshape(stored.shape), stored=kept, quantization=quantization)

    def constant(self, name: str) -> Array | None:
        """Look up the real values of a constant; None for activations."""
        fixed = self.fixed(name)
        return None if fixed is None else fixed.real

    def parameter(self, node: onnx.NodeProto, position: int, label: str) -> Array | None:
        """Read a constant input that sizes or selects something; None where the node leaves it out.

        Raises:
            UnsupportedNodeError: it is computed at run time.
        """
        if position >= len(node.input) or not node.input[position]:
            return None
        array = self.constant(node.input[position])
        if array is None:
            raise UnsupportedNodeError(node, f"its {label} must be constant, and {node.input[position]!r} is computed")
        return array

    def _steps(self, node: onnx.NodeProto) -> tuple[Array, Array]:
        scale = self.constants.get(node.input[1])
        if scale is None:
            raise UnsupportedNodeError(node, "its scale is computed at run time")
        if scale.ndim > 1:
            raise UnsupportedNodeError(node, "it has scales per block; quantise per tensor or per channel")
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

    def weights(self, node: onnx.NodeProto, *, outputs: int, axis: int, quantized: bool) -> Weights:
        """Parameters of a node whose second input holds its weights and whose third, if any, its bias.

        Args:
            node: the convolution or dense layer.
            outputs: channels it makes.
            axis: the weights' axis along which the outputs run.
            quantized: take the integers.
        """
        real = self.constant(node.input[1])
        bias = self.constant(node.input[2]) if len(node.input) > 2 and node.input[2] else np.zeros(outputs)
        if real is None or bias is None:
            raise UnsupportedNodeError(node, "its weights and bias must be constant")
        if not quantized:
            return Weights(stored=real.astype(np.float32), bias=bias, scale=None)
        producer = self.producers.get(node.input[1])
        stored = None if producer is None else self.constants.get(producer.input[0])
        if producer is None or stored is None or stored.dtype != np.int8:
            raise UnsupportedNodeError(node, "its activations are int8 but its weights are not")
        scale, zero = self._steps(producer)
        if np.any(zero):
            raise UnsupportedNodeError(node, "its weights need zero point 0; quantise them symmetrically")
        if scale.size > 1 and attributes(producer).get("axis", 1) % stored.ndim != axis:
            raise UnsupportedNodeError(node, "the scales of its weights must run along the outputs")
        return Weights(stored=stored, bias=bias, scale=scale.reshape(-1))

    # ---- values -------------------------------------------------------------------------------------------

    def new(
        self,
        name: str,
        quantization: Quantization | None,
        *,
        of: str = "",
        channels_last: bool = False,
    ) -> tuple[Value, int]:
        """Declare an activation and the tensor that is about to be filled with it.

        Args:
            name: the name that readers know it by.
            quantization: None for plain numbers.
            of: the ONNX tensor whose sizes it has, where that goes by another name.
            channels_last: layout of the tensor.
        """
        value = self.declare(name, quantization, of=of)
        value.tensors[channels_last] = self.file.tensor(
            name, value.sizes(channels_last=channels_last), value.dtype, quantization
        )
        return value, value.tensors[channels_last]

    def declare(self, name: str, quantization: Quantization | None, *, of: str = "") -> Value:
        """Declare an activation whose tensors come later, or are those of another one."""
        source = of or name
        dtype = self.dtype(source) if quantization is None else np.dtype(np.int8)
        value = Value(
            name=name,
            shape=self.shape(source),
            dtype=dtype,
            quantization=quantization,
            open_axis=self.open_axes.get(source),
        )
        self.values[name] = value
        return value

    def plain_value(self, name: str, node: onnx.NodeProto) -> Value:
        """Get an activation as plain numbers; write a DEQUANTIZE where only its integers exist so far."""
        if name not in self.values:
            stored = self.int8_value(name)
            if stored is None:
                raise UnsupportedNodeError(node, f"it reads {name!r}, which nothing before it has made")
            last = stored.channels_last
            source = self.tensor(stored, node, channels_last=last)
            _, index = self.new(name, None, channels_last=last)
            self.file.operator("DEQUANTIZE", [source], [index], options="DequantizeOptions")
        return self.values[name]

    def int8_value(self, name: str) -> Value | None:
        """Find the integers behind a tensor that comes straight out of DequantizeLinear."""
        producer = self.producers.get(name)
        if producer is None or producer.op_type != "DequantizeLinear":
            return None
        return self.values.get(producer.input[0])

    def operands(
        self, node: onnx.NodeProto, names: Iterable[str], results: Sequence[str], *, int8: bool = True
    ) -> tuple[list[Operand], bool]:
        """Collect a node's operands, and decide whether it becomes an int8 operator (rule 1).

        Args:
            node: the node, for errors.
            names: names of its inputs.
            results: names of its outputs.
            int8: whether the operator has an int8 form at all.
        """
        names = list(names)
        fixed = {name: self.fixed(name) for name in names}
        if int8 and all(self._is_quantized(result) for result in results):  # rule 1
            stored: list[Operand | None] = [fixed[name] or self.int8_value(name) for name in names]
            operands = [
                operand
                for operand in stored
                if isinstance(operand, Value) or (operand is not None and operand.integers() is not None)
            ]
            if len(operands) == len(names) and any(isinstance(operand, Value) for operand in operands):  # rule 1
                return operands, True
        return [fixed[name] or self.plain_value(name, node) for name in names], False

    def operand(
        self, node: onnx.NodeProto, position: int = 0, *, results: Sequence[str] = (), int8: bool = True
    ) -> tuple[Value, bool]:
        """Get the one activation that a node works on, and decide whether it becomes an int8 operator."""
        (value,), quantized = self.operands(
            node, [node.input[position]], results or [name for name in node.output if name], int8=int8
        )
        if isinstance(value, ConstantOperand):
            why = f"its answer is always the same, since {value.name!r} is constant; remove that output"
            raise UnsupportedNodeError(node, why)
        return value, quantized

    def _is_quantized(self, result: str) -> bool:
        reader = self.sole_reader(result)
        return reader is not None and reader.op_type == "QuantizeLinear"

    def output(self, name: str, *, quantized: bool, channels_last: bool = False) -> tuple[Value, int]:
        """Declare a node's result: under the name of the QuantizeLinear that reads it, or as plain numbers."""
        reader = self.sole_reader(name) if quantized else None
        if reader is None:
            return self.new(name, None, channels_last=channels_last)
        self.written.add(reader.output[0])
        return self.new(reader.output[0], self.quantization(reader), of=name, channels_last=channels_last)

    def result_quantization(self, name: str) -> Quantization:
        """Read scale and zero point of the QuantizeLinear that alone reads a result."""
        reader = self.sole_reader(name)
        assert reader is not None
        return self.quantization(reader)

    def fused_activation(self, node: onnx.NodeProto) -> tuple[str, int]:
        """Name of a node's result behind the activation that alone reads it, and that activation."""
        name = node.output[0]
        reader = self.sole_reader(name)
        activation = NO_ACTIVATION if reader is None or reader.input[0] != name else self.activation(reader)
        if reader is None or activation == NO_ACTIVATION:
            return name, NO_ACTIVATION
        self.written.add(reader.output[0])
        return reader.output[0], activation

    def activation(self, node: onnx.NodeProto) -> int:
        """Find the TensorFlow Lite activation that a node is; none for all but Relu and some Clip."""
        if node.op_type == "Relu":
            return RELU
        if node.op_type != "Clip":
            return NO_ACTIVATION
        return _CLIPS.get(self.bounds(node), NO_ACTIVATION)

    def bounds(self, node: onnx.NodeProto) -> tuple[float | None, float | None]:
        """Lower and upper bound of a Clip."""
        low, high = self.parameter(node, 1, "minimum"), self.parameter(node, 2, "maximum")
        return None if low is None else float(low.item()), None if high is None else float(high.item())

    # ---- layouts ------------------------------------------------------------------------------------------

    def layout(self, values: Iterable[Value]) -> bool:
        """Choose the layout that moves the fewest numbers; channels last only if all have the same 3 or 4 axes."""
        values = list(values)
        ranks = {len(value.shape) for value in values}
        if len(ranks) != 1 or not ranks <= {3, 4}:
            return False
        costs = {last: sum(value.cost(channels_last=last) for value in values) for last in (False, True)}
        if costs[False] == costs[True]:
            return all(value.channels_last for value in values)
        return costs[True] < costs[False]

    def tensor(self, value: Value, node: onnx.NodeProto, *, channels_last: bool) -> int:
        """Get the tensor in a layout, transposed once where only the other one exists."""
        if channels_last in value.tensors:
            return value.tensors[channels_last]
        if channels_last in value.free:
            made = value.free.pop(channels_last)()
        else:
            rank = len(value.shape)
            if channels_last and rank not in LAST_ORDER:
                raise UnsupportedNodeError(node, f"it needs (N, C, W) or (N, C, H, W), not {rank} axes")
            made = self._relaid(value, node, channels_last=channels_last)
        value.tensors[channels_last] = made
        return made

    def plain(self, value: Value, node: onnx.NodeProto) -> int:
        """Get the tensor in ONNX's axis order."""
        return self.tensor(value, node, channels_last=False)

    def _relaid(self, value: Value, node: onnx.NodeProto, *, channels_last: bool) -> int:
        name = f"{value.name}:{'channels_last' if channels_last else 'plain'}"
        if value.straight:
            index = self.tensor(value, node, channels_last=not channels_last)
            sizes = value.sizes(channels_last=channels_last)
            return self.reshaped(index, value, name, sizes, self.place(value, channels_last=channels_last))
        order = tuple(range(len(value.shape)))
        return self.rearranged(value, node, LAST_ORDER[len(order)] if channels_last else order, name, channels_last)

    def rearranged(
        self, value: Value, node: onnx.NodeProto, order: Sequence[int], name: str, channels_last: bool
    ) -> int:
        """Put the axes of a value into a certain order, with as few operators as its layouts allow.

        1. A layout that it is in, or could be in for nothing, and that has the order is read as it is.
        2. Rank 3 with channels last has a height of 1, which is dropped before axes move, and given where asked for.

        Args:
            value: the source.
            node: the node, for errors.
            order: ONNX axes of the value.
            name: the new tensor's name.
            channels_last: give the answer of rank 3 a height of 1 behind the batch.

        Returns:
            The tensor's index; that of the value itself where nothing moves.
        """
        rank = len(order)
        plain, last = tuple(range(rank)), LAST_ORDER.get(rank)
        held = {False: plain} | ({True: last} if last is not None else {})
        present = [each for each in held if each in value.tensors or each in value.free]
        source = next((each for each in present if held[each] == tuple(order)), present[0])  # rule 1
        index = self.tensor(value, node, channels_last=source)
        flat = source and rank == 3
        sizes = [value.shape[axis] for axis in order]
        place = None if value.open_axis is None else list(order).index(value.open_axis)
        if held[source] == tuple(order) and flat == (channels_last and rank == 3):  # rule 1
            return index
        if flat:  # rule 2
            rows = [value.shape[axis] for axis in held[source]]
            at = None if value.open_axis is None else held[source].index(value.open_axis)
            index = self.reshaped(index, value, f"{name}:rows", rows, at)
        if held[source] != tuple(order):
            target = self.file.tensor(name, sizes, value.dtype, value.quantization)
            moves = [held[source].index(axis) for axis in order]
            self.file.operator(
                "TRANSPOSE", [index, self.integers(moves, "order")], [target], options="TransposeOptions"
            )
            index = target
        if channels_last and rank == 3:  # rule 2
            at = None if place is None else (0, 2, 3)[place]
            index = self.reshaped(index, value, f"{name}:height_one", (sizes[0], 1, *sizes[1:]), at)
        return index

    def place(self, value: Value, *, channels_last: bool) -> int | None:
        """Find the axis that grows with the batch in a layout."""
        if value.open_axis is None:
            return None
        return self.axis(value.open_axis, len(value.shape), channels_last=channels_last)

    @staticmethod
    def axis(axis: int, rank: int, *, channels_last: bool) -> int:
        """Find an ONNX axis in a layout."""
        return _LAST_AXIS[rank][axis % rank] if channels_last else axis % rank

    def integers(self, numbers: Sequence[int], name: str) -> int:
        """Add a constant int32 vector."""
        return self.file.constant(name, np.array(numbers, np.int32))

    def floats(self, name: str, array: npt.NDArray[np.float32]) -> int:
        """Constant weights in float; a compact file stores them in fewer bits where those hold them exactly.

        Readers widen a constant once, when they load the file.
        """
        stored = exact_downcast(array) if self._compact else None
        if stored is None:
            return self.file.constant(name, array)
        one = Quantization.of(1.0, 0) if stored.dtype == np.int8 else None
        source = self.file.constant(f"{name}:narrow", stored, one)
        if source not in self._widened:
            self._widened[source] = self.file.tensor(name, array.shape, np.float32)
            self.file.operator("DEQUANTIZE", [source], [self._widened[source]], options="DequantizeOptions")
        return self._widened[source]

    def write_reshape(self, source: int, target: int, place: int | None) -> None:
        """Append a RESHAPE that leaves the axis at `place` open, so that the caller may resize the batch."""
        if not self.file.shape(target):
            # An empty list of sizes is stored like a missing one.
            self.file.operator("SQUEEZE", [source], [target], options="SqueezeOptions", squeezeDims=[])
            return
        sizes = [-1 if i == place else size for i, size in enumerate(self.file.shape(target))]
        self.file.operator(
            "RESHAPE", [source, self.integers(sizes, "shape")], [target], options="ReshapeOptions", newShape=sizes
        )

    def reshaped(self, index: int, like: Value, name: str, sizes: Sequence[int], place: int | None) -> int:
        """Add a tensor with the same numbers in other sizes."""
        target = self.file.tensor(name, sizes, like.dtype, like.quantization)
        self.write_reshape(index, target, place)
        return target

    def requantized(self, index: int, value: Quantization, wanted: Quantization, name: str) -> int:
        """Add an int8 tensor with another step."""
        if value.same(wanted):
            return index
        target = self.file.tensor(f"{name}:rescaled", self.file.shape(index), np.int8, wanted)
        self.file.operator("QUANTIZE", [index], [target], options="QuantizeOptions")
        return target

    def close_batch(self) -> None:
        """Give up on an open batch: a node needs its size written down."""
        self.open_axes.clear()


def attributes(node: onnx.NodeProto | Watched) -> dict[str, Any]:
    """Read a node's attributes as plain values."""
    if isinstance(node, Watched):
        return node.settings
    return {attribute.name: onnx.helper.get_attribute_value(attribute) for attribute in node.attribute}
