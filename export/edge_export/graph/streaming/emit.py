"""Write the stateful graph that a plan describes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import onnx
from onnx import helper, numpy_helper

from edge_export.graph.streaming.frames import Interval
from edge_export.graph.streaming.model import StreamState
from edge_export.graph.streaming.plan import Plan
from edge_export.graph.streaming.rules_layout import frames_picked
from edge_export.graph.streaming.step import Run
from edge_export.graph.streaming.window_graph import Array

Piece = tuple[int, int, str]
"""Frames from the first number up to the second, and the tensor that holds them."""

_FUSED = ("LeakyRelu", "Relu", "Sigmoid", "Tanh")
"""Activations that onnxruntime computes inside the convolution in front of them."""

HOP = "hop"
"""Name of the input with the samples of an update."""


class GraphWriter:
    """Appends nodes to a stateful graph; see `edge_export.graph.streaming.step.Writer`.

    Args:
        plan: what to write.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.graph = plan.graph
        self.states: list[StreamState] = []
        self._nodes: list[onnx.NodeProto] = []
        self._constants: dict[str, onnx.TensorProto] = {}
        self._names: dict[str, str] = {}
        self._slices: dict[tuple[str, int, int], str] = {}
        self._pieces: dict[str, list[Piece]] = {}
        self._fresh: dict[str, tuple[str, ...]] = {}
        self._reads: dict[tuple[str, int, int], str] = {}

    def node(self, operator: str, inputs: Sequence[str], outputs: int = 1, **settings: Any) -> list[str]:
        """Append a node; returns names of its results."""
        names = [f"t{len(self._nodes)}_{i}" for i in range(outputs)]
        self._nodes.append(helper.make_node(operator, list(inputs), names, **settings))
        return names

    def copy(self, node: onnx.NodeProto, inputs: Sequence[str], **changed: Any) -> list[str]:
        """Append a node like this one with other inputs and some other attributes; returns names of its results."""
        twin = onnx.NodeProto()
        twin.CopyFrom(node)
        kept = [attribute for attribute in node.attribute if attribute.name not in changed]
        del twin.attribute[:]
        twin.attribute.extend(kept)
        twin.attribute.extend(helper.make_attribute(name, value) for name, value in changed.items())
        names = [f"t{len(self._nodes)}_{i}" if name else "" for i, name in enumerate(node.output)]
        twin.input[:] = list(inputs)
        twin.output[:] = names
        self._nodes.append(twin)
        return names

    def integers(self, values: Sequence[int]) -> str:
        """Name of a constant, int64 of one dimension."""
        name = "i_" + "_".join(map(str, values))
        return self.constant(name, np.array(values, np.int64))

    def constant(self, name: str, value: Array) -> str:
        """Name of a constant; the same one for the same name."""
        if name not in self._constants:
            self._constants[name] = numpy_helper.from_array(value, name)
        return name

    def write(self) -> onnx.ModelProto:
        """Build the stateful graph."""
        graph, plan = self.graph, self.plan
        source = plan.frames[graph.source]
        self._supply(graph.source, [(source.end - plan.hop, source.end, HOP)])
        for position, node in enumerate(graph.model.graph.node):
            if position in plan.cells and position in plan.runs:
                self._write_cell(position, node)
            elif position in plan.runs:
                self._write_step(position, node)
            elif position in plan.whole:
                inputs = [self._whole(position, name) for name in node.input]
                picked = frames_picked(graph, node, plan.timed(node))
                if picked is not None:
                    inputs[1] = self.constant(f"picked_{position}", (picked - picked.min()).astype(np.int64))
                self._names.update(zip(node.output, self.copy(node, inputs), strict=True))
        return self._model()

    def made(self, name: str) -> tuple[str, ...]:
        """Tensors that hold what an update computes of a tensor of the windowed network; none if it is not read.

        To be asked after `write`.
        """
        if name in self._fresh:
            return self._fresh[name]
        return (self._names[name],) if name in self._names else ()

    def _write_step(self, position: int, node: onnx.NodeProto) -> None:
        step, plan = self.plan.steps[position], self.plan
        computed: dict[str, list[Piece]] = {name: [] for name in node.output if name}
        for run in plan.runs[position]:
            inputs, before, after = [], 0, 0
            for name in node.input:
                if name not in plan.frames:
                    inputs.append(self._fixed(name))
                    continue
                wanted = step.reach.read_by(run)
                start, stop = plan.clipped(name, wanted)
                before, after = start - wanted[0], wanted[1] - stop
                inputs.append(self._read(name, (start, stop)))
            results = step.build(self, node, inputs, Run(frames=run[1] - run[0], before=before, after=after))
            for name, result in zip(node.output, results, strict=True):
                if name:
                    computed[name].append((*run, result))
        for name, pieces in computed.items():
            self._supply(name, pieces)

    def _write_cell(self, position: int, node: onnx.NodeProto) -> None:
        plan, cell = self.plan, self.plan.cells[position]
        (run,) = plan.runs[position]
        inputs = [self._read(node.input[0], run), *map(self._fixed, node.input[1:])]
        inputs += [""] * (1 + cell.memories[-1].source - len(inputs))
        states = []
        for memory in cell.memories:
            states.append(self._state(memory.initial.shape, memory.initial))
            (inputs[memory.source],) = self.node("Unsqueeze", [states[-1].name, self.integers([0])])
        results = self.copy(node, inputs)
        for memory, state in zip(cell.memories, states, strict=True):
            self._next(state, self.node("Squeeze", [results[memory.result], self.integers([0])]))
        self._supply(node.output[0], [(*run, results[0])])
        frames = plan.frames[node.output[0]]
        newest = frames.length - plan.delay // frames.stride
        if newest == frames.end:
            self._names[node.output[1]] = results[1]
        elif any(start < newest <= stop for start, stop, _ in self._pieces[node.output[0]]):
            # The layer is ahead of an answer that waits for another branch.
            last = self._read(node.output[0], (newest - 1, newest))
            self._names[node.output[1]] = self.node("Squeeze", [last, self.integers([0])])[0]

    def _supply(self, name: str, computed: list[Piece]) -> None:
        """Make the computed frames of a tensor readable, together with those kept from earlier updates."""
        self._fresh[name] = tuple(tensor for _, _, tensor in computed)
        supply, frames = self.plan.supplies[name], self.plan.frames[name]
        if supply.ring is None:
            self._pieces[name] = computed
            return
        first, newest = supply.ring
        kept, axis = newest - first, frames.axis
        *others, (start, stop, tensor) = computed
        fresh = self._cut(tensor, axis, newest - start, stop - start, stop - start)
        shape = list(self.graph.shapes[name])
        shape[axis] = kept
        del shape[frames.batch]
        state = self._state(tuple(shape), np.full(shape, self._nothing(name), self.graph.types[name]))
        order: list[int] = [frames.batch, *(a for a in range(len(shape) + 1) if a != frames.batch)]
        past = state.name
        if frames.batch:
            (past,) = self.node("Transpose", [past], perm=[int(a) for a in np.argsort(order)])
        (joined,) = self.node("Concat", [past, fresh], axis=axis)
        # What is kept ends with the newest frame that depends on samples alone.
        total = kept + stop - newest
        last = self._slice(joined, axis, supply.step, supply.step + kept, total)
        if frames.batch:
            last = self.node("Transpose", last, perm=order)
        self._next(state, last)
        self._pieces[name] = [*others, (first, stop, joined)]

    def _state(self, shape: tuple[int, ...], initial: Array) -> StreamState:
        state = StreamState(
            name=f"state_{len(self.states)}", shape=tuple(map(int, shape)), dtype=initial.dtype.name, initial=initial
        )
        self.states.append(state)
        return state

    def _next(self, state: StreamState, results: list[str]) -> None:
        producer = self._nodes[-1]
        assert list(producer.output) == results
        producer.output[0] = state.output

    def _nothing(self, name: str) -> int:
        """Return a tensor's number for zero: its zero point, if it holds integers."""
        while name in self.graph.producers:
            node = self.graph.producers[name]
            if node.op_type == "QuantizeLinear":
                zero = self.graph.constant(node, 2)
                return 0 if zero is None else int(zero.ravel()[0])
            name = str(node.input[0])
        return 0

    def _whole(self, position: int, name: str) -> str:
        """Return the whole of an input: all its frames, or the tensor itself."""
        if name in self.plan.frames:
            return self._read(name, self.plan.frames_read(position, name))
        return self._names[name] if name in self._names else self._fixed(name)

    def _fixed(self, name: str) -> str:
        """Copy a tensor that no window changes, with the nodes that make it."""
        if not name or name in self._names:
            return self._names.get(name, "")
        if name in self.graph.initializers:
            tensor = onnx.TensorProto()
            tensor.CopyFrom(self.graph.initializers[name])
            tensor.name = f"w_{name}"
            self._constants[tensor.name] = tensor
            self._names[name] = f"w_{name}"
            return self._names[name]
        node = self.graph.producers[name]
        if node.op_type == "Shape" and node.input[0] not in self.graph.static:
            self._names[name] = self._shape(name)
            return self._names[name]
        results = self.copy(node, [self._fixed(source) for source in node.input])
        self._names.update(zip(node.output, results, strict=True))
        return self._names[name]

    def _shape(self, name: str) -> str:
        """Compute what Shape answers in the windowed network, for the batch that the update has."""
        if name in self.graph.values:
            return self.constant(f"w_{name}", self.graph.values[name])
        sizes, open_ = self.graph.first_rows[name], self.graph.open_sizes(name)
        parts = []
        for size, by_batch in zip(sizes, open_, strict=True):
            parts += self.node("Shape", [HOP], start=0, end=1) if by_batch else [self.integers([int(size)])]
        return parts[0] if len(parts) == 1 else self.node("Concat", parts, axis=0)[0]

    def _read(self, name: str, wanted: Interval) -> str:
        """Return the tensor that holds these frames."""
        key = (name, *wanted)
        if key not in self._reads:
            axis, (start, stop) = self.plan.frames[name].axis, wanted
            parts: list[str] = []
            while start < stop:
                begin, end, tensor = max(
                    (piece for piece in self._pieces[name] if piece[0] <= start < piece[1]), key=lambda piece: piece[1]
                )
                until = min(stop, end)
                parts.append(self._cut(tensor, axis, start - begin, until - begin, end - begin))
                start = until
            self._reads[key] = parts[0] if len(parts) == 1 else self.node("Concat", parts, axis=axis)[0]
        return self._reads[key]

    def _cut(self, tensor: str, axis: int, start: int, stop: int, total: int) -> str:
        if (start, stop) == (0, total):
            return tensor
        key = (tensor, start, stop)
        if key not in self._slices:
            (self._slices[key],) = self._slice(tensor, axis, start, stop, total)
        return self._slices[key]

    def _slice(self, tensor: str, axis: int, start: int, stop: int, total: int) -> list[str]:
        assert 0 <= start < stop <= total, (tensor, start, stop, total)
        return self.node("Slice", [tensor, *(self.integers([value]) for value in (start, stop, axis))])

    def _model(self) -> onnx.ModelProto:
        given, graph = self.graph.model, self.graph
        rows: Literal["batch"] | int = graph.batch or "batch"
        outputs = []
        for info in given.graph.output:
            self._nodes.append(helper.make_node("Identity", [self._whole(-1, info.name)], [info.name]))
            outputs.append(info)
        state_inputs, state_outputs = (
            [
                helper.make_tensor_value_info(
                    name, helper.np_dtype_to_tensor_dtype(np.dtype(state.dtype)), [rows, *state.shape]
                )
                for name, state in ((getattr(state, which), state) for state in self.states)
            ]
            for which in ("name", "output")
        )
        hop = helper.make_tensor_value_info(HOP, onnx.TensorProto.FLOAT, [rows, graph.channels, self.plan.hop])
        stateful = onnx.ModelProto()
        stateful.CopyFrom(given)
        stateful.graph.CopyFrom(
            helper.make_graph(
                self._nodes, "model", [hop, *state_inputs], [*outputs, *state_outputs], list(self._constants.values())
            )
        )
        return stateful


def activate_before_squeeze(model: onnx.ModelProto) -> None:
    """Put an activation directly behind the convolution whose row is squeezed away: there engines fuse the two.

    What a tensor in between holds changes by it, so this comes last.

    Args:
        model: changed in place.
    """
    nodes = model.graph.node
    readers = Counter(name for node in nodes for name in node.input)
    squeezes = {node.output[0]: node for node in nodes if node.op_type == "Squeeze"}
    for node in nodes:
        squeeze = squeezes.get(node.input[0]) if node.op_type in _FUSED else None
        if squeeze is None or readers[node.input[0]] > 1 or len(node.input) > 1:
            continue
        axes, between = squeeze.input[1], node.input[0]
        activation = helper.make_node(node.op_type, [squeeze.input[0]], [between])
        activation.attribute.extend(node.attribute)
        shaped = helper.make_node("Squeeze", [between, axes], [node.output[0]])
        squeeze.CopyFrom(activation)
        node.CopyFrom(shaped)
