"""Temperature and Softmax in a finished graph, float or quantised: no training, and no integer, is touched."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir

from edge_export.onnx_graph.model import add_constant, apply, final_softmax, transform
from edge_runtime.errors import ConfigError


class DivideByTemperature(ir.passes.InPlacePass):
    """Divide what the last Softmax reads by a temperature, as a multiplication in front of it.

    Args:
        temperature: above 1 makes answers less certain; 1 changes nothing.

    Raises:
        ConfigError: the temperature is not above 0.

    Source: Guo et al. 2017 (arXiv:1706.04599).
    """

    def __init__(self, temperature: float) -> None:
        if not (np.isfinite(temperature) and temperature > 0):
            raise ConfigError(f"temperature {temperature} must be above 0")
        self._temperature = temperature

    def requires(self, model: ir.Model) -> None:
        """Check that the first output is that of a Softmax."""
        final_softmax(model)

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Insert the multiplication."""
        if self._temperature == 1.0:
            return ir.passes.PassResult(model, modified=False)
        softmax = final_softmax(model)
        inverse = add_constant(model.graph, "temperature_inverse", np.array(1 / self._temperature, np.float32))
        scaled = apply("Mul", [softmax.inputs[0], inverse], "temperature_logits", name="Mul_temperature")
        model.graph.insert_before(softmax, scaled)
        softmax.replace_input_with(0, scaled.outputs[0])
        return ir.passes.PassResult(model, modified=True)


class AppendSoftmax(ir.passes.InPlacePass):
    """Turn the logits of a graph into probabilities, by a Softmax over the last axis behind its first output."""

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Append the Softmax; the type and the sizes noted of the logits become its result's."""
        graph, logits = model.graph, model.graph.outputs[0]
        softmax = apply("Softmax", [logits], "probabilities", name="Softmax_end", axis=-1)
        probabilities = softmax.outputs[0]
        probabilities.type, probabilities.shape = logits.type, logits.shape
        logits.type = logits.shape = None
        graph.append(softmax)
        graph.outputs[0] = probabilities
        return ir.passes.PassResult(model, modified=True)

    def ensures(self, model: ir.Model) -> None:
        """Check that the first output is that of a Softmax."""
        final_softmax(model)


def with_temperature(model: onnx.ModelProto, temperature: float) -> onnx.ModelProto:
    """Divide what the last Softmax reads by a temperature (`DivideByTemperature`).

    Returns:
        A new model; the given one where the temperature is 1.

    Raises:
        ConfigError: the output is not a Softmax's, or the temperature not above 0.
    """
    return transform(model, DivideByTemperature(temperature))


def with_softmax(model: onnx.ModelProto) -> onnx.ModelProto:
    """Turn the logits of a graph into probabilities (`AppendSoftmax`)."""
    return transform(model, AppendSoftmax())


def ends_in_softmax(model: onnx.ModelProto) -> bool:
    """Say whether the first output is that of a Softmax."""
    output = model.graph.output[0].name
    return any(output in node.output and node.op_type == "Softmax" for node in model.graph.node)
