"""Training, validation and test windows of a recipe: recordings split by group, then cut by the runtime's own code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from edge_export.data.checks import FEWEST, check_scales, check_units, check_windows, few_windows
from edge_export.data.dataset import Dataset, Float64, Windows
from edge_export.data.labels import clip
from edge_export.data.readers import read
from edge_export.data.split import Split, split
from edge_export.recipe.recipe import Recipe
from edge_export.step_cache import Say, digest, file_digest
from edge_runtime.errors import ConfigError

UNALIKE = 0.1
"""Relative difference of two recordings' rates from on which it is pointed out."""

REFITTED = (
    "the files that ship were trained again, as chosen, on training and validation groups; figures on validation "
    "groups are of the first fit, those on test groups of the files that ship"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Splits:
    """Training, validation and test windows of a build.

    Attributes:
        recordings: of each split.
        train: windows of training groups.
        validation: windows of the groups that every choice is made on.
        test: windows of the groups that the test report is measured on.
        digest: of all recordings and of how they are read; stands for them in the inputs of steps.
        notes: what is odd about them, a line each.
    """

    recordings: Split
    train: Windows
    validation: Windows
    test: Windows
    digest: str
    notes: tuple[str, ...] = ()

    def unseen(self, recipe: Recipe) -> Dataset:
        """Return the recordings that what surrounds the networks is fitted to: with folds, all but those of test.

        Those of groups that only train are left out.
        """
        validation = self.recordings.validation
        return together(self.usual, validation) if recipe.split.folds else validation

    @property
    def usual(self) -> Dataset:
        """Recordings to train on, without the groups that only train: what a usual day brings."""
        train = self.recordings.train
        return train.only([group for group in train.groups if group not in self.recordings.train_only])

    @property
    def chosen(self) -> Dataset:
        """Recordings of the groups that only train."""
        return self.recordings.train.only(self.recordings.train_only)

    def metrics(self) -> dict[str, Any]:
        """Collect their part of the report."""
        return {
            "groups": self.recordings.groups,
            "windows": {"train": len(self.train), "validation": len(self.validation), "test": len(self.test)},
            "data_notes": list(self.notes),
        }


def read_splits(recipe: Recipe, folders: Mapping[str, Path], say: Say) -> Splits:
    """Read all recordings, split them by group and cut them into windows.

    Args:
        recipe: names the data, and defines a window.
        folders: the data's folders, by the keys of the recipe's ``[[data]]``.
        say: takes a line for each split.

    Raises:
        ConfigError: a key has no folder, a file does not fit, or the windows of a split cannot be used.
    """
    dataset, contents = read_all(recipe, folders)
    parts = split(dataset, recipe.split, seed=recipe.seed)
    cut: dict[str, Windows] = {}
    for name, recordings in (("train", parts.train), ("validation", parts.validation), ("test", parts.test)):
        cut[name] = windows = recipe.window.cut(recordings)
        # Training needs several windows of every class; to evaluate, one is enough.
        check_windows(windows, recipe.classes, what=name, fewest=FEWEST if name == "train" else 1)
        check_units(cut["train"].x, windows.x, dataset.channels, what=name)
        groups = recordings.groups
        say(f"{name}: {len(windows)} windows of {', '.join(groups[:8])}{' ...' if len(groups) > 8 else ''}")
    notes = _notes(recipe, dataset, cut, parts.train_only)
    for note in notes:
        say(note)
    return Splits(recordings=parts, **cut, digest=contents, notes=tuple(notes))


def with_validation(recipe: Recipe, splits: Splits) -> Splits:
    """Move validation groups into training for a refit; choices must have been made, since no one is left to make one.

    `Splits.validation` stays, for golden vectors and times: what is computed, and not how well.
    """
    both = together(splits.recordings.train, splits.recordings.validation)
    return replace(splits, recordings=replace(splits.recordings, train=both), train=recipe.window.cut(both))


def together(one: Dataset, other: Dataset) -> Dataset:
    """Return the recordings of two data sets of the same form as one."""
    return replace(one, recordings=(*one.recordings, *other.recordings))


def _notes(recipe: Recipe, dataset: Dataset, cut: Mapping[str, Windows], train_only: Sequence[str]) -> list[str]:
    """Describe oddities of the recordings that bear on how far to trust the model."""
    channels, window = recipe.window.channels, recipe.window
    notes = [REFITTED] if recipe.split.refit else []
    if chosen := np.isin(cut["train"].group, train_only).sum():
        notes.append(
            f"{chosen} windows of {', '.join(train_only)} only train the networks; nothing else is fitted to them"
        )
    notes += few_windows(cut["train"], recipe.classes, hop_s=window.hop / window.rate_hz, what="train")
    if left_out := sum(recording.left_out for recording in dataset.recordings):
        files = sum(bool(recording.left_out) for recording in dataset.recordings)
        notes.append(f"{left_out} rows of {files} files were left out, since a cell was empty")
    rates = {r.name: 1 / step for r in dataset.recordings if r.t is not None and (step := _step(r.t))}
    if rates and max(rates.values()) > (1 + UNALIKE) * min(rates.values()):
        slowest, fastest = min(rates, key=rates.__getitem__), max(rates, key=rates.__getitem__)
        notes.append(
            f"recordings have {rates[slowest]:.4g} Hz ({slowest}) to {rates[fastest]:.4g} Hz ({fastest}); windows have "
            f"{window.rate_hz:g} Hz"
        )
    # Windows alone: the contexts of all three together would be copied for nothing.
    every = replace(
        cut["train"],
        contexts=np.concatenate([part.x for part in cut.values()]),
        y=np.concatenate([part.y for part in cut.values()]),
        group=np.concatenate([part.group for part in cut.values()]),
    )
    return [*notes, *(check_scales(every, channels) if window.same_units else [])]


def _step(t: Float64) -> float:
    """Return the median step of stamps that rise; 0 where there is none."""
    steps = np.diff(t)
    return float(np.median(steps[steps > 0])) if (steps > 0).any() else 0.0


def read_all(recipe: Recipe, folders: Mapping[str, Path]) -> tuple[Dataset, str]:
    """Read all of a recipe's data as one set.

    Returns:
        The recordings, and a digest of the files and of how they are read.

    Raises:
        ConfigError: a key has no folder, or a file does not fit.
    """
    keys = [reader.key for reader in recipe.data]
    if unknown := sorted(folders.keys() - set(keys)):
        raise ConfigError(f"--data {unknown[0]}=...: the recipe's keys are {', '.join(keys)}")
    if missing := [key for key in keys if key not in folders]:
        raise ConfigError(f"the recipe needs --data {missing[0]}=FOLDER")
    rate_hz = recipe.window.source_rate_hz or recipe.window.rate_hz
    parts = [
        read(reader, folders[reader.key], channels=recipe.window.channels, classes=recipe.classes, rate_hz=rate_hz)
        for reader in recipe.data
    ]
    for part in parts:
        if part.rate_hz != rate_hz or part.classes != recipe.classes:
            raise ConfigError(f"data {part.name!r} has {part.rate_hz:g} Hz and classes {', '.join(part.classes)}")
    many = len(parts) > 1
    whole = Dataset(
        name=recipe.name,
        channels=parts[0].channels,
        rate_hz=rate_hz,
        classes=recipe.classes,
        # Two data sets may both call a person "1".
        recordings=tuple(
            replace(
                recording,
                name=f"{part.name}/{recording.name}" if many else recording.name,
                group=f"{part.name}/{recording.group}" if many else recording.group,
                share=reader.share,
            )
            for reader, part in zip(recipe.data, parts, strict=True)
            for recording in part.recordings
        ),
    )
    if recipe.window.clip_s:
        samples = round(recipe.window.clip_s * rate_hz)
        whole = replace(whole, recordings=tuple(clip(recording, samples) for recording in whole.recordings))
    contents = {reader.key: [file_digest(folders[reader.key]), reader] for reader in recipe.data}
    return whole, digest({"files": contents, "rate": rate_hz, "classes": recipe.classes})
