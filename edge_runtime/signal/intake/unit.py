"""Unit check: compares the values of a key with those of the training data, and names the unit that explains them.

1. The first span of a key is compared, then one after each rest of `REST` spans; while a key fails, every span is. A
   span is as long as the bundle's references ask for, of which at most `ROWS` rows are kept.
2. Of a triad the norm counts: an axis tells how a sensor is turned, and how it is worn. Where gravity keeps the norm
   near one value in training, the median must be within `ANCHORED` of it. Where it rests near zero (rotation, or
   acceleration without gravity), its .95 quantile may be up to `RESTING` times that of training, and up to `SEEN` times
   the largest that was seen.
3. Such a norm is too small if it is `STILL` times smaller than in training while another triad shows that the sensor
   moves; a sensor that lies still is no fault.
4. A single channel fails if its values leave the range of training by far, and are inside it once converted from
   another unit of its kind; or if they leave it by `FAR` ranges, whatever they are.
5. Sound in full scale has no size: how loud it is, is no fault. Its references are left out (`is_sound`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from edge_runtime import units
from edge_runtime.manifest import REFERENCE_LEVELS, InputContract, Reference
from edge_runtime.signal.windowing.window import Window
from edge_runtime.types import Float32

ROWS: Final = 128
"""Rows kept of a span: enough for a .95 quantile, and 3 kB of six channels."""

REST: Final = 4
"""Spans of rest: with spans of 10 s, a unit that changes is noticed within 60 s."""

STEADY: Final = 0.65
"""Least ratio of the quartiles of a norm that is anchored: .77 to .83 on wrists and in pockets; of noise, .55."""

ANCHORED: Final = 3.0
"""The square root of 9.8, the smallest step between units of acceleration; people reach 2.3 in 10 s."""

RESTING: Final = 10.0
"""Between the 2.1 that people reach in 10 s and the 15 that their slowest 10 s are in degrees for radians."""

SEEN: Final = 3.0
STILL: Final = 20.0
"""Radians for degrees are at least 28 times too small for people who move."""

MOVES: Final = 0.4
"""Spread of another triad's norm, as a share of that in training, from which on a sensor moves."""

FAR: Final = 30.0

_LOW, _HALF, _HIGH = (REFERENCE_LEVELS.index(level) for level in (0.05, 0.5, 0.95))
_QUARTERS: Final = (REFERENCE_LEVELS.index(0.25), REFERENCE_LEVELS.index(0.75))


def is_sound(reference: Reference, contract: InputContract) -> bool:
    """Return whether a reference is of sound in full scale, whose values have no size to compare (rule 5)."""
    unit = {channel.name: channel.unit for channel in contract.channels}
    return reference.top_hz is not None and unit[reference.channels[0]] == "1"


class Spread(NamedTuple):
    """Quantiles .05, .5 and .95 of a span."""

    low: float
    median: float
    high: float


class Misfit(NamedTuple):
    """Values of another size than in training."""

    channels: tuple[str, ...]
    unit: str
    """That the model takes."""
    found: Spread
    """Of the values; of the norm where there are several channels."""
    usual: Spread
    """The same in training."""
    ratio: float
    """Factor by which a norm is too large; 0 for a single channel."""
    likely: str
    """Unit that explains the values; empty where none does."""


class KeySpan:
    """State of one key: the rows of the current span."""

    __slots__ = ("due", "rows", "taken")

    def __init__(self) -> None:
        self.due: float = -math.inf
        """Slot from which windows are looked at."""
        self.rows: Float32 | None = None
        """(`ROWS`, columns of references); None while the key rests."""
        self.taken = 0


class UnitCheck:
    """References of a bundle.

    Args:
        contract: channels and windows.
        references: the training data's references; not empty.
    """

    def __init__(self, contract: InputContract, references: Sequence[Reference]) -> None:
        names = [channel.name for channel in contract.channels]
        used = sorted({names.index(name) for reference in references for name in reference.channels})
        self._columns = None if used == list(range(len(names))) else used
        by_name = {names[column]: at for at, column in enumerate(used)}
        unit = {channel.name: channel.unit for channel in contract.channels}
        self._references = [
            _Judge(reference, [by_name[name] for name in reference.channels], unit[reference.channels[0]])
            for reference in references
        ]
        points = max(1, round(max(reference.span_s for reference in references) * contract.rate_hz))
        self._stride = -(-points // ROWS)
        self._wanted = max(1, points // self._stride)
        self._rest = REST * points
        self._width = len(used)
        self._window, self._hop = contract.window, contract.hop

    def run(self, key: KeySpan, window: Window) -> tuple[Misfit, ...] | None:
        """Check a window of a key, in order; return what does not fit if it completes a span, else None."""
        if key.rows is None:
            key.rows, key.taken = np.empty((self._wanted, self._width), np.float32), 0
        # Rows by number, so that it does not matter at which window a span began: those of the windows overlap.
        first = -(window.slot + self._window - self._hop) % self._stride
        rows = window.samples[self._window - self._hop + first :: self._stride][: self._wanted - key.taken]
        key.rows[key.taken : key.taken + len(rows)] = rows if self._columns is None else rows[:, self._columns]
        key.taken += len(rows)
        key.due = window.slot + 1
        if key.taken < self._wanted:
            return None
        misfits = self._compare(key.rows)
        key.rows = None
        if not misfits:
            key.due = window.slot + self._rest  # rule 1
        return misfits

    def _compare(self, rows: Float32) -> tuple[Misfit, ...]:
        spreads = [judge.spread(rows) for judge in self._references]
        pairs = list(zip(self._references, spreads, strict=True))
        moves = any(judge.anchored and judge.moves(spread) for judge, spread in pairs)
        return tuple(judge.misfit(spread) for judge, spread in pairs if judge.fails(spread, moves=moves))


def _three(values: Float32) -> tuple[float, float, float]:
    """Return the .05, .5 and .95 quantile."""
    ordered, last = np.sort(values), len(values) - 1
    return float(ordered[round(0.05 * last)]), float(ordered[last // 2]), float(ordered[round(0.95 * last)])


class _Judge:
    """One reference, and what it says of a span."""

    def __init__(self, reference: Reference, columns: list[int], unit: str) -> None:
        self._reference = reference
        together = columns == list(range(columns[0], columns[0] + len(columns)))
        self._columns = slice(columns[0], columns[0] + len(columns)) if together else columns  # a slice is a view
        self._unit = unit
        q = reference.quantiles
        self._usual = Spread(q[_LOW], q[_HALF], q[_HIGH])
        self._least, self._most = q[0], q[-1]
        self._norm = len(columns) > 1
        turns = units.same(unit, "rad/s") or any(other == "rad/s" for other, _, _ in units.conversions(unit))
        self.anchored = self._norm and not turns and q[_QUARTERS[0]] >= STEADY * q[_QUARTERS[1]] > 0

    def spread(self, rows: Float32) -> Spread:
        """Describe a span's rows."""
        if self._norm:
            values = rows[:, self._columns]
            low, median, high = _three(np.einsum("ij,ij->i", values, values))
            return Spread(math.sqrt(low), math.sqrt(median), math.sqrt(high))
        return Spread(*_three(rows[:, self._columns][:, 0]))

    def moves(self, spread: Spread) -> bool:
        """Return whether the sensor moves, where the size of its values is right."""
        usual = self._usual
        return not self._anchored_fails(spread) and spread.high - spread.low >= MOVES * (usual.high - usual.low)

    def fails(self, spread: Spread, *, moves: bool) -> bool:
        """Return whether a span does not fit.

        Args:
            spread: the span's spread.
            moves: another triad shows that the sensor moves.
        """
        if not self._norm:
            return self._single_fails(spread)
        if self.anchored:
            return self._anchored_fails(spread)
        if self._usual.high <= 0:
            return False
        large = spread.high > max(RESTING * self._usual.high, SEEN * self._most)  # rule 2
        return large or (moves and spread.high * STILL < self._usual.high)  # rule 3

    def _anchored_fails(self, spread: Spread) -> bool:
        usual = self._usual.median
        return not usual / ANCHORED <= spread.median <= usual * ANCHORED  # rule 2

    def _single_fails(self, spread: Spread) -> bool:
        width = self._most - self._least
        if not width or self._inside(spread):
            return False
        far = max(self._least - spread.low, spread.high - self._most) > FAR * width
        return far or bool(self._converted(spread))  # rule 4

    def _inside(self, spread: Spread) -> bool:
        """Return whether a span of a single channel lies within reach of training."""
        width = self._most - self._least
        low, high = self._least - width, self._most + width
        if self._least > 0 and not any(offset for _, _, offset in units.conversions(self._unit)):
            low, high = self._least / ANCHORED, self._most * ANCHORED
        return low <= spread.low and spread.high <= high

    def _converted(self, spread: Spread) -> str:
        """Return the unit of a single channel's kind that brings a span into the range of training."""
        if not units.is_real(self._unit):
            return ""
        for unit, factor, offset in units.conversions(self._unit):
            low, high = spread.low * factor + offset, spread.high * factor + offset
            margin = (self._most - self._least) / 2
            if self._least - margin <= low and high <= self._most + margin:
                return unit
        return ""

    def misfit(self, spread: Spread) -> Misfit:
        """Describe a span that fails."""
        channels, usual = self._reference.channels, self._usual
        if not self._norm:
            return Misfit(channels, self._unit, spread, usual, 0.0, self._converted(spread))
        if self.anchored:
            ratio, reach = spread.median / usual.median, ANCHORED
        else:
            ratio, reach = spread.high / usual.high, RESTING / 2
        # The first of its kind that comes near: the table has the common ones first.
        likely = (unit for unit, factor, _ in units.conversions(self._unit) if 1 / reach < ratio * factor < reach)
        return Misfit(channels, self._unit, spread, usual, ratio, next(likely, ""))
