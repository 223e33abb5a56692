"""Gradient descent on windows, the same weights for the same seed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch  # noqa: TID251 - this is the export toolchain
from torch import nn  # noqa: TID251 - this is the export toolchain
from torch.nn import functional  # noqa: TID251 - this is the export toolchain

from edge_export.data.dataset import Float32
from edge_export.learn.augment.sampler import Sampler
from edge_export.learn.training.history import History
from edge_export.recipe.training_spec import Training
from edge_runtime.base.system.progress import Progress
from edge_runtime.errors import ConfigError

Batch = tuple[npt.NDArray[Any], ...]


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
    *,
    what: str = "training",
    history: History | None = None,
) -> nn.Module:
    """Train a network in place.

    Args:
        network: answers the first array of a batch.
        draw: gives a batch of as many windows as it is asked for, as arrays, the windows first.
        loss: function of the network's answer and the batch's other arrays.
        training: length and rate.
        what: words for the training, for the line of progress.
        history: takes the loss of every batch.

    Returns:
        The network, ready to answer (batch statistics frozen, dropout off).

    Raises:
        ConfigError: training ran away (the last loss is not a number).
    """
    trained = [parameter for parameter in network.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=training.learning_rate, weight_decay=training.weight_decay)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, training.learning_rate, total_steps=training.steps, pct_start=0.2
    )
    network.train()
    with Progress(what, training.steps) as progress:
        for step in range(1, training.steps + 1):
            x, *targets = (torch.from_numpy(array) for array in draw(training.batch))
            optimizer.zero_grad()
            value = loss(network(x), *targets)
            value.backward()
            optimizer.step()
            schedule.step()
            if history is not None:
                history.add(step, value.detach(), network)
            progress.advance()
    if not torch.isfinite(value):
        raise ConfigError(f"training ran away: its last loss is {value.item()}; lower the learning rate")
    return network.eval()


def fit_labels(
    network: nn.Module, sampler: Sampler, training: Training, *, history: History | None = None
) -> nn.Module:
    """Train on a sampler's windows and their labels (cross-entropy).

    Args:
        network: answers with logits.
        sampler: draws labelled windows.
        training: length and rate.
        history: takes the loss of every batch.
    """

    def loss(logits: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(logits, y, label_smoothing=training.label_smoothing)

    return fit(network, sampler.draw, loss, training, what="training a teacher", history=history)


def answer(network: nn.Module, x: Float32, *, batch: int = 256) -> Float32:
    """Compute a trained network's answers, (n, classes) float32, without keeping gradients."""
    with torch.no_grad():
        parts = [network(torch.from_numpy(x[i : i + batch])).numpy() for i in range(0, len(x), batch)]
    return np.concatenate(parts)
