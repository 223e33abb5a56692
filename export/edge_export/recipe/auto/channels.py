"""Channel finder: columns that hold a sensor's numbers, their units, and the spread of their values."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from edge_export.data.dataset import Float64
from edge_export.recipe.auto.contents import Content, Kind, is_number
from edge_export.recipe.auto.hints import Hints
from edge_export.recipe.auto.names import LABEL_COLUMNS, group_columns, shown
from edge_runtime import units
from edge_runtime.errors import ConfigError
from edge_runtime.io.recordings.columns import is_empty, is_time

_INDEX_COLUMNS = ("", "index", "idx", "unnamed: 0", "row", "id_row")


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
class Channels:
    """Channels, and the columns that were left out."""

    columns: tuple[Column, ...]
    note: str


def find_channels(kind: Kind, files: Sequence[Content], hints: Hints, others: set[str]) -> Channels:
    """Find the channels, the same in all files.

    Args:
        kind: the files' kind.
        files: all of them.
        hints: what is known already.
        others: columns that hold something else: stamps, labels, groups.

    Raises:
        ConfigError: there are none, a file lacks one, a column mixes numbers with texts, or one has no unit.
    """
    if kind == "wav":
        return Channels(columns=(Column(name="sound", source="", unit="1"),), note="16-bit sound")
    note = "as --channels says"
    if kind == "npz":
        names, values = _names_in_npz(files[0], hints), _values_array(files[0])
        sources, note = [values] * len(names), f"columns of array {values!r}"
    else:
        sources = list(hints.channels)
        if not sources:
            sources, left_out = _numeric(files, others)
            note = "columns that hold numbers" + (f"; left out: {', '.join(left_out)}" if left_out else "")
        names = tuple(sources)
        for file in files:
            if missing := [source for source in sources if source not in file.columns]:
                raise ConfigError(f"{file.name}: has no column {missing[0]!r}; it has {', '.join(file.columns)}")
    if not sources:
        raise ConfigError(f"{files[0].name}: no column holds numbers; name the channels with --channels")
    return Channels(columns=_with_units(names, sources, hints), note=note)


def _names_in_npz(file: Content, hints: Hints) -> tuple[str, ...]:
    """Name the columns of an NPZ's samples: as the user said, as its array ``channels`` does, or c0, c1, ..."""
    values = _values_array(file)
    width = 1 if file.columns[values].ndim == 1 else file.columns[values].shape[1]
    if hints.channels:
        if len(hints.channels) != width:
            raise ConfigError(
                f"{file.name}: array {values!r} has {width} columns; --channels names {len(hints.channels)}"
            )
        return hints.channels
    stated = np.asarray(file.columns.get("channels", ())).reshape(-1)
    return tuple(map(str, stated.tolist())) if len(stated) == width else tuple(f"c{i}" for i in range(width))


def _with_units(names: Sequence[str], sources: Sequence[str], hints: Hints) -> tuple[Column, ...]:
    found = []
    for name, source in zip(names, sources, strict=True):
        plain, unit = units.split_name(name)
        unit = hints.units.get(plain) or hints.units.get(name) or unit or hints.units.get("*", "")
        if not unit:
            raise ConfigError(
                f"channel {plain!r}: in which unit? say --unit {plain}=UNIT, or --unit UNIT for all; it stands in the "
                "bundle, and what a device sends must be in it"
            )
        found.append(Column(name=plain, source=source, unit=unit))
    return tuple(found)


def _numeric(files: Sequence[Content], others: set[str]) -> tuple[list[str], list[str]]:
    """Return columns of the first file that are channels, and those left out, with the reason.

    1. Empty columns, texts and counts of rows are left out with a word; an index, a time or another role, without.
    2. A text among numbers is a slip to mend, or a matter for --channels: it is refused.
    3. Numbers called like a label or a group are rarely what a sensor measures; where they are, --channels says so.
    """
    sources: list[str] = []
    left_out: list[str] = []
    otherwise = {key for key in files[0].columns if key.lower() in (*LABEL_COLUMNS, "id", "group", "target", "state")}
    otherwise.update(*group_columns(list(files[0].columns)).values())
    for key, column in files[0].columns.items():
        if key in others:  # rule 1
            continue
        cells = [cell for cell in column if not is_empty(cell)]
        numbers = sum(map(is_number, cells))
        if key.lower() in _INDEX_COLUMNS or is_time(key):  # rule 1
            continue
        if not cells:  # rule 1
            left_out.append(f"{key} (empty)")
        elif not numbers:  # rule 1
            left_out.append(f"{key} (texts)")
        elif numbers < len(cells):  # rule 2
            row = next(i for i, cell in enumerate(column, start=1) if not is_empty(cell) and not is_number(cell))
            raise ConfigError(
                f"{files[0].name}: column {key!r} holds numbers, but {column[row - 1]!r} in row {row}; mend it, or "
                "name the channels with --channels"
            )
        elif _counts_rows(cells):  # rule 1
            left_out.append(f"{key} (counts rows)")
        elif key in otherwise:  # rule 3
            left_out.append(f"{key} (called like a label or a group)")
        else:
            sources.append(key)
    return sources, left_out


def _counts_rows(cells: Sequence[object]) -> bool:
    return len(cells) > 2 and set(np.diff(np.array(cells, np.float64)).tolist()) == {1.0}


def empty_rows(files: Sequence[Content], channels: Sequence[Column], time: str) -> str:
    """Describe rows that lack a channel or a stamp; empty if none does.

    Raises:
        ConfigError: there are no stamps, so that no row can be left out; or most rows of a file lack one.
    """
    lines = []
    for file in files:
        keys = [*(channel.source for channel in channels), *([time] if time else [])]
        empty = np.array([[is_empty(cell) for cell in file.columns[key]] for key in keys])
        count, column = int(empty.any(axis=0).sum()), keys[int(empty.sum(axis=1).argmax())]
        if not count:
            continue
        if not time:
            raise ConfigError(
                f"{file.name}: {count} rows have an empty cell, most in {column!r}; without stamps no row can be left "
                "out: fill them, or name the stamps with --time-column"
            )
        if 2 * count > file.samples:
            raise ConfigError(
                f"{file.name}: {count} of {file.samples} rows have an empty cell, most in {column!r}; leave that "
                "column out with --channels, or bring what was measured at different times into common rows"
            )
        lines.append(f"{file.name}: {count} of {file.samples} rows")
    return f"rows with an empty cell are left out: {shown(lines, 3)}" if lines else ""


def _values_array(file: Content) -> str:
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


def spread_of(kind: Kind, files: Sequence[Content], channels: Sequence[Column]) -> tuple[float, ...]:
    """Return the standard deviation of each channel over all files without empty cells, in three digits; none of sound.

    Raises:
        ConfigError: a value is no finite number; names the file and the row.
    """
    if kind == "wav":
        return ()
    values = []
    for file in files:
        if kind == "npz":
            table = np.asarray(file.columns[channels[0].source], np.float64).reshape(-1, len(channels))
            table = table * np.asarray(file.columns.get("scale", 1.0), np.float64)
            if not np.isfinite(table).all():
                row, column = np.argwhere(~np.isfinite(table))[0].tolist()
                raise ConfigError(f"{file.name}: row {row + 1} of {channels[column].name!r} is not a finite number")
        else:
            table = np.stack([_numbers_of(file.columns[c.source], c.source, file.name) for c in channels], 1)
        values.append(table)
    return tuple(float(f"{value:.3g}") for value in np.nanstd(np.concatenate(values), axis=0))


def _numbers_of(column: Sequence[Any], key: str, name: str) -> Float64:
    """Numbers of a column, NaN for empty cells.

    Args:
        column: its cells.
        key: its name, for messages.
        name: the file's name, for messages.

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
