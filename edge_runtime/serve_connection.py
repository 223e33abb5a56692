"""Connections of the server: one event loop, a generator for each connection, a deadline for each of its phases.

An idle connection costs a file descriptor and a few kilobytes, no thread. What a connection waits for is a phase, each
with a longest time; the connections of a phase stand in the order in which they entered it, which is that of their
deadlines, so the next deadline and the longest waiting connection are both found at the front.

Nobody is denied because others are slow. Where the limit of connections is reached, a newcomer takes the place of the
connection that has waited longest: 1. one that was refused and only reads on, 2. one that has not finished its first
headers, 3. an idle one, 4. one that is sending its body. Where the requests that are being received hold more memory
than allowed, 4 and then 2 are dropped. Requests that are answered are never dropped for others.
"""

from __future__ import annotations

import contextlib
import enum
import errno
import logging
import select
import socket
import ssl
import threading
from collections import Counter
from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from edge_runtime.errors import InputError
from edge_runtime.http1 import decompress
from edge_runtime.http_parser import Head, Parser, Steps, T, declared_length
from edge_runtime.loop import Loop, Timer
from edge_runtime.oip import Buffer
from edge_runtime.serve_batch import Call, Refused
from edge_runtime.serve_routes import Inference, Reply, Routes

logger = logging.getLogger(__name__)

_RECEIVE_BYTES = 64 * 1024
_LINGER_BYTES = 16 * 2**20
LINGER_S = 1.0
_ACCEPTS_PER_TURN = 64
_NO_FILES_PAUSE_S = 0.05
_NO_RESOURCES = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


class Wait(enum.Enum):
    """What a generator waits for."""

    READ = enum.auto()
    WRITE = enum.auto()
    MODEL = enum.auto()


Conversation: TypeAlias = Generator[Wait, None, T]


class Phase(enum.IntEnum):
    """What a connection is at while it waits."""

    HEAD = enum.auto()
    """Its TLS handshake, or headers that are not complete."""
    BODY = enum.auto()
    MODEL = enum.auto()
    SEND = enum.auto()
    IDLE = enum.auto()
    """Between requests."""
    LINGER = enum.auto()
    """Refused, and reading on so that the refusal arrives."""


_PLACE_FROM = (Phase.LINGER, Phase.HEAD, Phase.IDLE, Phase.BODY)
_MEMORY_FROM = (Phase.BODY, Phase.HEAD)


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontLimits:
    """Limits on connections.

    Attributes:
        connections: open at a time.
        connections_per_address: of one address; None is as many as `connections`.
        received_bytes: memory of all requests that are being received.
        phases_s: longest time in each phase.
    """

    connections: int
    connections_per_address: int | None
    received_bytes: int
    phases_s: Mapping[Phase, float]


@dataclass(slots=True)
class Counts:
    """Counts of a server: connections that are open, were refused, dropped and evicted; answers by status."""

    connections: int = 0
    refused: int = 0
    dropped: int = 0
    evicted: int = 0
    answers: Counter[int] = field(default_factory=Counter)


class Front:
    """All connections of a server. Everything happens on the thread of the loop.

    Args:
        loop: what calls back.
        routes: what answers.
        tls: how to encrypt; None is clear text.
        limits: see `FrontLimits`.
        counts: see `Counts`; this thread alone changes them.
    """

    def __init__(
        self, loop: Loop, routes: Routes, tls: ssl.SSLContext | None, limits: FrontLimits, counts: Counts
    ) -> None:
        self.loop = loop
        self.routes = routes
        self.tls = tls
        self.draining = False
        self.received_bytes = 0
        self.counts = counts
        self.drained = threading.Event()
        """Set when the last connection is gone after `drain`."""
        self._limits = limits
        self._connections: dict[Connection, str] = {}
        self._addresses: Counter[str] = Counter()
        self._phases: dict[Phase, dict[Connection, float]] = {phase: {} for phase in Phase}
        self._timer: Timer | None = None
        self._due = float("inf")

    # -- coming and going ----------------------------------------------------------------------------------------------

    def listen(self, listener: socket.socket) -> None:
        """Take connections from a listening, non-blocking socket."""
        self.loop.watch(listener.fileno(), lambda: self._accept(listener))

    def drain(self, listener: socket.socket) -> None:
        """Take no more connections, close the idle ones, and let requests under way finish."""
        self.draining = True
        self.loop.unwatch(listener.fileno())
        listener.close()
        for phase in (Phase.IDLE, Phase.HEAD):
            for connection in list(self._phases[phase]):
                if not connection.has_begun():
                    connection.close()
        self._note_drained()

    def close(self) -> None:
        """Cut all connections off."""
        for connection in list(self._connections):
            connection.close()

    def forget(self, connection: Connection) -> None:
        """A connection was closed."""
        self.leave(connection)
        self.received_bytes -= connection.held
        self.counts.connections -= 1
        address = self._connections.pop(connection)
        self._addresses[address] -= 1
        if not self._addresses[address]:
            del self._addresses[address]
        self._note_drained()

    def _note_drained(self) -> None:
        if self.draining and not self._connections:
            self.drained.set()

    def _accept(self, listener: socket.socket) -> None:
        for _ in range(_ACCEPTS_PER_TURN):
            try:
                sock, address = listener.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in _NO_RESOURCES and not self._make_room():
                    # It clears up as requests end, and must not become a busy loop.
                    self.loop.unwatch(listener.fileno())
                    self.loop.call_later(_NO_FILES_PAUSE_S, lambda: self._listen_again(listener))
                    return
                continue  # a peer that was gone before we got to it, or one that can come in now
            self._take_on(sock, str(address[0]))

    def _listen_again(self, listener: socket.socket) -> None:
        if not self.draining:
            self.listen(listener)

    def _take_on(self, sock: socket.socket, address: str) -> None:
        most = self._limits.connections_per_address
        if most is not None and self._addresses[address] >= most:
            self._turn_away(sock, "too many connections from this address")
        elif len(self._connections) >= self._limits.connections and not self._make_room():
            self._turn_away(sock, "too many connections")
        else:
            with contextlib.suppress(OSError):
                sock.setblocking(False)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection = Connection(sock, self)
            self._connections[connection] = address
            self.counts.connections += 1
            self._addresses[address] += 1
            connection.resume()

    def _turn_away(self, sock: socket.socket, why: str) -> None:
        """Say 503 without waiting for anything; over TLS there is nobody to say it to yet."""
        self.counts.refused += 1
        with contextlib.suppress(OSError), sock:
            if self.tls is None:
                sock.setblocking(False)
                reply = self.routes.error(503, why, retry=True)
                sock.sendall(b"".join((reply.head("Connection: close\r\n"), *reply.body.parts)))
                sock.shutdown(socket.SHUT_WR)
                sock.recv(_RECEIVE_BYTES)  # a close over unread bytes would be a reset, and could overtake the answer

    # -- limits --------------------------------------------------------------------------------------------------------

    def enter(self, connection: Connection, phase: Phase) -> None:
        """From now on, the connection waits in a phase; in the one that it is in, its deadline stays."""
        if connection.phase is phase:
            return
        self.leave(connection)
        connection.phase = phase
        due = self.loop.clock.monotonic() + self._limits.phases_s[phase]
        self._phases[phase][connection] = due
        if due < self._due:
            self._arm(due)

    def leave(self, connection: Connection) -> None:
        """The connection waits in no phase."""
        if connection.phase is not None:
            self._phases[connection.phase].pop(connection, None)
            connection.phase = None

    def bound_memory(self) -> None:
        """Drop the slowest where requests that are being received hold too much."""
        while self.received_bytes > self._limits.received_bytes and self._evict(_MEMORY_FROM):
            pass

    def _make_room(self) -> bool:
        return self._evict(_PLACE_FROM)

    def _evict(self, phases: tuple[Phase, ...]) -> bool:
        for phase in phases:
            for connection in self._phases[phase]:
                self.counts.evicted += 1
                connection.close()
                return True
        return False

    def _arm(self, due: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._due = due
        self._timer = self.loop.call_later(due - self.loop.clock.monotonic(), self._on_deadline)

    def _on_deadline(self) -> None:
        self._timer, self._due = None, float("inf")
        now = self.loop.clock.monotonic()
        for connections in self._phases.values():
            for connection, due in list(connections.items()):
                if due > now:
                    break
                self.leave(connection)
                connection.resume(TimeoutError("the peer was too slow"))
        first = min((next(iter(phase.values())) for phase in self._phases.values() if phase), default=self._due)
        if first < self._due:
            self._arm(first)


class Connection:
    """A caller: its socket, its parser, and the conversation with it.

    Args:
        sock: accepted, non-blocking; the connection closes it.
        front: what it belongs to.
    """

    __slots__ = (
        "_call",
        "_closed",
        "_fd",
        "_front",
        "_parser",
        "_sock",
        "_steps",
        "_waits",
        "_watched",
        "held",
        "phase",
    )

    def __init__(self, sock: socket.socket, front: Front) -> None:
        self._sock = sock
        self._fd = sock.fileno()
        self._closed = False
        self._front = front
        self._parser = Parser(response=False)
        self._steps = self._converse()
        self._waits: Wait | None = None
        self._watched = False
        self._call: Call | None = None
        self.phase: Phase | None = None
        self.held = 0
        """Bytes of a request that is being received."""

    def has_begun(self) -> bool:
        """Whether something of a request is here, or in the system's buffer."""
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
        self._front.loop.unwatch(self._fd)
        self._sock.close()
        self._front.forget(self)

    def resume(self, error: Exception | None = None) -> None:
        """Go on with the conversation, until it waits again or ends."""
        if self._closed:
            return
        try:
            self._waits = next(self._steps) if error is None else self._steps.throw(error)
        except StopIteration:
            self.close()
        except OSError:
            self._front.counts.dropped += 1
            self.close()
        except Exception:
            logger.exception("serve: a connection was dropped by an error of this program; please report it")
            self.close()
        else:
            self._watch()

    def _watch(self) -> None:
        loop, fd = self._front.loop, self._fd
        if self._waits is Wait.READ and not self._watched:
            loop.watch(fd, self._on_readable)
            self._watched = True
        elif self._waits is Wait.WRITE:
            loop.watch_write(fd, self._on_writable)

    def _on_readable(self) -> None:
        if self._waits is Wait.READ:
            self.resume()
            self._front.bound_memory()
            return
        # The next request, or the end, while we are at work: it waits in the system's buffer until we are done.
        self._front.loop.unwatch(self._fd)
        self._watched = False
        self._watch()

    def _on_writable(self) -> None:
        self._front.loop.watch_write(self._fd, None)
        self.resume()

    # -- the conversation ----------------------------------------------------------------------------------------------

    def _converse(self) -> Conversation[None]:
        if self._front.tls is not None:
            yield from self._shake_hands(self._front.tls)
        phase = Phase.HEAD  # who connects and stays silent is not a caller yet
        while True:
            self._front.leave(self)  # each request has its own times, also where nobody waited in between
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

    def _answer(self) -> Conversation[bool]:
        """Read one request and answer it; whether the connection goes on."""
        keep, whole, head = False, False, None
        routes = self._front.routes
        try:
            head = yield from self._read(self._parser.head(), Phase.HEAD)
            reply = routes.unauthorized(head)
            if reply is None:
                body = yield from self._read_body(head)
                whole, keep = True, head.keeps_alive(head.start[2])
                answer = routes.answer(head, body, ready=not self._front.draining)
                reply = answer if isinstance(answer, Reply) else (yield from self._infer(answer))
        except (InputError, Refused) as error:
            reply = routes.refusal(error)
        except TimeoutError:
            reply = routes.error(408, "the request did not arrive in time")
        keep = keep and not self._front.draining
        self._front.counts.answers[reply.status] += 1
        yield from self._send(_message(head, reply, keep=keep))
        self._release()
        if not whole:
            yield from self._linger()
        return keep

    def _read_body(self, head: Head) -> Conversation[Buffer]:
        most = self._front.routes.body_limit(head)
        self._front.leave(self)  # the time for the body begins here
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

    def _infer(self, inference: Inference) -> Conversation[Reply]:
        batcher = inference.batcher
        call = self._call = batcher.submit(inference.inputs, lambda: self._on_result(call))
        self._front.enter(self, Phase.MODEL)
        try:
            yield Wait.MODEL
        except TimeoutError:
            raise Refused(503, f"model {batcher.model.name!r} did not answer in time", retry=True) from None
        finally:
            self._call = None
            if call.outputs is None and call.error is None:
                batcher.withdraw(call)
        if call.error is not None:
            raise call.error
        assert call.outputs is not None
        return inference.reply(call.outputs)

    def _on_result(self, call: Call) -> None:
        if self._call is call:
            self.resume()

    # -- the socket ----------------------------------------------------------------------------------------------------

    def _read(self, steps: Steps[T], phase: Phase) -> Conversation[T]:
        while True:
            try:
                next(steps)
            except StopIteration as done:
                return done.value  # type: ignore[no-any-return]  # what a generator returns has no type here
            self._front.enter(self, phase)
            yield Wait.READ
            data = self._receive()
            if data:
                self._parser.feed(data)
                self.held += len(data)
                self._front.received_bytes += len(data)
            elif data is not None:
                self._parser.end()

    def _release(self) -> None:
        """A request was read: what is held now is what came after it."""
        self._front.received_bytes += self._parser.buffered - self.held
        self.held = self._parser.buffered

    def _receive(self) -> bytes | None:
        """Bytes that have come; None when there are none after all, empty at the end."""
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
                self._front.enter(self, Phase.SEND)
                yield Wait.WRITE
            except ssl.SSLWantReadError:
                self._front.enter(self, Phase.SEND)
                yield Wait.READ

    def _shake_hands(self, context: ssl.SSLContext) -> Conversation[None]:
        self._sock = secure = context.wrap_socket(self._sock, server_side=True, do_handshake_on_connect=False)
        self._front.enter(self, Phase.HEAD)
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
            self._front.enter(self, Phase.LINGER)
            left = _LINGER_BYTES
            while left > 0:
                yield Wait.READ
                data = self._receive()
                if data is not None:
                    left -= len(data) or left


def deliver(calls: Iterable[Call]) -> None:
    """Hand finished calls to their connections."""
    for call in calls:
        call.done()


def _message(head: Head | None, reply: Reply, *, keep: bool) -> bytes:
    option = "" if keep else "Connection: close\r\n"
    if keep and head is not None and head.start[2] == "HTTP/1.0":
        option = "Connection: keep-alive\r\n"
    parts = () if head is not None and head.start[0] == "HEAD" else reply.body.parts
    return b"".join((reply.head(option), *parts))
