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
5. Windows start at grid points whose number, counted from 1970, divides by `hop`. So a window that is cut again
   after a restart, from the same readings, has the same id.

Keys, order and windows are dealt with here, grid points (rules 3 and 4) in `edge_runtime.signal.windowing.grid`.

Lateness: a sample is *late*, and dropped, once the key has shown a stamp more than `lateness_s` newer. With the default
of 0 nothing is held back and a window is ready with its last sample; otherwise samples wait until nothing earlier can
come, and every window is `lateness_s` later.

Clocks that jump: a reading more than `max_jump_s` away from its key's time waits for a second one that agrees with it,
and so do readings that are too old to be used, unless the grid has them. If they agree, the key restarts at that time
(a board without a battery clock booted, a clock was set back); if the old time goes on, they are dropped. So one absurd
stamp cannot make every later reading late, and a clock that is set costs the windows around that moment alone:
`edge_runtime.signal.windowing.ordering` has the rules, and `edge_runtime.signal.windowing.epochs` those by which ids
stay unique.
"""

from __future__ import annotations

import itertools
import math
import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from edge_runtime.manifest import InputContract
from edge_runtime.metrics import Metrics
from edge_runtime.signal.windowing.config import WindowConfig
from edge_runtime.signal.windowing.epochs import NEVER, Epochs, Given, Numbers, window_id
from edge_runtime.signal.windowing.grid import Grid, Segment, SegmentState
from edge_runtime.signal.windowing.keyed import Keyed, Numbered
from edge_runtime.signal.windowing.ordering import Block, Bools, PartState, Stream, stamps
from edge_runtime.types import Float32, Float64, Reading


class Window(NamedTuple):
    """A ready window. `samples` and `context` are views that nothing will write to again."""

    key: str
    slot: int
    """Number of the window's first grid point, counted from 1970 at the model's rate."""
    start: float
    """Stamp of that grid point, seconds."""
    samples: Float32
    """(window, n_channels)."""
    context: Float32
    """(at most context, n_channels), ending with the window; shorter at the start of a segment."""
    received: float
    """Monotonic time at which the reading that completed it arrived."""

    epoch: int = 0
    """Times that its key's clock stepped back to numbers that were given (`edge_runtime.signal.windowing.epochs`)."""

    @property
    def id(self) -> str:
        """Names this window of this stream, for ever."""
        return window_id(self.key, self.slot, self.epoch)

    @property
    def place(self) -> tuple[str, int]:
        """Its key, and a number that no other window of the key has, in their order; `slot` in epoch 0."""
        return self.key, self.slot + (self.epoch << 64)

    @property
    def digest(self) -> int:
        """Tells whether another window with this id is this one."""
        return zlib.crc32(np.ascontiguousarray(self.samples, "<f4").data)


class _Key(Stream):
    """All that is held for one key.

    Args:
        numbers: the numbers of its windows.
    """

    __slots__ = ("numbers", "segment")

    def __init__(self, numbers: Numbers) -> None:
        super().__init__()
        self.numbers = numbers
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
    given: Given = Given(0, NEVER)
    """Epoch, and the highest number of its windows."""

    def newest_stamps(self) -> dict[tuple[int, ...] | None, float]:
        """Return newest stamps by channels of a stream; None: all of them."""
        return {None: self.newest} | {tuple(part.columns): part.newest for part in self.parts}


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
        buffer, first, base, epoch, new = segment.buffer, segment.first, segment.base, segment.epoch, tuple.__new__
        while filled >= start + n:
            end = start - first + n
            samples = buffer[end - n : end]
            context = samples if history == n else buffer[max(0, end - history) : end]
            stamp = segment.anchor + start * self._period
            # As Window(...) does it, in a third of the time: a message may complete dozens of windows.
            windows.append(new(Window, (name, base + start, stamp, samples, context, received, epoch)))
            start += self._hop
        segment.next_window = start


def settled(windows: list[Window], epochs: Epochs, keys: Mapping[str, Numbered]) -> list[Window]:
    """Return windows with the ids that they have after a crash: rule 5 of `edge_runtime.signal.windowing.epochs`.

    An epoch that rises does so for the later windows of the key, too.

    Args:
        windows: changed here.
        epochs: the epochs, with what the outbox knows.
        keys: the keys that the windower holds.
    """
    by: dict[str, int] = {}
    for at, window in enumerate(windows):
        name, more = window.key, by.get(window.key, 0)
        if name in epochs.claims:
            more += epochs.raised(name, window.slot, window.epoch + more, window.digest)
        if more:
            by[name], windows[at] = more, window._replace(epoch=window.epoch + more)
    for name, more in by.items():
        if (key := keys.get(name)) is None:  # evicted meanwhile
            epoch, number = epochs.pop(name)
            epochs.keep(name, Given(epoch + more, number))
            continue
        key.numbers.epoch += more
        if key.segment is not None:
            key.segment.epoch = key.numbers.epoch
    return windows


class Windower(Keyed[_Key]):
    """Cuts windows for all keys, from readings that hold all channels.

    Args:
        contract: what a window is.
        config: run-time bounds.
        metrics: receives ``samples_total``, ``windows_total``, ``gaps_total``, ``keys_evicted_total``,
            ``clock_jumps_total``, and drops by reason (``late``, ``duplicate``, ``stamp_jump``, ``evicted``).
    """

    def __init__(
        self, contract: InputContract, config: WindowConfig | None = None, metrics: Metrics | None = None
    ) -> None:
        super().__init__(contract, config, metrics)
        self._n = contract.window
        self._hop = contract.hop
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
                if -snap <= t - (segment.anchor + filled * period) <= snap:  # rule 4
                    at = filled - segment.first
                    if at + count > len(segment.buffer):
                        at = self._grid.make_room(segment, count)
                    segment.buffer[at : at + count] = values
                    segment.filled = filled = filled + count  # rule 3
                    segment.last_t = state.newest = t + (count - 1) * period
                    segment.tail = None
                    if filled >= segment.next_window + n:  # rule 5
                        self._cut(name, segment, filled, windows, received)
                    continue
            self._push_slow(state, reading, windows, received)
        counts = self._metrics.counts
        counts["samples_total"] += samples
        counts["windows_total"] += len(windows)
        return settled(windows, self.epochs, self._keys) if self.epochs.claims else windows

    def flush(self, received: float = 0.0) -> list[Window]:
        """Use what still waits for the lateness bound, at the end of a recording or before stopping."""
        windows: list[Window] = []
        for name, state in self._keys.items():
            if (suspect := state.suspect) is not None and self._order.near(suspect[0], state.newest):
                self._order.trust(state)
            elif suspect is not None:
                state.suspect = None
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
                given=key.numbers.note(key.segment),
            )
            for name, key in self._keys.items()
        ]

    def restore(self, states: Iterable[KeyState]) -> None:
        """Go on where another windower of the same contract was; the keys, the one silent for longest first."""
        self._keys.clear()
        for name, newest, pending, suspect, held, _, _, given in states:
            key = self._keys[name] = _Key(Numbers(given, self._hop))
            key.newest, key.pending, key.suspect = newest, list(pending), suspect
            self._order.waiting += key.waiting()
            if held is not None:
                key.segment = self._grid.restore(held)
                key.segment.epoch = given.epoch

    # -- keys --------------------------------------------------------------------------------------------------------

    def _new_key(self, reading: Reading) -> _Key:
        name = reading.key
        state = self._keys.get_or_make(name, lambda: _Key(Numbers(self.epochs.pop(name), self._hop)))
        # Its first reading is on the grid that it begins: no place has to be searched for each of thousands of samples.
        if (
            self._fast
            and reading.channels is None
            and type(reading.t) is float
            and reading.period_s in (0.0, self._period)
        ):
            state.segment = state.numbers.begin(self._grid.begin(reading.t))
        return state

    def _evicted(self, name: str, held: _Key) -> None:
        super()._evicted(name, held)
        self._metrics.dropped["evicted"] += self._order.discard(held)

    # -- any stamps, any order ---------------------------------------------------------------------------------------

    def _push_slow(self, state: _Key, reading: Reading, windows: list[Window], received: float) -> None:
        name, order, lateness = reading.key, self._order, self._config.lateness_s
        if reading.channels is not None:
            self._metrics.dropped["wrong_channels"] += len(reading.values)
            return
        times, values = order.sort(stamps(reading, self._period), reading.values)
        order.received = received
        confirmed = None
        if state.newest > -math.inf:
            confirmed, times, values = self._placed(state, times, values)
        if confirmed is not None:
            self._jump(name, state, confirmed, windows, received)
            if not (keep := times > state.newest - lateness).all():
                self._metrics.dropped["late"] += int(len(times) - keep.sum())
                times, values = times[keep], values[keep]
        elif not len(times):
            return
        if lateness == 0 and not state.pending:
            state.newest = float(times[-1])
            self._use(name, state, times, values, windows, received)
            return
        if len(times):
            order.hold(state, times, values)
        if (block := order.release(state, state.newest - lateness)) is not None:
            self._use(name, state, *block, windows, received)

    def _placed(self, state: _Key, times: Float64, values: Float32) -> tuple[Block | None, Float64, Float32]:
        """Return samples of another time, once they are confirmed, and those of this block that are used after them."""
        order, nothing = self._order, (None, times[:0], values[:0])
        if not order.near(times, state.newest):
            confirmed = order.doubt(state, times, values)
            if confirmed is not None and self._delivered_again(state, *confirmed):
                state.suspect, confirmed = (times, values), None
            return nothing if confirmed is None else (confirmed, times, values)
        bound = state.newest - self._config.lateness_s
        if times[0] <= bound:
            times, values = order.without_history(state, times, values, _newest(state.segment))
        late = times <= bound
        if late[0]:
            confirmed = self._behind(state, times[late], values[late])
            times, values = times[~late], values[~late]
            if confirmed is not None or not len(times):
                return confirmed, times, values
        order.trust(state)
        return None, times, values

    def _behind(self, state: _Key, times: Float64, values: Float32) -> Block | None:
        """Count samples that are too old, or set them aside; return them once they confirm a step back of the clock."""
        old = self._count_late(state, times, values)
        if not old.any():
            return None
        confirmed = self._order.behind(state, times[old], values[old])
        return None if confirmed is None or self._delivered_again(state, *confirmed) else confirmed

    def _delivered_again(self, state: _Key, times: Float64, values: Float32) -> bool:
        """Tell whether samples are those that the grid has, or had, and count them: rule 4 of `ordering`."""
        segment = state.segment
        if segment is None or times[-1] > state.newest:
            return False
        grid, fast, count = self._grid, self._order.fast(state, times), len(times)
        times, values = grid.reached(segment, segment.filled, times, values)
        if len(times) < 2:
            return False
        # On the same grid, from the second sample on: what stands before the first may have gone into its values.
        again = grid.begin(segment.anchor)
        again.filled = again.first = math.floor((times[0] - segment.anchor) * grid.rate) + 2
        again.tail = times[:1], values[:1]
        grid.fill(again, times[1:], values[1:])
        rows = again.buffer[: again.filled - again.first]
        same = len(rows) > 0 and grid.same_rows(segment, segment.filled, again.first, rows, fast=fast)
        if fast and not same:  # some are missing, and lines over the holes tell nothing: the samples as they are
            slots = np.rint((times - segment.anchor) * grid.rate).astype(np.int64)
            rows = np.full((slots[-1] - slots[0] + 1, values.shape[1]), np.nan, np.float32)
            rows[slots - slots[0]] = values
            same = grid.same_rows(segment, segment.filled, int(slots[0]), rows, fast=True)
        if same:
            self._metrics.dropped["duplicate"] += count
        return same

    def _jump(self, name: str, state: _Key, block: Block, windows: list[Window], received: float) -> None:
        """Go on at another time, with a block that waits to be used."""
        self._metrics.counts["clock_jumps_total"] += 1
        if (rest := self._order.release(state, math.inf)) is not None:  # as after any silence: nothing earlier can come
            self._use(name, state, *rest, windows, received)
        if block[0][0] <= state.newest:  # else rule 2 ends the segment
            self._went_back(name, state.newest - float(block[0][0]))
            state.numbers.note(state.segment)
            state.segment = None
        state.newest = -math.inf
        self._order.hold(state, *block)

    def _count_late(self, state: _Key, times: Float64, values: Float32) -> Bools:
        segment = state.segment
        if segment is None:
            known = np.zeros(len(times), np.bool_)
        else:
            known = self._grid.known(segment, segment.filled, times, values)
        return self._order.count_late(state, times, known)

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
                state.numbers.note(segment)
                segment = state.segment = state.numbers.begin(self._grid.begin(float(times[begin])))
            self._grid.fill(segment, times[begin:end], values[begin:end])
            self._cut(name, segment, segment.filled, windows, received)

    def _end(self, name: str, segment: Segment, windows: list[Window], received: float) -> None:
        """Cut what is left, where grid points were still waiting for a sample."""
        self._grid.end(segment)
        self._cut(name, segment, segment.filled, windows, received)


def _newest(segment: Segment | None) -> Float32 | None:
    """Return the value of the newest sample that a segment has used; None where there is no segment."""
    if segment is None:
        return None
    newest: Float32 = (
        segment.buffer[segment.filled - 1 - segment.first] if segment.tail is None else segment.tail[1][-1]
    )
    return newest
