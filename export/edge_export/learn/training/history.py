"""History of a training: loss and score on validation windows, at some steps from the first to the last."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from torch import nn  # noqa: TID251 - this is the export toolchain

from edge_export.recipe.training_spec import Training

POINTS = 16
"""Points of a history, evenly spread; each costs a score of the validation windows."""
HISTORY = "history.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """One network's history.

    Attributes:
        name: of the network, for the report.
        points: by rising ``step``: ``epoch`` (windows drawn, over the windows there are), ``loss`` (mean over
            the batches since the point before), ``score`` on validation windows.
    """

    name: str
    points: tuple[dict[str, float], ...]


class History:
    """Points of a training, taken while it runs; the weights are the same with them and without.

    Args:
        training: length and batches.
        epoch: windows that there are to draw.
        score: evaluates the network, which is ready to answer meanwhile (batch statistics frozen, dropout off).
    """

    def __init__(self, training: Training, *, epoch: int, score: Callable[[nn.Module], float]) -> None:
        self._epochs_per_step = training.batch / max(1, epoch)
        self._due = {round(step) for step in np.linspace(0, training.steps, min(POINTS, training.steps) + 1)[1:]}
        self._score = score
        self._loss, self._batches = 0.0, 0
        self._points: list[dict[str, float]] = []

    def add(self, step: int, loss: Any, network: nn.Module) -> None:
        """Count a batch, and take a point where one is due.

        Args:
            step: number of the step, from 1.
            loss: the batch's loss, a tensor with one number.
            network: the network in training; it is in training afterwards, too.
        """
        self._loss += float(loss)
        self._batches += 1
        if step not in self._due:
            return
        score = self._score(network.eval())
        network.train()
        epoch, loss = step * self._epochs_per_step, self._loss / self._batches
        self._points.append({"step": step, "epoch": round(epoch, 3), "loss": round(loss, 5), "score": round(score, 5)})
        self._loss, self._batches = 0.0, 0

    def save(self, folder: Path) -> None:
        """Write the points beside the weights of a step."""
        (folder / HISTORY).write_bytes(orjson.dumps(self._points))


def load_curve(folder: Path, name: str) -> tuple[Curve, ...]:
    """Read the points of a finished step; nothing where it took none, as a closed form does."""
    path = folder / HISTORY
    return (Curve(name=name, points=tuple(orjson.loads(path.read_bytes()))),) if path.is_file() else ()
