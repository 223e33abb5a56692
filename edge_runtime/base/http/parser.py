"""HTTP/1.1 message parser: sans-I/O, strict, bounded; shared by the client (`http1`) and the server (`serve`).

Bytes go in with `Parser.feed`, in pieces of any size; messages come out of generators that yield whenever they need
more bytes, so that the same code reads from a blocking socket and from an event loop. What comes out depends on the
bytes alone, never on how they were split.

The rules (RFC 9112 and RFC 9110; the tests name one row each):

1. A line ends with CRLF. A bare LF or a bare CR is an error (RFC 9112, 2.2). Two empty lines before a request are
   skipped.
2. A request line is ``method SP target SP version``; a method is a token, a target visible ASCII (3).
3. Any ``HTTP/1.x`` is read as 1.1, 1.0 as 1.0; another major version is reason ``version`` (2.3).
4. A field is ``name: value`` with no white space before the colon, no folding, no control characters (5).
5. A request of HTTP/1.1 has one ``Host``, a valid one (3.2).
6. ``Transfer-Encoding`` is ``chunked``, alone, in HTTP/1.1, without a ``Content-Length`` (6.1).
7. ``Content-Length`` is one number. A request has it once; an answer may repeat the same number (6.3).
8. A chunk size is hexadecimal digits; an extension begins with a semicolon and is skipped. A trailer is fields, which
   are checked and dropped (7.1).

Errors: `InputError` with reason ``http`` (malformed), ``version``, ``coding`` (a transfer coding that is not known),
``target_too_long``, ``fields_too_large`` or ``too_large`` (the body); an end in the middle of a message is
`ConnectionResetError`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from edge_runtime.base.oip import Buffer, excerpt
from edge_runtime.errors import InputError

T = TypeVar("T")
Steps: TypeAlias = Generator[None, None, T]
"""A reading under way: yields when it needs more bytes, returns what was read."""

MAX_START_LINE_BYTES = 8 * 1024  # RFC 9112 section 3 recommends at least 8,000
MAX_HEAD_BYTES = 32 * 1024  # first line and fields together; Apache and nginx are in the same range
MAX_TRAILER_BYTES = 8 * 1024
_MAX_CHUNK_LINE_BYTES = 256
_MAX_EMPTY_LINES = 2
_LONG_START_LINE = ("target_too_long", f"the first line is over {MAX_START_LINE_BYTES} bytes")
_LONG_FIELDS = ("fields_too_large", f"headers are over {MAX_HEAD_BYTES} bytes")
_LONG_TRAILER = ("fields_too_large", f"the trailer of a chunked body is over {MAX_TRAILER_BYTES} bytes")

_TOKEN = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
_REQUEST_LINE = re.compile(rb"(" + _TOKEN + rb") ([\x21-\x7e]+) HTTP/([0-9])\.([0-9])")
_STATUS_LINE = re.compile(rb"HTTP/1\.([0-9]) ([0-9]{3})(?: ([^\x00-\x08\x0a-\x1f\x7f]*))?")
# The value keeps its white space here: `[ \t]*` beside it would make a long line of blanks quadratic.
_FIELD = re.compile(rb"(" + _TOKEN + rb"):([^\x00-\x08\x0a-\x1f\x7f]*)")
_CHUNK_LINE = re.compile(rb"([0-9A-Fa-f]{1,16})(?:[ \t]*;[^\x00-\x08\x0a-\x1f\x7f]*)?")
_BEGINS_REQUEST = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z\r\n]")
_HOST = re.compile(r"(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9\-._~!$&'()*+,;=%]*)(?::[0-9]*)?")
_LENGTH = re.compile(r"[0-9]{1,15}")


@dataclass(frozen=True, slots=True)
class Head:
    """First line and fields of a message.

    Attributes:
        start: method, target, version of a request; version, status, reason of an answer. The version is ``HTTP/1.1``
            or ``HTTP/1.0``.
        headers: by lower-case name; repeated ones joined with a comma, as RFC 9110 section 5.3 has it.
    """

    start: tuple[str, str, str]
    headers: Mapping[str, str]

    def keeps_alive(self, version: str) -> bool:
        """Return whether the sender keeps the connection open after this message; `version` is that of the message."""
        options = {option.strip() for option in self.headers.get("connection", "").lower().split(",")}
        return "close" not in options and (version == "HTTP/1.1" or "keep-alive" in options)


class Parser:
    """The bytes of one direction of a connection, as messages.

    Args:
        response: whether the messages are answers; requests otherwise.
    """

    def __init__(self, *, response: bool) -> None:
        self._response = response
        self._buffer = bytearray()
        self._ended = False
        self._known_bytes = b""
        self._known_head: Head | None = None

    @property
    def buffered(self) -> int:
        """Bytes that are here and belong to no message yet."""
        return len(self._buffer)

    def feed(self, data: Buffer) -> None:
        """Take bytes as they came."""
        self._buffer += data

    def end(self) -> None:
        """Take note that no byte follows."""
        self._ended = True

    def begin(self) -> Steps[bool]:
        """Wait for the first byte of a message; False when the bytes ended before it."""
        while not self._buffer:
            if self._ended:
                return False
            yield
        return True

    def head(self) -> Steps[Head]:
        """Read first line and fields.

        Raises:
            InputError: malformed or too long.
            ConnectionResetError: the bytes end in the middle.
        """
        yield from self._check_beginning()
        # On a kept connection the next head is mostly the same bytes.
        if self._known_head is not None and self._buffer.startswith(self._known_bytes):
            del self._buffer[: len(self._known_bytes)]
            return self._known_head
        line = yield from self._line(MAX_START_LINE_BYTES, *_LONG_START_LINE)
        for _ in range(0 if self._response else _MAX_EMPTY_LINES):  # rule 1
            if line:
                break
            line = yield from self._line(MAX_START_LINE_BYTES, *_LONG_START_LINE)
        start = _status_line(line) if self._response else _request_line(line)
        lines, left = [line], MAX_HEAD_BYTES - len(line)
        headers: dict[str, str] = {}
        while line := (yield from self._line(left, *_LONG_FIELDS)):
            _add_field(headers, line, response=self._response)
            lines.append(line)
            left = max(0, left - len(line) - 2)
        head = Head(start, headers)
        if not self._response:
            _check_host(head)
        self._known_bytes, self._known_head = b"\r\n".join([*lines, b"", b""]), head
        return head

    def body(self, head: Head, max_bytes: int) -> Steps[Buffer]:
        """Read the body that belongs to a head.

        Raises:
            InputError: malformed or over `max_bytes`.
            ConnectionResetError: the bytes end in the middle.
        """
        body = bytearray()
        yield from self.body_into(head, max_bytes, body.extend)
        return body

    def body_into(self, head: Head, max_bytes: int, sink: Callable[[Buffer], object]) -> Steps[int]:
        """Hand the pieces of a body to `sink` as they come, and return how many bytes they had together.

        Raises:
            InputError, ConnectionResetError: as `body`; `sink` may have had some of it.
        """
        length = declared_length(head, max_bytes)
        if "transfer-encoding" in head.headers:
            return (yield from self._chunks(max_bytes, sink))
        if length is None and self._response:
            return (yield from self._to_end(max_bytes, sink))
        yield from self._take(length or 0, sink)
        return length or 0

    # -- pieces --------------------------------------------------------------------------------------------------------

    def _demand(self, what: str = "the peer closed the connection in the middle of a message") -> None:
        if self._ended:
            raise ConnectionResetError(what)

    def _check_beginning(self) -> Steps[None]:
        """Refuse what cannot become a message at its first bytes: such a peer may never send the end of a line."""
        if self._response:
            while len(self._buffer) < 5 and b"HTTP/".startswith(self._buffer):
                self._demand()
                yield
            if self._buffer[:5] != b"HTTP/":
                raise InputError("http", f"not HTTP: the answer begins with {excerpt(self._buffer)}")
            return
        while not self._buffer:
            self._demand()
            yield
        if _BEGINS_REQUEST.match(self._buffer) is None:
            raise InputError("http", f"not an HTTP/1.1 message: it begins with {excerpt(self._buffer)}")

    def _line(self, limit: int, reason: str, message: str) -> Steps[bytes]:
        """Read a line of at most `limit` bytes, without its CRLF; a longer one is an error with this reason."""
        seen = 0
        while (end := self._buffer.find(b"\n", seen)) < 0:
            seen = len(self._buffer)
            if seen > limit + 1:
                break
            self._demand()
            yield
        if end < 0 or end > limit + 1:
            raise InputError(reason, message)
        if self._buffer[end - 1 : end] != b"\r":  # rule 1
            raise InputError("http", f"a line ends without a carriage return: {excerpt(self._buffer[:end])}")
        line = bytes(self._buffer[: end - 1])
        del self._buffer[: end + 1]
        return line

    def _take(self, count: int, sink: Callable[[Buffer], object]) -> Steps[None]:
        left = count
        while left:
            if not self._buffer:
                self._demand(f"the peer closed the connection after {count - left} of {count} bytes")
                yield
                continue
            if left >= len(self._buffer):
                piece, self._buffer = self._buffer, bytearray()
            else:
                piece = self._buffer[:left]
                del self._buffer[:left]
            sink(piece)
            left -= len(piece)

    def _to_end(self, max_bytes: int, sink: Callable[[Buffer], object]) -> Steps[int]:
        total = 0
        while self._buffer or not self._ended:
            total += len(self._buffer)
            if total > max_bytes:
                raise _too_large(max_bytes)
            yield from self._take(len(self._buffer), sink)
            if not self._ended:
                yield
        return total

    def _chunks(self, max_bytes: int, sink: Callable[[Buffer], object]) -> Steps[int]:  # rule 8
        total = extensions = 0
        while True:
            line = yield from self._line(_MAX_CHUNK_LINE_BYTES, "http", "a line of a chunked body is too long")
            found = _CHUNK_LINE.fullmatch(line)
            if found is None:
                raise InputError("http", f"a chunk of a chunked body has no size: {excerpt(line)}")
            size = int(found[1], 16)
            extensions += len(line) - len(found[1])
            if extensions > MAX_HEAD_BYTES:
                raise InputError("http", f"chunk extensions are over {MAX_HEAD_BYTES} bytes")
            if size == 0:
                break
            total += size
            if total > max_bytes:
                raise _too_large(max_bytes)
            yield from self._take(size, sink)
            yield from self._line(0, "http", "a chunk of a chunked body is longer than its size says")
        left = MAX_TRAILER_BYTES
        while line := (yield from self._line(left, *_LONG_TRAILER)):
            _field(line)
            left = max(0, left - len(line) - 2)
        return total


def declared_length(head: Head, max_bytes: int) -> int | None:
    """Return the length of a body as its head states it; None when the head does not.

    Raises:
        InputError: malformed, contradictory, or over `max_bytes`.
    """
    coding = head.headers.get("transfer-encoding")
    length = head.headers.get("content-length")
    if coding is not None:  # rule 6
        codings = [name.strip().lower() for name in coding.split(",")]
        version_1_0 = "HTTP/1.0" in (head.start[0], head.start[2])
        if length is not None or version_1_0 or codings[-1] != "chunked" or "chunked" in codings[:-1]:
            raise InputError("http", f"Transfer-Encoding {coding[:40]!r} is not allowed here")
        if len(codings) > 1:
            raise InputError("coding", f"Transfer-Encoding {coding[:40]!r} is not known; use chunked alone")
    if length is None:
        return None
    if _LENGTH.fullmatch(length) is None:  # rule 7
        raise InputError("http", f"Content-Length {length[:40]!r} is not one number")
    if int(length) > max_bytes:
        raise _too_large(max_bytes)
    return int(length)


def _too_large(max_bytes: int) -> InputError:
    return InputError("too_large", f"a body is over the limit of {max_bytes} bytes")


def _request_line(line: bytes) -> tuple[str, str, str]:
    found = _REQUEST_LINE.fullmatch(line)
    if found is None:  # rule 2
        raise InputError("http", f"not an HTTP/1.1 message: it begins with {excerpt(line)}")
    if found[3] != b"1":  # rule 3
        raise InputError("version", f"HTTP/{found[3].decode()} is not spoken here; use HTTP/1.1")
    return found[1].decode(), found[2].decode(), _version(found[4])


def _status_line(line: bytes) -> tuple[str, str, str]:
    found = _STATUS_LINE.fullmatch(line)
    if found is None:
        raise InputError("http", f"not an HTTP/1.1 message: it begins with {excerpt(line)}")
    return _version(found[1]), found[2].decode(), (found[3] or b"").decode("latin-1")


def _version(minor: bytes) -> str:
    return "HTTP/1.0" if minor == b"0" else "HTTP/1.1"


def _field(line: bytes) -> tuple[str, str]:
    found = _FIELD.fullmatch(line)
    if found is None:  # rule 4
        raise InputError("http", f"malformed header {excerpt(line[:60])}")
    return found[1].decode().lower(), found[2].strip(b" \t").decode("latin-1")


def _add_field(headers: dict[str, str], line: bytes, *, response: bool) -> None:
    name, value = _field(line)
    known = headers.get(name)
    if known is None:
        headers[name] = value
    elif name == "host":  # rule 5
        raise InputError("http", "there are two Host headers")
    elif name == "content-length":  # rule 7
        if not response or known != value:
            raise InputError("http", "there are two Content-Length headers")
    else:
        headers[name] = f"{known}, {value}"


def _check_host(head: Head) -> None:  # rule 5
    host = head.headers.get("host")
    if host is None:
        if head.start[2] == "HTTP/1.1":
            raise InputError("http", "a request of HTTP/1.1 needs a Host header")
    elif _HOST.fullmatch(host) is None:
        raise InputError("http", f"Host {host[:60]!r} is not a host name and a port")
