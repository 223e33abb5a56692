"""What lies in a folder of recordings: kind, channels, rate, labels, groups and lengths, read from every file."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from edge_runtime.errors import ConfigError
from export.auto.channels import Column, channels_of, spread_of
from export.auto.contents import Content, Kind, content_of, refuse_copies, table_of
from export.auto.names import LABEL_COLUMNS, TIME_COLUMNS, group_column, group_pattern, label_pattern
from export.auto.rate import rate_of
from export.auto.wishes import Wishes
from export.readers.meaning import find_in

_SUFFIXES: dict[str, Kind] = {".wav": "wav", ".csv": "table", ".parquet": "table", ".npz": "npz"}


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
class Survey:
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
    time_unit: str = "s"
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


def survey(folder: Path, wishes: Wishes) -> Survey:
    """Look at every recording of a folder.

    Args:
        folder: with WAV, CSV, Parquet or NPZ files, all of one kind, at any depth.
        wishes: what is known already.

    Raises:
        ConfigError: nothing is there, files differ in kind, columns or rate, a label is missing, two files are the same
            recording, or something must be said that no file tells; names the file and the option.
    """
    if not folder.is_dir():
        raise ConfigError(f"{folder}: no such folder")
    paths = sorted(path for path in folder.rglob("*") if path.is_file() and path.suffix.lower() in _SUFFIXES)
    if wishes.labels is not None:
        paths = [path for path in paths if path.resolve() != wishes.labels.resolve()]
    if not paths:
        raise ConfigError(f"{folder}: holds no .wav, .csv, .parquet or .npz file")
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
    files = [content_of(kind, path, path.relative_to(folder).as_posix()) for path in paths]
    refuse_copies(files)
    return _labelled(kind, files, wishes)


def _labelled(kind: Kind, files: Sequence[Content], wishes: Wishes) -> Survey:
    notes: dict[str, str] = {}
    names = [file.name for file in files]
    time, label_column, by_column = "", "", ""
    if kind != "wav":
        label_column = _one_of(files, wishes.label_column, LABEL_COLUMNS, "label") if not wishes.label else ""
        time = _one_of(files, wishes.time, TIME_COLUMNS, "time")
        by_column = wishes.group_column or (group_column(list(files[0].columns)) if kind == "table" else "")
    label, label_names = _labels(kind, names, label_column, wishes, notes)
    channels = channels_of(kind, files, wishes, {time, label_column, by_column})
    rate, time_unit = rate_of(kind, files, wishes, time, notes)
    label_of = dict(label_names)
    if not label_column and not label_names:
        label_of = {name: find_in(label.partition(":")[2], name, "label") for name in names}
    group = _groups(names, label_of, by_column, wishes, notes)
    pieces: list[Piece] = []
    for file in files:
        samples = _samples(kind, file, channels, rate)
        pieces += _pieces(file, samples, label_of.get(file.name), label_column, by_column, group)
    return Survey(
        kind=kind,
        files=tuple(names),
        channels=channels,
        rate_hz=rate,
        pieces=tuple(pieces),
        time=time,
        time_unit=time_unit,
        label=label,
        label_names=label_names,
        group=group,
        numbers=kind == "npz" and bool(label_column) and files[0].columns[label_column].dtype.kind in "iu",
        spread=spread_of(kind, files, channels),
        notes=notes,
    )


def _one_of(files: Sequence[Content], wanted: str, usual: Sequence[str], what: str) -> str:
    """The column that plays a part, the same in all files; empty if there is none."""
    known = {key.lower(): key for key in files[0].columns}
    found = wanted or next((known[name] for name in usual if name in known), "")
    for file in files:
        if found and found not in file.columns:
            raise ConfigError(f"{file.name}: has no column {found!r} for the {what}; it has {', '.join(file.columns)}")
    return found


def _labels_of(table: Path, names: Sequence[str]) -> dict[str, str]:
    columns = table_of(table, str(table))
    lower = {key.lower(): key for key in columns}
    if "file" not in lower or "label" not in lower:
        raise ConfigError(f"{table}: needs the columns file and label; it has {', '.join(columns)}")
    files, labels = columns[lower["file"]], columns[lower["label"]]
    found = dict(zip(files, (str(label).strip() for label in labels), strict=True))
    by_stem = {Path(name).name: label for name, label in found.items()}
    result = {}
    for name in names:
        label = found.get(name) or by_stem.get(Path(name).name, "")
        if not label:
            raise ConfigError(f"{name}: {table.name} names no label for it; add a line, or move the file away")
        result[name] = label
    return result


def _labels(
    kind: Kind, names: Sequence[str], column: str, wishes: Wishes, notes: dict[str, str]
) -> tuple[str, dict[str, str]]:
    """Where the class stands, as `Survey.label` says it, and the class of each file where a table names them."""
    if wishes.labels is not None:
        if kind != "wav":
            raise ConfigError(
                "--labels names the class of each WAV file; in tables the class stands in a column, or in the names of "
                "folders"
            )
        label_names = _labels_of(wishes.labels, names)
        notes["labels"] = f"{wishes.labels.name} names the class of each file"
        return "names:^(.+)$", label_names
    if column:
        notes["labels"] = f"column {column!r} names the class of each row"
        return f"column:{column}", {}
    if kind == "npz":
        raise ConfigError(
            f"{names[0]}: has no array of labels; an NPZ names its class in one called label, for the whole recording "
            "or for each sample"
        )
    pattern = label_pattern(names, wishes.label)
    said = "as --label says" if wishes.label else "the folder is the class"
    notes["labels"] = f"{said} ({pattern})"
    return f"path:{pattern}", {}


def _groups(
    names: Sequence[str], label_of: Mapping[str, str], column: str, wishes: Wishes, notes: dict[str, str]
) -> str:
    """Where the group stands, as `Survey.group` says it."""
    if column:
        notes["groups"] = f"column {column!r} says whose each row is"
        return f"column:{column}"
    pattern, why = group_pattern(names, label_of, wishes.group)
    notes["groups"] = f"{why} ({pattern})"
    return f"path:{pattern}"


def _samples(kind: Kind, file: Content, channels: Sequence[Column], rate_hz: float) -> int:
    """Samples of a file at the rate that all are read at."""
    if kind == "wav":
        return round(file.samples * rate_hz / file.rate_hz)
    return len(file.columns[channels[0].source]) if kind == "npz" else file.samples


def _pieces(
    file: Content, samples: int, label: str | None, label_column: str, by_column: str, group: str
) -> list[Piece]:
    """Stretches of one label and one group."""
    groups = [str(each) for each in file.columns[by_column]] if by_column else []
    whose = "" if by_column else find_in(group.partition(":")[2], file.name, "group")
    if label is not None and not by_column:
        return [Piece(label=label, group=whose, samples=samples)]
    if label is None:
        labels = [str(each).strip() for each in np.asarray(file.columns[label_column]).reshape(-1).tolist()]
        if len(labels) == 1:
            return [Piece(label=labels[0], group=whose, samples=samples)]
    else:
        labels = [label] * samples
    if "" in labels:
        raise ConfigError(f"{file.name}: row {labels.index('') + 1} has no label; fill it, or move the row away")
    pieces, begin = [], 0
    for i in range(1, len(labels) + 1):
        same_group = not groups or i == len(labels) or groups[i] == groups[begin]
        if i < len(labels) and labels[i] == labels[begin] and same_group:
            continue
        pieces.append(Piece(label=labels[begin], group=groups[begin] if groups else whose, samples=i - begin))
        begin = i
    return pieces
