"""Escalation: hard cases on their way into the outbox, to the cloud, and back as corrections or final messages.

Two threads that mostly wait. The *committer* writes down what the loop hands over: whatever has been offered
meanwhile becomes one transaction (group commit), and only then does the loop hear that it is safe; while the disk
does not take it, cases are counted as dropped instead (`edge_runtime.cloud.committer`). The *forwarder* takes cases
from the outbox, asks the cloud for many at once, and passes the answers to the loop to publish
(`edge_runtime.cloud.forwarder`). A case leaves the outbox when its correction is with the sinks, so a crash in between
repeats the question, with the same id, and loses nothing. A case that leaves without a correction leaves a closing in
its place, which goes the same way as a final message.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import orjson

from edge_runtime.clock import Clock
from edge_runtime.cloud.client import CloudClient
from edge_runtime.cloud.committer import Committer, Then
from edge_runtime.cloud.config import EscalationConfig
from edge_runtime.cloud.forwarder import LOOK_AGAIN_S, Forwarder
from edge_runtime.cloud.question import CloudModel
from edge_runtime.durable.outbox import Closing, HardCase, Outbox
from edge_runtime.durable.outbox import control as requests
from edge_runtime.errors import StoreError
from edge_runtime.manifest import Manifest
from edge_runtime.metrics import Metrics
from edge_runtime.pipeline import Done, Hard
from edge_runtime.system.barrier import Barrier
from edge_runtime.system.loop import Loop
from edge_runtime.system.retry import RECONNECT, Retry
from edge_runtime.types import Correction, FinalAnswer

LIVE, AUDIT = 0, 1  # priorities in the outbox

_CLOSINGS_AT_ONCE = 64


class Publish(Protocol):
    """How corrections and final messages reach the sinks: `Pipeline.publish`."""

    def __call__(self, answers: Sequence[Correction | FinalAnswer], done: Done, /) -> None:
        """Hand over; `done` when they are safe."""
        ...


@dataclass(slots=True)
class _Put:
    hard: Sequence[Hard]
    cases: list[HardCase]
    done: Done | None


@dataclass(slots=True)
class _Settled:
    answers: Mapping[str, bytes]
    """By the id of their case, as the sinks have them."""
    closings: Sequence[int]
    """Numbers of closings that the sinks have."""


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


_Job = _Put | _Settled | _Remember | _Recall | _Stop


class Escalator:
    """Runs both threads between a pipeline, an outbox and a cloud client.

    Args:
        config: how cases are asked.
        manifest: labels and window of the bundle.
        outbox: where cases wait. Not closed here.
        client: the cloud. Not closed here.
        loop: on which `done` callbacks and publishing run.
        publish: takes corrections and final messages, on the loop.
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
        self._loop = loop
        self._publish = publish
        self._metrics = metrics
        self._control = Barrier("control", metrics)
        self._clock = clock
        self._model = CloudModel(config, manifest, client, metrics, clock)
        self._offered: queue.SimpleQueue[_Job] = queue.SimpleQueue()
        self._pending = 0  # cases offered and not yet committed; the loop's thread alone touches it
        self._unsafe = 0  # requests whose corrections the sinks do not have yet; the loop's thread alone touches it
        self._announcing = threading.Lock()  # held from a commit until the loop has been told of it
        self._closing = False  # closings are on their way to the sinks; the committer's thread alone touches it
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
        self.forwarder = Forwarder(
            config=config,
            outbox=outbox,
            model=self._model,
            client=client,
            metrics=metrics,
            clock=clock,
            retry=retry or RECONNECT,
            stopping=self._stopping,
            publish=self._publish_corrections,
            trouble=lambda: self._committer.trouble,
        )
        self._committer_thread = threading.Thread(target=self._commit_forever, name="edge-outbox-commit", daemon=True)

    def start(self) -> None:
        """Start both threads; what an earlier run left in the outbox goes first."""
        self.forwarder.wake()
        self._committer_thread.start()
        self.forwarder.thread.start()

    def begin_without_outbox(self, error: StoreError) -> None:
        """Before `start`: it could not be opened, for a reason that may pass."""
        self._committer.begin_failing(error)

    # -- on the loop's thread ----------------------------------------------------------------------------------------

    def refuses(self) -> str:
        """See `edge_runtime.pipeline.Escalation`."""
        if self._committer.trouble:
            return "outbox_error"
        return "outbox_busy" if self._pending >= self._config.max_pending else ""

    def takes_short(self) -> bool:
        """See `edge_runtime.pipeline.Escalation`; a cloud that was never asked is given the benefit of the doubt."""
        return self._model.takes_short is not False

    def offer(self, cases: Sequence[Hard], done: Done | None) -> None:
        """Take hard cases (see `edge_runtime.pipeline.Escalation`); what cannot be kept is counted before `done`."""
        busy = self._pending + len(cases) > self._config.max_pending
        if reason := self.refuses() or ("outbox_busy" if busy else ""):
            for case in cases:
                self._refuse(case, reason)
            if done is not None:
                done()
            return
        self._pending += len(cases)
        wall = self._clock.wall()
        self._offered.put(_Put(cases, [self._case(case, wall) for case in cases], done))

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
        self.forwarder.wake()

    def _refuse(self, case: Hard, reason: str) -> None:
        self._metrics.dropped[reason] += 1
        case.prediction.route = "local"  # no correction will come

    def _case(self, hard: Hard, wall: float) -> HardCase:
        p = hard.prediction
        meta: dict[str, object] = {
            "start": p.start, "end": p.end, "label": p.label, "confidence": p.confidence, "scores": p.scores,
            "hard": p.hard, "model": p.model, "variant": p.variant,
        }  # fmt: skip
        if hard.tensor.shape[1] < self._model.history:
            meta["samples"] = hard.tensor.shape[1]
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

    def _committed(self, puts: list[_Put], refused: Mapping[str, str]) -> None:
        for put in puts:
            self._pending -= len(put.cases)
            for case in put.hard if refused else ():
                if (reason := refused.get(case.prediction.id)) is not None:
                    self._refuse(case, reason)
            if put.done is not None:
                put.done()
        self.forwarder.wake()

    def _publish_on_loop(self, corrections: list[Correction]) -> None:
        def safe() -> None:
            self.forwarder.published()
            self._unsafe -= 1
            self._offered.put(_Settled({one.id: one.to_json() for one in corrections}, ()))

        self._unsafe += 1
        for correction in corrections:
            self._metrics.stages["cloud"].observe(correction.latency_ms / 1e3)
            self._metrics.counts["late_total"] += correction.late
            self._metrics.counts["audit_agreed_total"] += (
                not correction.hard and correction.label == correction.supersedes
            )
        self._publish(corrections, safe)

    # -- the committer -----------------------------------------------------------------------------------------------

    def _commit_forever(self) -> None:
        while self._commit_some(LOOK_AGAIN_S):
            pass

    def _commit_some(self, wait_s: float) -> bool:
        """Write down together what has been offered meanwhile, waiting for it at most so long; False at the end."""
        jobs: list[_Job] = []
        try:
            if self._committer.trouble:
                wait_s = min(wait_s, self._committer.wait_s())
            jobs.append(self._offered.get(timeout=wait_s))
            while True:
                jobs.append(self._offered.get_nowait())
        except queue.Empty:
            pass
        if puts := [job for job in jobs if isinstance(job, _Put)]:
            with self._announcing:
                refused = self._committer.put([case for put in puts for case in put.cases])
                self._loop.call_soon_threadsafe(lambda: self._committed(puts, refused))
        self._committer.look()
        self._settle([job for job in jobs if isinstance(job, _Settled)])
        for job in jobs:
            if isinstance(job, _Remember):
                self._committer.remember(job.name, job.value)
            elif isinstance(job, _Recall):
                self._committer.recall(job.name, job.then)
        if any(isinstance(job, _Stop) for job in jobs):
            return False
        self._publish_closings()
        self._control.call(self._serve_requests)
        return True

    def _serve_requests(self) -> None:
        """Do what an operator asks for by ``edge-runtime outbox``."""
        if requests.serve(self._outbox.path, self._outbox):
            self.forwarder.wake()

    def _settle(self, settled: Sequence[_Settled]) -> None:
        answers: dict[str, bytes] = {}
        published: list[int] = []
        for job in settled:
            answers |= job.answers
            published += job.closings
        if published:
            self._closing = False
        self._committer.settle(answers, published)

    def _publish_closings(self) -> None:
        """Pass on how cases ended that left without a correction; the next ones when the sinks have these."""
        if self._closing or not (closings := self._committer.closings(_CLOSINGS_AT_ONCE)):
            return
        self._closing = True
        self._loop.call_soon_threadsafe(lambda: self._publish_closings_on_loop(closings))

    def _publish_closings_on_loop(self, closings: Sequence[Closing]) -> None:
        told = _Settled({}, [closing.seq for closing in closings])
        answers = [answer for closing in closings if (answer := self._model.closing(closing)) is not None]
        if answers:
            self._publish(answers, lambda: self._offered.put(told))
        else:
            self._offered.put(told)

    # -- on the forwarder's thread -----------------------------------------------------------------------------------

    def _publish_corrections(self, corrections: list[Correction]) -> None:
        with self._announcing:  # the loop hears of the commit of these first, and publishes their provisional answers
            pass
        self._loop.call_soon_threadsafe(lambda: self._publish_on_loop(corrections))

    # -- stopping ----------------------------------------------------------------------------------------------------

    def drained(self) -> bool:
        """Nothing offered is uncommitted; on the loop's thread. Cases in the outbox may wait for the next run."""
        return self._pending == 0

    def stop(self, timeout_s: float) -> None:
        """Finish the request under way, commit what was offered and what is published, end both threads.

        On the loop's thread, which it turns while corrections are on their way to the sinks: a case whose correction is
        not known to be safe would be asked for again by the next run.
        """
        until = self._clock.monotonic() + timeout_s
        self._stopping.set()
        self.forwarder.wake()
        if self.forwarder.thread.ident is not None:
            self.forwarder.thread.join(max(0.0, until - self._clock.monotonic()))
        if timeout_s > 0:
            self._loop.turn(0)  # takes what the forwarder has handed over last
        while self._unsafe and self._clock.monotonic() < until:
            self._loop.turn(min(0.05, max(0.0, until - self._clock.monotonic())))
        self._offered.put(_Stop())
        if self._committer_thread.ident is not None:
            # Some time in any case: a cloud that does not answer may have taken all of it.
            self._committer_thread.join(max(min(timeout_s, 1.0), until - self._clock.monotonic()))
