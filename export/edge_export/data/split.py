"""Split by group: each group is in training, in validation or in test, never in two of them.

Training groups fit the weights. Every choice (network, variant, temperature, threshold) is made on validation groups.
Test groups are evaluated once, at the end. Windows of one person look alike, so a split by window would measure memory.
"""

from __future__ import annotations

import fnmatch
import hashlib
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from edge_export.data.dataset import UNLABELLED, Dataset
from edge_runtime.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitRecipe:
    """Groups of each split; groups that no list names are distributed by a hash of their name.

    The lists hold names, or patterns with ``*`` and ``?`` that stand for all groups they fit.

    Attributes:
        train: groups to train on.
        validation: groups to choose on.
        test: groups to evaluate on.
        exclude: groups that are dropped before anything else sees them.
        train_only: groups of windows that were chosen, such as those that a device was unsure of: they train the
            networks, and nothing else is fitted to them, since a usual day has fewer of them.
        refit: once everything has been chosen on validation groups, train what was chosen again, on training and
            validation groups together, and ship that.
        folds: what surrounds the networks, and the gate, are fitted to answers of networks that were trained once
            without each fold of training and validation groups; 0: to those of the first fit on validation groups.
        validation_share: of the groups left to the hash.
        test_share: of the groups left to the hash.
    """

    train: tuple[str, ...] = ()
    validation: tuple[str, ...] = ()
    test: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    train_only: tuple[str, ...] = ()
    refit: bool = False
    folds: int = 0
    validation_share: float = 0.2
    test_share: float = 0.2

    def __post_init__(self) -> None:
        named = (*self.train, *self.validation, *self.test, *self.exclude, *self.train_only)
        for group in named:
            if named.count(group) > 1:
                raise ValueError(f"group {group!r} is in two sets: what it teaches would be asked of it again")
        if self.folds and self.folds < 2:
            raise ValueError("folds must be 0, or 2 and more")
        if not (self.validation_share > 0 and self.test_share > 0 and self.validation_share + self.test_share < 1):
            raise ValueError("validation_share and test_share must be above 0 and below 1 together")


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """Three data sets that share no group.

    Attributes:
        train: with the groups of `train_only`.
        validation: to choose on.
        test: to evaluate on.
        train_only: names of training groups that nothing but the networks is fitted to.
    """

    train: Dataset
    validation: Dataset
    test: Dataset
    train_only: tuple[str, ...] = ()

    @property
    def groups(self) -> dict[str, list[str]]:
        """Names of the groups in each set."""
        return {
            "train": list(self.train.groups),
            "validation": list(self.validation.groups),
            "test": list(self.test.groups),
        }


def split(dataset: Dataset, recipe: SplitRecipe, *, seed: int = 0) -> Split:
    """Split a data set by group.

    Args:
        dataset: all recordings.
        recipe: groups of each split.
        seed: seed of the hash that distributes groups no list names. A group's split depends on its name, the seed and
            the number of groups, not on the order of files.

    Raises:
        ConfigError: a named group does not exist, a pattern fits a group of another list, or a set would be empty or
            lack a class.
    """
    recipe = _spelled_out(recipe, dataset.groups)
    named = {*recipe.train, *recipe.validation, *recipe.test, *recipe.exclude, *recipe.train_only}
    left = sorted(set(dataset.groups) - named, key=lambda group: _hash(group, seed))
    if recipe.train and recipe.validation and recipe.test:
        # All three are spelled out: a group that appears later must not slip into one of them unseen.
        if left:
            raise ConfigError(f"split: group {min(left)!r} is in none of train, validation, test, exclude, train_only")
        hashed: tuple[list[str], list[str], list[str]] = ([], [], [])
    else:
        hashed = _distribute(left, recipe)
    sets = {
        "train": (*recipe.train, *sorted(hashed[0])),
        "validation": (*recipe.validation, *sorted(hashed[1])),
        "test": (*recipe.test, *sorted(hashed[2])),
    }
    for name, groups in sets.items():
        if not groups:
            raise ConfigError(f"split: no group is left for {name}; the data has {', '.join(dataset.groups)}")
    sets["train"] += recipe.train_only
    parts = {name: dataset.only(groups) for name, groups in sets.items()}
    for name, part in parts.items():
        if missing := _missing(part):
            raise ConfigError(
                f"split: {name} (groups {', '.join(part.groups)}) has no {missing[0]!r}; "
                "move a group there that has, or leave the class out"
            )
    return Split(**parts, train_only=recipe.train_only)


def _spelled_out(recipe: SplitRecipe, groups: Sequence[str]) -> SplitRecipe:
    """Replace the patterns of a recipe by the groups that they stand for."""

    def found(name: str, entries: Sequence[str]) -> tuple[str, ...]:
        fitting = [[entry] if entry in groups else fnmatch.filter(groups, entry) for entry in entries]
        for entry, fits in zip(entries, fitting, strict=True):
            if not fits:
                raise ConfigError(f"split.{name}: no group {entry!r}; the data has {', '.join(groups)}")
        return tuple(dict.fromkeys(itertools.chain.from_iterable(fitting)))

    try:
        return replace(
            recipe,
            train=found("train", recipe.train),
            validation=found("validation", recipe.validation),
            test=found("test", recipe.test),
            exclude=found("exclude", recipe.exclude),
            train_only=found("train_only", recipe.train_only),
        )
    except ValueError as error:  # two lists share a group
        raise ConfigError(f"split: {error}") from error


def _distribute(groups: list[str], recipe: SplitRecipe) -> tuple[list[str], list[str], list[str]]:
    """Distribute groups in the order of their hash; a split with a list of its own gets none."""
    count = len(groups)
    validation = 0 if recipe.validation else max(1, round(recipe.validation_share * count))
    test = 0 if recipe.test else max(1, round(recipe.test_share * count))
    if recipe.train:
        # What is not for training is distributed by the proportion of the two shares.
        if not recipe.validation and not recipe.test:
            share = recipe.test_share / (recipe.test_share + recipe.validation_share)
            test = max(1, round(share * count))
            validation = count - test
        elif not recipe.validation:
            validation = count
        else:
            test = count
        return [], groups[:validation], groups[validation : validation + test]
    return groups[validation + test :], groups[:validation], groups[validation : validation + test]


def _missing(dataset: Dataset) -> list[str]:
    present: set[int] = set()
    for recording in dataset.recordings:
        present.update([recording.label] if recording.marks is None else np.unique(recording.marks).tolist())
    return [name for label, name in enumerate(dataset.classes) if label not in present - {UNLABELLED}]


def _hash(group: str, seed: int) -> bytes:
    return hashlib.sha256(f"{seed}\0{group}".encode()).digest()
