"""One key's samples on the regular grid of the model: rules 3 and 4 of `edge_runtime.signal.windowing.window`.

Samples come here in the order of their stamps, without a gap. The start of the next window is all
that is known of windows; samples before it are dropped. `edge_runtime.signal.windowing.track` uses the same rules for
channels that come in messages of their own.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from edge_runtime.manifest import InputContract
from edge_runtime.types import Float32, Float64

Columns = slice | npt.NDArray[np.intp]
"""Columns of the contract."""
ALL: Final = slice(None)
PAST: Final = 24
"""Pieces of rows at the starts of windows that are remembered, to tell what is delivered again from another time."""
_REMEMBERED_S: Final = 60.0
"""Time that they cover, as far as `_ROWS` allow: what a broker has on its way may be a minute of a stream."""
_ROWS: Final = (96, 1536)
"""Fewest and most of them."""
_HELD: Final = 32
"""Fewest rows that a buffer keeps, for the same end."""


class Segment:
    """One key's grid: an append-only buffer that is replaced, never rewound, so that windows can be views of it."""

    __slots__ = (
        "anchor",
        "base",
        "buffer",
        "epoch",
        "filled",
        "first",
        "hole",
        "last_t",
        "next_window",
        "past",
        "tail",
    )

    def __init__(self, anchor: float, base: int, next_window: int, buffer: Float32) -> None:
        self.anchor = anchor
        """Stamp of grid point 0."""
        self.base = base
        """Number of grid point 0, counted from 1970."""
        self.epoch = 0
        """Epoch of its windows' ids (`edge_runtime.signal.windowing.epochs`)."""
        self.past: deque[tuple[int, Float32]] = deque(maxlen=PAST)
        """Rows that the buffer holds no longer: the first grid point, and every `hop`-th row from there."""
        self.buffer = buffer
        self.first = 0
        """Grid point that ``buffer[0]`` holds."""
        self.filled = 0
        """Grid points determined so far."""
        self.hole = -1
        """Newest grid point at which a channel has no value; its row holds NaN there."""
        self.next_window = next_window
        """Grid point at which the next window starts."""
        self.last_t = -math.inf
        """Stamp of the newest sample used."""
        self.tail: tuple[Float64, Float32] | None = None
        """Newest samples that later grid points may need; None where the last grid point is the newest sample."""


class SegmentState(NamedTuple):
    """State of a segment that a restart continues; see `Segment`."""

    anchor: float
    base: int
    next_window: int
    filled: int
    last_t: float
    tail: tuple[Float64, Float32] | None
    rows: Float32
    """(grid points, n_channels) up to `filled`: what windows and their context still need."""
    past: Sequence[tuple[int, Float32]] = ()
    """As of `Segment`: what a broker delivers again after a restart may be older than `rows`."""


class Rows:
    """Grid points of segments, and the room for their rows.

    Args:
        contract: rate, channels, and how much of the past a window needs.
    """

    def __init__(self, contract: InputContract) -> None:
        self._n = contract.window
        self._hop = contract.hop
        self.rate = contract.rate_hz
        self._period = 1.0 / contract.rate_hz
        self._snap = contract.snap / contract.rate_hz
        self._history = contract.history
        self._capacity = 2 * max(contract.history, _HELD)
        self._channels = len(contract.channels)
        fewest, most = _ROWS
        self._piece = math.ceil(min(most, max(fewest, _REMEMBERED_S * self.rate / self._hop)) / (PAST - 1))

    def begin(self, anchor: float) -> Segment:
        """Begin a segment whose first sample has this stamp."""
        base = round(anchor * self.rate)
        buffer = np.empty((self._capacity, self._channels), np.float32)
        return Segment(anchor, base, -base % self._hop, buffer)

    def make_room(self, segment: Segment, n: int, lowest: int | None = None) -> int:
        """Move the part that windows still need to a fresh buffer; views of the old one stay as they are.

        Args:
            segment: its buffer has no room for more.
            n: how many grid points will come.
            lowest: first grid point that still lacks a channel; None: all determined ones are whole.

        Returns:
            Where in the new buffer the next grid point goes.
        """
        held = segment.first
        whole = segment.filled if lowest is None else lowest
        first = max(held, min(segment.next_window + self._n - self._history, whole - _HELD))
        kept = segment.filled - first
        past = segment.past
        for piece in self._leaving(segment, first):
            joins = past and len(past[-1][1]) < self._piece
            past.append((past[-1][0], np.concatenate((past.pop()[1], piece[1]))) if joins else piece)
        buffer = np.empty((max(self._capacity, kept + n), self._channels), np.float32)
        buffer[:kept] = segment.buffer[first - held : segment.filled - held]
        segment.buffer = buffer
        segment.first = first
        return kept

    def _leaving(self, segment: Segment, first: int) -> list[tuple[int, Float32]]:
        """Return what to remember of the rows before a grid point: those at which windows begin."""
        held = segment.first
        at = held + -(segment.base + held) % self._hop
        return [(at, segment.buffer[at - held : first - held : self._hop].copy())] if at < first else []

    def known(
        self, segment: Segment, filled: int, times: Float64, values: Float32, columns: Columns = ALL
    ) -> npt.NDArray[np.bool_]:
        """Return which samples have the values that the grid has at their place: they were delivered once more."""
        slots = np.rint((times - segment.anchor) * self.rate).astype(np.int64) - segment.first
        inside = (slots >= 0) & (slots < filled - segment.first)
        inside[inside] = (segment.buffer[slots[inside]][:, columns] == values[inside]).all(axis=1)
        return inside

    def reached(self, segment: Segment, filled: int, times: Float64, values: Float32) -> tuple[Float64, Float32]:
        """Return those of these samples, in order, where the grid has rows, or had: absurd stamps cost nothing."""
        oldest = segment.past[0][0] if segment.past else segment.first
        ends = segment.anchor + np.array([oldest - 1, filled + 1]) * self._period
        held = slice(*np.searchsorted(times, ends).tolist())
        return times[held], values[held]

    def same_rows(
        self, segment: Segment, filled: int, at: int, rows: Float32, columns: Columns = ALL, *, fast: bool
    ) -> bool:
        """Tell whether these rows are those that the grid has, or had, from this point on: they were delivered again.

        Most of those that can be compared must be the same, and rows that all have the same values prove nothing. Of
        rows that came faster than time passes, one is enough, as others may be missing, and so are any values.
        """
        pairs = [(segment.first, segment.buffer[: filled - segment.first, columns], 1)]
        pairs += [(first, past[:, columns], self._hop) for first, past in segment.past]
        same = compared = 0
        if not fast and not (rows != rows[:1]).any():
            return False
        for first, held, step in pairs:
            points = first + step * np.arange(len(held))
            inside = (points >= at) & (points < at + len(rows))
            equal = (held[inside] == rows[points[inside] - at]).all(axis=1)
            same, compared = same + int(equal.sum()), compared + len(equal)
        return same > (0 if fast else compared / 2)

    # -- over a restart ----------------------------------------------------------------------------------------------

    def state(self, segment: Segment, lowest: int | None = None) -> SegmentState:
        """Return what `restore` needs; views, to be encoded at once. `lowest` as in `make_room`."""
        # The newest point at least: without a tail it is what the next sample is interpolated from.
        whole = segment.filled - 1 if lowest is None else lowest
        first = max(segment.first, min(segment.next_window + self._n - self._history, whole))
        rows = segment.buffer[first - segment.first : segment.filled - segment.first]
        past = [*segment.past, *self._leaving(segment, first)]
        return SegmentState(
            segment.anchor, segment.base, segment.next_window, segment.filled, segment.last_t, segment.tail, rows, past
        )

    def restore(self, state: SegmentState) -> Segment:
        """Restore a segment that goes on where another one was."""
        kept = len(state.rows)
        buffer = np.empty((max(self._capacity, kept), self._channels), np.float32)
        buffer[:kept] = state.rows
        segment = Segment(state.anchor, state.base, state.next_window, buffer)
        segment.first, segment.filled = state.filled - kept, state.filled
        segment.last_t, segment.tail = state.last_t, state.tail
        segment.past += state.past
        return segment

    def points(self, segment: Segment, filled: int, until: float) -> Float64:
        """Stamps of the grid points from number `filled` up to a time."""
        count = math.floor((until - segment.anchor) * self.rate) + 1 - filled
        steps = np.arange(filled, filled + max(0, count), dtype=np.float64)
        return segment.anchor + steps * self._period

    def edges(self, segment: Segment, filled: int, count: int) -> Float64:
        """Stamps half-way between grid points: before, between and after `count` of them from number `filled`.

        One edge between two points, computed one way: a sample on it belongs to exactly one of them.
        """
        numbers = np.arange(filled, filled + count + 1, dtype=np.float64)
        return segment.anchor + (numbers - 0.5) * self._period


class Grid(Rows):
    """Determines the grid points of segments from samples that hold all channels.

    Args:
        contract: rate, resampling, and how much of the past a window needs.
    """

    def __init__(self, contract: InputContract) -> None:
        super().__init__(contract)
        self._resample = contract.resample

    def fill(self, segment: Segment, times: Float64, values: Float32) -> None:
        """Compute every grid point that these samples determine."""
        known_t, known_v = self._with_tail(segment, times, values)
        if self._resample == "mean":
            self._fill_mean(segment, known_t, known_v, float(known_t[-1]))
            return
        # A point is determined by the first sample at or after (point - snap).
        points = self.points(segment, segment.filled, float(times[-1]) + self._snap)
        right = np.searchsorted(known_t, points - self._snap, side="left")
        known = right < len(known_t)
        points, right = points[known], right[known]
        snapped = known_t[right] <= points + self._snap
        if snapped.all():
            block = known_v[right]
        elif self._resample == "previous":
            block = known_v[np.where(snapped, right, right - 1)]
        else:
            block = np.where(snapped[:, np.newaxis], known_v[right], on_line(known_t, known_v, right, points))
        self._append(segment, block)
        segment.last_t = float(times[-1])
        segment.tail = (times[-1:], values[-1:].copy())  # a copy: a view would hold the whole message

    def end(self, segment: Segment) -> None:
        """Compute what waited for a sample that will not come: only a mean waits."""
        if self._resample == "mean" and segment.tail is not None:
            self._fill_mean(segment, *segment.tail, segment.last_t + self._period)

    # -- rule 4 ------------------------------------------------------------------------------------------------------

    def _with_tail(self, segment: Segment, times: Float64, values: Float32) -> tuple[Float64, Float32]:
        """Append the new samples to those that their grid points may still need."""
        if segment.tail is not None:
            tail_t, tail_v = segment.tail
        elif segment.filled:
            at = segment.filled - segment.first
            tail_t, tail_v = np.array([segment.last_t]), segment.buffer[at - 1 : at]
        else:
            return times, values
        return np.concatenate((tail_t, times)), np.concatenate((tail_v, values))

    def _append(self, segment: Segment, block: Float32) -> None:
        n = len(block)
        at = segment.filled - segment.first
        if at + n > len(segment.buffer):
            at = self.make_room(segment, n)
        segment.buffer[at : at + n] = block
        segment.filled += n

    def _fill_mean(self, segment: Segment, known_t: Float64, known_v: Float32, until: float) -> None:
        """Mean over half a period to both sides, computed once a sample beyond that is known."""
        half = self._period / 2
        points = self.points(segment, segment.filled, until - half)
        if len(points):
            edges = np.searchsorted(known_t, self.edges(segment, segment.filled, len(points)), side="left")
            block, some = means(known_v, edges)
            block[~some] = on_line(known_t, known_v, edges[:-1][~some], points[~some])
            self._append(segment, block)
        first_open = segment.anchor + (segment.filled - 0.5) * self._period
        keep = max(0, int(np.searchsorted(known_t, first_open, side="left")) - 1)
        segment.last_t = float(known_t[-1])
        segment.tail = (known_t[keep:].copy(), known_v[keep:].copy())


def means(values: Float32, edges: npt.NDArray[np.intp]) -> tuple[Float32, npt.NDArray[np.bool_]]:
    """Average the samples between one edge and the next.

    Args:
        values: (n, channels).
        edges: (points + 1,) positions in `values`.

    Returns:
        (points, channels), and the points that have a sample; the values of others are not set.
    """
    low, high = edges[:-1], edges[1:]
    block = np.empty((len(low), values.shape[1]), np.float32)
    some = high > low
    # Each sum starts at its own samples, so the result does not depend on how they were split.
    sums = np.add.reduceat(values[: edges[-1]].astype(np.float64), low[some], axis=0)
    block[some] = sums / (high - low)[some, np.newaxis]
    return block, some


def on_line(times: Float64, values: Float32, right: npt.NDArray[np.intp], points: Float64) -> Float32:
    """Interpolate at `points` on the line from the sample before `right` to the one at `right`."""
    left = np.maximum(right - 1, 0)
    span = times[right] - times[left]
    # Clipped for the points that snap to a sample instead, and may lie outside the two: those values are not used.
    share = np.clip((points - times[left]) / np.where(span > 0, span, 1.0), 0, 1).astype(np.float32)[:, np.newaxis]
    # Not low + share * (high - low): that difference can overflow where both values are finite.
    between: Float32 = values[left] * (1 - share) + values[right] * share
    return between
