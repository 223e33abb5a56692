"""Thresholds of an anomaly score for each key, learnt on the device: a machine is compared with itself.

Scores of one machine are not those of another, and they drift. Rules, for ``adapt = "quantile"`` and a rate r:

1. A key begins with the bundle's threshold, for its first n = 20 / r scores. Of these the highest are remembered.
2. Then its threshold is the k-th of n + 1 sorted scores (`edge_runtime.model.tasks.anomaly.conformal_threshold`).
3. From then on each score moves it: up by ``(1 - r) * step`` where it is above, else down by ``r * step``. So alarms
   come at the rate r in the long run, however the scores drift. The step is a fifth of the distance between the
   thresholds for r / 2 and for 2 * r.
4. A score far above, by more than four of these distances, counts a tenth: a fault takes ten times as long to become
   normal as a drift.

A fault that lasts is taken for normal in the end; an event rule tells of it before. Of windows whose readings are
suspect, nothing is learnt.

Recursion and sources: `edge_runtime.model.quantile`. Figures: docs/tasks.md.
"""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import orjson

from edge_runtime.errors import StoreError
from edge_runtime.key_table import KeyTable
from edge_runtime.manifest import Manifest
from edge_runtime.manifest.outputs import AnomalyOutput
from edge_runtime.metrics import Metrics
from edge_runtime.model.quantile import outward
from edge_runtime.signal.stage import LearningStage, WindowBatch

WARM_UP: Final = 20
"""Scores above the threshold that a warm-up can expect: its length is this by the rate."""
_STEP: Final = 0.2
_FAR: Final = 4.0
_FAR_STEP: Final = 0.1


@dataclass(slots=True)
class _Key:
    """State of a key."""

    seen: int = 0
    """Scores of its warm-up so far."""
    highest: list[float] = field(default_factory=list)
    """A heap of the highest of them, the least first; empty once the warm-up is over."""
    threshold: float = 0.0
    spread: float = 0.0
    """Distance between the thresholds for half and for twice the rate."""


class KeyThresholds(LearningStage):
    """Thresholds of all keys. All methods belong to the loop's thread.

    Args:
        max_keys: keys held at a time; the one silent longest leaves first, and begins again when it comes back.
        metrics: receives ``threshold_keys_evicted_total``.
    """

    def __init__(self, max_keys: int = 10_000, metrics: Metrics | None = None) -> None:
        self._metrics = metrics or Metrics()
        self._keys: KeyTable[str, _Key] = KeyTable(max_keys, self._evicted)
        self._model = ""
        self._rate = 0.0

    def use(self, manifest: Manifest) -> None:
        """Follow the scores of this bundle from now on; another model's scores say nothing of its."""
        output = manifest.output
        self.active = isinstance(output, AnomalyOutput) and output.adapt == "quantile"
        if manifest.model != self._model:
            self._keys.clear()
        self._model = manifest.model
        self._rate = output.false_alarm_rate if isinstance(output, AnomalyOutput) else 0.0

    @property
    def _warm_up(self) -> int:
        return math.ceil(round(WARM_UP / self._rate, 9))

    def run(self, batch: WindowBatch) -> None:
        """Put the threshold of its key behind each score, and learn from the score unless it is suspect.

        The numbers become (windows, 2), with NaN as the threshold where it is still the bundle's.
        """
        scores, suspects = batch.numbers, batch.suspects
        thresholds = np.full(len(scores), np.nan, np.float32)
        for i, (window, score) in enumerate(zip(batch.windows, scores[:, 0].tolist(), strict=True)):
            state = self._keys.get_or_make(window.key, _Key)
            if not state.highest and state.seen:
                thresholds[i] = state.threshold
            if math.isfinite(score) and window.place not in suspects:
                self._learn(state, score)
        batch.numbers = np.stack([scores[:, 0], thresholds], axis=1)

    def _evicted(self, _key: str, _state: _Key) -> None:
        self._metrics.counts["threshold_keys_evicted_total"] += 1

    def _learn(self, state: _Key, score: float) -> None:
        if state.seen < self._warm_up:  # rule 1
            state.seen += 1
            heapq.heappush(state.highest, score)
            if len(state.highest) > 2 * WARM_UP + 1:
                heapq.heappop(state.highest)
            if state.seen == self._warm_up:
                self._set(state)
            return
        above = score > state.threshold
        moved = outward(_STEP * state.spread, self._rate, beyond=above)  # rule 3
        if score > state.threshold + _FAR * state.spread:  # rule 4
            moved *= _FAR_STEP
        state.threshold += moved

    def _set(self, state: _Key) -> None:
        """End a warm-up (rule 2)."""
        falling = sorted(state.highest, reverse=True)

        def above(rate: float) -> float:
            # The k-th of n + 1 rising scores is the one with as many above it as may be false alarms.
            return falling[min(int(round(rate * (state.seen + 1), 9)), len(falling)) - 1]

        state.threshold = above(self._rate)
        # Scores that are all the same leave no distance; some step there must be, or the threshold never moves.
        least = 1e-6 * max(abs(state.threshold), 1e-6)
        state.spread = max(above(self._rate / 2) - above(min(2 * self._rate, 1.0)), least)
        state.highest.clear()

    # -- over a restart ----------------------------------------------------------------------------------------------

    def save(self) -> bytes:
        """Encode all thresholds."""
        keys = {key: [one.seen, one.highest, one.threshold, one.spread] for key, one in self._keys.items()}
        return orjson.dumps({"model": self._model, "rate": self._rate, "keys": keys})

    def restore(self, data: bytes) -> bool:
        """Go on where a run before was; False where it had another model.

        Raises:
            StoreError: the bytes are something else.
        """
        try:
            plain = orjson.loads(data)
            keys = [(key, _state(row)) for key, row in plain["keys"].items()]
            same = (plain["model"], plain["rate"]) == (self._model, self._rate)
        except (orjson.JSONDecodeError, KeyError, TypeError, ValueError, AttributeError) as error:
            raise StoreError(f"thresholds of keys cannot be read: {error}") from error
        if same:
            self._keys.replace(keys)
        return same


def _state(row: Any) -> _Key:
    seen, highest, threshold, spread = row
    state = _Key(int(seen), [float(one) for one in highest], float(threshold), float(spread))
    heapq.heapify(state.highest)
    return state
