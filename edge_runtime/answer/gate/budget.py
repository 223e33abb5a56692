"""Budget of the gate: how much may be sent to the cloud, by share, calls and bytes."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

from edge_runtime.answer.gate.config import GateConfig
from edge_runtime.clock import Clock

HOUR_S = 3600.0
_HOURS = 25


class _Bucket:
    """A token bucket: what flows in at a steady rate, and what may be spent at once."""

    __slots__ = ("at", "burst", "inflow", "level")

    def __init__(self, inflow: float, burst: float, at: float) -> None:
        self.inflow = inflow
        self.burst = self.level = burst
        self.at = at

    def left(self, now: float) -> float:
        self.level = min(self.burst, self.level + max(0.0, now - self.at) * self.inflow)
        self.at = now
        return self.level

    def spend(self, _now: float, price: float) -> None:
        self.level -= price


class _Day:
    """A day's allowance: any 24 hours hold at most that much, and a burst may take all of it.

    1. What is spent counts in its hour.
    2. An hour is freed when its *end* is 24 hours old, so 25 hours count: the present one and the 24 before it.
    """

    __slots__ = ("allowance", "hours")

    def __init__(self, allowance: int) -> None:
        self.allowance = allowance
        self.hours: Counter[int] = Counter()

    def left(self, now: float) -> float:
        for hour in [one for one in self.hours if one + _HOURS <= now // HOUR_S]:  # rule 2
            del self.hours[hour]
        return self.allowance - self.hours.total()

    def spend(self, now: float, price: float) -> None:
        self.hours[int(now // HOUR_S)] += int(price)  # rule 1

    def describe(self, now: float, price: float) -> str:
        """Say what was used, and when as much as `price` is free."""
        left = self.left(now)
        used = f"{self.hours.total():,} of {self.allowance:,} were used within 24 hours"
        for hour in sorted(self.hours):
            left += self.hours[hour]
            if left >= price:
                minutes = math.ceil(((hour + _HOURS) * HOUR_S - now) / 60)
                return f"{used}, and there is room again in {minutes // 60} h {minutes % 60} min"
        return f"{used}, and one of {price:,.0f} never fits"


SHARE_BURST = 50.0
"""Windows whose share may be sent at once, ahead of their coming: hard ones come in bursts."""


class Budget:
    """Run-time bounds on what is sent: share of windows, calls and bytes a day.

    The time of the daily bounds passes no faster than real time: 1. it is monotonic, 2. over a restart that of the same
    boot, 3. and stands still while the machine is off, since a board cannot tell for how long that was. 4. What a
    killed run had sent since its last save counts as sent at the restart.

    Args:
        config: the bounds.
        clock: monotonic time; what was spent survives a restart through `state` and `restore`.
        window_bytes: what one hard case costs at most.
    """

    def __init__(self, config: GateConfig, clock: Clock, window_bytes: int = 1) -> None:
        self._clock = clock
        self._window_bytes = window_bytes
        self._ahead = 0.0
        """Time of the daily bounds, less monotonic time."""
        self._windows = 0.0
        self._restricted: _Bucket | None = None
        share = config.max_share
        self._share = _Bucket(share, max(1.0, share * SHARE_BURST), 0.0) if share < 1 else None
        self._calls = _Day(config.max_calls_per_day) if config.max_calls_per_day else None
        self._bytes = _Day(config.max_bytes_per_day) if config.max_bytes_per_day else None

    def seen(self, windows: int) -> None:
        """Count windows that the gate decided about, sent or not: the share is taken of these."""
        self._windows += windows

    def spend(self, size: int) -> str | None:
        """Pay for one window of `size` tensor bytes.

        Returns:
            None when it may be sent, else the bound that forbids it: ``governor``, ``share``, ``calls`` or ``bytes``.
        """
        now, windows = self._now(), self._windows
        bounds = (
            ("governor", self._restricted, windows, 1.0),
            ("share", self._share, windows, 1.0),
            ("calls", self._calls, now, 1.0),
            ("bytes", self._bytes, now, float(size)),
        )
        for name, bound, at, price in bounds:
            if bound is not None and bound.left(at) < price:
                return name
        for _, bound, at, price in bounds:
            if bound is not None:
                bound.spend(at, price)
        return None

    def describe(self, refused: str, size: int) -> str:
        """Say what was used of a daily bound that forbade a window of `size` bytes; empty for the others."""
        day, price = {"calls": (self._calls, 1), "bytes": (self._bytes, size)}.get(refused, (None, 0))
        return "" if day is None else day.describe(self._now(), price)

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

    def state(self) -> dict[str, Any]:
        """Return what a restart must keep: spent by hour, and the times when that was so."""
        hours = {name: {str(hour): n for hour, n in day.hours.items()} for name, day in self._days().items()}
        return {"now": self._now(), "monotonic": self._clock.monotonic(), "hours": hours}

    def restore(self, state: dict[str, Any], *, same_boot: bool, unsaved: int) -> None:
        """Go on from a saved state.

        Args:
            state: result of `state`, or of an earlier version with levels of buckets. Those let through an allowance
                less the level within 24 hours, so that much counts as spent now.
            same_boot: whether monotonic times of the state compare with ours (rule 2).
            unsaved: windows that were sent since it was saved (rule 4).
        """
        if same_boot and "monotonic" in state:
            self._ahead = state["now"] - state["monotonic"]  # rule 2
        else:
            self._ahead = state.get("now", 0.0) - self._clock.monotonic()  # rule 3
        for name, day in self._days().items():
            spent = day.hours.total() + unsaved * (self._window_bytes if name == "bytes" else 1)  # rule 4
            if name in state:
                spent += max(0, day.allowance - int(state[name]))
            day.hours = Counter({int(hour): n for hour, n in state.get("hours", {}).get(name, {}).items()})
            day.spend(self._now(), spent)

    def _now(self) -> float:
        return self._clock.monotonic() + self._ahead

    def _days(self) -> dict[str, _Day]:
        return {name: day for name, day in (("calls", self._calls), ("bytes", self._bytes)) if day is not None}
