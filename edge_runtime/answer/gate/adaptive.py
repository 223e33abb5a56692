"""Thresholds of keys that keep the share of hard windows: a person never met is as often hard as was asked.

A threshold that is right for the people of the export lets one person never ask, and another all the time. So each key
has its own, which moves by each of its windows. Rules, for a share a, in log-odds of the gate's score; the unit is the
bundle's spread (`edge_runtime.manifest.surround.SurroundGate.spread`):

1. A key begins at the pool's threshold. The pool is one more threshold, which begins at the bundle's and follows the
   windows of all keys.
2. A window below its key's threshold is hard, and moves it down by ``(1 - l) * step``; any other moves it up by
   ``l * step`` (`edge_runtime.model.quantile`). The step begins at ``2 / (3 * a)`` by `PRIOR` and the windows so
   far, at most one unit, and falls to `STEP` units, where it stays.
3. The level l is the share a, but for what the last `REMEMBERED` windows had too little or too much of: that is made
   good within `REPAY` windows, by a level between half and twice a.
4. What the pool learns moves the key too, by ``PRIOR / (PRIOR + windows so far)`` of it: with few windows a key leans
   on the pool, later it stands alone.
5. No threshold is further than `REACH` units from the bundle's. A key for which that is not enough is hard more often
   than was asked, or less: answers that all are worthless are not called trusted because they are alike.
6. Of windows that are suspect, and of scores that are no numbers, nothing is learnt. The latter are hard.
7. Scores that cannot be told from 1 are put in an order by their windows' ids, so that a share of these can be hard,
   the same ones on every run. Of other equal scores now all and now none are hard: the share holds over time.

Of any stream whose scores lie a step within reach, also one made in view of the threshold, at no time are more windows
than ``4 * REACH / STEP`` (200) too many or too few: each moves the threshold by `STEP` units, which has twice `REACH`
to go, and the pool may have moved it as far the other way. Without rule 3 a stream would owe for ever what it owed at
its beginning.

Sources: Gibbs and Candes 2021 (arXiv:2106.00170), for a share without assumptions on the scores and for the level that
moves; Angelopoulos, Barber and Bates 2024 (arXiv:2402.01139), for steps that become smaller. Figures: docs/guide.md.
"""

from __future__ import annotations

import logging
import math
import zlib
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import orjson

from edge_runtime.answer.gate.config import GateConfig
from edge_runtime.answer.gate.promise import Promise
from edge_runtime.errors import StoreError
from edge_runtime.key_table import KeyTable
from edge_runtime.manifest import Manifest
from edge_runtime.metrics import Metrics
from edge_runtime.model.quantile import outward
from edge_runtime.signal.stage import LearningStage, WindowBatch

log = logging.getLogger(__name__)

PRIOR: Final = 10
"""Windows that the pool's threshold counts as, against those of the key itself."""
REMEMBERED: Final = 1000
REPAY: Final = 250
REACH: Final = 5.0
"""People whose answers were measured lie within 2.5."""
STEP: Final = 0.1
"""Smallest step of a key. Twice as long ones hold the share no better, and what is sent was less often wrong: where
doubtful windows come together, they spread them out."""
POOL_STEP: Final = 0.02
"""Smallest step of the pool: it takes the windows of all keys."""
FEWEST: Final = 100
"""Windows of a key before its share is shown."""

_EDGE: Final = 1e-7
"""Scores nearer to 0 or 1 are taken to be this near: float32 holds about these."""
_TOP: Final = math.log((1 - _EDGE) / _EDGE)


class _Answered(Protocol):
    """A window, as far as the gate knows it."""

    @property
    def key(self) -> str:
        """Stream that it is of."""

    @property
    def place(self) -> tuple[str, int]:
        """Its stream, and its place there."""

    @property
    def id(self) -> str:
        """Names it, also after a restart."""


@dataclass(slots=True)
class _Key:
    """State of a key."""

    threshold: float
    """Log-odds."""
    pool: float
    """Threshold of the pool that it has followed so far."""
    windows: int = 0
    excess: float = 0.0
    """Share of its windows that was hard, less the one that was asked; over the last `REMEMBERED`."""


class AdaptiveGate(LearningStage):
    """Thresholds of all keys. All methods belong to the loop's thread.

    Args:
        config: ``adapt``, ``share``, ``threshold`` and ``max_local_error`` of the operator.
        max_keys: keys held at a time; the one silent longest leaves first, and begins at the pool's threshold when it
            comes back.
        metrics: receives ``gate_keys_evicted_total``, and as gauges ``gate_share_ratio`` and the ranges of
            ``gate_threshold`` and ``gate_hard_ratio`` over the keys.
        alone: answers are the network's alone, by its own gate.
    """

    def __init__(
        self, config: GateConfig | None = None, max_keys: int = 10_000, metrics: Metrics | None = None, *,
        alone: bool = False,
    ) -> None:  # fmt: skip
        self._config = config or GateConfig()
        self._metrics = metrics or Metrics()
        self._alone = alone
        self._keys: KeyTable[str, _Key] = KeyTable(max_keys, self._evicted)
        self._model = ""
        self._asked = self._share = 0.0
        self._promise: Promise | None = None
        self._unit = 1.0
        self._first = self._pool = 0.0
        self._pooled = 0
        self._unshown = 0

    def use(self, manifest: Manifest) -> None:
        """Follow the scores of this bundle from now on; another model's scores say nothing of its."""
        surround = manifest.surround
        asked = self._config.share or (0.0 if surround is None else surround.gate.share)
        gate = manifest.gate if surround is None else surround.gate
        why = _off(self._config, gate.threshold, alone=self._alone) if asked else ""
        share = 0.0 if why else asked
        if (manifest.model, share) == (self._model, self._asked):
            return
        if self._config.max_local_error is not None and not asked:
            log.warning("gate: max_local_error is not held: the bundle asks for no share; set share under [gate]")
        if why:
            log.info("gate: a share of %.3g of the windows of each key is not kept: %s", asked, why)
        if share:
            log.info("gate: a share of %.3g of the windows of each key is kept; thresholds move", share)
        spread = 1.0 if surround is None else surround.gate.spread
        self.begin(manifest.model, threshold=gate.threshold, share=share, spread=spread)

    def begin(self, model: str, *, threshold: float, share: float, spread: float = 1.0) -> None:
        """Forget all keys, and begin at a threshold.

        Args:
            model: name and version of the model whose scores are followed.
            threshold: beginning threshold of the gate's score.
            share: share of each key's windows that is to be hard; 0: nothing is decided here.
            spread: unit of the moves in log-odds, as of `edge_runtime.manifest.surround.SurroundGate`.
        """
        self._model, self._unit = model, spread
        self._asked = self._share = share
        self.active = share > 0
        limit = self._config.max_local_error
        self._promise = Promise(limit, share) if limit is not None and share else None
        self._first = self._pool = log_odds(threshold)
        self._pooled = 0
        self._keys.clear()

    def run(self, batch: WindowBatch) -> None:
        """Decide by the thresholds of keys in place of the task's, and learn from windows that are not suspect."""
        decided = self.hard(batch.windows, batch.decision.trust, batch.suspects)
        batch.decision = batch.decision._replace(hard=decided)

    def hard(
        self, windows: Sequence[_Answered], trust: Sequence[float], suspects: Collection[tuple[str, int]] = ()
    ) -> list[bool]:
        """Decide which windows are hard, and learn from them.

        Args:
            windows: those of a key in their order.
            trust: the gate's score of each.
            suspects: places of windows from which nothing is learnt.
        """
        decided = []
        for window, score in zip(windows, trust, strict=True):
            state = self._keys.get_or_make(window.key, self._begin)
            if not 0 <= score <= 1:  # rule 6
                decided.append(True)
                continue
            place = log_odds(score)
            if place >= _TOP:  # rule 7
                place += zlib.crc32(window.id.encode()) / 2**32 * self._unit
            beyond = place < state.threshold
            decided.append(beyond)
            if not suspects or window.place not in suspects:
                self._learn(state, place, beyond=beyond)
        self._unshown += len(windows)
        if self._unshown >= max(FEWEST, len(self._keys)):
            self._show()
        return decided

    def learn(self, outcomes: Iterable[tuple[bool, bool]]) -> None:
        """Follow the share of audits that were upheld, where an error rate is promised."""
        promise = self._promise
        if promise is not None:
            for hard, upheld in outcomes:
                if not hard:
                    promise.audit(wrong=not upheld)
            self._share = promise.share

    def _begin(self) -> _Key:
        return _Key(self._pool, self._pool)

    def _evicted(self, _key: str, _state: _Key) -> None:
        self._metrics.counts["gate_keys_evicted_total"] += 1

    def _learn(self, state: _Key, place: float, *, beyond: bool) -> None:
        share, windows = self._share, state.windows
        state.windows = windows + 1
        counted = min(windows + 1, REMEMBERED)
        state.excess += (beyond - share - state.excess) / counted
        level = share - state.excess * counted / REPAY  # rule 3
        level = min(max(level, share / 2), 2 * share)
        moved = -outward(self._step(windows, STEP), level, beyond=beyond)  # rule 2
        moved += (self._pool - state.pool) * PRIOR / (PRIOR + windows)  # rule 4
        state.pool = self._pool
        state.threshold = self._within(state.threshold + moved)
        step = self._step(self._pooled, POOL_STEP)
        self._pool = self._within(self._pool - outward(step, share, beyond=place < self._pool))
        self._pooled += 1

    def _step(self, windows: int, least: float) -> float:
        """Distance that a hard window moves a threshold after this number of windows (rule 2).

        For a density f at the quantile, 1 / (f * windows) is best, and the spread is about 1.5 * share / f.
        """
        return self._unit * max(least, min(1.0, 2 / (3 * self._share * (PRIOR + windows))))

    def _within(self, threshold: float) -> float:
        """Bound a threshold (rule 5); above the top by a unit, every score is below it (rule 7)."""
        reach = REACH * self._unit
        return min(max(threshold, self._first - reach), self._first + reach, _TOP + self._unit)

    def _show(self) -> None:
        """Show the ranges over the keys; so seldom that it costs a window nothing."""
        self._unshown = 0
        self._metrics.gauges["gate_share_ratio"] = round(self._share, 6)
        known = [state for state in self._keys.values() if state.windows >= FEWEST]
        if not known:
            return
        thresholds = [_odds_share(state.threshold) for state in known]
        shares = [self._share + state.excess for state in known]
        for name, found in (("gate_threshold", thresholds), ("gate_hard_ratio", shares)):
            self._metrics.gauges[f'{name}{{key="lowest"}}'] = round(min(found), 6)
            self._metrics.gauges[f'{name}{{key="highest"}}'] = round(max(found), 6)

    # -- over a restart ----------------------------------------------------------------------------------------------

    def save(self) -> bytes:
        """Encode all thresholds."""
        keys = {key: [one.threshold, one.pool, one.windows, one.excess] for key, one in self._keys.items()}
        pool = [self._pool, self._pooled]
        promised = None if self._promise is None else self._promise.share
        plain = {"model": self._model, "share": self._asked, "pool": pool, "promised": promised, "keys": keys}
        return orjson.dumps(plain)

    def restore(self, data: bytes) -> bool:
        """Go on where a run before was; False where it had another model or share.

        Raises:
            StoreError: the bytes are something else.
        """
        try:
            plain = orjson.loads(data)
            keys = [(key, _state(row)) for key, row in plain["keys"].items()]
            pool, pooled = plain["pool"]
            pool, pooled = float(pool), int(pooled)
            promised = float(plain["promised"] or 0.0)
            same = (plain["model"], plain["share"]) == (self._model, self._asked)
        except (orjson.JSONDecodeError, LookupError, TypeError, ValueError, AttributeError) as error:
            raise StoreError(f"thresholds of the gate cannot be read: {error}") from error
        if same:
            self._keys.replace(keys)
            self._pool, self._pooled = self._within(pool), pooled
            for state in self._keys.values():
                state.threshold = self._within(state.threshold)
            if self._promise is not None:
                self._promise.restore(promised)
                self._share = self._promise.share
        return same


def _state(row: Any) -> _Key:
    threshold, pool, windows, excess = row
    return _Key(float(threshold), float(pool), int(windows), float(excess))


def _off(config: GateConfig, threshold: float, *, alone: bool) -> str:
    """Say what keeps thresholds where they are; empty: nothing does."""
    if alone:
        return "alone = true under [model]"
    if config.threshold is not None:
        return "threshold under [gate] is the operator's own"
    if not config.adapt:
        return "adapt = false under [gate]"
    return "" if 0 < threshold < 1 else f"the bundle's threshold is {threshold:g}, which says nothing of its scores"


def log_odds(score: float) -> float:
    """Return the log-odds of a score, which are finite: one nearer to 0 or 1 than float32 tells is taken as near."""
    score = min(max(score, _EDGE), 1 - _EDGE)
    return math.log(score / (1 - score))


def _odds_share(log_odds: float) -> float:
    return 1 / (1 + math.exp(-log_odds))
