"""Forwarder: the thread that takes cases from the outbox, asks the cloud for many at once, and hands the answers over.

What becomes of cases that the cloud refuses is decided by `edge_runtime.cloud.refusals`; when it is asked again at all,
by a circuit breaker.
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable, Sequence
from typing import Final

from edge_runtime.base.system.retry import BreakerState, CircuitBreaker, Retry
from edge_runtime.clock import Clock
from edge_runtime.cloud.question import CloudModel
from edge_runtime.cloud.refusals import RefusalAction, RefusalHistory, UnaskableCase, decide
from edge_runtime.errors import CloudError, CloudRejected, CloudUnavailable, ConfigError, StoreError
from edge_runtime.metrics import Metrics
from edge_runtime.store.durable.outbox import TRUSTED_ATTEMPTS, HardCase, Outbox
from edge_runtime.types import Correction

log = logging.getLogger(__name__)

LOOK_AGAIN_S: Final = 1.0
"""Time between two looks into the outbox for retries that have come due."""

_UNREADABLE_S: Final = 5.0
"""Time until an outbox that could not be read is read again."""

_MAX_BYTES: Final = 16 * 2**20
"""Largest sum of the cases in one request."""

_MAX_UNACKED: Final = 8
"""Requests whose corrections may be on their way to the sinks: after a kill, the cases of these are asked for again."""


class Forwarder:
    """Asks the cloud for what the outbox holds. `forward_some` belongs to its thread, `published` to the loop's.

    Args:
        outbox: store of the cases that wait.
        model: the cloud's, as cases see it.
        metrics: receives counts and the gauge ``cloud_reachable``.
        clock: monotonic time for waiting.
        retry: back-off between failed attempts.
        stopping: ends the thread.
        publish: takes corrections, on this thread; `published` is called for each such call once they are safe.
        failure_reason: why the outbox accepts nothing now, empty while it does; logged already where it is not empty.
    """

    def __init__(
        self,
        *,
        outbox: Outbox,
        model: CloudModel,
        metrics: Metrics,
        clock: Clock,
        retry: Retry,
        stopping: threading.Event,
        publish: Callable[[list[Correction]], None],
        failure_reason: Callable[[], str],
    ) -> None:
        self._config = model.config
        self._outbox = outbox
        self._model = model
        self._client = model.client
        self._metrics = metrics
        self._retry = retry
        self._stopping = stopping
        self._publish = publish
        self._failure_reason = failure_reason
        self.rng = random.Random()  # noqa: S311 - jitter, not a secret
        # One failure opens it: with a backlog, each further try would be a connection attempt with no wait before it.
        self.breaker = CircuitBreaker(threshold=1, retry=retry, clock=clock, probe=self._probe, rng=self.rng)
        self._refusals = RefusalHistory()
        self._work = threading.Event()
        self._publishing = threading.Semaphore(_MAX_UNACKED)
        self._unreadable = ""  # the last error of an outbox that could not be read
        self._reachable: bool | None = None
        self.thread = threading.Thread(target=self._forward_forever, name="edge-cloud-forward", daemon=True)

    def wake(self) -> None:
        """Look into the outbox at once: there may be something to ask for."""
        self._work.set()

    def published(self) -> None:
        """Note that the sinks have the corrections of one request."""
        self._publishing.release()

    def _forward_forever(self) -> None:
        while not self._stopping.is_set():
            patience_s = LOOK_AGAIN_S
            try:
                worked = self.forward_some()
                self._unreadable = ""
            except StoreError as error:
                # Not when it was closed while the cloud made us wait, and not when it has been logged already.
                if not self._stopping.is_set() and str(error) not in {self._unreadable, self._failure_reason()}:
                    log.warning("outbox: could not read cases, reading again soon: error=%s", error)
                self._unreadable = str(error)
                worked, patience_s = False, _UNREADABLE_S
            if not worked:
                self._model.probe()
                # Woken by the next commit; the time-out serves retries that come due and a breaker that may close.
                self._work.wait(max(0.05, min(patience_s, self.breaker.wait_s() or patience_s)))
                self._work.clear()

    def forward_some(self) -> bool:
        """Ask for one batch; return False when there was nothing to do or the cloud is not to be asked now."""
        if not self._publishing.acquire(timeout=1.0):
            return False  # corrections pile up before the sinks: ask no more until they flow
        asked = False
        try:
            cases = self._outbox.lease(self._config.max_batch, max_bytes=_MAX_BYTES)
            if not cases:
                return False
            if not self.breaker.allow():
                self._outbox.release([case.id for case in cases])
                return False
            try:
                asked = self._ask(self._choose(cases))
            except StoreError:
                self._outbox.release([case.id for case in cases])  # else they would be in flight until the next start
                raise
        finally:
            if not asked:  # otherwise released when the corrections are safe
                self._publishing.release()
        return True

    def _probe(self) -> bool:
        ready = self._client.ready()
        self._metrics.counts["cloud_failures_total"] += not ready
        return ready

    def _choose(self, cases: list[HardCase]) -> list[HardCase]:
        """Choose the cases to ask for together; the others go back.

        A case that makes the server fail must not take its neighbours with it for ever: one that was refused, or has
        failed a few times, is asked for alone. While the queue is held, it is probed with the case that has failed
        least.
        """
        if self.breaker.state is BreakerState.CLOSED:
            together = [case for case in cases if case.id not in self._refusals and case.attempts < TRUSTED_ATTEMPTS]
            chosen = together or cases[:1]
        else:
            chosen = [min(cases, key=lambda case: (case.id in self._refusals, case.attempts))]
        chosen = [case for case in chosen if len(case.body) == len(chosen[0].body)]  # one tensor: equal lengths
        ids = {case.id for case in chosen}
        others = [case.id for case in cases if case.id not in ids]
        if others:
            self._outbox.release(others)
        return chosen

    def _ask(self, cases: list[HardCase]) -> bool:
        try:
            corrections = self._model.ask(cases)
        except (CloudError, ConfigError) as error:
            self._failed(cases, error)
            return False
        self.breaker.success()
        self._refusals.answered(case.id for case in cases)
        self._show_reachable(True, "")
        self._publish(corrections)
        return True

    def _failed(self, cases: Sequence[HardCase], error: CloudError | ConfigError) -> None:
        ids = [case.id for case in cases]
        history = self._refusals.history(ids, checked=self._model.checked)
        action = decide(error, history, unreadable_attempts=self._config.unreadable_attempts)
        if action in {RefusalAction.WAIT, RefusalAction.MISFIT, RefusalAction.HOLD}:
            self.breaker.failure(error.retry_after_s if isinstance(error, CloudUnavailable) else None)
            self._show_reachable(False, str(error))
        else:
            self.breaker.success()  # it answers, though with a refusal
        if isinstance(error, CloudUnavailable):
            self._metrics.counts["cloud_failures_total"] += 1
        elif action is not RefusalAction.MISFIT:
            self._refused(ids, error, action)
            if action is RefusalAction.SPLIT:
                self._refusals.split(ids)
                self._outbox.release(ids)
                return
            self._refusals.refused(ids[0], history)
            if action is RefusalAction.DEAD_LETTER:
                log.warning(
                    "cloud: moved a hard case to the dead letters; see edge-runtime outbox: id=%s error=%s",
                    ids[0],
                    error,
                )
                reason = error.reason if isinstance(error, UnaskableCase) else "rejected"
                self._outbox.move_to_dead_letters(ids, reason, str(error))
                self._refusals.forget(ids)
                return
        self._outbox.retry(ids, self._delay_s(cases, error, action), str(error))

    def _refused(self, ids: Sequence[str], error: CloudError | ConfigError, action: RefusalAction) -> None:
        self._metrics.counts["cloud_rejected_total"] += 1
        log.debug("cloud: refused cases: count=%d first=%s action=%s error=%s", len(ids), ids[0], action.value, error)
        if not isinstance(error, UnaskableCase) and isinstance(error, CloudRejected) and error.status is not None:
            self._model.checked = False  # another model may be served there now: check before the next case

    def _delay_s(self, cases: Sequence[HardCase], error: CloudError | ConfigError, action: RefusalAction) -> float:
        if action is RefusalAction.MISFIT:
            return self._retry.cap_s / 4
        asked = error.retry_after_s if isinstance(error, CloudUnavailable) else None
        return self._retry.delay(1 + max(case.attempts for case in cases), asked, self.rng)

    def _show_reachable(self, reachable: bool, why: str) -> None:
        """Log when it changes, not at each attempt."""
        if reachable != self._reachable:
            self._reachable = reachable
            self._metrics.gauges["cloud_reachable"] = float(reachable)
            if reachable:
                log.info("cloud: became reachable")
            else:
                log.warning("cloud: became unreachable, hard cases wait in the outbox: reason=%s", why)
