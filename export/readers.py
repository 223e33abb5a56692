"""Reads other people's recordings: NPZ, CSV, Parquet and WAV files as they lie in a folder, and the demo's package.

A reader is a frozen table of a recipe. It says where values, stamps, labels and groups stand; the folder it reads is
named on the command line by the reader's key (``--data har=FOLDER``), so a recipe holds no path of anybody's machine.
"""

from __future__ import annotations

import csv
import itertools
import re
import wave
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from edge_runtime.errors import ConfigError
from export.data import UNLABELLED, Channel, Dataset, Float32, Float64, Int64, Recording
from export.labels import marks_of_events

_UNITS_PER_S = {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}
TimeUnit = Literal["s", "ms", "us", "ns"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where data comes from; stands in the bundle's provenance and in the report."""

    name: str
    source: str
    licence: str
    cite: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Events:
    """Annotated moments of an NPZ: arrays of sample numbers."""

    label: str
    array: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NpzReader:
    """Arrays of NPZ files, one file a group or one array of groups.

    Attributes:
        key: names the folder on the command line.
        origin: of the data.
        files: pattern of the files in the folder; ``**`` goes into subfolders.
        group: regular expression over the file's path in the folder; its first group, or all of it, names the group.
        values: array (samples,) or (samples, channels).
        scale: physical value = number * scale: one factor for all channels or one per channel.
        divide_by: array with one number that values are divided by, such as an amplifier's gain.
        time: array of stamps; empty: samples lie one period apart.
        time_unit: of the stamps.
        boundaries: array with the first sample of each recording and the end of the last; empty: one recording a file.
        run: array with a number per sample; a recording ends where it changes. Empty for none.
        label: array with one label per recording or per sample: class indices, or class names.
        label_names: class of each number in `label`, where numbers are not indices into the recipe's classes.
        events: instead of `label`: annotated moments; later ones overrule earlier ones at the same sample.
        reach_s: seconds around a moment that its label holds for; 0: halfway to the next one.
    """

    type: Literal["npz"] = "npz"
    key: str
    origin: Origin
    files: str = "*.npz"
    group: str = r"([^/]+)\.npz$"
    values: str = "x"
    scale: tuple[float, ...] = ()
    divide_by: str = ""
    time: str = ""
    time_unit: TimeUnit = "s"
    boundaries: str = ""
    run: str = ""
    label: str = ""
    label_names: tuple[str, ...] = ()
    events: tuple[Events, ...] = ()
    reach_s: float = 0.0

    def __post_init__(self) -> None:
        if bool(self.label) == bool(self.events):
            raise ValueError("needs label or events, one of them")
        if self.boundaries and self.run:
            raise ValueError("boundaries and run both cut recordings; name one")
        _check_pattern(self.group)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableReader:
    """CSV or Parquet files with a column per channel.

    Attributes:
        key: names the folder on the command line.
        origin: of the data.
        files: pattern of the files in the folder.
        columns: column of each channel that is called otherwise than in the recipe.
        group: as in `NpzReader`; unused where `group_column` is set.
        group_column: column with the group of each row; a recording ends where it changes.
        time: column of stamps; empty: rows lie one period apart.
        time_unit: of the stamps.
        label: regular expression over the file's path that finds the class; empty: see `label_column`.
        label_column: column with the class of each row.
        label_names: as in `WavReader`, for `label`; files of labels that it does not list are left out.
        scale: as in `NpzReader`.
    """

    type: Literal["table"] = "table"
    key: str
    origin: Origin
    files: str = "**/*.csv"
    columns: dict[str, str] = field(default_factory=dict)
    group: str = r"([^/]+)\.[^./]+$"
    group_column: str = ""
    time: str = ""
    time_unit: TimeUnit = "s"
    label: str = ""
    label_column: str = ""
    label_names: dict[str, str] = field(default_factory=dict)
    scale: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if bool(self.label) == bool(self.label_column):
            raise ValueError("needs label (a pattern over paths) or label_column, one of them")
        if self.label_names and not self.label:
            raise ValueError("label_names renames what label finds in paths; a column holds the classes themselves")
        _check_pattern(self.group)
        _check_pattern(self.label)


@dataclass(frozen=True, slots=True, kw_only=True)
class WavReader:
    """PCM WAV files, one recording each.

    Attributes:
        key: names the folder on the command line.
        origin: of the data.
        files: pattern of the files in the folder.
        group: as in `NpzReader`.
        label: regular expression over the file's path that finds the class; the default is the file's folder.
        label_names: class by what `label` finds, where they differ; what it does not list is left out.
    """

    type: Literal["wav"] = "wav"
    key: str
    origin: Origin
    files: str = "**/*.wav"
    group: str
    label: str = r"([^/]+)/[^/]+$"
    label_names: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check_pattern(self.group)
        _check_pattern(self.label)


@dataclass(frozen=True, slots=True, kw_only=True)
class SeglearnReader:
    """The shoulder-exercise recordings of the Python package ``seglearn`` 1.2.5 (see `export.watch`).

    Attributes:
        key: names the package's wheel, or a folder with its data, on the command line.
    """

    type: Literal["seglearn"] = "seglearn"
    key: str
    origin: Origin


Reader = NpzReader | TableReader | WavReader | SeglearnReader


def read(
    reader: Reader, where: Path, *, channels: Sequence[Channel], classes: Sequence[str], rate_hz: float
) -> Dataset:
    """Read one source of data.

    Args:
        reader: what stands where.
        where: the folder, or for `SeglearnReader` the wheel.
        channels: of the model to be; every recording must have them.
        classes: labels in the model's order; recordings of other classes are an error, or left out as the reader says.
        rate_hz: samples per second of what the files hold.

    Raises:
        ConfigError: a file is missing, damaged, or not as the recipe says; names the file and what to do.
    """
    if isinstance(reader, SeglearnReader):
        from export.watch import load_watch  # noqa: PLC0415 - the demo's data, only where it is asked for

        return load_watch(where)
    if not where.is_dir():
        raise ConfigError(f"--data {reader.key}={where}: no such folder")
    paths = sorted(path for path in where.glob(reader.files) if path.is_file())
    if not paths:
        raise ConfigError(f"--data {reader.key}={where}: no file fits {reader.files!r}")
    recordings: list[Recording] = []
    for path in paths:
        name = path.relative_to(where).as_posix()
        if isinstance(reader, NpzReader):
            recordings += _npz(reader, path, name, channels, classes, rate_hz)
        elif isinstance(reader, TableReader):
            recordings += _table(reader, path, name, channels, classes)
        elif (recording := _wav(reader, path, name, classes, rate_hz)) is not None:
            recordings.append(recording)
    return Dataset(
        name=reader.key,
        channels=tuple(channels),
        rate_hz=rate_hz,
        classes=tuple(classes),
        recordings=tuple(recordings),
    )


def _check_pattern(pattern: str) -> None:
    try:
        re.compile(pattern)
    except re.error as error:
        raise ValueError(f"{pattern!r} is not a regular expression: {error}") from error


def _find(pattern: str, name: str, what: str) -> str:
    match = re.search(pattern, name)
    if match is None:
        raise ConfigError(f"{name}: the pattern for the {what}, {pattern!r}, finds nothing in this path")
    return str(match[1] if match.re.groups else match[0])


def _named(label: str, names: Mapping[str, str]) -> str | None:
    """The class that stands for a label; None where the names leave it out."""
    return names.get(label) if names else label


def _class_of(label: str, classes: Sequence[str], name: str) -> int:
    if label not in classes:
        raise ConfigError(f"{name}: label {label!r} is none of the recipe's classes: {', '.join(classes)}")
    return list(classes).index(label)


# -- NPZ ---------------------------------------------------------------------------------------------------------------


def _npz(
    reader: NpzReader, path: Path, name: str, channels: Sequence[Channel], classes: Sequence[str], rate_hz: float
) -> Iterator[Recording]:
    arrays = _arrays(path, name)

    def array(key: str) -> npt.NDArray[Any]:
        if key not in arrays:
            raise ConfigError(f"{name}: array {key!r} is missing; the file has {', '.join(sorted(arrays))}")
        return arrays[key]

    values = _physical(array(reader.values), reader.scale, channels, name)
    if reader.divide_by:
        values = values / np.float32(array(reader.divide_by).reshape(-1)[0])
    if not np.isfinite(values).all():
        row, column = np.argwhere(~np.isfinite(values))[0].tolist()
        raise ConfigError(f"{name}: sample {row} of channel {channels[column].name} is not a finite number")
    t = None
    if reader.time:
        t = array(reader.time).astype(np.float64) / _UNITS_PER_S[reader.time_unit]
        if t.shape != (len(values),):
            raise ConfigError(f"{name}: array {reader.time!r} must hold one stamp for each of {len(values)} samples")
    bounds = _bounds(reader, array, len(values), name)
    marks, labels = _labels(reader, array, values, bounds, classes, name, rate_hz)
    group, stem = _find(reader.group, name, "group"), name.rsplit(".", 1)[0]
    for index, (begin, end) in enumerate(itertools.pairwise(bounds)):
        stamps = None if t is None else t[begin:end]
        kept = np.arange(end - begin)
        if stamps is not None:
            # A clock that stands still or steps back: the runtime counts the first of equal stamps, and so do we.
            rising = np.concatenate(([True], stamps[1:] > np.maximum.accumulate(stamps)[:-1]))
            stamps, kept = stamps[rising], kept[rising]
        yield Recording(
            name=stem if len(bounds) == 2 else f"{stem}-{index}",
            group=group,
            label=UNLABELLED if labels is None else labels[index],
            values=values[begin:end][kept],
            t=stamps,
            marks=None if marks is None else marks[begin:end][kept],
        )


def _arrays(path: Path, name: str) -> dict[str, npt.NDArray[Any]]:
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
            return {key: stored[key] for key in stored.files}
    except (OSError, EOFError, ValueError, TypeError, KeyError, zipfile.BadZipFile) as error:
        raise ConfigError(f"{name}: not a usable .npz file: {error}") from error


def _physical(values: npt.NDArray[Any], scale: Sequence[float], channels: Sequence[Channel], name: str) -> Float32:
    table: Float32 = np.asarray(values, np.float32).reshape(len(values), -1)
    if table.shape[1] != len(channels):
        raise ConfigError(f"{name}: {table.shape[1]} columns of values, the recipe names {len(channels)} channels")
    if scale and len(scale) not in (1, len(channels)):
        raise ConfigError(f"{name}: scale has {len(scale)} factors; give one, or one for each of {len(channels)}")
    return table * np.array(scale, np.float32) if scale else table


def _bounds(reader: NpzReader, array: Any, samples: int, name: str) -> list[int]:
    if reader.run:
        runs = np.asarray(array(reader.run))
        if runs.shape != (samples,):
            raise ConfigError(f"{name}: array {reader.run!r} must hold one number for each of {samples} samples")
        return [0, *(np.flatnonzero(runs[1:] != runs[:-1]) + 1).tolist(), samples]
    if not reader.boundaries:
        return [0, samples]
    bounds = [int(bound) for bound in array(reader.boundaries)]
    if len(bounds) < 2 or bounds[0] != 0 or bounds[-1] != samples or sorted(bounds) != bounds:
        raise ConfigError(f"{name}: array {reader.boundaries!r} must rise from 0 to {samples}, the number of samples")
    return bounds


def _labels(
    reader: NpzReader,
    array: Any,
    values: Float32,
    bounds: Sequence[int],
    classes: Sequence[str],
    name: str,
    rate_hz: float,
) -> tuple[Int64 | None, list[int] | None]:
    """Label of each sample, or of each recording."""
    if reader.events:
        events: dict[int, Int64] = {}
        for event in reader.events:
            places = np.asarray(array(event.array), np.int64)
            if len(places) and not 0 <= places.min() <= places.max() < len(values):
                raise ConfigError(f"{name}: array {event.array!r} names samples outside the recording")
            events[_class_of(event.label, classes, name)] = places
        return marks_of_events(len(values), events, reach=round(reader.reach_s * rate_hz)), None
    found = np.asarray(array(reader.label))
    if found.shape not in ((len(values),), (len(bounds) - 1,)):
        raise ConfigError(
            f"{name}: array {reader.label!r} has shape {found.shape}; it needs one label for each of "
            f"{len(bounds) - 1} recordings or {len(values)} samples"
        )
    names = reader.label_names or tuple(classes)
    numbers = found.dtype.kind in "iu"
    if numbers and len(found) and not 0 <= int(found.min()) <= int(found.max()) < len(names):
        raise ConfigError(f"{name}: array {reader.label!r} holds {found.max()}, but only {len(names)} labels are named")
    unique, inverse = np.unique(found, return_inverse=True)
    classes_of = [_class_of(names[int(value)] if numbers else str(value), classes, name) for value in unique]
    labels = np.array(classes_of, np.int64)[inverse]
    # With as many recordings as samples the two readings of the array mean the same.
    return (labels, None) if found.shape == (len(values),) else (None, labels.tolist())


# -- tables ------------------------------------------------------------------------------------------------------------


def _table(
    reader: TableReader, path: Path, name: str, channels: Sequence[Channel], classes: Sequence[str]
) -> Iterator[Recording]:
    found = _named(_find(reader.label, name, "label"), reader.label_names) if reader.label else ""
    if found is None:
        return
    table = _parquet(path, name) if path.suffix == ".parquet" else _csv(path, name)

    def column(key: str) -> Sequence[Any]:
        if key not in table:
            raise ConfigError(f"{name}: column {key!r} is missing; the file has {', '.join(table)}")
        return table[key]

    wanted = [reader.columns.get(channel.name, channel.name) for channel in channels]
    values = _physical(np.stack([_numbers(column(key), key, name) for key in wanted], 1), reader.scale, channels, name)
    t: Float64 | None = None
    if reader.time:
        t = _numbers(column(reader.time), reader.time, name) / _UNITS_PER_S[reader.time_unit]
    groups = [str(group) for group in column(reader.group_column)] if reader.group_column else []
    marks: Int64 | None = None
    label = UNLABELLED
    if reader.label_column:
        marks = np.array([_class_of(str(text), classes, name) for text in column(reader.label_column)], np.int64)
    else:
        label = _class_of(found, classes, name)
    cuts = [0, *(i for i in range(1, len(groups)) if groups[i] != groups[i - 1]), len(values)]
    stem = name.rsplit(".", 1)[0]
    for index, (begin, end) in enumerate(itertools.pairwise(cuts)):
        yield Recording(
            name=stem if len(cuts) == 2 else f"{stem}-{index}",
            group=groups[begin] if groups else _find(reader.group, name, "group"),
            label=label,
            values=values[begin:end],
            t=None if t is None else t[begin:end],
            marks=None if marks is None else marks[begin:end],
        )


def _csv(path: Path, name: str) -> Mapping[str, Sequence[str]]:
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            head = file.readline()
            delimiter = max(",;\t|", key=head.count)
            file.seek(0)
            rows = list(csv.DictReader(file, delimiter=delimiter))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ConfigError(f"{name}: cannot be read: {error}") from error
    if not rows:
        raise ConfigError(f"{name}: holds no rows")
    for number, row in enumerate(rows, start=2):
        if None in row or None in row.values():
            raise ConfigError(f"{name}: line {number} has another number of columns than the header")
    return {key.strip(): [row[key] for row in rows] for key in rows[0]}


def _parquet(path: Path, name: str) -> Mapping[str, Sequence[Any]]:
    try:
        from pyarrow import parquet  # noqa: PLC0415 - the extra [parquet]
    except ImportError as error:
        raise ConfigError(f'{name}: Parquet needs pyarrow; pip install "edge-runtime[parquet]"') from error
    try:
        columns: Mapping[str, Sequence[Any]] = parquet.read_table(path).to_pydict()
    except (OSError, ValueError) as error:
        raise ConfigError(f"{name}: cannot be read: {error}") from error
    return columns


def _numbers(column: Sequence[Any], key: str, name: str) -> Float64:
    numbers = np.empty(len(column), np.float64)
    for row, text in enumerate(column):
        try:
            numbers[row] = float(text)
        except (TypeError, ValueError):
            numbers[row] = np.nan
        if not np.isfinite(numbers[row]):
            raise ConfigError(f"{name}: row {row + 1} of column {key!r} holds {text!r}, not a finite number")
    return numbers


# -- WAV ---------------------------------------------------------------------------------------------------------------


def _wav(reader: WavReader, path: Path, name: str, classes: Sequence[str], rate_hz: float) -> Recording | None:
    label = _named(_find(reader.label, name, "label"), reader.label_names)
    if label is None:
        return None
    try:
        with wave.open(str(path), "rb") as file:
            rate, width, count, frames = (
                file.getframerate(),
                file.getsampwidth(),
                file.getnchannels(),
                file.readframes(file.getnframes()),
            )
    except (OSError, EOFError, wave.Error) as error:
        raise ConfigError(f"{name}: not a PCM WAV file: {error}") from error
    if width != 2:
        raise ConfigError(f"{name}: {8 * width} bits a sample; convert it to 16-bit PCM")
    pcm = np.frombuffer(frames, "<i2").reshape(-1, count).mean(axis=1, dtype=np.float32) / np.float32(32768)
    values = _at_rate(pcm, rate, rate_hz, name)[:, None]
    return Recording(
        name=name.rsplit(".", 1)[0],
        group=_find(reader.group, name, "group"),
        label=_class_of(label, classes, name),
        values=values,
    )


def _at_rate(pcm: Float32, rate: int, wanted: float, name: str) -> Float32:
    """Sound at another rate: whole fractions only, after a low-pass filter, so nothing folds back into the band."""
    if rate == wanted:
        return pcm
    factor = rate / wanted
    if factor != int(factor) or factor < 1:
        raise ConfigError(
            f"{name}: {rate} Hz cannot become {wanted:g} Hz by leaving out samples; set rate_hz, or convert"
        )
    step = int(factor)
    at = np.arange(-16 * step, 16 * step + 1)
    # Windowed sinc with its edge at 0.9 of the new Nyquist frequency; 32 new samples long.
    taps = np.sinc(at * 0.9 / step) * np.hamming(len(at))
    low = np.convolve(pcm, taps / taps.sum(), "same")
    return low[::step].astype(np.float32)
