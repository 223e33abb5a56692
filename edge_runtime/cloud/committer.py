"""Outbox committer: commits hard cases in groups, and drops and counts them while the disk rejects writes.

::

    accepting ── a group fails `attempts` times, or the outbox does not open at the start ──► failing
     ▲                                                                                          │
     └──── a small durable write works, tried after 0.1 s, 0.2 s, 0.4 s ... every 5 s ◄──────────┘

While it fails, nothing is accepted: the loop reads why (`Committer.failure_reason`) and counts cases as dropped;
those on their way are dropped and counted too. What was accepted before waits on the disk, and goes on where it was
when the disk works again. Why it is so: docs/decisions/0005-outbox-on-sqlite.md.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from threading import Event
from typing import Final

from edge_runtime.clock import Clock
from edge_runtime.errors import StoreError
from edge_runtime.metrics import Metrics
from edge_runtime.store.durable.outbox import Closing, HardCase, Outbox
from edge_runtime.store.durable.outbox.queries import groups

log = logging.getLogger(__name__)

AGAIN_S: Final = (0.1, 5.0)
"""First and longest wait before a disk that failed is tried again; doubled each time. No jitter: it is our own disk."""

Then = Callable[[bytes | None], None]


class Committer:
    """Writer of the cases that the loop hands over. Belongs to one thread; any may read `failure_reason`.

    Args:
        outbox: store of the cases; may be unopened, and fail to open.
        attempts: tries of a group before its cases are dropped; between them a moment for the disk.
        metrics: receives the gauge ``outbox_accepting``, and why cases were not accepted or left for others.
        clock: monotonic time for waiting.
        stopping: ends the waits.
        on_status: called with the reason when the outbox begins to fail, and with an empty one when it works again.
    """

    def __init__(
        self,
        outbox: Outbox,
        *,
        attempts: int,
        metrics: Metrics,
        clock: Clock,
        stopping: Event,
        on_status: Callable[[str], None],
    ) -> None:
        self._outbox = outbox
        self._attempts = attempts
        self._metrics = metrics
        self._clock = clock
        self._stopping = stopping
        self._on_status = on_status
        self._failures = 0  # since cases were last written down: a disk that is nearly full may take the smallest write
        self._again_at = 0.0
        self._answers: dict[str, bytes] = {}  # to cases that are still in the outbox
        self._published: list[int] = []  # closings that are still listed there
        self._unacked_warned = False
        self._loads: list[tuple[str, Then]] = []
        self.failure_reason = ""
        """Reason why nothing is accepted now; empty while it works."""
        metrics.gauges["outbox_accepting"] = 1.0

    def begin_failing(self, error: StoreError) -> None:
        """Drop and count what comes, and try the disk again until it works."""
        self.failure_reason = str(error)
        self._wait_longer()
        self._metrics.gauges["outbox_accepting"] = 0.0
        log.error(
            "outbox: stopped accepting hard cases, counting them as dropped until the disk works: error=%s", error
        )
        self._on_status(self.failure_reason)

    def put(self, cases: Sequence[HardCase]) -> dict[str, str]:
        """Commit cases.

        Returns:
            By the id of each case that was not committed, the drop reason to count it under.
        """
        refused: dict[str, str] = {}
        left = deque(groups(cases))  # as the outbox commits them: what one failure leaves open is one group
        for attempt in range(1, self._attempts + 1):
            if self.failure_reason:
                break
            try:
                self._put_groups(left, refused)
            except StoreError as error:
                log.debug("outbox: commit failed: attempt=%d error=%s", attempt, error)
                if attempt == self._attempts:
                    self.begin_failing(error)
                else:
                    self._stopping.wait(0.1 * attempt)
            else:
                self._failures = 0
                return refused
        dropped = [case.id for group in left for case in group]
        log.warning("outbox: dropped hard cases: count=%d reason=%s", len(dropped), self.failure_reason)
        return refused | dict.fromkeys(dropped, "outbox_error")

    def _put_groups(self, left: deque[list[HardCase]], refused: dict[str, str]) -> None:
        """Commit groups, and remove each from `left` once it is on the disk."""
        while left:
            result = self._outbox.put(left[0])
            left.popleft()
            refused |= {id_: f"outbox_{reason}" for id_, reason in result.refused.items()}
            self._metrics.counts["cases_repeated_total"] += len(result.duplicates) + len(result.repeated)
            self._metrics.dropped["outbox_evicted"] += len(result.evicted)

    def ack(self, answers: Mapping[str, bytes], published: Sequence[int]) -> None:
        """Remove from the outbox what the sinks have, now or as soon as the disk works.

        Until then the cases stay in flight, so that the cloud is not asked for them again, and no more closings are
        read. After a crash they go out again, with the same ids: a repeat, not a loss.

        Args:
            answers: published answers, as bytes by case id.
            published: numbers of closings.
        """
        self._answers |= answers
        self._published += published
        if self.failure_reason or not (self._answers or self._published):
            return
        try:
            if self._answers:
                self._outbox.ack(list(self._answers), self._answers)
                self._answers = {}
            if self._published:
                self._outbox.published(self._published)
                self._published = []
        except StoreError as error:
            if not self._unacked_warned:
                log.warning("outbox: could not remove answered cases yet: count=%d error=%s", len(self._answers), error)
            self._unacked_warned = True
        else:
            self._unacked_warned = False

    def closings(self, limit: int) -> list[Closing]:
        """Read closings whose final messages the sinks do not have yet; none while the disk fails."""
        if self.failure_reason or self._published or not self._outbox.unpublished:
            return []
        try:
            return self._outbox.closings(limit)
        except StoreError as error:
            log.debug("outbox: could not read final messages: error=%s", error)
            return []

    def save_state(self, name: str, value: bytes) -> None:
        """Write a small value; a failure costs no more than the value."""
        if self.failure_reason:
            return
        try:
            self._outbox.put_state(name, value)
        except StoreError as error:
            log.warning("outbox: could not save state: name=%s error=%s", name, error)

    def load_state(self, name: str, then: Then) -> None:
        """Read a small value, as soon as the outbox works."""
        self._loads.append((name, then))

    def wait_s(self) -> float:
        """Return the seconds until `retry` is worth calling while the disk fails; 0 when it is now."""
        return max(0.0, self._again_at - self._clock.monotonic())

    def retry(self) -> None:
        """Try whether the disk works again, when it is time; to be called now and then."""
        if self.failure_reason and self.wait_s() == 0:
            try:
                self._outbox.put_state("tried", b"")  # a write: a disk may be readable, and full
            except StoreError as error:
                log.debug("outbox: disk failed again: error=%s", error)
                self._wait_longer()
                return
            self.failure_reason = ""
            self._metrics.gauges["outbox_accepting"] = 1.0
            log.warning("outbox: resumed accepting hard cases, the disk works again")
            self._on_status("")
        if self._loads and not self.failure_reason:
            self._load_states()

    def _load_states(self) -> None:
        loads, self._loads = self._loads, []
        for name, then in loads:
            try:
                value = self._outbox.get_state(name)
            except StoreError:
                self._loads.append((name, then))
            else:
                then(value)

    def _wait_longer(self) -> None:
        first, longest = AGAIN_S
        self._again_at = self._clock.monotonic() + min(longest, first * 2.0 ** min(self._failures, 16))
        self._failures += 1
