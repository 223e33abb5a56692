"""What a student may learn from: answers, their two halves, hints, windows that only the cloud has judged."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the export toolchain's networks need torch (edge-export[train])")

from edge_export.data.dataset import UNLABELLED  # noqa: E402
from edge_export.learn.networks import Calibrated, Classifier, build_network  # noqa: E402
from edge_export.learn.training.distill import Distillation, DistillationSet, distil, label_pool, soft_loss  # noqa: E402
from edge_export.learn.training.loop import answer, fit_labels, start  # noqa: E402
from edge_export.learn.training.teachers import TorchTeacher  # noqa: E402
from edge_export.recipe.feature_spec import Raw  # noqa: E402
from edge_export.recipe.network_spec import ResNet1d, SeparableCnn1d  # noqa: E402
from edge_export.recipe.training_spec import Training  # noqa: E402

from edge_runtime.errors import ConfigError  # noqa: E402 - only where torch is
from tests.edge_export.learn.training.tones import ArraySampler, tones  # noqa: E402

TRAINING = Training(steps=80, batch=32, learning_rate=0.02)


def teacher() -> Classifier:
    start(0)
    network = build_network(
        ResNet1d(width=0.25, depth=1, kernel=5, reduction=1), Raw(), channels=2, samples=48, classes=3
    )
    fit_labels(network, ArraySampler(*tones(800, 1), seed=2), TRAINING)
    return network


def student(seed: int = 1) -> Classifier:
    start(seed)
    return build_network(
        SeparableCnn1d(width=0.5, depth=1, kernel=5, reduction=2), Raw(), channels=2, samples=48, classes=3
    )


@pytest.fixture(scope="module")
def taught() -> tuple[Classifier, DistillationSet]:
    network = teacher()
    sampler = ArraySampler(*tones(1000, 5), seed=6)
    return network, label_pool(Calibrated([network]), sampler, size=600, samples=48, hints=network, frames=4)


def agreement(network: Classifier, judge: Classifier) -> float:
    x, _ = tones(400, 77)
    return float((answer(network, x).argmax(axis=1) == answer(judge, x).argmax(axis=1)).mean())


def test_the_two_halves_together_are_the_whole() -> None:
    """Zhao et al. 2022, equation 7: weighing the ranking by what the teacher leaves to it gives Hinton's distance."""
    random = np.random.default_rng(3)
    logits, taught = (torch.from_numpy(random.standard_normal((1, 5)) * 3) for _ in range(2))
    y = torch.tensor([2])
    heat = 2.5
    left = 1 - float(torch.softmax(taught / heat, dim=1)[0, 2])
    whole = soft_loss(logits, y, taught, Distillation(pool=1, temperature=heat))
    halves = soft_loss(
        logits, y, taught, Distillation(pool=1, temperature=heat, method="decoupled", sureness=1.0, ranking=left)
    )
    assert float(halves) == pytest.approx(float(whole), rel=1e-9)


def test_a_sure_teacher_still_teaches_its_ranking_when_decoupled() -> None:
    taught = torch.tensor([[30.0, 2.0, 0.0, -2.0]])
    logits = torch.tensor([[30.0, -2.0, 0.0, 2.0]], requires_grad=True)
    gradients = []
    for method in ("hinton", "decoupled"):
        logits.grad = None
        soft_loss(logits, torch.tensor([0]), taught, Distillation(pool=1, temperature=1.0, method=method)).backward()
        assert logits.grad is not None
        gradients.append(float(logits.grad[0, 1:].abs().max()))
    assert gradients[0] < 1e-9
    assert gradients[1] > 0.1


@pytest.mark.parametrize("method", ["hinton", "decoupled"])
def test_a_student_comes_to_agree_with_its_teacher(taught: tuple[Classifier, DistillationSet], method: str) -> None:
    network, pool = taught
    distillation = Distillation(pool=600, teacher_share=1.0, method=method, ranking=1.0)  # type: ignore[arg-type]
    learned = distil(student(), pool, distillation, TRAINING, seed=3)
    assert agreement(learned, network) > 0.75
    assert agreement(student().eval(), network) < 0.6


def test_hints_bring_the_student_s_features_close_to_the_teacher_s(taught: tuple[Classifier, DistillationSet]) -> None:
    _, pool = taught
    assert pool.hints is not None
    assert pool.hints.shape == (600, 16, 4)

    def explained(learned: Classifier) -> float:
        """How much of the teacher's features a linear map of the student's explains, fitted by least squares."""
        with torch.no_grad():
            own = torch.nn.functional.adaptive_avg_pool1d(learned.features(torch.from_numpy(pool.x)), 4).numpy()
        assert pool.hints is not None
        a = own.transpose(0, 2, 1).reshape(-1, own.shape[1])
        b = pool.hints.transpose(0, 2, 1).reshape(-1, 16)
        a = np.c_[a, np.ones(len(a))]
        rest = b - a @ np.linalg.lstsq(a, b, rcond=None)[0]
        return 1 - float((rest**2).sum() / ((b - b.mean(axis=0)) ** 2).sum())

    plain, hinted = (
        distil(student(), pool, Distillation(pool=600, hints=weight), TRAINING, seed=3) for weight in (0.0, 5.0)
    )
    assert explained(hinted) > explained(plain) + 0.05
    assert not any("regressor" in name for name, _ in hinted.named_parameters())


def test_windows_that_only_the_cloud_has_judged_teach_too(taught: tuple[Classifier, DistillationSet]) -> None:
    """Without any label, and beside labelled ones."""
    network, pool = taught
    unlabelled = replace(pool, y=np.full(600, UNLABELLED, np.int64), hints=None)
    for method in ("hinton", "decoupled"):
        distillation = Distillation(pool=600, teacher_share=0.7, method=method, ranking=1.0)
        learned = distil(student(), unlabelled, distillation, TRAINING, seed=3)
        assert agreement(learned, network) > 0.75


def test_any_teacher_labels_a_pool_and_the_student_keeps_the_end_of_the_context() -> None:
    network = student().eval()
    sampler = ArraySampler(*tones(50, 5), seed=6)
    pool = label_pool(TorchTeacher(network=network), sampler, size=40, samples=20)
    again, _ = ArraySampler(*tones(50, 5), seed=6).draw(40)
    np.testing.assert_array_equal(pool.x, again[:, :, -20:])
    np.testing.assert_allclose(np.exp(pool.teacher).sum(axis=1), 1, atol=1e-5)
    logits = answer(network, again)
    np.testing.assert_allclose(pool.teacher - pool.teacher[:, :1], logits - logits[:, :1], atol=1e-4)


def test_hints_that_cannot_be_are_refused(taught: tuple[Classifier, DistillationSet]) -> None:
    _, pool = taught
    hinted = Distillation(pool=600, hints=1.0)
    with pytest.raises(ConfigError, match="the pool holds no hints"):
        distil(student(), replace(pool, hints=None), hinted, TRAINING, seed=3)
    with pytest.raises(ConfigError, match="Linear gives no features"):
        distil(torch.nn.Linear(48, 3), pool, hinted, TRAINING, seed=3)
    with pytest.raises(ConfigError, match="at least 0"):
        Distillation(pool=1, ranking=-1.0)
    with pytest.raises(ConfigError, match="temperature must be above 0"):
        Distillation(pool=1, temperature=0)
