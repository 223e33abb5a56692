"""A connection of the server: its conversation as a generator, which yields what it waits for.

A connection that waits is in a phase with a longest time; `edge_runtime.operate.serving.front` keeps the phases, and
resumes the connection with a `TimeoutError` when one is over.
"""

from __future__ import annotations

import contextlib
import enum
import logging
import select
import socket
import ssl
from collections import Counter
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from edge_runtime.base.http.framing import decompress
from edge_runtime.base.http.parser import Head, Parser, Steps, T, declared_length
from edge_runtime.base.oip import Buffer
from edge_runtime.base.system.loop import Loop
from edge_runtime.errors import InputError
from edge_runtime.operate.serving.answers import EventStream, Pending, Refused, Reply
from edge_runtime.operate.serving.router import HttpRouter

logger = logging.getLogger(__name__)

_RECEIVE_BYTES = 64 * 1024
_LINGER_BYTES = 16 * 2**20


class Wait(enum.Enum):
    """Event that a generator waits for."""

    READ = enum.auto()
    WRITE = enum.auto()
    MODEL = enum.auto()
    MESSAGE = enum.auto()
    """A message of a stream, or the end of its caller."""
    ITERATION = enum.auto()
    """The next iteration of the loop."""


Conversation: TypeAlias = Generator[Wait, None, T]


class Phase(enum.IntEnum):
    """Phase of a connection while it waits."""

    HEAD = enum.auto()
    """Its TLS handshake, or headers that are not complete."""
    BODY = enum.auto()
    MODEL = enum.auto()
    SEND = enum.auto()
    STREAM = enum.auto()
    """Between messages of a stream."""
    IDLE = enum.auto()
    """Between requests."""
    LINGER = enum.auto()
    """Refused, and reading on so that the refusal arrives."""


@dataclass(slots=True)
class ServerCounts:
    """Counts of a server: connections that are open, were refused, dropped and evicted; answers by status."""

    connections: int = 0
    refused: int = 0
    dropped: int = 0
    evicted: int = 0
    answers: Counter[int] = field(default_factory=Counter)


class Owner(Protocol):
    """Owner of connections, as one of them sees it: `edge_runtime.operate.serving.front.Front`."""

    loop: Loop
    router: HttpRouter
    tls: ssl.SSLContext | None
    draining: bool
    received_bytes: int
    """Memory of the requests that are being received, of all connections."""
    counts: ServerCounts

    def enter(self, connection: HttpConnection, phase: Phase, /) -> None:
        """Start the time limit of a phase."""

    def leave(self, connection: HttpConnection, /) -> None:
        """End the time limit of the present phase."""

    def bound_memory(self) -> None:
        """Close connections until `received_bytes` is within its limit."""

    def forget(self, connection: HttpConnection, /) -> None:
        """Drop a connection that was closed."""


class HttpConnection:
    """A caller: its socket, its parser, and the conversation with it.

    Args:
        sock: accepted, non-blocking; the connection closes it.
        owner: what it belongs to.
        address: the caller's address; empty for a Unix socket.
    """

    __slots__ = (
        "_address",
        "_closed",
        "_fd",
        "_owner",
        "_parser",
        "_pending",
        "_sock",
        "_steps",
        "_waits",
        "_watched",
        "held",
        "phase",
    )

    def __init__(self, sock: socket.socket, owner: Owner, address: str = "") -> None:
        self._address = address
        self._sock = sock
        self._fd = sock.fileno()
        self._closed = False
        self._owner = owner
        self._parser = Parser(response=False)
        self._steps = self._converse()
        self._waits: Wait | None = None
        self._watched = False
        self._pending: Pending | None = None
        self.phase: Phase | None = None
        self.held = 0
        """Bytes of a request that is being received."""

    def has_begun(self) -> bool:
        """Return whether something of a request is here, or in the system's buffer."""
        if self._parser.buffered:
            return True
        poll = select.poll()
        poll.register(self._sock, select.POLLIN)
        return bool(poll.poll(0))

    def close(self) -> None:
        """End it now, whatever it is at."""
        if self._closed:
            return
        self._closed = True
        self._steps.close()
        self._owner.loop.unwatch(self._fd)
        self._sock.close()
        self._owner.forget(self)

    def resume(self, error: Exception | None = None) -> None:
        """Go on with the conversation, until it waits again or ends."""
        if self._closed:
            return
        try:
            self._waits = next(self._steps) if error is None else self._steps.throw(error)
        except StopIteration:
            self.close()
        except OSError:
            self._owner.counts.dropped += 1
            self.close()
        except Exception:
            logger.exception("serve: dropped a connection after an unexpected error; please report it")
            self.close()
        else:
            self._watch()

    def _watch(self) -> None:
        loop, fd = self._owner.loop, self._fd
        if self._waits in {Wait.READ, Wait.MESSAGE} and not self._watched:
            loop.watch(fd, self._on_readable)
            self._watched = True
        elif self._waits is Wait.WRITE:
            loop.watch_write(fd, self._on_writable)

    def _on_readable(self) -> None:
        if self._waits in {Wait.READ, Wait.MESSAGE}:
            self.resume()
            self._owner.bound_memory()
            return
        # The next request, or the end, while we are at work: it waits in the system's buffer until we are done.
        self._owner.loop.unwatch(self._fd)
        self._watched = False
        self._watch()

    def _on_writable(self) -> None:
        self._owner.loop.watch_write(self._fd, None)
        self.resume()

    # -- the conversation ----------------------------------------------------------------------------------------------

    def _converse(self) -> Conversation[None]:
        if self._owner.tls is not None:
            yield from self._shake_hands(self._owner.tls)
        phase = Phase.HEAD  # who connects and stays silent is not a caller yet
        while True:
            self._owner.leave(self)  # each request has its own times, also without a wait in between
            try:
                if not (yield from self._read(self._parser.begin(), phase)):
                    return
            except TimeoutError:
                if phase is Phase.IDLE:
                    return
                raise
            if not (yield from self._answer()):
                return
            phase = Phase.IDLE
            if self._parser.buffered:  # the next request is here already: others come first
                self._owner.loop.call_soon(self.resume)
                yield Wait.ITERATION

    def _answer(self) -> Conversation[bool]:
        """Read one request and answer it; whether the connection goes on."""
        keep, whole, head = False, False, None
        router = self._owner.router
        try:
            head = yield from self._read(self._parser.head(), Phase.HEAD)
            reply = router.unauthorized(head)
            if reply is None:
                body = yield from self._read_body(head)
                whole, keep = True, head.keeps_alive(head.start[2])
                answer = router.answer(head, body, ready=not self._owner.draining, peer=self._address)
                if isinstance(answer, EventStream):
                    yield from self._stream(answer)
                    return False
                reply = answer if isinstance(answer, Reply) else (yield from self._wait_for(answer))
        except (InputError, Refused) as error:
            reply = router.refusal(error)
        except TimeoutError:
            reply = router.error(408, "the request did not arrive in time")
        keep = keep and not self._owner.draining
        self._owner.counts.answers[reply.status] += 1
        yield from self._send(_message(head, reply, keep=keep))
        self._release()
        if not whole:
            yield from self._linger()
        return keep

    def _read_body(self, head: Head) -> Conversation[Buffer]:
        most = self._owner.router.body_limit(head)
        self._owner.leave(self)  # the time for the body begins here
        expectation = head.headers.get("expect")
        if expectation is not None and head.start[2] == "HTTP/1.1":
            if expectation.lower() != "100-continue":
                raise InputError("expectation", f"the expectation {expectation[:40]!r} cannot be met")
            if not self._parser.buffered:
                declared_length(head, most)  # refuse now rather than after the upload
                yield from self._send(b"HTTP/1.1 100 Continue\r\n\r\n")
        body = yield from self._read(self._parser.body(head, most), Phase.BODY)
        self._release()
        return decompress(body, head.headers.get("content-encoding", ""), most)

    def _wait_for(self, pending: Pending) -> Conversation[Reply]:
        self._pending = pending
        try:
            pending.start(lambda: self._on_result(pending))
            self._owner.enter(self, Phase.MODEL)
            yield Wait.MODEL
        except (TimeoutError, GeneratorExit) as error:
            refused = pending.withdraw()
            if isinstance(error, GeneratorExit):
                raise
            raise refused from None
        finally:
            self._pending = None
        return pending.reply()

    def _on_result(self, pending: Pending) -> None:
        if self._pending is pending:
            self.resume()

    def _stream(self, stream: EventStream) -> Conversation[None]:
        """Send what comes until the caller leaves, or nothing has come for the time of the phase."""
        self._release()
        self._owner.counts.answers[200] += 1
        try:
            yield from self._send(stream.head())
            while True:
                while data := stream.read(self._on_message):
                    yield from self._send(data)
                self._owner.enter(self, Phase.STREAM)
                yield Wait.MESSAGE
                self._owner.leave(self)
                if self._receive() is not None:  # it left; or it talks, which no caller of a stream does
                    return
        except TimeoutError:
            self._owner.counts.dropped += 1
        finally:
            stream.close()

    def _on_message(self) -> None:
        if self._waits is Wait.MESSAGE:
            self.resume()

    # -- the socket ----------------------------------------------------------------------------------------------------

    def _read(self, steps: Steps[T], phase: Phase) -> Conversation[T]:
        while True:
            try:
                next(steps)
            except StopIteration as done:
                return done.value  # type: ignore[no-any-return]  # what a generator returns has no type here
            self._owner.enter(self, phase)
            yield Wait.READ
            data = self._receive()
            if data:
                self._parser.feed(data)
                self.held += len(data)
                self._owner.received_bytes += len(data)
            elif data is not None:
                self._parser.end()

    def _release(self) -> None:
        """Release a request that was read: what is held now is what came after it."""
        self._owner.received_bytes += self._parser.buffered - self.held
        self.held = self._parser.buffered

    def _receive(self) -> bytes | None:
        """Receive the bytes that have come; None when there are none after all, empty at the end."""
        try:
            data = self._sock.recv(_RECEIVE_BYTES)
            while data and isinstance(self._sock, ssl.SSLSocket) and self._sock.pending():
                data += self._sock.recv(_RECEIVE_BYTES)  # decrypted already, so the selector does not see it
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return None
        return data

    def _send(self, data: bytes) -> Conversation[None]:
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[self._sock.send(rest) :]
            except (BlockingIOError, ssl.SSLWantWriteError):
                self._owner.enter(self, Phase.SEND)
                yield Wait.WRITE
            except ssl.SSLWantReadError:
                self._owner.enter(self, Phase.SEND)
                yield Wait.READ

    def _shake_hands(self, context: ssl.SSLContext) -> Conversation[None]:
        self._sock = secure = context.wrap_socket(self._sock, server_side=True, do_handshake_on_connect=False)
        self._owner.enter(self, Phase.HEAD)
        while True:
            try:
                secure.do_handshake()
            except ssl.SSLWantReadError:
                yield Wait.READ
            except ssl.SSLWantWriteError:
                yield Wait.WRITE
            else:
                return

    def _linger(self) -> Conversation[None]:
        """Read on for a moment after an early refusal.

        Closing over unread bytes resets the connection, and the reset can reach the caller before our answer does.
        """
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_WR)
            self._owner.enter(self, Phase.LINGER)
            left = _LINGER_BYTES
            while left > 0:
                yield Wait.READ
                data = self._receive()
                if data is not None:
                    left -= len(data) or left


def _message(head: Head | None, reply: Reply, *, keep: bool) -> bytes:
    option = "" if keep else "Connection: close\r\n"
    if keep and head is not None and head.start[2] == "HTTP/1.0":
        option = "Connection: keep-alive\r\n"
    parts = () if head is not None and head.start[0] == "HEAD" else reply.body.parts
    return b"".join((reply.head(option), *parts))
