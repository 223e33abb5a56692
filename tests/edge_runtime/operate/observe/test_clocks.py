"""Clocks that disagree with this machine's are named, once in a while, with what to do."""

from __future__ import annotations

import math

import pytest

from edge_runtime.clock import SimulatedClock
from edge_runtime.operate.observe.clocks import APART_S, Clocks, in_words
from edge_runtime.operate.observe.drops import LONGEST_S
from edge_runtime.signal.windowing.window import KeyState

HOUR = 3600.0


class Sensors:
    """Keys whose newest stamps differ from the machine's time by so much."""

    def __init__(self, **offsets: float) -> None:
        self.clock = SimulatedClock()
        self.clocks = Clocks()
        self.offsets = offsets
        self.asked = 0
        self.silent: dict[str, float] = {}

    def _states(self) -> list[KeyState]:
        self.asked += 1
        newest = {key: self.clock.wall() + offset for key, offset in self.offsets.items()} | self.silent
        return [KeyState(key, at, [], None, None) for key, at in newest.items()]

    def run(self, seconds: float) -> list[str]:
        lines = []
        for _ in range(int(seconds / 10)):
            self.clock.advance(10.0)
            lines.append(self.clocks.line(self.clock.monotonic(), self.clock.wall(), self._states))
        return [line for line in lines if line]


def test_clocks_that_agree_are_not_mentioned() -> None:
    assert Sensors(a=0.0, b=-APART_S + 1, c=5.0).run(10 * LONGEST_S) == []


@pytest.mark.parametrize(
    ("hours", "words"), [(3, "3 h 0 min ahead"), (5.5, "5 h 30 min ahead"), (-9.5, "9 h 30 min behind")]
)
def test_the_offset_of_a_time_zone_is_said_to_be_one(hours: float, words: str) -> None:
    (line,) = Sensors(w1=hours * HOUR, w2=-2.0).run(30)
    others = "(other keys: 2 s behind to 2 s behind it)"
    assert line.startswith(f"clock: stamps of key w1 are {words} {'of ' * (hours > 0)}this machine's clock {others}.")
    assert "That is the offset of a time zone: let the sensor send UTC" in line


@pytest.mark.parametrize("speed", [2.0, 5.0, 60.0])
def test_stamps_that_run_at_another_speed_are_replayed_and_not_compared(speed: float) -> None:
    """As in the demo, whose recordings are played five times as fast."""
    sensors = Sensors(w1=0.0)
    lines = []
    for _ in range(40):
        sensors.offsets["w1"] += 10 * (speed - 1)
        lines += sensors.run(10)
    assert lines == []


@pytest.mark.parametrize("offset", [-500.0, 1.5 * HOUR, 40 * 24 * HOUR, -30 * HOUR])
def test_any_other_difference_is_a_clock_that_is_wrong(offset: float) -> None:
    (line,) = Sensors(w1=offset).run(30)
    assert f"key w1 are {in_words(offset)} this machine's clock. Set the clock that is wrong" in line
    assert 'time = "" under [source.codec]' in line


def test_keys_that_are_silent_or_count_from_their_own_start_are_not_compared() -> None:
    sensors = Sensors(a=0.0)
    sensors.silent = {"old": sensors.clock.wall() - 5 * HOUR, "boot": 17.0, "none": -math.inf}
    assert sensors.run(LONGEST_S) == []
    assert Sensors(boot=-1_700_000_000.0 + 20).run(100) == []


def test_it_is_looked_at_less_and_less_often() -> None:
    sensors = Sensors(w1=3 * HOUR)
    lines = sensors.run(24 * LONGEST_S)
    assert 24 <= len(lines) <= 35
    assert sensors.asked <= 2 * len(lines) + 2, "a thousand keys are not looked at each ten seconds"


@pytest.mark.parametrize(
    ("offset", "words"),
    [
        (0.4, "0 s behind"),
        (59.0, "59 s ahead of"),
        (-3600.0, "1 h 0 min behind"),
        (90_061.0, "1 d 1 h ahead of"),
        (-600, "10 min behind"),
    ],
)
def test_differences_are_told_in_two_units(offset: float, words: str) -> None:
    assert in_words(offset).replace("0 s ahead of", "0 s behind") == words
