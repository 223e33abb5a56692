"""Mixed precision: the layer that does the damage is found, named, and kept in float; the others are not."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import pytest
from edge_export.graph.onnx_graph.passes.canonicalise import canonicalise
from edge_export.graph.onnx_graph.run import answers
from edge_export.graph.quantize import Scheme
from edge_export.graph.quantize.mixed import fit_mixed, round_to_halves, sensitivities, sqnr_db
from edge_export.graph.quantize.ranges import calibrate
from edge_export.graph.quantize.write import prepare, write
from onnx import numpy_helper

from edge_runtime.errors import ConfigError
from tests.edge_export.graphs import device_net, windows

U8 = Scheme(activations="uint8", weight_bits=8, per_channel=False)


def fragile() -> onnx.ModelProto:
    """One output of a convolution is always clipped to zero, by a bias that outweighs weights of 400.

    With one step for the whole layer, no other weight keeps more than a bit.
    """
    model = prepare(canonicalise(device_net()))
    conv = next(node for node in model.graph.node if node.name == "Conv_5")
    for tensor in model.graph.initializer:
        if tensor.name in conv.input[1:3]:
            array = numpy_helper.to_array(tensor).copy()
            array[0] = 400 if tensor.name == conv.input[1] else -1e6
            tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    return model


def agreement(model: onnx.ModelProto, x: np.ndarray) -> Callable[[onnx.ModelProto], float]:
    expected = answers(model, x).argmax(axis=1)
    return lambda candidate: float((answers(candidate, x).argmax(axis=1) == expected).mean())


def test_the_fragile_layer_alone_stays_in_float() -> None:
    model, x = fragile(), windows(200, 3, 40)
    ranges, evaluate = calibrate(model, x), agreement(model, windows(300, 3, 40, seed=8))
    found = fit_mixed(model, ranges, U8, x, evaluate, max_drop=0.03)
    assert found.float_score == 1
    assert found.integer_score < 0.9
    assert found.score >= 0.97
    assert [kept.layer for kept in found.kept] == ["Conv_5"]
    assert "dB of signal over noise" in found.kept[0].reason
    assert found.scheme.exclude == ("Conv_5",)
    assert evaluate(found.model) == found.score
    assert any(node.op_type == "QuantizeLinear" for node in found.model.graph.node)


def test_sensitivities_rank_the_fragile_layer_worst() -> None:
    model, x = fragile(), windows(100, 3, 40)
    found = sensitivities(model, calibrate(model, x), U8, x, evaluate=agreement(model, x))
    assert [entry.layer for entry in found] == ["Conv_1", "Conv_3", "Conv_5", "Gemm_9"]
    worst = min(found, key=lambda entry: entry.alone_db)
    assert worst.layer == "Conv_5"
    assert max(found, key=lambda entry: entry.without_db) is worst
    assert worst.drop is not None
    assert worst.drop > 0.05


def test_nothing_is_kept_where_nothing_is_lost() -> None:
    model, x = prepare(canonicalise(device_net())), windows(100, 3, 40)
    ranges, asked = calibrate(model, x), []

    def evaluate(candidate: onnx.ModelProto) -> float:
        asked.append(candidate)
        return 1.0

    found = fit_mixed(model, ranges, U8, x, evaluate, max_drop=0.0)
    assert found.kept == ()
    assert len(asked) == 2
    assert found.model.SerializeToString() == write(model, ranges, U8).SerializeToString()


def test_a_promise_that_no_integer_model_holds_leaves_the_float_one() -> None:
    model, x = prepare(canonicalise(device_net())), windows(60, 3, 40)
    whole = model.SerializeToString()
    found = fit_mixed(model, calibrate(model, x), U8, x, lambda m: float(m.SerializeToString() == whole), max_drop=0.1)
    assert found.model.SerializeToString() == whole
    assert found.score == found.float_score == 1
    assert len(found.kept) == 4
    assert all("no set of integer layers" in kept.reason for kept in found.kept)


def test_layers_that_turn_out_not_to_be_needed_are_quantised_again() -> None:
    """Only Gemm_9 matters to this judge, although Conv_5 looks worst."""
    model, x = fragile(), windows(60, 3, 40)
    gemm = next(node for node in model.graph.node if node.name == "Gemm_9")

    def evaluate(candidate: onnx.ModelProto) -> float:
        return float(any(t.name == gemm.input[1] for t in candidate.graph.initializer))

    found = fit_mixed(model, calibrate(model, x), U8, x, evaluate, max_drop=0.0)
    assert [kept.layer for kept in found.kept] == ["Gemm_9"]


def test_bad_limits_and_scores_are_refused() -> None:
    model, x = prepare(canonicalise(device_net())), windows(20, 3, 40)
    ranges = calibrate(model, x)
    with pytest.raises(ConfigError, match="must not be negative"):
        fit_mixed(model, ranges, U8, x, lambda _: 1.0, max_drop=-0.1)
    with pytest.raises(ConfigError, match="score nan"):
        fit_mixed(model, ranges, U8, x, lambda _: float("nan"), max_drop=0.1)


def test_sqnr_is_decibels_of_power() -> None:
    one = np.ones((10, 2), np.float32)
    assert sqnr_db(one, one * np.float32(0.9)) == pytest.approx(20, abs=0.01)
    assert sqnr_db(one, one) == float("inf")


def test_only_the_layers_named_are_rounded_to_halves_and_only_within_their_range() -> None:
    model = prepare(canonicalise(device_net()))
    convolutions = [node for node in model.graph.node if node.op_type == "Conv"]
    first, second, third = (node.input[1] for node in convolutions)
    for tensor in model.graph.initializer:
        if tensor.name == second:
            tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor) + np.float32(1e6), tensor.name))
    before = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    rounded = round_to_halves(model, [node.name for node in convolutions[:2]])
    after = {tensor.name: numpy_helper.to_array(tensor) for tensor in rounded.graph.initializer}
    np.testing.assert_array_equal(after[first], before[first].astype(np.float16).astype(np.float32))
    assert not np.array_equal(after[first], before[first])
    for name in before.keys() - {first}:
        np.testing.assert_array_equal(after[name], before[name])
    assert {second, third} <= before.keys()
