"""Recordings in CSV and Parquet files and JSON lines: a column per channel, a row per sample."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from operator import attrgetter
from pathlib import Path

import numpy as np

from edge_export.data.dataset import UNLABELLED, Float32, Float64, Int64, Recording
from edge_export.data.readers.meaning import class_of, find_in, named
from edge_export.data.readers.samples import Samples, read_samples
from edge_export.data.readers.spec import TableReader
from edge_runtime.errors import ConfigError
from edge_runtime.io.recordings.layout import RecordingLayout
from edge_runtime.io.recordings.tables import NO_TIME
from edge_runtime.manifest import Channel
from edge_runtime.signal.windowing.recorded import Table

BACK_S = 1.0
"""Step back of the stamps that is no disorder of a few samples."""


def read_table(
    reader: TableReader, path: Path, name: str, channels: Sequence[Channel], classes: Sequence[str], rate_hz: float
) -> Iterator[Recording]:
    """Read the recordings of one file: one, or one for each group that follows another.

    Args:
        reader: what stands where.
        path: the file.
        name: its path within the folder.
        channels: the model's channels.
        classes: labels in the model's order.
        rate_hz: samples per second of a file without stamps.

    Raises:
        ConfigError: the file is damaged, or not as the reader says.
    """
    found = named(find_in(reader.label, name, "label"), reader.label_names) if reader.label else ""
    if found is None:
        return
    layout = RecordingLayout(
        columns=reader.columns,
        key="" if reader.group_column else "all",
        key_column=reader.group_column,
        time=reader.time or NO_TIME,
        time_unit=reader.time_unit,
        label=reader.label_column,
        scale=reader.scale,
        rate_hz=rate_hz,
    )
    sent = list(itertools.filterfalse(attrgetter("mask_of"), channels))
    samples = read_samples(path, sent, rate_hz, layout)
    kept = _usable_rows(samples, sent, path, reader)
    values, t = samples.values[kept], samples.t[kept] if reader.time else None
    groups = [samples.keys[row] for row in kept] if reader.group_column else []
    marks: Int64 | None = None
    label = UNLABELLED
    if reader.label_column:
        marks = np.array([class_of(samples.labels[row], classes, name) for row in kept], np.int64)
    else:
        label = class_of(found, classes, name)
    borders = {i for i in range(1, len(groups)) if groups[i] != groups[i - 1]}
    if t is not None:
        # Where the clock begins again, another recording does, too.
        borders |= set((np.flatnonzero(np.diff(t) < -BACK_S) + 1).tolist())
    cuts = [0, *sorted(borders), len(values)]
    stem = name.rsplit(".", 1)[0]
    for index, (begin, end) in enumerate(itertools.pairwise(cuts)):
        own, tables = _sensors(reader, t, values, channels, slice(begin, end))
        yield Recording(
            name=stem if len(cuts) == 2 else f"{stem}-{index}",
            group=groups[begin] if groups else find_in(reader.group, name, "group"),
            label=label,
            values=own,
            t=None if t is None else t[begin:end],
            tables=tables,
            marks=None if marks is None else marks[begin:end],
            left_out=len(samples.t) - len(kept) if not index else 0,
        )


def _usable_rows(samples: Samples, channels: Sequence[Channel], path: Path, reader: TableReader) -> Int64:
    """Find rows without an empty cell; of partial ones, those with a value.

    Stamps show the gap that the others leave; without stamps they are refused.
    """
    filled = np.isfinite(samples.values)
    complete = (filled.any(axis=1) if reader.partial else filled.all(axis=1)) & np.isfinite(samples.t)
    if not reader.time and not complete.all():
        row, place = np.argwhere(~filled)[0].tolist()
        raise ConfigError(
            f"{path}: {samples.places[row]}: channel {channels[place].name} is empty; without stamps no row can be "
            "left out: fill it, or say which column holds the stamps (time)"
        )
    if not complete.any():
        raise ConfigError(f"{path}: every row has an empty cell")
    return np.flatnonzero(complete)


def _sensors(
    reader: TableReader, t: Float64 | None, values: Float32, channels: Sequence[Channel], rows: slice
) -> tuple[Float32, tuple[Table, ...]]:
    """Return the rows; of partial ones, no column and a table for each sensor.

    Channels whose cells are filled in the same rows come from one sensor.
    """
    values = values[rows]
    if t is None or not reader.partial:
        return values, ()
    t = t[rows]
    columns = [column for column, channel in enumerate(channels) if not channel.mask_of]
    together: dict[bytes, list[int]] = {}
    for place in range(len(columns)):
        together.setdefault(np.isfinite(values[:, place]).tobytes(), []).append(place)
    tables = []
    for places in together.values():
        filled = np.isfinite(values[:, places[0]])
        tables.append(Table(tuple(columns[place] for place in places), t[filled], values[filled][:, places]))
    return values[:, :0], tuple(tables)
