"""Is this answer to be trusted? And if not, may we still afford to ask?

`Gate` is a pure function of the model's output: the threshold was set at export, on groups the model never saw,
for a stated promise. `Budget` keeps what may be spent on the cloud inside the operator's bounds at run time, whatever
the gate says.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from edge_runtime.clock import Clock
from edge_runtime.manifest import GateSpec
from edge_runtime.types import Float32

DAY_S = 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class GateConfig:
    """The operator's bounds on what is sent to the cloud."""

    threshold: float | None = None
    """Replaces the bundle's threshold; its promise is then void."""
    max_share: float = 1.0
    """Largest share of all windows that may be sent, give or take a burst of as many as 50 windows' share."""
    max_calls_per_day: int = 0
    """Windows sent within any 24 hours; 0 means no bound."""
    max_bytes_per_day: int = 0
    """Tensor bytes sent within any 24 hours; 0 means no bound."""
    audit_share: float = 0.0
    """Share of trusted answers that is sent all the same, to see whether the trust is deserved."""

    def __post_init__(self) -> None:
        for name in ("max_share", "audit_share"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} must be 0 to 1")
        for name in ("max_calls_per_day", "max_bytes_per_day"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must not be negative")


class Decision(NamedTuple):
    """What the gate says of a batch, a list with one entry for each window."""

    best: list[int]
    """Index of the most probable label."""
    trust: list[float]
    """The gate's score, 0 to 1."""
    hard: list[bool]
    """Whether the score lies below the threshold."""


class Gate:
    """Tells hard windows from easy ones by a calibrated score.

    Args:
        spec: score and threshold from the bundle.
        threshold: replaces the bundle's one.
    """

    def __init__(self, spec: GateSpec, threshold: float | None = None) -> None:
        self._score = _SCORES[spec.score]
        # As float32, which the scores are: a window gets the same verdict alone and among others.
        self._threshold = float(np.float32(spec.threshold if threshold is None else threshold))

    def decide(self, probabilities: Float32) -> Decision:
        """Decide for a batch.

        Args:
            probabilities: (batch, n_labels), rows summing to one. A row with NaN is hard.
        """
        threshold = self._threshold
        if len(probabilities) == 1 and self._score is _confidence:
            # A lone window, at a low rate: five calls of numpy cost 20 us with cold caches, a short list 3 us.
            row = probabilities[0].tolist()
            top = max(row)
            return Decision([row.index(top)], [top], [not top >= threshold])
        trust = self._score(probabilities).tolist()
        return Decision(probabilities.argmax(axis=1).tolist(), trust, [not score >= threshold for score in trust])


def _confidence(p: Float32) -> Float32:
    """Highest probability (Hendrycks and Gimpel 2017, arXiv:1610.02136)."""
    top: Float32 = p.max(axis=1)
    return top


def _margin(p: Float32) -> Float32:
    """Lead of the first over the second."""
    two = np.partition(p, p.shape[1] - 2, axis=1)[:, -2:]
    lead: Float32 = two[:, 1] - two[:, 0]
    return lead


def _entropy(p: Float32) -> Float32:
    """One minus the entropy over its maximum, log of the number of labels."""
    logs = np.log(np.maximum(p, 1e-12))
    certain: Float32 = 1.0 + (p * logs).sum(axis=1) / np.float32(np.log(p.shape[1]))
    return certain


_SCORES = {"confidence": _confidence, "margin": _margin, "entropy": _entropy}


def audited(window_id: str, share: float) -> bool:
    """Whether a trusted answer is checked all the same; the same window gets the same answer on every run."""
    return share > 0 and zlib.crc32(window_id.encode()) < share * 2**32


class _Bucket:
    """A token bucket: what flows in at a steady rate, and what may be spent at once."""

    __slots__ = ("at", "burst", "inflow", "level")

    def __init__(self, inflow: float, burst: float, at: float) -> None:
        self.inflow = inflow
        self.burst = self.level = burst
        self.at = at

    @classmethod
    def daily(cls, allowance: float, unit: float, at: float) -> _Bucket:
        """Never more than `allowance` within any 24 hours.

        An hour's worth, or one `unit`, may be spent at once and the rest flows in, so burst plus inflow make the
        allowance. Unlike a counter that is reset at midnight, it neither lets twice the bound through around midnight
        nor leaves the evening without, when the morning was hard.
        """
        burst = min(allowance, max(unit, allowance / 24))
        return cls((allowance - burst) / DAY_S, burst, at)

    def fill(self, now: float) -> float:
        self.level = min(self.burst, self.level + max(0.0, now - self.at) * self.inflow)
        self.at = now
        return self.level


SHARE_BURST = 50.0
"""Windows whose share may be sent at once, ahead of their coming: hard ones come in bursts."""


class Budget:
    """Run-time bounds on what is sent: share of windows, calls and bytes a day.

    Args:
        config: the bounds.
        clock: monotonic time; the level survives a restart through `state` and `restore`.
        window_bytes: what one hard case costs, so that a small allowance of bytes can still pay for one at a time.
    """

    def __init__(self, config: GateConfig, clock: Clock, window_bytes: int = 1) -> None:
        self._clock = clock
        now = clock.monotonic()
        self._windows = 0.0
        self._restricted: _Bucket | None = None
        share, calls, size = config.max_share, config.max_calls_per_day, config.max_bytes_per_day
        self._share = _Bucket(share, max(1.0, share * SHARE_BURST), 0.0) if share < 1 else None
        self._calls = _Bucket.daily(calls, 1.0, now) if calls else None
        self._bytes = _Bucket.daily(size, window_bytes, now) if size else None

    def seen(self, windows: int) -> None:
        """Count windows judged, sent or not: the share is taken of these."""
        self._windows += windows

    def spend(self, size: int) -> str | None:
        """Pay for one window of `size` tensor bytes.

        Returns:
            None when it may be sent, else the bound that forbids it: ``governor``, ``share``, ``calls`` or ``bytes``.
        """
        now = self._clock.monotonic()
        prices: list[tuple[str, _Bucket, float]] = []
        if self._restricted is not None:
            self._restricted.fill(self._windows)
            prices.append(("governor", self._restricted, 1.0))
        if self._share is not None:
            self._share.fill(self._windows)
            prices.append(("share", self._share, 1.0))
        if self._calls is not None:
            self._calls.fill(now)
            prices.append(("calls", self._calls, 1.0))
        if self._bytes is not None:
            self._bytes.fill(now)
            prices.append(("bytes", self._bytes, float(size)))
        for name, bucket, price in prices:
            if bucket.level < price:
                return name
        for _, bucket, price in prices:
            bucket.level -= price
        return None

    def restrict(self, share: float | None) -> None:
        """Let through at most this share of the windows from now on, besides the other bounds.

        Unlike `GateConfig.max_share` it begins with nothing saved up: whoever restricts wants less now.

        Args:
            share: 0 to 1; None lifts the restriction.
        """
        if share is None:
            self._restricted = None
            return
        self._restricted = _Bucket(share, max(1.0, share * SHARE_BURST) if share else 0.0, self._windows)
        self._restricted.level = 0.0

    def state(self) -> dict[str, float]:
        """Return what a restart must keep: levels of the daily bounds, and when (wall clock) they were read."""
        now = self._clock.monotonic()
        levels = {"wall": self._clock.wall()}
        if self._calls is not None:
            levels["calls"] = self._calls.fill(now)
        if self._bytes is not None:
            levels["bytes"] = self._bytes.fill(now)
        return levels

    def restore(self, state: dict[str, float]) -> None:
        """Go on from a saved state. Time that passed meanwhile counts, between nothing and a day: clocks jump."""
        away = min(max(0.0, self._clock.wall() - state.get("wall", 0.0)), DAY_S)
        now = self._clock.monotonic()
        for name, bucket in (("calls", self._calls), ("bytes", self._bytes)):
            if bucket is not None and name in state:
                bucket.level = min(bucket.burst, max(0.0, state[name]))
                bucket.at = now - away
