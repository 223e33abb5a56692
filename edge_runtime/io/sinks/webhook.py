"""Webhook sink: answers as HTTP POST requests to a web application, a workflow tool, a serverless function."""

from __future__ import annotations

import itertools
import logging
import math
import random
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, NamedTuple

from edge_runtime._version import __version__
from edge_runtime.base.http.client import Connections, reason_of
from edge_runtime.base.http.endpoint import Endpoint, check_headers
from edge_runtime.base.system.loop import Loop
from edge_runtime.base.system.retry import Retry
from edge_runtime.base.system.secrets import ClientTls, SecretFile
from edge_runtime.clock import Clock, SystemClock
from edge_runtime.errors import InputError
from edge_runtime.io.sinks.guard import SinkPolicy
from edge_runtime.key_table import KeyTable
from edge_runtime.metrics import Metrics
from edge_runtime.types import Answer, Done

logger = logging.getLogger(__name__)

_MAX_ANSWER_BYTES: Final = 64 * 1024  # of the endpoint's answer, whose body is not used
_MOST_BAD: Final = 1000  # keys
_LAST_S: Final = 1.0  # for the thread to end, after the time that closing may take
SUSPECT_AFTER: Final = 4
"""Failures of a request after which another one is tried in its place; 1 once rule 4 has found such an answer."""
OUTLIVED: Final = 5
"""Answers taken after failures of another, after which that one is to blame."""
MOST_OTHERS: Final = 4
"""Answers behind a suspect that fail one after the other, after which the endpoint is held to be down."""
_OWN_HEADERS: Final = frozenset({"authorization", "connection", "content-length", "content-type", "host", "user-agent"})


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookSinkConfig(SinkPolicy):
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
    patience_s: float | Literal["forever"] | None = 10.0
    """As of every sink, but bounded for the only sink as well, so that the device goes on without network."""
    retry: Retry = field(default_factory=Retry)

    def __post_init__(self) -> None:
        SinkPolicy.__post_init__(self)
        endpoint = Endpoint.parse(self.url)
        if endpoint.clear_text and self.token_file is not None:
            raise ValueError(f"url: {endpoint.origin} would be sent the token in clear text; use https")
        endpoint.check_certificates(self.ca_file, self.client_cert_file, self.client_key_file)
        check_headers(self.headers, _OWN_HEADERS)
        if self.timeout_s <= 0:
            raise ValueError("timeout_s must be above 0")
        if self.max_batch < 1 or self.max_queued < 1:
            raise ValueError("max_batch and max_queued must be at least 1")


class _AckGroup:
    """Answers of one `send`: acknowledged with its last one. On the loop's thread."""

    __slots__ = ("_done", "_left")

    def __init__(self, answers: int, done: Done | None) -> None:
        self._left = answers
        self._done = done

    def finish_one(self) -> None:
        """Count one answer as delivered or dropped."""
        self._left -= 1
        if not self._left and self._done is not None:
            self._done()


class _Item(NamedTuple):
    serial: int
    key: str
    body: bytes
    group: _AckGroup


class _Request:
    """Answers that are sent together.

    Attributes:
        failures: attempts that failed, also as half of an array; `tried` as a whole.
        outlived: times that another request was taken after this one had failed.
    """

    __slots__ = ("failures", "items", "outlived", "tried")

    def __init__(self, items: list[_Item], failures: int = 0) -> None:
        self.items = items
        self.failures = failures
        self.outlived, self.tried = 0, False

    def halves(self) -> tuple[_Request, _Request]:
        middle = len(self.items) // 2
        return _Request(self.items[:middle], self.failures), _Request(self.items[middle:], self.failures)


class _Rejected(Exception):  # noqa: N818 - an answer
    """A request that the endpoint will never take."""


class _Unavailable(Exception):  # noqa: N818 - a state
    """A failure that may pass."""

    def __init__(self, why: str, retry_after_s: float | None = None, *, for_all: bool = False) -> None:
        super().__init__(why)
        self.retry_after_s = retry_after_s
        self.for_all = for_all
        """It says nothing of the answers in the request: credentials, redirects, too many requests."""


class WebhookSink:
    """Posts answers in order, on a thread of its own that does nothing but wait.

    1. What the endpoint refuses for good (most 4xx) is dropped, and counted under ``webhook_rejected``; of an array
       that it refuses, each half is tried alone, so that one answer it cannot read takes no other with it.
    2. Anything else may pass, and is tried again with back-off, honouring ``Retry-After``.
    3. A request that has failed `SUSPECT_AFTER` times, for no reason that holds for all, is suspected, and an answer
       behind it is tried alone. Where that is taken, the endpoint works: the suspect is tried again at once, an array
       in halves.
    4. A single answer that was suspected while `OUTLIVED` others were taken is dropped: ``webhook_undeliverable``. The
       next ones of its key go alone, one other taken is enough, and `max_queued` of them wait at most. The first of
       them that is taken ends that.
    5. Where that fails as well, a further one is tried, by rule 2. Once `MOST_OTHERS` have, the endpoint is down for
       all: every one is tried again, in order, and nothing is dropped for that.
    6. Meanwhile the queue is bounded (``webhook_full``). How long readings wait is the guard's
       (`edge_runtime.io.sinks.guard`).

    Args:
        config: the endpoint.
        metrics: counts what is dropped, and ``webhook_requests_total``, ``webhook_failures_total``.
        clock: source of time.
        name: the sink's name in messages and metrics.
        rng: source of the back-off's jitter.

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
        self._serial = itertools.count()
        self._todo: deque[_Request] = deque()  # the thread's own, before the queue
        self._suspect: _Request | None = None
        self._others = 0  # that have failed since, one after the other
        self._failures = 0  # in a row
        self._away = False  # as the log has it
        self._suspect_after = SUSPECT_AFTER
        self._bad: KeyTable[str, None] = KeyTable(_MOST_BAD)  # keys with an answer that rule 4 dropped
        self._finished: deque[tuple[Sequence[_Item], str]] = deque()
        self._closing = False
        self._give_up_at = float("inf")
        self._loop: Loop | None = None
        self._thread: threading.Thread | None = None

    def open(self, loop: Loop) -> None:
        """See `edge_runtime.io.sinks.Sink`."""
        self._loop = loop
        self._thread = threading.Thread(target=self._run, name=f"edge-runtime {self.name}", daemon=True)
        self._thread.start()

    def send(self, answers: Sequence[Answer], done: Done | None) -> None:
        """See `edge_runtime.io.sinks.Sink`."""
        if not answers:
            if done is not None:
                done()
            return
        group = _AckGroup(len(answers), done)
        items = [_Item(next(self._serial), answer.key, answer.to_json(), group) for answer in answers]
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
        self._finish(dropped, "webhook_full")

    def close(self, timeout_s: float) -> None:
        """See `edge_runtime.io.sinks.Sink`. What is not delivered in time is counted under ``webhook_closed``."""
        if self._thread is None:
            return
        with self._changed:
            self._closing = True
            self._give_up_at = self._clock.monotonic() + timeout_s
            self._changed.notify()
        self._thread.join(timeout_s + _LAST_S)
        self._thread = None
        self._collect()
        with self._changed:
            self._metrics.dropped["webhook_closed"] += len(self._queue)
            self._queue.clear()
        self._loop = None

    # -- on the loop's thread --------------------------------------------------------------------------------------

    def _finish(self, items: Sequence[_Item], dropped_as: str) -> None:
        if dropped_as:
            self._metrics.dropped[dropped_as] += len(items)
        for item in items:
            item.group.finish_one()

    def _collect(self) -> None:
        while self._finished:
            self._finish(*self._finished.popleft())

    # -- on the sink's own thread ----------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while request := self._next():
                if not self._attempt(request):
                    break
        finally:
            self._put_back()
            self._poster.close()

    def _next(self) -> _Request | None:
        """Return the next request, with a suspect an untried answer (rule 3); None: closing, none left, or no time."""
        if self._suspect is not None:
            if (found := self._untried(self._suspect)) is not None:
                return found
            self._exonerate(self._suspect)
        with self._changed:
            self._changed.wait_for(lambda: self._queue or self._todo or self._closing)
            if self._closing and self._clock.monotonic() >= self._give_up_at:
                return None
        if not self._todo:
            self._fetch()
        return self._todo.popleft() if self._todo else None

    def _fetch(self) -> None:
        size = self._config.max_batch if self._config.body == "array" else 1
        with self._changed:
            items = [self._queue.popleft() for _ in range(min(size, len(self._queue)))]
        if items:
            self._again(_Request(items))

    def _untried(self, suspect: _Request) -> _Request | None:
        """Take one answer that was not tried, of no bad key; half of a suspected array where no other is there."""
        for look_further, most in ((True, 0), (False, 0), (False, math.inf)):
            for request in self._todo:
                if request.failures <= most and self._may_pass(request):
                    self._todo.remove(request)
                    first, *others = request.items
                    if others:
                        self._again(_Request(others))
                    return _Request([first])
            if look_further:
                self._fetch()
        if len(suspect.items) == 1:
            return None
        self._suspect, other = suspect.halves()
        return other

    def _may_pass(self, request: _Request) -> bool:
        return not (request.tried and len(request.items) == 1) and request.items[0].key not in self._bad

    def _attempt(self, request: _Request) -> bool:
        """Send it once; False when the sink closes and there will be no other attempt."""
        deadline = min(self._clock.monotonic() + self._config.timeout_s, self._give_up_at)
        try:
            self._poster.post(self._join(request.items), deadline)
        except _Unavailable as error:
            return self._failed(request, error)
        except _Rejected as error:
            self._answered()
            if len(request.items) > 1:  # rule 1
                self._again(*request.halves())
            else:
                logger.warning("%s: dropped an answer that was refused: error=%s", self.name, error)
                self._done_with(request.items, "webhook_rejected")
        else:
            self._answered()
            self._bad.pop(request.items[0].key, None)
            self._done_with(request.items, "")
        return True

    def _failed(self, request: _Request, error: _Unavailable) -> bool:
        """Take note of a failure, and wait; returns as `_attempt`."""
        self._failures += 1
        request.failures += not error.for_all
        request.tried |= not error.for_all
        self._count("webhook_failures_total")
        if not self._away and not self._bad and request.failures <= 1:
            self._away = True
            logger.warning("%s: could not send, answers wait until it works: error=%s", self.name, error)
        if self._suspect is not None:  # rule 5
            self._others += 1
            self._again(request)
            if self._others >= MOST_OTHERS or error.for_all:
                self._exonerate(self._suspect)
                self._suspect_after = SUSPECT_AFTER
        elif request.failures >= self._suspect_after and not error.for_all:  # rule 3
            self._suspect, self._others = request, 0
            if self._failures == 1 and error.retry_after_s is None:  # another was taken just before
                return True
        else:
            self._again(request)
        return self._wait(self._config.retry.delay(self._failures, error.retry_after_s, self._rng))

    def _answered(self) -> None:
        """Note that the endpoint works, and what that says of a suspect."""
        suspect, self._suspect = self._suspect, None
        if self._away:
            self._away = False
            logger.warning("%s: endpoint answered again: endpoint=%s", self.name, self._poster.where)
        self._failures = 0
        if suspect is None:
            return
        suspect.outlived += 1
        if len(suspect.items) > 1:  # rule 3
            self._again(*suspect.halves())
        elif suspect.outlived < OUTLIVED and suspect.items[0].key not in self._bad:
            self._again(suspect)
        else:  # rule 4
            key = suspect.items[0].key
            if not self._bad:
                logger.warning("%s: dropped an answer that failed while others were taken: key=%r", self.name, key)
            self._bad[key] = None
            self._suspect_after = 1
            self._done_with(suspect.items, "webhook_undeliverable")
            self._again()

    def _exonerate(self, suspect: _Request) -> None:
        self._suspect = None
        suspect.failures, suspect.tried = 0, False
        self._again(suspect)

    def _again(self, *requests: _Request) -> None:
        """Put requests among those to be sent, in the order of their answers; those of bad keys alone (rule 4)."""
        found = [part for request in (*requests, *self._todo) for part in self._parted(request)]
        found.sort(key=lambda one: one.items[0].serial)
        bad = [one for one in found if one.items[0].key in self._bad]
        surplus = set(bad[: max(0, len(bad) - self._config.max_queued)])
        for request in surplus:
            self._done_with(request.items, "webhook_undeliverable")
        self._todo = deque([one for one in found if one not in surplus])

    def _parted(self, request: _Request) -> list[_Request]:
        """Return a request without the answers of bad keys, which go alone."""
        alone = [item for item in request.items if item.key in self._bad]
        if len(request.items) == 1 or not alone:
            return [request]
        request.items = [item for item in request.items if item.key not in self._bad]
        return [*([request] if request.items else []), *(_Request([item]) for item in alone)]

    def _put_back(self) -> None:
        """Put what a closing sink could not send back into the queue, to be counted with the rest."""
        with self._changed:
            if self._suspect is not None:
                self._exonerate(self._suspect)
            for request in reversed(self._todo):
                self._queue.extendleft(reversed(request.items))

    def _join(self, batch: Sequence[_Item]) -> bytes:
        if self._config.body == "single":
            return batch[0].body
        return b"[" + b",".join([item.body for item in batch]) + b"]"

    def _wait(self, seconds: float) -> bool:
        """Wait before the next attempt; False when the sink closes and there will be none."""
        with self._changed:
            until = self._clock.monotonic() + seconds
            while (left := until - self._clock.monotonic()) > 0:
                if self._closing and self._clock.monotonic() + left >= self._give_up_at:
                    return False
                self._changed.wait(left)
            return not self._closing or self._clock.monotonic() < self._give_up_at

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
            raise _Unavailable(f"{text}; redirects are not followed, set url to where it points", for_all=True)
        if reply.is_transient:
            raise _Unavailable(text, reply.retry_after_s(self._clock), for_all=reply.status < 500)
        raise _Rejected(text)
