"""Order of a stream's samples: rule 1, lateness and clock jumps of `edge_runtime.signal.windowing.window`.

Both windowers order by this code: one stream is a key, or a part of a key whose channels come in messages of their own.

The rules by which a clock that stepped is told from samples that are late, absurd, or delivered again:

1. Samples further than `Ordering.jump_s` from the stream's newest stamp are set aside. The next ones that are near them
   confirm them, but for the same ones once more, which are dropped as ``duplicate``; ones of the old time refute them,
   and they are dropped as ``stamp_jump``.
2. Nearer ones that are too old to be used, and that the grid does not have, are set aside, too, once they are more than
   `Ordering.shuffled_s` too old. Ones of the old time refute them, and they are dropped as ``late``.
3. They confirm each other when at least two readings, one after the other in time, hold as much as a window, or as
   lies between two of them: waiting for it costs nothing, since no window of a new time could be complete earlier.
   Equal values prove little, so `_FLAT` times as much is needed of them.
4. Unless these are rows that the grid has, or had: then they were delivered again, and are dropped as ``duplicate``.
   What a broker delivers again comes faster than time passes, which a clock that stepped does not (`Ordering.fast`).
5. What is confirmed is used: the stream goes on at that time.
6. A message that holds the newest sample and goes on from there repeats its history: its older samples, of which the
   grid may remember none, are dropped as ``duplicate``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from edge_runtime.manifest import InputContract
from edge_runtime.metrics import Metrics
from edge_runtime.signal.windowing.config import WindowConfig
from edge_runtime.types import Float32, Float64, Reading

_EVEN: Final = 4.0
"""Ratio of two silences in a row below which a sensor sends seldom, and its clock has not jumped."""
_SHUFFLED: Final = 5
"""Periods by which samples are too old that came in another order, and are no clock that stepped."""

_FLAT: Final = 4

Block = tuple[Float64, Float32]
"""Stamps in order, (n,), and the values of those samples, (n, channels)."""
Bools = npt.NDArray[np.bool_]


class Stream:
    """Samples of one stream that are not used yet."""

    __slots__ = ("newest", "pending", "suspect", "suspect_at")

    def __init__(self) -> None:
        self.newest = -math.inf
        """Newest stamp seen, used or pending."""
        self.pending: list[Block] = []
        """Samples that wait for earlier ones, blocks in order of stamp."""
        self.suspect: Block | None = None
        """A lone reading from another time."""
        self.suspect_at = 0.0
        """Monotonic time at which the first of them arrived."""

    def waiting(self) -> int:
        """Count the samples that wait."""
        return sum(len(times) for times, _ in self.pending)


class PartState(NamedTuple):
    """State of a stream of some channels that a restart continues; see `edge_runtime.signal.windowing.track.Track`."""

    columns: Sequence[int]
    newest: float
    pending: Sequence[Block]
    suspect: Block | None
    apart: Sequence[Block]
    since: float
    tail: Block
    filled: int


class Ordering:
    """Puts samples in order, and tells a clock that jumped from one absurd stamp.

    Args:
        contract: what a window is.
        config: run-time bounds.
        metrics: receives drops by reason (``late``, ``duplicate``, ``stamp_jump``).
    """

    def __init__(self, contract: InputContract, config: WindowConfig, metrics: Metrics) -> None:
        self._dropped = metrics.dropped
        self._lateness = config.lateness_s
        # A silence that rule 2 allows is no jump: a sensor that sends once an hour would be a suspect each time.
        self.waiting = 0
        """Samples that wait, of all streams."""
        self.received = 0.0
        """Monotonic time at which what is pushed arrived; 0 where it is not known, as in recordings."""
        self.jump_s = max(config.max_jump_s, contract.max_gap)
        period = 1.0 / contract.rate_hz
        self.shuffled_s = _SHUFFLED * period
        """How far samples may be too old without being set aside."""
        # Three samples more than a hop: rule 4 compares where windows begin, and not at the two ends.
        self._window_s = (max(contract.window, contract.hop + 4) - 1.5) * period

    def sort(self, times: Float64, values: Float32) -> Block:
        """Order samples by stamp; of equal stamps keep the first (rule 1)."""
        if len(times) > 1 and (times[1:] <= times[:-1]).any():
            order = np.argsort(times, kind="stable")
            times, values = times[order], values[order]
            distinct = np.concatenate(([True], np.diff(times) > 0))
            if not distinct.all():
                same = (values[1:] == values[:-1]).all(axis=1) & ~distinct[1:]
                self._dropped["duplicate"] += int(same.sum())
                self._dropped["same_stamp"] += int((~distinct).sum() - same.sum())
                times, values = times[distinct], values[distinct]
        return times, values

    def near(self, times: Float64, newest: float) -> bool:
        """Tell whether a block lies where a clock that last showed `newest` may be."""
        jump = self.jump_s
        return bool(-jump <= times[-1] - newest and times[0] - newest <= jump)

    def without_history(self, stream: Stream, times: Float64, values: Float32, used: Float32 | None) -> Block:
        """Return a block without the samples that it repeats (rule 6).

        Args:
            stream: the samples' stream.
            times: their stamps, in order.
            values: the samples' values.
            used: value of the newest sample that was used; None where there is none.
        """
        at = int(times.searchsorted(stream.newest))
        newest = stream.pending[-1][1][-1] if stream.pending else used
        if not 0 < at < len(times) - 1 or times[at] != stream.newest or newest is None or (values[at] != newest).any():
            return times, values
        again = int(times.searchsorted(stream.newest - self._lateness, side="right"))
        self._dropped["duplicate"] += again
        return times[again:], values[again:]

    def trust(self, stream: Stream) -> None:
        """Go on in the stream's own time: what is set aside was absurd or late (rules 1 and 2)."""
        suspect, stream.suspect = stream.suspect, None
        if suspect is not None:
            behind = stream.newest - self.jump_s <= suspect[0][0] and suspect[0][-1] <= stream.newest
            self._dropped["late" if behind else "stamp_jump"] += len(suspect[0])

    def behind(self, stream: Stream, times: Float64, values: Float32) -> Block | None:
        """Set samples aside that are too old to be used (rule 2); return all that are there where they hold a window.

        Args:
            stream: the samples' stream.
            times: their stamps, in order.
            values: the samples' values.
        """
        suspect = stream.suspect
        if suspect is not None and not 0 < times[0] - suspect[0][-1] <= self.jump_s:
            self.trust(stream)
            suspect = None
        if suspect is not None:
            times, values = _concatenate([suspect, (times, values)])
        else:
            stream.suspect_at = self.received
        stream.suspect = (times, values)
        least_s = self._window_s * (_FLAT if (values == values[:1]).all() else 1)
        if suspect is None or times[-1] - times[0] < least_s:  # rule 3
            return None
        stream.suspect = None
        return times, values

    def fast(self, stream: Stream, times: Float64) -> bool:
        """Tell whether samples that were set aside came in less than half of the time that their stamps span."""
        return self.received > 0 and 2 * (self.received - stream.suspect_at) < times[-1] - times[0]

    def doubt(self, stream: Stream, times: Float64, values: Float32) -> Block | None:
        """Set a block from another time aside; return the one that was set aside before where the two agree."""
        suspect = stream.suspect
        if suspect is not None and np.isin(times, suspect[0]).all():
            self._dropped["duplicate"] += len(times)
            return None
        if suspect is not None and abs(float(times[0]) - float(suspect[0][-1])) <= self.jump_s:
            stream.suspect = None
            return suspect
        if suspect is not None:
            apart = float(suspect[0][0]) - stream.newest, float(times[0]) - float(suspect[0][-1])
            if 0 < max(apart) < _EVEN * min(apart):  # a sensor that sends seldom
                stream.suspect = None
                return suspect
            self._dropped["stamp_jump"] += len(suspect[0])
        stream.suspect, stream.suspect_at = (times, values), self.received
        return None

    def hold(self, stream: Stream, times: Float64, values: Float32) -> None:
        """Merge a block into what waits."""
        stream.newest = max(stream.newest, float(times[-1]))
        if not stream.pending or times[0] > stream.pending[-1][0][-1]:
            stream.pending.append((times, values))
            self.waiting += len(times)
        else:
            self.waiting -= stream.waiting()
            stream.pending = [self.sort(*_concatenate([*stream.pending, (times, values)]))]
            self.waiting += stream.waiting()

    def release(self, stream: Stream, bound: float) -> Block | None:
        """Take all that waits up to the bound."""
        taken: list[Block] = []
        while stream.pending:
            times, values = stream.pending[0]
            cut = len(times) if times[-1] <= bound else int(times.searchsorted(bound, side="right"))
            if cut:
                taken.append((times[:cut], values[:cut]))
            if cut < len(times):
                stream.pending[0] = (times[cut:], values[cut:])
                break
            stream.pending.pop(0)
        if not taken:
            return None
        block = _concatenate(taken)
        self.waiting -= len(block[0])
        return block

    def discard(self, stream: Stream, bound: float = math.inf) -> int:
        """Drop what waits up to the bound; return how many samples that were."""
        block = self.release(stream, bound)
        return 0 if block is None else len(block[0])

    def count_late(self, stream: Stream, times: Float64, known: Bools) -> Bools:
        """Count redelivered samples, which are expected with QoS 1, apart from those that came too late to be used.

        Args:
            stream: the samples' stream.
            times: their stamps.
            known: whether the grid has each of them.

        Returns:
            Which are not counted, to be set aside (rule 2): all that are old enough, known ones as well, once one is
            not known. A clock that stepped may show a value that was there at that time.
        """
        for waiting, _ in stream.pending:
            known |= np.isin(times, waiting)
        old = times < stream.newest - self._lateness - self.shuffled_s
        if stream.suspect is None and known[old].all():
            old[:] = False
        again = int((known & ~old).sum())
        same = int(((times == stream.newest) & ~known & ~old).sum())
        self._dropped["duplicate"] += again
        self._dropped["same_stamp"] += same
        self._dropped["late"] += len(times) - int(old.sum()) - again - same
        return np.asarray(old)


def stamps(reading: Reading, period: float) -> Float64:
    """Return one stamp per sample; `period` where the reading states none."""
    t = reading.t
    if isinstance(t, np.ndarray):
        return t.astype(np.float64, copy=False)
    return t + np.arange(len(reading.values), dtype=np.float64) * (reading.period_s or period)


def _concatenate(blocks: Sequence[Block]) -> Block:
    if len(blocks) == 1:
        return blocks[0]
    return np.concatenate([times for times, _ in blocks]), np.concatenate([values for _, values in blocks])
