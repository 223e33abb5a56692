"""Temperature in a finished graph does what it does to probabilities."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from edge_export.choose.evaluation.calibration import at_temperature, log_probabilities
from edge_export.graph.onnx_graph.model import transform
from edge_export.graph.onnx_graph.passes.temperature import (
    LogitMap,
    MapLogits,
    ends_in_softmax,
    with_softmax,
    with_temperature,
)
from edge_export.graph.tflite.convert import convert
from onnx import TensorProto, helper

from edge_runtime.errors import ConfigError
from tests.edge_export.graphs import onnx_answers, tflite_answers


def net(last: str = "Softmax") -> onnx.ModelProto:
    graph = helper.make_graph(
        [
            helper.make_node("ReduceMean", ["window"], ["logits"], axes=[2], keepdims=0),
            helper.make_node(last, ["logits"], ["probabilities"]),
        ],
        "model",
        [helper.make_tensor_value_info("window", TensorProto.FLOAT, ["batch", 3, 8])],
        [helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, ["batch", 3])],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@pytest.mark.parametrize("temperature", [0.3, 1.7, 5.0])
def test_the_graph_answers_as_softened_probabilities(temperature: float) -> None:
    x = np.random.default_rng(1).normal(0, 4, (20, 3, 8)).astype(np.float32)
    plain = onnx_answers(net(), x)
    softened = with_temperature(net(), temperature)
    onnx.checker.check_model(softened, full_check=True)
    np.testing.assert_allclose(onnx_answers(softened, x), at_temperature(plain, temperature), atol=2e-6)


def mapped(probabilities: npt.NDArray[np.float32], logits: LogitMap) -> npt.NDArray[np.float64]:
    """What a softmax gives when its logits are mapped, from what it gives as they are."""
    terms = np.exp(log_probabilities(probabilities) * logits.scale + np.array(logits.bias or 0.0))
    shares: npt.NDArray[np.float64] = terms / terms.sum(axis=1, keepdims=True)
    return shares


@pytest.mark.parametrize(
    "logits",
    [
        LogitMap(bias=(0.5, -1.0, 0.5)),
        LogitMap(scale=0.7, bias=(0.0, 2.0, -2.0)),
    ],
)
def test_logits_are_scaled_and_moved_in_both_formats(logits: LogitMap) -> None:
    x = np.random.default_rng(2).normal(0, 2, (20, 3, 8)).astype(np.float32)
    made = transform(net(), MapLogits(logits))
    onnx.checker.check_model(made, full_check=True)
    expected = mapped(onnx_answers(net(), x), logits)
    np.testing.assert_allclose(onnx_answers(made, x), expected, atol=2e-6)
    np.testing.assert_allclose(tflite_answers(convert(made), x), expected, atol=2e-6)


@pytest.mark.parametrize("bias", [(np.nan, 0.0, 0.0), (np.inf, 0.0, 0.0)])
def test_a_bias_must_be_finite(bias: tuple[float, ...]) -> None:
    with pytest.raises(ConfigError, match="bias must be finite"):
        LogitMap(bias=bias)


def test_a_temperature_of_one_changes_nothing() -> None:
    model = net()
    assert with_temperature(model, 1.0) is model


def test_the_given_model_is_left_alone() -> None:
    model = net()
    before = model.SerializeToString()
    with_temperature(model, 2.0)
    assert model.SerializeToString() == before


def test_a_graph_without_softmax_is_refused() -> None:
    with pytest.raises(ConfigError, match="comes from Relu, not from a Softmax"):
        with_temperature(net("Relu"), 2.0)


@pytest.mark.parametrize("temperature", [0.0, -1.0, float("nan")])
def test_a_temperature_must_be_above_nought(temperature: float) -> None:
    with pytest.raises(ConfigError, match="must be above 0"):
        with_temperature(net(), temperature)


def test_logits_get_a_softmax() -> None:
    x = np.random.default_rng(2).normal(0, 4, (5, 3, 8)).astype(np.float32)
    whole = net()
    logits = onnx.ModelProto()
    logits.CopyFrom(whole)
    del logits.graph.node[1]
    logits.graph.output[0].name = "logits"
    assert ends_in_softmax(whole)
    assert not ends_in_softmax(logits)
    onnx.checker.check_model(with_softmax(logits), full_check=True)
    np.testing.assert_allclose(onnx_answers(with_softmax(logits), x), onnx_answers(whole, x), atol=1e-7)
