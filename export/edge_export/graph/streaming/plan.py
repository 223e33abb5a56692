"""Plan of an update: frames that it computes and keeps, and its costs; the analysis behind a conversion.

Forwards, every tensor gets its time axis, as far as it has one (`Frames`). Backwards, every tensor learns which frames
are read in an update (`Demand`), and from that which are computed and which are kept (`Supply`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
import onnx

from edge_export.graph.streaming import recurrent, rules_kernel, rules_layout, rules_pointwise
from edge_export.graph.streaming.frames import ALWAYS, Demand, Frames, Interval, Supply, supply
from edge_export.graph.streaming.rules_layout import frames_picked
from edge_export.graph.streaming.step import FrameStep, Rule
from edge_export.graph.streaming.window_graph import WindowGraph, attributes, inputs_of, label
from edge_runtime.errors import ConfigError

Mode = Literal["window", "stream"]

_RULES: dict[str, Rule] = {**rules_pointwise.RULES, **rules_layout.RULES, **rules_kernel.RULES}


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeCost:
    """Cost of one node.

    Attributes:
        node: operator and name.
        window: multiply-accumulates (for nodes that multiply no matrices: numbers) in the windowed network.
        update: the same in an update.
        reason: why an update costs more than the samples that it brings, or empty.
    """

    node: str
    window: int
    update: int
    reason: str = ""


@dataclass(slots=True)
class Plan:
    """The analysis of one network for one hop."""

    graph: WindowGraph
    hop: int
    mode: Mode
    frames: dict[str, Frames] = field(default_factory=dict)
    """Tensors with a time axis."""
    steps: dict[int, FrameStep] = field(default_factory=dict)
    """Nodes that go frame by frame, by position."""
    cells: dict[int, recurrent.Cell] = field(default_factory=dict)
    """Nodes that carry a state of their own."""
    supplies: dict[str, Supply] = field(default_factory=dict)
    runs: dict[int, tuple[Interval, ...]] = field(default_factory=dict)
    """Runs that a node of `steps` computes."""
    whole: set[int] = field(default_factory=set)
    """Nodes that see the window as a whole."""
    reasons: dict[int, str] = field(default_factory=dict)
    delay: int = 0
    """Samples by which answers lie behind the newest sample."""

    def frames_read(self, position: int, name: str) -> Interval:
        """Frames of an input that a node which sees the whole window reads."""
        frames = self.frames[name]
        shift = self.delay // frames.stride
        if position >= 0:
            node = self.graph.model.graph.node[position]
            picked = frames_picked(self.graph, node, self.timed(node))
            if picked is not None:
                return int(picked.min()) - shift, int(picked.max()) + 1 - shift
        return -shift, frames.length - shift

    def clipped(self, name: str, wanted: Interval) -> Interval:
        """Frames that exist: a window has ends, a stream has none."""
        if self.mode == "stream":
            return wanted
        return max(0, wanted[0]), min(self.frames[name].length, wanted[1])

    def costs(self) -> tuple[NodeCost, ...]:
        """Costs of all nodes that an update or the windowed network runs, in the order of the graph."""
        found = []
        for position, node in enumerate(self.graph.model.graph.node):
            if not self._live(position):
                continue
            window = update = _work(self.graph, node)
            if position in self.steps or position in self.cells:
                length = max(1, self.frames[node.output[0]].length)
                computed = sum(stop - start for start, stop in self.runs[position])
                update = round(window * computed / length)
            found.append(
                NodeCost(node=label(node), window=window, update=update, reason=self.reasons.get(position, ""))
            )
        return tuple(found)

    def _live(self, position: int) -> bool:
        return position in self.runs or position in self.whole

    def timed(self, node: onnx.NodeProto) -> dict[int, Frames]:
        """Time axes of a node's inputs, by position."""
        return {i: self.frames[name] for i, name in enumerate(node.input) if name in self.frames}


def analyse(graph: WindowGraph, *, hop: int, mode: Mode) -> Plan:
    """Work out what an update computes and keeps.

    Args:
        graph: the windowed network.
        hop: samples that an update brings.
        mode: see `edge_export.graph.streaming`.

    Raises:
        ConfigError: the hop is out of range, or the network cannot run as a stream.
    """
    if not 0 < hop < graph.samples:
        raise ConfigError(f"hop {hop} must be between 1 and {graph.samples - 1}, less than the window")
    plan = Plan(graph=graph, hop=hop, mode=mode)
    _forwards(plan)
    if mode == "stream":
        plan.delay = _delay(plan)
    _backwards(plan)
    return plan


def _forwards(plan: Plan) -> None:
    """Give every tensor its time axis, as far as it has one, in graph order.

    1. A node none of whose inputs has time, and a Shape, are no part of an update.
    2. A recurrent operator of a stream is a cell: it carries its state, and takes every frame once.
    3. An operator that goes frame by frame, whose other inputs no window changes, is a step.
    4. Every other node sees the whole window; the plan says why.
    """
    graph, stream = plan.graph, plan.mode == "stream"
    plan.frames[graph.source] = Frames(
        axis=2, batch=0, length=graph.samples, stride=1, begin=ALWAYS if stream else 0, end=graph.samples
    )
    for position, node in enumerate(graph.model.graph.node):
        timed = plan.timed(node)
        if not timed or node.op_type == "Shape":  # rule 1
            continue
        if stream and node.op_type in recurrent.OPERATORS:  # rule 2
            _add_cell(plan, position, node, timed)
        elif (step := _frame_by_frame(plan, node, timed)) is not None:  # rule 3
            _add_step(plan, position, node, step)
        else:  # rule 4
            plan.reasons[position] = _why_whole(node, timed, _changing(plan, node))


def _frame_by_frame(plan: Plan, node: onnx.NodeProto, timed: dict[int, Frames]) -> FrameStep | None:
    """Return how a node goes frame by frame, None if it does not."""
    rule = _RULES.get(node.op_type) if node.domain in ("", "ai.onnx") else None
    return rule(plan.graph, node, timed) if rule and not _changing(plan, node) else None


def _changing(plan: Plan, node: onnx.NodeProto) -> list[str]:
    """List inputs without a time axis that a window changes all the same."""
    return [name for name in inputs_of(node) if name not in plan.frames and name not in plan.graph.static]


def _add_cell(plan: Plan, position: int, node: onnx.NodeProto, timed: dict[int, Frames]) -> None:
    """Let a recurrent operator carry its state; its outputs over time have the axes (time, direction, batch, ...)."""
    plan.cells[position] = recurrent.cell(plan.graph, node, timed)
    if plan.hop % timed[0].stride:
        raise ConfigError(f"{label(node)}: {_why_misaligned(plan, timed[0].stride)}")
    plan.frames[node.output[0]] = timed[0].moved(axis=0, batch=2)


def _add_step(plan: Plan, position: int, node: onnx.NodeProto, step: FrameStep) -> None:
    """Let a node go frame by frame, and give its results their time axis.

    1. A hop that is no whole number of frames: all frames are new in every window, which a stream does not have, and
       which a window takes only where there is one frame at most.
    2. Padding and kernel that reach further than the window: all frames are new, too.
    3. Padding inside the window: the frames that see it are computed again.
    """
    plan.steps[position] = step
    timed = plan.timed(node).values()
    joint = _joint(step, [step.reach.after(frames, plan.graph.shapes[node.output[0]][step.axis]) for frames in timed])
    if plan.hop % joint.stride:  # rule 1
        plan.reasons[position] = _why_misaligned(plan, joint.stride)
        if plan.mode == "stream" or joint.length > 1:
            raise ConfigError(f"{label(node)}: {plan.reasons[position]}")
        joint = joint.fixed()
    elif joint.begin == joint.length and all(frames.begin < frames.end for frames in timed):  # rule 2
        plan.reasons[position] = "its padding and kernel reach further than the window, so every frame sees an edge"
    elif plan.mode == "window" and step.reach.size > 1 and _edges(joint) > max(map(_edges, timed)):  # rule 3
        plan.reasons[position] = (
            f"padding inside the window: {joint.begin} frames at its start and {joint.length - joint.end} at its "
            "end see zeros, and are computed again in every update"
        )
    plan.frames.update((name, joint) for name in node.output if name)


def _joint(step: FrameStep, results: list[Frames]) -> Frames:
    """Join the time axes of several inputs: frames that each gives; all are new where the strides differ."""
    joint = replace(
        results[0],
        axis=step.axis,
        batch=step.batch,
        begin=max(result.begin for result in results),
        end=min(result.end for result in results),
    )
    together = all(result.stride == joint.stride for result in results) and joint.begin < joint.end
    return joint if together else joint.fixed()


def _edges(frames: Frames) -> int:
    return frames.begin + frames.length - frames.end


def _backwards(plan: Plan) -> None:
    graph = plan.graph
    demands = {name: Demand(frames) for name, frames in plan.frames.items()}
    read: set[str] = set()
    for info in graph.model.graph.output:
        _ask_whole(plan, -1, [info.name], demands, read)
    nodes = list(enumerate(graph.model.graph.node))
    for position, node in reversed(nodes):
        if position in plan.cells:
            _ask_cell(plan, position, node, demands, read)
        elif position in plan.steps:
            _ask_step(plan, position, node, demands, read)
        elif read.intersection(node.output) and not (set(node.output) <= graph.static):
            plan.whole.add(position)
            _ask_whole(plan, position, inputs_of(node), demands, read)
    plan.supplies[graph.source] = supply(demands[graph.source], plan.hop, keep=True)


def _ask_whole(plan: Plan, position: int, names: Iterable[str], demands: dict[str, Demand], read: set[str]) -> None:
    for name in names:
        read.add(name)
        if name in demands:
            demands[name].add(plan.frames_read(position, name))


def _ask_step(plan: Plan, position: int, node: onnx.NodeProto, demands: dict[str, Demand], read: set[str]) -> None:
    """Plan what a node computes in an update, and ask its inputs for that.

    1. Its runs are those of all its outputs together, as a node computes them at once; one without runs asks nothing.
    2. Each output keeps what is read of it.
    """
    step = plan.steps[position]
    wanted = [demands[name] for name in node.output if name]
    joint = Demand(wanted[0].frames)  # rule 1
    for demand in wanted:
        for interval in (demand.left, demand.inner, demand.right):
            if interval is not None:
                joint.add(interval)
    found = supply(joint, plan.hop, keep=step.keeps)
    sources = [name for name in inputs_of(node) if name in plan.frames]
    runs = tuple(_with_input(plan, step, sources, run) for run in found.runs)
    if not runs:  # rule 1
        return
    plan.runs[position] = runs
    for name, demand in zip((name for name in node.output if name), wanted, strict=True):
        own = supply(demand, plan.hop, keep=step.keeps)  # rule 2
        plan.supplies[name] = Supply(runs=runs, ring=own.ring, step=own.step)
    read.update(inputs_of(node))
    for name in sources:
        for run in runs:
            demands[name].add(plan.clipped(name, step.reach.read_by(run)))


def _with_input(plan: Plan, step: FrameStep, sources: list[str], run: Interval) -> Interval:
    """Lengthen a run by frames that see a sample where it lies in padding altogether."""
    while True:
        seen = [plan.clipped(name, step.reach.read_by(run)) for name in sources]
        if all(start < stop for start, stop in seen):
            return run
        run = (run[0], run[1] + 1) if any(stop <= 0 for _, stop in seen) else (run[0] - 1, run[1])


def _ask_cell(plan: Plan, position: int, node: onnx.NodeProto, demands: dict[str, Demand], read: set[str]) -> None:
    steps, last = node.output[0], node.output[1]
    frames = plan.frames[steps]
    newest = frames.length - plan.delay // frames.stride
    if last in read and newest < frames.end:
        demands[steps].add((newest - 1, newest))
    if any(name in read for name in node.output[2:]):
        raise ConfigError(f"{label(node)}: only its outputs over time and its last output can be read, not its state")
    if demands[steps].inner is None and last not in read:
        return
    step = plan.hop // frames.stride
    # Each frame passes the layer exactly once, whether its output is read or not.
    new = (frames.end - step, frames.end)
    plan.runs[position] = (new,)
    plan.supplies[steps] = Supply(runs=(new,), ring=supply(demands[steps], plan.hop, keep=True).ring, step=step)
    read.update(inputs_of(node))
    demands[node.input[0]].add(new)


def _delay(plan: Plan) -> int:
    """Count the samples by which the stream must be ahead, so that every frame that is read exists."""
    lags, strides = [0], [1]
    nodes = plan.graph.model.graph.node
    readers = [(-1, info.name) for info in plan.graph.model.graph.output]
    for position, node in enumerate(nodes):
        if position in plan.cells:
            readers.append((-1, node.output[0]))
        elif position not in plan.steps and node.op_type != "Shape":
            readers += [(position, name) for name in inputs_of(node)]
    for position, name in readers:
        if name in plan.frames:
            frames = plan.frames[name]
            lags.append((plan.frames_read(position, name)[1] - frames.end) * frames.stride)
            strides.append(frames.stride)
    unit = math.lcm(*strides)
    return -(-max(lags) // unit) * unit


def _why_whole(node: onnx.NodeProto, timed: dict[int, Frames], changing: list[str]) -> str:
    if node.op_type in recurrent.OPERATORS:
        return (
            "it starts from its initial state in every window, so every step is new; mode='stream' carries its state "
            "instead, and then answers as the network does that has seen the whole stream"
        )
    if changing and timed:
        return f"'{changing[0]}' is made of the whole window and meets every frame of it"
    return "it works across the frames of the whole window"


def _why_misaligned(plan: Plan, stride: int) -> str:
    below = plan.hop // stride * stride
    others = " or ".join(str(hop) for hop in (below, below + stride) if 0 < hop < plan.graph.samples)
    return f"its frames stand {stride} samples apart, which do not divide a hop of {plan.hop}; take hop {others}"


def _work(graph: WindowGraph, node: onnx.NodeProto) -> int:
    """Multiply-accumulates of a node for one window; for nodes that multiply no matrices, numbers in its results."""
    results = [graph.shapes[name] for name in node.output if name]
    numbers = sum(int(np.prod(shape)) for shape in results) / graph.rows
    shapes = [graph.shapes.get(name, ()) for name in node.input]
    if node.op_type == "Conv":
        numbers *= int(np.prod(shapes[1][1:]))
    elif node.op_type == "MatMul":
        numbers *= shapes[0][-1]
    elif node.op_type == "Gemm":
        numbers *= shapes[0][0 if attributes(node).get("transA", 0) else 1]
    elif node.op_type in recurrent.OPERATORS:
        steps = shapes[0][0]
        numbers = steps * (int(np.prod(shapes[1])) + int(np.prod(shapes[2])))
    elif node.op_type in ("Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity"):
        numbers = 0
    return round(numbers)
