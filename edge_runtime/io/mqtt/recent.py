"""A memo of bounded size that costs nothing on a hit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Recent(dict[K, V], Generic[K, V]):
    """Remembers what a pure function returned for the keys that were asked for lately.

    Two generations stand in for least recently used: when the young one is full it becomes the old one, and a hit in
    the old one moves the entry back. So a hit is a plain dictionary look-up in C (30 ns, a real LRU takes 10 times
    that), and what was asked for among the last ``size / 2`` distinct keys is always there.

    Args:
        make: the function; called for a key that is not remembered.
        size: how many entries at most.
    """

    def __init__(self, make: Callable[[K], V], size: int) -> None:
        super().__init__()
        self._make = make
        self._half = max(1, size // 2)
        self._old: dict[K, V] = {}

    def __missing__(self, key: K) -> V:
        value = self._old.pop(key) if key in self._old else self._make(key)
        if len(self) >= self._half:
            self._old = dict(self)
            super().clear()
        self[key] = value
        return value

    def clear(self) -> None:
        """Forget everything."""
        super().clear()
        self._old.clear()
