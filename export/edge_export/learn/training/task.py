"""The task of a build's networks: its recipe, the windows that they learn from, and those that choose."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from torch import nn  # noqa: TID251 - this is the export toolchain

from edge_export.data.dataset import Dataset, Float32, Int64, Windows, spread
from edge_export.learn.augment.corruptions import CorruptedSampler, corrupt, corrupts
from edge_export.learn.augment.sampler import Sampler
from edge_export.learn.augment.sampling import PlaceSampler
from edge_export.learn.features.modules import build_front_end
from edge_export.learn.training.history import History
from edge_export.learn.training.loop import answer
from edge_export.metrics import evaluate
from edge_export.recipe.feature_spec import Chain, FrontEnd, Raw, fit_standardise
from edge_export.recipe.recipe import Recipe
from edge_export.recipe.training_spec import Training
from edge_runtime.manifest import InputContract

WATCHED = 512
"""Validation windows that a training is scored on under way, evenly spread."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingTask:
    """The recipe, and the windows that the networks learn from.

    Attributes:
        recipe: how.
        contract: what a window is.
        train: recordings to learn from.
        validation: windows that choose.
        data: digest of all recordings and their reading.
        windows: cut from the recordings to learn from, as many as an epoch has.
    """

    recipe: Recipe
    contract: InputContract
    train: Dataset
    validation: Windows
    data: str
    windows: int = 1

    @property
    def classes(self) -> int:
        """Number of labels."""
        return len(self.recipe.classes)

    def sampler(self, seed: int) -> Sampler:
        """Draws training windows with their history."""
        places, by = self._places(seed), self.recipe.augmentation
        return CorruptedSampler(places, by, seed=seed) if corrupts(by) else places

    def known(self, count: int, seed: int) -> tuple[Windows, Windows]:
        """Return training windows with their groups: at most `count` as they were recorded, and `count` drawn.

        Args:
            count: windows of each kind.
            seed: seed of what is drawn, as `sampler` draws it.
        """
        cut = self.recipe.window.cut(self.train)
        x, y, recording = self._places(seed).draw_known(count)
        group = np.array([each.group for each in self.train.recordings])[recording]
        drawn = Windows(
            contexts=corrupt(x, self.recipe.augmentation, np.random.default_rng(seed)), samples=self.contract.window,
            y=y, group=group, recording=recording, start=np.full(count, -1),
        )  # fmt: skip
        return cut.at(spread(len(cut), count)), drawn

    def _places(self, seed: int) -> PlaceSampler:
        recipe = self.recipe
        return PlaceSampler(
            self.train,
            self.contract,
            rule=recipe.window.label,
            variation=recipe.augmentation,
            balance=recipe.balance,
            seed=seed,
        )

    def history(self, training: Training, windows: Float32, *, epoch: int) -> History:
        """Start the history of a training.

        Args:
            training: length and batches.
            windows: windows of validation, as the network takes them: alone, or with their history.
            epoch: windows that there are to draw.
        """
        chosen = spread(len(windows), WATCHED)
        x, y, metric = windows[chosen], self.validation.y[chosen], self.recipe.metric
        return History(training, epoch=epoch, score=lambda network: score(answer(network, x), y, metric))


def front_end(recipe: Recipe, windows: Float32, *, whose: Literal["teacher", "student"] = "teacher") -> FrontEnd:
    """Chain the recipe's stages with offset and scale fitted to training windows.

    Args:
        recipe: names the stages.
        windows: (n, n_channels, samples) of training groups.
        whose: a student may have stages of its own; where the recipe names none, both have the same.
    """
    own = recipe.student.front_end if whose == "student" else ()
    stages: tuple[FrontEnd, ...] = tuple(own or recipe.front_end)
    if recipe.standardise != "none":
        below = Chain(stages=stages) if stages else Raw()
        network, _ = build_front_end(below, channels=windows.shape[1], samples=windows.shape[2])
        features = answer(network.eval(), windows)
        stages = (*stages, fit_standardise(features, together=recipe.standardise == "together"))
    return Chain(stages=stages) if stages else Raw()


def score_of(network: nn.Module, x: Float32, task: TrainingTask) -> float:
    """Score a network on validation windows, given as it takes them (alone, or with their history)."""
    return score(answer(network, x), task.validation.y, task.recipe.metric)


def score(probabilities: Float32, y: Int64, metric: str) -> float:
    """Accuracy or macro F1."""
    (judged,) = evaluate({"it": probabilities}, y, reference="it", resamples=1)
    return judged.accuracy if metric == "accuracy" else judged.macro_f1
