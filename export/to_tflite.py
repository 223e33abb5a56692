"""From an ONNX graph, float or int8 with QuantizeLinear/DequantizeLinear pairs, to TensorFlow Lite.

The integers of the ONNX file are taken over as they are, so both files compute the same numbers up to the rounding
of a requantisation (one step). Neither TensorFlow nor torch takes part.

How a graph is mapped:

1. A node whose inputs come from DequantizeLinear and whose only reader is a QuantizeLinear becomes one int8 operator.
   Everything else stays float, with QUANTIZE and DEQUANTIZE where the two meet.
2. Convolutions and pools work with channels last: (N, C, W) becomes (N, 1, W, C), (N, C, H, W) becomes (N, H, W, C). A
   transposition is written only where a value in ONNX's order meets them.
3. A 1-D convolution is a 2-D one of height 1.
4. A dense layer with one scale per output becomes a 1x1 convolution: older readers take the first scale of such a
   layer for all of it, without a word.
5. Padding is the operator's own where it is what TensorFlow calls SAME, else a PAD before it.

The batch is 1 in the file, and can be changed with `resize_tensor_input`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
import onnx

from edge_runtime.errors import ConfigError
from export.tflite_file import Quantization
from export.tflite_graph import RELU, Graph, UnsupportedNodeError, Value, Weights, attributes, channels_last_shape

_SAME, _VALID = 0, 1
_INT32_MAX = int(np.iinfo(np.int32).max)


def convert(model: onnx.ModelProto, *, io: Literal["float32", "int8"] = "float32") -> bytes:
    """Write an ONNX graph as a TensorFlow Lite file.

    Args:
        model: one input, one output, fixed sizes except the batch, which is the first axis. Quantised activations
            are int8 (not uint8), quantised weights int8 with zero point 0.
        io: type of the file's input and output. ``int8`` leaves the QuantizeLinear at the start and the
            DequantizeLinear at the end to the caller, and needs the graph to have them there.

    Returns:
        The file's bytes; the same for the same graph.

    Raises:
        UnsupportedNodeError: names the first node that cannot be written.
        ConfigError: the graph is not of the form described above.
    """
    graph = Graph(model)
    sources = [info for info in graph.onnx.input if info.name not in graph.constants]
    if len(sources) != 1 or len(graph.onnx.output) != 1:
        raise ConfigError(f"need one input and one output, not {len(sources)} and {len(graph.onnx.output)}")
    source, result = sources[0].name, graph.onnx.output[0].name
    entry = _entry(graph, source, io)
    for node in graph.onnx.node:
        if node.op_type == "Constant" or node.output[0] in graph.written:
            continue
        if (write := _WRITERS.get(node.op_type)) is None:
            raise UnsupportedNodeError(node, f"known here are {', '.join(sorted(_WRITERS))}")
        write(graph, node)
    last = graph.producers[result]
    if io == "float32":
        return graph.file.pack([entry], [graph.plain(graph.float_value(result, last))])
    if (stored := graph.int8_value(result)) is None:
        raise ConfigError(f"int8 output needs DequantizeLinear to produce {result!r}, not {last.op_type}")
    return graph.file.pack([entry], [graph.plain(stored)])


def _entry(graph: Graph, source: str, io: Literal["float32", "int8"]) -> int:
    shape = graph.shape(source)
    if io == "float32":
        return graph.new(source, shape, None, batched=True)[1]
    reader = graph.sole_reader(source)
    if reader is None or reader.op_type != "QuantizeLinear":
        raise ConfigError(f"int8 input needs one QuantizeLinear, and nothing else, to read {source!r}")
    graph.written.add(reader.output[0])
    return graph.new(reader.output[0], shape, graph.quantization(reader), label=source, batched=True)[1]


def _quantize(graph: Graph, node: onnx.NodeProto) -> None:
    source = graph.float_value(node.input[0], node)
    last = source.channels_last
    _, target = graph.new(node.output[0], source.shape, graph.quantization(node), channels_last=last)
    graph.file.operator("QUANTIZE", [source.tensors[last]], [target], options="QuantizeOptions")


def _dequantize(graph: Graph, node: onnx.NodeProto) -> None:
    """Nothing yet: whoever needs the floats writes it (`Graph.float_value`)."""


def _conv(graph: Graph, node: onnx.NodeProto) -> None:
    settings = attributes(node)
    if settings.get("auto_pad", b"NOTSET") != b"NOTSET":
        raise UnsupportedNodeError(node, "auto_pad must be NOTSET; export with the padding written out")
    result, activation = graph.fused_activation(node)
    (value,), quantized = graph.inputs(node, node.input[:1], result)
    outputs, inputs, groups = graph.shape(result)[1], value.shape[1], settings.get("group", 1)
    if groups not in (1, inputs):
        raise UnsupportedNodeError(node, f"{groups} groups over {inputs} channels; only 1, or one per channel")
    depthwise = groups > 1
    weights = graph.weights(node, outputs=outputs, quantized=quantized)
    kernel = weights.stored[:, :, None, :] if weights.stored.ndim == 3 else weights.stored
    flat = weights.stored.ndim == 3
    strides, dilations = _pair(settings.get("strides"), flat=flat), _pair(settings.get("dilations"), flat=flat)
    pads = _pads(settings, flat=flat)
    reach = [(size - 1) * dilation + 1 for size, dilation in zip(kernel.shape[2:], dilations, strict=True)]
    index, padding = graph.channels_last(value, node), _VALID
    if any(pads):
        if _is_same(value, reach, strides, pads):
            padding = _SAME
        else:
            index = _padded(graph, value, index, pads, node)
    kernel = kernel[:, 0].transpose(1, 2, 0)[None] if depthwise else kernel.transpose(0, 2, 3, 1)
    _, target = graph.output(result, quantized=quantized, channels_last=True)
    common: dict[str, Any] = {
        "padding": padding,
        "strideH": strides[0],
        "strideW": strides[1],
        "dilationHFactor": dilations[0],
        "dilationWFactor": dilations[1],
        "fusedActivationFunction": activation,
    }
    tensors = [index, *_parameters(graph, node, value, weights, kernel, axis=3 if depthwise else 0)]
    if depthwise:
        common["depthMultiplier"] = outputs // inputs
        # Version 2 is the first that reads dilations.
        version, options = 3 if quantized else 2, "DepthwiseConv2DOptions"
        graph.file.operator("DEPTHWISE_CONV_2D", tensors, [target], version=version, options=options, **common)
    else:
        version = 3 if quantized else 1
        graph.file.operator("CONV_2D", tensors, [target], version=version, options="Conv2DOptions", **common)


def _dense(graph: Graph, node: onnx.NodeProto) -> None:
    settings = attributes(node)
    if settings.get("transA", 0) or settings.get("alpha", 1.0) != 1 or settings.get("beta", 1.0) != 1:
        raise UnsupportedNodeError(node, "transA must be 0, alpha and beta 1")
    result, activation = graph.fused_activation(node)
    (value,), quantized = graph.inputs(node, node.input[:1], result)
    if len(value.shape) != 2:
        raise UnsupportedNodeError(node, f"it needs an (N, K) input, not {len(value.shape)} axes")
    outputs = graph.shape(result)[1]
    weights = graph.weights(node, outputs=outputs, quantized=quantized)
    matrix = weights.stored if settings.get("transB", 0) else weights.stored.T
    out, target = graph.output(result, quantized=quantized)
    if weights.scale is None or weights.scale.size == 1:
        tensors = [graph.plain(value), *_parameters(graph, node, value, weights, matrix, axis=0)]
        graph.file.operator(
            "FULLY_CONNECTED",
            tensors,
            [target],
            version=value.version(1, 4),
            options="FullyConnectedOptions",
            fusedActivationFunction=activation,
        )
        return
    shape = (1, 1, 1, value.shape[1])
    pixel = graph.file.tensor(f"{value.name}:pixel", shape, np.int8, value.quantization)
    graph.write_reshape(graph.plain(value), pixel, shape)
    answer = graph.file.tensor(f"{out.name}:pixel", (1, 1, 1, outputs), np.int8, out.quantization)
    graph.file.operator(
        "CONV_2D",
        [pixel, *_parameters(graph, node, value, weights, matrix[:, None, None, :], axis=0)],
        [answer],
        version=3,
        options="Conv2DOptions",
        padding=_VALID,
        strideH=1,
        strideW=1,
        fusedActivationFunction=activation,
    )
    graph.write_reshape(answer, target, out.shape)


def _parameters(
    graph: Graph, node: onnx.NodeProto, value: Value, weights: Weights, arranged: np.ndarray[Any, Any], *, axis: int
) -> tuple[int, int]:
    """Weights, arranged as the operator wants them, and bias as constants."""
    arranged, name = np.ascontiguousarray(arranged), f"{node.output[0]}:bias"
    if weights.scale is None or value.quantization is None:
        return (
            graph.file.constant(node.input[1], arranged),
            graph.file.constant(name, weights.bias.astype(np.float32)),
        )
    # The format fixes the bias's step: input step times weight step. ONNX stores it the same way, so this only
    # brings back the integers of the ONNX file.
    step = weights.scale * value.quantization.scale
    stored = np.rint(weights.bias.astype(np.float64) / step.astype(np.float64))
    if np.abs(stored).max() > _INT32_MAX:
        raise UnsupportedNodeError(node, "its bias exceeds int32 at the scale of its weights")
    return (
        graph.file.constant(node.input[1], arranged, Quantization(scale=weights.scale, zero_point=0, axis=axis)),
        graph.file.constant(name, stored.astype(np.int32), Quantization(scale=step, zero_point=0)),
    )


def _binary(graph: Graph, node: onnx.NodeProto) -> None:
    operator = node.op_type.upper()
    result, activation = graph.fused_activation(node)
    fixed = [graph.constant(name) for name in node.input]
    names = [name for name, array in zip(node.input, fixed, strict=True) if array is None]
    # With a constant operand it stays float: such scalings sit at the edges of a quantised graph.
    values, quantized = graph.inputs(node, names, result if len(names) == 2 else "")
    ranks = {len(value.shape) for value in values}
    if len(ranks) != 1:
        raise UnsupportedNodeError(node, "its operands must be activations of the same rank, or one a constant")
    last = all(value.channels_last for value in values)
    tensors, waiting = [], iter(values)
    for name, array in zip(node.input, fixed, strict=True):
        if array is None:
            tensors.append(graph.in_layout(next(waiting), node, channels_last=last))
        else:
            aligned = _aligned(array.astype(np.float32), max(ranks), channels_last=last)
            tensors.append(graph.file.constant(name, aligned))
    _, target = graph.output(result, quantized=quantized, channels_last=last)
    graph.file.operator(
        operator,
        tensors,
        [target],
        version=2 if quantized else 1,
        options=f"{operator.capitalize()}Options",
        fusedActivationFunction=activation,
    )


def _pool(graph: Graph, node: onnx.NodeProto) -> None:
    settings = attributes(node)
    (value,), quantized = graph.inputs(node, node.input[:1], node.output[0])
    flat = len(value.shape) == 3
    kernel, strides = _pair(settings["kernel_shape"], flat=flat), _pair(settings.get("strides"), flat=flat)
    pads = _pads(settings, flat=flat)
    same = any(pads) and _is_same(value, kernel, strides, pads)
    average = node.op_type == "AveragePool"
    if (
        settings.get("auto_pad", b"NOTSET") != b"NOTSET"
        or settings.get("ceil_mode", 0)
        or any(dilation != 1 for dilation in settings.get("dilations", []))
        or (any(pads) and not same)
        or (any(pads) and average and settings.get("count_include_pad", 0))
    ):
        raise UnsupportedNodeError(node, "only undilated pools without padding, or padded like TensorFlow's SAME")
    _unscaled(
        graph,
        node,
        value,
        quantized=quantized,
        channels_last=True,
        write=lambda source, target: graph.file.operator(
            "AVERAGE_POOL_2D" if average else "MAX_POOL_2D",
            [source],
            [target],
            version=value.version(1, 2),
            options="Pool2DOptions",
            padding=_SAME if same else _VALID,
            filterHeight=kernel[0],
            filterWidth=kernel[1],
            strideH=strides[0],
            strideW=strides[1],
        ),
    )


def _mean(graph: Graph, node: onnx.NodeProto) -> None:
    settings = attributes(node)
    (value,), quantized = graph.inputs(node, node.input[:1], node.output[0])
    rank, keep = len(value.shape), True
    if node.op_type == "ReduceMean":
        axes = settings.get("axes", graph.constants.get(node.input[1]) if len(node.input) > 1 else None)
        if axes is None or sorted(int(axis) % rank for axis in axes) != list(range(2, rank)):
            raise UnsupportedNodeError(node, "only the mean over all axes behind the channels has a form")
        keep = bool(settings.get("keepdims", 1))
    source = graph.channels_last(value, node)
    _, target = graph.output(node.output[0], quantized=quantized, channels_last=keep)
    graph.file.operator(
        "MEAN",
        [source, graph.integers([1, 2], "height_and_width")],
        [target],
        version=value.version(1, 2),
        options="ReducerOptions",
        keepDims=keep,
    )


def _softmax(graph: Graph, node: onnx.NodeProto) -> None:
    value = graph.float_value(node.input[0], node)
    rank = len(value.shape)
    if attributes(node).get("axis", -1) % rank != rank - 1:
        raise UnsupportedNodeError(node, "only the Softmax over the last axis has a form")
    source = graph.plain(value)
    # Always float: an int8 softmax is fixed to steps of 1/256, too coarse to rank confident answers by.
    _, target = graph.output(node.output[0], quantized=False)
    graph.file.operator("SOFTMAX", [source], [target], options="SoftmaxOptions", beta=1.0)


def _relu(graph: Graph, node: onnx.NodeProto) -> None:
    operator = "RELU" if graph.activation(node) == RELU else "RELU6"
    (value,), quantized = graph.inputs(node, node.input[:1], node.output[0])
    last = value.channels_last
    _, target = graph.output(node.output[0], quantized=quantized, channels_last=last)
    graph.file.operator(operator, [value.tensors[last]], [target], version=value.version(1, 2))


def _reshape(graph: Graph, node: onnx.NodeProto) -> None:
    (value,), quantized = graph.inputs(node, node.input[:1], node.output[0])
    shape = graph.shape(node.output[0])
    if shape[:1] != value.shape[:1]:
        raise UnsupportedNodeError(node, "the batch must stay the first axis")
    _unscaled(
        graph,
        node,
        value,
        quantized=quantized,
        channels_last=False,
        write=lambda source, target: graph.write_reshape(source, target, shape),
    )


def _transpose(graph: Graph, node: onnx.NodeProto) -> None:
    (value,), quantized = graph.inputs(node, node.input[:1], node.output[0])
    order = list(attributes(node).get("perm", reversed(range(len(value.shape)))))
    if order[0] != 0:
        raise UnsupportedNodeError(node, "the batch must stay the first axis")
    _unscaled(
        graph,
        node,
        value,
        quantized=quantized,
        channels_last=False,
        write=lambda source, target: graph.file.operator(
            "TRANSPOSE",
            [source, graph.integers(order, "order")],
            [target],
            version=value.version(1, 2),
            options="TransposeOptions",
        ),
    )


def _unscaled(
    graph: Graph,
    node: onnx.NodeProto,
    value: Value,
    *,
    quantized: bool,
    channels_last: bool,
    write: Callable[[int, int], None],
) -> None:
    """A node that moves or selects numbers: int8 operators of this kind demand the same step before and after."""
    source = graph.in_layout(value, node, channels_last=channels_last)
    out, target = graph.output(node.output[0], quantized=quantized, channels_last=channels_last)
    before, after = value.quantization, out.quantization
    if before is None or after is None or (before.zero_point, *before.scale) == (after.zero_point, *after.scale):
        write(source, target)
        return
    sizes = channels_last_shape(out.shape) if channels_last else out.shape
    moved = graph.file.tensor(f"{out.name}:before_rescale", sizes, np.int8, before)
    write(source, moved)
    graph.file.operator("QUANTIZE", [moved], [target], version=2, options="QuantizeOptions")


def _padded(graph: Graph, value: Value, index: int, pads: Sequence[int], node: onnx.NodeProto) -> int:
    n, h, w, c = channels_last_shape(value.shape)
    sizes = (n, h + pads[0] + pads[2], w + pads[1] + pads[3], c)
    target = graph.file.tensor(f"{node.output[0]}:padded", sizes, value.dtype, value.quantization)
    amounts = np.array([[0, 0], [pads[0], pads[2]], [pads[1], pads[3]], [0, 0]], np.int32)
    # An int8 PAD fills with the zero point: the real 0 that ONNX pads with.
    graph.file.operator(
        "PAD",
        [index, graph.file.constant("pads", amounts)],
        [target],
        version=value.version(1, 2),
        options="PadOptions",
    )
    return target


def _is_same(value: Value, reach: Sequence[int], strides: Sequence[int], pads: Sequence[int]) -> bool:
    """Whether ONNX's padding is what TensorFlow's SAME comes to: as little as keeps ceil(size / stride) outputs."""
    for axis, size in enumerate(channels_last_shape(value.shape)[1:3]):
        total = max((-(-size // strides[axis]) - 1) * strides[axis] + reach[axis] - size, 0)
        if (pads[axis], pads[2 + axis]) != (total // 2, total - total // 2):
            return False
    return True


def _pair(numbers: Sequence[int] | None, *, flat: bool) -> tuple[int, int]:
    """Height and width of a setting that 1-D operators give one number for, and that defaults to 1."""
    if numbers is None:
        return 1, 1
    return (1, numbers[0]) if flat else (numbers[0], numbers[1])


def _pads(settings: dict[str, Any], *, flat: bool) -> tuple[int, int, int, int]:
    """Padding as (top, left, bottom, right)."""
    pads = settings.get("pads", (0, 0) if flat else (0, 0, 0, 0))
    return (0, pads[0], 0, pads[1]) if flat else tuple(pads)


def _aligned(array: np.ndarray[Any, Any], rank: int, *, channels_last: bool) -> np.ndarray[Any, Any]:
    """A constant operand in the layout of its partner; broadcasting counts axes from the back."""
    if not channels_last or array.ndim == 0:
        return array
    full = array.reshape((1,) * (rank - array.ndim) + array.shape)
    return full.transpose(0, 2, 1)[:, None] if rank == 3 else full.transpose(0, 2, 3, 1)


_WRITERS: dict[str, Callable[[Graph, onnx.NodeProto], None]] = {
    "Add": _binary,
    "AveragePool": _pool,
    "Clip": _relu,
    "Conv": _conv,
    "DequantizeLinear": _dequantize,
    "Flatten": _reshape,
    "Gemm": _dense,
    "GlobalAveragePool": _mean,
    "MatMul": _dense,
    "MaxPool": _pool,
    "Mul": _binary,
    "QuantizeLinear": _quantize,
    "ReduceMean": _mean,
    "Relu": _relu,
    "Reshape": _reshape,
    "Softmax": _softmax,
    "Squeeze": _reshape,
    "Sub": _binary,
    "Transpose": _transpose,
    "Unsqueeze": _reshape,
}
