"""Clipped check: finds channels that stick to the end of a sensor's range, as one that was set too small has it.

1. A *rail* of a channel in a window is its highest or lowest value, if at least `SHARE` of the samples, and `FEWEST`,
   have it, while most of the others differ from each other: what rests, or comes in coarse steps, has none.
2. A channel is clipped when a window has the rail of one before it, which it does not overlap. It is over when `CALM_S`
   have passed without a rail.
3. With a reference, a rail needs `TIMES` the share that it had in training. Without one only axes of triads are looked
   at: many channels have a natural end (the light at night, a valve that is closed).
4. A window in `LOOK_S` is looked at, for the first `YOUNG` looks at a key; then one in four times `LOOK_S`, since a
   range is set once. From the first window with a rail on, each is that does not overlap the one before.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from edge_runtime.manifest import InputContract, Reference
from edge_runtime.signal.intake.stuck import LOOK_S, SAME
from edge_runtime.signal.intake.triads import find_triads
from edge_runtime.signal.windowing.window import Window
from edge_runtime.types import Float32

SHARE: Final = 0.1
"""Right recordings of 41 people have at most .06 (`python -m benchmarks intake`)."""

FEWEST: Final = 8
TIMES: Final = 3.0
CALM_S: Final = 60.0
YOUNG: Final = 8

_LIVELY: Final = 0.5
"""Share of the other samples that must differ from each other."""


class Rail(NamedTuple):
    """End of a channel's range, as a window shows it."""

    column: int
    high: bool
    value: float
    share: float


def rails(samples: Float32, columns: Sequence[int], limits: npt.NDArray[np.float64]) -> Iterator[Rail]:
    """Yield the rails of a window (rule 1).

    Args:
        samples: (rows, channels).
        columns: looked at.
        limits: least share of each of them.
    """
    values = samples[:, columns]
    fewest = np.maximum(limits * len(values), FEWEST)
    ends = np.stack((values.min(axis=0), values.max(axis=0)))
    at_ends = np.abs(values - ends[:, np.newaxis]) <= SAME * np.abs(ends[:, np.newaxis])
    counts = at_ends.sum(axis=1)
    for side, at in zip(*np.nonzero((counts >= fewest) & (ends[0] < ends[1])), strict=True):
        others = values[~at_ends[:, :, at].any(axis=0), at]
        if len(np.unique(others)) >= max(FEWEST, _LIVELY * len(others)):
            yield Rail(columns[at], bool(side), float(ends[side, at]), float(counts[side, at]) / len(values))


class KeyClipped:
    """State of one key."""

    __slots__ = ("due", "known", "looks", "on", "until")

    def __init__(self) -> None:
        self.due: float = -math.inf
        """Slot from which a window is looked at."""
        self.looks = 0
        self.known: dict[tuple[int, bool], float] = {}
        """Values of the latest rails, by column and side."""
        self.until = -math.inf
        """Stamp up to which they are remembered."""
        self.on = False
        """Clipped, and not over (rule 2)."""


class ClippedCheck:
    """Limits of all channels.

    Args:
        contract: the model's channels and window.
        references: natural shares, where the bundle has them.
    """

    def __init__(self, contract: InputContract, references: Sequence[Reference] = ()) -> None:
        names = [channel.name for channel in contract.channels]
        limits = {column: SHARE for triad in find_triads(contract.channels) for column in triad}
        for reference in references:
            if reference.rail_share is not None:
                limit = max(SHARE, TIMES * reference.rail_share)
                limits |= dict.fromkeys(map(names.index, reference.channels), limit)
        self._columns = sorted(column for column, limit in limits.items() if limit < 1)
        self._limits = np.array([limits[column] for column in self._columns])
        first, last = (self._columns[0], self._columns[-1]) if self._columns else (0, -1)
        self._span = slice(first, last + 1)
        least = max(FEWEST, math.ceil(contract.window * float(self._limits.min()))) if self._columns else FEWEST
        self._inner = min(least, contract.window) - 1
        self._window = contract.window
        self._rest = max(contract.window, round(LOOK_S * contract.rate_hz))
        self._rest_later = max(contract.window, round(4 * LOOK_S * contract.rate_hz))
        self.works = bool(self._columns) and contract.window >= 3 * FEWEST
        """There is something to look at; shorter windows have too few samples beside a rail."""

    def run(self, key: KeyClipped, window: Window) -> list[Rail]:
        """Check a window of a key, in order; return where it is clipped."""
        found = list(rails(window.samples, self._columns, self._limits)) if self._may_have(window.samples) else []
        key.looks += 1
        rest = self._rest if key.looks < YOUNG else self._rest_later
        if not found and not key.known and not key.on:
            key.due = window.slot + rest
            return found
        if window.start > key.until or window.start < key.until - CALM_S:  # it is over, or the clock went back
            key.known.clear()
            key.on = False
        clipped = [rail for rail in found if _is_same(rail.value, key.known.get((rail.column, rail.high)))]
        if found:
            key.known |= {(rail.column, rail.high): rail.value for rail in found}
            key.until = window.start + CALM_S
        key.on = key.on or bool(clipped)
        key.due = window.slot + (self._window if key.known else rest)
        return clipped

    def _may_have(self, samples: Float32) -> bool:
        """Return whether enough values of some column lie at one of its ends: a fifth of the time of counting them."""
        inner, last = self._inner, len(samples) - 1
        ordered = np.partition(samples[:, self._span], (0, inner, last - inner, last), axis=0)
        low, high = ordered[0], ordered[last]
        at_low = ordered[inner] - low <= SAME * np.abs(low)
        at_high = high - ordered[last - inner] <= SAME * np.abs(high)
        return bool(at_low.any() or at_high.any())


def _is_same(value: float, before: float | None) -> bool:
    # Interpolation between equal values rounds, in each of the windows.
    return before is not None and abs(value - before) <= 2 * SAME * abs(value)
