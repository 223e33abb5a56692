"""Budget of the gate: how much may be sent to the cloud, by share, calls and bytes."""

from __future__ import annotations

from edge_runtime.clock import Clock
from edge_runtime.gate.config import GateConfig

DAY_S = 86_400.0


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
        """Count windows that the gate decided about, sent or not: the share is taken of these."""
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

        Unlike `GateConfig.max_share` it begins with nothing saved up: a restriction holds at once.

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
