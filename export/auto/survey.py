"""What lies in a folder of recordings: kind, channels, rate, labels, groups and lengths, read from every file."""

from __future__ import annotations

import csv
import hashlib
import re
import wave
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

from edge_runtime.errors import ConfigError
from export.auto.names import LABEL_COLUMNS, TIME_COLUMNS, group_column, group_pattern, label_pattern

Kind = Literal["wav", "table", "npz"]

_SUFFIXES: dict[str, Kind] = {".wav": "wav", ".csv": "table", ".parquet": "table", ".npz": "npz"}
_INDEX_COLUMNS = ("", "index", "idx", "unnamed: 0", "row", "id_row")
_UNIT = re.compile(r"^(.*?)\s*[\[(]([^\])]+)[\])]\s*$")
_STEPS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """What a person has said; empty means: find out, or ask.

    Attributes:
        label: regular expression over a file's path that finds its class.
        label_column: column or array with the class.
        labels: CSV with the columns ``file`` and ``label``.
        group: regular expression over a file's path that finds its group.
        group_column: column with the group of each row.
        time: column or array with the stamps.
        time_unit: of the stamps.
        rate_hz: samples per second.
        channels: columns to use, in order.
        units: by channel; the key ``*`` is for all others.
    """

    label: str = ""
    label_column: str = ""
    labels: Path | None = None
    group: str = ""
    group_column: str = ""
    time: str = ""
    time_unit: str = ""
    rate_hz: float = 0.0
    channels: tuple[str, ...] = ()
    units: Mapping[str, str] = field(default_factory=dict)


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
class Column:
    """A channel.

    Attributes:
        name: in the model.
        source: name of the column in the files.
        unit: of its values.
    """

    name: str
    source: str
    unit: str


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


@dataclass(slots=True)
class _File:
    """One file's content as far as a recipe depends on it."""

    name: str
    columns: dict[str, Any]
    samples: int
    rate_hz: float = 0.0
    digest: str = ""


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
    files = [_read(kind, path, path.relative_to(folder).as_posix()) for path in paths]
    _refuse_copies(files)
    return _labelled(kind, files, wishes)


def _read(kind: Kind, path: Path, name: str) -> _File:
    if kind == "wav":
        return _wav(path, name)
    columns: dict[str, Any] = _npz(path, name) if kind == "npz" else _table(path, name)
    if not columns:
        raise ConfigError(f"{name}: holds nothing")
    samples = max(len(column) for column in columns.values())
    return _File(name=name, columns=columns, samples=samples, digest=_digest(path))


def _wav(path: Path, name: str) -> _File:
    try:
        with wave.open(str(path), "rb") as file:
            if file.getsampwidth() != 2:
                raise ConfigError(f"{name}: {8 * file.getsampwidth()} bits a sample; convert it to 16-bit PCM")
            return _File(
                name=name, columns={}, samples=file.getnframes(), rate_hz=file.getframerate(), digest=_digest(path)
            )
    except (OSError, EOFError, wave.Error) as error:
        raise ConfigError(f"{name}: not a PCM WAV file: {error}") from error


def _npz(path: Path, name: str) -> dict[str, Any]:
    try:
        with np.load(path, allow_pickle=False) as stored:
            return {key: stored[key] for key in stored.files if stored[key].ndim}
    except (OSError, ValueError, KeyError, EOFError) as error:
        raise ConfigError(f"{name}: not a usable .npz file: {error}") from error


def _table(path: Path, name: str) -> dict[str, Any]:
    if path.suffix.lower() == ".parquet":
        try:
            from pyarrow import parquet  # noqa: PLC0415 - the extra [parquet]
        except ImportError as error:
            raise ConfigError(f'{name}: Parquet needs pyarrow; pip install "edge-runtime[parquet]"') from error
        try:
            return dict(parquet.read_table(path).to_pydict())
        except (OSError, ValueError) as error:
            raise ConfigError(f"{name}: cannot be read: {error}") from error
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            head = file.readline()
            delimiter = max(",;\t|", key=head.count)
            file.seek(0)
            rows = list(csv.reader(file, delimiter=delimiter))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ConfigError(f"{name}: cannot be read: {error}") from error
    names = [column.strip() for column in rows[0]] if rows else []
    rows = [row for row in rows[1:] if row]
    if not rows or any(len(row) != len(names) for row in rows):
        raise ConfigError(f"{name}: needs a header and rows of as many columns")
    if all(_is_number(column) for column in names):
        raise ConfigError(f"{name}: begins with numbers; give its columns names in a first line")
    return dict(zip(names, (list(column) for column in zip(*rows, strict=True)), strict=True))


def _digest(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error


def _refuse_copies(files: Sequence[_File]) -> None:
    """The same recording in two groups would be trained on and asked for."""
    seen: dict[str, str] = {}
    for file in files:
        if (first := seen.setdefault(file.digest, file.name)) != file.name:
            raise ConfigError(
                f"{file.name} and {first} are the same recording; what one teaches would be asked of the other: "
                "delete one of them"
            )


# -- what the columns are ----------------------------------------------------------------------------------------------


def _labelled(kind: Kind, files: Sequence[_File], wishes: Wishes) -> Survey:
    notes: dict[str, str] = {}
    names = [file.name for file in files]
    label_names: dict[str, str] = {}
    time, time_unit, label_column, by_column = "", "s", "", ""
    if kind != "wav":
        label_column = _one_of(files, wishes.label_column, LABEL_COLUMNS, "label") if not wishes.label else ""
        time = _one_of(files, wishes.time, TIME_COLUMNS, "time")
        by_column = wishes.group_column or (group_column(list(files[0].columns)) if kind == "table" else "")
    if wishes.labels is not None:
        if kind != "wav":
            raise ConfigError(
                "--labels names the class of each WAV file; in tables the class stands in a column, or in the names of "
                "folders"
            )
        label_names = _labels_of(wishes.labels, names)
        label = "names:^(.+)$"
        notes["labels"] = f"{wishes.labels.name} names the class of each file"
    elif kind == "npz" and not label_column:
        raise ConfigError(
            f"{names[0]}: has no array of labels; an NPZ names its class in one called label, for the whole recording "
            "or for each sample"
        )
    elif label_column:
        label = f"column:{label_column}"
        notes["labels"] = f"column {label_column!r} names the class of each row"
    else:
        pattern = label_pattern(names, wishes.label)
        label = f"path:{pattern}"
        said = "as --label says" if wishes.label else "the folder is the class"
        notes["labels"] = f"{said} ({pattern})"
    channels = _channels(kind, files, wishes, {time, label_column, by_column})
    rate, time_unit = _rate(kind, files, wishes, time, notes)
    for file in files:
        if kind == "wav":
            file.samples = round(file.samples * rate / file.rate_hz)
        elif kind == "npz":
            file.samples = len(file.columns[channels[0].source])
    label_of = {name: _find(label.partition(":")[2], name, "label") for name in names} if not label_column else {}
    if label_names:
        label_of = {name: label_names[name] for name in names}
    if by_column:
        group = f"column:{by_column}"
        notes["groups"] = f"column {by_column!r} says whose each row is"
    else:
        pattern, why = group_pattern(names, label_of, wishes.group)
        group = f"path:{pattern}"
        notes["groups"] = f"{why} ({pattern})"
    pieces: list[Piece] = []
    for file in files:
        pieces += _pieces(file, label_of.get(file.name), label_column, by_column, group)
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
        spread=_spread(kind, files, channels),
        notes=notes,
    )


def _one_of(files: Sequence[_File], wanted: str, usual: Sequence[str], what: str) -> str:
    """The column that plays a part, the same in all files; empty if there is none."""
    known = {key.lower(): key for key in files[0].columns}
    found = wanted or next((known[name] for name in usual if name in known), "")
    for file in files:
        if found and found not in file.columns:
            raise ConfigError(f"{file.name}: has no column {found!r} for the {what}; it has {', '.join(file.columns)}")
    return found


def _labels_of(table: Path, names: Sequence[str]) -> dict[str, str]:
    columns = _table(table, str(table))
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


def _channels(kind: Kind, files: Sequence[_File], wishes: Wishes, others: set[str]) -> tuple[Column, ...]:
    if kind == "wav":
        return (Column(name="sound", source="", unit="1"),)
    if kind == "npz":
        values = _values_array(files[0])
        width = 1 if files[0].columns[values].ndim == 1 else files[0].columns[values].shape[1]
        names = wishes.channels or tuple(f"c{i}" for i in range(width))
        if len(names) != width:
            raise ConfigError(f"{files[0].name}: array {values!r} has {width} columns; --channels names {len(names)}")
        sources = [values] * width
    else:
        first = files[0]
        sources = list(wishes.channels) or [
            key
            for key, column in first.columns.items()
            if key not in others and key.lower() not in _INDEX_COLUMNS and all(map(_is_number, column[:50]))
        ]
        names = tuple(sources)
        for file in files:
            if missing := [source for source in sources if source not in file.columns]:
                raise ConfigError(f"{file.name}: has no column {missing[0]!r}; it has {', '.join(file.columns)}")
    if not sources:
        raise ConfigError(f"{files[0].name}: no column holds numbers; name the channels with --channels")
    found = []
    for name, source in zip(names, sources, strict=True):
        match = _UNIT.match(name)
        plain, unit = (match[1], match[2]) if match else (name, "")
        unit = wishes.units.get(plain) or wishes.units.get(name) or unit or wishes.units.get("*", "")
        if not unit:
            raise ConfigError(
                f"channel {plain!r}: in which unit? say --unit {plain}=UNIT, or --unit UNIT for all; the device "
                "compares it with the sensor's"
            )
        found.append(Column(name=plain, source=source, unit=unit))
    return tuple(found)


def _values_array(file: _File) -> str:
    for name in ("x", "values", "data", "signal"):
        if name in file.columns:
            return name
    tables = [key for key, array in file.columns.items() if array.ndim == 2 and array.dtype.kind in "fiu"]
    if len(tables) != 1:
        raise ConfigError(
            f"{file.name}: which array holds the samples? it has {', '.join(file.columns)}; call it x, with a row per "
            "sample"
        )
    return tables[0]


def _rate(kind: Kind, files: Sequence[_File], wishes: Wishes, time: str, notes: dict[str, str]) -> tuple[float, str]:
    """Samples per second, and the unit of the stamps."""
    if kind == "wav":
        rates = sorted({file.rate_hz for file in files})
        rate = wishes.rate_hz or _common_rate(rates, files)
        said = f"{', '.join(f'{each:g}' for each in rates)} Hz in the files"
        notes["rate"] = "as --rate says" if wishes.rate_hz else said
        return rate, "s"
    if not time:
        if not wishes.rate_hz:
            raise ConfigError(f"{files[0].name}: has no column of stamps; say --rate HZ, or --time COLUMN")
        notes["rate"] = "as --rate says; no stamps"
        return wishes.rate_hz, "s"
    steps = np.concatenate([_steps(file, time) for file in files])
    step = float(np.median(steps[steps > 0])) if (steps > 0).any() else 0.0
    if not step:
        raise ConfigError(f"column {time!r} does not rise; name the stamps with --time, or say --rate HZ")
    unit = wishes.time_unit or _unit_of(time, step)
    rate = 1 / (step * _STEPS[unit])
    nice = wishes.rate_hz or (round(rate) if abs(rate - round(rate)) < 0.03 * rate and rate > 3 else rate)
    notes["rate"] = f"median step of column {time!r} in {unit} gives {rate:.4g} Hz"
    return float(f"{nice:.6g}"), unit


def _common_rate(rates: Sequence[float], files: Sequence[_File]) -> float:
    """The fastest of at most 16 kHz that all files reach by leaving out samples."""
    lowest = rates[0]
    for divisor in range(1, 64):
        rate = lowest / divisor
        if rate <= 16_000 and all(each % rate == 0 for each in rates):
            return rate
    odd = next(file.name for file in files if file.rate_hz % lowest)
    raise ConfigError(
        f"{odd}: its rate is no multiple of {lowest:g} Hz, which others have; convert it, or move it away"
    )


def _steps(file: _File, time: str) -> np.ndarray:
    try:
        stamps = np.asarray(file.columns[time], np.float64)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{file.name}: column {time!r} holds other than numbers; give stamps in seconds") from error
    if not np.isfinite(stamps).all():
        raise ConfigError(f"{file.name}: column {time!r} holds a stamp that is no number")
    return np.diff(stamps)


def _unit_of(column: str, step: float) -> str:
    """Unit of stamps: what the column's name ends in, else seconds where that makes more than one sample a second."""
    for unit in ("ms", "us", "ns"):
        if re.search(rf"(?:^|[_\[( ]){unit}[\])]?$", column.lower()):
            return unit
    if step < 1:
        return "s"
    return "ms" if step < 1e4 else "us" if step < 1e7 else "ns"


def _pieces(file: _File, label: str | None, label_column: str, by_column: str, group: str) -> list[Piece]:
    """Stretches of one label and one group."""
    groups = [str(each) for each in file.columns[by_column]] if by_column else []
    whose = "" if by_column else _find(group.partition(":")[2], file.name, "group")
    if label is not None and not by_column:
        return [Piece(label=label, group=whose, samples=file.samples)]
    if label is None:
        labels = [str(each).strip() for each in np.asarray(file.columns[label_column]).reshape(-1).tolist()]
        if len(labels) == 1:
            return [Piece(label=labels[0], group=whose, samples=file.samples)]
    else:
        labels = [label] * file.samples
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


def _spread(kind: Kind, files: Sequence[_File], channels: Sequence[Column]) -> tuple[float, ...]:
    if kind == "wav":
        return ()
    values = []
    for file in files:
        if kind == "npz":
            table = np.asarray(file.columns[channels[0].source], np.float64).reshape(-1, len(channels))
        else:
            table = np.stack([_floats(file, channel.source) for channel in channels], 1)
        if not np.isfinite(table).all():
            row, column = np.argwhere(~np.isfinite(table))[0].tolist()
            raise ConfigError(f"{file.name}: row {row + 1} of {channels[column].name!r} is not a finite number")
        values.append(table)
    return tuple(float(f"{value:.3g}") for value in np.concatenate(values).std(axis=0))


def _floats(file: _File, source: str) -> np.ndarray:
    try:
        return np.asarray(file.columns[source], np.float64)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{file.name}: column {source!r} holds something else than numbers: {error}") from error


def _find(pattern: str, name: str, what: str) -> str:
    match = re.search(pattern, name)
    if match is None:
        raise ConfigError(f"{name}: the pattern for the {what}, {pattern!r}, finds nothing in this path")
    return str(match[1] if match.re.groups else match[0])


def _is_number(text: object) -> bool:
    try:
        float(str(text))
    except ValueError:
        return False
    return True
