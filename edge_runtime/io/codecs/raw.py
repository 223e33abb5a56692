"""Bare samples: the form that costs a microcontroller nothing to write and us nothing to read.

A message is an optional header, then numbers as `RawConfig.dtype` says, interleaved sample by sample::

    ┌── header_bytes ──┬──────── n_samples * n_channels numbers ────────┐
    │ time │ (skipped) │ ax0 ay0 az0  ax1 ay1 az1  ...                  │
    └──────┴───────────┴────────────────────────────────────────────────┘

The key has to come from the topic. A message without a time field is stamped so that its last sample was taken as it
arrived. Little-endian float32 without scaling is not copied: the reading's values are a view of the payload.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import repeat
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from edge_runtime.errors import ConfigError, InputError
from edge_runtime.io.codecs.cells import DTYPES, Dtype
from edge_runtime.io.codecs.conversion import factors_of
from edge_runtime.io.codecs.foreign import unpacks
from edge_runtime.io.codecs.numbers import EARLIEST_S, LATEST_S, MAX_BYTES, MAX_SAMPLES, arrival, samples
from edge_runtime.io.codecs.time_field import TimeField, TimeReader, field_bytes
from edge_runtime.manifest import Channel
from edge_runtime.types import Float32, Float64, Reading

_PACKED = (b"\x1f", b"x")
"""First bytes of gzip and zlib data, which can have the size of samples by chance."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RawConfig:
    """Layout of raw messages."""

    type: Literal["raw"] = "raw"
    dtype: Dtype = "float32"
    byte_order: Literal["little", "big"] = "little"
    """Order of the bytes in numbers and time field."""
    time: TimeField = "none"
    """First field of the message: the first sample's stamp since 1970 in seconds, ns, us or ms; ``u32_ms`` also a
    device's milliseconds since power-on."""
    header_bytes: int = 0
    """Bytes before the samples, the time field included; 0: the time field alone."""
    scale: tuple[float, ...] = ()
    """Physical value = number * scale + offset: one factor for all channels, or one per channel."""
    offset: tuple[float, ...] = ()
    units: dict[str, str] = field(default_factory=dict)
    """Channel name of the model to the unit of the physical value; it is converted to the model's."""
    rate_hz: float = 0.0
    """Samples per second within a message that has one stamp, or none; 0: the model's own rate."""
    max_bytes: int = MAX_BYTES
    max_samples: int = MAX_SAMPLES

    def __post_init__(self) -> None:
        if self.header_bytes and self.header_bytes < self.time_bytes:
            raise ValueError(f"header_bytes must be 0 or at least {self.time_bytes}, the size of the time field")
        if not 0 <= self.rate_hz <= 1e6:
            raise ValueError("rate_hz must be 0 (the model's rate) to 1e6")
        if not 0 <= self.header_bytes < self.max_bytes or self.max_samples < 1:
            raise ValueError("header_bytes must be at least 0 and below max_bytes, max_samples at least 1")
        if any(not 0 < abs(factor) < 1e30 for factor in self.scale) or any(abs(term) >= 1e30 for term in self.offset):
            raise ValueError("scale must not be 0, and scale and offset must lie within +-1e30")

    @property
    def time_bytes(self) -> int:
        """Size of the time field."""
        return field_bytes(self.time)


class RawCodec:
    """Decodes bare samples.

    Args:
        config: the layout.
        names: the model's channels, in order.
        rate_hz: the model's own rate; 0 where unknown.

    Raises:
        ConfigError: scale or offset do not fit the number of channels.
    """

    name = "raw"

    def __init__(self, config: RawConfig, names: Sequence[str], rate_hz: float = 0.0) -> None:
        mark = "<" if config.byte_order == "little" else ">"
        self._n_channels = len(names)
        self._dtype = np.dtype(mark + DTYPES[config.dtype])
        self._header = config.header_bytes or config.time_bytes
        self._sample_bytes = self._dtype.itemsize * len(names)
        self._max_bytes = config.max_bytes
        self._max_samples = config.max_samples
        self._scale = _per_channel(config.scale, len(names), "scale")
        self._offset = _per_channel(config.offset, len(names), "offset")
        self._as_it_is = self._dtype == np.float32 and self._scale is None and self._offset is None
        self._period_s = 1 / config.rate_hz if config.rate_hz else 0.0
        self._arrival_period_s = self._period_s or (1 / rate_hz if rate_hz else 0.0)
        self._time = config.time
        self._time_dtype = np.dtype(f"{mark}f8")
        self._stamp = None if config.time == "none" else TimeReader(config.time, mark)

    def decode(self, key: str, payload: bytes, received: float) -> list[Reading]:
        """See `edge_runtime.io.codecs.Codec`."""
        size = len(payload) - self._header
        n = size // self._sample_bytes
        if size <= 0 or n * self._sample_bytes != size or n > self._max_samples or len(payload) > self._max_bytes:
            raise self._wrong_size(len(payload))
        if payload[:1] in _PACKED and unpacks(payload):
            raise InputError("compressed", "the payload is gzip or zlib data")
        if not key:
            raise InputError("no_key", "a raw message names no key; take it from the topic")
        flat = np.frombuffer(payload, self._dtype, -1, self._header)
        values = samples(flat if self._as_it_is else self._physical(flat), self._n_channels)
        t = arrival(received, n, self._arrival_period_s) if self._stamp is None else self._stamp(payload, received)
        return [Reading(key, t, values, self._period_s)]

    def decode_many(self, messages: Sequence[tuple[str, bytes]], received: float) -> list[Reading] | None:
        """Decode messages that arrived together, at a third of the cost of one by one.

        Args:
            messages: key and payload of each.
            received: wall-clock seconds of arrival.

        Returns:
            One reading per message, in order, views of one block; None where they differ in size, need scaling, or one
            of them has to be refused: then each is decoded alone.
        """
        keys, payloads = zip(*messages, strict=True)
        size = len(payloads[0])
        body = size - self._header
        n = body // self._sample_bytes
        if (
            not self._as_it_is
            or self._time not in ("f64", "none")
            or not all(keys)
            or payloads[0][:1] in _PACKED
            or set(map(len, payloads)) != {size}
            or not 0 < body == n * self._sample_bytes
            or n > self._max_samples
            or size > self._max_bytes
        ):
            return None
        joined = b"".join(payloads)
        shape = (len(payloads), n, self._n_channels)
        block: Float32 = np.ndarray(shape, self._dtype, joined, self._header, (size, self._sample_bytes, 4))
        if 0 in np.isfinite(block).tobytes():
            return None
        stamps: Iterable[float]
        if self._time == "none":
            stamps = repeat(arrival(received, n, self._arrival_period_s))
        else:
            t: Float64 = np.ndarray(shape[:1], self._time_dtype, joined, 0, (size,))
            if not (t.min() >= EARLIEST_S and t.max() < LATEST_S):
                return None
            stamps = t.tolist()
        # As Reading(...) does it, without a Python-level call for each.
        return list(map(tuple.__new__, repeat(Reading), zip(keys, stamps, block, repeat(self._period_s), repeat(None))))

    def _physical(self, flat: npt.NDArray[Any]) -> Float32:
        with np.errstate(over="ignore", invalid="ignore"):  # what float32 cannot hold is refused by `samples`
            return self._scaled(flat)

    def _scaled(self, flat: npt.NDArray[Any]) -> Float32:
        rows: Float32 = flat.reshape(-1, self._n_channels)
        rows = rows.astype(np.float32) if self._scale is None else np.multiply(rows, self._scale, dtype=np.float32)
        if self._offset is not None:
            rows += self._offset
        return rows.reshape(-1)

    def _wrong_size(self, size: int) -> InputError:
        body = size - self._header
        if body == 0 or size == 0:
            return InputError("empty", "no samples in the message")
        if size > self._max_bytes or body > self._max_samples * self._sample_bytes:
            return InputError(
                "too_large",
                f"{size} bytes; at most {self._max_bytes} and {self._max_samples} samples are allowed in a message",
            )
        if body < 0:
            return InputError("malformed", f"{size} bytes are shorter than the header of {self._header}")
        return InputError(
            "wrong_size",
            f"{body} bytes of samples are not a multiple of {self._sample_bytes}, "
            f"which {self._n_channels} channels of {self._dtype.name} take",
        )


def in_units_of(config: RawConfig, channels: Sequence[Channel]) -> RawConfig:
    """Return the layout with the conversion to the model's units in `RawConfig.scale` and `RawConfig.offset`.

    Raises:
        ConfigError: a stated unit does not fit; the text has the line to write.
    """
    factors = factors_of("raw", config.units, channels)
    if not factors:
        return config
    n = len(channels)
    scale, offset = config.scale or (1.0,), config.offset or (0.0,)
    scale, offset = (one * n if len(one) == 1 else one for one in (scale, offset))
    return replace(
        config,
        scale=tuple(one * factor for one, (factor, _) in zip(scale, factors, strict=False)),
        offset=tuple(one * factor + more for one, (factor, more) in zip(offset, factors, strict=False)),
    )


def _per_channel(factors: tuple[float, ...], channels: int, what: str) -> Float32 | None:
    if not factors:
        return None
    if len(factors) not in (1, channels):
        raise ConfigError(f"codec raw: {what} needs 1 or {channels} numbers, one per channel; got {len(factors)}")
    return np.array(factors if len(factors) == channels else factors * channels, np.float32)
