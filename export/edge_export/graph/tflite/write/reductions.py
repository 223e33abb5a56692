"""Operators that gather over an axis: means, sums, extremes, softmax, running sums."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx

from edge_export.graph.tflite.errors import UnsupportedNodeError
from edge_export.graph.tflite.write.elementwise import is_fine
from edge_export.graph.tflite.write.file import TYPES, Quantization
from edge_export.graph.tflite.write.graph import Graph, attributes
from edge_export.graph.tflite.write.moves import identity, write_rescaled

_OPERATORS = {
    "GlobalAveragePool": "MEAN",
    "GlobalMaxPool": "REDUCE_MAX",
    "ReduceMax": "REDUCE_MAX",
    "ReduceMean": "MEAN",
    "ReduceMin": "REDUCE_MIN",
    "ReduceProd": "REDUCE_PROD",
    "ReduceSum": "SUM",
}

_KEEP_STEP = frozenset({"REDUCE_MAX", "REDUCE_MIN"})
"""Their int8 forms do not rescale."""

_NO_INT8 = frozenset({"REDUCE_PROD"})

_SOFTMAX_STEP = Quantization.of(1 / 256, -128)
"""What the int8 form is fixed to: too coarse to rank confident answers by, so graphs had better end in floats."""


def reduce(graph: Graph, node: onnx.NodeProto) -> None:
    """Write a reduction over some axes, in the layout that the value has.

    1. Without axes it is over all, unless the node asks for nothing then.
    2. With channels last, one remaining axis of two stands where the width of a 1-D value does.
    3. A 1-D value has a height of 1 there, which is reduced with the rest.
    """
    name = _OPERATORS[node.op_type]
    value, quantized = graph.operand(node, results=node.output[:1], int8=name not in _NO_INT8)
    rank, settings = len(value.shape), attributes(node)
    if node.op_type.startswith("Global"):
        axes, keep = list(range(2, rank)), True
    else:
        given = settings.get("axes", graph.parameter(node, 1, "axes"))
        keep, nothing = bool(settings.get("keepdims", 1)), settings.get("noop_with_empty_axes", 0)
        if given is None or not len(given):  # rule 1
            if nothing:
                identity(graph, node)
                return
            given = range(rank)
        axes = sorted(int(axis) % rank for axis in given)
    last = value.channels_last and 0 not in axes
    source = graph.tensor(value, node, channels_last=last)
    rows = last and not keep and rank == 4 and 1 not in axes and len(axes) == 1  # rule 2
    out, target = graph.output(node.output[0], quantized=quantized, channels_last=last and (keep or rows))
    places = sorted(graph.axis(axis, rank, channels_last=last) for axis in axes)
    if last and not keep and rank == 3:  # rule 3
        places = sorted({1, *places})
    if last and not keep and rank == 3 and axes == [1]:
        places = [1, 3]

    def write(made: int) -> None:
        _write(graph, name, source, made, places, keep=keep or rows)

    def write_rows(made: int) -> None:
        sizes = [1 if place in places else size for place, size in enumerate(graph.file.shape(source))]
        kept = graph.file.tensor(
            f"{out.name}:kept", sizes, value.dtype, value.quantization if keeps else out.quantization
        )
        write(kept)
        graph.write_reshape(kept, made, graph.place(out, channels_last=True))

    keeps = name in _KEEP_STEP
    chosen = write_rows if rows else write  # rule 2
    write_rescaled(graph, value.quantization if keeps else None, out, target, chosen)


def _write(graph: Graph, name: str, source: int, target: int, places: Sequence[int], *, keep: bool) -> None:
    inputs = [source, graph.integers(places, "axes")]
    graph.file.operator(name, inputs, [target], options="ReducerOptions", keepDims=keep)


def softmax(graph: Graph, node: onnx.NodeProto) -> None:
    """Softmax or LogSoftmax over any one axis: it is moved to the end, where it is not there already."""
    logarithm = node.op_type == "LogSoftmax"
    fine = not logarithm and is_fine(graph, node.output[0], _SOFTMAX_STEP)
    value, quantized = graph.operand(node, int8=fine)
    rank = len(value.shape)
    axis = attributes(node).get("axis", -1) % rank
    step = _SOFTMAX_STEP if quantized else None
    last = value.channels_last and axis == 1

    def write(source: int, made: int) -> None:
        if logarithm:
            graph.file.operator("LOG_SOFTMAX", [source], [made], options="LogSoftmaxOptions")
        else:
            graph.file.operator("SOFTMAX", [source], [made], options="SoftmaxOptions", beta=1.0)

    if last or axis == rank - 1:
        source = graph.tensor(value, node, channels_last=last)
        out, target = graph.output(node.output[0], quantized=quantized, channels_last=last)
        write_rescaled(graph, _SOFTMAX_STEP, out, target, lambda made: write(source, made))
        return
    order = [*(i for i in range(rank) if i != axis), axis]
    moved = graph.rearranged(value, node, order, f"{node.output[0]}:axis_last", channels_last=False)
    answer = graph.file.tensor(f"{node.output[0]}:moved", graph.file.shape(moved), value.dtype, step)
    write(moved, answer)
    out, target = graph.output(node.output[0], quantized=quantized)
    back = graph.integers([order.index(i) for i in range(rank)], "order")

    def restore(made: int) -> None:
        graph.file.operator("TRANSPOSE", [answer, back], [made], options="TransposeOptions")

    write_rescaled(graph, _SOFTMAX_STEP, out, target, restore)


def running_sum(graph: Graph, node: onnx.NodeProto) -> None:
    """CumSum along a constant axis."""
    settings = attributes(node)
    axis = graph.parameter(node, 1, "axis")
    if axis is None:
        raise UnsupportedNodeError(node, "it needs an axis")
    value, _ = graph.operand(node, int8=False)
    last = value.channels_last
    place = graph.axis(int(axis.item()), len(value.shape), channels_last=last)
    source = graph.tensor(value, node, channels_last=last)
    _, target = graph.output(node.output[0], quantized=False, channels_last=last)
    graph.file.operator(
        "CUMSUM",
        [source, graph.file.constant("axis", np.array(place, np.int32))],
        [target],
        options="CumsumOptions",
        exclusive=bool(settings.get("exclusive", 0)),
        reverse=bool(settings.get("reverse", 0)),
    )


def extreme_place(graph: Graph, node: onnx.NodeProto) -> None:
    """ArgMax and ArgMin; of equal numbers the first."""
    settings = attributes(node)
    if settings.get("select_last_index", 0):
        raise UnsupportedNodeError(node, "of equal numbers only the first can be chosen")
    value, _ = graph.operand(node, int8=False)
    axis = settings.get("axis", 0) % len(value.shape)
    source = graph.plain(value, node)
    out, target = graph.output(node.output[0], quantized=False)
    place = graph.file.constant("axis", np.array(axis, np.int32))
    name = "ARG_MAX" if node.op_type == "ArgMax" else "ARG_MIN"
    options = {"options": f"Arg{node.op_type[3:]}Options", "outputType": TYPES[out.dtype]}
    if not settings.get("keepdims", 1):
        graph.file.operator(name, [source, place], [target], **options)
        return
    sizes = [size for i, size in enumerate(value.shape) if i != axis]
    found = graph.file.tensor(f"{out.name}:found", sizes, out.dtype)
    graph.file.operator(name, [source, place], [found], **options)
    graph.write_reshape(found, target, out.open_axis)


def top(graph: Graph, node: onnx.NodeProto) -> None:
    """TopK along the last axis; of equal numbers the first. `graph.tflite.lower.selections` brings others there."""
    settings = attributes(node)
    count = graph.parameter(node, 1, "k")
    if count is None:
        raise UnsupportedNodeError(node, "it needs k")
    settings.get("axis"), settings.get("largest"), settings.get("sorted")
    value, _ = graph.operand(node, int8=False)
    source, made = graph.plain(value, node), []
    k = graph.file.constant("k", np.array(count.item(), np.int32))
    sizes = (*value.shape[:-1], int(count.item()))
    values = graph.file.tensor(f"{node.output[0]}:largest", sizes, value.dtype)
    places = graph.file.tensor(f"{node.output[0]}:places", sizes, np.int32)
    graph.file.operator("TOPK_V2", [source, k], [values, places], options="TopKV2Options")
    for name, found in zip(node.output, (values, places), strict=False):
        if name:
            made.append(graph.output(name, quantized=False)[1])
            kinds = {"inDataType": TYPES[np.dtype(np.int32)], "outDataType": TYPES[np.dtype(np.int64)]}
            if found == values:
                graph.write_reshape(found, made[-1], graph.open_axes.get(name))
            else:
                graph.file.operator("CAST", [found], [made[-1]], options="CastOptions", **kinds)


WRITERS = {
    **dict.fromkeys(_OPERATORS, reduce),
    "ArgMax": extreme_place,
    "ArgMin": extreme_place,
    "CumSum": running_sum,
    "LogSoftmax": softmax,
    "Softmax": softmax,
    "TopK": top,
}
