"""States of one type as one tensor: a call then moves one array for each type, however many layers keep something.

Moving a state costs a caller some 15 microseconds, in and out, whatever its size; a TCN of ten layers has ten of them,
and an update takes 100. In the graph, a Split and a Concat do the same for a few.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import onnx
from onnx import helper, numpy_helper

from edge_export.streaming.model import State, StreamingModel


def states_together(streaming: StreamingModel) -> StreamingModel:
    """Return the same graph with one state for each type of numbers, of shape (numbers,)."""
    kinds = sorted({state.dtype for state in streaming.states})
    groups = {kind: [state for state in streaming.states if state.dtype == kind] for kind in kinds}
    model = onnx.ModelProto()
    model.CopyFrom(streaming.model)
    graph = model.graph
    old = {name for state in streaming.states for name in (state.name, state.output)}
    types = {info.name: info.type.tensor_type.elem_type for info in graph.input}
    kept_inputs = [info for info in graph.input if info.name not in old]
    kept_outputs = [info for info in graph.output if info.name not in old]
    before: list[onnx.NodeProto] = []
    after: list[onnx.NodeProto] = []
    states = []
    for kind, group in groups.items():
        whole = State(
            name=f"states_{kind}",
            shape=(sum(map(_size, group)),),
            dtype=kind,
            initial=np.concatenate([state.initial.reshape(-1) for state in group]),
        )
        states.append(whole)
        sizes = numpy_helper.from_array(np.array([_size(state) for state in group], np.int64), f"{whole.name}_sizes")
        graph.initializer.append(sizes)
        parts = [f"{state.name}_flat" for state in group]
        before.append(helper.make_node("Split", [whole.name, sizes.name], parts, name=f"{whole.name}_split", axis=1))
        before += [_reshape(graph, part, state) for part, state in zip(parts, group, strict=True)]
        ends = [f"{state.output}_flat" for state in group]
        after += [
            helper.make_node("Flatten", [state.output], [end], name=end, axis=1)
            for state, end in zip(group, ends, strict=True)
        ]
        after.append(helper.make_node("Concat", ends, [whole.output], name=f"{whole.name}_concat", axis=1))
        batch = _batch(kept_inputs)
        shape = [batch, *whole.shape]
        kept_inputs.append(helper.make_tensor_value_info(whole.name, types[group[0].name], shape))
        kept_outputs.append(helper.make_tensor_value_info(whole.output, types[group[0].name], shape))
    nodes = [*before, *graph.node, *after]
    copies = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
    inputs = [onnx.ValueInfoProto.FromString(info.SerializeToString()) for info in kept_inputs]
    outputs = [onnx.ValueInfoProto.FromString(info.SerializeToString()) for info in kept_outputs]
    for field, values in ((graph.node, copies), (graph.input, inputs), (graph.output, outputs)):
        del field[:]
        field.extend(values)
    return replace(streaming, model=model, states=tuple(states))


def _size(state: State) -> int:
    return int(np.prod(state.shape, dtype=int))


def _batch(inputs: Sequence[onnx.ValueInfoProto]) -> int | str:
    """Return the batch axis of the samples: a name where it is open."""
    dim = inputs[0].type.tensor_type.shape.dim[0]
    return dim.dim_param or int(dim.dim_value)


def _reshape(graph: onnx.GraphProto, part: str, state: State) -> onnx.NodeProto:
    shape = numpy_helper.from_array(np.array([-1, *state.shape], np.int64), f"{state.name}_shape")
    graph.initializer.append(shape)
    return helper.make_node("Reshape", [part, shape.name], [state.name], name=f"{state.name}_reshape")
