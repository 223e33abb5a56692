"""HTTP/1.1 on a blocking socket, with a deadline on every wait; the client's half. `serve` is the server's.

Why not `http.client`: its time-outs are per `recv`, so a peer that sends one byte at a time holds it for ever, and its
header parsing (the e-mail package) costs more than the rest of a small inference request.
docs/decisions/0003-cloud-protocol.md has figures. What a message is, and how long its parts may be, says
`edge_runtime.base.http.parser`.

Errors: those of the parser; a deadline that passes, or silence, is `TimeoutError`.
"""

from __future__ import annotations

import select
import socket
import ssl
import zlib
from collections.abc import Callable, Iterable

from edge_runtime.base.http.parser import Head, Parser, Steps, T
from edge_runtime.base.oip import Buffer
from edge_runtime.clock import Clock
from edge_runtime.errors import InputError

__all__ = ["Head", "SocketStream", "compress", "decompress", "handshake"]

_RECEIVE_BYTES = 64 * 1024
_JOIN_BELOW = 256 * 1024  # parts below this go out as one piece: one system call, one packet where it fits


class SocketStream:
    """A connected TCP or TLS socket of a client, used by one thread at a time.

    Args:
        sock: the socket; the stream closes it.
        clock: what deadlines are measured with.
    """

    def __init__(self, sock: socket.socket, clock: Clock) -> None:
        self._sock = sock
        self._clock = clock
        self._parser = Parser(response=True)
        self._deadline = 0.0
        self._silence_s = 0.0
        self.received = 0
        """Bytes read off the socket so far."""

    def limit_wait(self, deadline: float, silence_s: float) -> None:
        """Give up from now on at `deadline` (monotonic seconds), and after `silence_s` without a byte."""
        self._deadline = deadline
        self._silence_s = silence_s

    def is_stale(self) -> bool:
        """Return whether an idle connection is of no more use: closed by the peer, or with unexpected bytes."""
        if self._parser.buffered or self._sock.fileno() < 0:
            return True
        if isinstance(self._sock, ssl.SSLSocket) and self._sock.pending():
            return True  # decrypted already, so the system's poll does not see it
        poll = select.poll()
        poll.register(self._sock, select.POLLIN)
        return bool(poll.poll(0))

    def close(self) -> None:
        """Close the socket; harmless when repeated."""
        self._sock.close()

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

    def read_head(self) -> Head:
        """Read first line and headers.

        Raises:
            InputError: malformed or too long.
            OSError: see the module.
        """
        return self._finish(self._parser.head())

    def read_body(self, head: Head, max_bytes: int) -> Buffer:
        """Read the body that belongs to a head.

        Raises:
            InputError: malformed or over `max_bytes`.
            OSError: see the module.
        """
        return self._finish(self._parser.body(head, max_bytes))

    def read_body_into(self, head: Head, max_bytes: int, sink: Callable[[Buffer], object]) -> int:
        """Hand the pieces of a body to `sink` as they come, and return how many bytes they had together.

        Raises:
            InputError, OSError: as `read_body`; `sink` may have had some of it.
        """
        return self._finish(self._parser.body_into(head, max_bytes, sink))

    def _finish(self, steps: Steps[T]) -> T:
        while True:
            try:
                next(steps)
            except StopIteration as done:
                return done.value  # type: ignore[no-any-return]  # what a generator returns has no type here
            self._sock.settimeout(self._patience())
            chunk = self._sock.recv(_RECEIVE_BYTES)
            self.received += len(chunk)
            if chunk:
                self._parser.feed(chunk)
            else:
                self._parser.end()

    def _patience(self, *, limited_by_silence: bool = True) -> float:
        left = self._deadline - self._clock.monotonic()
        if left <= 0:
            raise TimeoutError("the deadline has passed")
        return min(left, self._silence_s) if limited_by_silence else left


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
    """Compress a body for `Content-Encoding: gzip`; level 1, since sensor windows gain little from more."""
    deflate = zlib.compressobj(level=1, wbits=zlib.MAX_WBITS | 16)
    return deflate.compress(body) + deflate.flush()


def handshake(
    sock: socket.socket,
    context: ssl.SSLContext,
    clock: Clock,
    deadline: float,
    *,
    server_hostname: str,
) -> ssl.SSLSocket:
    """Put TLS on a connected socket, as the client.

    The deadline holds for the handshake as a whole, however slowly the peer sends its pieces.

    Raises:
        TimeoutError: the deadline passed.
        OSError: the peer is gone, or TLS failed (ssl.SSLError).
    """
    sock.setblocking(False)
    secure = context.wrap_socket(sock, server_hostname=server_hostname, do_handshake_on_connect=False)
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
