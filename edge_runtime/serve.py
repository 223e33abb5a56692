"""A server for the Open Inference Protocol v2 over HTTP: JSON and binary tensors, metadata, health, dynamic batching.

It lets a gateway on the local network be the cloud of smaller devices. It knows nothing of engines: a `ServedModel` is
a name, tensor specs and a function. Threads and the standard library are enough for that (reasons and figures are in
docs/decisions/0003-cloud-protocol.md): one thread accepts, each connection has one, and whichever of them leads a batch
runs the model.

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
from http import HTTPStatus
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import unquote

import orjson

from edge_runtime._version import __version__
from edge_runtime.clock import Clock, SystemClock
from edge_runtime.credentials import SecretFile, server_context
from edge_runtime.errors import ConfigError, InputError
from edge_runtime.http1 import Head, Stream, decompress, handshake
from edge_runtime.oip import (
    BINARY_EXTENSION,
    JSON_LENGTH_HEADER,
    Body,
    Buffer,
    InferRequest,
    Limits,
    TensorSpec,
    decode_request,
    encode_response,
    json_length,
)
from edge_runtime.serve_batch import Batcher, Refused, ServedModel

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


@dataclass(frozen=True, slots=True)
class _Reply:
    status: int
    body: Body
    headers: str = ""


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
        token = self._config.token_file
        self._token = None if token is None else SecretFile(token, "token_file")
        self._limits = Limits(
            max_body_bytes=self._config.max_request_bytes,
            max_json_bytes=min(self._config.max_request_bytes, Limits().max_json_bytes),
        )
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
                reply = self._error(503, "too many connections", retry=True)
                sock.sendall(b"".join((self._reply_head(reply, "Connection: close\r\n"), *reply.body.parts)))
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
            reply = self._unauthorized(head)
            if reply is None:
                body = self._read_body(stream, head)
                whole = True
                keep = head.keeps_alive(head.start[2])
                reply = self._route(head, body)
        except InputError as error:
            too_large = 431 if head is None else 413
            status = {"too_large": too_large, "encoding": 415}.get(error.reason, 400)
            reply = self._error(status, str(error))
        except TimeoutError:
            reply = self._error(408, "the request did not arrive in time")
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

    def _send(self, stream: Stream, head: Head | None, reply: _Reply, *, keep: bool) -> None:
        with self._lock:
            self._answers[reply.status] += 1
        option = "" if keep else "Connection: close\r\n"
        if keep and head is not None and head.start[2] == "HTTP/1.0":
            option = "Connection: keep-alive\r\n"
        parts = () if head is not None and head.start[0] == "HEAD" else reply.body.parts
        stream.limit_wait(self._clock.monotonic() + self._config.request_timeout_s, self._config.request_timeout_s)
        stream.send(self._reply_head(reply, option), parts)

    def _linger(self, stream: Stream) -> None:
        """Read on for a moment after an early refusal.

        Closing over unread bytes resets the connection, and the reset can reach the caller before our answer does.
        """
        with contextlib.suppress(OSError):
            stream.end_writing()
            stream.limit_wait(self._clock.monotonic() + _LINGER_S, _LINGER_S)
            stream.discard(_LINGER_BYTES)

    # -- requests ------------------------------------------------------------------------------------------------------

    def _unauthorized(self, head: Head) -> _Reply | None:
        if self._token is None or _segments(head)[:2] == ["v2", "health"]:
            return None
        scheme, _, credentials = head.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and self._token.matches(credentials.strip()):
            return None
        reply = self._error(401, "a bearer token is needed, or the one sent is not right")
        return _Reply(reply.status, reply.body, 'WWW-Authenticate: Bearer realm="inference"\r\n')

    def _route(self, head: Head, body: Buffer) -> _Reply:
        try:
            return self._dispatch(head, body)
        except Refused as refusal:
            return self._error(refusal.status, str(refusal), retry=refusal.retry)
        except InputError as error:
            return self._error(400, str(error))

    def _dispatch(self, head: Head, body: Buffer) -> _Reply:
        match _segments(head):
            case ["v2"]:
                self._only(head, "GET")
                return _json(200, {"name": "edge-runtime", "version": __version__, "extensions": [BINARY_EXTENSION]})
            case ["v2", "health", "live" as what] | ["v2", "health", "ready" as what]:
                self._only(head, "GET")
                good = what == "live" or not self._draining
                return _json(200 if good else 503, {what: good})
            case ["v2", "models", name, *rest]:
                return self._model(head, body, name, rest)
            case _:
                raise Refused(404, "no such path; see the Open Inference Protocol, version 2")

    def _model(self, head: Head, body: Buffer, name: str, rest: list[str]) -> _Reply:
        batcher = self._batchers.get(name)
        if batcher is None:
            raise Refused(404, f"model {name[:60]!r} is not served here; there is {', '.join(self._batchers)}")
        model = batcher.model
        if rest[:1] == ["versions"] and len(rest) >= 2:
            if rest[1] != model.version:
                raise Refused(404, f"model {name!r} has version {model.version}, not {rest[1][:60]!r}")
            rest = rest[2:]
        match rest:
            case []:
                self._only(head, "GET")
                return _json(200, _metadata(name, model))
            case ["ready"]:
                self._only(head, "GET")
                ready = not self._draining
                return _json(200 if ready else 503, {"name": name, "ready": ready})
            case ["infer"]:
                self._only(head, "POST")
                return self._infer(head, body, name, batcher)
            case _:
                raise Refused(404, f"model {name!r} has no {'/'.join(rest)[:60]!r}")

    def _infer(self, head: Head, body: Buffer, name: str, batcher: Batcher) -> _Reply:
        request = decode_request(body, json_length(head.headers.get(JSON_LENGTH_HEADER.lower())), self._limits)
        model = batcher.model
        known = {spec.name for spec in model.outputs}
        for output in request.outputs:
            if output.name not in known:
                raise InputError("name", f"model {name!r} has no output {output.name!r}")
        _check_inputs(model, request)
        outputs = batcher.run(request.inputs)
        wanted = [output.name for output in request.outputs] or [spec.name for spec in model.outputs]
        try:
            answer = encode_response(
                {output: outputs[output] for output in wanted},
                model_name=name,
                model_version=model.version,
                request_id=request.id,
                binary={output for output in wanted if request.wants_binary(output)},
            )
        except InputError as error:  # not the caller's fault: the model's output cannot be put into JSON
            raise Refused(500, f"{error}; ask for binary data") from None
        return _Reply(200, answer)

    def _only(self, head: Head, method: str) -> None:
        if head.start[0] != method and not (method == "GET" and head.start[0] == "HEAD"):
            raise Refused(405, f"use {method} here")

    # -- answers -------------------------------------------------------------------------------------------------------

    def _error(self, status: int, message: str, *, retry: bool = False) -> _Reply:
        reply = _json(status, {"error": message})
        headers = f"Retry-After: {self._config.retry_after_s}\r\n" if retry else ""
        return _Reply(status, reply.body, headers)

    def _reply_head(self, reply: _Reply, option: str) -> bytes:
        body = reply.body
        length = "" if body.json_bytes is None else f"{JSON_LENGTH_HEADER}: {body.json_bytes}\r\n"
        return (
            f"HTTP/1.1 {reply.status} {HTTPStatus(reply.status).phrase}\r\n"
            f"Content-Type: {body.content_type}\r\n{length}{reply.headers}{option}"
            f"Content-Length: {sum(map(len, body.parts))}\r\n\r\n"
        ).encode("latin-1")


def _segments(head: Head) -> list[str]:
    return [unquote(part) for part in head.start[1].partition("?")[0].strip("/").split("/")]


def _json(status: int, document: Mapping[str, Any]) -> _Reply:
    return _Reply(status, Body((orjson.dumps(document),)))


def _metadata(name: str, model: ServedModel) -> dict[str, Any]:
    return {
        "name": name,
        "versions": [model.version],
        "platform": model.platform,
        "inputs": [_spec(spec) for spec in model.inputs],
        "outputs": [_spec(spec) for spec in model.outputs],
    }


def _spec(spec: TensorSpec) -> dict[str, Any]:
    return {"name": spec.name, "datatype": spec.datatype, "shape": list(spec.shape)}


def _check_inputs(model: ServedModel, request: InferRequest) -> None:
    """Hold the inputs against the model's specs.

    Raises:
        InputError: one is missing, unknown, or of another type or shape; or the batch is empty, too large or uneven.
    """
    specs = {spec.name: spec for spec in model.inputs}
    for name in request.inputs:
        if name not in specs:
            raise InputError("name", f"model {model.name!r} has no input {name!r}; it takes {', '.join(specs)}")
    for name, spec in specs.items():
        array = request.inputs.get(name)
        if array is None:
            raise InputError("name", f"input {spec} is missing")
        if array.dtype != spec.dtype or not spec.accepts(array.shape):
            raise InputError("shape", f"model {model.name!r} takes {spec}, not {array.dtype} {list(array.shape)}")
    rows = {len(array) for array in request.inputs.values()}
    if len(rows) != 1:
        raise InputError("shape", f"the inputs have different batch sizes: {sorted(rows)}")
    if not 1 <= min(rows) <= model.max_batch:
        raise InputError("shape", f"model {model.name!r} takes batches of 1 to {model.max_batch}, not {min(rows)}")
