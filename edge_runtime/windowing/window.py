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
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from edge_runtime.manifest import InputContract
from edge_runtime.metrics import Metrics
from edge_runtime.types import Float32, Float64, Reading
from edge_runtime.windowing.config import WindowConfig
from edge_runtime.windowing.grid import Grid, Segment, SegmentState


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


class _Key:
    """All that is held for one key."""

    __slots__ = ("newest", "pending", "segment", "suspect")

    def __init__(self) -> None:
        self.segment: Segment | None = None
        self.newest = -math.inf
        """Newest stamp seen, used or pending."""
        self.pending: list[tuple[Float64, Float32]] = []
        """Samples that wait for the lateness bound, blocks in order of stamp."""
        self.suspect: tuple[Float64, Float32] | None = None
        """A lone reading from another time."""


class KeyState(NamedTuple):
    """State of a key that a restart continues; see `_Key`."""

    name: str
    newest: float
    pending: Sequence[tuple[Float64, Float32]]
    suspect: tuple[Float64, Float32] | None
    segment: SegmentState | None


class Windower:
    """Cuts windows for all keys.

    Args:
        contract: what a window is.
        config: run-time bounds.
        metrics: receives ``samples_total``, ``windows_total``, ``gaps_total``, ``keys_evicted_total``,
            ``clock_jumps_total``, and drops by reason (``late``, ``duplicate``, ``bad_time``).
    """

    def __init__(
        self, contract: InputContract, config: WindowConfig | None = None, metrics: Metrics | None = None
    ) -> None:
        self._config = config or WindowConfig()
        self._metrics = metrics or Metrics()
        self._keys: OrderedDict[str, _Key] = OrderedDict()
        self._n = contract.window
        self._hop = contract.hop
        self._rate = contract.rate_hz
        self._period = 1.0 / contract.rate_hz
        self._snap = contract.snap / contract.rate_hz
        self._max_gap = contract.max_gap
        self._history = contract.history
        self._grid = Grid(contract)
        # Rule 4 in one step needs a sample per grid point; a mean waits for the sample after, so it never has that.
        self._fast = self._config.lateness_s == 0 and contract.resample != "mean"

    def __len__(self) -> int:
        """Keys held."""
        return len(self._keys)

    def push(self, readings: Iterable[Reading], received: float = 0.0) -> list[Window]:
        """Take readings in the order of arrival; return the windows they completed, in order per key."""
        windows: list[Window] = []
        state_of, refresh = self._keys.get, self._keys.move_to_end
        snap, period, fast, n = self._snap, self._period, self._fast, self._n
        samples = 0
        for reading in readings:
            name, t, values, step = reading
            count = len(values)
            samples += count
            state = state_of(name)
            if state is None:
                state = self._new_key(name)
            else:
                refresh(name)
            segment = state.segment
            # The common case by far: one stamp, the model's own rate, and the samples that the grid expects next. It
            # is written out here, what `Grid` does included: calls and repeated look-ups would be a fifth of its time.
            if (
                fast
                and segment is not None
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
                        self._cut(name, segment, windows, received)
                    continue
            self._push_slow(name, state, _stamps(reading, period), values, windows, received)
        counts = self._metrics.counts
        counts["samples_total"] += samples
        counts["windows_total"] += len(windows)
        return windows

    def flush(self, received: float = 0.0) -> list[Window]:
        """Use what still waits for the lateness bound, at the end of a recording or before stopping."""
        windows: list[Window] = []
        for name, state in self._keys.items():
            if state.suspect is not None:
                self._restart(state, state.suspect)
            self._release(name, state, math.inf, windows, received)
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
        for name, newest, pending, suspect, held in states:
            key = self._keys[name] = _Key()
            key.newest, key.pending, key.suspect = newest, list(pending), suspect
            if held is not None:
                key.segment = self._grid.restore(held)

    # -- keys --------------------------------------------------------------------------------------------------------

    def _new_key(self, name: str) -> _Key:
        if len(self._keys) >= self._config.max_keys:
            self._keys.popitem(last=False)
            self._metrics.counts["keys_evicted_total"] += 1
        state = self._keys[name] = _Key()
        return state

    # -- any stamps, any order ---------------------------------------------------------------------------------------

    def _push_slow(
        self,
        name: str,
        state: _Key,
        times: Float64,
        values: Float32,
        windows: list[Window],
        received: float,
    ) -> None:
        times, values = self._in_order(times, values)
        if state.newest > -math.inf and not self._plausible(state, times, values):
            return
        if self._config.lateness_s == 0 and state.pending:
            self._release(name, state, math.inf, windows, received)  # the suspect that this reading confirmed
        bound = state.newest - self._config.lateness_s
        if times[0] <= bound:
            keep = times > bound
            self._count_late(state, times[~keep], values[~keep])
            times, values = times[keep], values[keep]
            if not len(times):
                return
        if self._config.lateness_s == 0:
            state.newest = float(times[-1])
            self._use(name, state, times, values, windows, received)
            return
        self._hold(state, times, values)
        self._release(name, state, state.newest - self._config.lateness_s, windows, received)

    def _in_order(self, times: Float64, values: Float32) -> tuple[Float64, Float32]:
        steps = np.diff(times)
        if len(steps) and steps.min() <= 0:
            order = np.argsort(times, kind="stable")
            times, values = times[order], values[order]
            distinct = np.concatenate(([True], np.diff(times) > 0))
            if not distinct.all():
                self._metrics.dropped["duplicate"] += int(len(times) - distinct.sum())
                times, values = times[distinct], values[distinct]
        return times, values

    def _plausible(self, state: _Key, times: Float64, values: Float32) -> bool:
        """Decide on clock jumps; False when the reading has been set aside as suspect."""
        jump = self._config.max_jump_s
        first, last = float(times[0]), float(times[-1])
        suspect = state.suspect
        if -jump <= last - state.newest and first - state.newest <= jump:
            if suspect is not None:
                self._metrics.dropped["bad_time"] += len(suspect[0])
                state.suspect = None
            return True
        if suspect is not None and abs(first - float(suspect[0][-1])) <= jump:
            self._restart(state, suspect)
            return True
        if suspect is not None:
            self._metrics.dropped["bad_time"] += len(suspect[0])
        state.suspect = (times, values)
        return False

    def _restart(self, state: _Key, block: tuple[Float64, Float32]) -> None:
        """Restart the key at another time, with a block that waits to be used."""
        self._metrics.counts["clock_jumps_total"] += 1
        if state.pending:
            self._metrics.dropped["bad_time"] += sum(len(times) for times, _ in state.pending)
        state.segment = None
        state.suspect = None
        state.pending = [block]
        state.newest = float(block[0][-1])

    def _count_late(self, state: _Key, times: Float64, values: Float32) -> None:
        """Tell a redelivered sample, which is expected with QoS 1, from one that came too late to be used."""
        segment = state.segment
        duplicates = 0
        if segment is not None:
            slots = np.rint((times - segment.anchor) * self._rate).astype(np.int64) - segment.first
            inside = (slots >= 0) & (slots < segment.filled - segment.first)
            duplicates = int((segment.buffer[slots[inside]] == values[inside]).all(axis=1).sum())
        if duplicates:
            self._metrics.dropped["duplicate"] += duplicates
        if len(times) > duplicates:
            self._metrics.dropped["late"] += len(times) - duplicates

    def _hold(self, state: _Key, times: Float64, values: Float32) -> None:
        """Merge a block into what waits for the lateness bound."""
        if state.pending and times[0] <= state.pending[-1][0][-1]:
            blocks = [*state.pending, (times, values)]
            all_times = np.concatenate([block[0] for block in blocks])
            all_values = np.concatenate([block[1] for block in blocks])
            state.pending = [self._in_order(all_times, all_values)]
        else:
            state.pending.append((times, values))
        state.newest = max(state.newest, float(times[-1]))

    def _release(self, name: str, state: _Key, bound: float, windows: list[Window], received: float) -> None:
        """Use all pending samples up to the bound: nothing earlier than those can come."""
        while state.pending:
            times, values = state.pending[0]
            cut = int(np.searchsorted(times, bound, side="right"))
            if cut == 0:
                return
            self._use(name, state, times[:cut], values[:cut], windows, received)
            if cut < len(times):
                state.pending[0] = (times[cut:], values[cut:])
                return
            state.pending.pop(0)

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
            self._cut(name, segment, windows, received)

    def _end(self, name: str, segment: Segment, windows: list[Window], received: float) -> None:
        """Cut what is left, where grid points were still waiting for a sample."""
        self._grid.end(segment)
        self._cut(name, segment, windows, received)

    # -- rule 5 ------------------------------------------------------------------------------------------------------

    def _cut(self, name: str, segment: Segment, windows: list[Window], received: float) -> None:
        start, n, history = segment.next_window, self._n, self._history
        buffer, first, filled = segment.buffer, segment.first, segment.filled
        while filled >= start + n:
            end = start - first + n
            samples = buffer[end - n : end]
            context = samples if history == n else buffer[max(0, end - history) : end]
            stamp = segment.anchor + start * self._period
            windows.append(Window(name, segment.base + start, stamp, samples, context, received))
            start += self._hop
        segment.next_window = start


def _stamps(reading: Reading, period: float) -> Float64:
    """Return one stamp per sample."""
    t = reading.t
    if isinstance(t, np.ndarray):
        return t.astype(np.float64, copy=False)
    return t + np.arange(len(reading.values), dtype=np.float64) * (reading.period_s or period)


def cut_recording(contract: InputContract, key: str, t: float | Float64, values: Float32) -> Sequence[Window]:
    """Cut all windows of one recording, as training and evaluation do, so that they see what a device sees."""
    windower = Windower(contract)
    windows = windower.push([Reading(key, t, values)])
    windows.extend(windower.flush())
    return windows
