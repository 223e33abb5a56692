"""Which columns are channels, in which unit, and how far their values spread."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from edge_runtime.errors import ConfigError
from export.auto.contents import Content, Kind, is_number
from export.auto.wishes import Wishes

_INDEX_COLUMNS = ("", "index", "idx", "unnamed: 0", "row", "id_row")
_UNIT = re.compile(r"^(.*?)\s*[\[(]([^\])]+)[\])]\s*$")


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


def channels_of(kind: Kind, files: Sequence[Content], wishes: Wishes, others: set[str]) -> tuple[Column, ...]:
    """The channels, the same in all files.

    Args:
        kind: of the files.
        files: all of them.
        wishes: what is known already.
        others: columns that hold something else: stamps, labels, groups.

    Raises:
        ConfigError: there are none, a file lacks one, or one has no unit.
    """
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
            if key not in others and key.lower() not in _INDEX_COLUMNS and all(map(is_number, column[:50]))
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
    """Standard deviation of each channel over all files, in three digits; none of sound.

    Raises:
        ConfigError: a value is no finite number; names the file and the row.
    """
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


def _floats(file: Content, source: str) -> np.ndarray:
    try:
        return np.asarray(file.columns[source], np.float64)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{file.name}: column {source!r} holds something else than numbers: {error}") from error
