"""Gradient descent on windows, the same weights for the same seed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch  # noqa: TID251 - this is the export toolchain
from torch import nn  # noqa: TID251 - this is the export toolchain
from torch.nn import functional  # noqa: TID251 - this is the export toolchain

from export.augment import WindowSampler
from export.data import Float32

Batch = tuple[npt.NDArray[Any], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """How long and how fast to train.

    Attributes:
        steps: number of batches.
        batch: windows in each.
        learning_rate: highest rate of the one-cycle schedule (Smith and Topin 2018, arXiv:1708.07120).
        weight_decay: of AdamW (Loshchilov and Hutter 2019, arXiv:1711.05101).
        label_smoothing: share of each label spread over all classes; only where labels are trained on directly.
    """

    steps: int
    batch: int = 64
    learning_rate: float = 3e-3
    weight_decay: float = 0.01
    label_smoothing: float = 0.05

    def __post_init__(self) -> None:
        if self.steps < 10 or self.batch < 2:
            # The schedule rises over a fifth of the steps, and batch statistics need two windows.
            raise ValueError(f"need at least 10 steps and batches of 2, not {self.steps} and {self.batch}")


def start(seed: int) -> None:
    """Make what follows repeatable: one thread, seeded, deterministic kernels only.

    One thread is also the fastest here: on a busy machine two of them train nets this small several times slower.
    """
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    torch.use_deterministic_algorithms(mode=True)


def fit(
    network: nn.Module,
    draw: Callable[[int], Batch],
    loss: Callable[..., torch.Tensor],
    training: Training,
) -> nn.Module:
    """Train a network in place.

    Args:
        network: answers the first array of a batch.
        draw: gives a batch of so many windows as arrays, the windows first.
        loss: of the network's answer and the batch's other arrays.
        training: how long and how fast.

    Returns:
        The network, ready to answer (batch statistics frozen, dropout off).
    """
    optimizer = torch.optim.AdamW(network.parameters(), lr=training.learning_rate, weight_decay=training.weight_decay)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, training.learning_rate, total_steps=training.steps, pct_start=0.2
    )
    network.train()
    for _ in range(training.steps):
        x, *targets = (torch.from_numpy(array) for array in draw(training.batch))
        optimizer.zero_grad()
        value = loss(network(x), *targets)
        value.backward()
        optimizer.step()
        schedule.step()
    return network.eval()


def fit_labels(network: nn.Module, sampler: WindowSampler, training: Training) -> nn.Module:
    """Train on a sampler's windows and their labels (cross-entropy)."""

    def loss(logits: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(logits, y, label_smoothing=training.label_smoothing)

    return fit(network, sampler.draw, loss, training)


def answer(network: nn.Module, x: Float32, *, batch: int = 256) -> Float32:
    """A trained network's answers, (n, classes) float32, without keeping gradients."""
    with torch.no_grad():
        parts = [network(torch.from_numpy(x[i : i + batch])).numpy() for i in range(0, len(x), batch)]
    return np.concatenate(parts)
