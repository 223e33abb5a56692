"""Recordings in NPZ files: one or several a file, a label for each of them or for each sample."""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from edge_export.data.dataset import UNLABELLED, Float32, Float64, Int64, Recording
from edge_export.data.labels import marks_of_events
from edge_export.data.readers.files import arrays_of
from edge_export.data.readers.meaning import class_of, find_in
from edge_export.data.readers.samples import read_samples
from edge_export.data.readers.spec import NpzReader, Sensor
from edge_runtime.errors import ConfigError
from edge_runtime.io.recordings.layout import RecordingLayout
from edge_runtime.io.recordings.tables import NO_TIME
from edge_runtime.manifest import Channel
from edge_runtime.signal.windowing.recorded import Table


def read_npz(
    reader: NpzReader, path: Path, name: str, channels: Sequence[Channel], classes: Sequence[str], rate_hz: float
) -> Iterator[Recording]:
    """Read the recordings of one file.

    Args:
        reader: what stands where.
        path: the file.
        name: its path within the folder.
        channels: the model's channels.
        classes: labels in the model's order.
        rate_hz: samples per second.

    Raises:
        ConfigError: the file is damaged, or not as the reader says.
    """
    arrays = arrays_of(path, name, without=reader.values)

    def array(key: str) -> npt.NDArray[Any]:
        if key not in arrays:
            raise ConfigError(
                f"{name}: array {key!r} is missing; the file has {', '.join(sorted({*arrays, reader.values}))}"
            )
        return arrays[key]

    named = [str(each) for each in arrays.get("channels", ())]
    divisor = np.float32(array(reader.divide_by).reshape(-1)[0] if reader.divide_by else 1)
    sensors = [_sensor(reader, one, own, path, named, divisor, rate_hz) for one, own in _asked(reader, channels)]
    values, t = sensors[0].values, sensors[0].t
    bounds = _bounds(reader, array, len(values), name)
    marks, labels = _labels(reader, array, values, bounds, classes, name, rate_hz)
    stem = name.rsplit(".", 1)[0]
    groups = _groups(reader, array, bounds, name)
    # A recording ends where the group changes, too.
    cuts = sorted({*bounds, *(np.flatnonzero(groups[1:] != groups[:-1]) + 1).tolist()})
    for index, (begin, end) in enumerate(itertools.pairwise(cuts)):
        stamps = None if t is None else t[begin:end]
        kept = np.arange(end - begin)
        if stamps is not None:
            # A clock that stands still or steps back: the runtime counts the first of equal stamps, and so do we.
            rising = np.concatenate(([True], stamps[1:] > np.maximum.accumulate(stamps)[:-1]))
            stamps, kept = stamps[rising], kept[rising]
        yield Recording(
            name=stem if len(cuts) == 2 else f"{stem}-{index}",
            group=str(groups[begin]),
            label=UNLABELLED if labels is None else labels[bisect_right(bounds, begin) - 1],
            values=values[begin:end, : 0 if reader.sensors else None][kept],
            t=stamps,
            marks=None if marks is None else marks[begin:end][kept],
            tables=_tables(sensors, channels, begin, end) if reader.sensors else (),
        )


class _Sensor(NamedTuple):
    """Samples of one sensor of a file."""

    channels: tuple[str, ...]
    values: Float32
    t: Float64 | None


def _asked(reader: NpzReader, channels: Sequence[Channel]) -> list[tuple[Sensor, list[Channel]]]:
    """List the sensors of a file with their channels: one, unless the reader names several."""
    by_name = {channel.name: channel for channel in channels if not channel.mask_of}
    asked = reader.sensors or (Sensor(channels=tuple(by_name), values=reader.values, time=reader.time),)
    brought = [channel for one in asked for channel in one.channels]
    if sorted(brought) != sorted(by_name):
        raise ConfigError(
            f"sensors bring {', '.join(brought)}; the recipe's channels are {', '.join(by_name)}: name each once"
        )
    return [(one, [by_name[channel] for channel in one.channels]) for one in asked]


def _sensor(
    reader: NpzReader,
    asked: Sensor,
    channels: Sequence[Channel],
    path: Path,
    named: Sequence[str],
    divisor: np.float32,
    rate_hz: float,
) -> _Sensor:
    """Read the samples of one sensor; `named` are the file's own names of its columns."""
    wanted = [channel.name for channel in channels]
    own = reader.sensors or set(named) & set(wanted) or len(named) != len(wanted)
    layout = RecordingLayout(
        key="all",
        # Names of a recipe's own stand for the file's, in their order.
        columns={} if own else dict(zip(wanted, named, strict=True)),
        time=asked.time or NO_TIME,
        time_unit=reader.time_unit,
        values=asked.values,
        boundaries="",
        scale=reader.scale or ((1.0,) if reader.divide_by else ()),
        rate_hz=rate_hz,
    )
    samples = read_samples(path, channels, rate_hz, layout)
    values = samples.values / divisor if reader.divide_by else samples.values
    if not np.isfinite(values).all():
        row, column = np.argwhere(~np.isfinite(values))[0].tolist()
        raise ConfigError(f"{path}: sample {row} of channel {channels[column].name} is not a finite number")
    return _Sensor(asked.channels, values, samples.t if asked.time else None)


def _tables(sensors: Sequence[_Sensor], channels: Sequence[Channel], begin: int, end: int) -> tuple[Table, ...]:
    """Cut a recording out of all sensors: samples `begin` to `end` of the first, and of others what lies nearest."""
    names, clock = [channel.name for channel in channels], sensors[0].t
    assert clock is not None
    low = (clock[begin - 1] + clock[begin]) / 2 if begin else -np.inf
    high = (clock[end - 1] + clock[end]) / 2 if end < len(clock) else np.inf
    tables = []
    for own, values, t in sensors:
        assert t is not None
        inside = (t >= low) & (t < high)
        tables.append(Table(tuple(map(names.index, own)), t[inside], values[inside]))
    return tuple(tables)


def _groups(reader: NpzReader, array: Any, bounds: Sequence[int], name: str) -> npt.NDArray[np.str_]:
    """Return the group of each sample, (samples,)."""
    samples, recordings = bounds[-1], len(bounds) - 1
    if not reader.group_column:
        return np.full(samples, find_in(reader.group, name, "group"))
    found = np.array([str(each).strip() for each in np.asarray(array(reader.group_column)).reshape(-1).tolist()])
    if len(found) not in (1, recordings, samples):
        raise ConfigError(
            f"{name}: array {reader.group_column!r} has {len(found)} entries; it needs one for the file, for each of "
            f"{recordings} recordings or {samples} samples"
        )
    if len(found) == samples:
        return found
    return np.repeat(found, samples if len(found) == 1 else np.diff(bounds))


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
    """Label of each sample, or of each recording.

    1. Events mark the samples around them.
    2. An array has a label for each sample or recording; with as many of both, the two readings mean the same.
    3. Integers are places in the list of names, all else is a name.
    """
    if reader.events:  # rule 1
        events: dict[int, Int64] = {}
        for event in reader.events:
            places = np.asarray(array(event.array), np.int64)
            if len(places) and not 0 <= places.min() <= places.max() < len(values):
                raise ConfigError(f"{name}: array {event.array!r} names samples outside the recording")
            events[class_of(event.label, classes, name)] = places
        return marks_of_events(len(values), events, reach=round(reader.reach_s * rate_hz)), None
    found = np.asarray(array(reader.label))
    if not found.ndim:
        found = found.reshape(1)  # one label for all, as numpy stores a single text or number
    if found.shape not in ((len(values),), (len(bounds) - 1,)):  # rule 2
        raise ConfigError(
            f"{name}: array {reader.label!r} has shape {found.shape}; it needs one label for each of "
            f"{len(bounds) - 1} recordings or {len(values)} samples"
        )
    names = reader.label_names or tuple(classes)
    numbers = found.dtype.kind in "iu"  # rule 3
    if numbers and len(found) and not 0 <= int(found.min()) <= int(found.max()) < len(names):
        raise ConfigError(f"{name}: array {reader.label!r} holds {found.max()}, but only {len(names)} labels are named")
    unique, inverse = np.unique(found, return_inverse=True)
    classes_of = [class_of(names[int(value)] if numbers else str(value), classes, name) for value in unique]
    labels = np.array(classes_of, np.int64)[inverse]
    return (labels, None) if found.shape == (len(values),) else (None, labels.tolist())  # rule 2
