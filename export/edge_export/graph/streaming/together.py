"""States of one type as one tensor: a call then moves one array for each type, however many layers keep something.

Moving a state costs a caller some 15 microseconds, in and out, whatever its size; a TCN of ten layers has ten of them,
and an update takes 100. In the graph, a Split and a Concat do the same for a few.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
import onnx
from onnx import helper, numpy_helper

from edge_export.graph.streaming.model import StreamingModel, StreamState


def states_together(streaming: StreamingModel) -> StreamingModel:
    """Return the same graph with one state for each type of numbers, of shape (numbers,)."""
    model = onnx.ModelProto()
    model.CopyFrom(streaming.model)
    graph = model.graph
    old = {name for state in streaming.states for name in (state.name, state.output)}
    types = {info.name: info.type.tensor_type.elem_type for info in graph.input}
    inputs, outputs = _without(graph.input, old), _without(graph.output, old)
    batch = inputs[0].type.tensor_type.shape.dim[0]
    nodes = list(graph.node)
    wholes = []
    for kind, group in _by_type(streaming.states).items():
        whole = _whole(kind, group)
        nodes = [*_apart(graph, whole, group), *nodes, *_joined(whole, group)]
        shape = [batch.dim_param or batch.dim_value, *whole.shape]
        inputs.append(helper.make_tensor_value_info(whole.name, types[group[0].name], shape))
        outputs.append(helper.make_tensor_value_info(whole.output, types[group[0].name], shape))
        wholes.append(whole)
    for field, values in ((graph.node, nodes), (graph.input, inputs), (graph.output, outputs)):
        copies = [type(value).FromString(value.SerializeToString()) for value in values]  # deleting empties the others
        del field[:]
        field.extend(copies)
    return replace(streaming, model=model, states=tuple(wholes))


def _without(infos: Iterable[onnx.ValueInfoProto], names: set[str]) -> list[onnx.ValueInfoProto]:
    return [info for info in infos if info.name not in names]


def _by_type(states: Sequence[StreamState]) -> dict[str, list[StreamState]]:
    return {kind: [one for one in states if one.dtype == kind] for kind in sorted({state.dtype for state in states})}


def _whole(kind: str, group: Sequence[StreamState]) -> StreamState:
    initial = np.concatenate([state.initial.reshape(-1) for state in group])
    return StreamState(name=f"states_{kind}", shape=initial.shape, dtype=kind, initial=initial)


def _apart(graph: onnx.GraphProto, whole: StreamState, group: Sequence[StreamState]) -> list[onnx.NodeProto]:
    """Write what takes the states out of one tensor."""
    parts = [f"{state.name}_flat" for state in group]
    sizes = _integers(graph, f"{whole.name}_sizes", [state.initial.size for state in group])
    nodes = [helper.make_node("Split", [whole.name, sizes], parts, name=f"{whole.name}_split", axis=1)]
    for part, state in zip(parts, group, strict=True):
        shape = _integers(graph, f"{state.name}_shape", [-1, *state.shape])
        nodes.append(helper.make_node("Reshape", [part, shape], [state.name], name=f"{state.name}_reshape"))
    return nodes


def _joined(whole: StreamState, group: Sequence[StreamState]) -> list[onnx.NodeProto]:
    """Write what puts the new states into one tensor."""
    ends = [f"{state.output}_flat" for state in group]
    nodes = [
        helper.make_node("Flatten", [state.output], [end], name=end, axis=1)
        for state, end in zip(group, ends, strict=True)
    ]
    return [*nodes, helper.make_node("Concat", ends, [whole.output], name=f"{whole.name}_concat", axis=1)]


def _integers(graph: onnx.GraphProto, name: str, values: Sequence[int]) -> str:
    graph.initializer.append(numpy_helper.from_array(np.array(values, np.int64), name))
    return name
