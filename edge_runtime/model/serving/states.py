"""States of keys: what a chain has left for the next step of each key.

One table for each state, a row for each key. A call gathers the rows of its keys, and they are written back only after
it has succeeded: an engine that raises, hangs or dies in its process changes nothing. So backends of one bundle share a
store, and one that takes over goes on where the one before ended.

Rules of a reset, each counted in ``state_resets_total`` under its reason:

1. ``gap``: the window is not the one that follows the key's last one. A silence, a clock that jumped.
2. ``lost``: the window before it was there, but the engine refused it or failed on it.
3. ``evicted``: more keys than `max_keys`; the one that was silent for longest is forgotten.
4. ``replaced``: a model whose states are other ones took over, or took over what was saved.
5. ``asked``: an operator asked for it.
6. ``restart``: the run before has saved no states, since it was killed or durability does not keep them. Counted once.
"""

from __future__ import annotations

import math
import os
import struct
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import orjson

from edge_runtime.errors import ConfigError
from edge_runtime.key_table import KeyTable
from edge_runtime.metrics import Metrics
from edge_runtime.model.engines.base import Array, TensorSpec
from edge_runtime.model.serving.model_states import Resets
from edge_runtime.signal.windowing.window import Window

MAX_KEYS = 10_000
"""Keys whose states are kept, where nothing else is said."""
_FIRST = 16


class Gathered(NamedTuple):
    """States of keys before a call, and where they are kept."""

    rows: npt.NDArray[np.intp] | slice
    states: list[Array]
    """(keys, ...) each, ``step`` first; copies, or valid until the next call."""
    slots: list[int | None]
    """Slots of the windows that go on; None for a key that begins."""


class _Before(NamedTuple):
    """States before a window."""

    gathered: Gathered
    position: int


_BEGINS: Final = _Before(Gathered(slice(0, 0), [], [None]), 0)
_SIZE: Final = struct.Struct("<I")
_UNSAVED: Final = Resets(
    "restart", 1, "the run before was killed, and durability is not 'reading', which keeps them over a crash"
)


class StateStore:
    """States of all keys, for one chain.

    Args:
        specs: inputs of the chain behind its window, ``step`` first.
        hop: grid points from one window to the next.
        max_keys: keys beyond which the one that was silent for longest is forgotten.
        metrics: receives ``state_resets_total`` by reason.
        model: identity of the states' model; saved states of another one are of no use.
    """

    def __init__(
        self,
        specs: Sequence[TensorSpec],
        hop: int,
        max_keys: int = MAX_KEYS,
        metrics: Metrics | None = None,
        model: str = "",
    ) -> None:
        self._model = model
        self._held: dict[tuple[str, int], _Before | None] = {}
        self._asked: dict[str, int] = {}  # by key, first window after a reset that windows which are held come before
        self._hop = hop
        self._max_keys = max_keys
        self._metrics = metrics or Metrics()
        self._specs = tuple(specs)
        self._lost: set[str] = set()
        self._clear()

    def _clear(self) -> None:
        self._rows: KeyTable[str, int] = KeyTable(self._max_keys, self._evicted)
        self._free: list[int] = []
        self._next: list[int | None] = []
        """By row, slot of the window that goes on; None for a key that begins."""
        self._tables: list[Array] = [np.zeros((_FIRST, *spec.shape[1:]), spec.dtype) for spec in self._specs]
        self._taken: list[Array] = [table[:0] for table in self._tables]
        """Memory of what `gather` returns: a large array of its own each time costs a page fault every 4 kB."""
        for held in self._held:
            self._held[held] = _BEGINS

    def __len__(self) -> int:
        """Count the keys that have states."""
        return len(self._rows)

    def keys(self) -> AbstractSet[str]:
        """Return the keys that have states."""
        return self._rows.keys()

    @property
    def full(self) -> bool:
        """A further key would take the place of another one."""
        return len(self._rows) >= self._max_keys

    @property
    def bytes_per_key(self) -> int:
        """Bytes that a key takes."""
        return bytes_per_key(self._specs)

    def bound(self, max_keys: int, metrics: Metrics, max_bytes: int | None = None) -> None:
        """Begin again, with bounds of an application.

        Args:
            max_keys: see above.
            metrics: see above.
            max_bytes: bytes that states of `max_keys` keys may take; 0: a quarter of this machine's memory, None: any.

        Raises:
            ConfigError: they would take more.
        """
        if max_bytes is not None:
            total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
            bound = max_bytes or total // 4
            if max_keys * self.bytes_per_key > bound:
                raise ConfigError(
                    f"the states of max_keys = {max_keys} keys take {max_keys * self.bytes_per_key / 2**20:.0f} MB "
                    f"({self.bytes_per_key} bytes a key), and {bound / 2**20:.0f} MB are allowed: lower max_keys under "
                    f"[window] to {max(1, bound // self.bytes_per_key)}, or raise max_state_mb under [model]"
                )
        self._max_keys = max_keys
        self._metrics = metrics
        self._clear()

    def use(self, specs: Sequence[TensorSpec]) -> None:
        """Keep states for an engine with these from now on; all keys begin again if they are other ones (rule 4)."""
        specs = tuple(specs)
        if specs != self._specs:
            self._specs = specs
            self._count("replaced", len(self._rows))
            self._clear()

    def succeed(self, before: StateStore | None) -> None:
        """Take over from the states of another model; keys that are not known here begin again (rule 4)."""
        if before is not None and before is not self:
            self._count("replaced", len(before.keys() - self._rows.keys()))

    def gather(self, windows: Sequence[Window], *, keep: bool = True) -> Gathered:
        """Return the states of the keys of these windows; a key whose window does not follow its last one is reset.

        Args:
            windows: windows of different keys.
            keep: return copies, as for windows that are held; else the states are valid until the next call.
        """
        # A key must not take the row of another one of the call.
        self._max_keys = self._rows.limit = max(self._max_keys, len(windows))
        rows = [self._row(window.key) for window in windows]
        following = self._next
        step = self._tables[0]
        slots = []
        for row, window in zip(rows, windows, strict=True):
            expected = following[row]
            asked = window.key in self._asked and self._asked[window.key] == expected
            if asked or expected != window.slot:
                step[row] = 0
                if expected is not None:
                    following[row] = expected = None
                    self._count_break(window.key, asked=asked)
            slots.append(expected)
        if len(rows) == 1:
            lone = slice(rows[0], rows[0] + 1)
            return Gathered(lone, [table[lone].copy() for table in self._tables], slots)
        index = np.array(rows, np.intp)
        # What is held for a snapshot must outlive the next call.
        return Gathered(index, self._take(index, keep=keep or bool(self._held)), slots)

    def _take(self, index: npt.NDArray[np.intp], *, keep: bool) -> list[Array]:
        if keep:
            return [table.take(index, axis=0) for table in self._tables]
        n = len(index)
        if n > len(self._taken[0]):
            self._taken = [np.empty((n, *table.shape[1:]), table.dtype) for table in self._tables]
        # Without "clip", which changes nothing here, numpy copies twice.
        return [np.take(t, index, 0, a[:n], "clip") for t, a in zip(self._tables, self._taken, strict=True)]

    def scatter(self, before: Gathered, windows: Sequence[Window], states: Sequence[Array]) -> None:
        """Write the new states of the keys that `gather` returned."""
        hop = self._hop
        if self._held:
            for position, window in enumerate(windows):
                if window.place in self._held:
                    self._held[window.place] = _Before(before, position)
        self._write(before.rows, [window.slot + hop for window in windows], states)

    def undo(self, before: Gathered) -> None:
        """Take `scatter` back."""
        self._write(before.rows, before.slots, before.states)

    def _write(self, rows: npt.NDArray[np.intp] | slice, slots: Sequence[int | None], states: Sequence[Array]) -> None:
        following = self._next
        for row, slot in zip([rows.start] if isinstance(rows, slice) else rows.tolist(), slots, strict=True):
            following[row] = slot
        for table, new in zip(self._tables, states, strict=True):
            table[rows] = new

    def lose(self, windows: Sequence[Window]) -> None:
        """Note windows that have come and will not be computed, for the reason of the reset (rule 2)."""
        self._lost.update(window.key for window in windows if window.key in self._rows)

    def reset(self, key: str) -> bool:
        """Forget what a key's steps have left; returns whether it had states."""
        row = self._rows.get(key)
        if row is None or self._next[row] is None:
            return False
        if any(held == key for held, _ in self._held):
            self._asked[key] = self._next[row] or 0
        self._next[row] = None
        self._count("asked", 1)
        return True

    def hold(self, windows: Sequence[Window], *, begins: bool = False) -> None:
        """See `edge_runtime.model.serving.model_states.ModelStates`; what `gather` has copied is kept."""
        for window in windows:
            self._held[window.place] = _BEGINS if begins else None

    def release(self, windows: Sequence[Window]) -> None:
        """See `edge_runtime.model.serving.model_states.ModelStates`."""
        for window in windows:
            self._held.pop(window.place, None)

    def save(self, *, whole: bool) -> bytes:
        """See `edge_runtime.model.serving.model_states.ModelStates`.

        Layout: length of the head as uint32, the head as JSON, then each state of all keys.
        """
        kept = self._kept(whole=whole)
        keys = [(key, slot) for key, slot, _ in kept]
        rows = np.array([row if isinstance(row, int) else 0 for _, _, row in kept], np.intp)
        earlier = [(place, row) for place, (_, _, row) in enumerate(kept) if isinstance(row, _Before)]
        held = {key for key, _ in self._held}
        self._asked = {key: slot for key, slot in self._asked.items() if key in held}
        model = {"model": self._model, "states": _described(self._specs)}
        head = orjson.dumps({**model, "whole": whole, "keys": keys, "asked": self._asked})
        blobs = [_SIZE.pack(len(head)), head]
        for k, table in enumerate(self._tables):
            values = table[rows]
            for place, before in earlier:
                values[place] = before.gathered.states[k][before.position]
            blobs.append(values.tobytes())
        return b"".join(blobs)

    def _kept(self, *, whole: bool) -> list[tuple[str, int, int | _Before]]:
        """Return what is to be saved: keys, the slots of the windows that go on, and where their states are."""
        first: dict[str, _Before] = {}  # of the windows that are held, in their order
        for (key, _), before in self._held.items():
            if before is not None:
                first.setdefault(key, before)
        wanted = self._rows.keys() if whole else {key for key, _ in self._held} & self._rows.keys()
        kept: list[tuple[str, int, int | _Before]] = []
        for key in (*(first.keys() - self._rows.keys()), *wanted):
            place = first.get(key) or self._rows[key]
            slot = self._next[place] if isinstance(place, int) else place.gathered.slots[place.position]
            if slot is not None:
                kept.append((key, slot, place))
        return kept

    def restore(self, data: bytes | None) -> Resets | None:
        """See `edge_runtime.model.serving.model_states.ModelStates`; the states of before are given up."""
        self._clear()
        if data is None:
            return _UNSAVED
        (size,) = _SIZE.unpack_from(data)
        at = _SIZE.size + size
        head = orjson.loads(data[_SIZE.size : at])
        keys = head["keys"]
        if head["model"] != self._model or head["states"] != _described(self._specs):
            return Resets("replaced", len(keys), f"they are of another model: {head['model']}")
        self._asked = head["asked"]
        rows = [self._row(key) for key, _ in keys]  # more than max_keys: a later one takes the row of an earlier one
        for k, spec in enumerate(self._specs):
            shape = (len(keys), *spec.shape[1:])
            values = np.frombuffer(data, spec.dtype, math.prod(shape), at).reshape(shape)
            self._tables[k][rows] = values
            at += values.nbytes
        for row, (_, slot) in zip(rows, keys, strict=True):
            self._next[row] = slot
        return None if head["whole"] else _UNSAVED

    def forget(self, keys: Iterable[str]) -> None:
        """Let these keys have no states any more, uncounted: their streams have ended."""
        for key in keys:
            row = self._rows.pop(key, None)
            if row is not None:
                self._next[row] = None
                self._free.append(row)

    def _row(self, key: str) -> int:
        return self._rows.get_or_make(key, self._free_row)

    def _evicted(self, key: str, row: int) -> None:
        self._lost.discard(key)
        self._next[row] = None
        self._free.append(row)
        self._count("evicted", 1)

    def _free_row(self) -> int:
        if self._free:
            return self._free.pop()
        row = len(self._next)
        self._next.append(None)
        if row >= len(self._tables[0]):
            self._tables = [np.concatenate((table, np.zeros_like(table))) for table in self._tables]
        return row

    def _count_break(self, key: str, *, asked: bool) -> None:
        reason = "asked" if asked else "lost" if key in self._lost else "gap"
        self._lost.discard(key)
        self._count(reason, 1)

    def _count(self, reason: str, keys: int) -> None:
        if keys:
            self._metrics.counts[f'state_resets_total{{reason="{reason}"}}'] += keys


def _described(specs: Sequence[TensorSpec]) -> list[list[Any]]:
    return [[spec.name, spec.dtype.str, list(spec.shape[1:])] for spec in specs]


def bytes_per_key(specs: Sequence[TensorSpec]) -> int:
    """Return the bytes that a key's states take."""
    return sum(spec.dtype.itemsize * int(np.prod(spec.shape[1:], dtype=int)) for spec in specs)


def rounds(windows: Sequence[Window], most: int) -> Iterator[list[int]]:
    """Split windows into calls of at most `most`, each of which holds a key once, a key's windows in their order.

    The n-th windows of all keys come together: 33 windows each of 100 keys are 33 rounds of 100, not 100 of 33.

    Yields:
        Positions in `windows`.
    """
    found: list[list[int]] = []
    turns: dict[str, int] = {}
    for position, window in enumerate(windows):
        turn = turns[window.key] = turns.get(window.key, -1) + 1
        if turn == len(found):
            found.append([])
        found[turn].append(position)
    for one in found:
        if len(one) <= most:
            yield one
        else:  # parts of one size: an engine has to be prepared for another one
            size = -(-len(one) // -(-len(one) // most))
            for at in range(0, len(one), size):
                yield one[at : at + size]
