"""Outbox that sends what other outboxes left: of workers that are not there any more, after a change of their number.

Nothing is copied from file to file: a case is taken, answered and acknowledged where it lies, so it is neither lost nor
asked twice whenever the power goes. New cases go into the own outbox alone.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from edge_runtime.clock import Clock
from edge_runtime.errors import StoreError
from edge_runtime.store.durable.config import OutboxConfig
from edge_runtime.store.durable.outbox.outbox import Outbox
from edge_runtime.store.durable.outbox.records import Closing, HardCase, OutboxCounts
from edge_runtime.store.durable.outbox.schema import Connect, connect_sqlite

log = logging.getLogger(__name__)


class AdoptingOutbox(Outbox):
    """An `Outbox`, and others whose cases it hands out in turns with its own until they are drained.

    An adopted file that is in use, damaged or unreadable is left alone until the next start; so are its dead letters.

    Args:
        config: limits and policy, of the own one and of the others.
        clock: see `Outbox`.
        connect: see `Outbox`.
    """

    def __init__(self, config: OutboxConfig, clock: Clock, connect: Connect = connect_sqlite) -> None:
        super().__init__(config, clock, connect)
        self._adopts = config, clock
        self._others: list[Outbox] = []  # replaced as a whole: other threads may go over it meanwhile
        self._own_turn = True
        self._listed: Outbox | None = None  # whose closings were read last; None: the own ones

    def adopt(self, paths: Sequence[Path]) -> None:
        """Send what these files hold, too; before `open`."""
        config, clock = self._adopts
        self._others = [Outbox(replace(config, path=path), clock) for path in paths]

    def open(self) -> None:
        """Open the own file, and those of the others that can be; see `Outbox.open`."""
        super().open()
        for one in self._others:
            try:
                waits = one.counts()
            except StoreError as error:
                self._leave(one, str(error))
            else:
                if waits.queued or waits.unpublished:
                    log.info(
                        "outbox: adopted cases of a worker that is gone: path=%s queued=%d", one.path, waits.queued
                    )
                else:
                    self._forget(one)

    def close(self) -> None:
        """Close all of them. Twice does no harm."""
        super().close()
        for one in self._others:
            one.close()

    def lease(self, limit: int, max_bytes: int) -> list[HardCase]:
        """Lease cases of one of the files, in turns; see `Outbox.lease`."""
        if not self._others:
            return super().lease(limit, max_bytes)
        own_first, self._own_turn = self._own_turn, not self._own_turn
        cases = super().lease(limit, max_bytes) if own_first else self._take_adopted(limit, max_bytes)
        return cases or (self._take_adopted(limit, max_bytes) if own_first else super().lease(limit, max_bytes))

    def _take_adopted(self, limit: int, max_bytes: int) -> list[HardCase]:
        for one in self._others:
            try:
                if cases := one.lease(limit, max_bytes):
                    return cases
                self._leave_if_drained(one)
            except StoreError as error:
                self._leave(one, str(error))
        return []

    def ack(self, ids: Iterable[str], answers: Mapping[str, bytes] | None = None) -> int:
        """Delete answered cases, wherever they are in flight; see `Outbox.ack`."""
        wanted = list(ids)
        done = sum(one.ack(theirs, answers) for one in self._others if (theirs := one.in_flight(wanted)))
        return done + super().ack(wanted, answers)

    def retry(self, ids: Iterable[str], delay_s: float, error: str) -> int:
        """Put off cases, wherever they are in flight; see `Outbox.retry`."""
        wanted = list(ids)
        done = sum(one.retry(theirs, delay_s, error) for one in self._others if (theirs := one.in_flight(wanted)))
        return done + super().retry(wanted, delay_s, error)

    def move_to_dead_letters(self, ids: Iterable[str], reason: str, detail: str) -> int:
        """Move cases to the dead letters of the file that they lie in; see `Outbox.move_to_dead_letters`."""
        wanted = list(ids)
        done = sum(
            one.move_to_dead_letters(theirs, reason, detail)
            for one in self._others
            if (theirs := one.in_flight(wanted))
        )
        return done + super().move_to_dead_letters(wanted, reason, detail)

    def release(self, ids: Iterable[str]) -> int:
        """Give cases back untried; see `Outbox.release`."""
        wanted = list(ids)
        return sum(one.release(wanted) for one in self._others) + super().release(wanted)

    @property
    def unpublished(self) -> int:
        """Number of closings that the sinks do not have yet, of all files."""
        return super().unpublished + sum(one.unpublished for one in self._others)

    def closings(self, limit: int) -> list[Closing]:
        """Read closings of one of the files; the same ones until `published` is called."""
        self._listed = None
        if found := super().closings(limit):
            return found
        for one in self._others:
            if one.unpublished and (found := one.closings(limit)):
                self._listed = one
                return found
        return []

    def published(self, seqs: Sequence[int]) -> None:
        """Take closings off the list that `closings` read them from."""
        if self._listed is None:
            super().published(seqs)
        else:
            self._listed.published(seqs)

    def counts(self) -> OutboxCounts:
        """Return the sums over the own file and those that are not drained yet."""
        return added([super().counts(), *(one.counts() for one in self._others)])

    def claims(self) -> list[tuple[str, int | None]]:
        """Return the ids that any of the files knows; see `Outbox.claims`."""
        return [claim for one in self._others for claim in one.claims()] + super().claims()

    def _leave_if_drained(self, one: Outbox) -> None:
        left = one.counts()
        if not left.queued and not left.unpublished:
            self._forget(one)
            log.info("outbox: nothing waits any more in the outbox of a worker that is gone: path=%s", one.path)

    def _leave(self, one: Outbox, why: str) -> None:
        log.warning("outbox: left the outbox of a worker that is gone until the next start: %s", why)
        self._forget(one)

    def _forget(self, one: Outbox) -> None:
        self._others = [other for other in self._others if other is not one]
        one.close()


def added(counts: Sequence[OutboxCounts]) -> OutboxCounts:
    """Add up the counts of several outboxes; the oldest age is that of the oldest."""

    def total(name: str) -> int:
        return sum(getattr(one, name) for one in counts)

    return OutboxCounts(
        accepted=total("accepted"),
        delivered=total("delivered"),
        queued=total("queued"),
        dead=total("dead"),
        dropped={reason: sum(one.dropped[reason] for one in counts) for reason in counts[0].dropped},
        in_flight=total("in_flight"),
        refused=dict(sum((Counter(one.refused) for one in counts), Counter())),
        duplicates=total("duplicates"),
        repeated=total("repeated"),
        unpublished=total("unpublished"),
        used_bytes=total("used_bytes"),
        oldest_age_s=max(one.oldest_age_s for one in counts),
    )
