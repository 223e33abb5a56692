"""Scan of a folder of recordings: kind, channels, rate, labels, groups and lengths, read from every file."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from edge_export.data.readers.meaning import find_in
from edge_export.recipe.auto.channels import Column, empty_rows, find_channels, spread_of
from edge_export.recipe.auto.contents import Content, Kind, content_of, refuse_copies
from edge_export.recipe.auto.groups import Groups, find_groups, groups_in
from edge_export.recipe.auto.hints import Hints
from edge_export.recipe.auto.labels import ClassPlace, find_labels
from edge_export.recipe.auto.names import alike
from edge_export.recipe.auto.rate import rate_of, time_column
from edge_runtime.base.system.progress import Progress
from edge_runtime.errors import ConfigError
from edge_runtime.io.codecs.numbers import TimeUnit

_SUFFIXES: dict[str, Kind] = {".wav": "wav", ".csv": "table", ".parquet": "table", ".jsonl": "table", ".npz": "npz"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A stretch of samples with one label, as it stands in a file.

    Attributes:
        label: its class.
        group: whose it is.
        samples: how many.
    """

    label: str
    group: str
    samples: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan:
    """Everything that a recipe follows from.

    Attributes:
        kind: of the files.
        files: paths within the folder.
        channels: in order.
        rate_hz: samples per second of the files.
        pieces: all stretches.
        time: column of the stamps; empty where samples lie one period apart.
        time_unit: of the stamps.
        label: where the class stands: ``path:REGEX``, ``column:NAME`` or ``names:REGEX`` with `label_names`.
        label_names: class by what the pattern finds.
        group: where the group stands: ``path:REGEX`` or ``column:NAME``.
        numbers: labels in an NPZ are numbers.
        spread: standard deviation of each channel, for augmentation.
        notes: what was found out and how, by subject.
    """

    kind: Kind
    files: tuple[str, ...]
    channels: tuple[Column, ...]
    rate_hz: float
    pieces: tuple[Piece, ...]
    time: str = ""
    time_unit: TimeUnit = "s"
    label: str
    label_names: Mapping[str, str] = field(default_factory=dict)
    group: str
    numbers: bool = False
    spread: tuple[float, ...] = ()
    notes: Mapping[str, str] = field(default_factory=dict)

    @property
    def classes(self) -> tuple[str, ...]:
        """Labels, numbers in the order of their size."""
        names = {piece.label for piece in self.pieces}
        if all(re.fullmatch(r"\d+", name) for name in names):
            return tuple(sorted(names, key=int))
        return tuple(sorted(names))


def scan_folder(folder: Path, hints: Hints) -> Scan:
    """Read every recording of a folder.

    Args:
        folder: a folder with WAV, CSV, Parquet or NPZ files or JSON lines, all of one kind, at any depth.
        hints: what is known already.

    Raises:
        ConfigError: nothing is there, files differ in kind, columns or rate, a label is missing, two files are the same
            recording, or something must be said that no file tells; names the file and the option.
    """
    if not folder.is_dir():
        raise ConfigError(f"{folder}: no such folder")
    paths = sorted(path for path in folder.rglob("*") if path.is_file() and path.suffix.lower() in _SUFFIXES)
    if hints.labels is not None:
        paths = [path for path in paths if path.resolve() != hints.labels.resolve()]
    if not paths:
        raise ConfigError(f"{folder}: holds no .wav, .csv, .parquet, .jsonl or .npz file")
    kinds = Counter(_SUFFIXES[path.suffix.lower()] for path in paths)
    if len(kinds) > 1:
        found = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())
        raise ConfigError(
            f"{folder}: holds several kinds of files ({found}); move what is no recording away, or name a table of "
            "labels with --labels"
        )
    kind = next(iter(kinds))
    if len(suffixes := sorted({path.suffix for path in paths})) > 1:
        raise ConfigError(f"{folder}: holds {' and '.join(suffixes)} files; keep one of them, spelled alike")
    files = []
    with Progress("files", len(paths)) as progress:
        for path in paths:
            files.append(content_of(kind, path, path.relative_to(folder).as_posix()))
            progress.advance(detail=path.name)
    refuse_copies(files)
    return _labelled(kind, files, hints)


def _labelled(kind: Kind, files: Sequence[Content], hints: Hints) -> Scan:
    time = "" if kind == "wav" else time_column(files, hints)
    labels = find_labels(kind, files, hints)
    groups = find_groups(kind, files, labels.of, hints)
    channels = find_channels(kind, files, hints, {time, labels.column, groups.column})
    rate = rate_of(kind, files, hints, time)
    empty = empty_rows(files, channels.columns, rate.time) if kind == "table" else ""
    pieces: list[Piece] = []
    for file in files:
        pieces += _pieces(file, _samples(kind, file, channels.columns, rate.hz), labels, groups)
    if not groups.sure and (twins := alike(sorted({piece.group for piece in pieces}))):
        raise ConfigError(
            f"groups {twins[0]!r} and {twins[1]!r} look like one, spelled twice; rename them, or say --group REGEX or "
            "--group-column if they are two"
        )
    return Scan(
        kind=kind,
        files=tuple(file.name for file in files),
        channels=channels.columns,
        rate_hz=rate.hz,
        pieces=tuple(pieces),
        time=rate.time,
        time_unit=rate.unit,
        label=labels.where,
        label_names=labels.names,
        group=groups.where,
        numbers=kind == "npz" and bool(labels.column) and files[0].columns[labels.column].dtype.kind in "iu",
        spread=spread_of(kind, files, channels.columns),
        notes={
            "labels": labels.note,
            "groups": groups.note,
            "rate": "; ".join(rate.notes),
            "channels": channels.note,
            "empty cells": empty,
        },
    )


def _samples(kind: Kind, file: Content, channels: Sequence[Column], rate_hz: float) -> int:
    """Count the samples of a file at the rate that all are read at."""
    if kind == "wav":
        return round(file.samples * rate_hz / file.rate_hz)
    return len(file.columns[channels[0].source]) if kind == "npz" else file.samples


def _pieces(file: Content, samples: int, labels: ClassPlace, groups: Groups) -> list[Piece]:
    """Stretches of one label and one group."""
    whose = [find_in(groups.pattern, file.name, "group")] if groups.pattern else groups_in(file, groups.column)
    if labels.column:
        of = [str(each).strip() for each in np.asarray(file.columns[labels.column]).reshape(-1).tolist()]
    else:
        of = [labels.of[file.name]]
    if "" in of:
        raise ConfigError(f"{file.name}: row {of.index('') + 1} has no label; fill it, or move the row away")
    if len(of) == len(whose) == 1:
        return [Piece(label=of[0], group=whose[0], samples=samples)]
    pairs = list(zip(of * samples if len(of) == 1 else of, whose * samples if len(whose) == 1 else whose, strict=True))
    bounds = [0, *(i for i in range(1, len(pairs)) if pairs[i] != pairs[i - 1]), len(pairs)]
    return [
        Piece(label=pairs[begin][0], group=pairs[begin][1], samples=end - begin)
        for begin, end in itertools.pairwise(bounds)
    ]
