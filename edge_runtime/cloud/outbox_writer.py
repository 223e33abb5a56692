"""Outbox writer: the thread that commits what the loop submits, and passes on how cases ended.

Whatever has been submitted meanwhile becomes one transaction (`edge_runtime.base.system.group_commit`), and only then
does the loop hear that it is safe. Between commits the thread sees to what waits for the disk: acknowledged cases that
have still to leave, small values, closings, and what an operator asks for by ``edge-runtime outbox``.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from edge_runtime.base.system.barrier import Barrier
from edge_runtime.base.system.group_commit import GroupCommit
from edge_runtime.base.system.loop import Loop
from edge_runtime.cloud.committer import Committer, Then
from edge_runtime.cloud.forwarder import LOOK_AGAIN_S
from edge_runtime.store.durable.outbox import Closing, HardCase
from edge_runtime.types import Done, Hard

_CLOSINGS_AT_ONCE = 64


@dataclass(slots=True)
class Submission:
    """Hard cases on their way to the disk."""

    hard: Sequence[Hard]
    cases: list[HardCase]
    """The same, as the outbox has them."""
    done: Done | None


@dataclass(slots=True)
class _Acked:
    answers: Mapping[str, bytes]
    """By the id of their case, as the sinks have them."""
    closings: Sequence[int]
    """Numbers of closings that the sinks have."""


@dataclass(slots=True)
class _Save:
    name: str
    value: bytes


@dataclass(slots=True)
class _Load:
    name: str
    then: Then


_Job = Submission | _Acked | _Save | _Load


class OutboxWriter:
    """Writes to the outbox on a thread of its own. Its methods may be called from any thread, and never wait.

    Args:
        committer: commits, and knows whether the disk works.
        loop: the loop on which the two callbacks run.
        barrier: catches what is unexpected on the thread.
        committed: called with submissions that are over, and with the drop reason of each case that is not safe, by id.
        publish_closings: publishes how cases ended that left without a correction; `ack_closings` when it has.
        serve_requests: does what an operator asks for, if anything.
    """

    def __init__(
        self,
        *,
        committer: Committer,
        loop: Loop,
        barrier: Barrier,
        committed: Callable[[Sequence[Submission], Mapping[str, str]], None],
        publish_closings: Callable[[Sequence[Closing]], None],
        serve_requests: Callable[[], None],
    ) -> None:
        self._committer = committer
        self._loop = loop
        self._barrier = barrier
        self._committed = committed
        self._publish_closings = publish_closings
        self._serve_requests = serve_requests
        self._announcing = threading.Lock()  # held from a commit until its callback is scheduled on the loop
        self._publishing = False  # closings are on their way to the sinks; the thread alone touches it
        self.commits: GroupCommit[_Job] = GroupCommit(
            "edge-outbox-commit", self._flush, self._failed, idle_s=self._idle_s
        )

    def submit(self, submission: Submission) -> None:
        """Commit cases, then call `committed`."""
        self.commits.put(submission)

    def ack(self, answers: Mapping[str, bytes]) -> None:
        """Let cases leave whose answers the sinks have; answers by the id of their case."""
        self.commits.put(_Acked(answers, ()))

    def ack_closings(self, numbers: Sequence[int]) -> None:
        """Let closings leave whose final messages the sinks have, or that need none."""
        self.commits.put(_Acked({}, numbers))

    def save_state(self, name: str, value: bytes) -> None:
        """Write a small value down beside the cases."""
        self.commits.put(_Save(name, value))

    def load_state(self, name: str, then: Then) -> None:
        """Read a small value as soon as the outbox works; `then` is called on the loop."""
        self.commits.put(_Load(name, lambda value: self._loop.call_soon_threadsafe(lambda: then(value))))

    def wait_until_announced(self) -> None:
        """Wait until the commit under way is announced to the loop: what follows from it comes after it."""
        with self._announcing:
            pass

    # -- on the thread -----------------------------------------------------------------------------------------------

    def _idle_s(self) -> float:
        return min(LOOK_AGAIN_S, self._committer.wait_s()) if self._committer.failure_reason else LOOK_AGAIN_S

    def _flush(self, jobs: Sequence[_Job]) -> None:
        if submissions := [job for job in jobs if isinstance(job, Submission)]:
            with self._announcing:
                refused = self._committer.put([case for one in submissions for case in one.cases])
                self._loop.call_soon_threadsafe(lambda: self._committed(submissions, refused))
        self._barrier.call(lambda: self._after_commit(jobs))

    def _failed(self, jobs: Sequence[_Job], error: Exception) -> None:
        self._barrier.caught(error)
        submissions = [job for job in jobs if isinstance(job, Submission)]
        refused = {case.id: "outbox_error" for one in submissions for case in one.cases}
        self._loop.call_soon_threadsafe(lambda: self._committed(submissions, refused))

    def _after_commit(self, jobs: Sequence[_Job]) -> None:
        self._committer.retry()
        self._ack([job for job in jobs if isinstance(job, _Acked)])
        for job in jobs:
            if isinstance(job, _Save):
                self._committer.save_state(job.name, job.value)
            elif isinstance(job, _Load):
                self._committer.load_state(job.name, job.then)
        if self.commits.closing:
            return  # what is published now could not be acknowledged any more
        if not self._publishing and (closings := self._committer.closings(_CLOSINGS_AT_ONCE)):
            self._publishing = True
            self._loop.call_soon_threadsafe(lambda: self._publish_closings(closings))
        self._serve_requests()

    def _ack(self, acked: Sequence[_Acked]) -> None:
        answers: dict[str, bytes] = {}
        closings: list[int] = []
        for job in acked:
            answers |= job.answers
            closings += job.closings
        if closings:
            self._publishing = False  # the next ones may go
        self._committer.ack(answers, closings)
