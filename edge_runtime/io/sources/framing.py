"""From a stream of bytes to messages (lines, lengths, COBS, fixed frames) or plain records. No input or output in here.

A framer keeps at most one unfinished message. What is too long, or fails its checksum, is refused and skipped to where
the next message can begin; a lost byte costs one message where the framing marks its beginnings (everything but
lengths, which are for pipes and not for wires).
"""

from __future__ import annotations

import binascii
from collections.abc import Callable
from typing import Literal, Protocol

from edge_runtime.errors import InputError

Checksum = Literal["none", "crc16", "crc32"]
CHECKSUM_BYTES: dict[Checksum, int] = {"none": 0, "crc16": 2, "crc32": 4}

_LENGTH_BYTES = 4


class Refuse(Protocol):
    """Told of every message that is left out."""

    def __call__(self, error: InputError, start: bytes, size: int) -> None:
        """Count it.

        Args:
            error: why.
            start: its first bytes.
            size: its length, as far as known.
        """
        ...


class Framer(Protocol):
    """Cuts a stream into messages."""

    def feed(self, data: bytes) -> list[bytes]:
        """Messages that these bytes complete, in order."""
        ...

    def end(self) -> list[bytes]:
        """Return what is left when the stream ends: a last line, or nothing and a refusal."""
        ...

    def reset(self) -> None:
        """Forget the unfinished message: the stream restarts."""
        ...


class Lines:
    """A message per line; the line end (LF or CR LF) is not part of it, empty lines are none.

    Args:
        max_bytes: longest message.
        refuse: called with longer ones.
    """

    def __init__(self, max_bytes: int, refuse: Refuse) -> None:
        self._max_bytes = max_bytes
        self._refuse = refuse
        self._rest = b""
        self._skipping = False

    def feed(self, data: bytes) -> list[bytes]:
        """See `Framer`."""
        *lines, rest = (self._rest + data).split(b"\n")
        if lines and self._skipping:
            lines = lines[1:]
            self._skipping = False
        for line in lines:
            if len(line) > self._max_bytes:
                self._refuse(too_long(self._max_bytes), line, len(line))
        if self._skipping:
            rest = b""
        elif len(rest) > self._max_bytes:
            self._refuse(too_long(self._max_bytes), rest, len(rest))
            self._skipping, rest = True, b""
        self._rest = rest
        return [line for line in lines if len(line) <= self._max_bytes and line.strip()]

    def end(self) -> list[bytes]:
        """See `Framer`."""
        rest, skipping = self._rest, self._skipping
        self.reset()
        return [rest] if rest.strip() and not skipping else []

    def reset(self) -> None:
        """See `Framer`."""
        self._rest, self._skipping = b"", False


class Lengths:
    """Before each message its length in bytes: 4 bytes, little-endian.

    Args:
        max_bytes: longest message; a longer one is skipped, not kept.
        refuse: called with longer ones.
    """

    def __init__(self, max_bytes: int, refuse: Refuse) -> None:
        self._max_bytes = max_bytes
        self._refuse = refuse
        self._buffer = bytearray()
        self._skip = 0

    def feed(self, data: bytes) -> list[bytes]:
        """See `Framer`."""
        self._buffer += data
        buffer, messages, at = self._buffer, list[bytes](), 0
        while True:
            skipped = min(self._skip, len(buffer) - at)
            self._skip -= skipped
            at += skipped
            if self._skip or len(buffer) - at < _LENGTH_BYTES:
                break
            length = int.from_bytes(buffer[at : at + _LENGTH_BYTES], "little")
            start = at + _LENGTH_BYTES
            if length > self._max_bytes:
                self._refuse(too_long(self._max_bytes), bytes(buffer[start : start + 64]), length)
                self._skip, at = length, start
                continue
            if len(buffer) - start < length:
                break
            messages.append(bytes(buffer[start : start + length]))
            at = start + length
        del buffer[:at]
        return messages

    def end(self) -> list[bytes]:
        """See `Framer`."""
        if self._buffer or self._skip:
            rest = bytes(self._buffer)
            self._refuse(InputError("malformed", "the stream ended in the middle of a message"), rest, len(rest))
        self.reset()
        return []

    def reset(self) -> None:
        """See `Framer`."""
        self._buffer.clear()
        self._skip = 0


class Cobs:
    """Consistent overhead byte stuffing: no zero byte in a frame, one zero byte after it, and often a checksum in it.

    Whatever is lost or added, the next zero byte begins afresh. What arrives before the first one after opening may be
    the end of a frame; it is left out without a count.

    Args:
        max_bytes: longest message, decoded and without its checksum.
        refuse: called with longer ones, and of those that are no COBS or fail their checksum.
        checksum: what stands behind the message, inside the stuffing.

    Source: S. Cheshire, M. Baker, "Consistent Overhead Byte Stuffing", IEEE/ACM Transactions on Networking 7 (2), 1999.
    """

    def __init__(self, max_bytes: int, refuse: Refuse, checksum: Checksum = "none") -> None:
        self._limit = max_bytes + CHECKSUM_BYTES[checksum]
        self._stuffed = self._limit + self._limit // 254 + 1
        self._max_bytes = max_bytes
        self._refuse = refuse
        self._checksum: Checksum = checksum
        self._rest = b""
        self._begun = False
        self._skipping = False

    def feed(self, data: bytes) -> list[bytes]:
        """See `Framer`."""
        *frames, rest = (self._rest + data).split(b"\0")
        messages = list[bytes]()
        for frame in frames:
            begun, skipping = self._begun, self._skipping
            self._begun, self._skipping = True, False
            if not frame or not begun or skipping:
                continue
            try:
                messages.append(checked(self._unstuffed(frame), self._checksum))
            except InputError as error:
                self._refuse(error, frame, len(frame))
        if self._skipping:
            rest = b""
        elif len(rest) > self._stuffed:
            if self._begun:
                self._refuse(too_long(self._max_bytes), rest, len(rest))
            self._skipping, rest = True, b""
        self._rest = rest
        return messages

    def end(self) -> list[bytes]:
        """See `Framer`."""
        self.reset()
        return []

    def reset(self) -> None:
        """See `Framer`."""
        self._rest, self._begun, self._skipping = b"", False, False

    def _unstuffed(self, frame: bytes) -> bytes:
        if len(frame) > self._stuffed:
            raise too_long(self._max_bytes)
        out, at = bytearray(), 0
        while at < len(frame):
            code = frame[at]
            if at + code > len(frame):
                raise InputError("malformed", "a frame that is no COBS: it ends before its last block does")
            out += frame[at + 1 : at + code]
            at += code
            if code < 255 and at < len(frame):
                out.append(0)
        if len(out) > self._limit:
            raise too_long(self._max_bytes)
        return bytes(out)


class Fixed:
    """Frames of one length behind a marker, as many sensor modules send them.

    A marker that stands inside a frame is taken for one only while searching, after a byte was lost; with a checksum
    such a false frame is refused, and the search goes on one byte behind its marker.

    Args:
        size: bytes of a message, without marker and checksum.
        marker: what each frame begins with, at least one byte.
        refuse: called with frames that fail their checksum.
        checksum: over the message; what stands behind it.
    """

    def __init__(self, size: int, marker: bytes, refuse: Refuse, checksum: Checksum = "none") -> None:
        self._body = size + CHECKSUM_BYTES[checksum]
        self._marker = marker
        self._refuse = refuse
        self._checksum: Checksum = checksum
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """See `Framer`."""
        self._buffer += data
        buffer, marker, messages, at = self._buffer, self._marker, list[bytes](), 0
        while True:
            found = buffer.find(marker, at)
            if found < 0:
                at = max(at, len(buffer) - len(marker) + 1)  # the marker may be half here
                break
            at = found
            start = at + len(marker)
            if len(buffer) - start < self._body:
                break
            frame = bytes(buffer[start : start + self._body])
            try:
                messages.append(checked(frame, self._checksum))
                at = start + self._body
            except InputError as error:
                self._refuse(error, frame, len(frame))
                at += 1
        del buffer[:at]
        return messages

    def end(self) -> list[bytes]:
        """See `Framer`."""
        self.reset()
        return []

    def reset(self) -> None:
        """See `Framer`."""
        self._buffer.clear()


class Records:
    """Records of one size with nothing between them, as a sound card or a driver gives them: cut where one ends.

    Args:
        size: bytes of a record.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._rest = b""

    def feed(self, data: bytes) -> bytes:
        """Return all records that these bytes complete, in one piece."""
        data = self._rest + data
        whole = len(data) - len(data) % self._size
        self._rest = data[whole:]
        return data[:whole]

    def reset(self) -> None:
        """Forget the unfinished record: the stream restarts."""
        self._rest = b""


def checked(frame: bytes, checksum: Checksum) -> bytes:
    """Check a frame's checksum, little-endian behind its message, and return the message.

    Args:
        frame: message and checksum.
        checksum: ``crc16`` is CRC-16/XMODEM (polynomial 0x1021, start 0), ``crc32`` that of zlib and Ethernet.

    Raises:
        InputError: ``checksum``.
    """
    size = CHECKSUM_BYTES[checksum]
    if not size:
        return frame
    message, sent = frame[:-size], int.from_bytes(frame[-size:], "little")
    computed = binascii.crc_hqx(message, 0) if checksum == "crc16" else binascii.crc32(message)
    if len(frame) <= size or computed != sent:
        raise InputError("checksum", "the checksum does not fit: bytes were lost or changed on the way")
    return message


def too_long(max_bytes: int) -> InputError:
    """Explain why a message over the limit is refused."""
    return InputError("too_large", f"over the limit of {max_bytes} bytes")


def refuser(refuse: Callable[..., None], key: str) -> Refuse:
    """Report to `edge_runtime.io.sources.decoding.Decoder.refuse`, under a key."""

    def report(error: InputError, start: bytes, size: int) -> None:
        refuse(error, key, start, size)

    return report
