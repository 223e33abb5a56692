"""Fields of a Protocol Buffers message, without its schema's compiler (https://protobuf.dev/programming-guides/encoding)."""

from __future__ import annotations

import struct
from collections.abc import Iterator

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
"""Wire types; groups (3 and 4) are refused, as no message of today has them."""

_SIZES = {FIXED64: 8, FIXED32: 4}


def fields(view: memoryview) -> Iterator[tuple[int, int, int | memoryview]]:
    """Iterate over the fields of one message, in the order of its bytes.

    Yields:
        Field number, wire type, and value: a whole number for `VARINT`, else a view of the bytes, nothing copied.

    Raises:
        ValueError: it is no such message, or is cut short.
    """
    place, end = 0, len(view)
    while place < end:
        tag, place = _varint(view, place)
        number, wire = tag >> 3, tag & 7
        value: int | memoryview
        if wire == VARINT:
            value, place = _varint(view, place)
        elif wire in (BYTES, FIXED64, FIXED32):
            size = _SIZES.get(wire, -1)
            if size < 0:
                size, place = _varint(view, place)
            value, place = view[place : place + size], place + size
        else:
            raise ValueError("not a protobuf message")
        if place > end or not 0 < number < 2**29:
            raise ValueError("cut short, or no protobuf message: a field reaches beyond its end")
        yield number, wire, value


def _varint(view: memoryview, place: int) -> tuple[int, int]:
    value = shift = 0
    while shift < 70 and place < len(view):
        byte = view[place]
        value |= (byte & 0x7F) << shift
        place += 1
        if byte < 0x80:
            return value, place
        shift += 7
    raise ValueError("cut short, or no protobuf message: a number without an end")


def uint(number: int, value: int) -> bytes:
    """Encode a field that holds a whole number, a boolean, or a negative number in 64 bits."""
    return _encode_varint(number << 3 | VARINT) + _encode_varint(value & 0xFFFF_FFFF_FFFF_FFFF)


def double(number: int, value: float) -> bytes:
    """Encode a field that holds a number of double precision."""
    return _encode_varint(number << 3 | FIXED64) + struct.pack("<d", value)


def block(number: int, data: bytes) -> bytes:
    """Encode a field that holds bytes, UTF-8 text or a message."""
    return _encode_varint(number << 3 | BYTES) + _encode_varint(len(data)) + data


def _encode_varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
