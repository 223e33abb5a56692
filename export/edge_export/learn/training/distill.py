"""Distillation: a small network learns from a large one's answers, not only from labels.

The teacher may see more than the student does: here it judges a long context, and the student learns to give the same
answer from the window at its end.

Source: Hinton et al. 2015 (arXiv:1503.02531); decoupled: Zhao et al. 2022 (arXiv:2203.08679); hints: Romero et al. 2015
(arXiv:1412.6550).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
import torch  # noqa: TID251 - this is the export toolchain
from torch import nn  # noqa: TID251 - this is the export toolchain
from torch.nn import functional  # noqa: TID251 - this is the export toolchain

from edge_export.data.dataset import UNLABELLED, Float32, Int64
from edge_export.learn.augment.sampler import Sampler
from edge_export.learn.training.history import History
from edge_export.learn.training.loop import Batch, fit
from edge_export.learn.training.teachers import Teacher, TorchTeacher
from edge_export.recipe.training_spec import Training
from edge_runtime.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class Distillation:
    """The answers that the student learns from, and their weights.

    Attributes:
        pool: number of augmented windows the teacher labels once.
        temperature: softens both answers, so that the teacher's ranking of wrong classes counts.
        teacher_share: weight of the teacher's answer; the rest goes to the label.
        method: ``hinton`` compares the softened answers as they are. ``decoupled`` weighs apart how sure the teacher is
            of the label, and how it ranks the others: a teacher that is sure hardly teaches the latter otherwise.
        sureness: weight of the former part, where decoupled.
        ranking: weight of the latter part, where decoupled; 1 to 10 in the paper, more for surer teachers.
        hints: weight of the distance between the student's features, through a learned linear map, and the teacher's;
            0 for none. Needs a pool with hints.
    """

    pool: int
    temperature: float = 2.0
    teacher_share: float = 0.7
    method: Literal["hinton", "decoupled"] = "hinton"
    sureness: float = 1.0
    ranking: float = 4.0
    hints: float = 0.0

    def __post_init__(self) -> None:
        if self.temperature <= 0 or not 0 <= self.teacher_share <= 1:
            raise ConfigError("distillation: temperature must be above 0, teacher_share 0 to 1")
        if min(self.sureness, self.ranking, self.hints) < 0:
            raise ConfigError("distillation: weights must be at least 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class DistillationSet:
    """Windows with two answers each.

    Attributes:
        x: (n, n_channels, samples) what the student sees.
        y: (n,) labels; `edge_export.data.dataset.UNLABELLED` where only the teacher answers.
        teacher: (n, classes) the teacher's log-probabilities.
        hints: (n, width, frames) the teacher's features over the window, averaged to few frames; None for none.
    """

    x: Float32
    y: Int64
    teacher: Float32
    hints: Float32 | None = None

    def targets(self, teacher_share: float) -> Float32:
        """Return (n, classes) probabilities between label and teacher; the teacher's alone where there is no label.

        Args:
            teacher_share: weight of the teacher's answer against the label.
        """
        taught = np.exp(self.teacher).astype(np.float64)
        labelled = self.y != UNLABELLED
        share = np.where(labelled, teacher_share, 1.0)[:, None]
        labels = np.eye(taught.shape[1])[np.where(labelled, self.y, 0)]
        targets: Float32 = (share * taught + (1 - share) * labels).astype(np.float32)
        return targets


class Featured(Protocol):
    """A torch network with features to give hints by, such as `edge_export.learn.networks.Classifier`."""

    def features(self, x: torch.Tensor) -> torch.Tensor:
        """(batch, channels, samples) to (batch, width, ..., frames)."""
        ...


def label_pool(
    teacher: Teacher | nn.Module,
    sampler: Sampler,
    *,
    size: int,
    samples: int,
    hints: Featured | None = None,
    frames: int = 8,
) -> DistillationSet:
    """Let the teacher answer random contexts, and keep the student's part of each.

    Args:
        teacher: answers contexts; a torch network answers with probabilities.
        sampler: draws contexts.
        size: how many.
        samples: length of the student's window, the last part of each context.
        hints: network whose features are kept as hints; None keeps none.
        frames: averages kept of the features along the window.
    """
    asked = TorchTeacher(network=teacher, output="probabilities") if isinstance(teacher, nn.Module) else teacher
    xs, ys, answers, kept = [], [], [], []
    # In chunks: whole contexts of a large pool need not be in memory at once.
    for begin in range(0, size, 512):
        context, y = sampler.draw(min(512, size - begin))
        answers.append(asked.answer(context))
        xs.append(context[:, :, -samples:].copy())
        ys.append(y)
        if hints is not None:
            kept.append(_hints(hints, context, samples=samples, frames=frames))
    return DistillationSet(
        x=np.concatenate(xs),
        y=np.concatenate(ys),
        teacher=np.concatenate(answers),
        hints=np.concatenate(kept) if kept else None,
    )


def distil(
    student: nn.Module,
    pool: DistillationSet,
    distillation: Distillation,
    training: Training,
    *,
    seed: int,
    history: History | None = None,
) -> nn.Module:
    """Train the student on a pool, in place.

    Args:
        student: answers windows with logits; for hints, a network with `features` and `classify`.
        pool: result of `label_pool`.
        distillation: how to weigh the two answers.
        training: how long and how fast.
        seed: seed of the order of windows.
        history: takes the loss of every batch.

    Returns:
        The student, ready to answer.

    Raises:
        ConfigError: hints are weighed and the pool has none, or the student cannot give features.
    """
    learner = _learner(student, pool, distillation)
    loss = _loss(pool, distillation)
    fit(learner, _draw(pool, seed), loss, training, what="training the student", history=history)
    return student.eval()


def soft_loss(logits: torch.Tensor, y: torch.Tensor, teacher: torch.Tensor, distillation: Distillation) -> torch.Tensor:
    """Measure how far the student's softened answers are from the teacher's, mean over the windows.

    Args:
        logits: (batch, classes) of the student.
        y: (batch,) labels; where unlabelled, the teacher's first choice stands in.
        teacher: (batch, classes) log-probabilities.
        distillation: the distance to measure.
    """
    heat = distillation.temperature
    own, taught = functional.log_softmax(logits / heat, dim=1), functional.log_softmax(teacher / heat, dim=1)
    if distillation.method == "hinton":
        return functional.kl_div(own, taught, reduction="batchmean", log_target=True)
    target = torch.where(y >= 0, y, teacher.argmax(dim=1))[:, None]
    sure_own, sure_taught = own.gather(1, target), taught.gather(1, target)
    others = torch.ones_like(own).scatter(1, target, 0.0).bool()
    rest = (len(own), own.shape[1] - 1)
    # What is left for all others together, as the sum of their shares: 1 - share has no digits left where it is small.
    rest_own = own[others].view(rest).logsumexp(dim=1, keepdim=True)
    rest_taught = taught[others].view(rest).logsumexp(dim=1, keepdim=True)
    sureness = functional.kl_div(
        torch.cat([sure_own, rest_own], dim=1),
        torch.cat([sure_taught, rest_taught], dim=1),
        reduction="batchmean",
        log_target=True,
    )
    ranking = functional.kl_div(
        own[others].view(rest) - rest_own,
        taught[others].view(rest) - rest_taught,
        reduction="batchmean",
        log_target=True,
    )
    return distillation.sureness * sureness + distillation.ranking * ranking


class _WithHints(nn.Module):  # type: ignore[misc]  # torch ships no types the device's tools can see
    """A student that answers, in training, with its logits and what it makes of the teacher's features."""

    def __init__(self, student: nn.Module, pool: DistillationSet) -> None:
        super().__init__()
        if pool.hints is None:
            raise ConfigError("the pool holds no hints; label it with `hints`, or weigh hints by 0")
        if not hasattr(student, "features") or not hasattr(student, "classify"):
            raise ConfigError(f"{type(student).__name__} gives no features to compare with hints; weigh hints by 0")
        self.student, self.frames = student, pool.hints.shape[2]
        with torch.no_grad():
            width = student.eval().features(torch.from_numpy(pool.x[:1])).shape[1]
        self.regressor = nn.Conv1d(width, pool.hints.shape[1], 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
        features = self.student.features(x)
        logits = self.student.classify(features)
        return (logits, self.regressor(_few(features, self.frames))) if self.training else logits


def _learner(student: nn.Module, pool: DistillationSet, distillation: Distillation) -> nn.Module:
    return _WithHints(student, pool) if distillation.hints else student


def _draw(pool: DistillationSet, seed: int) -> Callable[[int], Batch]:
    random = np.random.default_rng(seed)

    def draw(count: int) -> Batch:
        chosen = random.integers(0, len(pool.y), count)
        known = (pool.x[chosen], pool.y[chosen], pool.teacher[chosen])
        return known if pool.hints is None else (*known, pool.hints[chosen])

    return draw


def _loss(pool: DistillationSet, distillation: Distillation) -> Callable[..., torch.Tensor]:
    heat, share = distillation.temperature, distillation.teacher_share
    unlabelled = bool((pool.y == UNLABELLED).any())

    def loss(
        answered: torch.Tensor | tuple[torch.Tensor, torch.Tensor],
        y: torch.Tensor,
        teacher: torch.Tensor,
        hints: torch.Tensor | None = None,
    ) -> torch.Tensor:
        logits, guessed = answered if isinstance(answered, tuple) else (answered, None)
        hard = functional.cross_entropy(logits, y, ignore_index=UNLABELLED, reduction="none" if unlabelled else "mean")
        # Gradients of softened answers shrink with the square of the temperature (Hinton et al. 2015, section 2).
        value = share * heat**2 * soft_loss(logits, y, teacher, distillation) + (1 - share) * hard.mean()
        if guessed is not None:
            value = value + distillation.hints * functional.mse_loss(guessed, hints)
        return value

    return loss


def _hints(network: Featured, contexts: Float32, *, samples: int, frames: int) -> Float32:
    """Compute the network's features of the last `samples` of each context."""
    parts = []
    with torch.no_grad():
        for begin in range(0, len(contexts), 256):
            features = network.features(torch.from_numpy(contexts[begin : begin + 256]))
            count = max(1, round(features.shape[-1] * samples / contexts.shape[2]))
            parts.append(_few(features[..., -count:], frames).numpy())
    return np.concatenate(parts)


def _few(features: torch.Tensor, frames: int) -> torch.Tensor:
    """(batch, width, ..., any number of frames) to (batch, width, frames), averaged over what lies between."""
    while features.dim() > 3:
        features = features.mean(dim=2)
    return functional.adaptive_avg_pool1d(features, frames)
