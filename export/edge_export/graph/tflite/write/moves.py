"""Operators that move, select or repeat numbers and compute none: their int8 forms keep the step of what they read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np
import onnx

from edge_export.graph.tflite.errors import UnsupportedNodeError
from edge_export.graph.tflite.write.file import Quantization
from edge_export.graph.tflite.write.graph import Graph, attributes
from edge_export.graph.tflite.write.values import LAST_ORDER, Array, ConstantOperand, Value, arranged

_Fill = Literal["edge", "reflect", "wrap"]

_REFLECT = 0
"""Value of ``MirrorPadMode`` in the TensorFlow Lite schema: the edge itself is not repeated."""

_NO_END = int(np.iinfo(np.int32).max)
"""From here on, an end stands for that of the axis, whatever its size."""

_WANT_CHANNELS_LAST = frozenset({"Conv", "ConvTranspose", "MaxPool", "AveragePool"})


def unscaled(
    graph: Graph,
    node: onnx.NodeProto,
    value: Value,
    *,
    quantized: bool,
    channels_last: bool,
    write: Callable[[int, int], None],
    result: str = "",
) -> None:
    """Write a node whose int8 form demands the same step before and after, and rescale behind it where they differ.

    Args:
        graph: being written.
        node: being written.
        value: what it reads.
        quantized: whether it is an int8 operator.
        channels_last: layout of what it reads and makes.
        write: appends the operator, from a tensor to a tensor.
        result: name of what it makes, if that is not the node's first output.
    """
    source = graph.tensor(value, node, channels_last=channels_last)
    out, target = graph.output(result or node.output[0], quantized=quantized, channels_last=channels_last)
    write_rescaled(graph, value.quantization, out, target, lambda moved: write(source, moved))


def write_rescaled(
    graph: Graph, step: Quantization | None, out: Value, target: int, write: Callable[[int], None]
) -> None:
    """Let `write` fill a tensor of a given step, and rescale it to that of `out` where they differ."""
    if step is None or out.quantization is None or step.same(out.quantization):
        write(target)
        return
    moved = graph.file.tensor(f"{out.name}:before_rescale", graph.file.shape(target), np.int8, step)
    write(moved)
    graph.file.operator("QUANTIZE", [moved], [target], options="QuantizeOptions")


def sliced(
    graph: Graph, source: int, target: int, spans: Sequence[tuple[int, int, int]], *, batch: int | None = 0
) -> None:
    """Append the operator that cuts a part out of a tensor.

    Args:
        graph: being written.
        source: tensor.
        target: tensor.
        spans: (begin, end, step) of each axis, step above 0.
        batch: axis to take whole, whatever its size is at run time.
    """
    # Not SLICE: where it takes a whole axis, LiteRT fails once another batch has resized that axis.
    mask = sum(1 << axis for axis, (begin, _, _) in enumerate(spans) if axis == batch and begin == 0)
    numbers = [[span[i] for span in spans] for i in range(3)]
    graph.file.operator(
        "STRIDED_SLICE",
        [source, *(graph.integers(each, name) for each, name in zip(numbers, ("begin", "end", "step"), strict=True))],
        [target],
        options="StridedSliceOptions",
        beginMask=mask,
        endMask=mask,
    )


def identity(graph: Graph, node: onnx.NodeProto) -> None:
    """Identity: the same tensor under another name."""
    value, quantized = graph.operand(node, results=node.output[:1])
    _alias(graph, value, node.output[0], quantized=quantized, node=node)


def _alias(graph: Graph, value: Value, name: str, *, quantized: bool, node: onnx.NodeProto) -> None:
    last = value.channels_last
    if quantized and not (value.quantization or Quantization.of(1, 0)).same(graph.result_quantization(name)):
        unscaled(graph, node, value, quantized=True, channels_last=last, write=_copy(graph))
        return
    out = _declare(graph, name, quantized=quantized)
    out.free[last] = lambda: graph.tensor(value, node, channels_last=last)


def _declare(graph: Graph, name: str, *, quantized: bool) -> Value:
    """Like `Graph.output`, for a value whose tensors are those of another one."""
    if not quantized:
        return graph.declare(name, None)
    reader = graph.sole_reader(name)
    assert reader is not None
    graph.written.add(reader.output[0])
    return graph.declare(reader.output[0], graph.quantization(reader), of=name)


def _copy(graph: Graph) -> Callable[[int, int], None]:
    return lambda source, target: graph.write_reshape(source, target, None)


def reshape(graph: Graph, node: onnx.NodeProto) -> None:
    """Reshape, Flatten, Squeeze and Unsqueeze: all that counts is the size of the result."""
    value, quantized = graph.operand(node, results=node.output[:1])
    name = node.output[0]
    shape = graph.shape(name)
    if shape == value.shape:
        _alias(graph, value, name, quantized=quantized, node=node)
        return
    probe = Value(name="", shape=shape, dtype=value.dtype, quantization=None, open_axis=None)
    both = len(shape) in LAST_ORDER and len(value.shape) in LAST_ORDER
    # (N, C, W) and (N, C, 1, W) are the same with channels last.
    last = value.channels_last and both and probe.sizes(channels_last=True) == value.sizes(channels_last=True)
    unchanged = not quantized or (value.quantization or Quantization.of(1, 0)).same(graph.result_quantization(name))
    if last and unchanged:
        out = _declare(graph, name, quantized=quantized)
        out.free[True] = lambda: graph.tensor(value, node, channels_last=True)
        return
    # Where both layouts hold the numbers in one order, either will do.
    source = graph.tensor(value, node, channels_last=value.straight and value.channels_last)
    out, target = graph.output(name, quantized=quantized)
    place = out.open_axis
    write_rescaled(graph, value.quantization, out, target, lambda made: graph.write_reshape(source, made, place))


def transpose(graph: Graph, node: onnx.NodeProto) -> None:
    """Transpose; it costs nothing where one of the layouts already has the order asked for."""
    value, quantized = graph.operand(node)
    name, rank = node.output[0], len(value.shape)
    order = tuple(int(axis) for axis in attributes(node).get("perm", reversed(range(rank))))
    if quantized and not (value.quantization or Quantization.of(1, 0)).same(graph.result_quantization(name)):
        moved = graph.rearranged(value, node, order, f"{name}:moved", channels_last=False)
        _, target = graph.output(name, quantized=True)
        graph.file.operator("QUANTIZE", [moved], [target], options="QuantizeOptions")
        return
    out = _declare(graph, name, quantized=quantized)
    orders = {False: order}
    if rank in LAST_ORDER:
        orders[True] = tuple(order[axis] for axis in LAST_ORDER[rank])
    held = {False: tuple(range(rank)), True: LAST_ORDER.get(rank)}
    present = [held[last] for last in (False, True) if last in value.tensors or last in value.free]
    for last, wanted in orders.items():
        if wanted in present:
            out.free[last] = _rearrangement(graph, value, node, wanted, out.name, channels_last=last)
    if not out.free:
        last = True in orders and any(reader.op_type in _WANT_CHANNELS_LAST for reader in graph.readers(name))
        out.tensors[last] = graph.rearranged(value, node, orders[last], out.name, last)


def _rearrangement(
    graph: Graph, value: Value, node: onnx.NodeProto, order: Sequence[int], name: str, *, channels_last: bool
) -> Callable[[], int]:
    return lambda: graph.rearranged(value, node, order, name, channels_last)


def slice_(graph: Graph, node: onnx.NodeProto) -> None:
    """Slice with constant bounds.

    1. A batch stays open only where all of it is taken, however large it is: a bound of 1 or 5 holds for some sizes.
    2. Steps backwards are a selection.
    """
    value, quantized = graph.operand(node)
    rank = len(value.shape)
    starts, ends = (graph.parameter(node, i, label) for i, label in ((1, "starts"), (2, "ends")))
    axes, steps = (graph.parameter(node, i, label) for i, label in ((3, "axes"), (4, "steps")))
    if starts is None or ends is None:
        raise UnsupportedNodeError(node, "it needs starts and ends")
    along = range(len(starts)) if axes is None else [int(axis) % rank for axis in axes]
    picks = {axis: range(size) for axis, size in enumerate(value.shape)}
    for position, axis in enumerate(along):
        step = 1 if steps is None else int(steps[position])
        bounds = int(starts[position]), int(ends[position])
        picks[axis] = range(value.shape[axis])[bounds[0] : bounds[1] : step]
        if axis == value.open_axis and (bounds[0] != 0 or bounds[1] < _NO_END or step != 1):  # rule 1
            graph.close_batch()
    last = value.channels_last
    if any(pick.step < 0 for pick in picks.values()):  # rule 2
        _selected(graph, node, value, picks, quantized=quantized)
        return
    spans = [(0, 1, 1)] * (4 if last else rank)
    for axis, pick in picks.items():
        spans[graph.axis(axis, rank, channels_last=last)] = (pick.start, pick.stop, pick.step)
    batch = graph.place(value, channels_last=last)

    def write(source: int, target: int) -> None:
        sliced(graph, source, target, spans, batch=batch)

    unscaled(graph, node, value, quantized=quantized, channels_last=last, write=write)


def _selected(
    graph: Graph, node: onnx.NodeProto, value: Value, picks: dict[int, range] | dict[int, Array], *, quantized: bool
) -> None:
    """Pick places along some axes, in any order and any number of times."""
    last = value.channels_last
    wanted = {axis: pick for axis, pick in picks.items() if list(pick) != list(range(value.shape[axis]))}

    def write(source: int, target: int) -> None:
        for count, (axis, pick) in enumerate(wanted.items(), 1):
            place = graph.axis(axis, len(value.shape), channels_last=last)
            sizes = list(graph.file.shape(source))
            sizes[place] = len(pick)
            made = target
            if count < len(wanted):
                made = graph.file.tensor(f"{node.output[0]}:axis_{axis}", sizes, value.dtype, value.quantization)
            indices = graph.integers([int(i) for i in pick], "places")
            graph.file.operator("GATHER", [source, indices], [made], options="GatherOptions", axis=place)
            source = made

    if not wanted:
        _alias(graph, value, node.output[0], quantized=quantized, node=node)
        return
    unscaled(graph, node, value, quantized=quantized, channels_last=last, write=write)


def split(graph: Graph, node: onnx.NodeProto) -> None:
    """Split into equal or given parts."""
    names = list(node.output)
    value, quantized = graph.operand(node, results=[name for name in names if graph.readers(name)])
    rank, settings = len(value.shape), attributes(node)
    axis = settings.get("axis", 0) % rank
    parts = [graph.shape(name)[axis] for name in names]
    last = value.channels_last
    equal = len(set(parts)) == 1
    if axis == value.open_axis and not equal:
        graph.close_batch()
    source = graph.tensor(value, node, channels_last=last)
    place = graph.axis(axis, rank, channels_last=last)
    written, rescaled = [], []
    for name in names:
        if not graph.readers(name) and quantized:
            # No node reads it; the operator still has to put it somewhere.
            sizes = list(graph.file.shape(source))
            sizes[place] = graph.shape(name)[axis]
            written.append(graph.file.tensor(name, sizes, value.dtype, value.quantization))
            continue
        out, target = graph.output(name, quantized=quantized, channels_last=last)
        before, after = value.quantization, out.quantization
        if before is not None and after is not None and not before.same(after):
            moved = graph.file.tensor(f"{name}:before_rescale", graph.file.shape(target), np.int8, before)
            rescaled.append((moved, target))
            target = moved
        written.append(target)
    where = graph.file.constant("axis", np.array(place, np.int32))
    if equal:
        graph.file.operator("SPLIT", [where, source], written, options="SplitOptions", numSplits=len(parts))
    else:
        inputs = [source, graph.integers(parts, "sizes"), where]
        graph.file.operator("SPLIT_V", inputs, written, options="SplitVOptions", numSplits=len(parts))
    for moved, target in rescaled:
        graph.file.operator("QUANTIZE", [moved], [target], options="QuantizeOptions")


def concat(graph: Graph, node: onnx.NodeProto) -> None:
    """Concat; its int8 form wants one step for all parts, so parts with another are rescaled to the result's."""
    operands, quantized = graph.operands(node, node.input, node.output[:1])
    values = [operand for operand in operands if isinstance(operand, Value)]
    rank = len(graph.shape(node.output[0]))
    axis = attributes(node)["axis"] % rank
    fixed_batch = any(isinstance(operand, ConstantOperand) for operand in operands)
    if fixed_batch and graph.open_axes.get(node.output[0]) not in (None, axis):
        graph.close_batch()
    last = graph.layout(values)
    step = graph.result_quantization(node.output[0]) if quantized else None
    tensors = []
    for operand in operands:
        if isinstance(operand, ConstantOperand):
            numbers = arranged(operand.real, rank, channels_last=last)
            tensors.append(constant(graph, operand.name, numbers, step))
            continue
        index = graph.tensor(operand, node, channels_last=last)
        if step is not None and operand.quantization is not None:
            index = graph.requantized(index, operand.quantization, step, operand.name)
        tensors.append(index)
    _, target = graph.output(node.output[0], quantized=quantized, channels_last=last)
    place = graph.axis(axis, rank, channels_last=last)
    graph.file.operator("CONCATENATION", tensors, [target], options="ConcatenationOptions", axis=place)


def constant(graph: Graph, name: str, real: Array, step: Quantization | None) -> int:
    """Write a constant as it is, or as int8 with a given step."""
    if step is None:
        return graph.file.constant(name, real)
    stored = np.clip(np.rint(real / step.scale) + step.zero_point, -128, 127).astype(np.int8)
    return graph.file.constant(name, stored, step)


def gather(graph: Graph, node: onnx.NodeProto) -> None:
    """Gather by constant or computed indices, from an activation or a constant table."""
    indices = graph.fixed(node.input[1])
    if graph.fixed(node.input[0]) is not None or indices is None:
        _look_up(graph, node)
        return
    value, quantized = graph.operand(node)
    rank = len(value.shape)
    axis = attributes(node).get("axis", 0) % rank
    if axis == value.open_axis:
        graph.close_batch()
    places = indices.real.astype(np.int64) % value.shape[axis]
    if places.ndim == 1:
        _selected(graph, node, value, {axis: places}, quantized=quantized)
        return
    # One step of (N, C, W) with channels last holds its channels in order: no transposition.
    step = places.ndim == 0 and value.channels_last and rank == 3 and axis == 2
    if step:
        source = graph.tensor(value, node, channels_last=True)
        out, target = graph.output(node.output[0], quantized=quantized)
        n, _, _, c = graph.file.shape(source)
        one = graph.file.tensor(f"{out.name}:step", (n, 1, 1, c), value.dtype, value.quantization)
        at = int(places)
        batch = graph.place(value, channels_last=True)
        sliced(graph, source, one, [(0, n, 1), (0, 1, 1), (at, at + 1, 1), (0, c, 1)], batch=batch)

        def write(made: int) -> None:
            graph.write_reshape(one, made, out.open_axis)

        write_rescaled(graph, value.quantization, out, target, write)
        return
    index = graph.file.constant("places", places.astype(np.int32))

    def write_gather(source: int, target: int) -> None:
        graph.file.operator("GATHER", [source, index], [target], options="GatherOptions", axis=axis)

    unscaled(graph, node, value, quantized=quantized, channels_last=False, write=write_gather)


def _look_up(graph: Graph, node: onnx.NodeProto) -> None:
    operands, _ = graph.operands(node, node.input, node.output[:1], int8=False)
    table, places = operands
    axis = attributes(node).get("axis", 0) % len(table.shape)
    source = (
        graph.file.constant(table.name, table.real) if isinstance(table, ConstantOperand) else graph.plain(table, node)
    )
    if isinstance(places, ConstantOperand):
        index = graph.file.constant(places.name, (places.real % table.shape[axis]).astype(np.int32))
    else:
        # Counted from the end where negative; the operator knows no such index.
        size = graph.file.constant("size", np.array(table.shape[axis], places.dtype))
        index = graph.file.tensor(f"{node.output[0]}:places", places.shape, places.dtype)
        read = [graph.plain(places, node), size]
        graph.file.operator("FLOOR_MOD", read, [index], options="FloorModOptions")
    _, target = graph.output(node.output[0], quantized=False)
    graph.file.operator("GATHER", [source, index], [target], options="GatherOptions", axis=axis)


def pad(graph: Graph, node: onnx.NodeProto) -> None:
    """Pad by a constant, or by what is there (edge, reflect, wrap); negative pads cut off.

    1. A reflection that only adds has an operator of its own.
    2. What else repeats what is there is a selection; so is what only cuts off: it fills nothing, whatever its mode.
    3. A constant only adds; to cut at the other end is left to a Slice.
    """
    value, quantized = graph.operand(node)
    rank, mode = len(value.shape), attributes(node).get("mode", b"constant").decode()
    given, fill, axes = (graph.parameter(node, i, label) for i, label in ((1, "pads"), (2, "value"), (3, "axes")))
    if given is None:
        raise UnsupportedNodeError(node, "it needs pads")
    amounts = np.zeros((rank, 2), np.int64)
    along = list(range(rank)) if axes is None else [int(axis) % rank for axis in axes]
    amounts[along] = np.asarray(given, np.int64).reshape(2, -1).T
    if value.open_axis is not None and amounts[value.open_axis].any():
        graph.close_batch()
    if mode == "reflect" and (amounts >= 0).all():  # rule 1
        last = value.channels_last
        places = graph.file.constant("pads", _placed(graph, amounts, rank, channels_last=last))
        unscaled(
            graph,
            node,
            value,
            quantized=quantized,
            channels_last=last,
            write=lambda source, target: graph.file.operator(
                "MIRROR_PAD", [source, places], [target], options="MirrorPadOptions", mode=_REFLECT
            ),
        )
        return
    if mode != "constant" or (amounts <= 0).all():  # rule 2
        if mode not in ("constant", "edge", "reflect", "wrap"):
            raise UnsupportedNodeError(node, f"its mode {mode!r} has no form")
        fill_mode: _Fill = "edge" if mode == "constant" else mode
        picks = {axis: _padded_places(value.shape[axis], amounts[axis], fill_mode) for axis in range(rank)}
        _selected(graph, node, value, picks, quantized=quantized)
        return
    if (amounts < 0).any():  # rule 3
        raise UnsupportedNodeError(node, "it pads at one end and cuts at another; use a Slice to cut")
    last = value.channels_last
    places = graph.file.constant("pads", _placed(graph, amounts, rank, channels_last=last))
    number = 0.0 if fill is None else float(fill.item())

    def write(source: int, target: int) -> None:
        if number == 0:
            graph.file.operator("PAD", [source, places], [target], options="PadOptions")
            return
        kind = np.dtype(np.float32) if value.quantization is not None else value.dtype
        filler = constant(graph, "fill", np.array([number], kind), value.quantization)
        graph.file.operator("PADV2", [source, places, filler], [target], options="PadV2Options")

    unscaled(graph, node, value, quantized=quantized, channels_last=last, write=write)


def _placed(graph: Graph, amounts: Array, rank: int, *, channels_last: bool) -> Array:
    """Order the padding before and after each axis by a layout."""
    placed = np.zeros((4 if channels_last else rank, 2), np.int32)
    for axis in range(rank):
        placed[graph.axis(axis, rank, channels_last=channels_last)] = amounts[axis]
    return placed


def _padded_places(size: int, amounts: Array, mode: _Fill) -> Array:
    """Find the origin of each place of a padded axis."""
    before, after = map(int, amounts)
    places: Array = np.arange(size)[max(-before, 0) : size - max(-after, 0)]
    wide: Array = np.pad(places, (max(before, 0), max(after, 0)), mode=mode)
    return wide


def repeat(graph: Graph, node: onnx.NodeProto) -> None:
    """Expand and Tile: whole repetitions along each axis."""
    value, quantized = graph.operand(node)
    shape = graph.shape(node.output[0])
    ones = (1,) * (len(shape) - len(value.shape))
    times = [after // before for after, before in zip(shape, ones + value.shape, strict=True)]
    grown = None if value.open_axis is None else value.open_axis + len(ones)
    if graph.open_axes.get(node.output[0]) != grown:
        graph.close_batch()
    if times == [1] * len(times):
        reshape(graph, node)
        return

    def write(source: int, target: int) -> None:
        if ones:
            source = graph.reshaped(source, value, f"{value.name}:raised", ones + value.shape, grown)
        graph.file.operator("TILE", [source, graph.integers(times, "times")], [target])

    unscaled(graph, node, value, quantized=quantized, channels_last=False, write=write)


WRITERS = {
    "Concat": concat,
    "Expand": repeat,
    "Flatten": reshape,
    "Gather": gather,
    "Identity": identity,
    "Pad": pad,
    "Reshape": reshape,
    "Slice": slice_,
    "Split": split,
    "Squeeze": reshape,
    "Tile": repeat,
    "Transpose": transpose,
    "Unsqueeze": reshape,
}
