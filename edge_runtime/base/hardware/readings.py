"""Live sensor readings of the board: temperature, throttling, power and battery, from where its profile says.

The kernel's files vanish, answer with an error, or hold nonsense; what cannot be read is counted and has no say, and
nothing here raises for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from edge_runtime.base.hardware.files import ROOT
from edge_runtime.base.hardware.profile import Flag, Gauge, Profile
from edge_runtime.clock import Clock

PLAUSIBLE_DEGC: Final = (-40.0, 150.0)
"""No silicon works outside of this; a sensor that says so is asleep or broken."""
PLAUSIBLE_W: Final = (0.0, 1000.0)
_LONGEST_GAP_S: Final = 60.0
"""Energy is power times time between two readings; over a longer silence (a suspended board) the power is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Temperature:
    """Temperature of one sensor and its limit, from which on the board throttles; degrees Celsius."""

    name: str
    now: float
    limit: float

    @property
    def headroom(self) -> float:
        """Degrees left."""
        return self.limit - self.now


@dataclass(frozen=True, slots=True, kw_only=True)
class SensorReadings:
    """Sensor readings of one look at the board.

    Attributes:
        at: monotonic seconds.
        temperature: the highest that was read, degrees Celsius; None if none could be.
        nearest_limit: the temperature that is closest to its limit; None where no limit is known.
        throttled: what the board says that it is held back by, now or since the look before.
        watts: what the board draws; None where it does not say.
        joules: energy used since the first look; None where the board does not say.
        battery: percent of the emptiest battery; None without one.
        discharging: whether the board lives on a battery.
        unreadable: files or groups of them that gave nothing, or nothing possible.
    """

    at: float
    temperature: float | None = None
    nearest_limit: Temperature | None = None
    throttled: tuple[str, ...] = ()
    watts: float | None = None
    joules: float | None = None
    battery: float | None = None
    discharging: bool = False
    unreadable: int = 0


class Board:
    """Reader of a board's sensors, with the state that differences need. Used by one thread at a time.

    Args:
        profile: the board's profile, which names its sensors.
        clock: monotonic time.
        root: folder of the machine's files.
        limit: replaces the limits of temperature sensors, and serves those that have none; degrees Celsius.
    """

    def __init__(self, profile: Profile, clock: Clock, root: Path = ROOT, limit: float | None = None) -> None:
        self.profile = profile
        self._clock = clock
        self._root = root
        self._limit = limit
        self._counts: dict[str, int] = {}
        self._before: tuple[float, float] | None = None  # monotonic seconds and watts of the last look
        self._joules = 0.0
        self._unreadable = 0
        # Most kernels let root alone read these: then they are as good as not there.
        self._counters = tuple(counter for counter in profile.energy if counter.read(root) is not None)

    @property
    def has_sensors(self) -> bool:
        """Return whether there is anything to look at."""
        profile = self.profile
        return bool(profile.temperatures or profile.throttling or profile.power or profile.batteries or self._counters)

    def read(self) -> SensorReadings:
        """Read everything that the profile names."""
        self._unreadable = 0
        now = self._clock.monotonic()
        temperature, nearest_limit = self._temperatures()
        watts, joules = self._energy(now)
        battery, discharging = self._battery()
        return SensorReadings(
            at=now,
            temperature=temperature,
            nearest_limit=nearest_limit,
            throttled=tuple(flag.name for flag in self.profile.throttling if self._is_set(flag)),
            watts=watts,
            joules=joules,
            battery=battery,
            discharging=discharging,
            unreadable=self._unreadable,
        )

    def _read(self, gauge: Gauge, plausible: tuple[float, float]) -> float | None:
        value = gauge.read(self._root)
        if value is None or not plausible[0] <= value <= plausible[1]:
            self._unreadable += 1
            return None
        return value

    def _temperatures(self) -> tuple[float | None, Temperature | None]:
        highest: float | None = None
        tightest: Temperature | None = None
        for gauge in self.profile.temperatures:
            now = self._read(gauge, PLAUSIBLE_DEGC)
            if now is None:
                continue
            highest = now if highest is None else max(highest, now)
            limit = gauge.limit if self._limit is None else self._limit
            if limit is not None:
                nearest_limit = Temperature(name=gauge.name, now=now, limit=limit)
                tightest = nearest_limit if tightest is None or nearest_limit.headroom < tightest.headroom else tightest
        return highest, tightest

    def _is_set(self, flag: Flag) -> bool:
        value = flag.read(self._root)
        if value is None:
            self._unreadable += 1
            return False
        if flag.kind == "level":
            return value != 0
        before = self._counts.get(flag.path)
        self._counts[flag.path] = value
        return before is not None and value > before

    def _energy(self, now: float) -> tuple[float | None, float | None]:
        """Return watts now and joules since the first look: of the board's rails, else of the processor's counters."""
        if self.profile.power:
            return self._rails(now), self._joules
        if not self._counters:
            return None, None
        used, complete = self._counted()
        self._joules += used
        then = self._before[0] if self._before is not None else now
        self._before = (now, 0.0)
        return (used / (now - then) if complete and now > then else None), self._joules

    def _rails(self, now: float) -> float | None:
        """Add up the watts of the rails, and their energy since the look before; None where one cannot be read."""
        parts = [self._read(rail, PLAUSIBLE_W) for rail in self.profile.power]
        if None in parts:
            return None
        watts = sum(part for part in parts if part is not None)
        if self._before is not None:
            then, before = self._before
            if now - then <= _LONGEST_GAP_S:
                self._joules += (watts + before) / 2 * (now - then)
        self._before = (now, watts)
        return watts

    def _counted(self) -> tuple[float, bool]:
        """Return the joules that the counters rose by since the look before, and whether all of them could be read."""
        used, complete = 0.0, True
        for counter in self._counters:
            count = counter.read(self._root)
            before_count = self._counts.get(counter.path)
            if count is None:
                self._unreadable += 1
                complete = False
                self._counts.pop(counter.path, None)
                continue
            self._counts[counter.path] = count
            if before_count is None:
                complete = False
            else:
                used += counter.joules(before_count, count)
        return used, complete

    def _battery(self) -> tuple[float | None, bool]:
        lowest: float | None = None
        discharging = False
        for battery in self.profile.batteries:
            percent = self._read(battery.charge, (0.0, 100.0))
            if percent is not None and battery.discharging(self._root):
                discharging = True
            if percent is not None:
                lowest = percent if lowest is None else min(lowest, percent)
        return lowest, discharging
