"""MessagePack documents, shaped as the JSON ones (see `edge_runtime.io.codecs.document`).

Where JSON has a list of samples, a byte string (MessagePack ``bin``) of little-endian float32 may stand, interleaved
sample by sample: half the size and a tenth of the time. Parsed with ormsgpack (extra ``[codecs]``), which bounds
nesting at 1,024.

A value that is not read refuses no message. What ormsgpack refuses is parsed again, more slowly, by the rules:

1. The format's own time stamp (extension -1) is a time; any other extension is a value without a number.
2. Keys that are no texts, and texts that are not UTF-8, are taken in messages of up to `MAX_ODD_BYTES`: such keys can
   be made to collide, which costs the square of their number.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Literal

from edge_runtime.errors import ConfigError, InputError
from edge_runtime.io.codecs import Notice
from edge_runtime.io.codecs.document import DocumentReader
from edge_runtime.io.codecs.document_config import DocumentConfig
from edge_runtime.io.codecs.numbers import MAX_ODD_BYTES, UNREAD, Moment, Unread
from edge_runtime.types import Reading

_TIME: Final = -1
_TEXTS: Final = frozenset((*range(0xA0, 0xC0), 0xD9, 0xDA, 0xDB))
_SIZED: Final = {
    0xD9: ">B", 0xDA: ">H", 0xDB: ">I", 0xC4: ">B", 0xC5: ">H", 0xC6: ">I", 0xC7: ">Bx", 0xC8: ">Hx", 0xC9: ">Ix",
}  # fmt: skip
"""Type bytes before a size: how it is written, the byte of an extension's kind included."""
_SKIPPED: Final = dict(
    zip(
        (*range(0xCA, 0xD9), *range(0xDC, 0xE0)),
        (4, 8, 1, 2, 4, 8, 1, 2, 4, 8, 2, 3, 5, 9, 17, 2, 4, 2, 4),
        strict=True,
    )
)
"""Type bytes before a fixed number of bytes, or before the size of a list or map."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MsgpackConfig(DocumentConfig):
    """Settings of the MessagePack codec."""

    type: Literal["msgpack"] = "msgpack"


class MsgpackCodec:
    """Decodes MessagePack. Takes what `edge_runtime.io.codecs.document.DocumentReader` takes.

    Raises:
        ConfigError: ormsgpack is not installed, or the channel mapping does not fit the model.
    """

    name = "msgpack"

    def __init__(
        self, config: MsgpackConfig, names: Sequence[str], rate_hz: float = 0.0, notice: Notice | None = None
    ) -> None:
        try:
            import ormsgpack  # noqa: PLC0415 - an extra that only this codec needs
        except ImportError:
            raise ConfigError('codec msgpack needs ormsgpack: pip install "edge-runtime[codecs]"') from None
        self._unpack = ormsgpack.unpackb
        self._any_key = ormsgpack.OPT_NON_STR_KEYS
        self._max_bytes = config.max_bytes
        self._read = DocumentReader(config, names, rate_hz, notice).read

    def decode(self, key: str, payload: bytes, received: float) -> list[Reading]:
        """See `edge_runtime.io.codecs.Codec`."""
        if len(payload) > self._max_bytes:
            raise InputError("too_large", f"{len(payload)} bytes; at most {self._max_bytes} are allowed in a message")
        try:
            document = self._unpack(payload)
        except ValueError:  # MsgpackDecodeError is one
            document = self._unpack_slowly(payload)
        return self._read(document, key, received, scan=True)

    def _unpack_slowly(self, payload: bytes) -> Any:
        odd = len(payload) <= MAX_ODD_BYTES  # rule 2
        try:
            return self._unpack(
                _with_utf8(payload) if odd else payload, ext_hook=_extension, option=self._any_key if odd else None
            )
        except ValueError as error:
            raise InputError("empty" if not payload else "malformed", f"not MessagePack: {error}") from None


def _extension(kind: int, data: bytes) -> Moment | Unread:  # rule 1
    if kind != _TIME or len(data) not in (4, 8, 12):
        return UNREAD
    if len(data) == 12:
        nanoseconds, seconds = struct.unpack(">Iq", data)
    else:
        number = int.from_bytes(data, "big")
        seconds, nanoseconds = (number & 0x3FFFFFFFF, number >> 34) if len(data) == 8 else (number, 0)
    return Moment(seconds + nanoseconds / 1e9)


def _with_utf8(payload: bytes) -> bytes:
    """Return a message with question marks for the bytes of its texts that are not UTF-8; headers stand in a row."""
    found = bytearray(payload)
    at = 0
    with suppress(struct.error):  # the size is cut off
        while at < len(payload):
            begin, end = _extent(payload, at)
            text = payload[begin:end]
            if payload[at] in _TEXTS and text != text.decode("utf-8", "ignore").encode():
                found[begin:end] = bytes(letter if letter < 128 else 63 for letter in text)
            at = end
    return bytes(found)


def _extent(payload: bytes, at: int) -> tuple[int, int]:
    """Return where the content of a value begins and ends; that of a list or map are values of their own."""
    head = payload[at]
    begin = at + 1 + _SKIPPED.get(head, 0)
    if 0xA0 <= head < 0xC0:
        return begin, begin + (head & 31)
    form = _SIZED.get(head)
    if form is None:
        return begin, begin
    size: int = struct.unpack_from(form, payload, begin)[0]
    begin += struct.calcsize(form)
    return begin, begin + size
