"""Time field at the start of a binary message: how many bytes, and which moment."""

from __future__ import annotations

import struct
from typing import Literal

from edge_runtime.io.codecs.numbers import check_stamp

TimeField = Literal["none", "f64", "u64_ns", "u64_us", "u64_ms", "u32_ms"]
"""``u32_ms`` holds the low 32 bits of a stamp in milliseconds, or a device's milliseconds since power-on: of all the
moments it may mean, 49.7 days apart, the one nearest to the arrival is taken. Stamps of one device then stay evenly
spaced over a wrap; with time since power-on they are off by a constant of up to 24.9 days."""

# Code of the struct module, units per second.
_FIELDS: dict[TimeField, tuple[str, float]] = {
    "f64": ("d", 1.0),
    "u64_ns": ("Q", 1e9),
    "u64_us": ("Q", 1e6),
    "u64_ms": ("Q", 1e3),
    "u32_ms": ("I", 1e3),
}
_U32_SPAN_S = 2**32 / 1e3


def field_bytes(kind: TimeField) -> int:
    """Return the size of a time field."""
    return 0 if kind == "none" else struct.calcsize("<" + _FIELDS[kind][0])


class TimeReader:
    """Reads the time field of messages.

    Args:
        kind: the field's kind; any but ``none``.
        mark: byte order as the struct module has it, ``<`` or ``>``.
    """

    def __init__(self, kind: TimeField, mark: str) -> None:
        code, self._units_per_s = _FIELDS[kind]
        self._wraps = kind == "u32_ms"
        self._unpack = struct.Struct(mark + code).unpack_from

    def __call__(self, payload: bytes, received: float) -> float:
        """Return the stamp that a message begins with, seconds.

        Raises:
            InputError: ``bad_time``.
        """
        t: float = self._unpack(payload)[0] / self._units_per_s
        if self._wraps:
            t += round((received - t) / _U32_SPAN_S) * _U32_SPAN_S
        return check_stamp(t)
