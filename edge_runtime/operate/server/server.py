"""A server for the Open Inference Protocol v2 over HTTP: JSON and binary tensors, metadata, health, dynamic batching.

It lets a gateway on the local network be the cloud of smaller devices. It knows nothing of engines: a `ServedModel` is
a name, tensor specs and a function. One thread holds all connections, each model has another (reasons and figures:
docs/decisions/0003-cloud-protocol.md). This file is the configuration, and starts and stops; the connections are in
`front` and `connection`, what is answered on them in `routes`, the models' queues in `batcher`.

It listens on the loopback address unless told otherwise, bounds connections, memory, every length and every wait, and
stops by draining.
"""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType

from edge_runtime.base.system.loop import Loop
from edge_runtime.base.system.secrets import SecretFile, server_context
from edge_runtime.base.system.tcp import listen_tcp
from edge_runtime.clock import Clock, SystemClock
from edge_runtime.errors import ConfigError
from edge_runtime.operate.server.batcher import Batcher, Call, ServedModel
from edge_runtime.operate.server.routes import router_of
from edge_runtime.operate.serving.connection import Phase, ServerCounts
from edge_runtime.operate.serving.front import LINGER_S, Front, FrontLimits

_BACKLOG = 1024
_END_S = 1.0  # how long a model that hangs may hold up the end


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeConfig:
    """Settings of the server: address, credentials and limits.

    Raises:
        ValueError: a value makes no sense.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    """0 lets the system choose; `Server.url` tells which one it was."""
    max_connections: int = 4096
    """At the limit, a newcomer takes the place of the connection that has waited longest for its caller."""
    max_connections_per_address: int | None = None
    """Of one address; more are answered 503. None: as many as `max_connections`, as behind a proxy or a router."""
    max_request_bytes: int = 16 * 2**20
    """Longest body, where the inputs of the model set no lower limit."""
    max_received_bytes: int = 64 * 2**20
    """Memory of all requests that are being received; above it the slowest are dropped."""
    header_timeout_s: float = 10.0
    """To the end of a request's headers, however slowly they drip: from its first byte, or from connecting. TLS
    handshakes are part of it."""
    request_timeout_s: float = 30.0
    """From there to the end of the body, and again for the caller to read its answer."""
    idle_timeout_s: float = 75.0
    """Longest silence of a kept-alive connection. Longer than the 60 s of common load balancers, so that they are
    the ones to close, and no request meets a closing connection."""
    max_queue_delay_ms: float = 0.0
    """Longest wait of a request for others to fill its batch; while the model is busy they gather anyway."""
    max_queue_windows: int = 256
    """Windows that may wait for a model; then 503 with `Retry-After`."""
    queue_timeout_s: float = 10.0
    """Longest wait for a model's answer; then 503 with `Retry-After`."""
    retry_after_s: int = 1
    drain_s: float = 5.0
    """Longest wait of `Server.stop` for requests under way."""
    metrics: bool = False
    """Whether ``/metrics`` is answered, with the token where one is set."""
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
        for name in (
            "max_connections",
            "max_connections_per_address",
            "max_request_bytes",
            "max_received_bytes",
            "max_queue_windows",
            "retry_after_s",
        ):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")
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
        refused_connections: turned away at a limit of connections.
        dropped_connections: ended by silence, slowness or a failed TLS handshake.
        evicted_connections: closed for a newcomer, or for memory.
        evicted_sequences: ended to make room for a new one.
    """

    connections: int
    refused_connections: int
    dropped_connections: int
    evicted_connections: int
    answers: Mapping[int, int]
    batches: int
    windows: int
    model_failures: int
    evicted_sequences: int = 0


class Server:
    """Answers for some models. Use as a context manager, or `start` and `stop`.

    Args:
        models: models by the name they are served under.
        config: how to listen.
        clock: what waits are measured with.
        render: renderer of `ServerStats` as metrics, for `ServeConfig.metrics`.

    Raises:
        ConfigError: no model, or a file of the configuration cannot be used.
    """

    def __init__(
        self,
        models: Mapping[str, ServedModel],
        config: ServeConfig | None = None,
        clock: Clock | None = None,
        render: Callable[[ServerStats, bool], bytes] | None = None,
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
            )
            for name, model in models.items()
        }
        token = self._config.token_file
        self._router = router_of(
            self._batchers,
            token=None if token is None else SecretFile(token, "token_file"),
            max_request_bytes=self._config.max_request_bytes,
            retry_after_s=self._config.retry_after_s,
            metrics=(
                (lambda *, openmetrics: render(self.stats(), openmetrics))
                if self._config.metrics and render is not None
                else None
            ),
        )
        self._counts = ServerCounts()
        self._listener: socket.socket | None = None
        self._running: tuple[Loop, Front, threading.Thread] | None = None

    # -- life ----------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Listen, and answer in background threads.

        Raises:
            ConfigError: the address cannot be listened on.
        """
        listener = self._listener = listen_tcp(self._config.host, self._config.port, _BACKLOG, "serve")
        loop = Loop(clock=self._clock)
        front = Front(loop, self._router, self._tls, self._limits(), self._counts)
        for batcher in self._batchers.values():
            batcher.start(lambda calls: loop.call_soon_threadsafe(partial(_deliver, calls)))
            loop.each_iteration(batcher.flush)
        front.listen(listener)
        thread = threading.Thread(target=loop.run, name=f"serve[{self.url}]", daemon=True)
        self._running = loop, front, thread
        thread.start()

    @property
    def url(self) -> str:
        """Return where it listens, for example ``http://127.0.0.1:8000``."""
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
        running, self._running = self._running, None
        listener, self._listener = self._listener, None
        if running is None or listener is None:
            return True
        loop, front, thread = running
        loop.call_soon_threadsafe(partial(front.drain, listener))
        drained = front.drained.wait(self._config.drain_s if timeout_s is None else timeout_s)
        loop.call_soon_threadsafe(front.close)
        loop.stop()
        thread.join()
        loop.close()
        for batcher in self._batchers.values():
            batcher.stop(_END_S)
        return drained

    def stats(self) -> ServerStats:
        """Return counts so far."""
        counts = self._counts
        return ServerStats(
            connections=counts.connections,
            refused_connections=counts.refused,
            dropped_connections=counts.dropped,
            evicted_connections=counts.evicted,
            answers=dict(counts.answers),
            batches=sum(batcher.batches for batcher in self._batchers.values()),
            windows=sum(batcher.rows for batcher in self._batchers.values()),
            model_failures=sum(batcher.failures for batcher in self._batchers.values()),
            evicted_sequences=sum(batcher.model.evicted() for batcher in self._batchers.values()),
        )

    def __enter__(self) -> Server:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _limits(self) -> FrontLimits:
        config = self._config
        return FrontLimits(
            connections=config.max_connections,
            connections_per_address=config.max_connections_per_address,
            received_bytes=config.max_received_bytes,
            phases_s={
                Phase.HEAD: config.header_timeout_s,
                Phase.BODY: config.request_timeout_s,
                Phase.MODEL: config.queue_timeout_s,
                Phase.SEND: config.request_timeout_s,
                Phase.STREAM: config.idle_timeout_s,
                Phase.IDLE: config.idle_timeout_s,
                Phase.LINGER: LINGER_S,
            },
        )


def _deliver(calls: Iterable[Call]) -> None:
    """Hand finished calls to their connections."""
    for call in calls:
        call.done()
