"""A student in integers: the best way of several, and floats where integers cannot do."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import onnx
import pytest
from edge_export.choose.selection.candidates import LEARNED, candidates, quantize_student
from edge_export.data.dataset import Float32
from edge_export.graph.quantize import Scheme, quantize
from edge_export.graph.quantize.mixed import round_to_halves
from edge_export.recipe.recipe import QuantiseRecipe
from onnx import TensorProto, helper, numpy_helper

from tests.edge_export.graphs import device_net, onnx_answers, windows

RECIPE = QuantiseRecipe(ranges=("minmax", "mse"), calibration_windows=16)


def powers(samples: int = 256) -> onnx.ModelProto:
    """A small network behind a spectrum of power: squares of quiet and loud bins lie a million apart."""
    rng = np.random.default_rng(4)
    t, bins = np.arange(64), np.arange(1, 17)
    table = np.concatenate([np.cos(np.outer(bins, t) * np.pi / 32), np.sin(np.outer(bins, t) * np.pi / 32)])
    weights = {
        "table": table[:, None].astype(np.float32),
        "bands": np.eye(16, 32, dtype=np.float32)[:, :, None] + np.eye(16, 32, 16, dtype=np.float32)[:, :, None],
        "body": rng.normal(0, 0.2, (8, 16, 3)).astype(np.float32),
        "head": rng.normal(0, 1.0, (8, 3)).astype(np.float32),
        "floor": np.array(1e-12, np.float32),
    }
    graph = helper.make_graph(
        [
            helper.make_node("Conv", ["window", "table"], ["waves"], strides=[32], name="table"),
            helper.make_node("Mul", ["waves", "waves"], ["squares"], name="square"),
            helper.make_node("Conv", ["squares", "bands"], ["power"], name="bands"),
            helper.make_node("Add", ["power", "floor"], ["above"], name="floor"),
            helper.make_node("Log", ["above"], ["loud"], name="log"),
            helper.make_node("Conv", ["loud", "body"], ["found"], name="body"),
            helper.make_node("Relu", ["found"], ["kept"], name="relu"),
            helper.make_node("GlobalAveragePool", ["kept"], ["pooled"], name="pool"),
            helper.make_node("Flatten", ["pooled"], ["flat"], name="flat"),
            helper.make_node("MatMul", ["flat", "head"], ["logits"], name="head"),
            helper.make_node("Softmax", ["logits"], ["probabilities"], axis=-1, name="softmax"),
        ],
        "powers",
        [helper.make_tensor_value_info("window", TensorProto.FLOAT, ["batch", 1, samples])],
        [helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, ["batch", 3])],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


def sounds(count: int, seed: int) -> Float32:
    rng = np.random.default_rng(seed)
    t = np.arange(256) / 256
    tones = np.sin(2 * np.pi * rng.uniform(4, 60, (count, 1)) * t) * 10.0 ** rng.uniform(-5, 0, (count, 1))
    return (tones + rng.normal(0, 1e-6, tones.shape)).astype(np.float32)[:, None]


def agreement(model: onnx.ModelProto, x: Float32) -> np.ndarray:
    return np.asarray(onnx_answers(model, x).argmax(axis=1))


def test_the_way_that_scores_best_wins_and_all_are_told() -> None:
    net, calibration, validation = device_net(), windows(32, 3, 40), windows(64, 3, 40, seed=2)
    y = agreement(net, validation)
    found = quantize_student(
        net, calibration, validation, lambda p: float((p.argmax(1) == y).mean()), RECIPE, max_drop=0.5
    )
    assert found.tried.keys() == {"minmax", "mse"}
    assert found.score == max(found.tried.values())
    assert found.float_score == 1.0
    assert not found.kept
    assert found.graphs.keys() == {"uint8", "int8"}
    assert all(found.sizes[layer.layer] > 0 for layer in found.layers)


def test_what_was_trained_with_its_rounding_is_one_more_way() -> None:
    net, calibration, validation = device_net(), windows(32, 3, 40), windows(64, 3, 40, seed=2)
    learned = {kind: quantize(net, calibration, Scheme(activations=kind)) for kind in ("uint8", "int8")}
    wanted = onnx_answers(learned["uint8"], validation)

    def nearest(probabilities: Float32) -> float:
        return -float(np.abs(probabilities - wanted).max())

    found = quantize_student(net, calibration, validation, nearest, RECIPE, max_drop=9.0, learned=learned)
    assert LEARNED in found.tried
    assert found.score == max(found.tried.values())


@pytest.mark.parametrize("mixed", [True, False])
def test_a_spectrum_in_front_stays_in_float_where_that_keeps_the_answers(mixed: bool) -> None:
    net, calibration, validation = powers(), sounds(64, 1), sounds(200, 2)
    expected = onnx_answers(net, validation)

    def nearness(probabilities: Float32) -> float:
        return 1 - float(np.abs(probabilities - expected).mean())

    recipe = QuantiseRecipe(ranges=("minmax",), calibration_windows=16, mixed=mixed)
    found = quantize_student(net, calibration, validation, nearness, recipe, max_drop=0.02)
    score = nearness(onnx_answers(found.graphs["int8"], validation))
    assert found.score < 0.97
    if not mixed:
        assert not found.kept
        assert score < 0.97
        return
    assert score >= 0.98
    assert {"table", "bands"} <= {one.layer for one in found.kept}
    assert "body" not in {one.layer for one in found.kept}
    made = candidates(net, found.graphs, mixed=bool(found.kept))
    precisions = {source.name: source.precision for source in made.sources()}
    assert precisions["onnx-int8-s8s8"] == "mixed"
    assert precisions["onnx-fp32"] == "fp32"


@pytest.mark.slow
@pytest.mark.parametrize("harmless", [True, False])
def test_what_stays_in_float_is_stored_in_halves_where_that_costs_nothing(
    harmless: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    net, calibration, validation = powers(), sounds(64, 1), sounds(200, 2)
    expected = onnx_answers(net, validation)

    def nearness(probabilities: Float32) -> float:
        """As coarse as shares of right answers are."""
        return round(1 - float(np.abs(probabilities - expected).mean()), 2)

    def spoilt(model: onnx.ModelProto, kept: Collection[str]) -> onnx.ModelProto:
        rounded = round_to_halves(model, kept)
        for tensor in rounded.graph.initializer:
            if tensor.name == "table":
                tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor)[::-1].copy(), tensor.name))
        return rounded

    if not harmless:
        monkeypatch.setattr("edge_export.choose.selection.candidates.round_to_halves", spoilt)
    recipe = QuantiseRecipe(ranges=("minmax",), calibration_windows=16)
    found = quantize_student(net, calibration, validation, nearness, recipe, max_drop=0.02)
    stored = {
        tensor.data_type
        for source in candidates(net, found.graphs, mixed=True).sources()
        if source.name == "onnx-int8-s8s8"
        for tensor in onnx.load_model_from_string(source.model).graph.initializer
    }
    assert (TensorProto.FLOAT16 in stored) == harmless
    assert nearness(onnx_answers(found.graphs["uint8"], validation)) >= 0.98


def test_nothing_quantised_leaves_the_float_files_and_says_why() -> None:
    made = candidates(device_net(), {})
    assert {source.name for source in made.sources()} == {"onnx-fp32", "tflite-fp32"}
    assert "within the limits" in made.left_out["tflite-int8"]
