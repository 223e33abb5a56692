"""Samples of channels that come together, on their key's grid: rules 8, 9 of `edge_runtime.signal.windowing.join`.

A value is a pure function of the samples of its channels. It is computed once no later sample can change it: a sample
after the grid point is known, or the channel is *settled* so far beyond the point that none could matter.
"""

from __future__ import annotations

import math
from typing import Final, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from edge_runtime.errors import ConfigError
from edge_runtime.manifest import Channel, InputContract
from edge_runtime.signal.windowing.grid import Columns, Rows, Segment, means, on_line
from edge_runtime.signal.windowing.ordering import Block, PartState, Stream
from edge_runtime.types import Float32, Float64

MOST_BYTES: Final = 1 << 26
"""Rows of a key that may wait for the end of a line."""

Bools = npt.NDArray[np.bool_]
Positions = npt.NDArray[np.intp]


class _Rule(NamedTuple):
    """Rule by which a channel gets its values; channels of one track share it."""

    resample: Literal["linear", "mean", "previous"]
    max_age_s: float
    """Longest line, or longest time for which a value is held, seconds."""
    refuse: bool
    """A missing value leaves a hole; otherwise the last one stands in for it."""
    kept: bool
    """A sample is held for longer than the silence that ends a segment: a state, such as that of a door."""


def _rule(channel: Channel, contract: InputContract) -> _Rule:
    """Return the rule of a channel.

    Raises:
        ConfigError: points of the grid may wait for the end of a line for too long: memory is bounded.
    """
    resample, max_age_s = channel.resample or contract.resample, channel.max_age_s or contract.max_gap
    rows = max_age_s * contract.rate_hz
    if resample != "previous" and 4 * rows * len(contract.channels) > MOST_BYTES:
        raise ConfigError(
            f"channel {channel.name}: {rows:.0f} rows of each key would wait for the end of a line of max_age_s = "
            f"{max_age_s:g} s; build the bundle with a shorter one, or with resample = 'previous'"
        )
    kept = resample == "previous" and max_age_s > contract.max_gap
    return _Rule(resample, max_age_s, refuse=channel.missing == "refuse", kept=kept)


class Sensors:
    """Channels that sensors send, with the rule of each; masks are not among them.

    Args:
        contract: channels, and what holds where they say nothing themselves.
    """

    def __init__(self, contract: InputContract) -> None:
        self.rules = {
            column: _rule(channel, contract) for column, channel in enumerate(contract.channels) if not channel.mask_of
        }
        names = [channel.name for channel in contract.channels]
        self.masks = {
            names.index(channel.mask_of): column for column, channel in enumerate(contract.channels) if channel.mask_of
        }
        """Column of a masked channel to that of its mask."""

    def tracks(self) -> list[Track]:
        """Make empty tracks: one for each rule."""
        by_rule: dict[_Rule, list[int]] = {}
        for column, rule in self.rules.items():
            by_rule.setdefault(rule, []).append(column)
        return [Track(tuple(own), rule, self) for rule, own in by_rule.items()]

    def restore(self, state: PartState) -> Track:
        """Restore a track that goes on where another one was."""
        track = Track(tuple(state.columns), self.rules[state.columns[0]], self)
        track.newest, track.pending, track.suspect = state.newest, list(state.pending), state.suspect
        if state.apart:
            track.apart = Apart(state.since)
            track.apart.pending, track.apart.newest = list(state.apart), float(state.apart[-1][0][-1])
        (track.times, track.values), track.filled = state.tail, state.filled
        return track


class Apart(Stream):
    """Samples of a clock that shows another time than the key's."""

    __slots__ = ("since",)

    def __init__(self, since: float) -> None:
        super().__init__()
        self.since = since
        """The key's newest stamp when this began."""


class Track(Stream):
    """Channels of one key that have come together in every message so far, and share a rule."""

    __slots__ = ("apart", "columns", "filled", "mask", "masked", "rule", "sensors", "target", "times", "values")

    def __init__(self, columns: tuple[int, ...], rule: _Rule, sensors: Sensors) -> None:
        super().__init__()
        self.columns = columns
        self.rule = rule
        self.sensors = sensors
        self.apart: Apart | None = None
        """Samples in another time; None where this clock shows the key's."""
        self.times: Float64 = np.empty(0, np.float64)
        """Samples that later grid points may need, the newest before the next one among them."""
        self.values: Float32 = np.empty((0, len(columns)), np.float32)
        self.filled = 0
        """Grid points determined so far."""
        gapless = columns[-1] - columns[0] + 1 == len(columns)
        self.target: Columns = slice(columns[0], columns[-1] + 1) if gapless else np.array(columns, np.intp)
        """Columns of the contract, where rows are written."""
        self.masked = [place for place, column in enumerate(columns) if column in sensors.masks]
        """Places in `columns` of those that have a mask."""
        self.mask = [sensors.masks[columns[place]] for place in self.masked]

    def part(self, columns: tuple[int, ...]) -> Track:
        """Copy some of the columns, with all that is known of them."""
        places = [self.columns.index(column) for column in columns]
        part = Track(columns, self.rule, self.sensors)
        _copy(self, part, places)
        if self.apart is not None:
            part.apart = Apart(self.apart.since)
            _copy(self.apart, part.apart, places)
        part.times, part.values, part.filled = self.times, self.values[:, places], self.filled
        return part

    def add(self, times: Float64, values: Float32) -> None:
        """Take samples in order, all later than those taken before."""
        if len(self.times):
            times, values = np.concatenate((self.times, times)), np.concatenate((self.values, values))
        self.times, self.values = times, values

    def holds(self, age_s: float) -> bool:
        """Tell whether a sample of this age is still the channels' value, over the ends of segments."""
        return self.rule.kept and 0 <= age_s <= self.rule.max_age_s

    def stand(self, times: Float64, values: Float32) -> None:
        """Let a sample that came late be the value from the settled time on, if it is kept and none is newer."""
        newest = not len(self.times) or times[0] > self.times[-1]
        if self.rule.kept and newest and (not self.pending or times[0] < self.pending[0][0][0]):
            self.add(times, values)

    def clear(self) -> None:
        """Forget the samples taken: the clock went back."""
        self.times, self.values, self.filled = self.times[:0], self.values[:0], 0

    def state(self) -> PartState:
        """Return what `Sensors.restore` needs; views, to be encoded at once."""
        apart, since = ([], -math.inf) if self.apart is None else (self.apart.pending, self.apart.since)
        tail = self.times, self.values
        return PartState(self.columns, self.newest, self.pending, self.suspect, apart, since, tail, self.filled)


def _copy(old: Stream, new: Stream, places: list[int]) -> None:
    def some(block: Block) -> Block:
        return block[0], block[1][:, places]

    new.newest = old.newest
    new.pending = [some(block) for block in old.pending]
    new.suspect = None if old.suspect is None else some(old.suspect)


class TrackGrid(Rows):
    """Determines the values of tracks at the grid points of their key."""

    def fill(self, segment: Segment, track: Track, settled: float, lowest: int, *, closed: bool = False) -> None:
        """Compute every grid point of a track that no later sample can change.

        Args:
            segment: the key's segment; `Segment.last_t` is the newest sample of any channel.
            track: has taken all its samples up to `settled`, or of a closed segment all of it.
            settled: no sample up to this stamp is to come.
            lowest: first grid point that lacks a channel.
            closed: the key has no further sample in this segment.
        """
        mean = track.rule.resample == "mean"
        half, last = self._period / 2, segment.last_t
        until = (last + self._period if closed else last) - half if mean else last + self._snap
        points = self.points(segment, track.filled, until)
        if not len(points):
            return
        ends = closed or self._no_line_to_come(segment, track, settled)
        if mean:
            block, present = self._means(segment, track, points, ends=ends)
        else:
            if not closed and track.rule.resample == "previous":
                ends = True
            final = points - self._snap <= last if closed else points + self._snap <= settled
            block, present = self._samples(segment, track, points, final & ends)
        if not len(block):
            return
        self._write(segment, track, block, present, lowest)
        first_open = segment.anchor + track.filled * self._period - (half if mean else self._snap)
        keep = max(0, int(track.times.searchsorted(first_open, side="left")) - 1)
        if keep:
            track.times, track.values = track.times[keep:].copy(), track.values[keep:].copy()

    def delivered_again(self, segment: Segment, track: Track, times: Float64, values: Float32, *, fast: bool) -> bool:
        """Tell whether samples of a track are those that its grid has, or had."""
        again, only = self.begin(segment.anchor), Track(track.columns, track.rule, track.sensors)
        times, values = self.reached(segment, track.filled, times, values)
        if len(times) < 2:
            return False
        # From the second sample on: what stands before the first may have gone into its values.
        again.first = again.filled = only.filled = math.floor((times[0] - segment.anchor) * self.rate) + 2
        only.add(times, values)
        again.last_t = float(times[-1])
        self.fill(again, only, again.last_t, again.first)
        rows = again.buffer[: only.filled - again.first, track.target]
        return len(rows) > 0 and self.same_rows(segment, track.filled, again.first, rows, track.target, fast=fast)

    def _no_line_to_come(self, segment: Segment, track: Track, settled: float) -> bool:
        """Tell that a sample after the settled stamp ends no line: the one before is too old, or there is none."""
        times = track.times
        return not len(times) or times[-1] < segment.anchor or bool(settled - times[-1] > track.rule.max_age_s)

    def _samples(self, segment: Segment, track: Track, points: Float64, final: Bools) -> tuple[Float32, Bools]:
        """Take the first sample near each point, else what `_around` gives."""
        times, values = track.times, track.values
        right = times.searchsorted(points - self._snap, side="left")
        known = right < len(times)
        n = _leading(known | (final & (points - self._snap <= segment.last_t)))
        points, right, known = points[:n], right[:n], known[:n]
        exact = known.copy()
        exact[known] = times[right[known]] <= points[known] + self._snap
        if exact.all():
            return values[right], exact
        block, present = _around(segment, track, points, right)
        block[exact] = values[right[exact]]
        return block, exact | present

    def _means(self, segment: Segment, track: Track, points: Float64, *, ends: bool) -> tuple[Float32, Bools]:
        """Average the samples within half a period, else what `_around` gives."""
        edges = track.times.searchsorted(self.edges(segment, track.filled, len(points)), side="left")
        n = len(points) if ends else _leading((edges[1:] > edges[:-1]) | (edges[1:] < len(track.times)))
        block, present = means(track.values, edges[: n + 1])
        rest = ~present
        if rest.any():
            block[rest], present[rest] = _around(segment, track, points[:n][rest], edges[:n][rest])
        return block, present

    def _write(self, segment: Segment, track: Track, block: Float32, present: Bools, lowest: int) -> None:
        n = len(block)
        if not present.all():
            if track.rule.refuse:
                block[~present] = np.nan
            for place in track.masked:  # never a value so far: the mask says so
                np.nan_to_num(block[:, place], copy=False)
            holes = np.flatnonzero(np.isnan(block).any(axis=1))
            if len(holes):
                segment.hole = max(segment.hole, track.filled + int(holes[-1]))
        if track.filled - segment.first + n > len(segment.buffer):
            self.make_room(segment, track.filled + n - segment.filled, lowest)
        at = track.filled - segment.first
        segment.buffer[at : at + n, track.target] = block
        if track.mask:
            segment.buffer[at : at + n, track.mask] = present[:, np.newaxis]
        track.filled += n
        segment.filled = max(segment.filled, track.filled)


def _around(segment: Segment, track: Track, points: Float64, right: Positions) -> tuple[Float32, Bools]:
    """Values at points from the samples around them.

    Args:
        segment: lines end with it.
        track: see there.
        points: none has a sample of its own.
        right: the first sample after each point; its length where there is none.

    Returns:
        (points, channels), where the value is missing the last one, or NaN where there was none; and where it is not
        missing.
    """
    times, values, rule = track.times, track.values, track.rule
    if not len(times):
        return np.full((len(points), values.shape[1]), np.nan, np.float32), np.zeros(len(points), np.bool_)
    left, after = np.maximum(right - 1, 0), np.minimum(right, len(times) - 1)
    block = values[left]
    block[right == 0] = np.nan
    if rule.resample == "previous":
        return block, (right > 0) & (points - times[left] <= rule.max_age_s)
    present = (
        (right > 0)
        & (right < len(times))
        & (times[left] >= segment.anchor)
        & (times[after] - times[left] <= rule.max_age_s)
    )
    block[present] = on_line(times, values, right[present], points[present])
    return block, present


def _leading(flags: Bools) -> int:
    """Count the flags before the first that is not set."""
    return len(flags) if flags.all() else int(flags.argmin())
