"""Recordings in CSV and Parquet files: a column per channel, a row per sample."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from edge_runtime.errors import ConfigError
from export.data import UNLABELLED, Channel, Float64, Int64, Recording
from export.readers.files import columns_of_parquet, rows_of_csv
from export.readers.meaning import class_of, find_in, named, physical
from export.readers.spec import UNITS_PER_S, TableReader


def read_table(
    reader: TableReader, path: Path, name: str, channels: Sequence[Channel], classes: Sequence[str]
) -> Iterator[Recording]:
    """Recordings of one file: one, or one for each group that follows another.

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
    values = physical(np.stack([_numbers(column(key), key, name) for key in wanted], 1), reader.scale, channels, name)
    t: Float64 | None = None
    if reader.time:
        t = _numbers(column(reader.time), reader.time, name) / UNITS_PER_S[reader.time_unit]
    groups = [str(group) for group in column(reader.group_column)] if reader.group_column else []
    marks: Int64 | None = None
    label = UNLABELLED
    if reader.label_column:
        marks = np.array([class_of(str(text), classes, name) for text in column(reader.label_column)], np.int64)
    else:
        label = class_of(found, classes, name)
    cuts = [0, *(i for i in range(1, len(groups)) if groups[i] != groups[i - 1]), len(values)]
    stem = name.rsplit(".", 1)[0]
    for index, (begin, end) in enumerate(itertools.pairwise(cuts)):
        yield Recording(
            name=stem if len(cuts) == 2 else f"{stem}-{index}",
            group=groups[begin] if groups else find_in(reader.group, name, "group"),
            label=label,
            values=values[begin:end],
            t=None if t is None else t[begin:end],
            marks=None if marks is None else marks[begin:end],
        )


def _csv(path: Path, name: str) -> Mapping[str, Sequence[str]]:
    header, *rows = rows_of_csv(path, name)
    if not rows:
        raise ConfigError(f"{name}: holds no rows")
    for number, row in enumerate(rows, start=2):
        if len(row) != len(header):
            raise ConfigError(f"{name}: line {number} has another number of columns than the header")
    return {key.strip(): column for key, column in zip(header, map(list, zip(*rows, strict=True)), strict=True)}


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
