"""Cause of a refusal that a payload's first bytes show: compressed data, or a picture where numbers were expected."""

from __future__ import annotations

import zlib
from typing import Final

from edge_runtime.errors import InputError

_PACKED: Final = (
    (b"\x1f\x8b\x08", "gzip"), (b"PK\x03\x04", "zip"), (b"\x28\xb5\x2f\xfd", "zstd"), (b"BZh", "bzip2"),
    (b"\xfd7zXZ\0", "xz"), (b"\x04\x22\x4d\x18", "LZ4"), (b"x\x01", "zlib"), (b"x\x9c", "zlib"), (b"x\xda", "zlib"),
)  # fmt: skip

_MOST: Final = 1 << 20


def packed_as(payload: bytes) -> str:
    """Name the compression that a payload begins with; empty where it is none."""
    return next((name for magic, name in _PACKED if payload.startswith(magic)), "")


def unpacks(payload: bytes) -> bool:
    """Tell whether bytes that any numbers could be are gzip or zlib data to their checksum, of up to `_MOST` bytes."""
    if packed_as(payload) not in ("gzip", "zlib"):
        return False
    stream = zlib.decompressobj(zlib.MAX_WBITS | 32)
    try:
        stream.decompress(payload, _MOST)
    except zlib.error:
        return False
    return stream.eof


def explained(error: InputError, payload: bytes, codec: str) -> InputError:
    """Return the refusal of a payload under the cause that its first bytes show, or else as it is.

    Args:
        error: the codec's refusal.
        payload: the whole message.
        codec: name of the codec.
    """
    if error.reason not in ("malformed", "not_a_number", "wrong_channels", "wrong_size"):
        return error
    if packed := packed_as(payload):
        return InputError("compressed", f"the payload is {packed} data")
    from edge_runtime.base.media.picture import kind_of  # noqa: PLC0415 - a part of the device's memory, for refusals alone

    kind = "" if codec in ("frame", "pcm") else kind_of(payload)
    return InputError("picture", f"the payload is a picture, {kind}") if kind else error
