"""When to try again: back-off with jitter, and a circuit breaker. Pure state machines; they neither sleep nor send.

Source of the jitter: M. Brooker, "Exponential Backoff and Jitter" (AWS architecture blog, 2015), "full jitter"; of the
breaker: M. Nygard, "Release It!" (2007), with the probe of `CircuitBreaker` in place of a trial on real traffic.
"""

from __future__ import annotations

import math
import random
import threading
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from edge_runtime.clock import Clock

_MAX_EXPONENT = 32  # 2**32 is far past every cap; keeps the power from growing without end


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """How long to wait before attempt n + 1: uniform in [0, min(cap, base * 2**n)], or what the server asked for.

    Raises:
        ValueError: a value makes no sense.
    """

    base_s: float = 0.5
    cap_s: float = 60.0
    retry_after_cap_s: float = 600.0
    """A server's wish is honoured up to here: one absurd `Retry-After` must not park the queue for a year."""

    def __post_init__(self) -> None:
        if not 0 < self.base_s <= self.cap_s or self.retry_after_cap_s < 0:
            raise ValueError(
                f"retry: need 0 < base_s <= cap_s and retry_after_cap_s >= 0, got {self.base_s}, {self.cap_s}, "
                f"{self.retry_after_cap_s}"
            )

    def delay(self, failures: int, retry_after_s: float | None, rng: random.Random) -> float:
        """Seconds to wait.

        Args:
            failures: how many attempts failed in a row, at least 1.
            retry_after_s: what the server asked for, None if nothing. It is a lower bound, and up to `base_s` of jitter
                is added to it, so that a thousand devices told "30" do not come back in the same second.
            rng: where the jitter comes from.
        """
        ceiling = min(self.cap_s, self.base_s * 2.0 ** min(max(failures, 1) - 1, _MAX_EXPONENT))
        jittered = rng.uniform(0.0, ceiling)
        if retry_after_s is None:
            return jittered
        asked = min(max(retry_after_s, 0.0), self.retry_after_cap_s)
        return max(jittered, asked + rng.uniform(0.0, self.base_s))


def parse_retry_after(value: str, now: float) -> float | None:
    """Seconds that a `Retry-After` header asks to wait; None when it is unreadable.

    Args:
        value: seconds, or an HTTP date (RFC 9110 section 10.2.3).
        now: the time the date is relative to, seconds since 1970. The answer's own `Date` header is the better choice:
            a board without a battery clock may be years off.
    """
    text = value.strip()
    if text.isascii() and text.isdigit():
        return float(min(int(text[:12]), 10**9))
    when = parse_date(text, float("nan"))
    return None if math.isnan(when) else max(0.0, when - now)


def parse_date(value: str, default: float) -> float:
    """An HTTP date (RFC 9110 section 5.6.7) as seconds since 1970; `default` when it is missing or unreadable."""
    from email.utils import parsedate_to_datetime  # noqa: PLC0415 - 10 ms to import, for a header that is mostly seconds

    try:
        return parsedate_to_datetime(value).timestamp()
    except (ValueError, OverflowError):
        return default


class BreakerState(Enum):
    """Where a circuit breaker stands."""

    CLOSED = "closed"
    """Requests pass."""
    OPEN = "open"
    """None passes before the next probe is due."""
    HALF_OPEN = "half_open"
    """The probe answered; one request is on its way, the others wait for its outcome."""


class CircuitBreaker:
    """Stops hammering an endpoint that fails, and asks it politely before sending work again.

    Closed, until `threshold` failures in a row; then open for a back-off that grows with every failed probe; when that
    has passed, `probe` is asked (for a cloud endpoint: ``GET /v2/models/<m>/ready``); if it says yes, one request goes
    out, and its success closes the breaker. Safe to use from several threads; the probe runs outside the lock.

    Args:
        threshold: failures in a row that open it, at least 1.
        retry: the length of the open periods.
        clock: monotonic time.
        probe: whether the endpoint is ready. It returns False rather than raise.
        rng: where the jitter comes from.
    """

    def __init__(
        self,
        *,
        threshold: int = 5,
        retry: Retry,
        clock: Clock,
        probe: Callable[[], bool],
        rng: random.Random,
    ) -> None:
        if threshold < 1:
            raise ValueError(f"circuit breaker: threshold must be at least 1, got {threshold}")
        self._threshold = threshold
        self._retry = retry
        self._clock = clock
        self._probe = probe
        self._rng = rng
        self._lock = threading.Lock()
        self._state = BreakerState.CLOSED
        self._failures = 0
        self._openings = 0
        self._due = 0.0
        self._trial_until = 0.0  # a probe or a half-open trial is under way until then, at the longest

    @property
    def state(self) -> BreakerState:
        """Where it stands now."""
        with self._lock:
            return self._state

    def wait_s(self) -> float:
        """Seconds until `allow` is worth asking again; 0 when it is now."""
        with self._lock:
            return max(0.0, self._due - self._clock.monotonic()) if self._state is BreakerState.OPEN else 0.0

    def allow(self) -> bool:
        """Whether a request may go out now. Each True is answered by one `success` or `failure`.

        A trial whose caller forgets that blocks the others for `retry.cap_s`, not for ever.
        """
        with self._lock:
            if self._state is BreakerState.CLOSED:
                return True
            now = self._clock.monotonic()
            if now < self._trial_until or (self._state is BreakerState.OPEN and now < self._due):
                return False
            self._trial_until = now + self._retry.cap_s
            if self._state is BreakerState.HALF_OPEN:
                return True
        ready = False
        try:
            ready = self._probe()
        finally:
            with self._lock:
                if ready:
                    self._state = BreakerState.HALF_OPEN
                else:
                    self._open(None)
        return ready

    def success(self) -> None:
        """The request was answered, be it with a refusal of its content: the endpoint works."""
        with self._lock:
            self._state = BreakerState.CLOSED
            self._failures = self._openings = 0
            self._trial_until = 0.0

    def failure(self, retry_after_s: float | None = None) -> None:
        """The request failed with `CloudUnavailable`; opens at once where the server said for how long."""
        with self._lock:
            if self._state is BreakerState.OPEN:
                return  # sent before it opened, and already taken into account
            self._failures += 1
            told = retry_after_s is not None  # to wait: that is meant for every request, not for the one that heard it
            if told or self._state is BreakerState.HALF_OPEN or self._failures >= self._threshold:
                self._open(retry_after_s)

    def _open(self, retry_after_s: float | None) -> None:
        self._openings += 1
        self._state = BreakerState.OPEN
        self._due = self._clock.monotonic() + self._retry.delay(self._openings, retry_after_s, self._rng)
        self._trial_until = 0.0
