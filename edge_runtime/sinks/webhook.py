"""Webhook sink: answers as HTTP POST requests to a web application, a workflow tool, a serverless function."""

from __future__ import annotations

import logging
import random
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from edge_runtime._version import __version__
from edge_runtime.clock import Clock, SystemClock
from edge_runtime.errors import InputError
from edge_runtime.http.client import Connections, reason_of
from edge_runtime.http.endpoint import Endpoint, check_headers
from edge_runtime.metrics import Metrics
from edge_runtime.system.loop import Loop, Timer
from edge_runtime.system.retry import Retry
from edge_runtime.system.secrets import ClientTls, SecretFile
from edge_runtime.types import Answer, Done

logger = logging.getLogger(__name__)

_MAX_ANSWER_BYTES: Final = 64 * 1024  # of the endpoint's answer, whose body is not used
_PATIENCE_TICK_S: Final = 1.0
_OWN_HEADERS: Final = frozenset({"authorization", "connection", "content-length", "content-type", "host", "user-agent"})


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookSinkConfig:
    """Settings of a webhook: its endpoint, the queue and the retries.

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
    """Longest time that a silent endpoint may hold back the acknowledgement of what led to its answers. After it
    they stay queued and are sent when they can be, but nothing waits for them: the device goes on without network."""
    retry: Retry = field(default_factory=Retry)

    def __post_init__(self) -> None:
        endpoint = Endpoint.parse(self.url)
        if endpoint.clear_text and self.token_file is not None:
            raise ValueError(f"url: {endpoint.origin} would be sent the token in clear text; use https")
        endpoint.check_certificates(self.ca_file, self.client_cert_file, self.client_key_file)
        check_headers(self.headers, _OWN_HEADERS)
        if self.timeout_s <= 0 or self.patience_s < 0:
            raise ValueError("timeout_s must be above 0, patience_s at least 0")
        if self.max_batch < 1 or self.max_queued < 1:
            raise ValueError("max_batch and max_queued must be at least 1")


class _AckGroup:
    """Answers of one `send`: acknowledged with its last answer, or when patience ends. On the loop's thread."""

    __slots__ = ("_done", "left", "since")

    def __init__(self, answers: int, done: Done | None, since: float) -> None:
        self.left = answers
        self.since = since
        self._done = done

    @property
    def acked(self) -> bool:
        return self._done is None

    def finish_one(self) -> None:
        """Count one answer as delivered or dropped."""
        self.left -= 1
        if self.left <= 0:
            self.ack()

    def ack(self) -> None:
        done, self._done = self._done, None
        if done is not None:
            done()


_Item = tuple[bytes, _AckGroup]


class _Rejected(Exception):  # noqa: N818 - an answer
    """A request that the endpoint will never take."""


class _Unavailable(Exception):  # noqa: N818 - a state
    """A failure that may pass."""

    def __init__(self, why: str, retry_after_s: float | None = None) -> None:
        super().__init__(why)
        self.retry_after_s = retry_after_s


class WebhookSink:
    """Posts answers in order, on a thread of its own that does nothing but wait.

    What the endpoint refuses for good (most 4xx) is dropped, and counted under ``webhook_rejected``; of an array that
    it refuses, each half is tried alone, so that one answer it cannot read takes no other with it. Anything else is
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
        self._unacked: deque[_AckGroup] = deque()
        self._finished: deque[tuple[Sequence[_Item], str]] = deque()
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
        group = _AckGroup(len(answers), done, self._clock.monotonic())
        items = [(answer.to_json(), group) for answer in answers]
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
            self._unacked.append(group)
            self._watch_patience()
        self._finish(dropped, "webhook_full")

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

    def _finish(self, items: Sequence[_Item], dropped_as: str) -> None:
        if dropped_as and items:
            self._metrics.dropped[dropped_as] += len(items)
        for _, group in items:
            group.finish_one()

    def _collect(self) -> None:
        while self._finished:
            self._finish(*self._finished.popleft())

    def _watch_patience(self) -> None:
        if self._timer is None and self._loop is not None:
            self._timer = self._loop.call_later(_PATIENCE_TICK_S, self._tick)

    def _tick(self) -> None:
        self._timer = None
        limit = self._clock.monotonic() - self._config.patience_s
        waiting = self._unacked
        while waiting and (waiting[0].acked or waiting[0].since <= limit):
            waiting.popleft().ack()
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
        """Take the next answers to send; none when the sink is closing and nothing is left, or no time."""
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
                    self._put_back(todo)
                    return
            except _Rejected as error:
                todo.popleft()
                failures = 0
                if len(batch) > 1:
                    middle = len(batch) // 2
                    todo.extendleft((batch[middle:], batch[:middle]))
                    continue
                logger.warning("%s: dropped an answer that was refused: error=%s", self.name, error)
                self._done_with(batch, "webhook_rejected")
            else:
                if failures:
                    logger.warning("%s: endpoint answered again: endpoint=%s", self.name, self._poster.where)
                todo.popleft()
                failures = 0
                self._done_with(batch, "")

    def _put_back(self, todo: deque[list[_Item]]) -> None:
        """Put what a closing sink could not send back into the queue, to be counted with the rest."""
        with self._changed:
            for part in reversed(todo):
                self._queue.extendleft(reversed(part))

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
            logger.warning("%s: could not send, answers wait until it works: error=%s", self.name, error)

    def _done_with(self, batch: Sequence[_Item], dropped_as: str) -> None:
        self._count("webhook_requests_total")
        self._finished.append((batch, dropped_as))
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._collect)

    def _count(self, what: str) -> None:
        # This thread alone bumps these two names, as `Metrics` asks for.
        self._metrics.counts[what] += 1


class _Poster:
    """One connection to the endpoint, kept open between requests. Used by one thread."""

    def __init__(self, config: WebhookSinkConfig, clock: Clock) -> None:
        endpoint = Endpoint.parse(config.url)
        self._clock = clock
        self.where = endpoint.origin
        own = {"Host": endpoint.netloc, "User-Agent": f"edge-runtime/{__version__}", "Content-Type": "application/json"}
        lines = "".join(f"{name}: {value}\r\n" for name, value in (own | config.headers).items())
        self._fixed = f"POST {endpoint.target} HTTP/1.1\r\n{lines}"
        self._token = None if config.token_file is None else SecretFile(config.token_file, "token_file")
        tls = ClientTls(config.ca_file, config.client_cert_file, config.client_key_file) if endpoint.encrypted else None
        self._connections = Connections(endpoint, tls, clock)

    def close(self) -> None:
        self._connections.close()

    def post(self, body: bytes, deadline: float) -> None:
        """Send one request and check the status of its answer.

        Raises:
            _Unavailable: no answer, or one that says "later".
            _Rejected: an answer that says "never".
        """
        secret = "" if self._token is None else f"Authorization: Bearer {self._token.value()}\r\n"
        head = f"{self._fixed}{secret}Content-Length: {len(body)}\r\n\r\n".encode("ascii")
        try:
            # The status alone counts, also where the body has a flaw.
            reply = self._connections.exchange(head, (body,), deadline, max_body_bytes=_MAX_ANSWER_BYTES)
        except TimeoutError:
            raise _Unavailable(f"{self.where} did not answer in time") from None
        except OSError as error:
            raise _Unavailable(f"{self.where} cannot be reached: {reason_of(error)}") from None
        except InputError as error:
            # It quotes what came, which may be our own request, sent back.
            text = str(error) if self._token is None else self._token.hide(str(error))
            raise _Unavailable(f"{self.where} does not speak HTTP: {text}") from None
        if 200 <= reply.status < 300:
            return
        text = f"{self.where} answered {reply.status}"
        if 300 <= reply.status < 400:
            raise _Unavailable(f"{text}; redirects are not followed, set url to where it points")
        if reply.is_transient:
            raise _Unavailable(text, reply.retry_after_s(self._clock))
        raise _Rejected(text)
