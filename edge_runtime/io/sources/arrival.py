"""Stamps of readings that bring none: the time of arrival, held against the rate of the key.

A loop reads what came together at one moment, and a broker hands over in milliseconds what a sensor sent in minutes. So
the moment of a read says when its last sample was taken, and the rate says the rest. A *stream* is a key, or the
channels of a key that come together; its *period* is the one that its source states, else the model's. Rules, for the
readings of one iteration of the loop:

1. The last reading of a stream is taken as of its arrival. Earlier ones lie before it, each by its samples times the
   period. A single value of a sensor that sends more seldom than the model's rate counts by the interval that was seen.
2. A stream goes on one period behind its newest stamp where that differs from rule 1 by less than the jitter: up to
   half a period behind, and two periods ahead. So no stamp comes twice, and none goes back.
3. A stream that was silent goes on by rule 1. But what was *queued* goes on behind the newest stamp, since a queue has
   the oldest first: what silent streams bring in one read, where it is `QUEUED` samples or more; the first one that
   is late by at most `LATE_S`, as behind a network that stalls; and then all that comes `FASTER` than its rate, or
   brings the stream closer to its arrivals. The streams of a key do the same: what one of them goes over, or goes on
   behind, those do that are silent as well.
4. A stream whose silence was taken to be over may run ahead by that silence, while a queue is read; one that is new or
   restored, by any time. What it is ahead then shrinks by `DRAIN` of the time that passes.
5. A stream that comes faster than its rate for longer than a queue would take is a sensor of another rate: what it is
   ahead shrinks by `FAST_DRAIN`, and its samples are laid evenly up to the bound. Readings that come singly, or a few
   together, are taken for a queue for `_JITTER_S`, `QUEUED` for `_PATIENCE_S`, what is too fast for any sensor for
   twice as long, and those of a stream that was heard at its rate for `_KNOWN_S` for `_QUEUE_S`.
6. The machine's clock: set forward, it is a silence (rule 3). Set back by at most `back_s`, the stream is ahead of it
   (rule 4). Set back further, the stream begins again, as the windows then do (`WindowConfig.max_jump_s`).
7. A channel that is held for longer than `max_gap_s` (a door) has no rate: each of its values is as of its arrival.

After a restart, a stream goes on behind the newest stamp of its windows, where those were kept.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np

from edge_runtime.clock import Clock
from edge_runtime.io.codecs.numbers import Arrival, ArrivalTimes, by_arrival
from edge_runtime.io.sources import Deliver
from edge_runtime.key_table import KeyTable
from edge_runtime.manifest import InputContract
from edge_runtime.types import Done, Reading

QUEUED: Final = 4
FASTER: Final = 4.0
LATE_S: Final = 0.5
DRAIN: Final = 0.02
FAST_DRAIN: Final = 0.5
_JITTER_S: Final = 0.25
"""Largest jitter of rule 2, and largest time between reads of one queue that bring less than `QUEUED` readings."""
_PATIENCE_S: Final = 2.0
_NO_SENSOR: Final = 20.0
"""Factor of its rate by which hardly a sensor sends (rule 5)."""
_KNOWN_S: Final = 10.0
"""Seconds of a stream at its rate, after which what comes faster is taken for a queue for `_QUEUE_S`."""
_QUEUE_S: Final = 60.0
_TICK_S: Final = 1e-3
"""Distance of values of a channel without a rate (rule 7)."""

_PROVISIONAL: Final = frozenset((Arrival, ArrivalTimes))


@dataclass(slots=True)
class _Key:
    """State that the streams of a key share (rule 3)."""

    streams: dict[tuple[int, ...] | None, _Clock] = field(default_factory=dict)
    silence: float = 0.0
    """The silence that one of them went over last, seconds."""
    before: float = -math.inf
    """Newest stamp of all of them before it."""
    behind: float = -math.inf
    """Monotonic time when one of them last went on behind its newest stamp."""
    last_behind: _Clock | None = None
    """The one that did."""


class _Clock:
    """Arrival clock of one stream."""

    __slots__ = ("ahead", "allowed", "behind", "interval", "key", "known", "lead", "live", "newest", "read")

    def __init__(self, key: _Key, newest: float, read: float, allowed: float, interval: float) -> None:
        self.key = key
        self.newest = newest
        """Newest stamp; NaN before the first."""
        self.read = read
        """Monotonic time of the read before."""
        self.live = read
        """Monotonic time of the last read that came no faster than the rate."""
        self.known = 0.0
        """Seconds of it that came no faster than the rate."""
        self.ahead = 0.0
        """Newest stamp less the arrival of its sample."""
        self.allowed = allowed
        """Rule 4."""
        self.behind = 0.0
        """How far the newest stamp is behind by rule 1 while a queue is read, seconds; 0 while none is."""
        self.lead = 0.0
        """By how much it came faster than twice its rate lately, seconds: a pause of a queue ends none."""
        self.interval = interval
        """Shortest time lately between single values, seconds; a silence alone changes it little."""

    def drain(self, total: float, passed: float, now: float, n: int, back_s: float) -> None:
        """Bound by how much the stream may be ahead, unless a queue is read (rules 4 and 5).

        Args:
            total: seconds that the samples of this read take.
            passed: seconds since the read before; infinite after a restart.
            now: monotonic seconds.
            n: readings of this iteration, of all streams.
            back_s: rule 6.
        """
        if passed == math.inf:
            return
        rate = FAST_DRAIN
        self.lead = max(0.0, min(self.lead + total - 2 * passed, _PATIENCE_S))
        if passed > 1.0 or (total <= 1.2 * passed and not self.lead):
            self.live, rate = now, DRAIN
            self.known += total
        elif now - self.live <= (_QUEUE_S if self.known >= _KNOWN_S else _JITTER_S if n < QUEUED else _PATIENCE_S):
            return
        elif self.ahead >= _NO_SENSOR * (now - self.live):
            if now - self.live <= 2 * _PATIENCE_S:
                return
            if self.ahead > back_s:
                self.allowed = 0.0  # rule 6 follows
                return
        self.allowed = max(0.0, min(self.allowed, self.ahead) - rate * passed)


class _Part(NamedTuple):
    """Readings of one stream in an iteration, by their places."""

    clock: _Clock
    places: list[int]
    steps: list[float]
    """Seconds between samples of each."""
    total: float
    """Seconds that all samples take."""
    first: float
    """Stamp of the first sample by rule 1."""
    paced: bool
    """It has a rate (rule 7)."""


class ArrivalStamps:
    """Arrival clocks of all streams, bounded in number; see the rules above.

    Args:
        contract: the model's contract.
        max_keys: keys remembered; the one silent for longest leaves first.
        back_s: rule 6.
    """

    def __init__(self, contract: InputContract, max_keys: int = 10_000, back_s: float = 60.0) -> None:
        self._period = 1.0 / contract.rate_hz
        self._back_s = max(back_s, contract.max_gap)
        rules = [(one.resample or contract.resample, one.max_age_s) for one in contract.channels]
        self._state = {i for i, (rule, age) in enumerate(rules) if rule == "previous" and age > contract.max_gap}
        self._keys: KeyTable[str, _Key] = KeyTable(max_keys)

    def resume(self, newest: Iterable[tuple[str, Mapping[tuple[int, ...] | None, float]]]) -> None:
        """Go on behind the newest stamps of windows that were kept over a restart.

        Args:
            newest: stamps by key and channels; the key that was silent for longest comes first.
        """
        for name, stamps in newest:
            key = self._keys.get_or_make(name, _Key)
            for channels, t in stamps.items():
                if math.isfinite(t):
                    key.streams[channels] = _Clock(key, float(t), -math.inf, math.inf, self._period)

    def stamp(self, readings: Sequence[Reading], now: float) -> list[Reading]:
        """Return the readings of one iteration with stamps.

        Args:
            readings: the readings in order of arrival; those without a stamp of their own have that of their arrival.
            now: monotonic seconds.
        """
        stamped = list(readings)
        streams: dict[tuple[str, tuple[int, ...] | None], list[int]] = {}
        for place, reading in enumerate(readings):
            if by_arrival(reading):
                streams.setdefault((reading.key, reading.channels), []).append(place)
        parts = [self._part(places, readings, now) for places in streams.values()]
        together = sum(map(len, streams.values()))
        silent = [part for part in parts if part.first - part.clock.newest > 2 * part.steps[0]]
        queued = sum(len(readings[place].values) for part in silent for place in part.places) >= QUEUED
        for part in parts:
            begin, scale = self._begin(part, together, queued=queued, now=now)
            for place, step in zip(part.places, part.steps, strict=True):
                stamped[place] = _moved(readings[place], begin, step, scale)
                begin += _length(readings[place], step) * scale
            clock = part.clock
            clock.newest, clock.read = begin - part.steps[-1] * scale, now
            clock.ahead = clock.newest - (part.first + part.total - part.steps[-1])
        return stamped

    def _part(self, places: list[int], readings: Sequence[Reading], now: float) -> _Part:
        channels, key = readings[places[0]].channels, self._keys.get_or_make(readings[places[0]].key, _Key)
        clock = key.streams.get(channels)
        if clock is None:
            clock = key.streams[channels] = _Clock(key, math.nan, now, math.inf, self._period)
        paced = not (channels and self._state.issuperset(channels))
        period = self._period if paced else _TICK_S  # rule 7
        interval = period
        if len(places) > 1 and clock.interval > 1.5 * period:  # rule 1
            interval = clock.interval
        steps = []
        for place in places:
            single = len(readings[place].values) == 1
            steps.append(readings[place].period_s or (interval if single else period))
        if len(places) == 1 and len(readings[places[0]].values) == 1 and now > clock.read > -math.inf:
            clock.interval = min(now - clock.read, 1.2 * clock.interval)
        total = sum(_length(readings[place], step) for place, step in zip(places, steps, strict=True))
        last = readings[places[-1]]
        own = last.t if isinstance(last.t, float) else float(last.t[0])
        return _Part(clock, places, steps, total, own + _length(last, steps[-1]) - total, paced)

    def _begin(self, part: _Part, together: int, *, queued: bool, now: float) -> tuple[float, float]:
        """Return the stamp of a part's first sample, and by what its steps are to be multiplied."""
        clock, step, total, first = part.clock, part.steps[0], part.total, part.first
        if math.isnan(clock.newest):
            return first, 1.0
        passed = now - clock.read
        clock.drain(total, passed, now, together, self._back_s)
        due = clock.newest + step
        ahead, late = due - first, max(min(step / 2, _JITTER_S), 0.005)
        if -ahead > late and clock.newest <= clock.key.before:  # rule 3: the silence that another went over
            over = min(-ahead, clock.key.silence)
            clock.allowed += over
            due, ahead = due + over, ahead + over
        if -ahead > late:  # rule 3
            return (due if self._goes_on(part, -ahead, passed, queued=queued, now=now) else first), 1.0
        clock.behind = 0.0
        over = ahead - min(_JITTER_S, max(2 * step, 0.01)) - clock.allowed
        if over > self._back_s:  # rule 6
            clock.allowed = math.inf
            return first, 1.0
        if over > total:
            clock.allowed += over
        elif over > 0:  # rule 5
            scale = max(1e-3, 1 - over / total)
            return clock.newest + step * scale, scale
        return due, 1.0

    @staticmethod
    def _goes_on(part: _Part, lag: float, passed: float, *, queued: bool, now: float) -> bool:
        """Decide whether a part that is behind its arrival was queued, and goes on behind the newest stamp (rule 3)."""
        clock, step, total, n = part.clock, part.steps[0], part.total, len(part.places)
        fast = passed <= min(_JITTER_S, total / FASTER) or (n >= QUEUED and total > 1.2 * passed) or clock.lead > total
        late = lag <= LATE_S and clock.interval <= 1.5 * step
        follows = clock.key.last_behind not in (None, clock) and now - clock.key.behind <= _PATIENCE_S
        begins = not clock.behind and (late or queued or follows)
        if part.paced and (begins or fast or lag < 0.9 * clock.behind):
            clock.behind = lag
            clock.key.behind, clock.key.last_behind = now, clock
            return True
        clock.behind = 0.0
        clock.allowed += lag
        clock.key.silence = lag
        clock.key.before = max(one.newest for one in clock.key.streams.values())
        return False


class Turn:
    """Readings of one iteration, from all sources in the order of arrival; a stage before what takes them.

    Where all bring stamps, they pass at once. Else they wait for the end of the iteration, so that rule 1 sees all that
    came together.

    Args:
        stamps: arrival clocks of the streams.
        clock: monotonic time.
    """

    def __init__(self, stamps: ArrivalStamps, clock: Clock) -> None:
        self.stamps = stamps
        self._clock = clock
        self._waiting: list[tuple[Deliver, Sequence[Reading], float, Done | None]] = []

    def into(self, deliver: Deliver) -> Deliver:
        """Return what a source is to deliver to."""

        def take(readings: Sequence[Reading], received: float, done: Done | None) -> None:
            if self._waiting or not _PROVISIONAL.isdisjoint({type(one[1]) for one in readings}):  # each costs 40 ns
                self._waiting.append((deliver, readings, received, done))
            else:
                deliver(readings, received, done)

        return take

    def end(self) -> None:
        """Hand over what waits, at the end of an iteration."""
        if not self._waiting:
            return
        waiting, self._waiting = self._waiting, []
        stamped = iter(self.stamps.stamp([one for _, some, _, _ in waiting for one in some], self._clock.monotonic()))
        for deliver, readings, received, done in waiting:
            deliver([next(stamped) for _ in readings], received, done)


def _length(reading: Reading, step: float) -> float:
    """Return how long the samples of a reading take, seconds."""
    if isinstance(reading.t, float):
        return len(reading.values) * step
    return float(reading.t[-1] - reading.t[0]) + step


def _moved(reading: Reading, begin: float, step: float, scale: float) -> Reading:
    """Return a reading that begins at a stamp, its samples as far apart as they were, times `scale`."""
    if not isinstance(reading.t, float):
        return reading._replace(t=begin + (np.asarray(reading.t) - float(reading.t[0])) * scale)
    return reading._replace(t=begin, period_s=reading.period_s if scale == 1.0 else step * scale)
