"""Bounded table: a state of each key, the one used last at the end; a key too many evicts the one used longest ago."""

from __future__ import annotations

import sys
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from typing import TypeVar

K = TypeVar("K")
T = TypeVar("T")


class KeyTable(OrderedDict[K, T]):
    """See the module. Assigning a state makes its key the last one; `get`, ``in`` and iterating leave the order.

    A loop over messages looks up by `get` and `move_to_end`, which are as fast as those of any `OrderedDict`.

    Args:
        limit: most keys, at least 1; none where its owner bounds something else, and evicts.
        evicted: callback with a key and its state that left to make room; not for what is taken out or replaced.
    """

    def __init__(self, limit: int = sys.maxsize, evicted: Callable[[K, T], object] | None = None) -> None:
        super().__init__()
        self.limit = limit
        self._evicted = evicted

    def __setitem__(self, key: K, state: T) -> None:
        if key in self:
            self.move_to_end(key)
        else:
            self.make_room()
        super().__setitem__(key, state)

    def touch(self, key: K) -> T | None:
        """Return the state of a key, which becomes the last one; None where it has none."""
        state = self.get(key)
        if state is not None:
            self.move_to_end(key)
        return state

    def get_or_make(self, key: K, make: Callable[[], T]) -> T:
        """Return the state of a key, which becomes the last one; a new state is made once there is room for it."""
        state = self.touch(key)
        if state is None:
            self.make_room()
            self[key] = state = make()
        return state

    def make_room(self) -> None:
        """Evict until one more key is within the limit."""
        while len(self) >= self.limit:
            self.evict()

    def evict(self) -> T:
        """Take out the key used longest ago; return its state."""
        key, state = self.popitem(last=False)
        if self._evicted is not None:
            self._evicted(key, state)
        return state

    def replace(self, states: Iterable[tuple[K, T]]) -> None:
        """Hold these instead, of more than the limit the last ones; none of them is called evicted."""
        self.clear()
        self.update(deque(states, self.limit))
