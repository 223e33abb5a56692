"""Training: the best moment is kept, averages follow, weights and progress count, the same seed repeats."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the export toolchain's networks need torch (edge-export[train])")

from edge_export.augment.corruptions import ArraySampler, class_weights  # noqa: E402
from edge_export.networks import Classifier, build_network  # noqa: E402
from edge_export.recipe.feature_spec import Raw  # noqa: E402
from edge_export.recipe.network_spec import SeparableCnn1d  # noqa: E402
from edge_export.recipe.training_spec import Training  # noqa: E402
from edge_export.training.loop import (  # noqa: E402
    Validation,
    answer,
    fit_best,
    fit_labels,
    fit_labels_best,
    score,
    start,
)

from edge_runtime.errors import ConfigError  # noqa: E402 - only where torch is
from tests.edge_export.training.tones import tones  # noqa: E402


def network(seed: int = 0) -> Classifier:
    start(seed)
    return build_network(SeparableCnn1d(width=0.5, depth=1, kernel=5), Raw(), channels=2, samples=48, classes=3)


def validation(**settings: object) -> Validation:
    x, y = tones(300, 99)
    return Validation(x=x, y=y, every=10, **settings)  # type: ignore[arg-type]


def test_what_validation_liked_best_is_what_comes_back() -> None:
    judge = validation()
    fitted = fit_labels_best(
        network(), ArraySampler(*tones(400, 1), seed=2), Training(steps=80, batch=32, learning_rate=0.02), judge
    )
    assert [step for step, _ in fitted.looks] == list(range(10, 81, 10))
    assert fitted.score == max(seen for _, seen in fitted.looks) > 0.7
    assert dict(fitted.looks)[fitted.step] == fitted.score
    assert score(answer(fitted.network, judge.x), judge.y, "accuracy") == pytest.approx(fitted.score)


def test_training_stops_when_patience_ends_and_returns_to_the_best() -> None:
    """A loss that pulls away from the labels after step 20."""
    judge = validation(patience=2)
    net = network()
    seen = []

    def loss(logits: Any, y: Any) -> Any:
        seen.append(1)
        good = torch.nn.functional.cross_entropy(logits, y)
        return good if len(seen) <= 40 else -good.clamp(max=5)

    sampler = ArraySampler(*tones(400, 1), seed=2)
    fitted = fit_best(net, sampler.draw, loss, Training(steps=200, batch=32, learning_rate=0.02), judge)
    assert len(seen) < 120
    assert fitted.looks[-1][1] < fitted.score
    assert score(answer(fitted.network, judge.x), judge.y, "accuracy") == pytest.approx(fitted.score)


def test_the_average_of_weights_answers_instead_of_them() -> None:
    plain, averaged = (
        fit_labels_best(
            network(),
            ArraySampler(*tones(400, 1), seed=2),
            Training(steps=80, batch=32, learning_rate=0.02),
            validation(average=decay),
        )
        for decay in (0.0, 0.9)
    )
    assert averaged.score > 0.6
    differs = [
        float((a - b).detach().abs().max())
        for a, b in zip(plain.network.parameters(), averaged.network.parameters(), strict=True)
    ]
    assert max(differs) > 1e-4


def test_the_same_seed_gives_the_same_network_with_every_option() -> None:
    def once() -> np.ndarray:
        fitted = fit_labels_best(
            network(4),
            ArraySampler(*tones(200, 1), balance="classes", seed=2),
            Training(steps=20, batch=32),
            validation(average=0.9, metric="macro_f1"),
            weights=class_weights(tones(200, 1)[1], 3),
            mixup=0.3,
            seed=5,
        )
        return answer(fitted.network, tones(20, 6)[0])

    np.testing.assert_array_equal(once(), once())


def test_class_weights_raise_the_recall_of_the_rare_class() -> None:
    x, y = tones(600, 1, (0.93, 0.04, 0.03))
    unseen, truth = tones(600, 2)
    recalls = []
    for weights in (None, class_weights(y, 3, method="inverse")):
        trained = fit_labels(network(), ArraySampler(x, y, seed=3), Training(steps=60, batch=64), weights=weights)
        chosen = answer(trained, unseen).argmax(axis=1)
        recalls.append(float((chosen[truth == 2] == 2).mean()))
    assert recalls[1] > recalls[0] + 0.2


def test_progress_is_told_after_every_step() -> None:
    told: list[tuple[int, int, float]] = []
    fit_labels(
        network(),
        ArraySampler(*tones(100, 1), seed=2),
        Training(steps=12, batch=16),
        say=lambda step, steps, loss: told.append((step, steps, loss)),
    )
    assert [(step, steps) for step, steps, _ in told] == [(step, 12) for step in range(1, 13)]
    assert all(np.isfinite(loss) and loss > 0 for *_, loss in told)


def test_a_network_that_trained_to_nonsense_is_no_result() -> None:
    def loss(logits: Any, y: Any) -> Any:
        return logits.sum() * float("nan") + y.sum()

    with pytest.raises(ConfigError, match="training ran away: the loss of step 10 is nan"):
        fit_best(network(), ArraySampler(*tones(100, 1), seed=2).draw, loss, Training(steps=20, batch=16), validation())


def test_macro_f1_counts_every_class_the_same() -> None:
    y = np.array([0] * 8 + [1] * 2)
    always_first = np.tile([[1.0, 0.0, 0.0]], (10, 1)).astype(np.float32)
    assert score(always_first, y, "accuracy") == pytest.approx(0.8)
    # F1 of the first class is 16 / 18, of the second 0; the third occurs nowhere.
    assert score(always_first, y, "macro_f1") == pytest.approx(8 / 18)
    assert score(np.eye(3, dtype=np.float32)[y], y, "macro_f1") == 1


@pytest.mark.parametrize("settings", [{"average": 1.0}, {"patience": -1}])
def test_validation_that_makes_no_sense_is_refused(settings: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match="validation"):
        validation(**settings)
    with pytest.raises(ConfigError, match="need some"):
        Validation(x=np.zeros((0, 2, 48), np.float32), y=np.zeros(0, np.int64))
