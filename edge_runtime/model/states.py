"""States of keys: what a chain has left for the next step of each key.

One table for each state, a row for each key. A call gathers the rows of its keys, and they are written back only after
it has succeeded: an engine that raises, hangs or dies in its process changes nothing.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from edge_runtime.engines.base import Array, TensorSpec
from edge_runtime.metrics import Metrics
from edge_runtime.windowing.window import Window

_FIRST = 16


class StateStore:
    """States of all keys, for one chain.

    Args:
        specs: inputs of the chain behind its window, ``step`` first.
        hop: grid points from one window to the next.
        max_keys: keys beyond which the one that was silent for longest is forgotten.
        metrics: receives ``state_resets_total`` (a step is missing) and ``states_evicted_total``.
    """

    def __init__(self, specs: Sequence[TensorSpec], hop: int, max_keys: int, metrics: Metrics | None = None) -> None:
        self._hop = hop
        self._max_keys = max_keys
        self._metrics = metrics or Metrics()
        self._rows: OrderedDict[str, int] = OrderedDict()
        self._next = np.zeros(_FIRST, np.int64)  # slot of the window that goes on
        self._tables: list[Array] = [np.zeros((_FIRST, *spec.shape[1:]), spec.dtype) for spec in specs]
        self._taken: list[Array] = [table[:0] for table in self._tables]  # memory of what `gather` returns

    def __len__(self) -> int:
        """Count the keys that have states."""
        return len(self._rows)

    @property
    def bytes_per_key(self) -> int:
        """Bytes that a key takes."""
        return sum(table[0].nbytes for table in self._tables)

    def rounds(self, windows: Sequence[Window]) -> Iterator[list[int]]:
        """Split windows into rounds, each of which holds a key once, a key's windows in their order.

        Returns:
            Positions in `windows`.
        """
        rounds: list[list[int]] = []
        turns: dict[str, int] = {}
        for position, window in enumerate(windows):
            turn = turns[window.key] = turns.get(window.key, -1) + 1
            if turn == len(rounds):
                rounds.append([])
            rounds[turn].append(position)
        yield from rounds

    def gather(self, windows: Sequence[Window]) -> tuple[npt.NDArray[np.intp], list[Array]]:
        """Return rows and states of the keys of these windows; one whose last step was not the one before is reset.

        Args:
            windows: of different keys.

        Returns:
            The states are valid until the next call.
        """
        rows = np.array([self._row(window.key) for window in windows], np.intp)
        slots = np.array([window.slot for window in windows], np.int64)
        if len(rows) > len(self._taken[0]):
            self._taken = [np.empty((len(rows), *table.shape[1:]), table.dtype) for table in self._tables]
        # Without "clip", which changes nothing here, numpy copies twice.
        states = [
            np.take(table, rows, 0, taken[: len(rows)], "clip")
            for table, taken in zip(self._tables, self._taken, strict=True)
        ]
        broken = (slots != self._next[rows]) & (states[0] != 0)
        if broken.any():
            self._metrics.counts["state_resets_total"] += int(broken.sum())
            states[0][broken] = 0
        return rows, states

    def scatter(self, rows: npt.NDArray[np.intp], windows: Sequence[Window], states: Sequence[Array]) -> None:
        """Write the new states of keys, as `gather` returned their rows."""
        self._next[rows] = [window.slot + self._hop for window in windows]
        for table, new in zip(self._tables, states, strict=True):
            table[rows] = new

    def reset(self, key: str) -> bool:
        """Forget what a key's steps have left; returns whether it had states."""
        row = self._rows.get(key)
        if row is None:
            return False
        self._tables[0][row] = 0
        return True

    def _row(self, key: str) -> int:
        row = self._rows.get(key)
        if row is not None:
            self._rows.move_to_end(key)
            return row
        if len(self._rows) >= self._max_keys:
            _, row = self._rows.popitem(last=False)
            self._metrics.counts["states_evicted_total"] += 1
        else:
            row = len(self._rows)
            if row >= len(self._next):
                self._grow()
        self._tables[0][row] = 0
        self._rows[key] = row
        return row

    def _grow(self) -> None:
        self._next = np.concatenate((self._next, np.zeros_like(self._next)))
        self._tables = [np.concatenate((table, np.zeros_like(table))) for table in self._tables]
