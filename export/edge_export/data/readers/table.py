"""Recordings in CSV and Parquet files: a column per channel, a row per sample."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from edge_export.data.dataset import UNLABELLED, Channel, Float32, Float64, Int64, Recording
from edge_export.data.readers.files import columns_of_parquet, rows_of_csv
from edge_export.data.readers.meaning import class_of, find_in, named, physical
from edge_export.data.readers.spec import TableReader
from edge_runtime.errors import ConfigError, InputError
from edge_runtime.recordings.columns import is_empty, seconds_of

BACK_S = 1.0
"""Step back of the stamps that is no disorder of a few samples."""


def read_table(
    reader: TableReader, path: Path, name: str, channels: Sequence[Channel], classes: Sequence[str]
) -> Iterator[Recording]:
    """Read the recordings of one file: one, or one for each group that follows another.

    Args:
        reader: what stands where.
        path: the file.
        name: its path within the folder.
        channels: of the model.
        classes: labels in the model's order.

    Raises:
        ConfigError: the file is damaged, or not as the reader says.
    """
    found = named(find_in(reader.label, name, "label"), reader.label_names) if reader.label else ""
    if found is None:
        return
    table = columns_of_parquet(path, name) if path.suffix == ".parquet" else _csv(path, name)

    def column(key: str) -> Sequence[Any]:
        if key not in table:
            raise ConfigError(f"{name}: column {key!r} is missing; the file has {', '.join(table)}")
        return table[key]

    wanted = [reader.columns.get(channel.name, channel.name) for channel in channels]
    values = physical(np.stack([numbers_of(column(key), key, name) for key in wanted], 1), reader.scale, channels, name)
    t = _stamps(column(reader.time), reader, name) if reader.time else None
    kept = _complete_rows(values, t, wanted, name)
    values, t = values[kept], None if t is None else t[kept]
    groups = [str(column(reader.group_column)[row]).strip() for row in kept] if reader.group_column else []
    marks: Int64 | None = None
    label = UNLABELLED
    if reader.label_column:
        texts = column(reader.label_column)
        marks = np.array([class_of(str(texts[row]).strip(), classes, name) for row in kept], np.int64)
    else:
        label = class_of(found, classes, name)
    borders = {i for i in range(1, len(groups)) if groups[i] != groups[i - 1]}
    if t is not None:
        # Where the clock begins again, another recording does, too.
        borders |= set((np.flatnonzero(np.diff(t) < -BACK_S) + 1).tolist())
    cuts = [0, *sorted(borders), len(values)]
    stem = name.rsplit(".", 1)[0]
    for index, (begin, end) in enumerate(itertools.pairwise(cuts)):
        yield Recording(
            name=stem if len(cuts) == 2 else f"{stem}-{index}",
            group=groups[begin] if groups else find_in(reader.group, name, "group"),
            label=label,
            values=values[begin:end],
            t=None if t is None else t[begin:end],
            marks=None if marks is None else marks[begin:end],
            left_out=len(next(iter(table.values()))) - len(kept) if not index else 0,
        )


def _csv(path: Path, name: str) -> Mapping[str, Sequence[str]]:
    header, *rows = rows_of_csv(path, name)
    if not rows:
        raise ConfigError(f"{name}: holds no rows")
    for number, row in enumerate(rows, start=2):
        if len(row) != len(header):
            raise ConfigError(f"{name}: line {number} has another number of columns than the header")
    return {key.strip(): column for key, column in zip(header, map(list, zip(*rows, strict=True)), strict=True)}


def numbers_of(column: Sequence[Any], key: str, name: str) -> Float64:
    """Numbers of a column, NaN for empty cells.

    Args:
        column: its cells.
        key: its name, for messages.
        name: of the file, for messages.

    Raises:
        ConfigError: a cell holds something else.
    """
    numbers = np.full(len(column), np.nan)
    for row, cell in enumerate(column):
        if is_empty(cell):
            continue
        with contextlib.suppress(TypeError, ValueError):
            numbers[row] = float(cell)
        if not np.isfinite(numbers[row]):
            raise ConfigError(f"{name}: row {row + 1} of column {key!r} holds {cell!r}, not a finite number")
    return numbers


def _stamps(column: Sequence[Any], reader: TableReader, name: str) -> Float64:
    try:
        return seconds_of(column, reader.time_unit)
    except InputError as error:
        raise ConfigError(f"{name}: column {reader.time!r}: {error}") from error


def _complete_rows(values: Float32, t: Float64 | None, columns: Sequence[str], name: str) -> Int64:
    """Find rows without an empty cell. Stamps show the gap that the others leave; without stamps they are refused."""
    complete = np.isfinite(values).all(axis=1) & (True if t is None else np.isfinite(t))
    if t is None and not complete.all():
        row, place = np.argwhere(~np.isfinite(values))[0].tolist()
        raise ConfigError(
            f"{name}: row {row + 1} of column {columns[place]!r} is empty; without stamps no row can be left out: fill "
            "it, or say which column holds the stamps (time)"
        )
    if not complete.any():
        raise ConfigError(f"{name}: every row has an empty cell")
    return np.flatnonzero(complete)
