"""Temperature, prior and Softmax in a finished graph, float or quantised: no training, and no integer, is touched."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx
import onnx_ir as ir

from edge_export.graph.onnx_graph.model import add_constant, apply, final_softmax, transform
from edge_runtime.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class LogitMap:
    """Scale and bias of logits before their softmax: one over the temperature, and a prior.

    Attributes:
        scale: factor of all logits.
        bias: terms, one for each class; empty: none.
    """

    scale: float = 1.0
    bias: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if not (np.isfinite(self.scale) and self.scale > 0):
            raise ConfigError(f"the factor of logits, {self.scale}, must be above 0")
        if not all(map(np.isfinite, self.bias)):
            raise ConfigError("a bias must be finite")

    @classmethod
    def at(cls, temperature: float) -> LogitMap:
        """Return the division by a temperature: above 1 makes answers less certain.

        Raises:
            ConfigError: it is not above 0.
        """
        if not (np.isfinite(temperature) and temperature > 0):
            raise ConfigError(f"temperature {temperature} must be above 0")
        return cls(scale=1 / temperature)


class MapLogits(ir.passes.InPlacePass):
    """Scale what the last Softmax reads, and add a bias, as operators in front of it.

    Args:
        logits: the map; the default one changes nothing.

    Sources: Guo et al. 2017 (arXiv:1706.04599); Alexandari et al. 2020 (arXiv:1901.06852).
    """

    def __init__(self, logits: LogitMap) -> None:
        self._map = logits

    def requires(self, model: ir.Model) -> None:
        """Check that the first output is that of a Softmax."""
        final_softmax(model)

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Insert the multiplication, and the addition."""
        scale, bias = self._map.scale, self._map.bias
        modified = False
        if scale != 1.0:
            factor = np.array(scale, np.float32)
            _insert(model, "Mul", add_constant(model.graph, "temperature_inverse", factor), "temperature_logits")
            modified = True
        if any(bias):
            constant = add_constant(model.graph, "prior_bias", np.array(bias, np.float32))
            _insert(model, "Add", constant, "prior_logits")
            modified = True
        return ir.passes.PassResult(model, modified=modified)


def _insert(model: ir.Model, operator: str, constant: ir.Value, name: str) -> None:
    softmax = final_softmax(model)
    made = apply(operator, [softmax.inputs[0], constant], name, name=f"{operator}_{name.partition('_')[0]}")
    model.graph.insert_before(softmax, made)
    softmax.replace_input_with(0, made.outputs[0])


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
    """Divide what the last Softmax reads by a temperature.

    Returns:
        A new model; the given one where the temperature is 1.

    Raises:
        ConfigError: the output is not a Softmax's, or the temperature not above 0.
    """
    return transform(model, MapLogits(LogitMap.at(temperature)))


def with_softmax(model: onnx.ModelProto) -> onnx.ModelProto:
    """Turn the logits of a graph into probabilities (`AppendSoftmax`)."""
    return transform(model, AppendSoftmax())


def ends_in_softmax(model: onnx.ModelProto) -> bool:
    """Say whether the first output is that of a Softmax."""
    output = model.graph.output[0].name
    return any(output in node.output and node.op_type == "Softmax" for node in model.graph.node)
