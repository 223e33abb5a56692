"""Codec of messages that bring a fixed part of the model's channels, as topics of their own do."""

from __future__ import annotations

from collections.abc import Sequence

from edge_runtime.io.codecs import Codec
from edge_runtime.types import Reading


class PlacedCodec:
    """A codec of some channels, whose readings say which channels of the model those are.

    Args:
        codec: was loaded for these channels alone.
        columns: channel of the model for each of them.
    """

    def __init__(self, codec: Codec, columns: Sequence[int]) -> None:
        self.name = codec.name
        self._codec = codec
        self._columns = tuple(columns)

    def decode(self, key: str, payload: bytes, received: float) -> list[Reading]:
        """See `edge_runtime.io.codecs.Codec`."""
        return [
            reading._replace(channels=self._place(reading)) for reading in self._codec.decode(key, payload, received)
        ]

    def _place(self, reading: Reading) -> tuple[int, ...]:
        columns = self._columns
        return columns if reading.channels is None else tuple(columns[channel] for channel in reading.channels)
