"""The gate keeps what the recipe promises, on answers whose errors are known."""

from __future__ import annotations

import numpy as np
import pytest

from edge_runtime.errors import ConfigError
from edge_runtime.gate import Gate
from export.calibrate import SCORES, area_under_risk_coverage, scores
from export.data import Float32, Windows
from export.gate_fit import fit_gate
from export.recipe import GateRecipe

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
    hard = np.array(Gate(gate.spec).judge(device).hard)
    assert 0.09 < hard.mean() <= 0.1
    wrong = (device.argmax(axis=1) != windows.y) & ~hard
    assert gate.spec.expected["forwarded"] == pytest.approx(hard.mean(), abs=1e-4)
    assert gate.spec.expected["local_error"] == pytest.approx(wrong.sum() / (~hard).sum(), abs=1e-4)
    assert gate.spec.expected["combined_error"] == pytest.approx(wrong.mean(), abs=1e-4)
    assert gate.figures()["promise"]["validation"]["forwarded"] == pytest.approx(hard.mean())


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
