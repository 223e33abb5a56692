"""Calibration: what training has changed is put back, and no more than the groups left out bear out."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from edge_export.choose.evaluation.calibration import smoothed_targets
from edge_export.choose.surround.log_linear import cross_entropy, fit_log_linear, softmax
from edge_export.choose.surround.prior import choose_calibration, fit_calibration
from hypothesis import given, settings
from hypothesis import strategies as st

Rows = tuple[npt.NDArray[np.float32], npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.str_]]


def stream(*, shares: tuple[float, ...], drawn: tuple[float, ...], sharpness: float = 1.0, n: int = 6000) -> Rows:
    """Labels that come in `shares`, and what a perfect network says of them that was trained with `drawn` shares."""
    random = np.random.default_rng(5)
    classes = len(shares)
    y = random.choice(classes, n, p=shares)
    x = random.normal(np.eye(classes)[y] * 1.5, 1.0)
    logits = (1.5 * x + np.log(drawn)) * sharpness
    group = random.integers(0, 8, n)
    return softmax(logits).astype(np.float32), y, group % 4, group.astype(np.str_)


def test_the_shares_that_balanced_training_changed_are_put_back() -> None:
    p, y, fold, group = stream(shares=(0.8, 0.15, 0.05), drawn=(1 / 3, 1 / 3, 1 / 3))
    chosen, losses = choose_calibration(p, y, fold, group, balance="classes")
    assert chosen.way == "shares"
    before, after = p.argmax(axis=1) == y, chosen.apply(p).argmax(axis=1) == y
    assert after.mean() > before.mean() + 0.05
    assert losses["shares"] < losses["temperature"] - 0.05


@pytest.mark.slow
def test_a_bias_is_found_that_no_formula_names() -> None:
    p, y, fold, group = stream(shares=(0.4, 0.3, 0.3), drawn=(0.1, 0.6, 0.3))
    chosen, _ = choose_calibration(p, y, fold, group, balance="root")
    assert chosen.way == "bias"
    expected = np.log([0.4, 0.3, 0.3]) - np.log([0.1, 0.6, 0.3])
    np.testing.assert_allclose(chosen.logits.bias, expected - expected.mean(), atol=0.15)


@pytest.mark.slow
@pytest.mark.parametrize("sharpness", [0.5, 1.0, 3.0])
def test_answers_that_lack_nothing_but_doubt_get_a_temperature_alone(sharpness: float) -> None:
    shares = (0.5, 0.3, 0.2)
    p, y, fold, group = stream(shares=shares, drawn=shares, sharpness=sharpness)
    chosen, _ = choose_calibration(p, y, fold, group, balance="root")
    assert chosen.way == ("none" if sharpness == 1 else "temperature")
    assert not chosen.logits.bias
    assert chosen.logits.scale == pytest.approx(1 / sharpness, rel=0.1)


def test_one_group_chooses_nothing() -> None:
    p, y, _, _ = stream(shares=(0.8, 0.2), drawn=(0.5, 0.5))
    chosen, _ = choose_calibration(p, y, np.arange(len(y)) % 2, np.full(len(y), "one"))
    assert chosen.way == "none"


def test_newton_finds_what_scikit_learn_finds() -> None:
    linear = pytest.importorskip("sklearn.linear_model", reason="an oracle (edge-export[train])")
    random = np.random.default_rng(3)
    x = random.normal(size=(500, 4))
    y = (x @ random.normal(size=(4, 3))).argmax(axis=1)
    y[::5] = random.integers(0, 3, 100)
    terms = np.einsum("nf,kc->nkcf", x, np.eye(3)).reshape(500, 3, 12)
    found = fit_log_linear(terms, np.eye(3)[y], start=np.zeros(12), ridge=np.full(12, 2.0))
    theirs = linear.LogisticRegression(C=0.5, fit_intercept=False, tol=1e-10, max_iter=1000).fit(x, y)
    np.testing.assert_allclose(found.reshape(3, 4), theirs.coef_, atol=1e-4)


@given(st.integers(0, 2**32 - 1), st.sampled_from(["none", "temperature", "shares", "analytic", "bias"]))
@settings(max_examples=25, deadline=None)
def test_no_way_is_worse_on_its_own_windows(seed: int, way: str) -> None:
    random = np.random.default_rng(seed)
    p = softmax(random.normal(0, 3, (60, 4))).astype(np.float32)
    y = random.integers(0, 4, 60)
    calibration = fit_calibration(p, y, way, balance="none")  # type: ignore[arg-type]
    targets = smoothed_targets(y, 4)
    before, after = (cross_entropy(each.astype(np.float64), targets).mean() for each in (p, calibration.apply(p)))
    assert after <= before + 1e-6 or calibration.logits.scale in {0.05, 20.0}
    assert np.isfinite(calibration.apply(p)).all()
