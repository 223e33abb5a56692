"""Stratified split by group: training, validation and test each know every class."""

from __future__ import annotations

import hashlib
import itertools
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from edge_export.recipe.auto.scan import Piece
from edge_runtime.errors import ConfigError

SHARE = 0.2
"""Of the groups, for validation and for test each."""

TRIES = 500
"""Orders of the groups for each size of validation and test; with few groups per class one in a dozen fits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StratifiedSplit:
    """Groups of validation and test, and the number of those left to train on."""

    validation: tuple[str, ...]
    test: tuple[str, ...]
    train: int


def stratified_split(pieces: Sequence[Piece]) -> StratifiedSplit:
    """Find a split by group in which no set lacks a class.

    Orders of the groups are tried, each by a hash of their names, until one fits: the same recordings are split alike
    on every machine.

    Raises:
        ConfigError: there are too few groups, or a class occurs in too few of them; names the class and its groups.
    """
    classes: dict[str, set[str]] = defaultdict(set)
    for piece in pieces:
        classes[piece.group].add(piece.label)
    every = {piece.label for piece in pieces}
    _refuse_too_few(classes, every)
    size = max(1, round(SHARE * len(classes)))
    for held, attempt in itertools.product(range(size, len(classes) // 3 + 1), range(TRIES)):
        order = [name for _, name in sorted((_hash(name, attempt), name) for name in classes)]
        sets = order[:held], order[held : 2 * held], order[2 * held :]
        if all(set().union(*map(classes.__getitem__, part)) == every for part in sets):
            return StratifiedSplit(validation=tuple(sorted(sets[0])), test=tuple(sorted(sets[1])), train=len(sets[2]))
    raise ConfigError(
        f"no way to split {len(classes)} groups into training, validation and test was found in which each set knows "
        f"all {len(every)} classes; let more groups hold more classes, or split them in the recipe by hand"
    )


def _refuse_too_few(classes: Mapping[str, set[str]], every: set[str]) -> None:
    names = sorted(classes)
    if len(every) < 2:
        raise ConfigError(f"all recordings are of the class {next(iter(every))!r}; there is nothing to tell apart")
    if len(names) < 3:
        raise ConfigError(
            f"the recordings are of {len(names)} groups ({', '.join(names)}); at least three are needed, to train on, "
            "to choose by and to test with, or what is learnt by heart would count as known: record another person, "
            "machine or session, or say where the names tell them apart (--group REGEX, --group-column)"
        )
    for label in sorted(every):
        of = [name for name in names if label in classes[name]]
        if len(of) < 3:
            raise ConfigError(
                f"class {label!r} occurs in {len(of)} of {len(names)} groups ({', '.join(of)}); it needs three, to "
                "train on, to choose by and to test with: record more of it, or leave it out"
            )


def _hash(name: str, attempt: int) -> bytes:
    return hashlib.sha256(f"{attempt}\0{name}".encode()).digest()
