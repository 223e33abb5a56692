"""Sparkplug B payloads written by hand, for tests: as little of protobuf as they need."""

from __future__ import annotations

import struct

FLOAT, DOUBLE = 9, 10


def varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def number(field: int, value: int) -> bytes:
    """A field with a whole number."""
    return varint(field << 3) + varint(value % 2**64)


def block(field: int, data: bytes) -> bytes:
    """A field with bytes."""
    return varint(field << 3 | 2) + varint(len(data)) + data


def metric(
    value: float | bytes | None = None,
    *,
    name: str | None = None,
    alias: int | None = None,
    ms: int | None = None,
    datatype: int | None = None,
    null: bool = False,
) -> bytes:
    """A field `metrics`; a number becomes a double, bytes are a field of their own, as `number(10, 3)`."""
    out = b"" if name is None else block(1, name.encode())
    for field, content in ((2, alias), (3, ms), (4, datatype), (7, null or None)):
        out += b"" if content is None else number(field, int(content))
    if isinstance(value, bytes):
        out += value
    elif value is not None:
        out += varint(13 << 3 | 1) + struct.pack("<d", value)
    return block(2, out)


def payload(*metrics: bytes, ms: int | None = None) -> bytes:
    return (b"" if ms is None else number(1, ms)) + b"".join(metrics) + number(3, 7)
