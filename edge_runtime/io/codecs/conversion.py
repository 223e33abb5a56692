"""Conversion of readings to the units of the model, for codecs whose messages do not name their units.

Where every channel comes in the model's unit, there is no `ConvertingCodec` and so nothing to pay.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from edge_runtime import units
from edge_runtime.errors import ConfigError
from edge_runtime.io.codecs import Codec
from edge_runtime.io.codecs.numbers import samples
from edge_runtime.manifest import Channel
from edge_runtime.types import Reading


class ConvertingCodec:
    """A codec whose readings are converted.

    Args:
        codec: decodes.
        factors: factor and offset of each channel of the model.
    """

    def __init__(self, codec: Codec, factors: Sequence[tuple[float, float]]) -> None:
        self.name = codec.name
        self._codec = codec
        self._factors = np.array([factor for factor, _ in factors])
        self._offsets = np.array([offset for _, offset in factors])

    def decode(self, key: str, payload: bytes, received: float) -> list[Reading]:
        """See `edge_runtime.io.codecs.Codec`."""
        return [self._converted(reading) for reading in self._codec.decode(key, payload, received)]

    def _converted(self, reading: Reading) -> Reading:
        columns = slice(None) if reading.channels is None else list(reading.channels)
        with np.errstate(over="ignore"):  # what float32 cannot hold is refused by place
            values = (reading.values * self._factors[columns] + self._offsets[columns]).astype(np.float32)
        return reading._replace(values=samples(values.reshape(-1), values.shape[1]))


def converted(
    codec: Codec, stated: Mapping[str, str], channels: Sequence[Channel], brings: Sequence[str] = ()
) -> Codec:
    """Return the codec with the conversion that the stated units ask for; the codec itself where none is needed.

    Args:
        codec: decodes.
        stated: unit by channel name.
        channels: the model's channels, in order.
        brings: names of the channels that messages bring; empty: all.

    Raises:
        ConfigError: as `factors_of`.
    """
    factors = factors_of(codec.name, stated, channels, brings)
    return ConvertingCodec(codec, factors) if factors else codec


def factors_of(
    codec: str, stated: Mapping[str, str], channels: Sequence[Channel], brings: Sequence[str] = ()
) -> list[tuple[float, float]]:
    """Return factor and offset of each channel from the stated units to the model's; none where all are the model's.

    Raises:
        ConfigError: a unit is not known, does not convert, or is not stated; the text has the line to write.
    """
    if not stated:
        return []
    names = [channel.name for channel in channels]
    if unknown := sorted(set(stated) - set(names)):
        raise ConfigError(f"codec {codec}: units names {', '.join(unknown)}; the channels are {', '.join(names)}")
    check_stated(codec, stated, [channel for channel in channels if not brings or channel.name in brings])
    factors = [_factor(codec, stated.get(channel.name, channel.unit), channel) for channel in channels]
    return [] if set(factors) == {(1.0, 0.0)} else factors


def check_stated(codec: str, stated: Mapping[str, str], channels: Sequence[Channel]) -> None:
    """Refuse half of a statement.

    1. Where no unit is stated, values are taken as they are.
    2. Where one is, each channel with a unit needs one: a channel left out is a mistake more often than not.

    Args:
        codec: names it in errors.
        stated: unit by channel name.
        channels: those that come.

    Raises:
        ConfigError: has the line to write.
    """
    lacking = [one.name for one in channels if one.name not in stated and units.is_real(one.unit)]
    if stated and lacking:
        whole = [(channel.name, stated.get(channel.name, channel.unit)) for channel in channels]
        raise ConfigError(
            f"codec {codec}: units says nothing of {', '.join(lacking)}; if they come in the model's unit, "
            f"write {units.line(whole)} under [source.codec]"
        )


def _factor(codec: str, given: str, channel: Channel) -> tuple[float, float]:
    try:
        return units.convert(given, channel.unit)
    except units.UnitError as error:
        raise ConfigError(
            f"codec {codec}: channel {channel.name} comes in {given!r}, the model wants {channel.unit!r}: {error}; "
            f"write what the sensor sends under [source.codec], as {units.line([(channel.name, channel.unit)])}"
        ) from None
