"""Integer states as floats between Quantize and Dequantize, which is the only form that TensorFlow Lite files know.

A stateful int8 graph joins and cuts integers as they are. Here each such operator stands between DequantizeLinear and
QuantizeLinear of the same scale, and a state is what the integers stand for. Nothing is rounded: both are exact on
numbers that are integers times the scale.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import onnx
from onnx import TensorProto, helper

from edge_export.graph.streaming.model import StreamingModel
from edge_runtime.errors import ConfigError

_STEPS = ("QuantizeLinear", "DequantizeLinear")


class _Step(NamedTuple):
    """Names of scale and zero point."""

    scale: str
    zero: str


def states_as_floats(streaming: StreamingModel) -> StreamingModel:
    """Return the same graph with float states.

    Raises:
        ConfigError: an integer is joined whose scale the graph does not say.
    """
    integers = [state for state in streaming.states if state.dtype in ("int8", "uint8")]
    if not integers:
        return streaming
    model = onnx.ModelProto()
    model.CopyFrom(streaming.model)
    graph = model.graph
    held = {name: f"{name}_held" for state in integers for name in (state.name, state.output)}
    _rename(graph, held)
    steps = _steps_of(graph)
    nodes = [_cross("QuantizeLinear", one.name, held[one.name], _step(steps, held[one.name])) for one in integers]
    for node in graph.node:
        nodes += _between_floats(node, steps)
    nodes += [_cross("DequantizeLinear", held[one.output], one.output, steps[held[one.output]]) for one in integers]
    for info in (*graph.input, *graph.output):
        if info.name in held:
            info.type.tensor_type.elem_type = TensorProto.FLOAT
    copies = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
    del graph.node[:]
    graph.node.extend(copies)
    del graph.value_info[:]
    plain = {one.name: replace(one, dtype="float32", initial=np.zeros(one.shape, np.float32)) for one in integers}
    return replace(streaming, model=model, states=tuple(plain.get(one.name, one) for one in streaming.states))


def _rename(graph: onnx.GraphProto, names: Mapping[str, str]) -> None:
    for node in graph.node:
        node.input[:] = [names.get(name, name) for name in node.input]
        node.output[:] = [names.get(name, name) for name in node.output]


def _between_floats(node: onnx.NodeProto, steps: Mapping[str, _Step]) -> list[onnx.NodeProto]:
    """Write a node that moves integers as one that moves floats; any other as it is."""
    moved = [position for position, name in enumerate(node.input) if name in steps]
    if node.op_type in _STEPS or not moved:
        return [node]
    (result,) = node.output
    step = _step(steps, result)
    before = []
    for position in moved:
        plain = f"{result}_from_{position}"
        before.append(_cross("DequantizeLinear", node.input[position], plain, step))
        node.input[position] = plain
    node.output[0] = f"{result}_plain"
    return [*before, node, _cross("QuantizeLinear", f"{result}_plain", result, step)]


def _steps_of(graph: onnx.GraphProto) -> dict[str, _Step]:
    """Scale and zero point of every tensor of integers: stated at one end, and the same along what only moves them."""
    constants = {tensor.name for tensor in graph.initializer}
    found = {
        node.output[0] if node.op_type == "QuantizeLinear" else node.input[0]: _Step(node.input[1], node.input[2])
        for node in graph.node
        if node.op_type in _STEPS and node.input[0] not in constants and len(node.input) > 2
    }
    floats = {name for node in graph.node if node.op_type == "DequantizeLinear" for name in node.output}
    moving = [
        [name for name in (*node.input, *node.output) if name not in constants | floats]
        for node in graph.node
        if node.op_type not in _STEPS
    ]
    while _spread(found, moving):
        pass
    return found


def _spread(found: dict[str, _Step], moving: Sequence[Sequence[str]]) -> bool:
    """Note the scale of tensors that are moved to or from one with a known scale; returns whether there were any."""
    before = len(found)
    for ends in moving:
        known = [found[name] for name in ends if name in found]
        found.update((name, known[0]) for name in ends if known and name not in found)
    return len(found) > before


def _step(steps: Mapping[str, _Step], name: str) -> _Step:
    if name not in steps:
        raise ConfigError(f"the graph does not say which scale the integers of {name!r} have")
    return steps[name]


def _cross(operator: str, source: str, result: str, step: _Step) -> onnx.NodeProto:
    return helper.make_node(operator, [source, step.scale, step.zero], [result], name=f"{result}_{operator}")
