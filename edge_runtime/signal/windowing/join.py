"""Readings of some channels to windows of all of them: the rules of `edge_runtime.signal.windowing.window` go on.

A key's channels may come in messages of their own: one topic for each sensor, one message for each value, sensors at
rates of their own. The windows are still pure functions of the *set* of samples, whatever the messages, the order of
channels, and the delays within the bounds below. Where all channels come together, they are `Windower`'s, bit for bit;
training cuts recordings of several sensors with this very code.

6. Each channel has samples of its own, and rule 1 holds for each.
7. Segments belong to the key: one starts, with its grid, at the first sample of any channel (rule 3), and ends where no
   channel has a sample for longer than `max_gap_s` (rule 2).
8. At each grid point a channel's value follows from its own samples by rule 4, with the channel's `resample`. A line
   joins two samples of one segment that are at most `max_age_s` apart; ``previous`` holds a sample for at most
   `max_age_s`. Else the value is *missing*.
9. A missing value leaves a hole where the channel says ``refuse``: no window has it, and a context begins after it.
   With ``last``, the channel's last sample stands in, however old; a hole is left only where there was none yet. A mask
   is 1 where the channel that it speaks for has a value, and 0 where that is missing; a masked channel that had no
   sample yet is 0.
10. A channel is *settled* up to its newest stamp less `lateness_s`, or up to the key's newest stamp less `wait_s` where
    that is later: the key waits no longer for a slow channel. Samples are used once all channels are settled; one that
    comes for a settled time is late, and not used; but where a channel is held for longer than `max_gap_s` (a door), it
    stands from there on, since the next may be hours away. Stamps alone decide, never a clock of this machine.

Clocks: a channel more than `max_jump_s` away from its key's time is set *apart*. The key goes on at another time when
at least half of the channels that were heard lately are there. Otherwise the channel's clock shows another time than
those of the others, and its samples are dropped as ``other_clock``.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable

import numpy as np

from edge_runtime.manifest import InputContract
from edge_runtime.metrics import Metrics
from edge_runtime.signal.windowing.config import WindowConfig
from edge_runtime.signal.windowing.epochs import Numbers
from edge_runtime.signal.windowing.frames import FrameWindower
from edge_runtime.signal.windowing.grid import Segment
from edge_runtime.signal.windowing.joint import Joint
from edge_runtime.signal.windowing.keyed import Keyed
from edge_runtime.signal.windowing.ordering import Block, Stream, stamps
from edge_runtime.signal.windowing.track import Apart, Sensors, Track, TrackGrid
from edge_runtime.signal.windowing.window import Cutter, KeyState, Window, Windower, settled
from edge_runtime.types import Float32, Float64, Reading


class JoinedWindower(Keyed[Joint]):
    """Cuts windows for all keys, from readings that may hold some of the channels.

    Args:
        contract: what a window is.
        config: run-time bounds.
        metrics: receives what `Windower` counts, and drops by reason: windows with a hole (``incomplete``), samples of
            a channel whose clock shows another time (``other_clock``), samples that waited when their key left
            (``evicted``).

    Raises:
        ConfigError: a channel's lines are so long that a key would hold too much.
    """

    def __init__(
        self, contract: InputContract, config: WindowConfig | None = None, metrics: Metrics | None = None
    ) -> None:
        super().__init__(contract, config, metrics)
        self._sensors = Sensors(contract)
        self._names = [channel.name for channel in contract.channels]
        self._all = tuple(range(len(contract.channels)))
        self._n = contract.window
        self._hop = contract.hop
        self._history = contract.history
        self._reach = max(self._config.wait(contract), self._config.lateness_s)
        self._grid = TrackGrid(contract)
        self._cutter = Cutter(contract)

    def push(self, readings: Iterable[Reading], received: float = 0.0) -> list[Window]:
        """Take readings in the order of arrival; return the windows they completed, in order per key."""
        windows: list[Window] = []
        samples = 0
        for reading in readings:
            samples += len(reading.values)
            key = self._keys.touch(reading.key) or self._new_key(reading.key)
            times = stamps(reading, self._period)
            route = key.route(self._all if reading.channels is None else reading.channels, self._order)
            for track, places in route:
                values = reading.values if places is None else reading.values[:, places]
                self._take(key, track, times, values, windows, received)
            key.newest = max(key.newest, *(track.newest for track, _ in route if track.apart is None), -math.inf)
            self._settle(key, windows, received)
        counts = self._metrics.counts
        counts["samples_total"] += samples
        counts["windows_total"] += len(windows)
        return settled(windows, self.epochs, self._keys) if self.epochs.claims else windows

    def flush(self, received: float = 0.0) -> list[Window]:
        """Use what still waits, for late samples or other channels, at the end of a recording or before stopping."""
        windows: list[Window] = []
        for key in self._keys.values():
            for track in key.tracks:
                if track.suspect is not None and self._order.near(track.suspect[0], track.newest):
                    self._order.trust(track)
                elif track.suspect is not None:
                    self._set_apart(key, track, track.suspect)
                    track.suspect = None
                    self._elect(key, track, windows, received, jumped=True)
            self._use(key, math.inf, windows, received)
            for track in key.tracks:
                self._rejoin(track)
            if key.segment is not None:
                self._fill(key, key.segment, math.inf, windows, received, closed=True)
        self._metrics.counts["windows_total"] += len(windows)
        return windows

    # -- over a restart ----------------------------------------------------------------------------------------------

    def state(self) -> list[KeyState]:
        """Return all that `restore` needs to go on as if nothing had happened; views, to be encoded at once."""
        return [key.state(self._grid) for key in self._keys.values()]

    def restore(self, states: Iterable[KeyState]) -> None:
        """Go on where another windower of the same contract was; the keys, the one silent for longest first."""
        self._keys.clear()
        for state in states:
            key = self._keys[state.name] = Joint.restore(state, self._sensors, self._grid, self._hop)
            self._order.waiting += key.waiting()

    # -- keys, and the channels that come together -------------------------------------------------------------------

    def _new_key(self, name: str) -> Joint:
        return self._keys.get_or_make(
            name, lambda: Joint(name, self._sensors.tracks(), Numbers(self.epochs.pop(name), self._hop))
        )

    def _evicted(self, name: str, held: Joint) -> None:
        super()._evicted(name, held)
        self._metrics.dropped["evicted"] += sum(map(self._order.discard, held.streams()))

    # -- samples of one track: rules 6 and 10 ------------------------------------------------------------------------

    def _take(
        self, key: Joint, track: Track, times: Float64, values: Float32, windows: list[Window], received: float
    ) -> None:
        order = self._order
        order.received = received
        times, values = order.sort(times, values)
        if not self._placed(key, track, times, values, windows, received):
            return
        stream: Stream = track
        bound = max(track.newest - self._config.lateness_s, key.newest - self._reach, key.settled)
        if track.apart is not None:
            stream, bound = track.apart, track.apart.newest - self._config.lateness_s
        if times[0] <= bound:
            used = track.values[-1] if len(track.values) else None
            times, values = order.without_history(stream, times, values, used)
        if times[0] <= bound:
            keep = times > bound
            self._late(key, track, (times[~keep], values[~keep]), windows, received)
            times, values = times[keep], values[keep]
            if not len(times):
                return
        order.trust(track)
        order.hold(stream, times, values)
        if track.apart is not None:
            self._elect(key, track, windows, received, jumped=False)

    def _late(self, key: Joint, track: Track, block: Block, windows: list[Window], received: float) -> None:
        """Count samples that are too old; go on at their time once they confirm that the key's clock stepped back."""
        segment, (times, values) = key.segment, block
        known = np.zeros(len(times), np.bool_)
        if segment is not None:
            known = self._grid.known(segment, track.filled, times, values, track.target)
        old = self._order.count_late(track, times, known)
        if track.apart is not None:
            self._drop_late(int(old.sum()))
            return
        track.stand(times[-1:], values[-1:])
        if not old.any() or (confirmed := self._order.behind(track, times[old], values[old])) is None:
            return
        fast = self._order.fast(track, confirmed[0])
        if segment is not None and self._grid.delivered_again(segment, track, *confirmed, fast=fast):
            self._metrics.dropped["duplicate"] += len(confirmed[0])
            return
        apart = Apart(key.newest)
        self._order.hold(apart, *confirmed)
        if key.follows(apart, self._order.jump_s, jumped=True):
            track.apart = apart
            self._elect(key, track, windows, received, jumped=True)
            return
        self._drop_late(self._order.discard(apart) - int(old.sum()))
        track.suspect = times[old], values[old]  # for the others, whose clocks may follow

    def _drop_late(self, lost: int) -> None:
        self._metrics.dropped["late"] += lost

    def _settle(self, key: Joint, windows: list[Window], received: float) -> None:
        """Use what no earlier sample of any channel can precede any more."""
        lateness, bound = self._config.lateness_s, key.newest - self._reach
        settled = min(max(track.newest - lateness, bound) for track in key.tracks)
        if self._order.waiting > self._config.max_waiting:
            settled = key.newest  # memory before patience: the other channels of this key come too late now
        if settled > key.settled:
            self._use(key, settled, windows, received)

    # -- clocks that jump or differ ----------------------------------------------------------------------------------

    def _placed(
        self, key: Joint, track: Track, times: Float64, values: Float32, windows: list[Window], received: float
    ) -> bool:
        """Decide whose time a block is in; False when it has been set aside as suspect."""
        order = self._order
        if key.newest == -math.inf or order.near(times, key.newest) or track.holds(key.newest - float(times[-1])):
            self._rejoin(track)
            return True
        if track.apart is not None and order.near(times, track.apart.newest):
            order.trust(track)
        elif track.apart is None and track.newest == -math.inf:
            self._set_apart(key, track)
        else:
            confirmed = order.doubt(track, times, values)
            if confirmed is None:
                return False
            self._set_apart(key, track, confirmed)
            self._elect(key, track, windows, received, jumped=True)
        return True

    def _set_apart(self, key: Joint, track: Track, block: Block | None = None) -> None:
        """Put a track into a time of its own, with a block from there."""
        self._rejoin(track)
        track.apart = Apart(key.newest)
        if block is not None:
            self._order.hold(track.apart, *block)

    def _rejoin(self, track: Track) -> None:
        """Go on in the key's time: what waits in another one was of a wrong clock."""
        if track.apart is not None:
            self._metrics.dropped["other_clock"] += self._order.discard(track.apart)
            track.apart = None

    def _elect(self, key: Joint, track: Track, windows: list[Window], received: float, *, jumped: bool) -> None:
        """Go on where a track is that was set apart, or drop what waits there for too long."""
        apart = track.apart
        assert apart is not None
        if not key.follows(apart, self._order.jump_s, jumped=jumped):
            names = ", ".join(self._names[column] for column in track.columns)
            away = apart.newest - key.newest
            self._metrics.examples["other_clock"] = f"key {key.name}: {names} is {away:+.0f} s from the other channels"
            lost = self._order.discard(apart, apart.newest - self._order.jump_s)
            self._metrics.dropped["other_clock"] += lost
            return
        self._metrics.counts["clock_jumps_total"] += 1
        self._use(key, math.inf, windows, received)  # as after any silence: nothing earlier can come
        if apart.newest <= key.newest:
            for one in key.tracks:
                one.clear()
            self._went_back(key.name, key.newest - apart.newest)
            key.numbers.note(key.segment)
            key.segment, key.settled = None, -math.inf
        key.move(apart.newest, self._order)

    # -- samples in order: rule 7, and 8 and 9 by the grid -----------------------------------------------------------

    def _use(self, key: Joint, settled: float, windows: list[Window], received: float) -> None:
        """Use all samples up to a stamp before which none can come."""
        key.settled = min(settled, key.newest)
        released = [(track, self._order.release(track, settled)) for track in key.tracks]
        fresh = [(track, block) for track, block in released if block is not None]
        if fresh:
            self._add(key, fresh, windows, received)
        if key.segment is not None:
            self._fill(key, key.segment, settled, windows, received)

    def _add(self, key: Joint, fresh: list[tuple[Track, Block]], windows: list[Window], received: float) -> None:
        """Hand the tracks their samples, and begin a segment after each gap in the stamps of all of them."""
        times = fresh[0][1][0] if len(fresh) == 1 else np.unique(np.concatenate([own for _, (own, _) in fresh]))
        last_t = -math.inf if key.segment is None else key.segment.last_t
        bounds = [*np.flatnonzero(np.diff(times, prepend=last_t) > self._max_gap).tolist(), len(times)]
        if bounds[0]:
            key.add(fresh, times[: bounds[0]])
        for begin, end in itertools.pairwise(bounds):
            self._begin(key, float(times[begin]), windows, received)
            key.add(fresh, times[begin:end])

    def _begin(self, key: Joint, anchor: float, windows: list[Window], received: float) -> None:
        """Begin a segment, after the end of the one before."""
        if key.segment is not None:
            self._metrics.counts["gaps_total"] += 1
            self._fill(key, key.segment, key.settled, windows, received, closed=True)
            key.numbers.note(key.segment)
        key.segment = key.numbers.begin(self._grid.begin(anchor))
        for track in key.tracks:
            track.filled = 0

    def _fill(
        self,
        key: Joint,
        segment: Segment,
        settled: float,
        windows: list[Window],
        received: float,
        *,
        closed: bool = False,
    ) -> None:
        """Compute the values that no sample can change, and cut the windows that they complete."""
        for track in key.tracks:
            self._grid.fill(segment, track, settled, key.lowest(), closed=closed)
        first = len(windows)
        self._cutter.cut(key.name, segment, key.lowest(), windows, received)
        if segment.hole >= 0:
            windows[first:] = [whole for window in windows[first:] if (whole := self._whole(segment, window))]

    # -- rule 9 ------------------------------------------------------------------------------------------------------

    def _whole(self, segment: Segment, window: Window) -> Window | None:
        """Return the window with the context that follows the last hole; None where the window itself has one."""
        n, context = self._n, window.context
        if window.slot - segment.base + n - self._history > segment.hole:
            return window
        holes = np.isnan(context)
        if holes[-n:].any():
            self._metrics.dropped["incomplete"] += 1
            missing = [self._names[column] for column in np.flatnonzero(holes[-n:].any(axis=0))]
            self._metrics.examples["incomplete"] = f"{window.id}: no value of {', '.join(missing)}"
            return None
        rows = np.flatnonzero(holes.any(axis=1))
        return window._replace(context=context[rows[-1] + 1 :]) if len(rows) else window


AnyWindower = Windower | JoinedWindower | FrameWindower


def windower_of(
    contract: InputContract, config: WindowConfig | None = None, metrics: Metrics | None = None, *, parts: bool = False
) -> AnyWindower:
    """Choose the windower.

    `FrameWindower` for pictures; `Windower` where all channels come together, by one rule; else `JoinedWindower`.

    Args:
        contract: what a window is.
        config: run-time bounds.
        metrics: receives what the windower counts.
        parts: readings may hold some of the channels.
    """
    config = config or WindowConfig()
    if contract.frame is not None:
        return FrameWindower(contract, config, metrics)
    return (JoinedWindower if parts or is_joined(contract, config) else Windower)(contract, config, metrics)


def is_joined(contract: InputContract, config: WindowConfig) -> bool:
    """Return whether channels have samples of their own, by what the contract or the sources say."""
    return config.parts or any(channel.joined for channel in contract.channels)
