"""Order of a stream's samples: rule 1, lateness and clock jumps of `edge_runtime.windowing.window`.

Both windowers order by this code: one stream is a key, or a part of a key whose channels come in messages of their own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from edge_runtime.manifest import InputContract
from edge_runtime.metrics import Metrics
from edge_runtime.types import Float32, Float64, Reading
from edge_runtime.windowing.config import WindowConfig

_EVEN = 4.0
"""Ratio of two silences in a row below which a sensor sends seldom, and its clock has not jumped."""

Block = tuple[Float64, Float32]
"""Stamps in order, (n,), and the values of those samples, (n, channels)."""


class Stream:
    """Samples of one stream that are not used yet."""

    __slots__ = ("newest", "pending", "suspect")

    def __init__(self) -> None:
        self.newest = -math.inf
        """Newest stamp seen, used or pending."""
        self.pending: list[Block] = []
        """Samples that wait for earlier ones, blocks in order of stamp."""
        self.suspect: Block | None = None
        """A lone reading from another time."""

    def waiting(self) -> int:
        """Count the samples that wait."""
        return sum(len(times) for times, _ in self.pending)


class PartState(NamedTuple):
    """State of a stream of some channels that a restart continues; see `edge_runtime.windowing.track.Track`."""

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
        metrics: receives drops by reason (``late``, ``duplicate``, ``bad_time``).
    """

    def __init__(self, contract: InputContract, config: WindowConfig, metrics: Metrics) -> None:
        self._dropped = metrics.dropped
        # A silence that rule 2 allows is no jump: a sensor that sends once an hour would be a suspect each time.
        self.waiting = 0
        """Samples that wait, of all streams."""
        self.jump_s = max(config.max_jump_s, contract.max_gap)

    def sort(self, times: Float64, values: Float32) -> Block:
        """Order samples by stamp; of equal stamps keep the first (rule 1)."""
        if len(times) > 1 and (times[1:] <= times[:-1]).any():
            order = np.argsort(times, kind="stable")
            times, values = times[order], values[order]
            distinct = np.concatenate(([True], np.diff(times) > 0))
            if not distinct.all():
                same = (values[1:] == values[:-1]).all(axis=1) & ~distinct[1:]
                for reason, count in (("duplicate", same.sum()), ("same_stamp", (~distinct).sum() - same.sum())):
                    if count:
                        self._dropped[reason] += int(count)
                times, values = times[distinct], values[distinct]
        return times, values

    def near(self, times: Float64, newest: float) -> bool:
        """Tell whether a block lies where a clock that last showed `newest` may be."""
        jump = self.jump_s
        return bool(-jump <= times[-1] - newest and times[0] - newest <= jump)

    def trust(self, stream: Stream) -> int:
        """Go on in the stream's own time; return how many samples a lone reading from another one had."""
        suspect, stream.suspect = stream.suspect, None
        return 0 if suspect is None else len(suspect[0])

    def doubt(self, stream: Stream, times: Float64, values: Float32) -> Block | None:
        """Set a block from another time aside; return the one that was set aside before where the two agree."""
        suspect = stream.suspect
        if suspect is not None and abs(float(times[0]) - float(suspect[0][-1])) <= self.jump_s:
            stream.suspect = None
            return suspect
        if suspect is not None:
            apart = float(suspect[0][0]) - stream.newest, float(times[0]) - float(suspect[0][-1])
            if 0 < max(apart) < _EVEN * min(apart):  # a sensor that sends seldom
                stream.suspect = None
                return suspect
            self._dropped["bad_time"] += len(suspect[0])
        stream.suspect = (times, values)
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

    def count_late(self, stream: Stream, times: Float64, known: int) -> None:
        """Tell redelivered samples, which are expected with QoS 1, from those that came too late to be used.

        Args:
            stream: to which they belong.
            times: their stamps.
            known: how many of them the grid has.
        """
        known += sum(int(np.isin(times, waiting).sum()) for waiting, _ in stream.pending)
        known = min(known, len(times))
        if known:
            self._dropped["duplicate"] += known
        if len(times) > known:
            same = min(int((times == stream.newest).sum()), len(times) - known)
            for reason, count in (("same_stamp", same), ("late", len(times) - known - same)):
                if count:
                    self._dropped[reason] += count


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
