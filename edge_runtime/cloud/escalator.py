"""Escalation: hard cases on their way into the outbox, to the cloud, and back as corrections or final messages.

Two threads that mostly wait. The *writer* commits what the loop hands over, in groups, and only then does the loop hear
that it is safe (`edge_runtime.cloud.outbox_writer`); while the disk does not take it, cases are counted as dropped
instead (`edge_runtime.cloud.committer`). The *forwarder* takes cases from the outbox, asks the cloud for many at once,
and passes the answers to the loop to publish (`edge_runtime.cloud.forwarder`). This module is the loop's side of both.
A case leaves the outbox when its correction is with the sinks, so a crash in between
repeats the question, with the same id, and loses nothing. A case that leaves without a correction leaves a closing in
its place, which goes the same way as a final message.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import orjson

from edge_runtime.base.system.barrier import Barrier
from edge_runtime.base.system.loop import Loop
from edge_runtime.base.system.retry import RECONNECT, Retry
from edge_runtime.clock import Clock
from edge_runtime.cloud.committer import Committer, Then
from edge_runtime.cloud.forwarder import Forwarder
from edge_runtime.cloud.outbox_writer import OutboxWriter, Submission
from edge_runtime.cloud.question import CloudModel
from edge_runtime.errors import StoreError
from edge_runtime.manifest import Manifest
from edge_runtime.metrics import Metrics
from edge_runtime.model.tasks.answers import own_fields
from edge_runtime.store.durable.outbox import Closing, HardCase, Outbox, control
from edge_runtime.types import Correction, Done, FinalAnswer, Hard

LIVE, AUDIT = 0, 1  # priorities in the outbox


class Publish(Protocol):
    """Publisher of corrections and final messages to the sinks: `Pipeline.publish`."""

    def __call__(self, answers: Sequence[Correction | FinalAnswer], done: Done, /) -> None:
        """Hand over; `done` when they are safe."""
        ...


class Escalator:
    """Owner of both threads between a pipeline, an outbox and a cloud client.

    Args:
        model: the cloud's, as cases see it. Its client is not closed here.
        outbox: store of the cases that wait. Not closed here.
        loop: the loop on which `done` callbacks and publishing run.
        publish: takes corrections and final messages, on the loop.
        metrics: receives counts; the latency of corrections goes to the stage ``cloud``.
        clock: wall clock for stamps, monotonic for waiting.
        retry: back-off between failed attempts.
        on_status: called on the loop with the reason when the outbox begins to fail, with an empty one when it works.
    """

    def __init__(
        self,
        *,
        model: CloudModel,
        outbox: Outbox,
        loop: Loop,
        publish: Publish,
        metrics: Metrics,
        clock: Clock,
        retry: Retry | None = None,
        on_status: Callable[[str], None] | None = None,
    ) -> None:
        self._config = config = model.config
        self._outbox = outbox
        self._loop = loop
        self._publish = publish
        self._metrics = metrics
        self._clock = clock
        self._model = model
        self._pending = 0  # cases submitted and not yet committed; the loop's thread alone touches it
        self._unsafe = 0  # requests whose corrections the sinks do not have yet; the loop's thread alone touches it
        self._stopping = threading.Event()
        self._on_status = on_status
        self._committer = Committer(
            outbox,
            attempts=config.commit_attempts,
            metrics=metrics,
            clock=clock,
            stopping=self._stopping,
            on_status=self._report_failure,
        )
        self.writer = OutboxWriter(
            committer=self._committer,
            loop=loop,
            barrier=Barrier("control", metrics),
            committed=self._committed,
            publish_closings=self._publish_closings,
            serve_requests=self._serve_requests,
        )
        self.forwarder = Forwarder(
            outbox=outbox,
            model=model,
            metrics=metrics,
            clock=clock,
            retry=retry or RECONNECT,
            stopping=self._stopping,
            publish=self._publish_corrections,
            failure_reason=lambda: self._committer.failure_reason,
        )

    def start(self) -> None:
        """Start both threads; what an earlier run left in the outbox goes first."""
        self.forwarder.wake()
        self.writer.commits.start()
        self.forwarder.thread.start()

    def use(self, manifest: Manifest) -> None:
        """Read the cloud's answers by the bundle that answers from now on."""
        self._model.use(manifest)

    def begin_without_outbox(self, error: StoreError) -> None:
        """Run without an outbox that could not be opened, for a reason that may pass; before `start`."""
        self._committer.begin_failing(error)

    # -- on the loop's thread ----------------------------------------------------------------------------------------

    def refuses(self) -> str:
        """See `edge_runtime.answer.handover.Escalation`."""
        if self._committer.failure_reason:
            return "outbox_error"
        return "outbox_busy" if self._pending >= self._config.max_pending else ""

    def takes_short(self) -> bool:
        """See `edge_runtime.answer.handover.Escalation`; a cloud that was never asked gets the benefit of the doubt."""
        return self._model.takes_short is not False

    def submit(self, cases: Sequence[Hard], done: Done | None) -> None:
        """Take hard cases (`edge_runtime.answer.handover.Escalation`); what cannot be kept is counted before `done`."""
        busy = self._pending + len(cases) > self._config.max_pending
        if reason := self.refuses() or ("outbox_busy" if busy else ""):
            for case in cases:
                self._refuse(case, reason)
            if done is not None:
                done()
            return
        self._pending += len(cases)
        wall = self._clock.wall()
        self.writer.submit(Submission(cases, [self._case(case, wall) for case in cases], done))

    def save_state(self, name: str, value: bytes) -> None:
        """Write a small value down beside the cases, for the next start; a failure costs no more than the value."""
        self.writer.save_state(name, value)

    def load_state(self, name: str, then: Then) -> None:
        """Read a small value that was written down, as soon as the outbox works; `then` is called on the loop."""
        self.writer.load_state(name, then)

    def _report_failure(self, failure_reason: str) -> None:
        if self._on_status is not None:
            on_status = self._on_status
            self._loop.call_soon_threadsafe(lambda: on_status(failure_reason))
        self.forwarder.wake()

    def _refuse(self, case: Hard, reason: str) -> None:
        self._metrics.dropped[reason] += 1
        case.prediction.route = "local"  # no correction will come

    def _case(self, hard: Hard, wall: float) -> HardCase:
        p = hard.prediction
        meta: dict[str, object] = {
            "start": p.start, "end": p.end, "label": p.label, "confidence": p.confidence, "scores": p.scores,
            "hard": p.hard, "model": p.model, "variant": p.variant, "digest": hard.digest,
        }  # fmt: skip
        if own := own_fields(p):
            meta["own"] = own
        if hard.tensor.shape[1] < self._model.history:
            meta["samples"] = hard.tensor.shape[1]
        if hard.explanation is not None:
            meta["explanation"] = hard.explanation
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

    def _committed(self, submissions: Sequence[Submission], refused: Mapping[str, str]) -> None:
        for one in submissions:
            self._pending -= len(one.cases)
            for case in one.hard if refused else ():
                if (reason := refused.get(case.prediction.id)) is not None:
                    self._refuse(case, reason)
            if one.done is not None:
                one.done()
        self.forwarder.wake()

    def _publish_on_loop(self, corrections: list[Correction]) -> None:
        def safe() -> None:
            self.forwarder.published()
            self._unsafe -= 1
            self.writer.ack({one.id: one.to_json() for one in corrections})

        self._unsafe += 1
        for correction in corrections:
            self._metrics.stages["cloud"].observe(correction.latency_ms / 1e3)
            self._metrics.counts["late_total"] += correction.late
            self._metrics.counts["audit_agreed_total"] += not correction.hard and self._model.task.upheld(correction)
        self._publish(corrections, safe)

    def _publish_closings(self, closings: Sequence[Closing]) -> None:
        """Publish how cases ended that left without a correction."""

        def acked() -> None:
            self.writer.ack_closings([closing.seq for closing in closings])

        answers = [answer for closing in closings if (answer := self._model.closing(closing)) is not None]
        if answers:
            self._publish(answers, acked)
        else:
            acked()

    # -- on the writer's thread --------------------------------------------------------------------------------------

    def _serve_requests(self) -> None:
        """Do what an operator asks for by ``edge-runtime outbox``."""
        if control.serve(self._outbox.path, self._outbox):
            self.forwarder.wake()

    # -- on the forwarder's thread -----------------------------------------------------------------------------------

    def _publish_corrections(self, corrections: list[Correction]) -> None:
        self.writer.wait_until_announced()  # the loop publishes the provisional answers of these first
        self._loop.call_soon_threadsafe(lambda: self._publish_on_loop(corrections))

    # -- stopping ----------------------------------------------------------------------------------------------------

    def drained(self) -> bool:
        """Return whether everything submitted is committed; cases in the outbox may wait. On the loop's thread."""
        return self._pending == 0

    def stop(self, timeout_s: float) -> None:
        """Finish the request under way, commit what was submitted and what is published, end both threads.

        On the loop's thread, which it iterates while corrections are on their way to the sinks: a case whose correction
        is not known to be safe would be asked for again by the next run.
        """
        until = self._clock.monotonic() + timeout_s
        self._stopping.set()
        self.forwarder.wake()
        if self.forwarder.thread.ident is not None:
            self.forwarder.thread.join(max(0.0, until - self._clock.monotonic()))
        if timeout_s > 0:
            self._loop.iterate(0)  # takes what the forwarder has handed over last
        while self._unsafe and self._clock.monotonic() < until:
            self._loop.iterate(min(0.05, max(0.0, until - self._clock.monotonic())))
        # Some time in any case: a cloud that does not answer may have taken all of it.
        self.writer.commits.close(max(min(timeout_s, 1.0), until - self._clock.monotonic()))
