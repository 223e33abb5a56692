"""Rate check: counts the samples of each key against the time that their stamps say has passed.

1. Time is cut into spans, numbered from the epoch. Each sample counts for the time until the next one's stamp; the
   samples of a message with one stamp share the time until the next message. So it does not matter how samples were
   split into messages, whether they come in bursts, nor which period a message claims.
2. A span says nothing if the key began or had a silence in it, or if samples came out of order or twice, as a broker
   delivers them again after a lost connection.
3. The right rates are those of the training recordings, where the bundle's references have them, else the model's:
   what was recorded at another rate is resampled by the same code. The rate is wrong when two spans in a row lie
   outside `WITHIN` on the same side and agree with each other, and right again after two spans in a row inside it.
4. If the model's rate is all that is known, a slow key is right where values are held until the next one
   (``previous``), and a fast one where they are averaged (``mean``). Readings of some channels only are not counted:
   each part may have a rate of its own.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from edge_runtime.key_table import KeyTable
from edge_runtime.manifest import InputContract, Reference
from edge_runtime.types import Float64, Reading

SPAN_S: Final = 2.5
"""Shortest span; a key that begins with a wrong rate has shown it after at most three."""

SPAN_SAMPLES: Final = 16
"""Fewest samples that a span would hold at the right rate."""

WITHIN: Final = 1.25
"""Factor by which a rate may differ from the model's. Values are interpolated by their stamps, so a little does no
harm, and a message lost now and then is none of a rate."""

AGREE: Final = 1.1
"""Factor by which two spans of one rate may differ: losses vary, a sensor does not."""

_SILENCE: Final = 4.0
"""Factor by which the time until the next message may exceed that of a message's samples; more is a silence."""

_KEPT: Final = 64
"""Changes kept of a key that completes no window."""


class RateChange(NamedTuple):
    """Turn of a key's rate, to wrong or back."""

    t: float
    """Stamp, seconds, from which it holds."""
    rate_hz: float
    """Samples a second; 0 where the rate is right again."""


class _Key:
    """Current span of one key."""

    __slots__ = ("count", "end", "number", "pending", "previous", "start", "t", "whole", "wrong")

    def __init__(self) -> None:
        self.number = 0
        self.start = self.end = math.inf
        """Stamps, seconds: the span is [start, end)."""
        self.count = 0.0
        """Samples counted in the span."""
        self.pending = 0
        """Samples of the newest reading, whose time is not over."""
        self.t = math.inf
        """Stamp of the newest reading."""
        self.whole = False
        self.previous = 0.0
        """Rate in the span before, Hz; 0 where it said nothing."""
        self.wrong = False


class RateCheck:
    """Rates of all keys.

    Args:
        contract: the rate that the model takes.
        references: the training data's references, if the bundle has them.
        max_keys: keys held; the one that came first leaves.

    Attributes:
        changes: what was found and not taken yet, by key, oldest first.
        span_s: length of a span, seconds.
        right_hz: the slowest and the fastest rate that are right.
    """

    def __init__(self, contract: InputContract, references: Sequence[Reference], max_keys: int) -> None:
        self._keys: KeyTable[str, _Key] = KeyTable(max_keys, lambda name, _: self.changes.pop(name, None))
        self._period = 1 / contract.rate_hz
        known = [reference.rates_hz for reference in references if reference.rates_hz is not None]
        self.right_hz = (contract.rate_hz, contract.rate_hz)
        if known:
            self.right_hz = (min(low for low, _ in known), max(high for _, high in known))
        self.span_s = max(SPAN_S, SPAN_SAMPLES / self.right_hz[0])
        # rule 4
        self._low = 0.0 if not known and contract.resample == "previous" else self.right_hz[0] / WITHIN
        self._high = math.inf if not known and contract.resample == "mean" else self.right_hz[1] * WITHIN
        self.changes: dict[str, deque[RateChange]] = {}

    def count(self, readings: Sequence[Reading]) -> None:
        """Count the samples of readings, in the order of arrival."""
        get = self._keys.get
        for name, t, values, _, channels in readings:
            key = get(name)
            # The common case is written out: this runs for every message, and a call would cost as much again.
            if key is not None and type(t) is float and key.t <= t < key.end and channels is None:
                key.count += key.pending
                key.pending = len(values)
                key.t = t
            elif channels is None and len(values):
                self._take_slow(name, key, t, len(values))

    def _take_slow(self, name: str, key: _Key | None, t: float | Float64, count: int) -> None:
        if key is None:
            key = self._keys[name] = _Key()
        if isinstance(t, np.ndarray):
            self._take_stamps(name, key, t)
        elif self._reach(name, key, t):
            _add(key, float(t), 0, count)

    def _take_stamps(self, name: str, key: _Key, times: Float64) -> None:
        """Count samples that have a stamp each, span by span."""
        if (times[1:] < times[:-1]).any():
            times = np.sort(times)
        at, n = 0, len(times)
        while at < n:
            taken = self._reach(name, key, float(times[at]))
            rest = times[at:]
            inside = max(1, int(np.searchsorted(rest, key.end if taken else key.t)))
            if taken:
                _add(key, float(rest[inside - 1]), inside - 1, 1)
            at += inside

    def _reach(self, name: str, key: _Key, t: float) -> bool:
        """Make the span that a stamp lies in the current one; False where a later one was counted already."""
        if key.t <= t < key.end:
            return True
        if key.start - self.span_s <= t < key.t:
            key.whole = False  # rule 2
            return False
        silence = t - key.t
        if t < key.start or silence > max(self.span_s, _SILENCE * key.pending * self._period):
            self._begin(key, math.floor(t / self.span_s))
            key.pending, key.previous, key.whole = 0, 0.0, False
            return True
        density = key.pending / silence  # rule 1
        spans = math.floor(t / self.span_s) - key.number
        for _ in range(min(spans, 3)):  # further ones would only repeat the last
            key.count += density * (key.end - max(key.t, key.start))
            self._close(name, key)
        if spans > 3:
            self._begin(key, key.number + spans - 3)
        key.count += density * (t - max(key.t, key.start))
        key.pending = 0
        return True

    def _begin(self, key: _Key, number: int) -> None:
        key.number, key.start, key.end = number, number * self.span_s, (number + 1) * self.span_s
        key.count = 0.0

    def _close(self, name: str, key: _Key) -> None:
        """Judge the current span and begin the next one."""
        before, rate = key.previous, key.count / self.span_s if key.whole else 0.0
        if key.wrong or not (self._low <= rate <= self._high and self._low <= before <= self._high):
            self._judge(name, key, before, rate)
        self._begin(key, key.number + 1)
        key.previous, key.whole = rate, True

    def _judge(self, name: str, key: _Key, before: float, rate: float) -> None:
        """Compare the rates of two spans with what is right (rule 3); 0 of one that says nothing."""
        if not (rate and before) or self._side(before) != (side := self._side(rate)):
            return
        if side and not key.wrong and 1 / AGREE <= rate / before <= AGREE:
            key.wrong = True
            self._change(name, RateChange(key.end, (rate + before) / 2))
        elif not side and key.wrong:
            key.wrong = False
            self._change(name, RateChange(key.end, 0.0))

    def _change(self, name: str, change: RateChange) -> None:
        self.changes.setdefault(name, deque(maxlen=_KEPT)).append(change)

    def _side(self, rate: float) -> int:
        """Return -1 for a rate that is too low, 1 for one that is too high, else 0."""
        return (rate > self._high) - (rate < self._low)


def _add(key: _Key, t: float, counted: int, pending: int) -> None:
    """Count what is over, and keep what lasts until the next stamp."""
    key.count += key.pending + counted
    key.pending = pending
    key.t = t
