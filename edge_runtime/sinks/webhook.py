"""Answers as HTTP POST requests: to a web application, a workflow tool, a serverless function."""

from __future__ import annotations

import logging
import random
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import Final, Literal
from urllib.parse import urlsplit

from edge_runtime._version import __version__
from edge_runtime.clock import Clock, SystemClock
from edge_runtime.errors import InputError
from edge_runtime.http.client import Connections
from edge_runtime.http.parser import Head
from edge_runtime.metrics import Metrics
from edge_runtime.sinks import Done
from edge_runtime.system.loop import Loop, Timer
from edge_runtime.system.retry import Retry, parse_retry_after
from edge_runtime.system.secrets import ClientTls, SecretFile
from edge_runtime.types import Answer

logger = logging.getLogger(__name__)

_MAX_ANSWER_BYTES: Final = 64 * 1024  # of what the endpoint says; nobody reads it
_PATIENCE_TICK_S: Final = 1.0
_OWN_HEADERS: Final = frozenset({"authorization", "connection", "content-length", "content-type", "host", "user-agent"})
# The request is fine, the moment is not; 401 and 403 heal when somebody renews the token.
_TRY_AGAIN: Final = frozenset({401, 403, 408, 425, 429})
_NEVER_5XX: Final = frozenset({501, 505})


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookSinkConfig:
    """Where answers are posted to, and what happens while it does not work.

    Raises:
        ValueError: a value makes no sense, or would send a secret in clear text.
    """

    type: Literal["webhook"] = "webhook"
    url: str
    """``https://...``; ``http://`` only without a token, or to this machine. Certificates are always verified."""
    body: Literal["array", "single"] = "array"
    """``array``: a JSON array of up to `max_batch` answers per request. ``single``: one answer per request."""
    max_batch: int = 100
    token_file: Path | None = None
    """File with a bearer token; read again when it changes."""
    headers: dict[str, str] = field(default_factory=dict, repr=False)
    """More headers; secrets do not belong here."""
    ca_file: Path | None = None
    """Certificate authorities to trust instead of the system's."""
    client_cert_file: Path | None = None
    client_key_file: Path | None = None
    timeout_s: float = 10.0
    """Longest time for one request, connecting included."""
    max_queued: int = 10_000
    """Answers that wait to be sent."""
    when_full: Literal["drop_oldest", "drop_newest"] = "drop_oldest"
    patience_s: float = 10.0
    """How long an endpoint that does not answer may hold back the acknowledgement of what led to its answers. After it
    they stay queued and are sent when they can be, but nothing waits for them: the device goes on without network."""
    retry: Retry = field(default_factory=Retry)

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        if "@" in parts.netloc:
            raise ValueError("url: credentials do not belong into the URL; use token_file")
        # No more than this is shown: path and query of a webhook are often all that protects it.
        shown = f"{parts.scheme}://{parts.hostname}/..."
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("url: must look like https://host/path")
        if parts.fragment or not self.url.isascii() or not self.url.isprintable() or " " in self.url:
            raise ValueError(f"url: {shown} must be plain ASCII without spaces and fragment")
        try:
            _ = parts.port
        except ValueError:
            raise ValueError(f"url: {shown} has a port outside 0 to 65535") from None
        if parts.scheme == "http" and self.token_file is not None and not _is_this_machine(parts.hostname):
            raise ValueError(f"url: {shown} would send the token in clear text; use https")
        if parts.scheme == "http" and (self.ca_file or self.client_cert_file):
            raise ValueError(f"url: {shown} is not encrypted, so certificates are of no use; use https")
        if self.client_key_file is not None and self.client_cert_file is None:
            raise ValueError("client_key_file is of no use without client_cert_file")
        if self.timeout_s <= 0 or self.patience_s < 0:
            raise ValueError("timeout_s must be above 0, patience_s at least 0")
        if self.max_batch < 1 or self.max_queued < 1:
            raise ValueError("max_batch and max_queued must be at least 1")
        for name, value in self.headers.items():
            if not name or not all(c.isascii() and (c.isalnum() or c in "-_") for c in name):
                raise ValueError(f"headers: {name!r} is not a header name")
            if name.lower() in _OWN_HEADERS:
                raise ValueError(f"headers: {name!r} is set by the sink itself")
            if not (value.isascii() and value.isprintable()):
                raise ValueError(f"headers: the value of {name!r} must be printable ASCII")


def _is_this_machine(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class _Delivery:
    """One call of `send`: reported when its last answer is settled, or when patience ends. On the loop's thread."""

    __slots__ = ("_done", "left", "since")

    def __init__(self, answers: int, done: Done | None, since: float) -> None:
        self.left = answers
        self.since = since
        self._done = done

    @property
    def reported(self) -> bool:
        return self._done is None

    def settle(self) -> None:
        """One answer was delivered or dropped."""
        self.left -= 1
        if self.left <= 0:
            self.report()

    def report(self) -> None:
        done, self._done = self._done, None
        if done is not None:
            done()


_Item = tuple[bytes, _Delivery]


class _Rejected(Exception):  # noqa: N818 - a verdict
    """The endpoint will never take this request."""


class _Unavailable(Exception):  # noqa: N818 - a state
    """Time may heal it."""

    def __init__(self, why: str, retry_after_s: float | None = None) -> None:
        super().__init__(why)
        self.retry_after_s = retry_after_s


class WebhookSink:
    """Posts answers in order, on a thread of its own that does nothing but wait.

    What the endpoint refuses for good (most 4xx) is dropped, and counted under ``webhook_rejected``; of an array that
    it refuses, each half is tried by itself, so that one answer it cannot read takes no other with it. Anything else is
    tried again with back-off, honouring ``Retry-After``, until it works. Meanwhile the queue is bounded
    (``webhook_full``) and does not hold up the pipeline for longer than `WebhookSinkConfig.patience_s`.

    Args:
        config: the endpoint.
        metrics: counts what is dropped, and ``webhook_requests_total``, ``webhook_failures_total``.
        clock: where time comes from.
        name: as it appears in messages and metrics.
        rng: where the jitter of the back-off comes from.

    Raises:
        ConfigError: a file that the configuration names is missing or unusable.
    """

    def __init__(
        self,
        config: WebhookSinkConfig,
        metrics: Metrics,
        clock: Clock | None = None,
        *,
        name: str = "webhook",
        rng: random.Random | None = None,
    ) -> None:
        self.name = name
        self._config = config
        self._metrics = metrics
        self._clock = clock or SystemClock()
        self._rng = rng or random.Random()  # noqa: S311 - jitter, not a secret
        self._poster = _Poster(config, self._clock)
        self._changed = threading.Condition()
        self._queue: deque[_Item] = deque()
        self._open_deliveries: deque[_Delivery] = deque()
        self._settled: deque[tuple[Sequence[_Item], str]] = deque()
        self._closing = False
        self._give_up_at = float("inf")
        self._loop: Loop | None = None
        self._timer: Timer | None = None
        self._thread: threading.Thread | None = None

    def open(self, loop: Loop) -> None:
        """See `edge_runtime.sinks.Sink`."""
        self._loop = loop
        self._thread = threading.Thread(target=self._run, name=f"edge-runtime {self.name}", daemon=True)
        self._thread.start()

    def send(self, answers: Sequence[Answer], done: Done | None) -> None:
        """See `edge_runtime.sinks.Sink`."""
        if not answers:
            if done is not None:
                done()
            return
        delivery = _Delivery(len(answers), done, self._clock.monotonic())
        items = [(answer.to_json(), delivery) for answer in answers]
        dropped: list[_Item] = []
        with self._changed:
            room = self._config.max_queued - len(self._queue)
            if self._config.when_full == "drop_newest":
                self._queue += items[:room]
                dropped += items[max(0, room) :]
            else:
                self._queue += items
                while len(self._queue) > self._config.max_queued:
                    dropped.append(self._queue.popleft())
            self._changed.notify()
        if done is not None:
            self._open_deliveries.append(delivery)
            self._watch_patience()
        self._settle(dropped, "webhook_full")

    def close(self, timeout_s: float) -> None:
        """See `edge_runtime.sinks.Sink`. What is not delivered in time is counted under ``webhook_closed``."""
        if self._thread is None:
            return
        with self._changed:
            self._closing = True
            self._give_up_at = self._clock.monotonic() + timeout_s
            self._changed.notify()
        self._thread.join(timeout_s + _PATIENCE_TICK_S)
        self._thread = None
        self._collect()
        if self._timer is not None:
            self._timer.cancel()
        with self._changed:
            self._metrics.dropped["webhook_closed"] += len(self._queue)
            self._queue.clear()
        self._loop = None

    # -- on the loop's thread --------------------------------------------------------------------------------------

    def _settle(self, items: Sequence[_Item], dropped_as: str) -> None:
        if dropped_as and items:
            self._metrics.dropped[dropped_as] += len(items)
        for _, delivery in items:
            delivery.settle()

    def _collect(self) -> None:
        while self._settled:
            self._settle(*self._settled.popleft())

    def _watch_patience(self) -> None:
        if self._timer is None and self._loop is not None:
            self._timer = self._loop.call_later(_PATIENCE_TICK_S, self._tick)

    def _tick(self) -> None:
        self._timer = None
        limit = self._clock.monotonic() - self._config.patience_s
        waiting = self._open_deliveries
        while waiting and (waiting[0].reported or waiting[0].since <= limit):
            waiting.popleft().report()
        if waiting:
            self._watch_patience()

    # -- on the sink's own thread ----------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while items := self._take():
                self._deliver(items)
        finally:
            self._poster.close()

    def _take(self) -> list[_Item]:
        """The next answers to send; none when the sink is closing and nothing is left, or no time."""
        size = self._config.max_batch if self._config.body == "array" else 1
        with self._changed:
            self._changed.wait_for(lambda: self._queue or self._closing)
            if self._closing and self._clock.monotonic() >= self._give_up_at:
                return []
            return [self._queue.popleft() for _ in range(min(size, len(self._queue)))]

    def _deliver(self, items: list[_Item]) -> None:
        """Send until they are delivered or refused for good."""
        todo = deque([items])
        failures = 0
        while todo:
            batch = todo[0]
            deadline = min(self._clock.monotonic() + self._config.timeout_s, self._give_up_at)
            try:
                self._poster.post(self._join(batch), deadline)
            except _Unavailable as error:
                failures += 1
                self._report_failure(error, failures)
                if not self._wait(self._config.retry.delay(failures, error.retry_after_s, self._rng)):
                    with self._changed:  # closing: back into the queue, to be counted with the rest
                        for part in reversed(todo):
                            self._queue.extendleft(reversed(part))
                    return
            except _Rejected as error:
                todo.popleft()
                failures = 0
                if len(batch) > 1:
                    middle = len(batch) // 2
                    todo.extendleft((batch[middle:], batch[:middle]))
                    continue
                logger.warning("%s: an answer was refused and is dropped: %s", self.name, error)
                self._done_with(batch, "webhook_rejected")
            else:
                if failures:
                    logger.warning("%s: %s answers again", self.name, self._poster.where)
                todo.popleft()
                failures = 0
                self._done_with(batch, "")

    def _join(self, batch: Sequence[_Item]) -> bytes:
        if self._config.body == "single":
            return batch[0][0]
        return b"[" + b",".join([body for body, _ in batch]) + b"]"

    def _wait(self, seconds: float) -> bool:
        """Wait before the next attempt; False when the sink closes and there will be none."""
        with self._changed:
            until = self._clock.monotonic() + seconds
            while (left := until - self._clock.monotonic()) > 0:
                if self._closing and self._clock.monotonic() + left >= self._give_up_at:
                    return False
                self._changed.wait(left)
            return not self._closing or self._clock.monotonic() < self._give_up_at

    def _report_failure(self, error: _Unavailable, failures: int) -> None:
        self._count("webhook_failures_total")
        if failures == 1:
            logger.warning("%s: %s; answers wait, and are sent when it works again", self.name, error)

    def _done_with(self, batch: Sequence[_Item], dropped_as: str) -> None:
        self._count("webhook_requests_total")
        self._settled.append((batch, dropped_as))
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._collect)

    def _count(self, what: str) -> None:
        # This thread alone bumps these two names, as `Metrics` asks for.
        self._metrics.counts[what] += 1


class _Poster:
    """One connection to the endpoint, kept open between requests. Used by one thread."""

    def __init__(self, config: WebhookSinkConfig, clock: Clock) -> None:
        parts = urlsplit(config.url)
        self._clock = clock
        self.where = f"{parts.scheme}://{parts.netloc}"
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        own = {"Host": parts.netloc, "User-Agent": f"edge-runtime/{__version__}", "Content-Type": "application/json"}
        lines = "".join(f"{name}: {value}\r\n" for name, value in (own | config.headers).items())
        self._fixed = f"POST {path} HTTP/1.1\r\n{lines}"
        self._token = None if config.token_file is None else SecretFile(config.token_file, "token_file")
        encrypted = parts.scheme == "https"
        tls = ClientTls(config.ca_file, config.client_cert_file, config.client_key_file) if encrypted else None
        port = parts.port or (443 if encrypted else 80)
        self._connections = Connections(parts.hostname or "", port, tls, clock)

    def close(self) -> None:
        self._connections.close()

    def post(self, body: bytes, deadline: float) -> None:
        """Send one request and read the verdict.

        Raises:
            _Unavailable: no answer, or one that says "later".
            _Rejected: an answer that says "never".
        """
        try:
            head = self._exchange(body, deadline)
        except TimeoutError:
            raise _Unavailable(f"{self.where} did not answer in time") from None
        except OSError as error:
            raise _Unavailable(f"{self.where} cannot be reached: {error.strerror or error}") from None
        except InputError as error:
            # It quotes what came, which may be our own request, sent back.
            told = str(error) if self._token is None else self._token.hide(str(error))
            raise _Unavailable(f"{self.where} does not speak HTTP: {told}") from None
        status = int(head.start[1])
        if 200 <= status < 300:
            return
        text = f"{self.where} answered {status}"
        if 300 <= status < 400:
            raise _Unavailable(f"{text}; redirects are not followed, set url to where it points")
        if status in _TRY_AGAIN or (status >= 500 and status not in _NEVER_5XX):
            after = head.headers.get("retry-after")
            raise _Unavailable(text, None if after is None else parse_retry_after(after, self._clock.wall()))
        raise _Rejected(text)

    def _exchange(self, body: bytes, deadline: float) -> Head:
        secret = "" if self._token is None else f"Authorization: Bearer {self._token.value()}\r\n"
        head = f"{self._fixed}{secret}Content-Length: {len(body)}\r\n\r\n".encode("ascii")
        # The body is of no interest: the status is the verdict, also where the body has a flaw.
        return self._connections.exchange(head, (body,), deadline, max_body_bytes=_MAX_ANSWER_BYTES).head
