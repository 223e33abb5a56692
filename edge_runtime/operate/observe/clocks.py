"""Reporter of clocks that disagree: stamps of live keys against this machine's own clock."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from edge_runtime.operate.observe.drops import EVERY_S, LONGEST_S
from edge_runtime.signal.windowing.window import KeyState

APART_S: Final = 60.0
"""Difference from which a clock is said to disagree: the newest sample of a live key may be as old as that."""

KEYS: Final = 1000
"""Keys that are looked at: those that sent last."""

_SINCE_START: Final = 1e8
"""Stamps below this, in 1973, count from another start than 1970, and cannot be compared."""

_LOW, _HIGH = 0.0, 1.5
"""Speeds between which stamps go on as a clock does; a sensor that sends seldom seems slow."""

_HOUR_S: Final = 3600.0
_ZONES: Final = frozenset((*range(1, 15), 3.5, 4.5, 5.5, 5.75, 6.5, 8.75, 9.5, 10.5, 12.75))
"""Offsets of time zones, hours."""


class Clocks:
    """Compares the newest stamps of live keys with this machine's clock.

    1. Two looks see which keys are live: those whose newest stamp has risen. The first pair comes at once, the others
       after twice the time each, at the latest after `LONGEST_S`: a clock that differs goes on to differ.
    2. A live key disagrees when its newest stamp is more than `APART_S` from now. One whose stamps run at another speed
       than this machine's clock is replayed, or sends what it has kept, and is not compared.
    3. The line names the key that is furthest off, and the range of the others.
    """

    def __init__(self) -> None:
        self._wait_s = EVERY_S
        self._due = 0.0
        self._newest: dict[str, float] = {}
        self._looked = 0.0

    def line(self, now: float, wall: float, states: Callable[[], Sequence[KeyState]]) -> str:
        """Return the line that is due, or nothing.

        Args:
            now: monotonic seconds.
            wall: this machine's time, seconds since 1970.
            states: what is held for each key; asked only if something is due.
        """
        if now < self._due:
            return ""
        newest = {state.name: state.newest for state in states()[-KEYS:] if state.newest > _SINCE_START}
        before, self._newest = self._newest, newest
        passed_s, self._looked = now - self._looked, now
        if not before:
            return ""
        self._due, self._newest = now + self._wait_s, {}  # rule 1
        self._wait_s = min(2 * self._wait_s, LONGEST_S)
        steps = {key: at - before.get(key, at) for key, at in newest.items()}
        offsets = {key: newest[key] - wall for key, step in steps.items() if _LOW * passed_s < step < _HIGH * passed_s}
        apart = sorted(
            (key for key, offset in offsets.items() if abs(offset) > APART_S), key=lambda key: abs(offsets[key])
        )
        if not apart:
            return ""
        furthest = offsets.pop(apart[-1])
        others = sorted(offsets.values())
        more = f" (other keys: {in_words(others[0])} to {in_words(others[-1])} it)" if others else ""
        return (
            f"clock: stamps of key {apart[-1]} are {in_words(furthest)} this machine's clock{more}. {_advice(furthest)}"
        )


def in_words(offset_s: float) -> str:
    """Describe a difference: ``3 h 0 min ahead of``, ``12 s behind``."""
    seconds = abs(round(offset_s))
    hours, minutes = divmod(seconds // 60, 60)
    days, hours = divmod(hours, 24)
    if days or hours:
        length = f"{days} d {hours} h" if days else f"{hours} h {minutes} min"
    else:
        length = f"{minutes} min" if minutes > 1 else f"{seconds} s"
    return f"{length} {'ahead of' if offset_s > 0 else 'behind'}"


def _advice(offset_s: float) -> str:
    quarters = round(abs(offset_s) / _HOUR_S * 4)
    if quarters / 4 in _ZONES and abs(abs(offset_s) - quarters * _HOUR_S / 4) < APART_S:
        return (
            "That is the offset of a time zone: let the sensor send UTC, or the offset with its stamps "
            "(2026-11-23T10:00:00+03:00)"
        )
    return (
        "Set the clock that is wrong (timedatectl shows this machine's); or stamp readings when they arrive: "
        'time = "" under [source.codec]. If the sensor sends what it has kept, all is well'
    )
