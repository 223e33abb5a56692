"""Keeper of cases: a sink that sees each answer, and a tap that sees its window; a thread of its own writes.

1. A window is kept for the first of these reasons that holds: its readings are suspect, its answer is hard, the
   cloud audits it, it is drawn at random (by its id, the same one again on every run).
2. At most `CasesConfig.max_per_minute` are kept in any minute; what is more is counted, as is what the disk refuses.
3. A correction is noted beside its case.
4. Nothing here makes an answer wait.
5. Windows on which a model on trial differs are kept, too, whatever else they are (`CaseKeeper.differ`): by their draw
   alone, so rule 2 is not for them.
6. No file ends the application, or its start: a damaged one is set aside (`edge_runtime.store.cases.salvage`); where
   there is no room, or the file is another's, no case is kept until that has changed, which is tried every `_AGAIN_S`.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

from edge_runtime.answer.gate.audit import audited
from edge_runtime.base.system.group_commit import GroupCommit
from edge_runtime.base.system.loop import Loop
from edge_runtime.clock import Clock
from edge_runtime.errors import StoreCorrupt, StoreError
from edge_runtime.key_table import KeyTable
from edge_runtime.manifest import Manifest
from edge_runtime.metrics import Metrics
from edge_runtime.signal.windowing.window import Window
from edge_runtime.store.cases.case import Case, Rival, contract_of
from edge_runtime.store.cases.config import CasesConfig
from edge_runtime.store.cases.salvage import open_or_salvage
from edge_runtime.store.cases.store import CaseStore
from edge_runtime.types import Answer, Correction, Done, Prediction, SuspectPrediction

log = logging.getLogger(__name__)

_WAITING_BYTES: Final = 4 * 2**20
"""Samples of windows whose answers have not reached the sinks yet; the oldest are forgotten."""
_QUEUED: Final = 1000
"""Cases and corrections that wait for the disk."""
_LINGER_S: Final = 0.5
_MINUTE_S: Final = 60.0
_AGAIN_S: Final = 10.0
_IDLE_S: Final = 600.0
"""An idle file learns this often how much time has passed: what a power cut adds to a case's life."""

_Job = Case | tuple[str, bytes]


class CaseKeeper:
    """Chooses cases and has them written.

    Args:
        config: see `CasesConfig`.
        audit_share: the gate's audit share, where there is a cloud.
        manifest: manifest of the bundle that answers now.
    """

    name = "cases"

    def __init__(
        self,
        config: CasesConfig,
        *,
        audit_share: float,
        manifest: Callable[[], Manifest],
        metrics: Metrics,
        clock: Clock,
    ) -> None:
        self._config = config
        self._audit_share = audit_share if config.audits else 0.0
        self._manifest = manifest
        self._metrics = metrics
        self._clock = clock
        self._windows: KeyTable[str, Window] = KeyTable()
        self._bytes = 0
        self._kept: deque[float] = deque(maxlen=config.max_per_minute)
        self._failing = self._damaged = False
        self.store: CaseStore | None = None
        self._commit: GroupCommit[_Job] = GroupCommit(
            "cases", self._flush, self._failed, linger_s=_LINGER_S, idle_s=lambda: _IDLE_S
        )
        self._again_at = float("-inf")
        self._queued = 0
        self._done = 0

    # -- as a sink -----------------------------------------------------------------------------------------------------

    def open(self, loop: Loop) -> None:
        """Open the file, or say why it cannot be used now (rule 6)."""
        del loop
        self._flush(())  # what has become too old goes
        self._commit.start()

    def close(self, timeout_s: float) -> None:
        """Write what waits, and close the file. May be called twice."""
        if self._commit.close(timeout_s) and self.store is not None:
            self.store.close()

    def windows(self, windows: Sequence[Window]) -> None:
        """Note windows that were answered (`edge_runtime.answer.pipeline.Pipeline.tap`)."""
        for window in windows:
            self._windows[window.id] = window
            self._bytes += window.samples.nbytes
        while self._bytes > _WAITING_BYTES:
            self._bytes -= self._windows.evict().samples.nbytes

    def send(self, answers: Sequence[Answer], done: Done | None) -> None:
        """Choose among answers; no one waits for this sink."""
        if done is not None:
            done()
        for answer in answers:
            if isinstance(answer, Prediction):
                self._choose(answer)
            elif isinstance(answer, Correction):
                self._put((answer.id, answer.to_json()))

    def _choose(self, answer: Prediction) -> None:
        window = self._windows.pop(answer.id, None)
        if window is None:
            return
        self._bytes -= window.samples.nbytes
        why = self._reason(answer)  # rule 1
        if not why:
            return
        if self._room():
            self._keep(window, why, asdict(answer))

    def differ(self, window: Window, confidence: float, rival: Rival) -> None:
        """Keep a window on which a model on trial names another label, and which was drawn (rule 5).

        Args:
            window: the window on which they differ.
            confidence: confidence of the model that answers.
            rival: what both say.
        """
        self._keep(window, "differ", {"model": rival.against, "label": rival.old, "confidence": confidence}, rival)

    def _room(self) -> bool:
        now = self._clock.monotonic()
        if len(self._kept) == self._kept.maxlen and now - self._kept[0] < _MINUTE_S:  # rule 2
            self._metrics.counts["cases_passed_over_total"] += 1
            return False
        self._kept.append(now)
        return True

    def _keep(self, window: Window, why: str, device: Mapping[str, Any], rival: Rival | None = None) -> None:
        contract = contract_of(self._manifest())
        samples = window.samples.reshape(len(window.samples), -1).copy()
        now = self._clock.wall()
        self._put(Case(window.id, window.key, window.start, now, why, contract, samples, device, rival=rival))

    def _reason(self, answer: Prediction) -> str:
        config = self._config
        if isinstance(answer, SuspectPrediction):
            return "suspect" if config.suspect else ""
        if answer.hard:
            return "hard" if config.hard else ""
        if audited(answer.id, self._audit_share):
            return "audit"
        # Other ids than those that are audited: the same draw, of the id read backwards.
        return "random" if audited(answer.id[::-1], config.random_share) else ""

    # -- writing -------------------------------------------------------------------------------------------------------

    def _put(self, job: _Job) -> None:
        if self._queued - self._done >= _QUEUED:  # the disk does not keep up
            self._lost(1)
            return
        self._queued += 1
        self._commit.put(job)

    def _flush(self, jobs: Sequence[_Job]) -> None:
        """Write, on the thread."""
        self._done += len(jobs)
        cases = [job for job in jobs if isinstance(job, Case)]
        try:
            stripped = self._opened().write(
                cases, [job for job in jobs if not isinstance(job, Case)], self._clock.monotonic()
            )
        except StoreError as error:
            self._failed(jobs, error)
            return
        self._metrics.counts["cases_kept_total"] += len(cases)
        if stripped:
            log.warning(
                "cases: dropped the windows of labelled cases, kept the labels: count=%d; export them earlier, or "
                "raise max_bytes or max_days", stripped
            )  # fmt: skip
        if self._failing:
            log.info("cases: kept again")
        self._failing = False

    def _opened(self) -> CaseStore:
        """Return the store; open it where that is due (rule 6)."""
        if self._damaged and self.store is not None:
            self.store.close()
            self.store = None
        if self.store is None:
            now, config = self._clock.monotonic(), self._config
            if now < self._again_at:
                raise StoreError("its file could not be opened a moment ago")
            self._again_at = now + _AGAIN_S
            store = open_or_salvage(config.path, config.max_bytes, config.max_days, damaged=self._damaged)
            store.draw("")  # makes the secret, before two threads ask for it
            self.store, self._damaged = store, False
        return self.store

    def _failed(self, jobs: Sequence[_Job], error: Exception) -> None:
        self._lost(sum(isinstance(job, Case) for job in jobs))
        if not self._failing:
            log.error("cases: none are kept, trying again: error=%s", error)
        self._failing = True
        self.distrust(error)

    def distrust(self, error: Exception) -> None:
        """Set the file aside before the next write, if an error of reading or writing it says that it is damaged."""
        self._damaged = self._damaged or isinstance(error, StoreCorrupt)

    def _lost(self, n: int) -> None:
        self._metrics.counts["cases_lost_total"] += n
