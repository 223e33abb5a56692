"""The gate keeps what the recipe promises, on answers whose errors are known."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from edge_export.choose.evaluation.calibration import (
    SCORES,
    area_under_risk_coverage,
    at_temperature,
    fit_temperature,
    scores,
)
from edge_export.choose.evaluation.gate import fit_gate
from edge_export.data.dataset import Float32, Windows
from edge_export.recipe.recipe import GateRecipe

from edge_runtime.errors import ConfigError
from edge_runtime.model.tasks.classification import Gate

N, CLASSES, GROUPS = 2000, 3, 8


def answered(seed: int = 0) -> tuple[Float32, Float32, Windows]:
    """A device that is wrong where it is unsure, a cloud that is always right, and what they were asked."""
    random = np.random.default_rng(seed)
    y = random.integers(0, CLASSES, N)
    logits = random.standard_normal((N, CLASSES)) + 3 * np.eye(CLASSES)[y]
    device = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    windows = Windows(
        contexts=np.zeros((N, 1, 4), np.float32),
        samples=4,
        y=y,
        group=np.array([f"p{i % GROUPS}" for i in range(N)]),
        recording=np.zeros(N, np.int64),
        start=np.arange(N),
    )
    return device.astype(np.float32), np.eye(CLASSES, dtype=np.float32)[y], windows


def test_no_more_is_forwarded_than_was_allowed() -> None:
    device, cloud, windows = answered()
    gate = fit_gate(GateRecipe(max_forwarded=0.1), device, cloud, windows)
    hard = np.array(Gate(gate.spec).decide(device).hard)
    assert 0.09 < hard.mean() <= 0.1
    wrong = (device.argmax(axis=1) != windows.y) & ~hard
    assert gate.spec.expected["forwarded"] == pytest.approx(hard.mean(), abs=1e-4)
    assert gate.spec.expected["local_error"] == pytest.approx(wrong.sum() / (~hard).sum(), abs=1e-4)
    assert gate.spec.expected["combined_error"] == pytest.approx(wrong.mean(), abs=1e-4)
    assert gate.metrics()["promise"]["validation"]["forwarded"] == pytest.approx(hard.mean())


def test_a_promise_about_errors_holds_with_its_bound() -> None:
    device, cloud, windows = answered()
    gate = fit_gate(GateRecipe(max_local_error=0.05), device, cloud, windows)
    assert gate.promise["bound"] <= 0.05
    assert gate.spec.expected["local_error"] <= 0.05
    assert gate.spec.threshold == pytest.approx(gate.promise["threshold"], rel=1e-6)


def test_the_score_that_ranks_errors_lowest_is_taken_unless_one_is_named() -> None:
    device, cloud, windows = answered()
    correct = device.argmax(axis=1) == windows.y
    ranking = {score: area_under_risk_coverage(scores(device, score), correct) for score in SCORES}
    free = fit_gate(GateRecipe(max_forwarded=0.1), device, cloud, windows)
    assert free.spec.score == min(SCORES, key=lambda score: ranking[score])
    assert free.promise["area_under_risk_coverage"] == ranking
    for score in SCORES:
        assert fit_gate(GateRecipe(max_forwarded=0.1, score=score), device, cloud, windows).spec.score == score


def test_the_threshold_is_a_float32_just_below_the_score_it_was_read_from() -> None:
    device, cloud, windows = answered()
    gate = fit_gate(GateRecipe(max_forwarded=0.1, score="confidence"), device, cloud, windows)
    assert float(np.float32(gate.spec.threshold)) == gate.spec.threshold
    above = float(np.nextafter(np.float32(gate.spec.threshold), np.float32(1)))
    assert above in device.max(axis=1).tolist()


def test_a_promise_that_cannot_be_kept_says_what_was_reached() -> None:
    device, cloud, windows = answered()
    with pytest.raises(ConfigError, match=r"local errors below 0\.0% cannot be promised .* the bound is"):
        fit_gate(GateRecipe(max_local_error=0.0001), device, cloud, windows)


def test_a_gate_that_does_not_help_is_not_shipped_and_the_reason_is_told() -> None:
    device, _, windows = answered()
    # A cloud that knows less than the device: wrong for every second window.
    wrong = np.where(np.arange(N) % 2, windows.y, (windows.y + 1) % CLASSES)
    cloud = np.eye(CLASSES, dtype=np.float32)[wrong]
    gate = fit_gate(GateRecipe(max_forwarded=0.25), device, cloud, windows)
    assert not any(Gate(gate.spec).decide(device).hard)
    assert all(Gate(gate.spec).decide(np.full((1, CLASSES), 1 / CLASSES, np.float32)).hard), "it still knows doubt"
    assert gate.spec.expected["forwarded"] == 0
    assert gate.spec.expected["combined_error"] == gate.spec.expected["local_error"]
    (line,) = gate.said
    assert line.startswith("gate: asking the cloud does not pay, so only what is less sure than all of validation")
    tried = gate.promise["withheld"]
    assert tried["combined_accuracy"] < tried["device_accuracy"]
    assert "made wrong)" in gate.promise["useless"]


def test_a_promise_about_errors_is_kept_by_a_gate_even_if_the_cloud_is_of_no_use() -> None:
    device, _, windows = answered()
    gate = fit_gate(GateRecipe(max_local_error=0.05), device, device, windows)
    assert gate.spec.threshold > 0
    assert "withheld" not in gate.promise
    assert gate.said[-1].startswith("gate: asking the cloud does not pay: ")


def test_what_must_become_better_is_what_the_recipe_decides_by() -> None:
    """A cloud that finds the rare class and mistakes more of the frequent one: worse by accuracy, better by F1."""
    y = np.array([0] * 900 + [1] * 100)
    device = np.tile(np.array([[0.8, 0.2]], np.float32), (1000, 1))
    device[850:] = [0.55, 0.45]
    cloud = device.copy()
    cloud[850:900], cloud[900:940] = [0.4, 0.6], [0.1, 0.9]
    windows = replace(answered()[2], y=y, group=np.array([f"p{i % 4}" for i in range(1000)]))
    recipe = GateRecipe(max_forwarded=0.2)
    assert fit_gate(recipe, device, cloud, windows, metric="accuracy").spec.expected["forwarded"] == 0
    assert fit_gate(recipe, device, cloud, windows, metric="macro_f1").spec.expected["forwarded"] == 0.15


def test_faultless_windows_get_a_temperature_that_tells_them_apart_and_no_gate() -> None:
    """Every answer is right: the likelihood alone would be sure without end, and no threshold below 1 be left."""
    random = np.random.default_rng(3)
    y = random.integers(0, CLASSES, 400)
    logits = 3 * np.eye(CLASSES)[y] + random.uniform(-1, 1, (400, CLASSES))
    raw = (np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)).astype(np.float32)
    assert (raw.argmax(axis=1) == y).all()
    temperature = fit_temperature(raw, y)
    sure = at_temperature(raw, temperature)
    assert sure.max(axis=1).mean() == pytest.approx(1 - 1 / 402, abs=3e-3)
    assert len(np.unique(sure.max(axis=1))) > 390
    assert sure.max() < 1
    windows = replace(answered()[2], y=y, group=np.array([f"p{i % 4}" for i in range(400)]))
    gate = fit_gate(GateRecipe(max_forwarded=0.1), sure, np.eye(CLASSES, dtype=np.float32)[y], windows)
    assert 0 < gate.spec.threshold < scores(sure, gate.spec.score).min()
    assert "0 corrected, 0 made wrong" in gate.promise["useless"]


def test_the_share_of_each_group_is_told() -> None:
    device, cloud, windows = answered()
    gate = fit_gate(GateRecipe(max_forwarded=0.1), device, cloud, windows)
    shares = gate.promise["forwarded_by_group"]
    assert shares.keys() == {f"p{i}" for i in range(GROUPS)}
    assert np.mean(list(shares.values())) == pytest.approx(gate.spec.expected["forwarded"], abs=1e-3)
    assert (
        f"by validation group, {min(shares.values()):.1%} to {max(shares.values()):.1%} of the windows" in gate.said[0]
    )
