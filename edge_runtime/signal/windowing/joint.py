"""One key whose channels come in messages of their own: its tracks, and the time that they agree on."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from edge_runtime.signal.windowing.epochs import Numbers
from edge_runtime.signal.windowing.grid import Segment
from edge_runtime.signal.windowing.ordering import Block, Ordering, Stream
from edge_runtime.signal.windowing.track import Apart, Sensors, Track, TrackGrid
from edge_runtime.signal.windowing.window import KeyState
from edge_runtime.types import Float64

_ROUTES = 64
"""Sets of channels that a key remembers; more than a device sends."""

Route = list[tuple[Track, list[int] | None]]
"""Tracks of a reading, each with the places of its columns in the reading; None: all of them, in order."""


class Joint:
    """All that is held for one key.

    Args:
        name: the key's name.
        tracks: the tracks of all channels that sensors send.
        numbers: the numbers of its windows.
    """

    __slots__ = ("_routes", "name", "newest", "numbers", "segment", "settled", "tracks")

    def __init__(self, name: str, tracks: list[Track], numbers: Numbers) -> None:
        self.name = name
        self.numbers = numbers
        self.tracks = tracks
        self._routes: dict[tuple[int, ...], Route] = {}
        self.segment: Segment | None = None
        self.newest = -math.inf
        """The key's time: newest stamp of any channel that is not set apart."""
        self.settled = -math.inf
        """All samples up to here are used."""

    def lowest(self) -> int:
        """Return the first grid point that lacks a channel."""
        return min(track.filled for track in self.tracks)

    def streams(self) -> Iterator[Stream]:
        """Go through all that may hold samples that wait."""
        for track in self.tracks:
            yield track
            if track.apart is not None:
                yield track.apart

    def waiting(self) -> int:
        """Count the samples that wait."""
        return sum(stream.waiting() for stream in self.streams())

    # -- over a restart ----------------------------------------------------------------------------------------------

    def state(self, grid: TrackGrid) -> KeyState:
        """Return what `restore` needs; views, to be encoded at once."""
        segment = None if self.segment is None else grid.state(self.segment, self.lowest())
        parts = [track.state() for track in self.tracks]
        return KeyState(self.name, self.newest, [], None, segment, parts, self.settled, self.numbers.note(self.segment))

    @staticmethod
    def restore(state: KeyState, sensors: Sensors, grid: TrackGrid, hop: int) -> Joint:
        """Restore a key that goes on where another one was."""
        key = Joint(state.name, [sensors.restore(part) for part in state.parts], Numbers(state.given, hop))
        key.newest, key.settled = state.newest, state.settled
        if state.segment is not None:
            key.segment = grid.restore(state.segment)
            key.segment.epoch = state.given.epoch
            key.segment.hole = key.segment.filled  # rows may hold NaN: windows are looked at until these have gone
        return key

    # -- channels that come together ---------------------------------------------------------------------------------

    def route(self, present: tuple[int, ...], order: Ordering) -> Route:
        """Find the tracks of a reading's columns; a track of which it has but some is parted."""
        route = self._routes.get(present)
        if route is None:
            self._part(present, order)
            if len(self._routes) >= _ROUTES:
                self._routes.clear()
            ours = [track for track in self.tracks if track.columns[0] in present]
            route = self._routes[present] = [(track, _places(track.columns, present)) for track in ours]
        return route

    def _part(self, present: Sequence[int], order: Ordering) -> None:
        tracks: list[Track] = []
        for track in self.tracks:
            inside = tuple(column for column in track.columns if column in present)
            outside = tuple(column for column in track.columns if column not in present)
            tracks += [track.part(inside), track.part(outside)] if inside and outside else [track]
        if len(tracks) > len(self.tracks):
            order.waiting -= self.waiting()
            self.tracks = tracks
            self._routes.clear()
            order.waiting += self.waiting()

    # -- clocks that jump or differ ----------------------------------------------------------------------------------

    def follows(self, apart: Apart, jump_s: float, *, jumped: bool) -> bool:
        """Decide whether the key goes on in the time of a track that was set apart.

        1. Most of the channels that were heard lately are or seem to be there; half are enough if this one just jumped.
           A channel that is held for longer than clocks may differ has no say: its last sample may be old.
        2. Or the key's own time has stood still since, for longer than `jump_s` of that one.
        """
        there = here = 0
        for track in self.tracks:
            if track.apart is not None:
                there += len(track.columns) * (abs(track.apart.newest - apart.newest) <= jump_s)
            elif track.suspect is not None and abs(track.suspect[0][-1] - apart.newest) <= jump_s:
                there += len(track.columns)
            elif track.newest >= self.newest - jump_s and not track.holds(jump_s):
                here += len(track.columns)
        if there > here or (jumped and there == here):  # rule 1
            return True
        return self.newest == apart.since and apart.newest - apart.pending[0][0][0] > jump_s  # rule 2

    def move(self, newest: float, order: Ordering) -> None:
        """Go on at another time, with the tracks that are there already."""
        self.newest = -math.inf
        for track in self.tracks:
            apart, suspect = track.apart, track.suspect
            track.newest = -math.inf
            if apart is not None and abs(apart.newest - newest) <= order.jump_s:
                track.pending, track.newest, track.apart = apart.pending, apart.newest, None
            if suspect is not None and abs(suspect[0][-1] - newest) <= order.jump_s:
                order.hold(track, *suspect)
                track.suspect = None
            self.newest = max(self.newest, track.newest)

    # -- samples in order --------------------------------------------------------------------------------------------

    def add(self, fresh: Sequence[tuple[Track, Block]], times: Float64) -> None:
        """Hand the tracks their samples of a stretch of the key's stamps, which has no gap."""
        assert self.segment is not None
        self.segment.last_t = float(times[-1])
        for track, (own, values) in fresh:
            begin, end = own.searchsorted(times[0]), own.searchsorted(times[-1], side="right")
            if begin < end:
                track.add(own[begin:end], values[begin:end])


def _places(columns: tuple[int, ...], present: tuple[int, ...]) -> list[int] | None:
    return None if columns == present else [present.index(column) for column in columns]
