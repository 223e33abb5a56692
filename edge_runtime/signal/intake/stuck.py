"""Stuck check: finds channels that keep one value for longer than their sensor ever does.

1. A window in `LOOK_S` is looked at. From the first one in which a channel has a single value, each of that key is,
   until the channel changes or has reached its limit without being stuck.
2. A channel is stuck when it has kept its value for its limit. With a reference that is `TIMES` the longest time for
   which it did so in training, and at least `SHORTEST_S`; a reference that names no such time has no limit.
3. Without a reference there is no limit either, since many channels rest by nature (a flag, the light at night), but
   for two things that no sensor does: one axis of a triad rests for `SHORTEST_S` while another one is never twice the
   same, or all axes of an accelerometer are exactly zero, where gravity is not.
4. A gap that is longer than `LOOK_S` and a window begins the time again.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from edge_runtime import units
from edge_runtime.manifest import InputContract, Reference
from edge_runtime.signal.intake.triads import find_triads
from edge_runtime.signal.windowing.window import Window

LOOK_S: Final = 8.0
"""Seconds between two looks at a key whose channels all change."""

SHORTEST_S: Final = 10.0
TIMES: Final = 3.0

SAME: Final = 3e-7
"""Relative difference up to which two values are one: interpolation between equal values rounds."""

_LIVELY: Final = 0.5
"""Share of a window's samples that must differ from each other in an axis that is alive (rule 3)."""


class Stuck(NamedTuple):
    """Channels of a key that keep their values."""

    columns: tuple[int, ...]
    values: tuple[float, ...]
    seconds: float
    """Time for which all of them have."""


class KeyStuck:
    """State of one key: the channels that have had one value up to now."""

    __slots__ = ("due", "end", "since")

    def __init__(self) -> None:
        self.due: float = -math.inf
        """Slot from which a window is looked at."""
        self.end = -math.inf
        """Stamp at which the window looked at last ends."""
        self.since: dict[int, tuple[float, float]] = {}
        """Value and stamp of its first sample, by column."""


class StuckCheck:
    """Limits of all channels.

    Args:
        contract: names and units of channels.
        references: the training data's references, if the bundle has them.
    """

    def __init__(self, contract: InputContract, references: Sequence[Reference] = ()) -> None:
        column_of = {channel.name: column for column, channel in enumerate(contract.channels)}
        known: dict[int, float | None] = {}  # longest natural time by column, where training says something of it
        for reference in references:
            known |= dict.fromkeys((column_of[name] for name in reference.channels), reference.still_s)
        self._limits = {
            column: max(SHORTEST_S, TIMES * still_s) for column, still_s in known.items() if still_s is not None
        }
        self._triads = [triad for triad in find_triads(contract.channels) if not known.keys() & set(triad)]
        accelerations = {"g", *(unit for unit, _, _ in units.conversions("g"))}
        self._accelerations = [units.canonical(channel.unit) in accelerations for channel in contract.channels]
        self._watched = sorted({*self._limits, *(column for triad in self._triads for column in triad)})
        self._length_s = contract.window / contract.rate_hz
        self._rest = max(1, round(LOOK_S * contract.rate_hz))

    def run(self, key: KeyStuck, window: Window) -> Stuck | None:
        """Check a window of a key, in order; return what is stuck at its end."""
        if not self._watched:
            key.due = math.inf
            return None
        samples = window.samples
        first, last = samples[0].tolist(), samples[-1].tolist()
        # Written out: for most windows this is all that there is to do.
        equal = [column for column in self._watched if abs(first[column] - last[column]) <= SAME * abs(first[column])]
        if equal:
            block = samples[:, equal]
            same = (np.abs(block - block[0]) <= SAME * np.abs(block[0])).all(axis=0).tolist()
            equal = [column for column, is_same in zip(equal, same, strict=True) if is_same]
        self._hold(key, window, {column: first[column] for column in equal})
        if not key.since:
            key.due = window.slot + self._rest  # rule 1
            return None
        found = self._stuck(key, window)
        waiting = any(
            key.end - since < self._limits.get(column, SHORTEST_S) for column, (_, since) in key.since.items()
        )
        key.due = window.slot + (1 if found or waiting else self._rest)
        return found

    def _hold(self, key: KeyStuck, window: Window, values: dict[int, float]) -> None:
        before = key.since if window.start <= key.end + self._length_s + LOOK_S else {}  # rule 4
        key.since = {
            column: (
                before[column]
                if column in before and abs(before[column][0] - value) <= SAME * abs(value)
                else (value, window.start)
            )
            for column, value in values.items()
        }
        key.end = window.start + self._length_s

    def _stuck(self, key: KeyStuck, window: Window) -> Stuck | None:
        rests = {column: key.end - since for column, (_, since) in key.since.items()}
        columns = {column for column, rest in rests.items() if rest >= self._limits.get(column, math.inf)}  # rule 2
        resting = {column for column, rest in rests.items() if rest >= SHORTEST_S}
        for triad in self._triads:  # rule 3
            axes = resting.intersection(triad)
            zero = self._accelerations[triad[0]] and all(key.since[column][0] == 0 for column in axes)
            if (len(axes) == len(triad) and zero) or (axes and _lively(window, set(triad) - key.since.keys())):
                columns |= axes
        if not columns:
            return None
        found = sorted(columns)
        return Stuck(
            tuple(found),
            tuple(key.since[column][0] for column in found),
            min(key.end - key.since[column][1] for column in found),
        )


def _lively(window: Window, columns: set[int]) -> bool:
    """Return whether one of these axes hardly repeats a value: it moves, and is not quantised coarsely."""
    samples = window.samples
    return any(len(np.unique(samples[:, column])) >= max(8, _LIVELY * len(samples)) for column in columns)
