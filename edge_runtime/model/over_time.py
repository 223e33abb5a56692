"""Answers over time: what a key's windows before say about this one.

A network sees one window. A person who walked half a second ago probably still walks, so the answers of a key are the
observations of a hidden Markov model, and what is published is its forward filter:

    posterior(t) ~ transition' posterior(t - 1) * (answer(t) / prior) ** weight

1. A key begins with the prior: its first answer is the network's own.
2. Where windows are missing (thinned, refused, suspect), the transition is applied once for each hop that passed; after
   `FORGET` hops the key begins again, as it does after a gap, whose windows lie on another grid, and at a reset.
3. A suspect window is predicted and not learnt from: its answer is the network's, the key's state passes over it.
4. An answer that is no distribution (NaN) stays as it is, and counts as a missing window.

Sources: Rabiner 1989, A tutorial on hidden Markov models, section III A (forward procedure); the division by the prior
as in hybrid systems, Bourlard and Morgan 1994. Figures: docs/accuracy.md.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from operator import mul
from typing import Any, Final

import numpy as np

from edge_runtime.key_table import KeyTable
from edge_runtime.manifest import Manifest
from edge_runtime.manifest.surround import OverTime
from edge_runtime.metrics import Metrics
from edge_runtime.signal.stage import Stage, WindowBatch

FORGET: Final = 64
"""Hops after which nothing is left of a state."""
_FLOOR: Final = 1e-9
"""Least probability of an answer: one that a network rounds to 0 is not impossible."""

KeyPosterior = tuple[int, list[float]]
"""Slot of a key's last window, and the posterior after it."""


class OverTimeFilter:
    """One step of the filter; without state of its own.

    Args:
        spec: what it filters by.
        hop: samples from one window to the next.
    """

    def __init__(self, spec: OverTime, hop: int) -> None:
        self._hop = hop
        self._prior = list(spec.prior)
        self._columns = [list(column) for column in zip(*spec.transition, strict=True)]
        self._weight = spec.weight
        self._odds = [prior**-spec.weight for prior in spec.prior]

    def step(self, state: KeyPosterior | None, slot: int, row: list[float]) -> KeyPosterior:
        """Return the state after a window.

        Args:
            state: the key's state so far; None begins it.
            slot: the window's slot.
            row: probabilities of its labels, finite.
        """
        expected = self._prior if state is None else self._expected(slot - state[0], state[1])
        weight = self._weight
        likely = [(p if p > _FLOOR else _FLOOR) ** weight for p in row]  # noqa: FURB136 - half the time of max
        raw = list(map(mul, map(mul, expected, likely), self._odds))
        total = sum(raw)
        return slot, [one / total for one in raw] if total > 0 else row

    def _expected(self, passed: int, before: list[float]) -> list[float]:
        """Return the distribution that is expected `passed` samples after a state (rules 1 and 2)."""
        hops, rest = divmod(passed, self._hop)
        if rest or not 0 < hops <= FORGET:
            return self._prior
        for _ in range(hops):
            before = [sum(map(mul, before, column)) for column in self._columns]
        return before


class AnswersOverTime(Stage):
    """Filters of all keys. All methods belong to the loop's thread.

    Args:
        max_keys: keys held at a time; the one silent longest leaves first, and begins again when it comes back.
        metrics: receives ``over_time_keys_evicted_total``.
    """

    def __init__(self, max_keys: int = 10_000, metrics: Metrics | None = None) -> None:
        self._metrics = metrics or Metrics()
        self._keys: KeyTable[str, KeyPosterior] = KeyTable(max_keys, self._evicted)
        self.changes: dict[str, KeyPosterior | None] = {}
        """States of keys that changed, for those who save them, and take them out; None where a key is not held."""
        self._filter: OverTimeFilter | None = None
        self.spec: OverTime | None = None
        """What is filtered by; None: answers stay what they are."""

    def use(self, manifest: Manifest) -> None:
        """Filter answers of this bundle from now on; keys begin again where its filter is another one."""
        spec = None if manifest.surround is None else manifest.surround.over_time
        if spec == self.spec:
            return
        self.changes |= dict.fromkeys(self._keys)
        self._keys.clear()
        self.spec, self.active = spec, spec is not None
        self._filter = None if spec is None else OverTimeFilter(spec, manifest.input.hop)

    def run(self, batch: WindowBatch) -> None:
        """Filter the numbers, (windows, labels) probabilities; suspect windows say nothing of their key."""
        step, suspects = self._step, batch.suspects
        rows = [
            row if suspects and window.place in suspects else step(window.key, window.slot, row)
            for window, row in zip(batch.windows, batch.numbers.tolist(), strict=True)
        ]
        batch.numbers = np.array(rows, np.float32)

    def _step(self, key: str, slot: int, row: list[float]) -> list[float]:
        if self._filter is None or not math.isfinite(sum(row)):  # rule 4
            return row
        self._keys[key] = self.changes[key] = state = self._filter.step(self._keys.get(key), slot, row)
        return state[1]

    def _evicted(self, key: str, _state: KeyPosterior) -> None:
        self.changes[key] = None
        self._metrics.counts["over_time_keys_evicted_total"] += 1

    def reset(self, keys: Collection[str]) -> set[str]:
        """See `Stage`."""
        known = [key for key in keys if self._keys.pop(key, None) is not None]
        self.changes |= dict.fromkeys(known)
        return set(known)

    # -- over a restart ----------------------------------------------------------------------------------------------

    def restore(self, keys: Mapping[str, Any]) -> None:
        """Go on where the run before was.

        Args:
            keys: `KeyPosterior` by key, as JSON gives them back; the key silent longest first.

        Raises:
            ValueError: they are something else.
        """
        labels = 0 if self.spec is None else len(self.spec.prior)
        for key, (slot, posterior) in keys.items():
            if len(posterior) == labels:
                self._keys[key] = self.changes[key] = (int(slot), [float(p) for p in posterior])
