"""The only module that asks what time it is.

Two questions are kept apart: *how long* (monotonic: never jumps, meaningless across restarts) and *when* (wall:
what people read, may jump by years on a board without a battery clock). Durations, deadlines and back-off use the
first, stamps on records the second.
"""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path
from typing import Protocol

thread_cpu = time.thread_time
"""Return the CPU seconds of the calling thread so far."""


def boot_id() -> str:
    """Return the kernel's name of this boot (random(4)): monotonic times of one boot compare. Empty if not known."""
    with suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    return ""


class Clock(Protocol):
    """Source of time. Production uses `SystemClock`, tests that simulate a day use `SimulatedClock`."""

    def monotonic(self) -> float:
        """Return seconds since an arbitrary point; never goes back."""
        ...

    def wall(self) -> float:
        """Return seconds since 1970-01-01 UTC, as far as this machine knows."""
        ...

    def sleep(self, seconds: float) -> None:
        """Wait."""
        ...


class SystemClock:
    """The machine's own clocks."""

    monotonic = staticmethod(time.monotonic)
    wall = staticmethod(time.time)
    sleep = staticmethod(time.sleep)


class SimulatedClock:
    """A clock that moves only when a test advances it or sleeps on it.

    Args:
        wall: start of the wall clock, seconds since 1970.
    """

    def __init__(self, wall: float = 1_700_000_000.0) -> None:
        self._monotonic = 0.0
        self._wall = wall

    def monotonic(self) -> float:
        """Return the seconds advanced so far."""
        return self._monotonic

    def wall(self) -> float:
        """Start plus seconds advanced, plus every `jump`."""
        return self._wall

    def sleep(self, seconds: float) -> None:
        """Advance by that much at once."""
        self.advance(seconds)

    def advance(self, seconds: float) -> None:
        """Let time pass on both clocks."""
        if seconds < 0:
            raise ValueError("time does not go back; use jump() for the wall clock")
        self._monotonic += seconds
        self._wall += seconds

    def jump(self, seconds: float) -> None:
        """Move the wall clock alone, as NTP or a dead battery does."""
        self._wall += seconds
