"""Distillation: a small network learns from a large one's answers, not only from labels.

The teacher may see more than the student does: here it judges a long context, and the student learns to give the same
answer from the window at its end.

Source: Hinton et al. 2015 (arXiv:1503.02531).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch  # noqa: TID251 - this is the export toolchain
from torch import nn  # noqa: TID251 - this is the export toolchain
from torch.nn import functional  # noqa: TID251 - this is the export toolchain

from export.augment import WindowSampler
from export.data import Float32, Int64
from export.train import Batch, Training, answer, fit


@dataclass(frozen=True, slots=True, kw_only=True)
class Distillation:
    """What the student learns from.

    Attributes:
        pool: number of augmented windows the teacher labels once.
        temperature: softens both answers, so that the teacher's ranking of wrong classes counts.
        teacher_share: weight of the teacher's answer; the rest goes to the label.
    """

    pool: int
    temperature: float = 2.0
    teacher_share: float = 0.7


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """Windows with two answers each.

    Attributes:
        x: (n, n_channels, samples) what the student sees.
        y: (n,) labels.
        teacher: (n, classes) the teacher's log-probabilities.
    """

    x: Float32
    y: Int64
    teacher: Float32


def label_pool(teacher: nn.Module, sampler: WindowSampler, *, size: int, samples: int) -> Pool:
    """Let the teacher answer random contexts, and keep the student's part of each.

    Args:
        teacher: answers contexts with probabilities.
        sampler: draws contexts.
        size: how many.
        samples: length of the student's window, the last part of each context.
    """
    xs, ys, answers = [], [], []
    # In chunks: whole contexts of a large pool need not be in memory at once.
    for begin in range(0, size, 512):
        context, y = sampler.draw(min(512, size - begin))
        answers.append(np.log(np.maximum(answer(teacher, context), 1e-12)))
        xs.append(context[:, :, -samples:].copy())
        ys.append(y)
    return Pool(x=np.concatenate(xs), y=np.concatenate(ys), teacher=np.concatenate(answers))


def distil(student: nn.Module, pool: Pool, distillation: Distillation, training: Training, *, seed: int) -> nn.Module:
    """Train the student on a pool, in place.

    Args:
        student: answers windows with logits.
        pool: from `label_pool`.
        distillation: how to weigh the two answers.
        training: how long and how fast.
        seed: of the order of windows.

    Returns:
        The student, ready to answer.
    """
    random = np.random.default_rng(seed)
    heat, share = distillation.temperature, distillation.teacher_share

    def draw(count: int) -> Batch:
        chosen = random.integers(0, len(pool.y), count)
        return pool.x[chosen], pool.y[chosen], pool.teacher[chosen]

    def loss(logits: torch.Tensor, y: torch.Tensor, teacher: torch.Tensor) -> torch.Tensor:
        soft = functional.kl_div(
            functional.log_softmax(logits / heat, dim=1),
            functional.log_softmax(teacher / heat, dim=1),
            reduction="batchmean",
            log_target=True,
        )
        # Gradients of softened answers shrink with the square of the temperature (Hinton et al. 2015, section 2).
        return share * heat**2 * soft + (1 - share) * functional.cross_entropy(logits, y)

    return fit(student, draw, loss, training)
