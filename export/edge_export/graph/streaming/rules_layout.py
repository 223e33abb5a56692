"""Operators that move numbers: axes change places, channels are split and joined, frames are cut off or padded.

1. All but the frames is known when the graph is written: a bound that is computed, or left to run time, has no rule.
2. The batch stays whole, and time goes forwards: cutting its start only says which frames are read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx

from edge_export.graph.streaming.frames import Frames, Reach
from edge_export.graph.streaming.step import FrameStep, Rule, Run, Writer, copied, passed_on
from edge_export.graph.streaming.window_graph import WindowGraph, attributes


def _transpose(graph: WindowGraph, node: onnx.NodeProto, timed: Mapping[int, Frames]) -> FrameStep | None:
    rank = len(graph.shapes[node.input[0]])
    order = list(attributes(node).get("perm", reversed(range(rank))))
    axis, batch = order.index(timed[0].axis), order.index(timed[0].batch)
    return FrameStep(reach=Reach(), axis=axis, batch=batch, build=copied, keeps=batch == 0)


def _reshape(graph: WindowGraph, node: onnx.NodeProto, timed: Mapping[int, Frames]) -> FrameStep | None:
    """Reshape, Flatten, Squeeze and Unsqueeze, as far as time stays an axis of its own."""
    if set(timed) != {0}:
        return None
    frames, result = timed[0], graph.shapes[node.output[0]]
    source = graph.shapes[node.input[0]]
    axis, batch = _place(source, result, frames.axis), _place(source, result, frames.batch)
    if axis is None or batch is None or axis == batch:
        return None

    def build(writer: Writer, _: onnx.NodeProto, inputs: list[str], run: Run) -> list[str]:
        target = list(result)
        target[axis] = run.frames
        target[batch] = writer.graph.batch or -1
        return writer.node("Reshape", [inputs[0], writer.integers(target)])

    return FrameStep(reach=Reach(), axis=axis, batch=batch, build=build, keeps=batch == 0)


def _place(source: tuple[int, ...], result: tuple[int, ...], axis: int) -> int | None:
    """Find an axis after a reshape: the same size, behind as many numbers; None if it was split or joined."""
    lead = int(np.prod(source[:axis]))
    for place, size in enumerate(result):
        if size == source[axis] and int(np.prod(result[:place])) == lead:
            return place
    return None


def _concat(graph: WindowGraph, node: onnx.NodeProto, timed: Mapping[int, Frames]) -> FrameStep | None:
    frames = timed[min(timed)]
    alike = all((f.axis, f.batch, f.length) == (frames.axis, frames.batch, frames.length) for f in timed.values())
    axis = attributes(node)["axis"] % len(graph.shapes[node.output[0]])
    if len(timed) != len(node.input) or not alike or axis in (frames.axis, frames.batch):
        return None
    return FrameStep(reach=Reach(), axis=frames.axis, batch=frames.batch, build=copied, keeps=frames.batch == 0)


def _split(graph: WindowGraph, node: onnx.NodeProto, timed: Mapping[int, Frames]) -> FrameStep | None:
    frames = timed[0]
    axis = attributes(node).get("axis", 0) % len(graph.shapes[node.input[0]])
    if axis in (frames.axis, frames.batch):
        return None
    return FrameStep(reach=Reach(), axis=frames.axis, batch=frames.batch, build=copied, keeps=frames.batch == 0)


def _gather(graph: WindowGraph, node: onnx.NodeProto, timed: Mapping[int, Frames]) -> FrameStep | None:
    """Channels by number; frames by number are `frames_picked`."""
    if set(timed) != {0}:
        return None
    frames, picked = timed[0], graph.shapes[node.input[1]]
    axis = attributes(node).get("axis", 0) % len(graph.shapes[node.input[0]])
    if axis in (frames.axis, frames.batch) or graph.constant(node, 1) is None:
        return None
    more = len(picked) - 1
    return FrameStep(
        reach=Reach(),
        axis=frames.axis + more * (frames.axis > axis),
        batch=frames.batch + more * (frames.batch > axis),
        build=copied,
        keeps=frames.batch == 0,
    )


def frames_picked(graph: WindowGraph, node: onnx.NodeProto, timed: Mapping[int, Frames]) -> np.ndarray[Any, Any] | None:
    """Numbers of the frames that a Gather over time takes, or None where the node is none.

    The shape is that of the numbers in the file: a single number takes the axis away.
    """
    numbers = graph.constant(node, 1) if node.op_type == "Gather" and set(timed) == {0} else None
    if numbers is None:
        return None
    frames = timed[0]
    if attributes(node).get("axis", 0) % len(graph.shapes[node.input[0]]) != frames.axis or not numbers.size:
        return None
    return np.where(numbers < 0, numbers + frames.length, numbers)


def _slice(graph: WindowGraph, node: onnx.NodeProto, timed: Mapping[int, Frames]) -> FrameStep | None:
    given = [graph.constant(node, position) for position in (1, 2, 3, 4)]
    starts, ends = given[:2]
    if set(timed) != {0} or starts is None or ends is None:  # rule 1
        return None
    if any(  # rule 1
        value is None and position < len(node.input) and node.input[position]
        for position, value in ((3, given[2]), (4, given[3]))
    ):
        return None
    shape, frames = graph.shapes[node.input[0]], timed[0]
    axes = [int(a) % len(shape) for a in (range(len(starts)) if given[2] is None else given[2])]
    steps = [1] * len(starts) if given[3] is None else [int(s) for s in given[3]]
    cuts = {axis: (int(s), int(e), step) for axis, s, e, step in zip(axes, starts, ends, steps, strict=True)}
    if frames.batch in cuts:  # rule 2
        return None
    own = cuts.pop(frames.axis, (0, frames.length, 1))
    start, _, stride = slice(*own).indices(frames.length)
    if stride < 1 or not graph.shapes[node.output[0]][frames.axis]:  # rule 2
        return None
    if stride > 1:
        cuts[frames.axis] = (0, 1 << 40, stride)

    def build(writer: Writer, _: onnx.NodeProto, inputs: list[str], run: Run) -> list[str]:
        if not cuts:
            return passed_on(writer, node, inputs, run)
        columns = [writer.integers(list(column)) for column in zip(*cuts.values(), strict=True)]
        return writer.node("Slice", [inputs[0], columns[0], columns[1], writer.integers(list(cuts)), columns[2]])

    reach = Reach(stride=stride, size=1, before=-start)
    return FrameStep(
        reach=reach, axis=frames.axis, batch=frames.batch, build=build, keeps=bool(cuts) and frames.batch == 0
    )


def _pad(graph: WindowGraph, node: onnx.NodeProto, timed: Mapping[int, Frames]) -> FrameStep | None:
    pads, frames = graph.constant(node, 1), timed[0]
    if set(timed) != {0} or pads is None or attributes(node).get("mode", b"constant") != b"constant":
        return None
    shape = graph.shapes[node.input[0]]
    rank = len(shape)
    axes = graph.constant(node, 3)
    if axes is None and len(node.input) > 3 and node.input[3]:
        return None
    amounts = [[0, 0] for _ in shape]
    for place, axis in enumerate(range(rank) if axes is None else axes):
        amounts[int(axis) % rank] = [int(pads[place]), int(pads[place + len(pads) // 2])]
    if any(amounts[frames.batch]) or min(amounts[frames.axis]) < 0:
        return None
    before = amounts[frames.axis][0]

    def build(writer: Writer, node: onnx.NodeProto, inputs: list[str], run: Run) -> list[str]:
        now = [*amounts[: frames.axis], [run.before, run.after], *amounts[frames.axis + 1 :]]
        flat = [first for first, _ in now] + [last for _, last in now]
        if not any(flat):
            return inputs[:1]
        value = [inputs[2]] if len(inputs) > 2 else []
        return writer.copy(node, [inputs[0], writer.integers(flat), *value])

    return FrameStep(
        reach=Reach(before=before), axis=frames.axis, batch=frames.batch, build=build, keeps=frames.batch == 0
    )


RULES: dict[str, Rule] = {
    "Concat": _concat,
    "Flatten": _reshape,
    "Gather": _gather,
    "Pad": _pad,
    "Reshape": _reshape,
    "Slice": _slice,
    "Split": _split,
    "Squeeze": _reshape,
    "Transpose": _transpose,
    "Unsqueeze": _reshape,
}
