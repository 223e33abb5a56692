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

Lateness: a sample is *late*, and dropped, once the key has shown a stamp more than `lateness_s` newer. With the default
of 0 nothing is held back and a window is ready with its last sample; otherwise samples wait until nothing earlier can
come, and every window is `lateness_s` later.

Clocks that jump: a reading more than `max_jump_s` away from its key's time waits for a second one that agrees with it.
If one does, the key starts anew at that time (a board without a battery clock booted, a device came back); if the old
time goes on, the lone reading is dropped. So one absurd stamp cannot make every later reading late.
"""

from __future__ import annotations

import itertools
import math
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from edge_runtime.manifest import InputContract
from edge_runtime.message import Float32, Float64, Reading
from edge_runtime.metrics import Metrics


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowConfig:
    """Run-time bounds; what a window *is* comes from the bundle."""

    lateness_s: float = 0.0
    """How much older than a key's newest stamp a sample may be and still count."""
    max_keys: int = 10_000
    """Keys held at a time; the one that was silent longest leaves first, and is counted."""
    max_jump_s: float = 60.0
    """A step of a key's clock beyond this needs a second reading that agrees."""

    def __post_init__(self) -> None:
        if self.lateness_s < 0:
            raise ValueError("lateness_s must not be negative")
        if self.max_keys < 1:
            raise ValueError("max_keys must be at least 1")
        if self.max_jump_s <= self.lateness_s:
            raise ValueError("max_jump_s must be greater than lateness_s")


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


class _Segment:
    """One key's grid: an append-only buffer that is replaced, never rewound, so that windows can be views of it."""

    __slots__ = ("anchor", "base", "buffer", "filled", "first", "last_t", "next_window", "tail")

    def __init__(self, anchor: float, base: int, next_window: int, buffer: Float32) -> None:
        self.anchor = anchor
        """Stamp of grid point 0."""
        self.base = base
        """Number of grid point 0, counted from the epoch."""
        self.buffer = buffer
        self.first = 0
        """Grid point that ``buffer[0]`` holds."""
        self.filled = 0
        """Grid points determined so far."""
        self.next_window = next_window
        """Grid point at which the next window starts."""
        self.last_t = -math.inf
        """Stamp of the newest sample used."""
        self.tail: tuple[Float64, Float32] | None = None
        """Newest samples that later grid points may need; None where the last grid point is the newest sample."""


class _Key:
    """All that is held for one key."""

    __slots__ = ("newest", "pending", "segment", "suspect")

    def __init__(self) -> None:
        self.segment: _Segment | None = None
        self.newest = -math.inf
        """Newest stamp seen, used or pending."""
        self.pending: list[tuple[Float64, Float32]] = []
        """Samples that wait for the lateness bound, blocks in order of stamp."""
        self.suspect: tuple[Float64, Float32] | None = None
        """A lone reading from another time."""


class SegmentState(NamedTuple):
    """What goes on in a segment after a restart; see `_Segment`."""

    anchor: float
    base: int
    next_window: int
    filled: int
    last_t: float
    tail: tuple[Float64, Float32] | None
    rows: Float32
    """(grid points, n_channels) up to `filled`: what windows and their context still need."""


class KeyState(NamedTuple):
    """What goes on for a key after a restart; see `_Key`."""

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
        self._contract = contract
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
        self._capacity = 2 * self._history
        self._channels = len(contract.channels)
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
            # is written out here, `_append` included: calls and repeated look-ups would be a fifth of its time.
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
                        at = self._renew(segment, count)
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
        """All that `restore` needs to go on as if nothing had happened; views, to be encoded at once."""
        return [
            KeyState(
                name,
                key.newest,
                key.pending,
                key.suspect,
                None if key.segment is None else self._segment_state(key.segment),
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
                buffer = np.empty((max(self._capacity, len(held.rows)), self._channels), np.float32)
                buffer[: len(held.rows)] = held.rows
                key.segment = segment = _Segment(held.anchor, held.base, held.next_window, buffer)
                segment.first, segment.filled = held.filled - len(held.rows), held.filled
                segment.last_t, segment.tail = held.last_t, held.tail

    def _segment_state(self, segment: _Segment) -> SegmentState:
        # The newest point at least: without a tail it is what the next sample is interpolated from.
        first = max(segment.first, min(segment.next_window + self._n - self._history, segment.filled - 1))
        rows = segment.buffer[first - segment.first : segment.filled - segment.first]
        return SegmentState(
            segment.anchor, segment.base, segment.next_window, segment.filled, segment.last_t, segment.tail, rows
        )

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
        """Begin the key anew at another time, with a block that waits to be used."""
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

    # -- samples in order: rules 2 to 4 ------------------------------------------------------------------------------

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
                segment = state.segment = self._new_segment(float(times[begin]))
            self._fill(segment, times[begin:end], values[begin:end])
            self._cut(name, segment, windows, received)

    def _new_segment(self, anchor: float) -> _Segment:
        base = round(anchor * self._rate)
        buffer = np.empty((self._capacity, self._channels), np.float32)
        return _Segment(anchor, base, -base % self._hop, buffer)

    def _fill(self, segment: _Segment, times: Float64, values: Float32) -> None:
        """Determine every grid point that these samples settle."""
        known_t, known_v = self._with_tail(segment, times, values)
        if self._contract.resample == "mean":
            self._fill_mean(segment, known_t, known_v, float(known_t[-1]))
            return
        # A point is settled by the first sample at or after (point - snap).
        points = self._points(segment, float(times[-1]) + self._snap)
        right = np.searchsorted(known_t, points - self._snap, side="left")
        settled = right < len(known_t)
        points, right = points[settled], right[settled]
        snapped = known_t[right] <= points + self._snap
        if snapped.all():
            block = known_v[right]
        elif self._contract.resample == "previous":
            block = known_v[np.where(snapped, right, right - 1)]
        else:
            block = np.where(snapped[:, np.newaxis], known_v[right], _on_line(known_t, known_v, right, points))
        self._append(segment, block)
        segment.last_t = float(times[-1])
        segment.tail = (times[-1:], values[-1:].copy())  # a copy: a view would hold the whole message

    def _with_tail(self, segment: _Segment, times: Float64, values: Float32) -> tuple[Float64, Float32]:
        """The new samples behind those that their grid points may still need."""
        if segment.tail is not None:
            tail_t, tail_v = segment.tail
        elif segment.filled:
            at = segment.filled - segment.first
            tail_t, tail_v = np.array([segment.last_t]), segment.buffer[at - 1 : at]
        else:
            return times, values
        return np.concatenate((tail_t, times)), np.concatenate((tail_v, values))

    def _points(self, segment: _Segment, until: float) -> Float64:
        """Grid points not yet determined, up to a time."""
        count = math.floor((until - segment.anchor) * self._rate) + 1 - segment.filled
        steps = np.arange(segment.filled, segment.filled + max(0, count), dtype=np.float64)
        return segment.anchor + steps * self._period

    def _append(self, segment: _Segment, block: Float32) -> None:
        n = len(block)
        at = segment.filled - segment.first
        if at + n > len(segment.buffer):
            at = self._renew(segment, n)
        segment.buffer[at : at + n] = block
        segment.filled += n

    def _renew(self, segment: _Segment, n: int) -> int:
        """Move the part that windows still need to a fresh buffer; views of the old one stay as they are."""
        held = segment.first
        first = max(held, min(segment.next_window + self._n - self._history, segment.filled))
        kept = segment.filled - first
        buffer = np.empty((max(self._capacity, kept + n), self._channels), np.float32)
        buffer[:kept] = segment.buffer[first - held : segment.filled - held]
        segment.buffer = buffer
        segment.first = first
        return kept

    # -- rule 4 with a mean -------------------------------------------------------------------------------------------

    def _fill_mean(self, segment: _Segment, known_t: Float64, known_v: Float32, until: float) -> None:
        """Mean over half a period to both sides: settled once a sample beyond that is known."""
        half = self._period / 2
        points = self._points(segment, until - half)
        if len(points):
            # One edge between two points, computed one way: a sample on it belongs to exactly one of them.
            numbers = np.arange(segment.filled, segment.filled + len(points) + 1, dtype=np.float64)
            edges = np.searchsorted(known_t, segment.anchor + (numbers - 0.5) * self._period, side="left")
            low, high = edges[:-1], edges[1:]
            block = np.empty((len(points), self._channels), np.float32)
            some = high > low
            # Each sum starts anew at its own samples, so the result does not depend on how they were split.
            sums = np.add.reduceat(known_v[: high[-1]].astype(np.float64), low[some], axis=0)
            block[some] = sums / (high - low)[some, np.newaxis]
            block[~some] = _on_line(known_t, known_v, low[~some], points[~some])
            self._append(segment, block)
        first_open = segment.anchor + (segment.filled - 0.5) * self._period
        keep = max(0, int(np.searchsorted(known_t, first_open, side="left")) - 1)
        segment.last_t = float(known_t[-1])
        segment.tail = (known_t[keep:].copy(), known_v[keep:].copy())

    def _end(self, name: str, segment: _Segment, windows: list[Window], received: float) -> None:
        """Settle what waited for a sample that will not come: only a mean waits."""
        if self._contract.resample == "mean" and segment.tail is not None:
            self._fill_mean(segment, *segment.tail, segment.last_t + self._period)
            self._cut(name, segment, windows, received)

    # -- rule 5 ------------------------------------------------------------------------------------------------------

    def _cut(self, name: str, segment: _Segment, windows: list[Window], received: float) -> None:
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


def _on_line(times: Float64, values: Float32, right: npt.NDArray[np.intp], points: Float64) -> Float32:
    """Values at `points` on the line from the sample before ``right`` to the one at ``right``."""
    left = np.maximum(right - 1, 0)
    span = times[right] - times[left]
    # Clipped for the points that snap to a sample instead, and may lie outside the two: nobody uses those values.
    share = np.clip((points - times[left]) / np.where(span > 0, span, 1.0), 0, 1).astype(np.float32)[:, np.newaxis]
    # Not low + share * (high - low): that difference can overflow where both values are finite.
    between: Float32 = values[left] * (1 - share) + values[right] * share
    return between


def _stamps(reading: Reading, period: float) -> Float64:
    """One stamp per sample."""
    t = reading.t
    if isinstance(t, np.ndarray):
        return t.astype(np.float64, copy=False)
    return t + np.arange(len(reading.values), dtype=np.float64) * (reading.period_s or period)


def cut_recording(contract: InputContract, key: str, t: float | Float64, values: Float32) -> Sequence[Window]:
    """All windows of one recording: what training and evaluation use, so that they see what a device sees."""
    windower = Windower(contract)
    windows = windower.push([Reading(key, t, values)])
    windows.extend(windower.flush())
    return windows
