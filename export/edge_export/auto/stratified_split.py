"""Split by group in which training, validation and test each hold every class."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from edge_export.auto.scan import Piece
from edge_runtime.errors import ConfigError

SHARE = 0.2
"""Of the groups, for validation and for test each."""

TRIES = 500
"""Orders of the groups for each size of validation and test; with few groups per class one in a dozen fits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StratifiedSplit:
    """Groups of the validation and test splits; all others are trained on."""

    validation: tuple[str, ...]
    test: tuple[str, ...]
    train: int
    """How many groups are left to train on."""


def stratified_split(pieces: Sequence[Piece]) -> StratifiedSplit:
    """Find a split by group in which no part lacks a class.

    Orders of the groups are tried, each by a hash of their names, until one fits: the same recordings are split alike
    on every machine.

    Raises:
        ConfigError: there are too few groups, or a class occurs in too few of them; names the class and its groups.
    """
    classes: dict[str, set[str]] = defaultdict(set)
    for piece in pieces:
        classes[piece.group].add(piece.label)
    names, every = sorted(classes), {piece.label for piece in pieces}
    if len(every) < 2:
        raise ConfigError(f"all recordings are of the class {next(iter(every))!r}; there is nothing to tell apart")
    if len(names) < 3:
        raise ConfigError(
            f"the recordings are of {len(names)} groups ({', '.join(names)}); at least three are needed, to train on, "
            "to choose by and to judge by, or what is learnt by heart would count as known: record another person, "
            "machine or session, or say where the names tell them apart (--group REGEX, --group-column)"
        )
    for label in sorted(every):
        of = [name for name in names if label in classes[name]]
        if len(of) < 3:
            raise ConfigError(
                f"class {label!r} occurs in {len(of)} of {len(names)} groups ({', '.join(of)}); it needs three, to "
                "train on, to choose by and to judge by: record more of it, or leave it out"
            )
    size = max(1, round(SHARE * len(names)))
    for held in range(size, len(names) // 3 + 1):
        for attempt in range(TRIES):
            order = sorted((_hash(name, attempt), name) for name in names)
            ordered = [name for _, name in order]
            validation, test, train = ordered[:held], ordered[held : 2 * held], ordered[2 * held :]
            if all({label for name in part for label in classes[name]} == every for part in (validation, test, train)):
                return StratifiedSplit(validation=tuple(sorted(validation)), test=tuple(sorted(test)), train=len(train))
    raise ConfigError(
        f"no way to split {len(names)} groups to training, validation and test was found in which each set knows all "
        f"{len(every)} classes; let more groups hold more classes, or split them in the recipe by hand"
    )


def _hash(name: str, attempt: int) -> bytes:
    return hashlib.sha256(f"{attempt}\0{name}".encode()).digest()
