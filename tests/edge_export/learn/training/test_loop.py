"""Training: it learns, it says when it runs away, the same seed repeats."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the export toolchain's networks need torch (edge-export[train])")

from edge_export.learn.networks import Classifier, build_network  # noqa: E402
from edge_export.learn.training.history import History, load_curve  # noqa: E402
from edge_export.learn.training.loop import answer, fit, fit_labels, start  # noqa: E402
from edge_export.recipe.feature_spec import Raw  # noqa: E402
from edge_export.recipe.network_spec import SeparableCnn1d  # noqa: E402
from edge_export.recipe.training_spec import Training  # noqa: E402

from edge_runtime.errors import ConfigError  # noqa: E402 - only where torch is
from tests.edge_export.learn.training.tones import ArraySampler, tones  # noqa: E402


def network(seed: int = 0) -> Classifier:
    start(seed)
    return build_network(SeparableCnn1d(width=0.5, depth=1, kernel=5), Raw(), channels=2, samples=48, classes=3)


def test_training_on_labels_learns_them_and_the_same_seed_gives_the_same_network() -> None:
    x, y = tones(300, 99)

    def once() -> np.ndarray:
        sampler = ArraySampler(*tones(400, 1), seed=2)
        return answer(fit_labels(network(4), sampler, Training(steps=80, batch=32, learning_rate=0.02)), x)

    first = once()
    assert (first.argmax(axis=1) == y).mean() > 0.7
    np.testing.assert_array_equal(first, once())


def test_a_network_that_trained_to_nonsense_is_no_result() -> None:
    def loss(logits: Any, y: Any) -> Any:
        return logits.sum() * float("nan") + y.sum()

    with pytest.raises(ConfigError, match="training ran away: its last loss is nan; lower the learning rate"):
        fit(network(), ArraySampler(*tones(100, 1), seed=2).draw, loss, Training(steps=20, batch=16))


def test_a_history_has_loss_and_score_by_epoch_and_changes_no_weight(tmp_path: Path) -> None:
    x, y = tones(300, 99)
    training = Training(steps=80, batch=32, learning_rate=0.02)
    history = History(training, epoch=400, score=lambda net: float((answer(net, x).argmax(axis=1) == y).mean()))

    def once(watch: History | None) -> np.ndarray:
        sampler = ArraySampler(*tones(400, 1), seed=2)
        return answer(fit_labels(network(4), sampler, training, history=watch), x)

    watched = once(history)
    np.testing.assert_array_equal(watched, once(None))
    history.save(tmp_path)
    (curve,) = load_curve(tmp_path, "a network")
    assert len(curve.points) == 16
    assert (curve.points[0]["step"], curve.points[-1]["step"]) == (5, 80)
    assert curve.points[-1]["epoch"] == pytest.approx(80 * 32 / 400)
    assert curve.points[-1]["loss"] < 0.7 * curve.points[0]["loss"]
    assert curve.points[-1]["score"] == pytest.approx((watched.argmax(axis=1) == y).mean(), abs=1e-4)


def test_a_step_without_a_history_has_no_curve(tmp_path: Path) -> None:
    assert load_curve(tmp_path, "fitted in closed form") == ()
