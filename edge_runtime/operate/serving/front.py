"""The server's connections as a whole: accepting, deadlines, and limits on number and memory, on one event loop.

An idle connection costs a file descriptor and a few kilobytes, no thread. What a connection waits for is a phase, each
with a longest time; the connections of a phase stand in the order in which they entered it, which is that of their
deadlines, so the next deadline and the longest waiting connection are both found at the front.

Slow callers deny no other caller. Where the limit of connections is reached, a newcomer takes the place of the
connection that has waited longest: 1. one that was refused and only reads on, 2. one that has not finished its first
headers, 3. an idle one, 4. one that is sending its body. Where the requests that are being received hold more memory
than allowed, 4 and then 2 are dropped. Requests that are answered are never dropped for others.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import ssl
import struct
import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from edge_runtime.base.system.loop import Loop, Timer
from edge_runtime.operate.serving.connection import HttpConnection, Phase, ServerCounts
from edge_runtime.operate.serving.router import HttpRouter

LINGER_S = 1.0
_ACCEPTS_PER_TURN = 64
_NO_FILES_PAUSE_S = 0.05
_REFUSAL_BYTES = 64 * 1024
_NO_RESOURCES = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
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


class Front:
    """All connections of a server. Everything happens on the thread of the loop.

    Args:
        loop: what calls back.
        router: what answers.
        tls: how to encrypt; None is clear text.
        limits: see `FrontLimits`.
        counts: see `ServerCounts`; this thread alone changes them.
    """

    def __init__(
        self, loop: Loop, router: HttpRouter, tls: ssl.SSLContext | None, limits: FrontLimits, counts: ServerCounts
    ) -> None:
        self.loop = loop
        self.router = router
        self.tls = tls
        self.draining = False
        self.received_bytes = 0
        self.counts = counts
        self.drained = threading.Event()
        """Set when the last connection is gone after `drain`."""
        self._limits = limits
        self._connections: dict[HttpConnection, str] = {}
        self._addresses: Counter[str] = Counter()
        self._phases: dict[Phase, dict[HttpConnection, float]] = {phase: {} for phase in Phase}
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

    def forget(self, connection: HttpConnection) -> None:
        """Forget a connection that was closed."""
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
            self._take_on(sock, str(address[0]) if address else "")  # a Unix socket has none

    def _listen_again(self, listener: socket.socket) -> None:
        if not self.draining:
            self.listen(listener)

    def _take_on(self, sock: socket.socket, address: str) -> None:
        most = self._limits.connections_per_address
        if sock.family == socket.AF_UNIX and _peer_of(sock) not in {0, os.geteuid()}:
            self._turn_away(sock, "this socket answers its application's own user and root", 403)
        elif most is not None and self._addresses[address] >= most:
            self._turn_away(sock, "too many connections from this address")
        elif len(self._connections) >= self._limits.connections and not self._make_room():
            self._turn_away(sock, "too many connections")
        else:
            with contextlib.suppress(OSError):
                sock.setblocking(False)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection = HttpConnection(sock, self, address)
            self._connections[connection] = address
            self.counts.connections += 1
            self._addresses[address] += 1
            connection.resume()

    def _turn_away(self, sock: socket.socket, why: str, status: int = 503) -> None:
        """Refuse without waiting for anything; over TLS that is not possible yet."""
        self.counts.refused += 1
        with contextlib.suppress(OSError), sock:
            if self.tls is None:
                sock.setblocking(False)
                reply = self.router.error(status, why, retry=status == 503)
                sock.sendall(b"".join((reply.head("Connection: close\r\n"), *reply.body.parts)))
                sock.shutdown(socket.SHUT_WR)
                sock.recv(_REFUSAL_BYTES)  # a close over unread bytes would be a reset, and could overtake the answer

    # -- limits --------------------------------------------------------------------------------------------------------

    def enter(self, connection: HttpConnection, phase: Phase) -> None:
        """Move the connection into a phase; in the one that it is in, its deadline stays."""
        if connection.phase is phase:
            return
        self.leave(connection)
        connection.phase = phase
        due = self.loop.clock.monotonic() + self._limits.phases_s[phase]
        self._phases[phase][connection] = due
        if due < self._due:
            self._arm(due)

    def leave(self, connection: HttpConnection) -> None:
        """Take the connection out of its phase, so that it waits in none."""
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


def _peer_of(sock: socket.socket) -> int:
    """Return the user id of the process behind a Unix socket (unix(7), SO_PEERCRED), whatever its mode is."""
    return int(struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[1])
