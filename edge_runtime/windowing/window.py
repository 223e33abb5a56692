"""From readings on a real clock to windows on a regular grid, for each key.

The rules, in full. They are pure functions of the *set* of samples a key sent, so windows do not depend on how samples
were split into messages nor, within the lateness bound, on the order in which they arrived; training cuts its windows
with this very code.

1. Samples are ordered by stamp; of equal stamps the first to arrive counts.
2. A silence longer than `max_gap_s` ends a *segment*; the sample after it starts the next one.
3. A segment's grid starts at its first sample and steps by one period of the model's rate.
4. A grid point takes the first sample that lies at most `snap` periods before or after it. If there is none, its value
   comes from the samples around it: on the line between them (``linear``), or the earlier one (``previous``).
   With ``mean`` it is the mean of the samples within half a period, and the line where there is none.
5. Windows start at grid points whose number, counted from the epoch, divides by `hop`. So a window that is cut again
   after a restart, from the same readings, has the same id.

Keys, order and windows are dealt with here, grid points (rules 3 and 4) in `edge_runtime.windowing.grid`.

Lateness: a sample is *late*, and dropped, once the key has shown a stamp more than `lateness_s` newer. With the default
of 0 nothing is held back and a window is ready with its last sample; otherwise samples wait until nothing earlier can
come, and every window is `lateness_s` later.

Clocks that jump: a reading more than `max_jump_s` away from its key's time waits for a second one that agrees with it.
If one does, the key restarts at that time (a board without a battery clock booted, a device came back); if the old
time goes on, the lone reading is dropped. So one absurd stamp cannot make every later reading late.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from edge_runtime.manifest import InputContract
from edge_runtime.metrics import Metrics
from edge_runtime.types import Float32, Float64, Reading
from edge_runtime.windowing.config import WindowConfig
from edge_runtime.windowing.grid import Grid, Segment, SegmentState
from edge_runtime.windowing.keyed import Keyed
from edge_runtime.windowing.ordering import Block, PartState, Stream, stamps


class Window(NamedTuple):
    """A ready window. `samples` and `context` are views that nothing will write to again."""

    key: str
    slot: int
    """Number of the window's first grid point, counted from the epoch at the model's rate."""
    start: float
    """Stamp of that grid point, seconds."""
    samples: Float32
    """(window, n_channels)."""
    context: Float32
    """(at most context, n_channels), ending with the window; shorter at the start of a segment."""
    received: float
    """Monotonic time at which the reading that completed it arrived."""

    @property
    def id(self) -> str:
        """Names this window of this stream, also after a restart."""
        return f"{self.key}@{self.slot}"


class _Key(Stream):
    """All that is held for one key."""

    __slots__ = ("segment",)

    def __init__(self) -> None:
        super().__init__()
        self.segment: Segment | None = None


class KeyState(NamedTuple):
    """State of a key that a restart continues; see `_Key`."""

    name: str
    newest: float
    pending: Sequence[Block]
    suspect: Block | None
    segment: SegmentState | None
    parts: Sequence[PartState] = ()
    """Of a joined key: what its parts hold; `pending` and `suspect` are empty then."""
    settled: float = -math.inf
    """Of a joined key: all samples up to this stamp are used."""


class Cutter:
    """Cuts windows from the rows of a segment (rule 5).

    Args:
        contract: what a window is.
    """

    def __init__(self, contract: InputContract) -> None:
        self._n = contract.window
        self._hop = contract.hop
        self._period = 1.0 / contract.rate_hz
        self._history = contract.history

    def cut(self, name: str, segment: Segment, filled: int, windows: list[Window], received: float) -> None:
        """Append the windows that `filled` grid points complete."""
        start, n, history = segment.next_window, self._n, self._history
        buffer, first, base, new = segment.buffer, segment.first, segment.base, tuple.__new__
        while filled >= start + n:
            end = start - first + n
            samples = buffer[end - n : end]
            context = samples if history == n else buffer[max(0, end - history) : end]
            stamp = segment.anchor + start * self._period
            # As Window(...) does it, in a third of the time: a message may complete dozens of windows.
            windows.append(new(Window, (name, base + start, stamp, samples, context, received)))
            start += self._hop
        segment.next_window = start


class Windower(Keyed[_Key]):
    """Cuts windows for all keys, from readings that hold all channels.

    Args:
        contract: what a window is.
        config: run-time bounds.
        metrics: receives ``samples_total``, ``windows_total``, ``gaps_total``, ``keys_evicted_total``,
            ``clock_jumps_total``, and drops by reason (``late``, ``duplicate``, ``bad_time``, ``evicted``).
    """

    def __init__(
        self, contract: InputContract, config: WindowConfig | None = None, metrics: Metrics | None = None
    ) -> None:
        super().__init__(contract, config, metrics)
        self._n = contract.window
        self._snap = contract.snap / contract.rate_hz
        self._grid = Grid(contract)
        self._cut = Cutter(contract).cut
        # Rule 4 in one step needs a sample per grid point; a mean waits for the sample after, so it never has that.
        self._fast = self._config.lateness_s == 0 and contract.resample != "mean"

    def push(self, readings: Iterable[Reading], received: float = 0.0) -> list[Window]:
        """Take readings in the order of arrival; return the windows they completed, in order per key."""
        windows: list[Window] = []
        state_of, refresh = self._keys.get, self._keys.move_to_end
        snap, period, fast, n = self._snap, self._period, self._fast, self._n
        samples = 0
        for reading in readings:
            name, t, values, step, columns = reading
            count = len(values)
            samples += count
            state = state_of(name)
            if state is None:
                state = self._new_key(reading)
            else:
                refresh(name)
            segment = state.segment
            # The common case by far: one stamp, the model's own rate, and the samples that the grid expects next. It
            # is written out here, what `Grid` does included: calls and repeated look-ups would be a fifth of its time.
            if (
                fast
                and segment is not None
                and columns is None
                and state.suspect is None
                and type(t) is float
                and (step == 0.0 or step == period)  # noqa: PLR1714 - a tuple would be built each time
            ):
                filled = segment.filled
                if -snap <= t - (segment.anchor + filled * period) <= snap:
                    at = filled - segment.first
                    if at + count > len(segment.buffer):
                        at = self._grid.make_room(segment, count)
                    segment.buffer[at : at + count] = values
                    segment.filled = filled = filled + count
                    segment.last_t = state.newest = t + (count - 1) * period
                    segment.tail = None
                    if filled >= segment.next_window + n:
                        self._cut(name, segment, filled, windows, received)
                    continue
            self._push_slow(state, reading, windows, received)
        counts = self._metrics.counts
        counts["samples_total"] += samples
        counts["windows_total"] += len(windows)
        return windows

    def flush(self, received: float = 0.0) -> list[Window]:
        """Use what still waits for the lateness bound, at the end of a recording or before stopping."""
        windows: list[Window] = []
        for name, state in self._keys.items():
            if state.suspect is not None:
                suspect, state.suspect = state.suspect, None
                self._jump(name, state, suspect, windows, received)
            if (block := self._order.release(state, math.inf)) is not None:
                self._use(name, state, *block, windows, received)
            if state.segment is not None:
                self._end(name, state.segment, windows, received)
        self._metrics.counts["windows_total"] += len(windows)
        return windows

    # -- over a restart ----------------------------------------------------------------------------------------------

    def state(self) -> list[KeyState]:
        """Return all that `restore` needs to go on as if nothing had happened; views, to be encoded at once."""
        return [
            KeyState(
                name,
                key.newest,
                key.pending,
                key.suspect,
                None if key.segment is None else self._grid.state(key.segment),
            )
            for name, key in self._keys.items()
        ]

    def restore(self, states: Iterable[KeyState]) -> None:
        """Go on where another windower of the same contract was; the keys, the one silent for longest first."""
        self._keys.clear()
        for name, newest, pending, suspect, held, *_ in states:
            key = self._keys[name] = _Key()
            key.newest, key.pending, key.suspect = newest, list(pending), suspect
            self._order.waiting += key.waiting()
            if held is not None:
                key.segment = self._grid.restore(held)

    # -- keys --------------------------------------------------------------------------------------------------------

    def _new_key(self, reading: Reading) -> _Key:
        left = self._evict()
        if left is not None and (lost := self._order.discard(left)):
            self._metrics.dropped["evicted"] += lost
        state = self._keys[reading.key] = _Key()
        # Its first reading is on the grid that it begins: no place has to be searched for each of thousands of samples.
        if (
            self._fast
            and reading.channels is None
            and type(reading.t) is float
            and reading.period_s in (0.0, self._period)
        ):
            state.segment = self._grid.begin(reading.t)
        return state

    # -- any stamps, any order ---------------------------------------------------------------------------------------

    def _push_slow(self, state: _Key, reading: Reading, windows: list[Window], received: float) -> None:
        name, order, lateness = reading.key, self._order, self._config.lateness_s
        if reading.channels is not None:
            self._metrics.dropped["wrong_channels"] += len(reading.values)
            return
        times, values = order.sort(stamps(reading, self._period), reading.values)
        if state.newest > -math.inf and not order.near(times, state.newest):
            confirmed = order.doubt(state, times, values)
            if confirmed is None:
                return
            self._jump(name, state, confirmed, windows, received)
        elif state.suspect is not None:
            self._metrics.dropped["bad_time"] += order.trust(state)
        bound = state.newest - lateness
        if times[0] <= bound:
            keep = times > bound
            self._count_late(state, times[~keep], values[~keep])
            times, values = times[keep], values[keep]
            if not len(times):
                return
        if lateness == 0 and not state.pending:
            state.newest = float(times[-1])
            self._use(name, state, times, values, windows, received)
            return
        order.hold(state, times, values)
        if (block := order.release(state, state.newest - lateness)) is not None:
            self._use(name, state, *block, windows, received)

    def _jump(self, name: str, state: _Key, block: Block, windows: list[Window], received: float) -> None:
        """Go on at another time, with a block that waits to be used."""
        self._metrics.counts["clock_jumps_total"] += 1
        if block[0][0] > state.newest:  # as after any silence: nothing earlier can come, and rule 2 ends the segment
            if (rest := self._order.release(state, math.inf)) is not None:
                self._use(name, state, *rest, windows, received)
        else:
            if lost := self._order.discard(state):
                self._metrics.dropped["bad_time"] += lost
            state.segment = None
        state.newest = -math.inf
        self._order.hold(state, *block)

    def _count_late(self, state: _Key, times: Float64, values: Float32) -> None:
        segment = state.segment
        known = 0 if segment is None else self._grid.count_known(segment, segment.filled, times, values)
        self._order.count_late(state, times, known)

    # -- samples in order: rule 2, and 3 and 4 by the grid ------------------------------------------------------------

    def _use(
        self,
        name: str,
        state: _Key,
        times: Float64,
        values: Float32,
        windows: list[Window],
        received: float,
    ) -> None:
        previous = state.segment.last_t if state.segment is not None else -math.inf
        gaps = np.flatnonzero(np.diff(times, prepend=previous) > self._max_gap)
        bounds = [0, *gaps.tolist(), len(times)]
        for begin, end in itertools.pairwise(bounds):
            if begin == end:
                continue
            segment = state.segment
            if segment is None or times[begin] - segment.last_t > self._max_gap:
                if segment is not None:
                    self._metrics.counts["gaps_total"] += 1
                    self._end(name, segment, windows, received)
                segment = state.segment = self._grid.begin(float(times[begin]))
            self._grid.fill(segment, times[begin:end], values[begin:end])
            self._cut(name, segment, segment.filled, windows, received)

    def _end(self, name: str, segment: Segment, windows: list[Window], received: float) -> None:
        """Cut what is left, where grid points were still waiting for a sample."""
        self._grid.end(segment)
        self._cut(name, segment, segment.filled, windows, received)
