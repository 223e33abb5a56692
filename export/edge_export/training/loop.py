"""Gradient descent on windows, the same weights for the same seed."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch  # noqa: TID251 - this is the export toolchain
from torch import nn  # noqa: TID251 - this is the export toolchain
from torch.nn import functional  # noqa: TID251 - this is the export toolchain

from edge_export.augment.corruptions import mix
from edge_export.augment.windows import Sampler
from edge_export.data.dataset import Float32, Int64
from edge_export.recipe.training_spec import Training
from edge_runtime.errors import ConfigError

Batch = tuple[npt.NDArray[Any], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Validation:
    """Windows of groups not trained on, which say when the network was at its best.

    Attributes:
        x: (n, n_channels, samples).
        y: (n,) class indices.
        metric: ``macro_f1`` where classes differ much in size.
        every: steps between looks.
        patience: looks without a better one after which training ends; 0 trains to the end.
        average: decay of a running mean of the weights, which then answers instead of them (0.99 averages about the
            last 100 steps); 0 for none.
    """

    x: Float32 = field(repr=False)
    y: Int64 = field(repr=False)
    metric: Literal["accuracy", "macro_f1"] = "accuracy"
    every: int = 50
    patience: int = 0
    average: float = 0.0

    def __post_init__(self) -> None:
        if not len(self.y) or len(self.x) != len(self.y):
            raise ConfigError(f"{len(self.x)} windows and {len(self.y)} labels to validate on; need some, one for each")
        if self.every < 1 or self.patience < 0 or not 0 <= self.average < 1:
            raise ConfigError("validation: every must be 1 or more, patience 0 or more, average below 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """A network at its best, and how it got there.

    Attributes:
        network: ready to answer.
        score: by the validation's metric.
        step: after which it scored so.
        looks: (step, score) of every look, in order.
    """

    network: nn.Module
    score: float
    step: int
    looks: tuple[tuple[int, float], ...]


Say = Callable[[int, int, float], None]
"""Told the step, the number of steps and the loss of the step."""


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
    say: Say | None = None,
) -> nn.Module:
    """Train a network in place.

    Args:
        network: answers the first array of a batch.
        draw: gives a batch of so many windows as arrays, the windows first.
        loss: of the network's answer and the batch's other arrays.
        training: how long and how fast.
        say: told of progress after every step.

    Returns:
        The network, ready to answer (batch statistics frozen, dropout off).
    """
    for step, value in enumerate(_descend(network, draw, loss, training), start=1):
        if say is not None:
            say(step, training.steps, float(value))
    return network.eval()


def fit_best(
    network: nn.Module,
    draw: Callable[[int], Batch],
    loss: Callable[..., torch.Tensor],
    training: Training,
    validation: Validation,
    *,
    say: Say | None = None,
) -> Fitted:
    """Train a network in place and leave it as it was when validation groups liked it best.

    Args:
        network: answers the first array of a batch.
        draw: gives a batch of so many windows as arrays, the windows first.
        loss: of the network's answer and the batch's other arrays.
        training: how long and how fast.
        validation: who judges, and how often. Its groups are used up by this: they cannot say how good the network is.
        say: told of progress after every step.

    Raises:
        ConfigError: training ran away (the loss is not a number).
    """
    judged = copy.deepcopy(network) if validation.average else network
    looks: list[tuple[int, float]] = []
    best: dict[str, torch.Tensor] = {}
    for step, value in enumerate(_descend(network, draw, loss, training), start=1):
        if say is not None:
            say(step, training.steps, float(value))
        if validation.average:
            # Early on the mean reaches back no further than training does.
            _follow(judged, network, min(validation.average, step / (step + 10)))
        if step % validation.every and step != training.steps:
            continue
        if not torch.isfinite(value):
            raise ConfigError(f"training ran away: the loss of step {step} is {float(value)}; lower the learning rate")
        scored = score(answer(judged.eval(), validation.x), validation.y, validation.metric)
        network.train()
        if not looks or scored > max(seen for _, seen in looks):
            best = {name: tensor.clone() for name, tensor in judged.state_dict().items()}
        looks.append((step, scored))
        since = len(looks) - 1 - int(np.argmax([seen for _, seen in looks]))
        if validation.patience and since >= validation.patience:
            break
    network.load_state_dict(best)
    step, reached = max(looks, key=lambda look: look[1])
    return Fitted(network=network.eval(), score=reached, step=step, looks=tuple(looks))


def _descend(
    network: nn.Module, draw: Callable[[int], Batch], loss: Callable[..., torch.Tensor], training: Training
) -> Iterator[torch.Tensor]:
    """Yield the loss of each step, once it is done."""
    trained = [parameter for parameter in network.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=training.learning_rate, weight_decay=training.weight_decay)
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
        yield value.detach()


def _follow(average: nn.Module, network: nn.Module, decay: float) -> None:
    """Move a running mean of weights and batch statistics on by a step."""
    with torch.no_grad():
        for kept, new in zip(average.state_dict().values(), network.state_dict().values(), strict=True):
            if kept.is_floating_point():
                kept.lerp_(new, 1 - decay)
            else:
                kept.copy_(new)


def fit_labels(
    network: nn.Module,
    sampler: Sampler,
    training: Training,
    *,
    weights: Float32 | None = None,
    say: Say | None = None,
) -> nn.Module:
    """Train on a sampler's windows and their labels (cross-entropy).

    Args:
        network: answers with logits.
        sampler: draws labelled windows.
        training: how long and how fast.
        weights: of the classes, from `edge_export.augment.windows.class_weights`; None weighs all windows the same.
        say: told of progress after every step.
    """
    return fit(network, sampler.draw, label_loss(training, weights), training, say=say)


def fit_labels_best(
    network: nn.Module,
    sampler: Sampler,
    training: Training,
    validation: Validation,
    *,
    weights: Float32 | None = None,
    mixup: float = 0.0,
    seed: int = 0,
    say: Say | None = None,
) -> Fitted:
    """Train on a sampler's windows and labels, and keep what validation groups like best.

    Args:
        network: answers with logits.
        sampler: draws labelled windows.
        training: how long and how fast.
        validation: who judges, and how often.
        weights: of the classes; None weighs all windows the same.
        mixup: see `edge_export.augment.windows.mix`; 0 for none. It takes the place of label smoothing.
        seed: of mixing.
        say: told of progress after every step.
    """
    if not mixup:
        return fit_best(network, sampler.draw, label_loss(training, weights), training, validation, say=say)
    random = np.random.default_rng(seed)
    with torch.no_grad():
        classes = int(network.eval()(torch.from_numpy(validation.x[:1])).shape[1])

    def draw(count: int) -> Batch:
        x, y = sampler.draw(count)
        return mix(x, np.eye(classes, dtype=np.float32)[y], alpha=mixup, random=random)

    factor = None if weights is None else torch.from_numpy(weights)

    def loss(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(logits, targets, weight=factor)

    return fit_best(network, draw, loss, training, validation, say=say)


def label_loss(training: Training, weights: Float32 | None = None) -> Callable[..., torch.Tensor]:
    """Cross-entropy of logits and class indices, smoothed and weighed."""
    factor = None if weights is None else torch.from_numpy(weights)

    def loss(logits: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(logits, y, weight=factor, label_smoothing=training.label_smoothing)

    return loss


def score(answers: Float32, y: Int64, metric: Literal["accuracy", "macro_f1"]) -> float:
    """How good answers are, 0 to 1.

    Args:
        answers: (n, classes), the highest being the answer.
        y: (n,) class indices.
        metric: ``macro_f1`` is the mean over the classes that occur, in labels or answers, of the harmonic mean of
            precision and recall.
    """
    chosen = answers.argmax(axis=1)
    if metric == "accuracy":
        return float((chosen == y).mean())
    classes = np.union1d(chosen, y)
    right = np.array([np.count_nonzero((chosen == label) & (y == label)) for label in classes])
    said = np.array([np.count_nonzero(chosen == label) + np.count_nonzero(y == label) for label in classes])
    return float((2 * right / said).mean())


def answer(network: nn.Module, x: Float32, *, batch: int = 256) -> Float32:
    """Compute a trained network's answers, (n, classes) float32, without keeping gradients."""
    with torch.no_grad():
        parts = [network(torch.from_numpy(x[i : i + batch])).numpy() for i in range(0, len(x), batch)]
    return np.concatenate(parts)
