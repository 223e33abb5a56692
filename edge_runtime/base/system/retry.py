"""Back-off with jitter, and a circuit breaker: pure state machines that neither sleep nor send.

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """Wait after failure n: uniform in [0, min(cap, base * growth**(n - 1))], or what the server asked for.

    After t seconds of failing the ceiling is about ``2 * (growth - 1) * t + base``: a growth of 2 waits up to twice as
    long as the outage has lasted, one of 1.25 up to half as long.

    Raises:
        ValueError: a value makes no sense.
    """

    base_s: float = 0.5
    cap_s: float = 60.0
    growth: float = 2.0
    retry_after_cap_s: float = 600.0
    """Largest wait that a server may ask for: one absurd `Retry-After` must not park the queue for a year."""

    def __post_init__(self) -> None:
        if not 0 < self.base_s <= self.cap_s or self.retry_after_cap_s < 0 or not 1 <= self.growth < math.inf:
            raise ValueError(
                "retry: need 0 < base_s <= cap_s, growth >= 1 and retry_after_cap_s >= 0, got "
                f"{self.base_s}, {self.cap_s}, {self.growth}, {self.retry_after_cap_s}"
            )

    def delay(self, failures: int, retry_after_s: float | None, rng: random.Random) -> float:
        """Return the seconds to wait.

        Args:
            failures: how many attempts failed in a row, at least 1.
            retry_after_s: what the server asked for, None if nothing. It is a lower bound, and up to `base_s` of jitter
                is added to it, so that a thousand devices told "30" do not come back in the same second.
            rng: source of the jitter.
        """
        steps = max(failures, 1) - 1
        if steps * math.log(self.growth) >= math.log(self.cap_s / self.base_s):
            ceiling = self.cap_s  # the power may be past what a float holds
        else:
            ceiling = self.base_s * self.growth**steps
        jittered = rng.uniform(0.0, ceiling)
        if retry_after_s is None:
            return jittered
        asked = min(max(retry_after_s, 0.0), self.retry_after_cap_s)
        return max(jittered, asked + rng.uniform(0.0, self.base_s))


RECONNECT = Retry(growth=1.25)
"""For what everything waits for, the cloud or the broker: found within half of the time that it was away, or some two
seconds, nineteen times in twenty; at most a minute, and half a minute on average, between attempts in a long outage.
docs/decisions/0014-reconnecting.md has the figures."""


def parse_retry_after(value: str, now: float) -> float | None:
    """Return the seconds that a `Retry-After` header asks to wait; None when it is unreadable.

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
    """Parse an HTTP date (RFC 9110 section 5.6.7) as seconds since 1970; `default` when missing or unreadable."""
    from email.utils import parsedate_to_datetime  # noqa: PLC0415 - 10 ms to import, for a header that is mostly seconds

    try:
        return parsedate_to_datetime(value).timestamp()
    except (ValueError, OverflowError):
        return default


class BreakerState(Enum):
    """State of a circuit breaker."""

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
        rng: source of the jitter.
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
        """Return where it stands now."""
        with self._lock:
            return self._state

    def wait_s(self) -> float:
        """Return the seconds until `allow` is worth asking again; 0 when it is now."""
        with self._lock:
            return max(0.0, self._due - self._clock.monotonic()) if self._state is BreakerState.OPEN else 0.0

    def allow(self) -> bool:
        """Return whether a request may go out now. Each True is answered by one `success` or `failure`.

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
        """Record that a request was answered, be it with a refusal of its content: the endpoint works."""
        with self._lock:
            self._state = BreakerState.CLOSED
            self._failures = self._openings = 0
            self._trial_until = 0.0

    def failure(self, retry_after_s: float | None = None) -> None:
        """Record a `CloudUnavailable`; open at once where the server said for how long."""
        with self._lock:
            if self._state is BreakerState.OPEN:
                return  # sent before it opened, and already taken into account
            self._failures += 1
            asked = retry_after_s is not None  # to wait: that is meant for every request, not for this one alone
            if asked or self._state is BreakerState.HALF_OPEN or self._failures >= self._threshold:
                self._open(retry_after_s)

    def _open(self, retry_after_s: float | None) -> None:
        self._openings += 1
        self._state = BreakerState.OPEN
        self._due = self._clock.monotonic() + self._retry.delay(self._openings, retry_after_s, self._rng)
        self._trial_until = 0.0
