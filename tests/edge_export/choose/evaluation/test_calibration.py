"""Temperature, ranking, threshold: against answers worked out by other means."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from edge_export.choose.evaluation.calibration import (
    area_under_risk_coverage,
    at_temperature,
    design_effect,
    fit_temperature,
    gate_curve,
    gate_metrics,
    log_probabilities,
    scores,
    threshold_for_risk,
    threshold_for_share,
    upper_bound,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_runtime.errors import ConfigError


def negative_log_likelihood(probabilities: np.ndarray, y: np.ndarray) -> float:
    return float(-log_probabilities(probabilities)[np.arange(len(y)), y].mean())


def drawn(temperature: float, n: int = 6000, classes: int = 4) -> tuple[np.ndarray, np.ndarray]:
    """Labels drawn from softmax(z), and answers that are too sure by the factor `temperature`."""
    random = np.random.default_rng(11)
    z = random.normal(0, 1.5, (n, classes))
    honest = np.exp(z) / np.exp(z).sum(axis=1, keepdims=True)
    y = np.array([random.choice(classes, p=p) for p in honest])
    sure = np.exp(z * temperature)
    return (sure / sure.sum(axis=1, keepdims=True)).astype(np.float32), y


@pytest.mark.parametrize("temperature", [0.5, 1.0, 3.0])
def test_the_fitted_temperature_is_the_one_that_was_put_in(temperature: float) -> None:
    probabilities, y = drawn(temperature)
    fitted = fit_temperature(probabilities, y)
    assert fitted == pytest.approx(temperature, rel=0.06)
    grid = [negative_log_likelihood(at_temperature(probabilities, t), y) for t in np.geomspace(0.1, 10, 200)]
    assert negative_log_likelihood(at_temperature(probabilities, fitted), y) <= min(grid) + 1e-6


def test_a_temperature_changes_confidence_and_never_the_label() -> None:
    probabilities, _ = drawn(1.0, n=200)
    softer = at_temperature(probabilities, 2.5)
    np.testing.assert_array_equal(softer.argmax(axis=1), probabilities.argmax(axis=1))
    assert (softer.max(axis=1) <= probabilities.max(axis=1) + 1e-6).all()
    np.testing.assert_allclose(at_temperature(probabilities, 1.0), probabilities, atol=1e-6)


def test_certainty_of_exactly_zero_survives() -> None:
    sure = np.array([[1.0, 0.0, 0.0]], np.float32)
    assert np.isfinite(at_temperature(sure, 3.0)).all()
    assert negative_log_likelihood(sure, np.array([1])) == pytest.approx(-np.log(1e-30))


@given(st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=1, max_size=5))
@settings(max_examples=40, deadline=None)
def test_the_area_is_the_mean_over_every_order_of_equally_trusted_answers(pairs: list[tuple[int, bool]]) -> None:
    trust = np.array([t for t, _ in pairs], np.float32)
    correct = np.array([c for _, c in pairs])
    areas = []
    for order in map(list, itertools.permutations(range(len(pairs)))):
        if (np.diff(trust[order]) <= 0).all():
            wrong = ~correct[order]
            areas.append((np.cumsum(wrong) / np.arange(1, len(wrong) + 1)).mean())
    assert area_under_risk_coverage(trust, correct) == pytest.approx(np.mean(areas))


def test_a_perfect_ranking_has_a_smaller_area_than_a_reversed_one() -> None:
    trust = np.linspace(0, 1, 100, dtype=np.float32)
    correct = trust > 0.2
    assert area_under_risk_coverage(trust, correct) < 0.05 < area_under_risk_coverage(1 - trust, correct)


@given(
    trust=st.lists(st.floats(0, 1, width=32), min_size=1, max_size=60),
    share=st.floats(0, 1),
)
@settings(deadline=None)
def test_a_threshold_never_forwards_more_than_its_share(trust: list[float], share: float) -> None:
    values = np.array(trust, np.float32)
    threshold = threshold_for_share(values, share)
    assert (values < threshold).mean() <= share
    # And it is the highest of that kind among the values seen.
    for higher in values[values > threshold]:
        assert (values < higher).mean() > share


@pytest.mark.parametrize(("trust", "share"), [([], 0.1), ([0.5], -0.1), ([0.5], 1.5)])
def test_a_threshold_needs_windows_and_a_share(trust: list[float], share: float) -> None:
    with pytest.raises(ConfigError):
        threshold_for_share(np.array(trust, np.float32), share)


def test_combined_answers_are_the_device_s_above_the_threshold_and_the_cloud_s_below() -> None:
    device = np.array([[0.9, 0.1], [0.6, 0.4], [0.2, 0.8], [0.55, 0.45]], np.float32)
    cloud = np.array([[0.1, 0.9], [0.1, 0.9], [0.1, 0.9], [0.9, 0.1]], np.float32)
    y = np.array([0, 1, 1, 1])
    figures = gate_metrics(device, cloud, y, threshold=0.7)
    assert figures.forwarded == 0.5
    assert figures.local_accuracy == 1.0
    assert figures.device_accuracy == 0.5
    assert figures.cloud_accuracy == 0.5
    assert figures.combined_accuracy == 0.75


def test_a_curve_ends_at_the_device_alone_and_the_cloud_alone() -> None:
    device, y = drawn(1.0, n=300)
    cloud = np.eye(4, dtype=np.float32)[y]
    nothing, everything = gate_curve(device, cloud, y, shares=(0.0, 1.0))
    assert (nothing.forwarded, nothing.combined_accuracy) == (0.0, nothing.device_accuracy)
    assert (everything.forwarded, everything.combined_accuracy, everything.local_accuracy) == (1.0, 1.0, 1.0)


@pytest.mark.parametrize("score", ["confidence", "margin", "entropy"])
def test_scores_lie_between_zero_and_one(score: str) -> None:
    device, _ = drawn(2.0, n=300)
    trust = scores(device, score)  # type: ignore[arg-type]
    assert trust.min() >= -1e-6
    assert trust.max() <= 1 + 1e-6


# -- promises about errors ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("errors", "count", "bound"),
    # One-sided 95 % Clopper-Pearson bounds from their closed form (no error: 1 - 0.05 ** (1 / n)) and from tables.
    [(0, 10, 1 - 0.05**0.1), (0, 59, 1 - 0.05 ** (1 / 59)), (1, 10, 0.394163), (5, 100, 0.102253), (10, 10, 1.0)],
)
def test_the_bound_is_that_of_clopper_and_pearson(errors: int, count: int, bound: float) -> None:
    assert upper_bound(errors, count, 0.95) == pytest.approx(bound, abs=2e-6)


@given(st.integers(0, 40), st.integers(1, 400))
def test_the_bound_has_the_probability_it_claims(errors: int, more: int) -> None:
    count = errors + more
    bound = upper_bound(errors, count, 0.95)
    tail = sum(math.comb(count, k) * bound**k * (1 - bound) ** (count - k) for k in range(errors + 1))
    assert tail == pytest.approx(0.05, abs=1e-6)


def test_groups_that_err_together_count_as_fewer_windows() -> None:
    group = np.repeat(["a", "b", "c", "d"], 50)
    apart = np.tile([True, False, False, False, False], 40)
    together = group == "a"
    assert design_effect(apart, group) == 1.0
    assert design_effect(together, group) > 40


@pytest.mark.slow
def test_the_promise_about_errors_holds_for_groups_nobody_looked_at() -> None:
    random = np.random.default_rng(7)
    kept = 0
    for _ in range(60):
        quality = random.normal(3.0, 0.5, 24)  # groups differ in how good the model is on them
        group = np.repeat(np.arange(24), 60)
        trust = random.uniform(0, 1, len(group)).astype(np.float32)
        right = random.random(len(group)) < 1 - 0.5 * np.exp(-quality[group] * trust * 2)
        seen = group < 12
        promise = threshold_for_risk(trust[seen], right[seen], group[seen].astype(str), max_error=0.1)
        local = ~seen & (trust >= np.float32(promise.threshold))
        kept += (~right[local]).mean() <= 0.1
    # Twelve groups estimate their own spread, so a little less than the promised 95 % may hold.
    assert kept >= 53


def test_more_errors_are_allowed_when_more_are_promised() -> None:
    random = np.random.default_rng(3)
    trust = random.uniform(0, 1, 2000).astype(np.float32)
    right = random.random(2000) < 0.6 + 0.4 * trust
    group = np.repeat(np.arange(10), 200).astype(str)
    strict = threshold_for_risk(trust, right, group, max_error=0.15)
    loose = threshold_for_risk(trust, right, group, max_error=0.19)
    assert strict.threshold > loose.threshold
    assert strict.bound <= 0.15
    assert strict.local_error < strict.bound


def test_a_promise_that_cannot_be_made_says_what_can() -> None:
    trust = np.linspace(0, 1, 100).astype(np.float32)
    with pytest.raises(ConfigError, match=r"below 1\.0% cannot be promised with 95% confidence on these 2 groups"):
        threshold_for_risk(trust, np.arange(100) % 3 > 0, np.repeat(["a", "b"], 50), max_error=0.01)
