"""HTTP/1.1 client: the only module that opens, reuses and times out a connection to a server.

The cloud client and the webhook sink use `Connections`: one request and its answer by one deadline. The download of
updates uses `open_stream`, since it writes the body to the disk as it comes. Policy stays with the caller: addresses
that are allowed, retries, what a status means to it. Redirects, proxies and cookies are not followed, used or kept.
"""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from edge_runtime.base.http.endpoint import Endpoint
from edge_runtime.base.http.framing import SocketStream, handshake
from edge_runtime.base.http.parser import Head
from edge_runtime.base.oip import Buffer
from edge_runtime.base.system.retry import parse_date, parse_retry_after
from edge_runtime.base.system.secrets import ClientTls
from edge_runtime.clock import Clock
from edge_runtime.errors import InputError

_MAX_INTERIM = 8  # "100 Continue" and "103 Early Hints" before the answer proper
_WITHOUT_BODY = ("204", "304")
# The request is fine, the moment is not; 401 and 403 heal when an operator renews the token.
_TRANSIENT_4XX: Final = frozenset({401, 403, 408, 425, 429})
_FINAL_5XX: Final = frozenset({501, 505})  # "not implemented" and "HTTP version not supported" do not heal


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer whose head was read.

    Attributes:
        head: status line and headers.
        body: as sent, still compressed where the server compressed it; empty with a `flaw`.
        flaw: why the body could not be read: malformed, or over the limit. The status holds all the same.
    """

    head: Head
    body: Buffer
    flaw: InputError | None = None

    @property
    def status(self) -> int:
        """The status code."""
        return int(self.head.start[1])

    @property
    def is_transient(self) -> bool:
        """Return whether the same request may succeed later: overload, credentials, and redirects (captive portals)."""
        status = self.status
        return 300 <= status < 400 or status in _TRANSIENT_4XX or (500 <= status < 600 and status not in _FINAL_5XX)

    def retry_after_s(self, clock: Clock) -> float | None:
        """Return the seconds that the server asks to wait, by its own `Date`; None where it does not say."""
        value = self.head.headers.get("retry-after")
        if value is None:
            return None
        return parse_retry_after(value, parse_date(self.head.headers.get("date", ""), clock.wall()))


def open_stream(
    endpoint: Endpoint,
    tls: ClientTls | None,
    clock: Clock,
    deadline: float,
    *,
    connect_timeout_s: float | None = None,
    admit: Callable[[str], None] | None = None,
) -> SocketStream:
    """Open a connection, TCP and TLS together, to the first address of the host that takes it.

    Each address gets an equal share of the time that is left, so that one that swallows packets (a broken IPv6 route)
    leaves time for the next.

    Args:
        endpoint: host and port.
        tls: how to encrypt; None is clear text.
        clock: what deadlines are measured with.
        deadline: monotonic seconds.
        connect_timeout_s: longest time for one address; None: its share.
        admit: called with each address before it is connected to; raises what refuses it.

    Raises:
        OSError: none of the addresses took it in time.
    """
    last: OSError = TimeoutError("no time left to connect")
    found = socket.getaddrinfo(endpoint.host, endpoint.port, type=socket.SOCK_STREAM)
    for tried, (family, kind, protocol, _, address) in enumerate(found):
        if admit is not None:
            admit(str(address[0]))
        now = clock.monotonic()
        left = (deadline - now) / (len(found) - tried)
        if connect_timeout_s is not None:
            left = min(left, connect_timeout_s)
        if left <= 0:
            break
        sock = socket.socket(family, kind, protocol)
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # without it, a body waits 40 ms for an ACK
            sock.settimeout(left)
            sock.connect(address)
            if tls is not None:
                sock = handshake(sock, tls.context(), clock, now + left, server_hostname=endpoint.host)
        except OSError as error:
            sock.close()
            last = error
        else:
            return SocketStream(sock, clock)
    raise last


def reason_of(error: OSError) -> str:
    """Return the reason of a failed connection, for a message."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is refused ({error.verify_message}); check ca_file, the host name and this clock"
    if isinstance(error, ssl.SSLError):
        return f"TLS: {error.reason or error}"
    return error.strerror or str(error) or type(error).__name__


class Connections:
    """Connections to one host and port, kept between requests. Safe to share between threads.

    Args:
        endpoint: host and port.
        tls: how to encrypt; None is clear text.
        clock: what deadlines are measured with.
        max_idle: connections kept open between requests.
        connect_timeout_s: see `open_stream`.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        tls: ClientTls | None,
        clock: Clock,
        *,
        max_idle: int = 1,
        connect_timeout_s: float | None = None,
    ) -> None:
        self._endpoint = endpoint
        self._tls = tls
        self._clock = clock
        self._max_idle = max_idle
        self._connect_timeout_s = connect_timeout_s
        self._lock = threading.Lock()
        self._idle: list[SocketStream] = []

    def close(self) -> None:
        """Close idle connections. May be called twice."""
        with self._lock:
            idle, self._idle = self._idle, []
        for stream in idle:
            stream.close()

    def exchange(self, head: bytes, parts: Iterable[Buffer], deadline: float, *, max_body_bytes: int) -> Answer:
        """Send a request and read its answer.

        Args:
            head: request line and headers, with the empty line.
            parts: the body.
            deadline: monotonic seconds; bounds connecting, sending and all of the answer, however slowly it drips.
            max_body_bytes: longest body of the answer.

        Raises:
            TimeoutError: the deadline passed.
            OSError: no connection, or it broke.
            InputError: what came is not HTTP.
        """
        parts = tuple(parts)
        stream = self._reusable()
        if stream is not None:
            before = stream.received
            try:
                return self._talk(stream, head, parts, deadline, max_body_bytes)
            except TimeoutError:
                raise
            except OSError:
                # The server closed a kept connection at the moment we used it. Nothing of an answer came, so this is
                # no answer to the request: once more, on a new connection, and the other old ones go as well.
                if stream.received != before:
                    raise
                self.close()
        return self._talk(self.open(deadline), head, parts, deadline, max_body_bytes)

    def open(self, deadline: float) -> SocketStream:
        """Open a new connection; see `open_stream`."""
        limit = self._connect_timeout_s
        return open_stream(self._endpoint, self._tls, self._clock, deadline, connect_timeout_s=limit)

    def _talk(
        self, stream: SocketStream, head: bytes, parts: tuple[Buffer, ...], deadline: float, max_body_bytes: int
    ) -> Answer:
        """Exchange one request and its answer; closes the stream unless it can be used again."""
        keep = False
        try:
            stream.limit_wait(deadline, float("inf"))
            unsent: OSError | None = None
            try:
                stream.send(head, parts)
            except TimeoutError:
                raise
            except OSError as error:
                unsent = error  # a server that refuses early (413, 401) closes while we write; its answer may be here
            try:
                answer = _read(stream, max_body_bytes)
            except OSError:
                if unsent is not None:
                    raise unsent from None
                raise
            keep = unsent is None and answer.flaw is None and _can_follow(answer.head)
            return answer
        finally:
            if keep:
                self._keep(stream)
            else:
                stream.close()

    def _reusable(self) -> SocketStream | None:
        while True:
            with self._lock:
                if not self._idle:
                    return None
                stream = self._idle.pop()
            if not stream.is_stale():
                return stream
            stream.close()

    def _keep(self, stream: SocketStream) -> None:
        with self._lock:
            if len(self._idle) < self._max_idle:
                self._idle.append(stream)
                return
        stream.close()


def _read(stream: SocketStream, max_body_bytes: int) -> Answer:
    for _ in range(_MAX_INTERIM):
        head = stream.read_head()
        if not head.start[1].startswith("1"):
            break
    else:
        raise InputError("http", "nothing but interim answers (status 1xx)")
    if head.start[1] in _WITHOUT_BODY:
        return Answer(head, b"")
    try:
        return Answer(head, stream.read_body(head, max_body_bytes))
    except InputError as error:
        return Answer(head, b"", error)


def _can_follow(head: Head) -> bool:
    """Return whether another request may follow on the connection: both sides know where this answer ended."""
    version, status, _ = head.start
    framed = "content-length" in head.headers or "transfer-encoding" in head.headers
    return head.keeps_alive(version) and (framed or status in _WITHOUT_BODY)
