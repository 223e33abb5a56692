"""HTTP/1.1 framing on a socket, with a deadline on every wait and a limit on every length; for `cloud` and `serve`.

Why not `http.client` and `http.server`: their time-outs are per `recv`, so a peer that sends one byte at a time holds
them for ever; their header parsing (the e-mail package) costs more than the rest of a small inference request; and
client and server would read the same bytes by two different rules. docs/decisions/0003-cloud-protocol.md has figures.

The reading is strict where leniency has been a hole (RFC 9112, sections 2.2, 5.1, 6.3 and 11): lines end with CRLF, no
folded headers, no white space before a colon, no `Content-Length` beside `Transfer-Encoding`, no two lengths.

Errors: malformed bytes are an `InputError` with reason ``http`` and lengths over a limit one with reason ``too_large``;
silence is `TimeoutError`, and an end in the middle of a message `ConnectionResetError`.
"""

from __future__ import annotations

import re
import select
import socket
import ssl
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from edge_runtime.clock import Clock
from edge_runtime.errors import InputError
from edge_runtime.oip import Buffer, excerpt

MAX_HEAD_BYTES = 32 * 1024  # first line and headers together; Apache and nginx are in the same range
_MAX_CHUNK_LINE = 256
_RECEIVE_BYTES = 64 * 1024
# Name, colon, value, end of line: no white space before the colon, no bare CR, LF or NUL in the value, and a line that
# begins with a space (folding) does not match.
_HEADER = re.compile(rb"([!#$%&'*+\-.^_`|~0-9A-Za-z]+):[ \t]*([^\r\n\0]*)(?:\r\n|\Z)")
_DIGITS = re.compile(r"[0-9]{1,15}")
_HEX = re.compile(rb"[0-9A-Fa-f]{1,12}")
_JOIN_BELOW = 256 * 1024  # parts below this go out as one piece: one system call, one packet where it fits


@dataclass(frozen=True, slots=True)
class Head:
    """First line and headers of a message.

    Attributes:
        start: the three words of the first line.
        headers: by lower-case name; repeated ones joined with a comma, as RFC 9110 section 5.3 has it.
    """

    start: tuple[str, str, str]
    headers: Mapping[str, str]

    def keeps_alive(self, version: str) -> bool:
        """Whether the sender keeps the connection open after this message; `version` is that of the message."""
        options = self.headers.get("connection", "").lower()
        return "close" not in options if version == "HTTP/1.1" else "keep-alive" in options


class Stream:
    """A connected TCP or TLS socket, read and written by one thread at a time.

    Args:
        sock: the socket; the stream closes it.
        clock: what deadlines are measured with.
    """

    def __init__(self, sock: socket.socket, clock: Clock) -> None:
        self._sock = sock
        self._clock = clock
        self._buffer = bytearray()
        self._deadline = 0.0
        self._silence_s = 0.0
        self._last_raw = b""
        self._last_head = Head(("", "", ""), {})
        self.received = 0
        """Bytes read off the socket so far."""

    @property
    def buffered(self) -> bool:
        """Whether bytes of the next message are already here."""
        return bool(self._buffer)

    def limit_wait(self, deadline: float, silence_s: float) -> None:
        """From now on, give up at `deadline` (monotonic seconds), and after `silence_s` without a byte."""
        self._deadline = deadline
        self._silence_s = silence_s

    def is_stale(self) -> bool:
        """Whether an idle connection is of no more use: the peer closed it, or sent what nobody asked for."""
        if self._buffer or self._sock.fileno() < 0:
            return True
        if isinstance(self._sock, ssl.SSLSocket) and self._sock.pending():
            return True  # decrypted already, so the system's poll does not see it
        poll = select.poll()
        poll.register(self._sock, select.POLLIN)
        return bool(poll.poll(0))

    def close(self) -> None:
        """Close the socket; harmless when repeated."""
        self._sock.close()

    def end_writing(self) -> None:
        """Tell the peer that nothing more follows, while still reading."""
        self._sock.shutdown(socket.SHUT_WR)

    # -- writing -------------------------------------------------------------------------------------------------------

    def send(self, head: bytes, parts: Iterable[Buffer] = ()) -> None:
        """Send a message, in one piece where it is small.

        Raises:
            TimeoutError: the peer does not read.
            OSError: the connection is gone.
        """
        pieces = [head, *parts]
        if sum(len(piece) for piece in pieces) < _JOIN_BELOW:
            pieces = [b"".join(pieces)]
        for piece in pieces:
            self._sock.settimeout(self._patience(limited_by_silence=False))
            self._sock.sendall(piece)

    # -- reading -------------------------------------------------------------------------------------------------------

    def wait(self) -> bool:
        """Wait for the first byte of a message; False when the peer closed the connection or stayed silent."""
        try:
            while not self._buffer:
                self._more()
        except (TimeoutError, ConnectionError):
            return False
        return True

    def read_head(self, *, response: bool) -> Head:
        """Read first line and headers.

        Raises:
            InputError: malformed or too long.
            OSError: see the module.
        """
        while (end := self._buffer.find(b"\r\n\r\n")) < 0:
            if response and not b"HTTP/".startswith(bytes(self._buffer[:5])):
                raise InputError("http", f"not HTTP: the answer begins with {excerpt(self._buffer)}")
            if len(self._buffer) > MAX_HEAD_BYTES:
                raise InputError("too_large", f"headers are over {MAX_HEAD_BYTES} bytes")
            self._more()
        if end > MAX_HEAD_BYTES:
            raise InputError("too_large", f"headers are over {MAX_HEAD_BYTES} bytes")
        raw = bytes(self._buffer[:end])
        del self._buffer[: end + 4]
        if raw != self._last_raw:  # on a kept connection the next head is mostly the same bytes
            self._last_head = parse_head(raw, response=response)
            self._last_raw = raw
        return self._last_head

    def read_body(self, head: Head, max_bytes: int, *, response: bool) -> Buffer:
        """Read the body that belongs to a head.

        Raises:
            InputError: malformed or over `max_bytes`.
            OSError: see the module.
        """
        length = self.check_length(head, max_bytes)
        if "transfer-encoding" in head.headers:
            body = bytearray()
            self._read_chunks(max_bytes, body.extend)
            return body
        if length is not None:
            return self._take(length)
        return self._read_to_end(max_bytes) if response else b""

    def read_body_into(self, head: Head, max_bytes: int, sink: Callable[[Buffer], object], *, response: bool) -> int:
        """Hand the pieces of a body to `sink` as they come, and return how many bytes they had together.

        Raises:
            InputError, OSError: as `read_body`; `sink` may have had some of it.
        """
        length = self.check_length(head, max_bytes)
        if "transfer-encoding" in head.headers:
            return self._read_chunks(max_bytes, sink)
        if length is None:
            return self._read_to_end_into(max_bytes, sink) if response else 0
        self._pass(length, sink)
        return length

    @staticmethod
    def check_length(head: Head, max_bytes: int) -> int | None:
        """The length of the body as the headers say it, before any of it is read; None when they do not.

        Raises:
            InputError: malformed, contradictory, or over `max_bytes`.
        """
        encoding = head.headers.get("transfer-encoding")
        length = head.headers.get("content-length")
        if encoding is not None and (length is not None or encoding.lower() != "chunked"):
            raise InputError(
                "http", f"Transfer-Encoding {encoding[:40]!r}, with a length or not alone, is not accepted"
            )
        if length is None:
            return None
        if not _DIGITS.fullmatch(length):
            raise InputError("http", f"Content-Length {length[:40]!r} is not one number")
        if int(length) > max_bytes:
            raise InputError("too_large", f"a body of {length} bytes is over the limit of {max_bytes}")
        return int(length)

    def discard(self, max_bytes: int) -> None:
        """Read and forget, until the peer closes, the deadline passes, or `max_bytes` came."""
        start = self.received
        try:
            while self.received - start < max_bytes:
                self._buffer.clear()
                self._more()
        except OSError:
            return

    def _patience(self, *, limited_by_silence: bool = True) -> float:
        left = self._deadline - self._clock.monotonic()
        if left <= 0:
            raise TimeoutError("the deadline has passed")
        return min(left, self._silence_s) if limited_by_silence else left

    def _more(self) -> None:
        self._sock.settimeout(self._patience())
        chunk = self._sock.recv(_RECEIVE_BYTES)
        if not chunk:
            raise ConnectionResetError("the peer closed the connection")
        self.received += len(chunk)
        self._buffer += chunk

    def _take(self, count: int) -> Buffer:
        """Exactly `count` bytes."""
        if count <= len(self._buffer):
            data = bytes(self._buffer[:count])
            del self._buffer[:count]
            return data
        # Large bodies are received in place. The pages of the fresh bytearray cost nothing until they are written, so a
        # peer that announces much and sends little does not make us spend the memory.
        body = bytearray(count)
        have = len(self._buffer)
        body[:have] = self._buffer
        self._buffer.clear()
        view = memoryview(body)
        while have < count:
            self._sock.settimeout(self._patience())
            got = self._sock.recv_into(view[have:])
            if not got:
                raise ConnectionResetError(f"the peer closed the connection after {have} of {count} bytes")
            have += got
            self.received += got
        return body

    def _read_to_end(self, max_bytes: int) -> Buffer:
        try:
            while len(self._buffer) <= max_bytes:
                self._more()
        except ConnectionResetError:
            return self._take(len(self._buffer))
        raise InputError("too_large", f"a body is over the limit of {max_bytes} bytes")

    def _read_line(self, max_bytes: int) -> bytes:
        while (end := self._buffer.find(b"\r\n")) < 0:
            if len(self._buffer) > max_bytes:
                raise InputError("http", "a line of a chunked body is too long")
            self._more()
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 2]
        return line

    def _pass(self, count: int, sink: Callable[[Buffer], object]) -> None:
        """Hand on exactly `count` bytes, as they come."""
        while count:
            if not self._buffer:
                self._more()
            piece = bytes(self._buffer[:count])
            del self._buffer[:count]
            count -= len(piece)
            sink(piece)

    def _read_to_end_into(self, max_bytes: int, sink: Callable[[Buffer], object]) -> int:
        total = 0
        try:
            while True:
                total += len(self._buffer)
                if total > max_bytes:
                    raise InputError("too_large", f"a body is over the limit of {max_bytes} bytes")
                self._pass(len(self._buffer), sink)
                self._more()
        except ConnectionResetError:
            return total

    def _read_chunks(self, max_bytes: int, sink: Callable[[Buffer], object]) -> int:
        total = 0
        while True:
            size_text = self._read_line(_MAX_CHUNK_LINE).partition(b";")[0].rstrip()
            if not _HEX.fullmatch(size_text):
                raise InputError("http", f"a chunk of a chunked body has no size: {excerpt(size_text)}")
            size = int(size_text, 16)
            if size == 0:
                break
            total += size
            if total > max_bytes:
                raise InputError("too_large", f"a body is over the limit of {max_bytes} bytes")
            self._pass(size, sink)
            if self._take(2) != b"\r\n":
                raise InputError("http", "a chunk of a chunked body is longer than its size says")
        trailers = 0
        while line := self._read_line(_MAX_CHUNK_LINE):
            trailers += len(line)
            if trailers > MAX_HEAD_BYTES:
                raise InputError("too_large", "the trailer of a chunked body is too long")
        return total


def parse_head(data: bytes, *, response: bool) -> Head:
    """Parse first line and headers (without the empty line that ends them).

    Raises:
        InputError: malformed.
    """
    end = data.find(b"\r\n")
    first = data if end < 0 else data[:end]
    words = first.decode("latin-1").split(" ", 2)
    if len(words) == 2 and response:
        words.append("")  # "HTTP/1.1 200": the reason is optional, and some servers leave out the space as well
    version = words[0] if response else words[-1]
    if len(words) != 3 or version not in ("HTTP/1.1", "HTTP/1.0") or not (words[0] and words[1]):
        raise InputError("http", f"not an HTTP/1.1 message: it begins with {excerpt(first)}")
    if response and not (len(words[1]) == 3 and words[1].isascii() and words[1].isdigit()):
        raise InputError("http", f"status {words[1][:20]!r} is not a number of three digits")
    headers: dict[str, str] = {}
    at = len(first) + 2
    while at < len(data):
        found = _HEADER.match(data, at)
        if found is None:
            raise InputError("http", f"malformed header {excerpt(data[at : at + 60])}")
        at = found.end()
        key = found[1].decode("ascii").lower()
        text = found[2].decode("latin-1").rstrip(" \t")
        if key in headers:
            if key == "content-length":
                if headers[key] != text:
                    raise InputError("http", "two Content-Length headers differ")
                continue
            text = f"{headers[key]}, {text}"
        headers[key] = text
    return Head((words[0], words[1], words[2]), headers)


def decompress(body: Buffer, encoding: str, max_bytes: int) -> Buffer:
    """Undo a `Content-Encoding`; the result is bounded whatever the input claims.

    Raises:
        InputError: unknown encoding, damaged data, or more than `max_bytes` of it.
    """
    name = encoding.strip().lower()
    if name in ("", "identity"):
        return body
    if name not in ("gzip", "x-gzip", "deflate"):
        raise InputError("encoding", f"Content-Encoding {encoding[:40]!r} is not supported; use gzip or none")
    inflate = zlib.decompressobj(wbits=zlib.MAX_WBITS | 32)  # 32: gzip or zlib, told apart by the header
    try:
        data = inflate.decompress(body, max_bytes + 1)
    except zlib.error:
        raise InputError("encoding", "the body is not the compressed data that Content-Encoding says") from None
    if len(data) > max_bytes:
        raise InputError("too_large", f"a decompressed body is over the limit of {max_bytes} bytes")
    if not inflate.eof or inflate.unused_data:
        raise InputError("encoding", "the compressed body is cut short, or has data after its end")
    return data


def compress(body: bytes) -> bytes:
    """A body for `Content-Encoding: gzip`; level 1, since sensor windows gain little from more."""
    deflate = zlib.compressobj(level=1, wbits=zlib.MAX_WBITS | 16)
    return deflate.compress(body) + deflate.flush()


def handshake(
    sock: socket.socket,
    context: ssl.SSLContext,
    clock: Clock,
    deadline: float,
    *,
    server_hostname: str | None = None,
) -> ssl.SSLSocket:
    """Put TLS on a connected socket; `server_hostname` makes us the client, its absence the server.

    The deadline holds for the handshake as a whole, however slowly the peer sends its pieces.

    Raises:
        TimeoutError: the deadline passed.
        OSError: the peer is gone, or TLS failed (ssl.SSLError).
    """
    sock.setblocking(False)
    secure = context.wrap_socket(
        sock,
        server_side=server_hostname is None,
        server_hostname=server_hostname,
        do_handshake_on_connect=False,
    )
    try:
        _shake(secure, clock, deadline)
    except BaseException:
        secure.close()
        raise
    return secure


def _shake(secure: ssl.SSLSocket, clock: Clock, deadline: float) -> None:
    while True:
        try:
            secure.do_handshake()
        except ssl.SSLWantReadError:
            event = select.POLLIN
        except ssl.SSLWantWriteError:
            event = select.POLLOUT
        else:
            return
        left = deadline - clock.monotonic()
        poll = select.poll()
        poll.register(secure, event)
        if left <= 0 or not poll.poll(left * 1000):
            raise TimeoutError("the TLS handshake took too long")
