"""One function for each TensorFlow Lite operator: it writes the ONNX nodes that compute the same.

Each yields what `edge_export.graph.tflite.read.reader.Made` says.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import onnx
from ai_edge_litert import schema_py_generated as schema

from edge_export.graph.tflite.read.reader import Array, Made, Read, Reader
from edge_runtime.errors import ConfigError

_PLACE = {0: 0, 1: 2, 2: 3, 3: 1}
"""Where an axis of the file's order is with channels first."""


def _inputs(operator: Any) -> list[int]:
    return [int(i) for i in operator.inputs]


def _fixed(reader: Reader, index: int, what: str) -> Array:
    array = reader.fixed(index)
    if array is None:
        raise ConfigError(f"{reader.file}: {what} that is computed while the model runs cannot be read")
    return array


# -- convolutions, products, pools -----------------------------------------------------------------------------------


def _conv(reader: Reader, operator: Any, *, depthwise: bool) -> Made:
    source, weight, *bias = _inputs(operator)
    options, array = operator.builtinOptions, _fixed(reader, weight, "a kernel")
    # Outputs x height x width x inputs, or 1 x height x width x outputs.
    kernel = array.transpose(3, 0, 1, 2) if depthwise else array.transpose(0, 3, 1, 2)
    strides, dilations = [options.strideH, options.strideW], [options.dilationHFactor, options.dilationWFactor]
    channels = reader.shape(source)[3]
    given = [reader.name(source, first=True), reader.constant(kernel)]
    if bias and bias[0] >= 0:
        given.append(reader.name(bias[0]))
    made = reader.node(
        "Conv",
        given,
        kernel_shape=kernel.shape[2:],
        strides=strides,
        dilations=dilations,
        pads=_pads(reader.shape(source)[1:3], kernel.shape[2:], strides, dilations, options.padding),
        group=channels if depthwise else channels // kernel.shape[1],
    )
    yield 0, (reader.activated(made, options.fusedActivationFunction), True)


def _pads(
    sizes: Sequence[int], kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int], padding: int
) -> list[int]:
    """Write padding in ONNX's order; SAME puts the odd one behind."""
    if padding != schema.Padding.SAME:
        return [0, 0, 0, 0]
    total = [
        max(0, (-(-size // stride) - 1) * stride + (length - 1) * dilation + 1 - size)
        for size, length, stride, dilation in zip(sizes, kernel, strides, dilations, strict=True)
    ]
    return [*(each // 2 for each in total), *(each - each // 2 for each in total)]


def _pool(reader: Reader, operator: Any, *, kind: str) -> Made:
    (source,), options = _inputs(operator), operator.builtinOptions
    kernel, strides = [options.filterHeight, options.filterWidth], [options.strideH, options.strideW]
    pads = _pads(reader.shape(source)[1:3], kernel, strides, [1, 1], options.padding)
    more = {"count_include_pad": 0} if kind == "AveragePool" else {}
    value = reader.name(source, first=True)
    if kind == "AveragePool" and tuple(kernel) == reader.shape(source)[1:3] and not any(pads):
        made = reader.node("GlobalAveragePool", [value])
    else:
        made = reader.node(kind, [value], kernel_shape=kernel, strides=strides, pads=pads, **more)
    yield 0, (reader.activated(made, options.fusedActivationFunction), True)


def _dense(reader: Reader, operator: Any) -> Made:
    source, weight, *bias = _inputs(operator)
    options, array = operator.builtinOptions, _fixed(reader, weight, "a layer's weights")
    value, shape = reader.name(source), reader.shape(source)
    rows = int(np.prod(shape)) // array.shape[1]
    if len(shape) != 2:
        value = reader.reshape(value, shape, [rows, array.shape[1]])
    given = [value, reader.constant(array), *(reader.name(i) for i in bias if i >= 0)]
    made = reader.activated(reader.node("Gemm", given, transB=1), options.fusedActivationFunction)
    if options.keepNumDims and len(shape) != 2:
        made = reader.reshape(made, [rows, array.shape[0]], [*shape[:-1], array.shape[0]])
    yield 0, (made, False)


# -- one value by one ------------------------------------------------------------------------------------------------


def _unary(reader: Reader, operator: Any, *, kind: str, **attributes: Any) -> Made:
    source = _inputs(operator)[0]
    first = reader.is_first(source)
    yield 0, (reader.node(kind, [reader.name(source, first=first)], **attributes), first)


def _leaky(reader: Reader, operator: Any) -> Made:
    yield from _unary(reader, operator, kind="LeakyRelu", alpha=float(operator.builtinOptions.alpha))


def _limited(reader: Reader, operator: Any, *, kind: int) -> Made:
    source = _inputs(operator)[0]
    first = reader.is_first(source)
    yield 0, (reader.activated(reader.name(source, first=first), kind), first)


def _composed(reader: Reader, operator: Any, *, kinds: Sequence[str]) -> Made:
    source = _inputs(operator)[0]
    first = reader.is_first(source)
    value = reader.name(source, first=first)
    for kind in kinds:
        value = reader.node(kind, [value, value] if kind == "Mul" else [value])
    yield 0, (value, first)


def _hard_swish(reader: Reader, operator: Any) -> Made:
    source = _inputs(operator)[0]
    first = reader.is_first(source)
    value = reader.name(source, first=first)
    gate = reader.node("HardSigmoid", [value], alpha=1 / 6, beta=0.5)
    yield 0, (reader.node("Mul", [value, gate]), first)


def _softmax(reader: Reader, operator: Any) -> Made:
    value = reader.name(_inputs(operator)[0])
    if operator.builtinOptions is not None and operator.builtinOptions.beta not in (0.0, 1.0):
        value = reader.node("Mul", [value, reader.constant(np.float32(operator.builtinOptions.beta))])
    yield 0, (reader.node("Softmax", [value], axis=-1), False)


def _cast(reader: Reader, operator: Any) -> Made:
    source, target = _inputs(operator)[0], int(operator.outputs[0])
    first = reader.is_first(source)
    kind = onnx.helper.np_dtype_to_tensor_dtype(reader.dtype(target))
    yield 0, (reader.node("Cast", [reader.name(source, first=first)], to=kind), first)


# -- two values ------------------------------------------------------------------------------------------------------


def _pair(reader: Reader, operator: Any, *, kind: str, square: bool = False) -> Made:
    names, first = _operands(reader, _inputs(operator))
    made = reader.node(kind, names)
    if square:
        made = reader.node("Mul", [made, made])
    options = operator.builtinOptions
    yield 0, (reader.activated(made, getattr(options, "fusedActivationFunction", 0)), first)


def _operands(reader: Reader, indices: Sequence[int]) -> tuple[list[str], bool]:
    """Operands in one order of axes: channels first where a computed one has that, and every other can take it."""
    computed = [i for i in indices if reader.fixed(i) is None]
    first = any(map(reader.is_first, computed)) and all(len(reader.shape(i)) == 4 for i in computed)
    if not first:
        return [reader.name(i) for i in indices], False
    return [_channels_first(reader, i) for i in indices], True


def _channels_first(reader: Reader, index: int) -> str:
    array = reader.fixed(index)
    if array is None or array.ndim == 4:
        return reader.name(index, first=True)
    whole = array.reshape((1,) * (4 - array.ndim) + array.shape)
    return reader.constant(whole.transpose(0, 3, 1, 2) if array.size > 1 else array)


def _slope(reader: Reader, operator: Any) -> Made:
    names, first = _operands(reader, _inputs(operator))
    yield 0, (reader.node("PRelu", names), first)


def _select(reader: Reader, operator: Any) -> Made:
    names, first = _operands(reader, _inputs(operator))
    yield 0, (reader.node("Where", names), first)


# -- axes ------------------------------------------------------------------------------------------------------------


def _reshape(reader: Reader, operator: Any) -> Made:
    source, *shape = _inputs(operator)
    options = operator.builtinOptions
    fixed = reader.fixed(shape[0]) if shape else None
    if fixed is None and shape:
        sizes = reader.node("Cast", [reader.name(shape[0])], to=onnx.TensorProto.INT64)
        yield 0, (reader.node("Reshape", [reader.name(source), sizes]), False)
        return
    sizes_given = fixed if fixed is not None else options.newShape
    yield 0, (reader.reshape(reader.name(source), reader.shape(source), sizes_given), False)


def _as_stated(reader: Reader, operator: Any) -> Made:
    """SQUEEZE and EXPAND_DIMS: the sizes of the result are in the file."""
    source, sizes = _inputs(operator)[0], reader.shape(int(operator.outputs[0]))
    yield 0, (reader.reshape(reader.name(source), reader.shape(source), sizes), False)


def _transpose(reader: Reader, operator: Any) -> Made:
    source, order = _inputs(operator)
    perm = [int(axis) for axis in _fixed(reader, order, "an order of axes")]
    yield 0, (reader.node("Transpose", [reader.name(source)], perm=perm), False)


def _concatenate(reader: Reader, operator: Any) -> Made:
    indices, options = _inputs(operator), operator.builtinOptions
    rank = len(reader.shape(indices[0]))
    axis = options.axis % rank
    names, first = _operands(reader, indices) if rank == 4 else ([reader.name(i) for i in indices], False)
    made = reader.node("Concat", names, axis=_PLACE[axis] if first else axis)
    yield 0, (reader.activated(made, options.fusedActivationFunction), first)


def _pack(reader: Reader, operator: Any) -> Made:
    axis = operator.builtinOptions.axis
    rows = [reader.node("Unsqueeze", [reader.name(i), reader.integers([axis])]) for i in _inputs(operator)]
    yield 0, (reader.node("Concat", rows, axis=axis), False)


def _unpack(reader: Reader, operator: Any) -> Made:
    source, axis = _inputs(operator)[0], operator.builtinOptions.axis
    yield from _parts(reader, reader.name(source), axis, len(operator.outputs), squeezed=True)


def _split(reader: Reader, operator: Any) -> Made:
    axis, source = _inputs(operator)
    at = int(_fixed(reader, axis, "an axis"))
    yield from _parts(reader, reader.name(source), at, len(operator.outputs), squeezed=False)


def _parts(reader: Reader, value: str, axis: int, count: int, *, squeezed: bool) -> Made:
    base = reader.node("Split", [value], outputs=count, axis=axis) if count > 1 else value
    for place in range(count):
        name = base if not place else f"{base}:{place}"
        yield place, (reader.node("Squeeze", [name, reader.integers([axis])]) if squeezed else name, False)


def _slice(reader: Reader, operator: Any) -> Made:
    source, begin, size = _inputs(operator)
    starts = _fixed(reader, begin, "the start of a slice").astype(np.int64)
    sizes = _fixed(reader, size, "the size of a slice").astype(np.int64)
    ends = np.where(sizes < 0, np.iinfo(np.int64).max, starts + sizes)
    given = [reader.name(source), *map(reader.integers, (starts, ends, np.arange(len(starts))))]
    yield 0, (reader.node("Slice", given), False)


def _strided_slice(reader: Reader, operator: Any) -> Made:
    source, *ends = _inputs(operator)
    options = operator.builtinOptions
    begin, end, step = (_fixed(reader, i, "the end of a slice").astype(np.int64).copy() for i in ends)
    if options.ellipsisMask or options.newAxisMask:
        raise ConfigError(f"{reader.file}: STRIDED_SLICE with an ellipsis or a new axis cannot be read")
    axes = np.arange(len(begin))
    gone, from_start, to_end = (
        (mask >> axes) & 1 == 1 for mask in (options.shrinkAxisMask, options.beginMask, options.endMask)
    )
    last, first = np.iinfo(np.int64).max, np.iinfo(np.int64).min
    begin = np.where(from_start & ~gone, np.where(step > 0, 0, last), begin)
    end = np.where(to_end & ~gone, np.where(step > 0, last, first), end)
    end = np.where(gone, np.where(begin == -1, last, begin + 1), end)
    given = [reader.name(source), *map(reader.integers, (begin, end, axes, np.where(gone, 1, step)))]
    made = reader.node("Slice", given)
    yield 0, (reader.node("Squeeze", [made, reader.integers(axes[gone])]) if gone.any() else made, False)


def _pad(reader: Reader, operator: Any, *, mode: str = "constant") -> Made:
    source, amounts, *fill = _inputs(operator)
    table = _fixed(reader, amounts, "a padding").reshape(-1, 2).astype(np.int64)
    if mode == "mirror":
        mode = "reflect" if operator.builtinOptions.mode == schema.MirrorPadMode.REFLECT else "symmetric"
        if mode == "symmetric":
            raise ConfigError(f"{reader.file}: MIRROR_PAD that repeats the edge cannot be read")
    first = reader.is_first(source) and len(table) == 4
    rows = table[[0, 3, 1, 2]] if first else table
    given = [reader.name(source, first=first), reader.integers([*rows[:, 0], *rows[:, 1]])]
    if fill:
        given.append(reader.name(fill[0]))
    yield 0, (reader.node("Pad", given, mode=mode), first)


def _reduce(reader: Reader, operator: Any, *, kind: str) -> Made:
    source, axes = _inputs(operator)
    rank = len(reader.shape(source))
    over = [int(axis) % rank for axis in np.atleast_1d(_fixed(reader, axes, "an axis"))]
    kept = bool(operator.builtinOptions.keepDims)
    first = reader.is_first(source) and rank == 4 and (kept or sorted(over) == [1, 2])
    places = sorted(_PLACE[axis] for axis in over) if first else over
    value = reader.name(source, first=first)
    if kind == "ReduceSum":
        made = reader.node(kind, [value, reader.integers(places)], keepdims=int(kept))
    else:
        made = reader.node(kind, [value], axes=places, keepdims=int(kept))
    yield 0, (made, first and kept)


def _sizes(reader: Reader, operator: Any) -> Made:
    made = reader.node("Shape", [reader.name(_inputs(operator)[0])])
    kind = onnx.helper.np_dtype_to_tensor_dtype(reader.dtype(int(operator.outputs[0])))
    yield 0, (reader.node("Cast", [made], to=kind), False)


def _gather(reader: Reader, operator: Any) -> Made:
    source, places = _inputs(operator)
    if operator.builtinOptions.batchDims:
        raise ConfigError(f"{reader.file}: GATHER within a batch cannot be read")
    given = [reader.name(source), reader.name(places)]
    yield 0, (reader.node("Gather", given, axis=operator.builtinOptions.axis), False)


_ACTIVATIONS = schema.ActivationFunctionType

READERS: dict[str, Read] = {
    "ABS": partial(_unary, kind="Abs"),
    "ADD": partial(_pair, kind="Add"),
    "AVERAGE_POOL_2D": partial(_pool, kind="AveragePool"),
    "CAST": _cast,
    "CONCATENATION": _concatenate,
    "CONV_2D": partial(_conv, depthwise=False),
    "COS": partial(_unary, kind="Cos"),
    "DEPTHWISE_CONV_2D": partial(_conv, depthwise=True),
    "DIV": partial(_pair, kind="Div"),
    "ELU": partial(_unary, kind="Elu"),
    "EQUAL": partial(_pair, kind="Equal"),
    "EXP": partial(_unary, kind="Exp"),
    "EXPAND_DIMS": _as_stated,
    "FULLY_CONNECTED": _dense,
    "GATHER": _gather,
    "GREATER": partial(_pair, kind="Greater"),
    "HARD_SWISH": _hard_swish,
    "LEAKY_RELU": _leaky,
    "LESS": partial(_pair, kind="Less"),
    "LOG": partial(_unary, kind="Log"),
    "LOGISTIC": partial(_unary, kind="Sigmoid"),
    "MAXIMUM": partial(_pair, kind="Max"),
    "MAX_POOL_2D": partial(_pool, kind="MaxPool"),
    "MEAN": partial(_reduce, kind="ReduceMean"),
    "MINIMUM": partial(_pair, kind="Min"),
    "MIRROR_PAD": partial(_pad, mode="mirror"),
    "MUL": partial(_pair, kind="Mul"),
    "NEG": partial(_unary, kind="Neg"),
    "PACK": _pack,
    "PAD": _pad,
    "PADV2": _pad,
    "POW": partial(_pair, kind="Pow"),
    "PRELU": _slope,
    "REDUCE_MAX": partial(_reduce, kind="ReduceMax"),
    "REDUCE_MIN": partial(_reduce, kind="ReduceMin"),
    "RELU": partial(_limited, kind=_ACTIVATIONS.RELU),
    "RELU6": partial(_limited, kind=_ACTIVATIONS.RELU6),
    "RESHAPE": _reshape,
    "RSQRT": partial(_composed, kinds=("Sqrt", "Reciprocal")),
    "SELECT_V2": _select,
    "SHAPE": _sizes,
    "SIN": partial(_unary, kind="Sin"),
    "SLICE": _slice,
    "SOFTMAX": _softmax,
    "SPLIT": _split,
    "SQRT": partial(_unary, kind="Sqrt"),
    "SQUARE": partial(_composed, kinds=("Mul",)),
    "SQUARED_DIFFERENCE": partial(_pair, kind="Sub", square=True),
    "SQUEEZE": _as_stated,
    "STRIDED_SLICE": _strided_slice,
    "SUB": partial(_pair, kind="Sub"),
    "SUM": partial(_reduce, kind="ReduceSum"),
    "TANH": partial(_unary, kind="Tanh"),
    "TRANSPOSE": _transpose,
    "UNPACK": _unpack,
}
