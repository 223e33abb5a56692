"""Blocks of rows, and the columns of a table by their role. See `edge_runtime.io.recordings.reader`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from edge_runtime import units
from edge_runtime.errors import ConfigError
from edge_runtime.io.recordings.columns import TIME_COLUMNS, time_positions
from edge_runtime.manifest import Channel, InputContract
from edge_runtime.types import Float32, Float64

if TYPE_CHECKING:
    from edge_runtime.io.recordings.layout import RecordingLayout

KEY = "key"
"""Name of a column of keys, where none is configured."""

NO_TIME = "-"
"""In place of the name of a column of stamps: there is none, whatever columns are called."""

ROWS = 8192
"""Rows in a block: what is in memory at a time."""


class Block(NamedTuple):
    """Rows that follow one another."""

    t: Float64
    """(n,) seconds."""
    values: Float32
    """(n, `channels`); may hold NaN and infinity."""
    keys: str | list[str]
    """One for all rows, or one for each."""
    places: Sequence[int]
    """Number of each row in the file, counted from 1."""
    unit: str
    """Unit of `places`: ``line`` or ``row``."""
    labels: str | list[str] = ""
    """One for all rows, or one for each; empty where there is none."""
    channels: tuple[int, ...] | None = None
    """Channels of the model that `values` holds, in that order; None: all."""


class Columns(NamedTuple):
    """Positions of a table's columns, by their role."""

    time: int | None
    key: int | None
    label: int | None
    channels: list[int]
    present: tuple[int, ...]
    """Channels of the model that `channels` are the columns of: all that sensors send, unless the file is partial."""

    def names(self, header: Sequence[str]) -> dict[int, str]:
        """Return the name of each channel's column, by the channel's position in the model."""
        return {channel: header[place] for channel, place in zip(self.present, self.channels, strict=True)}


def _position(path: Path, header: Sequence[str], name: str, what: str, setting: str) -> int:
    if header.count(name) == 1:
        return header.index(name)
    problem = "is there twice" if name in header else "is missing"
    shown = ", ".join(header[:20]) + (", ..." if len(header) > 20 else "")
    raise ConfigError(f"{path}: column {name!r} ({what}) {problem}; the file has {shown}; set {setting}")


def find_channels(
    path: Path, header: Sequence[str], contract: InputContract, layout: RecordingLayout
) -> tuple[list[int], tuple[int, ...]]:
    """Find the columns of the model's channels, in the model's order.

    Returns:
        Positions of the columns; the channels that they are of: all that sensors send, or some if the file is partial.

    Raises:
        ConfigError: a column is missing or there twice, or the layout maps a channel that the model does not have.
    """
    names = [channel.name for channel in contract.channels]
    if unknown := sorted(set(layout.columns) - set(names)):
        raise ConfigError(f"columns maps {', '.join(unknown)}; the model's channels are {', '.join(names)}")
    wanted = {i: layout.columns.get(name) or _column_of(header, name) for i, name in enumerate(names)}
    present = [i for i in sent(contract) if not layout.partial or wanted[i] in header] or sent(contract)
    places = [_position(path, header, wanted[i], f"channel {names[i]}", "columns") for i in present]
    return places, tuple(present)


def sent(contract: InputContract) -> list[int]:
    """List the channels that sensors send: all but masks."""
    return [i for i, channel in enumerate(contract.channels) if not channel.mask_of]


def of_all(present: tuple[int, ...], contract: InputContract) -> tuple[int, ...] | None:
    """Return the channels of a reading as `Reading.channels` has them: None where they are all."""
    return None if len(present) == len(contract.channels) else present


def _column_of(header: Sequence[str], name: str) -> str:
    """Find the column that is called like a channel, or like it with a unit behind."""
    if name not in header:
        with_unit = [column for column in header if units.split_name(column)[0] == name]
        if len(with_unit) == 1:
            return with_unit[0]
    return name


def find_columns(path: Path, header: Sequence[str], contract: InputContract, layout: RecordingLayout) -> Columns:
    """Find the columns of a table by their role.

    Raises:
        ConfigError: one is missing or there twice, or nothing says where the stamps are.
    """
    channels, present = find_channels(path, header, contract, layout)
    key = _key_position(path, header, channels, layout)
    # Of files with some channels each, one may have the labels for all.
    labelled = layout.label in header if layout.partial else layout.label
    label = _position(path, header, layout.label, "label", "label") if labelled else None
    if layout.time and layout.time != NO_TIME:
        return Columns(_position(path, header, layout.time, "time", "time"), key, label, channels, present)
    likely = [] if layout.time else time_positions(header, [*channels, key, label])
    if len(likely) > 1:
        raise ConfigError(f"{path}: which is the time, {' or '.join(header[i] for i in likely)}? set time")
    if not likely and not layout.rate_hz:
        raise ConfigError(f"{path}: no column is called {', '.join(TIME_COLUMNS[:6])} or the like; set time or rate_hz")
    return Columns(likely[0] if likely else None, key, label, channels, present)


def _key_position(path: Path, header: Sequence[str], channels: list[int], layout: RecordingLayout) -> int | None:
    """Find the column of keys: the one that is named, or else the one called ``key``."""
    if layout.key:
        return None
    if layout.key_column:
        return _position(path, header, layout.key_column, "key", "key_column")
    called = [place for place, name in enumerate(header) if name.strip().lower() == KEY and place not in channels]
    return called[0] if len(called) == 1 else None


class ToPhysical(NamedTuple):
    """From the numbers of a table to the units of the model; None changes nothing."""

    scale: Float32 | None
    """(channels,) factors to a physical unit."""
    units: tuple[Float64, Float64] | None
    """(channels,) factors and offsets from the units that are stated to the model's."""

    def __call__(self, values: npt.NDArray[Any]) -> Float32:
        """Convert numbers, (n, channels); what float32 does not hold becomes infinite."""
        with np.errstate(over="ignore", invalid="ignore"):  # too large becomes infinite, and such rows are refused
            result: Float32 = np.ascontiguousarray(values, np.float32)
            if self.scale is not None:
                result = result * self.scale
            if self.units is not None:
                factors, offsets = self.units
                result = np.asarray(result * factors + offsets, np.float32)
            return result


def to_physical(
    path: Path,
    contract: InputContract,
    layout: RecordingLayout,
    columns: Mapping[int, str],
    scale: Float32 | None = None,
) -> ToPhysical:
    """Find how the numbers of a table become the model's.

    A channel whose unit neither the layout nor its column states is taken as it is.

    Args:
        path: the file's path, for messages.
        contract: channels and units of the model.
        layout: states factors and units.
        columns: name of each channel's column, which may state a unit, too, by the channel's position in the model.
        scale: factors that the file itself has, where the layout has none.

    Raises:
        ConfigError: the number of factors does not fit the model, or a unit does not convert.
    """
    names = [channel.name for channel in contract.channels]
    if unknown := sorted(set(layout.units) - set(names)):
        raise ConfigError(f"units names {', '.join(unknown)}; the model's channels are {', '.join(names)}")
    if layout.scale:
        if len(layout.scale) not in (1, len(names)):
            raise ConfigError(
                f"{path}: scale needs 1 or {len(names)} factors, one per channel, not {len(layout.scale)}"
            )
        factors = layout.scale if len(layout.scale) == len(names) else layout.scale * len(names)
        scale = np.array([factors[i] for i in columns], np.float32)
    pairs = [
        _conversion(path, contract.channels[i], layout.units.get(names[i]) or units.in_name(column))
        for i, column in columns.items()
    ]
    if set(pairs) == {(1.0, 0.0)}:
        return ToPhysical(scale, None)
    return ToPhysical(scale, (np.array([factor for factor, _ in pairs]), np.array([offset for _, offset in pairs])))


def _conversion(path: Path, channel: Channel, stated: str) -> tuple[float, float]:
    """Find factor and offset of a channel from the unit that is stated to the model's."""
    if not stated or not units.is_real(channel.unit):
        return 1.0, 0.0
    try:
        return units.convert(stated, channel.unit)
    except units.UnitError as error:
        raise ConfigError(
            f"{path}: channel {channel.name} comes in {stated!r}, the model wants {channel.unit!r}: {error}; state "
            f"what the file has: {units.line([(channel.name, channel.unit)])}"
        ) from None
