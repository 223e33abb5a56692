"""Epochs: what makes the id of a window name that window for ever, whatever its key's clock does.

A window's number follows from its stamp, and stamps come again: a device counts from power-on, local time has an hour
twice, a board without a battery clock starts in the past. So a key has an *epoch* besides. The rules:

1. An id is ``key@number`` in epoch 0, as it always was, and ``key@number~epoch`` in a later one. A key may hold both
   signs: the last ``@`` ends it.
2. Within an epoch of a key, numbers only rise. A segment that would begin at a number that was given begins the next
   epoch. So an epoch rises only after a step back of the key's clock, and a start of the runtime changes nothing.
3. Epoch and highest number go with the key: over gaps, over another bundle, over an orderly stop (with the windows),
   and beyond `WindowConfig.max_keys` as long as there is room for as many again. A key that is forgotten then begins
   at `Epochs.floor`, above all that were forgotten.
4. They are kept in a file (`edge_runtime.store.durable.kept_epochs`), as of a moment at which all answers were safe.
   After a crash a message that is delivered again is one whose answer was not safe: its number is above the highest
   kept, and its id is the same. Where the file is lost or damaged, keys begin at a floor drawn at random, since it
   cannot be known which epochs were given.
5. Numbers above those kept may have been given before the crash all the same. The outbox knows the hard ones, each with
   a digest of its samples (`Window.digest`): the same digest is the same window, and has the same id; another one is
   another window, and begins the next epoch. Easy ones of the last minute before a crash are known nowhere: they can be
   taken for the same only if the key's clock stepped back during that very crash.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from edge_runtime.key_table import KeyTable
from edge_runtime.signal.windowing.grid import Segment

NEVER: Final = -(1 << 62)
"""Below every number: none was given."""


def window_id(key: str, number: int, epoch: int) -> str:
    """Return the id of a window (rule 1)."""
    return f"{key}@{number}~{epoch}" if epoch else f"{key}@{number}"


def parse_id(window: str) -> tuple[str, int, int]:
    """Split an id into key, number and epoch (rule 1).

    Raises:
        ValueError: it is not one of a window.
    """
    key, _, rest = window.rpartition("@")
    number, _, epoch = rest.partition("~")
    return key, int(number), int(epoch or 0)


class Given(NamedTuple):
    """Epoch of a key, and the highest number given in it."""

    epoch: int
    number: int


class Numbers:
    """Epoch and highest number of one key.

    Args:
        given: the epoch and number from which it goes on.
        hop: the hop of its windows.
    """

    __slots__ = ("epoch", "highest", "hop")

    def __init__(self, given: Given, hop: int) -> None:
        self.epoch, self.highest = given
        self.hop = hop

    def note(self, segment: Segment | None) -> Given:
        """Take in the numbers of a segment, and return what is given by now."""
        if segment is not None and (number := segment.base + segment.next_window - self.hop) >= segment.base:
            self.highest = max(self.highest, number)
        return Given(self.epoch, self.highest)

    def begin(self, segment: Segment) -> Segment:
        """Return a segment that begins, with its epoch set (rule 2); the one before has been noted."""
        segment.epoch = self.number(segment.base + segment.next_window)
        return segment

    def number(self, first: int) -> int:
        """Return the epoch in which this number is the next one."""
        if first <= self.highest:
            self.epoch, self.highest = self.epoch + 1, NEVER
        return self.epoch


class Claims:
    """Ids of one key that the run before may have given, in the outbox: rule 5."""

    def __init__(self) -> None:
        self.digests: dict[tuple[int, int], int | None] = {}
        """By epoch and number; None where none was written down."""
        self.newest = Given(0, NEVER)

    def add(self, number: int, epoch: int, digest: int | None) -> None:
        """Take one in."""
        self.digests[epoch, number] = digest
        self.newest = max(self.newest, Given(epoch, number))


class Epochs:
    """Epochs of keys that a windower does not hold.

    Args:
        max_keys: keys remembered.
    """

    def __init__(self, max_keys: int) -> None:
        self._kept: KeyTable[str, Given] = KeyTable(max_keys, self._evicted)
        self.claims: dict[str, Claims] = {}
        """By key: looked at until its numbers are beyond."""
        self.floor = 0
        """Epoch of a key of which nothing is known."""

    def pop(self, name: str) -> Given:
        """Return where a key goes on that the windower begins to hold; it is forgotten here."""
        given = self._kept.pop(name, None) or Given(self.floor, NEVER)
        claims = self.claims.get(name)
        if claims is None or claims.newest.epoch <= given.epoch:
            return given
        return Given(claims.newest.epoch, NEVER)

    def keep(self, name: str, given: Given) -> None:
        """Remember a key that the windower holds no longer (rule 3)."""
        self._kept[name] = given

    def _evicted(self, _name: str, given: Given) -> None:
        self.floor = max(self.floor, given.epoch + 1)

    def kept(self) -> Iterator[tuple[str, Given]]:
        """Go through the keys that are remembered here, the one silent for longest first."""
        yield from self._kept.items()

    def lose(self) -> None:
        """Begin all keys at a floor that none was given (rule 4)."""
        self.floor = 1 + secrets.randbelow(2**31)

    def claim(self, ids: Iterable[tuple[str, int | None]]) -> None:
        """Take in ids that the outbox knows, with their digests; those that are not of windows are left out."""
        for name, digest in ids:
            try:
                key, number, epoch = parse_id(name)
            except ValueError:
                continue
            self.claims.setdefault(key, Claims()).add(number, epoch, digest)

    @property
    def digested(self) -> bool:
        """The outbox knows ids with digests: of a run that kept epochs."""
        return any(one is not None for claims in self.claims.values() for one in claims.digests.values())

    def raised(self, key: str, number: int, epoch: int, digest: int) -> int:
        """Return by how much the epoch of a window rises, since its id is another one's (rule 5)."""
        claims = self.claims.get(key)
        if claims is None:
            return 0
        by = 0
        while claims.digests.get((epoch + by, number), digest) not in {None, digest}:
            by += 1
        if Given(epoch + by, number) >= claims.newest:
            del self.claims[key]
        return by

    def restore(self, floor: int, keys: Mapping[str, Given]) -> None:
        """Take in what a run before has kept; of a key that is known already, the later one counts."""
        self.floor = max(self.floor, floor)
        for name, given in keys.items():
            self.keep(name, max(given, self._kept.get(name, given)))
