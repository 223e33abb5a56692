"""Temperature in a finished graph, float or quantised: no training, and no integer, is touched."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import helper, numpy_helper

from edge_runtime.errors import ConfigError

_NAME = "temperature"


def with_temperature(model: onnx.ModelProto, temperature: float) -> onnx.ModelProto:
    """Divide what the last softmax gets by a temperature, as a multiplication in front of it.

    Args:
        model: its output is that of a Softmax.
        temperature: above 1 makes answers less certain; 1 changes nothing.

    Returns:
        A new model; the given one where the temperature is 1.

    Raises:
        ConfigError: the output is not a softmax's, or the temperature not above 0.

    Source: Guo et al. 2017 (arXiv:1706.04599).
    """
    if not (np.isfinite(temperature) and temperature > 0):
        raise ConfigError(f"temperature {temperature} must be above 0")
    if temperature == 1.0:
        return model
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    graph = changed.graph
    output = graph.output[0].name
    place = next((i for i, node in enumerate(graph.node) if output in node.output), None)
    if place is None or graph.node[place].op_type != "Softmax":
        found = "nothing" if place is None else graph.node[place].op_type
        raise ConfigError(f"the output {output!r} comes from {found}, not from a Softmax; end the graph with one")
    softmax = graph.node[place]
    graph.initializer.append(numpy_helper.from_array(np.array(1 / temperature, np.float32), f"{_NAME}_inverse"))
    scaled = helper.make_node("Mul", [softmax.input[0], f"{_NAME}_inverse"], [f"{_NAME}_logits"], name=f"Mul_{_NAME}")
    softmax.input[0] = scaled.output[0]
    graph.node.insert(place, scaled)
    return changed


def ends_in_softmax(model: onnx.ModelProto) -> bool:
    """Whether the first output is that of a Softmax."""
    output = model.graph.output[0].name
    return any(output in node.output and node.op_type == "Softmax" for node in model.graph.node)


def with_softmax(model: onnx.ModelProto) -> onnx.ModelProto:
    """Turn the logits of a graph into probabilities, by a softmax over the last axis behind its first output."""
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    output = changed.graph.output[0]
    changed.graph.node.append(
        helper.make_node("Softmax", [output.name], ["probabilities"], name="Softmax_end", axis=-1)
    )
    output.name = "probabilities"
    return changed
