"""Freshness of announcements: floors of sequence number and time, kept in the update state, so over every restart.

A signature does not grow old. So an attacker who kept an announcement could send it again later (replay: an older
version, or a wider canary share that was taken back), or keep newer ones away (freeze). The floors stand against both,
as far as one publisher and one broker allow. The Update Framework specification 1.0.33, sections 5.4 and 5.5, does the
same with the versions and expiry dates of its roles.

A board without a battery clock starts in 1970 and knows no date. Its time is the latest that it has seen: of its own
clock, or of an announcement that verified.
"""

from __future__ import annotations

from dataclasses import replace

from edge_runtime.base.system.iso8601 import parse_time
from edge_runtime.clock import Clock
from edge_runtime.errors import UpdateRefused
from edge_runtime.operate.update.announcement import Announcement, Signed
from edge_runtime.operate.update.state import Floor, UpdateState
from edge_runtime.operate.update.update_store import UpdateStore

MAX_NAMES = 64
"""Names of bundles whose floor is kept."""
_KEPT_FILTERS = 8
_WORTH_A_WRITE_S = 6 * 3600.0
"""The floor follows the clock in steps of this size; each is one write."""


class FloorClock:
    """A clock whose date is never before what was seen already.

    Args:
        clock: the device's own.
        store: the update folder, whose state keeps the floor.
    """

    def __init__(self, clock: Clock, store: UpdateStore) -> None:
        self._clock = clock
        self._store = store
        self.monotonic = clock.monotonic
        self.sleep = clock.sleep

    def wall(self) -> float:
        """Return seconds since 1970: the later one of the clock's date and the floor."""
        return max(self._clock.wall(), self._store.state.seen_s)

    @property
    def ahead(self) -> bool:
        """The clock's date is so far beyond the floor that `note` is worth a write."""
        return self._clock.wall() > self._store.state.seen_s + _WORTH_A_WRITE_S

    def note(self) -> None:
        """Raise the floor to the clock's date, on disk.

        Raises:
            StoreError: it cannot be written.
        """
        wall_s = self._clock.wall()
        self._store.change(lambda now: replace(now, seen_s=max(now.seen_s, wall_s)))


def require_unexpired(announced: Announcement, now_s: float) -> None:
    """Refuse what has expired.

    Raises:
        UpdateRefused: it has.
    """
    if parse_time(announced.expires) <= now_s:
        raise UpdateRefused("announcement_expired", f"the announcement of {announced.model} expired on "
                            f"{announced.expires}; publish a new one")  # fmt: skip


def admitted(state: UpdateState, signed: Signed, wall_s: float) -> UpdateState:
    """Return the state after an announcement that verified; to be written before the announcement is followed.

    1. An announcement that has expired is refused. Times that it was issued at, and that were seen before, count.
    2. One with a lower sequence number than the last one of its name is refused.
    3. The same number with other contents is refused; with the same contents it is the same announcement again.
    4. Otherwise both floors rise. A filter for chunks is noted, so that the next start can unsubscribe from it.

    Args:
        state: before.
        signed: the announcement.
        wall_s: the device's clock.

    Raises:
        UpdateRefused: by one of the rules.
    """
    news = signed.announcement
    seen_s = max(state.seen_s, parse_time(news.issued), wall_s)
    require_unexpired(news, seen_s)  # rule 1
    floor = state.floors.get(news.name, Floor(sequence=0, digest=""))
    if news.sequence < floor.sequence:  # rule 2
        raise UpdateRefused("announcement_replayed", f"the announcement of {news.model} has sequence {news.sequence}, "
                            f"{floor.sequence} was seen already")  # fmt: skip
    if news.sequence == floor.sequence:  # rule 3
        if signed.digest == floor.digest:
            return state
        raise UpdateRefused("announcement_replayed", f"the announcement of {news.model} has sequence {news.sequence}, "
                            "which another one had; give it a higher one")  # fmt: skip
    if news.name not in state.floors and len(state.floors) >= MAX_NAMES:
        raise UpdateRefused("announcement_replayed", f"announcements of {MAX_NAMES} other bundles were seen; give "
                            "each kind of device a topic of its own")  # fmt: skip
    filters = state.filters
    if news.chunks and news.topic_filter not in filters:
        filters = (*filters, news.topic_filter)[-_KEPT_FILTERS:]
    floors = {**state.floors, news.name: Floor(sequence=news.sequence, digest=signed.digest)}
    return replace(state, floors=floors, seen_s=seen_s, filters=filters)  # rule 4


def made_at(state: UpdateState, created: str) -> UpdateState:
    """Raise the latest time seen to that at which a verified bundle was made; empty where it is not known."""
    return replace(state, seen_s=max(state.seen_s, parse_time(created))) if created else state


def forgotten(state: UpdateState) -> UpdateState:
    """Drop the floors after a key was taken out: its owner could have raised them beyond every later announcement."""
    return replace(state, floors={}, seen_s=0.0)
