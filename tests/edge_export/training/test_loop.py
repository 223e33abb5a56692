"""Training: it learns, it says when it runs away, the same seed repeats."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the export toolchain's networks need torch (edge-export[train])")

from edge_export.networks import Classifier, build_network  # noqa: E402
from edge_export.recipe.feature_spec import Raw  # noqa: E402
from edge_export.recipe.network_spec import SeparableCnn1d  # noqa: E402
from edge_export.recipe.training_spec import Training  # noqa: E402
from edge_export.training.loop import answer, fit, fit_labels, start  # noqa: E402

from edge_runtime.errors import ConfigError  # noqa: E402 - only where torch is
from tests.edge_export.training.tones import ArraySampler, tones  # noqa: E402


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
