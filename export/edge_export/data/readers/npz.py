"""Recordings in NPZ files: one or several a file, a label for each of them or for each sample."""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from edge_export.data.dataset import UNLABELLED, Channel, Float32, Int64, Recording
from edge_export.data.labels import marks_of_events
from edge_export.data.readers.files import arrays_of
from edge_export.data.readers.meaning import class_of, find_in, physical
from edge_export.data.readers.spec import NpzReader
from edge_runtime.codecs.numbers import UNITS_PER_S
from edge_runtime.errors import ConfigError


def read_npz(
    reader: NpzReader, path: Path, name: str, channels: Sequence[Channel], classes: Sequence[str], rate_hz: float
) -> Iterator[Recording]:
    """Read the recordings of one file.

    Args:
        reader: what stands where.
        path: the file.
        name: its path within the folder.
        channels: of the model.
        classes: labels in the model's order.
        rate_hz: samples per second.

    Raises:
        ConfigError: the file is damaged, or not as the reader says.
    """
    arrays = arrays_of(path, name)

    def array(key: str) -> npt.NDArray[Any]:
        if key not in arrays:
            raise ConfigError(f"{name}: array {key!r} is missing; the file has {', '.join(sorted(arrays))}")
        return arrays[key]

    values = physical(array(reader.values), reader.scale, channels, name)
    if reader.divide_by:
        values = values / np.float32(array(reader.divide_by).reshape(-1)[0])
    if not np.isfinite(values).all():
        row, column = np.argwhere(~np.isfinite(values))[0].tolist()
        raise ConfigError(f"{name}: sample {row} of channel {channels[column].name} is not a finite number")
    t = None
    if reader.time:
        t = array(reader.time).astype(np.float64) / UNITS_PER_S[reader.time_unit]
        if t.shape != (len(values),):
            raise ConfigError(f"{name}: array {reader.time!r} must hold one stamp for each of {len(values)} samples")
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
            values=values[begin:end][kept],
            t=stamps,
            marks=None if marks is None else marks[begin:end][kept],
        )


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
    """Label of each sample, or of each recording."""
    if reader.events:
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
    classes_of = [class_of(names[int(value)] if numbers else str(value), classes, name) for value in unique]
    labels = np.array(classes_of, np.int64)[inverse]
    # With as many recordings as samples the two readings of the array mean the same.
    return (labels, None) if found.shape == (len(values),) else (None, labels.tolist())
