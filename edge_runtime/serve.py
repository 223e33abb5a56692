"""A server for the Open Inference Protocol v2 over HTTP: JSON and binary tensors, metadata, health, dynamic batching.

It lets a gateway on the local network be the cloud of smaller devices. It knows nothing of engines: a `ServedModel` is
a name, tensor specs and a function. Threads and the standard library are enough for that (reasons and figures are in
docs/decisions/0003-cloud-protocol.md): one thread accepts, each connection has one, and whichever of them leads a batch
runs the model. This file starts, stops and keeps the connections; what is answered on them is in
`edge_runtime.serve_routes`.

It listens on the loopback address unless told otherwise, bounds the number of connections, every length and every wait,
and stops by draining.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from edge_runtime.clock import Clock, SystemClock
from edge_runtime.credentials import SecretFile, server_context
from edge_runtime.errors import ConfigError, InputError
from edge_runtime.http1 import Head, Stream, decompress, handshake
from edge_runtime.oip import Buffer
from edge_runtime.serve_batch import Batcher, ServedModel
from edge_runtime.serve_routes import Reply, Routes

_LINGER_BYTES = 16 * 2**20
_LINGER_S = 1.0
_POSSIBLE_LEAK_PAUSE_S = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeConfig:
    """How the server listens, and what it puts up with.

    Raises:
        ValueError: a value makes no sense.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    """0 lets the system choose; `Server.url` tells which one it was."""
    max_connections: int = 64
    max_request_bytes: int = 16 * 2**20
    header_timeout_s: float = 10.0
    """From the first byte of a request to the end of its headers, however slowly they drip; TLS handshakes as well."""
    request_timeout_s: float = 30.0
    """From there to the end of the body, and again for the caller to read its answer."""
    idle_timeout_s: float = 75.0
    """How long a kept-alive connection may be silent. Longer than the 60 s of common load balancers, so that they are
    the ones to close, and no request meets a closing connection."""
    max_queue_delay_ms: float = 0.0
    """How long a request waits for others to fill a batch; while the model is busy they gather anyway."""
    max_queue_windows: int = 256
    """Windows that may wait for a model; then 503 with `Retry-After`."""
    queue_timeout_s: float = 10.0
    retry_after_s: int = 1
    drain_s: float = 5.0
    """How long `Server.stop` waits for requests under way."""
    token_file: Path | None = None
    """Bearer token that callers must send; health checks of the server itself stay open."""
    cert_file: Path | None = None
    """Certificate chain; makes it HTTPS."""
    key_file: Path | None = None
    client_ca_file: Path | None = None
    """Callers must show a certificate of this authority."""

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65535:
            raise ValueError(f"port must be between 0 and 65535, got {self.port}")
        if min(self.max_connections, self.max_request_bytes, self.max_queue_windows, self.retry_after_s) < 1:
            raise ValueError("max_connections, max_request_bytes, max_queue_windows and retry_after_s must be >= 1")
        waits = (self.header_timeout_s, self.request_timeout_s, self.idle_timeout_s, self.queue_timeout_s)
        if min(waits) <= 0 or self.max_queue_delay_ms < 0 or self.drain_s < 0:
            raise ValueError("time-outs must be above 0, max_queue_delay_ms and drain_s at least 0")
        if self.cert_file is None and (self.key_file or self.client_ca_file):
            raise ValueError("key_file and client_ca_file need cert_file")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerStats:
    """Counts since the start, at one moment.

    Attributes:
        answers: by HTTP status.
        batches: calls of a model; `windows / batches` is the mean batch.
        refused_connections: turned away at the connection limit.
        dropped_connections: ended by silence, slowness or a failed TLS handshake.
    """

    connections: int
    refused_connections: int
    dropped_connections: int
    answers: Mapping[int, int]
    batches: int
    windows: int
    model_failures: int


@dataclass(slots=True, eq=False)
class _Connection:
    sock: socket.socket
    idle: bool = False


class Server:
    """Answers for some models. Use as a context manager, or `start` and `stop`.

    Args:
        models: by the name they are served under.
        config: how to listen.
        clock: what waits are measured with.

    Raises:
        ConfigError: no model, or a file of the configuration cannot be used.
    """

    def __init__(
        self, models: Mapping[str, ServedModel], config: ServeConfig | None = None, clock: Clock | None = None
    ) -> None:
        if not models:
            raise ConfigError("serve: there is no model to serve")
        self._config = config or ServeConfig()
        self._clock = clock or SystemClock()
        self._tls: ssl.SSLContext | None = None
        if self._config.cert_file is not None:
            self._tls = server_context(self._config.cert_file, self._config.key_file, self._config.client_ca_file)
        self._batchers = {
            name: Batcher(
                model,
                self._clock,
                max_queue_delay_s=self._config.max_queue_delay_ms / 1000,
                max_queue_rows=self._config.max_queue_windows,
                queue_timeout_s=self._config.queue_timeout_s,
            )
            for name, model in models.items()
        }
        token = self._config.token_file
        self._routes = Routes(
            self._batchers,
            token=None if token is None else SecretFile(token, "token_file"),
            max_request_bytes=self._config.max_request_bytes,
            retry_after_s=self._config.retry_after_s,
        )
        self._lock = threading.Lock()
        self._listener: socket.socket | None = None
        self._acceptor: threading.Thread | None = None
        self._threads: dict[_Connection, threading.Thread] = {}
        self._draining = False
        self._answers: Counter[int] = Counter()
        self._refused = 0
        self._dropped = 0

    # -- life ----------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Listen, and answer in background threads.

        Raises:
            ConfigError: the address cannot be listened on.
        """
        host, port = self._config.host, self._config.port
        try:
            family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
            listener = socket.create_server(address, family=family, backlog=128)
        except OSError as error:
            raise ConfigError(f"serve: cannot listen on {host}:{port}: {error.strerror or error}") from None
        self._draining = False
        self._listener = listener
        self._acceptor = threading.Thread(target=self._accept, args=(listener,), name=f"serve[{self.url}].accept")
        self._acceptor.daemon = True
        self._acceptor.start()

    @property
    def url(self) -> str:
        """Where it listens, for example ``http://127.0.0.1:8000``."""
        if self._listener is None:
            raise ConfigError("serve: the server is not started")
        host, port = self._listener.getsockname()[:2]
        return f"{'http' if self._tls is None else 'https'}://{f'[{host}]' if ':' in host else host}:{port}"

    def stop(self, timeout_s: float | None = None) -> bool:
        """Stop accepting, let requests under way finish, and close.

        Args:
            timeout_s: how long to wait for them; None is `ServeConfig.drain_s`. Afterwards they are cut off.

        Returns:
            Whether all of them finished.
        """
        deadline = self._clock.monotonic() + (self._config.drain_s if timeout_s is None else timeout_s)
        with self._lock:
            self._draining = True
            listener, self._listener = self._listener, None
            idle = [connection for connection in self._threads if connection.idle]
            for connection in idle:
                # The raw call: it wakes the thread that waits in recv, and leaves a TLS object that it may be using
                # alone. What has arrived already is still read, so no request is lost between the two.
                with contextlib.suppress(OSError):
                    socket.socket.shutdown(connection.sock, socket.SHUT_RD)
        if listener is not None:
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)  # wakes accept
            listener.close()
        if self._acceptor is not None:
            self._acceptor.join()
        drained = self._join(deadline)
        if not drained:
            with self._lock:
                for connection in self._threads:
                    with contextlib.suppress(OSError):
                        socket.socket.shutdown(connection.sock, socket.SHUT_RDWR)
            self._join(self._clock.monotonic() + 1.0)
        return drained

    def stats(self) -> ServerStats:
        """Counts so far."""
        with self._lock:
            return ServerStats(
                connections=len(self._threads),
                refused_connections=self._refused,
                dropped_connections=self._dropped,
                answers=dict(self._answers),
                batches=sum(batcher.batches for batcher in self._batchers.values()),
                windows=sum(batcher.rows for batcher in self._batchers.values()),
                model_failures=sum(batcher.failures for batcher in self._batchers.values()),
            )

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _join(self, deadline: float) -> bool:
        with self._lock:
            threads = list(self._threads.values())
        for thread in threads:
            thread.join(max(0.0, deadline - self._clock.monotonic()))
        return not any(thread.is_alive() for thread in threads)

    # -- connections ---------------------------------------------------------------------------------------------------

    def _accept(self, listener: socket.socket) -> None:
        while not self._draining:
            try:
                sock, address = listener.accept()
            except OSError:
                # Stopped, or a peer that was gone before we got to it, or no file descriptors left: the last one
                # clears up as connections end, and must not turn into a busy loop.
                if not self._draining:
                    self._clock.sleep(_POSSIBLE_LEAK_PAUSE_S)
                continue
            if not self._take_on(_Connection(sock), f"serve[{address[0]}:{address[1]}]"):
                self._turn_away(sock)

    def _take_on(self, connection: _Connection, name: str) -> bool:
        """Give a connection its thread; False when there are enough, or the system has no more."""
        thread = threading.Thread(target=self._converse, args=(connection,), name=name, daemon=True)
        with self._lock:
            if len(self._threads) >= self._config.max_connections:
                self._refused += 1
                return False
            self._threads[connection] = thread
            try:
                thread.start()
            except RuntimeError:
                del self._threads[connection]
                self._refused += 1
                return False
        return True

    def _turn_away(self, sock: socket.socket) -> None:
        """Say 503 without waiting for anything; over TLS there is nobody to say it to yet."""
        with contextlib.suppress(OSError), sock:
            if self._tls is None:
                sock.setblocking(False)
                reply = self._routes.error(503, "too many connections", retry=True)
                sock.sendall(b"".join((reply.head("Connection: close\r\n"), *reply.body.parts)))
                sock.shutdown(socket.SHUT_WR)
                sock.recv(64 * 1024)  # a close over unread bytes would be a reset, and could overtake the answer

    def _converse(self, connection: _Connection) -> None:
        try:
            connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._tls is not None:
                limit = self._clock.monotonic() + self._config.header_timeout_s
                connection.sock = handshake(connection.sock, self._tls, self._clock, limit)
            stream = Stream(connection.sock, self._clock)
            while self._next_request(connection, stream) and self._answer(stream):
                pass
        except OSError:
            with self._lock:
                self._dropped += 1
        finally:
            connection.sock.close()
            with self._lock:
                del self._threads[connection]

    def _next_request(self, connection: _Connection, stream: Stream) -> bool:
        """Wait for a request to begin; False when none will."""
        if stream.buffered:
            return True
        with self._lock:
            if self._draining:
                return False
            connection.idle = True
        stream.limit_wait(self._clock.monotonic() + self._config.idle_timeout_s, self._config.idle_timeout_s)
        begun = stream.wait()
        with self._lock:
            connection.idle = False
        return begun

    def _answer(self, stream: Stream) -> bool:
        """Read one request and answer it; whether the connection goes on."""
        keep, whole, head = False, False, None
        try:
            limit = self._clock.monotonic() + self._config.header_timeout_s
            stream.limit_wait(limit, self._config.header_timeout_s)
            head = stream.read_head(response=False)
            reply = self._routes.unauthorized(head)
            if reply is None:
                body = self._read_body(stream, head)
                whole = True
                keep = head.keeps_alive(head.start[2])
                reply = self._routes.answer(head, body, ready=not self._draining)
        except InputError as error:
            too_large = 431 if head is None else 413
            status = {"too_large": too_large, "encoding": 415}.get(error.reason, 400)
            reply = self._routes.error(status, str(error))
        except TimeoutError:
            reply = self._routes.error(408, "the request did not arrive in time")
        keep = keep and not self._draining
        self._send(stream, head, reply, keep=keep)
        if not whole:
            self._linger(stream)
        return keep

    def _read_body(self, stream: Stream, head: Head) -> Buffer:
        limit = self._clock.monotonic() + self._config.request_timeout_s
        stream.limit_wait(limit, self._config.header_timeout_s)
        if head.headers.get("expect", "").lower() == "100-continue" and not stream.buffered:
            stream.check_length(head, self._config.max_request_bytes)  # refuse now rather than after the upload
            stream.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        body = stream.read_body(head, self._config.max_request_bytes, response=False)
        return decompress(body, head.headers.get("content-encoding", ""), self._config.max_request_bytes)

    def _send(self, stream: Stream, head: Head | None, reply: Reply, *, keep: bool) -> None:
        with self._lock:
            self._answers[reply.status] += 1
        option = "" if keep else "Connection: close\r\n"
        if keep and head is not None and head.start[2] == "HTTP/1.0":
            option = "Connection: keep-alive\r\n"
        parts = () if head is not None and head.start[0] == "HEAD" else reply.body.parts
        stream.limit_wait(self._clock.monotonic() + self._config.request_timeout_s, self._config.request_timeout_s)
        stream.send(reply.head(option), parts)

    def _linger(self, stream: Stream) -> None:
        """Read on for a moment after an early refusal.

        Closing over unread bytes resets the connection, and the reset can reach the caller before our answer does.
        """
        with contextlib.suppress(OSError):
            stream.end_writing()
            stream.limit_wait(self._clock.monotonic() + _LINGER_S, _LINGER_S)
            stream.discard(_LINGER_BYTES)
