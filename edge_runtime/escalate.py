"""Hard cases on their way: into the outbox, to the cloud, and back as corrections.

Two threads that mostly wait. The *committer* writes down what the loop hands over: whatever has been offered meanwhile
becomes one transaction (group commit), and only then does the loop hear that it is safe; while the disk does not take
it, cases are counted as dropped instead (`edge_runtime.committer`). The *forwarder* takes cases from the
outbox, asks the cloud for many at once, and passes the answers to the loop to publish; a case leaves the outbox when
its correction is with the sinks, so a crash in between repeats the question, with the same id, and loses nothing.
"""

from __future__ import annotations

import logging
import queue
import random
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Literal, Protocol

import orjson

from edge_runtime.backoff import RECONNECT, BreakerState, CircuitBreaker, Retry
from edge_runtime.barrier import Barrier
from edge_runtime.clock import Clock
from edge_runtime.cloud import CloudClient
from edge_runtime.cloud_model import CloudModel
from edge_runtime.committer import Committer, Then
from edge_runtime.errors import CloudRejected, CloudUnavailable, ConfigError, StoreError
from edge_runtime.loop import Loop
from edge_runtime.manifest import Manifest
from edge_runtime.message import Correction
from edge_runtime.metrics import Metrics
from edge_runtime.pipeline import Done, Hard
from edge_runtime.store import TRUSTED_ATTEMPTS, HardCase, Outbox, requests

log = logging.getLogger(__name__)

LIVE, AUDIT = 0, 1  # priorities in the outbox

_FINAL = frozenset({400, 413, 415, 422})
"""Refusals of the request's content: the same bytes would be refused again."""

_LOOK_AGAIN_S = 1.0
"""How often the outbox is asked for retries that have come due, and an operator's wishes are looked for."""

_TROUBLE_S = 5.0
"""How long the forwarder leaves an outbox alone that it could not read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EscalationConfig:
    """How hard cases are asked and what the cloud's output means."""

    deadline_s: float = 60.0
    """An answer after this is published all the same, marked late."""
    max_batch: int = 16
    """Hard cases in one request."""
    input: str = ""
    """Name of the cloud model's input; empty takes its only one."""
    output: str = ""
    """Name of the output that holds the answer; empty takes the first."""
    output_kind: Literal["probabilities", "logits"] = "probabilities"
    labels: tuple[str, ...] = ()
    """Labels in the order of the cloud's output; empty means the bundle's."""
    unreadable_attempts: int = 5
    """How often a case is tried when the answer makes no sense, before it goes to the dead letters. Only attempts with
    good answers to other cases in between count: a captive portal or a broken proxy is not the case's fault."""
    commit_attempts: int = 3
    """How often a commit is tried before its cases are dropped and counted: a full disk must not stop the stream."""
    max_pending: int = 4096
    """Cases that may wait for a commit; what comes on top is dropped and counted."""

    def __post_init__(self) -> None:
        if self.deadline_s <= 0:
            raise ValueError("deadline_s must be above 0")
        for name in ("max_batch", "unreadable_attempts", "commit_attempts", "max_pending"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1")


class Publish(Protocol):
    """How corrections reach the sinks: `Pipeline.publish`."""

    def __call__(self, corrections: Sequence[Correction], done: Done) -> None:
        """Hand over; `done` when they are safe."""
        ...


@dataclass(slots=True)
class _Put:
    cases: list[HardCase]
    done: Done | None


@dataclass(slots=True)
class _Settled:
    ids: list[str]


@dataclass(slots=True)
class _Remember:
    name: str
    value: bytes


@dataclass(slots=True)
class _Recall:
    name: str
    then: Then


class _Stop:
    pass


class Escalator:
    """Runs both threads between a pipeline, an outbox and a cloud client.

    Args:
        config: how cases are asked.
        manifest: labels and window of the bundle.
        outbox: where cases wait. Not closed here.
        client: the cloud. Not closed here.
        loop: on which `done` callbacks and publishing run.
        publish: takes corrections, on the loop.
        metrics: receives counts; the latency of corrections goes to the stage ``cloud``.
        clock: wall clock for stamps, monotonic for waiting.
        retry: back-off between failed attempts.
        say: called on the loop when the outbox begins to fail, with why, and when it works again, with nothing.
    """

    def __init__(
        self,
        *,
        config: EscalationConfig,
        manifest: Manifest,
        outbox: Outbox,
        client: CloudClient,
        loop: Loop,
        publish: Publish,
        metrics: Metrics,
        clock: Clock,
        retry: Retry | None = None,
        say: Callable[[str], None] | None = None,
    ) -> None:
        self._config = config
        self._outbox = outbox
        self._client = client
        self._loop = loop
        self._publish = publish
        self._metrics = metrics
        self._control = Barrier("control", metrics)
        self._clock = clock
        self._model = CloudModel(config, manifest, client, metrics, clock)
        self._retry = retry or RECONNECT
        self._rng = random.Random()  # noqa: S311 - jitter, not a secret
        # One failure opens it: with a backlog, each further try would be a connection attempt with no wait before it.
        self._breaker = CircuitBreaker(threshold=1, retry=self._retry, clock=clock, probe=self._probe, rng=self._rng)
        self._offered: queue.SimpleQueue[_Put | _Settled | _Remember | _Recall | _Stop] = queue.SimpleQueue()
        self._pending = 0  # cases offered and not yet committed; the loop's thread alone touches it
        self._work = threading.Event()
        self._stopping = threading.Event()
        self._say = say
        self._committer = Committer(
            outbox,
            attempts=config.commit_attempts,
            metrics=metrics,
            clock=clock,
            stopping=self._stopping,
            say=self._say_trouble,
        )
        self._unreadable = ""  # what was last said of an outbox that the forwarder could not read
        self._publishing = threading.Semaphore(64)
        self._alone: set[str] = set()  # ids whose batch was refused: asked one by one, to find the bad one
        self._good_answers = 0
        self._failures: dict[str, tuple[int, int]] = {}  # attempts that count, and good answers before the last one
        self._proven = False  # it has answered well since it was checked
        self._reachable: bool | None = None
        self._threads = [
            threading.Thread(target=self._commit_forever, name="edge-outbox-commit", daemon=True),
            threading.Thread(target=self._forward_forever, name="edge-cloud-forward", daemon=True),
        ]

    def start(self) -> None:
        """Start both threads; what an earlier run left in the outbox goes first."""
        self._work.set()
        for thread in self._threads:
            thread.start()

    def begin_without_outbox(self, error: StoreError) -> None:
        """Before `start`: it could not be opened, for a reason that may pass."""
        self._committer.begin_failing(error)

    # -- on the loop's thread ----------------------------------------------------------------------------------------

    def refuses(self) -> str:
        """See `edge_runtime.pipeline.Escalation`."""
        if self._committer.trouble:
            return "outbox_error"
        return "outbox_busy" if self._pending >= self._config.max_pending else ""

    def offer(self, cases: Sequence[Hard], done: Done | None) -> None:
        """Take hard cases (see `edge_runtime.pipeline.Escalation`); what cannot be kept is counted before `done`."""
        busy = self._pending + len(cases) > self._config.max_pending
        if reason := self.refuses() or ("outbox_busy" if busy else ""):
            self._metrics.dropped[reason] += len(cases)
            for case in cases:
                case.prediction.route = "local"  # no correction will come
            if done is not None:
                done()
            return
        self._pending += len(cases)
        wall = self._clock.wall()
        self._offered.put(_Put([self._case(case, wall) for case in cases], done))

    def remember(self, name: str, value: bytes) -> None:
        """Write a small value down beside the cases, for the next start; a failure costs no more than the value."""
        self._offered.put(_Remember(name, value))

    def recall(self, name: str, then: Then) -> None:
        """Read a small value that was written down, as soon as the outbox works; `then` is called on the loop."""
        self._offered.put(_Recall(name, lambda value: self._loop.call_soon_threadsafe(lambda: then(value))))

    def _say_trouble(self, trouble: str) -> None:
        if self._say is not None:
            say = self._say
            self._loop.call_soon_threadsafe(lambda: say(trouble))
        self._work.set()

    def _case(self, hard: Hard, wall: float) -> HardCase:
        p = hard.prediction
        meta = {"start": p.start, "end": p.end, "label": p.label, "confidence": p.confidence, "hard": p.hard}
        return HardCase(
            id=p.id,
            key=p.key,
            created=wall,
            deadline_s=self._config.deadline_s,
            priority=AUDIT if hard.audit else LIVE,
            value=1.0 - hard.trust,
            body=hard.tensor.astype("<f4", copy=False).tobytes(),
            meta=orjson.dumps(meta),
        )

    def _committed(self, puts: list[_Put], dropped: int) -> None:
        if dropped:
            self._metrics.dropped["outbox_error"] += dropped  # here: this thread counts those refused at once, too
        for put in puts:
            self._pending -= len(put.cases)
            if put.done is not None:
                put.done()
        self._work.set()

    def _publish_on_loop(self, corrections: list[Correction]) -> None:
        ids = [correction.id for correction in corrections]

        def safe() -> None:
            self._publishing.release()
            self._offered.put(_Settled(ids))

        for correction in corrections:
            self._metrics.stages["cloud"].observe(correction.latency_ms / 1e3)
            self._metrics.counts["late_total"] += correction.late
            self._metrics.counts["audit_agreed_total"] += (
                not correction.hard and correction.label == correction.supersedes
            )
        self._publish(corrections, safe)

    # -- the committer -----------------------------------------------------------------------------------------------

    def _commit_forever(self) -> None:
        while self._commit_some(_LOOK_AGAIN_S):
            pass

    def _commit_some(self, wait_s: float) -> bool:
        """Write down together what has been offered meanwhile, waiting for it at most so long; False at the end."""
        jobs: list[_Put | _Settled | _Remember | _Recall | _Stop] = []
        try:
            if self._committer.trouble:
                wait_s = min(wait_s, self._committer.wait_s())
            jobs.append(self._offered.get(timeout=wait_s))
            while True:
                jobs.append(self._offered.get_nowait())
        except queue.Empty:
            pass
        puts = [job for job in jobs if isinstance(job, _Put)]
        settled = [id_ for job in jobs if isinstance(job, _Settled) for id_ in job.ids]
        if puts:
            dropped = self._committer.put([case for put in puts for case in put.cases])
            self._loop.call_soon_threadsafe(lambda: self._committed(puts, dropped))
        self._committer.look()
        for id_ in self._committer.settle(settled):
            self._failures.pop(id_, None)
            self._alone.discard(id_)
        for job in jobs:
            if isinstance(job, _Remember):
                self._committer.remember(job.name, job.value)
            elif isinstance(job, _Recall):
                self._committer.recall(job.name, job.then)
        if any(isinstance(job, _Stop) for job in jobs):
            return False
        self._control.call(self._serve_requests)
        return True

    def _serve_requests(self) -> None:
        """Do what an operator asks for by ``edge-runtime outbox``."""
        if requests.serve(self._outbox.path, self._outbox):
            self._work.set()

    # -- the forwarder -----------------------------------------------------------------------------------------------

    def _forward_forever(self) -> None:
        while not self._stopping.is_set():
            patience_s = _LOOK_AGAIN_S
            try:
                worked = self._forward_some()
                self._unreadable = ""
            except StoreError as error:
                # Not when it was closed while the cloud made us wait, and not when it has been said already.
                if not self._stopping.is_set() and str(error) not in {self._unreadable, self._committer.trouble}:
                    log.warning("outbox: %s", error)
                self._unreadable = str(error)
                worked, patience_s = False, _TROUBLE_S
            if not worked:
                # Woken by the next commit; the time-out serves retries that come due and a breaker that may close.
                self._work.wait(max(0.05, min(patience_s, self._breaker.wait_s() or patience_s)))
                self._work.clear()

    def _forward_some(self) -> bool:
        """Ask for one batch; False when there was nothing to do or the cloud is not to be asked now."""
        if not self._publishing.acquire(timeout=1.0):
            return False  # corrections pile up before the sinks: ask no more until they flow
        asked = False
        try:
            cases = self._outbox.take(self._config.max_batch, max_bytes=16 * 2**20)
            if not cases:
                self._alone.clear()  # some may have left by the outbox's policy; a bad one that waits is found again
                return False
            if not self._breaker.allow():
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
        """Whom to ask for together; the others go back.

        A case that makes the server fail must not take its neighbours with it for ever: one that has failed a few times
        is asked alone, and a trial after an outage is made with the case that has failed least.
        """
        if self._breaker.state is BreakerState.CLOSED:
            together = [case for case in cases if case.id not in self._alone and case.attempts < TRUSTED_ATTEMPTS]
            chosen = together or cases[:1]
        else:
            chosen = [min(cases, key=lambda case: case.attempts)]
        ids = {case.id for case in chosen}
        others = [case.id for case in cases if case.id not in ids]
        if others:
            self._outbox.release(others)
        return chosen

    def _ask(self, cases: list[HardCase]) -> bool:
        ids = [case.id for case in cases]
        try:
            probabilities = self._model.ask(cases)
        except CloudUnavailable as error:
            self._breaker.failure(error.retry_after_s)
            self._say_reachable(False, str(error))
            self._metrics.counts["cloud_failures_total"] += 1
            failures = 1 + max(case.attempts for case in cases)
            delay = self._retry.delay(failures, error.retry_after_s, self._rng)
            self._outbox.retry(ids, delay, str(error))
        except (CloudRejected, ConfigError) as error:
            if isinstance(error, CloudRejected) and self._model.checked and error.status in _FINAL:
                self._breaker.success()  # it answers; it does not like what we ask
                self._rejected(cases, error)
                # Another model may stand there now: look before the next case.
                self._model.checked = self._proven = False
                return False
            self._breaker.failure()
            if isinstance(error, CloudRejected) and self._model.checked and error.status != HTTPStatus.NOT_FOUND:
                self._rejected(cases, error)
            else:
                # The model is not there, or does not fit: only people can mend that. Keep the cases, ask rarely.
                self._say_reachable(False, str(error))
                self._outbox.retry(ids, self._retry.cap_s / 4, str(error))
        else:
            self._breaker.success()
            self._good_answers += 1
            self._proven = True
            self._say_reachable(True, "")
            corrections = [self._model.correction(case, row) for case, row in zip(cases, probabilities, strict=True)]
            self._loop.call_soon_threadsafe(lambda: self._publish_on_loop(corrections))
            return True
        return False

    def _rejected(self, cases: list[HardCase], error: CloudRejected) -> None:
        self._metrics.counts["cloud_rejected_total"] += 1
        if len(cases) > 1:  # one bad row must not take the others with it
            self._alone.update(case.id for case in cases)
            self._outbox.release([case.id for case in cases])
            return
        (case,) = cases
        counted, good_answers = self._failures.get(case.id, (0, -1))
        counted += self._good_answers > good_answers
        self._failures[case.id] = counted, self._good_answers
        # A refusal is the case's own fault if the model took others, or refused it twice though its inputs fit.
        final = error.status in _FINAL and (self._proven or good_answers >= 0)
        if final or counted >= self._config.unreadable_attempts:
            log.warning("hard case %s goes to the dead letters: %s", case.id, error)
            self._outbox.bury([case.id], "rejected", str(error))
            self._failures.pop(case.id, None)
            self._alone.discard(case.id)
        else:
            if self._breaker.state is not BreakerState.CLOSED:
                self._say_reachable(False, str(error))
            self._outbox.retry([case.id], self._retry.delay(case.attempts + 1, None, self._rng), str(error))

    def _say_reachable(self, reachable: bool, why: str) -> None:
        """One line when it changes, not one per attempt."""
        if reachable != self._reachable:
            self._reachable = reachable
            self._metrics.gauges["cloud_reachable"] = float(reachable)
            if reachable:
                log.info("cloud: answers")
            else:
                log.warning("cloud: does not answer, hard cases wait in the outbox: %s", why)

    # -- stopping ----------------------------------------------------------------------------------------------------

    def drained(self) -> bool:
        """Nothing offered is uncommitted; on the loop's thread. Cases in the outbox may wait for the next run."""
        return self._pending == 0

    def stop(self, timeout_s: float) -> None:
        """Commit what was offered, finish the request under way, end both threads."""
        until = self._clock.monotonic() + timeout_s
        self._stopping.set()
        self._work.set()
        self._offered.put(_Stop())
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(max(0.0, until - self._clock.monotonic()))
