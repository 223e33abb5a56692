"""`Outbox`: the bounded, durable queue between the gate and the cloud.

What it promises:

1. A case is **accepted** when `Outbox.put` returns: it survives a crash and a power cut from then on.
2. ``accepted == delivered + queued + dropped (by reason) + dead``, at every moment and after every crash: the counters
   are written in the same transaction as the rows.
3. The database never exceeds `OutboxConfig.max_bytes`, the log beside it stays below `OutboxConfig.log_limit`; both
   reuse their space.
4. A case counts once: one that is offered again under its id counts as repeated, while it is here and for as long as
   the outbox remembers how it ended (the last `OutboxConfig.remembered` cases). One with that id and another digest is
   another case: it is refused, and never answered with what the first was given.
5. A case that leaves without an answer leaves a `Closing`, written in that transaction and kept until sinks have it.
6. Order and age follow sequence numbers and powered time, never the wall clock: a clock that jumps expires nothing.
   Time with the power off does not count towards age, as a board without a battery clock cannot tell how long it was.
7. A case is accepted only while the disk has room to delete it again (`edge_runtime.store.durable.outbox.room`).
8. An I/O error refuses the call that met it and nothing else; the next call opens the file again.
9. A damaged file is set aside, what can be read is carried over, the rest is counted (`Damage`).

Known limits: damage inside the *log* looks to SQLite like a log that ends there, so cases accepted after that point and
not yet copied into the database (at most `OutboxConfig.log_limit`) are lost unseen. A disk that lies about flushing can
lose what it said it had.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

from edge_runtime.clock import Clock
from edge_runtime.errors import one_line
from edge_runtime.store.durable.config import GROUP_CASES, PAGE_BYTES, OutboxConfig
from edge_runtime.store.durable.outbox import closings, queries
from edge_runtime.store.durable.outbox.queries import Lease, Queued
from edge_runtime.store.durable.outbox.records import DELIVERED, Closing, DeadLetter, HardCase, OutboxCounts, PutResult
from edge_runtime.store.durable.outbox.recovery import Damage
from edge_runtime.store.durable.outbox.room import make_room
from edge_runtime.store.durable.outbox.schema import (
    READ_CASE,
    Connect,
    Damaged,
    Database,
    Ledger,
    connect_sqlite,
    is_intact,
    stored_id,
)
from edge_runtime.store.durable.outbox.session import Session

log = logging.getLogger(__name__)

_SPARE_PAGES = 32
"""Kept free of cases, so that acknowledging, retrying and dead letters never lack a page in a full outbox. More pages
than such a transaction touches besides those of its cases."""
_HOUSEKEEPING_S = 1.0
_EXPIRE_AT_ONCE = 256
_SAVE_TIME_S = 600.0
"""An idle outbox writes its powered time this often: what a crash can add to a case's life, 144 small writes a day."""
_DEAD_AT_ONCE = 16
_TEXT_LIMIT = 500

_DEAD_PAGE = "SELECT seq, size, attempts, buried, reason, detail FROM dead WHERE seq > ? ORDER BY seq LIMIT ?"
_DEAD_ONE = """SELECT seq, size, attempts, buried, reason, detail FROM dead
    WHERE seq = (SELECT seq FROM cases WHERE id = ?)"""

Work = Callable[[Database, Ledger, list[Lease]], None]


class Outbox:
    """A bounded, durable queue of hard cases in one SQLite file. Safe to call from several threads.

    A committer thread calls `put` with groups of cases (one transaction and one flush for a group), a forwarder thread
    calls `lease`, then `ack`, `retry`, `move_to_dead_letters` or `release`; one lock serialises them. The thread that
    infers never calls it.

    Making one touches no disk. `open` (or ``with``) opens the file and says what is wrong with it; every other method
    opens it when needed, so an outbox whose disk is full or gone at the start heals on its own.

    Every method that needs the file raises StoreFull when the disk is full, StoreCorrupt while a damaged file cannot be
    replaced, and StoreError when the file cannot be used. What was accepted before is not affected.

    Args:
        config: limits and policy.
        clock: monotonic time for ages and delays; wall time only as a stamp on dead letters.
        connect: source of connections; a test passes one on a disk of its own.
        on_damage: called when a damaged file was set aside, with the outbox locked: it must return soon.
    """

    def __init__(
        self,
        config: OutboxConfig,
        clock: Clock,
        connect: Connect = connect_sqlite,
        on_damage: Callable[[Damage], None] | None = None,
    ) -> None:
        self._config = config
        self._clock = clock
        self._file = Session(config, clock, connect, self._opened, on_damage)
        self._memory = closings.ClosingIndex(config.remembered)
        self._leases: dict[str, Lease] = {}
        self._refused: Counter[str] = Counter()
        self._duplicates = 0
        self._next_housekeeping = 0.0
        self._largest = 0.0  # pages of the largest case: the log must have room for them when it is deleted
        self._page_limit = config.max_bytes // PAGE_BYTES - _SPARE_PAGES

    def __enter__(self) -> Outbox:
        self.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def open(self) -> None:
        """Open the file now.

        Raises:
            StoreInUse, StoreUnusable: the file is in use or another program's, its folder is missing or forbidden.
            StoreError: the disk is full, read-only or failing; that may pass.
        """
        self._file.run(lambda _: None)

    def close(self) -> None:
        """Fold the log into the database and give the file back. Leases end. Twice does no harm."""
        with self._file.lock:
            self._leases.clear()
            self._file.close()

    @property
    def path(self) -> Path:
        """Path of the file."""
        return self._config.path

    @property
    def damage(self) -> list[Damage]:
        """Every damaged file that this object has set aside."""
        return list(self._file.damage)

    # Accepting --------------------------------------------------------------------------------------------------------

    def put(self, cases: Sequence[HardCase]) -> PutResult:
        """Accept cases durably: one transaction, several where the group is over 256 cases or 1 MiB.

        Args:
            cases: cases in the order in which they are to be accepted.

        Returns:
            What became of each. Only the ids in `accepted`, `duplicates` and `repeated` are safe.

        Raises:
            StoreError: nothing is promised about these cases; put them again, repeats are recognised.
        """
        result = PutResult()
        for group in queries.groups(cases):
            part = self._file.run(partial(self._put, group))
            result.accepted += part.accepted
            result.duplicates += part.duplicates
            result.repeated += part.repeated
            result.refused.update(part.refused)
            result.evicted += part.evicted
        return result

    def _put(self, group: list[HardCase], db: Database) -> PutResult:
        self._keep_house(db)
        result = PutResult()
        cases: list[HardCase] = []
        most = self._config.case_limit
        total = 0
        for case in self._without_repeats(group, result, db):
            size = len(case.body) + len(case.meta)
            if size > most:
                result.refused[case.id] = "too_large"
            elif queries.is_valid(case):
                cases.append(case)
                total += size
            else:
                result.refused[case.id] = "invalid"
        # Far above what they can need, and soon computed; near the limit each case is looked at.
        pages = 2 * total / PAGE_BYTES + 4 * len(cases)
        tight = pages > queries.free_pages(db, self._page_limit)  # rule 3
        if tight and self._config.when_full == "reject":
            cases = self._that_fit(db, cases, result)  # before the transaction: an outbox at its limit writes nothing
        if cases:
            self._require_room(db, pages, cases)  # rule 7
            with self._file.transaction(db) as draft:  # rules 1 and 2
                if tight and self._config.when_full != "reject":
                    cases = self._make_room(db, draft, cases, result)
                known = queries.insert(db, draft, cases)  # rule 4
                for index in sorted(known):
                    self._note_known(db, cases[index], result)
                draft.repeated += len(result.duplicates)
            result.accepted = [case.id for index, case in enumerate(cases) if index not in known]
        elif result.duplicates:  # rule 4
            with self._file.transaction(db) as draft:
                draft.repeated += len(result.duplicates)
        self._refused.update(result.refused.values())
        self._duplicates += len(result.duplicates)
        return result

    def _require_room(self, db: Database, pages: float, cases: Sequence[HardCase]) -> None:
        """Refuse cases, as many as are written in these pages, that the disk would have no room to delete again."""
        largest = max(self._largest, *map(queries.pages_for, cases))
        if not make_room(self._config.path, db, pages + 2 * (_SPARE_PAGES + largest)):
            raise self._file.full()
        self._largest = largest

    def _without_repeats(self, group: list[HardCase], result: PutResult, db: Database) -> list[HardCase]:
        """Return the cases that have not left already; of the others, publish the closings again."""
        if not any(case.id in self._memory for case in group):
            return group
        found = {case.id: closing for case in group if (closing := self._memory.find(db, case.id)) is not None}
        for case in group:
            if case.id in found and queries.is_other(found[case.id].meta, case):
                result.refused[case.id] = "taken"
                del found[case.id]
        if found:
            with self._file.transaction(db) as draft:
                closings.publish_again(db, draft, list(found.values()))
                draft.repeated += len(found)
            result.repeated += found
        return [case for case in group if case.id not in found and case.id not in result.refused]

    def _note_known(self, db: Database, case: HardCase, result: PutResult) -> bool:
        """Note a case whose id is in the outbox: the same one, or another; returns whether there is one."""
        meta = queries.known(db, case.id)
        if meta is not None and queries.is_other(meta, case):
            result.refused[case.id] = "taken"
        elif meta is not None:
            result.duplicates.append(case.id)
        return meta is not None

    def _that_fit(self, db: Database, cases: list[HardCase], result: PutResult) -> list[HardCase]:
        """Return the cases that fit as things are; refuse the others."""
        free: float = queries.free_pages(db, self._page_limit)
        fitting = []
        for case in cases:
            need = queries.pages_for(case)
            if self._note_known(db, case, result):
                continue
            if need > free:
                result.refused[case.id] = "full"
            else:
                free -= need
                fitting.append(case)
        return fitting

    def _make_room(self, db: Database, draft: Ledger, cases: list[HardCase], result: PutResult) -> list[HardCase]:
        """Drop queued cases by the policy, and return those that fit then; refuse the others."""
        fitting = []
        reserved = 0.0
        for case in cases:
            if self._note_known(db, case, result):
                continue
            need = queries.pages_for(case)
            while (lacks := reserved + need > queries.free_pages(db, self._page_limit)) and (
                victim := self._victim(db, draft, case)
            ):
                self._drop(db, draft, [victim], "evicted")
                result.evicted.append(victim.id)
            if lacks:
                result.refused[case.id] = "full"
            else:
                reserved += need
                fitting.append(case)
        return fitting

    def _victim(self, db: Database, draft: Ledger, newcomer: HardCase) -> Queued | None:
        """Find the queued case that gives way, never one in flight; None when there is none."""
        if self._config.when_full == "drop_least_valuable":
            return queries.least_valuable(db, self._leased(), newcomer)
        found = queries.oldest(db, draft, self._leased(), 1)
        return found[0][0] if found else None

    def _keep_house(self, db: Database) -> None:
        """Drop what is too old, and now and then save how much time has passed."""
        now = self._file.elapsed()
        if now < self._next_housekeeping:
            return
        ledger = self._file.ledger
        found = queries.oldest(db, ledger, self._leased(), _EXPIRE_AT_ONCE)
        expired = [case for case, stored_s in found if stored_s < now - self._config.max_age_s]
        if expired or now - ledger.elapsed_s > _SAVE_TIME_S:
            with self._file.transaction(db) as draft:
                self._drop(db, draft, expired, "expired")
        if len(expired) < _EXPIRE_AT_ONCE:
            self._next_housekeeping = now + _HOUSEKEEPING_S

    def _drop(
        self, db: Database, draft: Ledger, queued: Sequence[Queued], reason: Literal["evicted", "expired"]
    ) -> None:
        """Delete cases that leave without an answer, count them, and write their closings."""
        ended = closings.of_cases(db, [case.seq for case in queued], reason)
        queries.forget(db, draft, queued)
        closings.write(db, draft, ended, self._memory)
        setattr(draft, reason, getattr(draft, reason) + len(queued))

    # Forwarding -------------------------------------------------------------------------------------------------------

    def lease(self, limit: int, max_bytes: int) -> list[HardCase]:
        """Lease cases that are due, for sending.

        1. By priority, then by order of acceptance; the first one always, whatever its size.
        2. Cases that have failed `TRUSTED_ATTEMPTS` times come after all others and in turn, or those accepted first
           would hold up the rest for ever.
        3. Of the most urgent priority due, the newest never-tried cases get `OutboxConfig.live_share` of `limit` and of
           `max_bytes`, so that a backlog does not delay fresh cases: as long as fewer arrive between two calls than
           that share, each goes out with the next call.

        Args:
            limit: most cases.
            max_bytes: most bytes of body and meta together; a single case that is larger is still taken, alone.

        Returns:
            Cases in that order. They stay in the outbox, and are not taken again until they are ended
            by `ack`, `retry`, `move_to_dead_letters` or `release`, or until the process ends.
        """
        return self._file.run(partial(self._take, limit, max_bytes)) if limit > 0 else []

    def _take(self, limit: int, max_bytes: int, db: Database) -> list[HardCase]:
        self._keep_house(db)
        if self._file.ledger.queued <= len(self._leases):
            return []
        try:
            chosen = queries.choose(
                db,
                self._file.elapsed(),
                self._leased(),
                limit=limit,
                max_bytes=max_bytes,
                live_share=self._config.live_share,
            )
        except TypeError as error:
            raise Damaged("a row of the queue holds values of the wrong type") from error
        found = queries.read_cases(db, chosen)
        corrupt = [lease for lease in chosen if not is_intact(found[lease.seq])]
        if corrupt:
            with self._file.transaction(db) as draft:
                ended = closings.of_damaged(db, [lease.seq for lease in corrupt])
                queries.forget(db, draft, corrupt)
                closings.write(db, draft, ended, self._memory)
                draft.damaged += len(corrupt)
            log.error("%d hard cases in the outbox fail their checksum and are dropped as damaged", len(corrupt))
        cases = []
        for lease in chosen:
            if lease not in corrupt:
                case = queries.case_of(found[lease.seq], lease.attempts)
                self._leases[case.id] = lease
                cases.append(case)
        return cases

    def ack(self, ids: Iterable[str], answers: Mapping[str, bytes] | None = None) -> int:
        """Delete cases that the cloud has answered and whose answers the sinks have.

        Args:
            ids: cases in flight; others are ignored.
            answers: published answers, as bytes by case id: published again if the case is repeated.

        Returns:
            How many of them were in flight.
        """

        def work(db: Database, draft: Ledger, leases: list[Lease]) -> None:
            ended = closings.of_cases(db, [lease.seq for lease in leases], DELIVERED)
            queries.ack(db, draft, leases)
            closings.write(db, draft, closings.answered(ended, answers or {}), self._memory)

        return self._end_leases(ids, work)

    def retry(self, ids: Iterable[str], delay_s: float, error: str) -> int:
        """Put off cases that failed and may succeed later.

        With `OutboxConfig.max_attempts` reached, a case becomes a dead letter with the reason ``attempts`` instead.

        Args:
            ids: cases in flight; others are ignored.
            delay_s: powered seconds until they are due again, whatever the wall clock does.
            error: what went wrong; kept as one line of at most 500 characters.

        Returns:
            How many of them were in flight.
        """
        text = one_line(error, _TEXT_LIMIT)
        most = self._config.max_attempts

        def work(db: Database, draft: Ledger, leases: list[Lease]) -> None:
            spent = [lease for lease in leases if most and lease.attempts + 1 >= most]
            queries.postpone(db, draft, [lease for lease in leases if lease not in spent], delay_s, text)
            self._add_dead_letters(
                db, draft, [lease._replace(attempts=lease.attempts + 1) for lease in spent], "attempts", text
            )

        return self._end_leases(ids, work)

    def move_to_dead_letters(self, ids: Iterable[str], reason: str, detail: str) -> int:
        """Move cases that will never succeed to the dead letters.

        Args:
            ids: cases in flight; others are ignored.
            reason: short word, for example ``rejected``.
            detail: what the cloud said; kept as one line of at most 500 characters.

        Returns:
            How many of them were in flight.
        """

        def work(db: Database, draft: Ledger, leases: list[Lease]) -> None:
            self._add_dead_letters(db, draft, leases, one_line(reason, _TEXT_LIMIT), one_line(detail, _TEXT_LIMIT))

        return self._end_leases(ids, work)

    def release(self, ids: Iterable[str]) -> int:
        """Give these back untried, as if they had not been taken. Writes nothing.

        Returns:
            How many were in flight.
        """
        with self._file.lock:
            return sum(self._leases.pop(case_id, None) is not None for case_id in set(ids))

    def in_flight(self, ids: Iterable[str]) -> list[str]:
        """Return which of these are in flight: taken, and not ended."""
        return [case_id for case_id in ids if case_id in self._leases]

    def _end_leases(self, ids: Iterable[str], work: Work) -> int:
        wanted = list(dict.fromkeys(ids))
        parts = [wanted[at : at + GROUP_CASES] for at in range(0, len(wanted), GROUP_CASES)]
        return sum(self._file.run(partial(self._end_some_leases, part, work)) for part in parts)

    def _end_some_leases(self, ids: list[str], work: Work, db: Database) -> int:
        leases = {case_id: self._leases[case_id] for case_id in ids if case_id in self._leases}
        pages = sum(lease.size for lease in leases.values()) / PAGE_BYTES + 4 * len(leases) + _SPARE_PAGES
        if not make_room(self._config.path, db, pages) and len(leases) > 1:  # each leaves room for the next
            half = len(ids) // 2
            return sum(self._end_some_leases(part, work, db) for part in (ids[:half], ids[half:]))
        if leases:
            with self._file.transaction(db) as draft:
                work(db, draft, list(leases.values()))
            for case_id in leases:
                del self._leases[case_id]
        return len(leases)

    def _add_dead_letters(self, db: Database, draft: Ledger, leases: list[Lease], reason: str, detail: str) -> None:
        queries.leave_queue(db, leases)
        closings.write(db, draft, closings.of_cases(db, [lease.seq for lease in leases], reason), self._memory)
        queries.add_dead_letters(
            db, draft, leases, reason, detail, stamp=self._clock.wall(), max_bytes=self._config.max_dead_bytes
        )

    def _leased(self) -> set[int]:
        return {lease.seq for lease in self._leases.values()}

    def _opened(self, db: Database) -> None:
        self._memory.load(db)
        self._largest = queries.largest(db) / PAGE_BYTES + 2
        self._leases = {case_id: lease for case_id, lease in self._leases.items() if queries.is_queued(db, lease)}

    # Dead letters -----------------------------------------------------------------------------------------------------

    def dead_letters(self) -> Iterator[DeadLetter]:
        """Read dead letters, oldest first, a few at a time so that no other caller waits long.

        One that fails its checksum is dropped, counted as ``damaged``, and left out.
        """
        after = 0
        while page := self._file.run(partial(self._dead_page, after)):
            yield from (letter for _, letter in page if letter is not None)
            after = page[-1][0]

    def dead_letter(self, case_id: str) -> DeadLetter | None:
        """Read the dead letter with this id; None if there is none."""
        return self._file.run(partial(self._dead_one, case_id))

    def requeue(self, ids: Iterable[str]) -> int:
        """Queue dead letters again, as the newest cases and with no failed attempts.

        Returns:
            How many of the ids were dead letters.
        """
        return sum(self._file.run(partial(self._requeue, case_id)) for case_id in ids)

    def discard(self, ids: Iterable[str]) -> int:
        """Drop dead letters for good; counted as ``discarded``.

        Returns:
            How many of the ids were dead letters.
        """
        return sum(self._file.run(partial(self._discard, case_id)) for case_id in ids)

    def fold(self) -> None:
        """Copy the log into the database and empty it: bodies of cases that have left stand nowhere after that."""
        self._file.run(lambda db: db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall())

    def _dead_page(self, after: int, db: Database) -> list[tuple[int, DeadLetter | None]]:
        page = db.execute(_DEAD_PAGE, (after, _DEAD_AT_ONCE)).fetchall()
        return [(row[0], self._letter(db, row)) for row in page]

    def _dead_one(self, case_id: str, db: Database) -> DeadLetter | None:
        row = db.execute(_DEAD_ONE, (stored_id(case_id),)).fetchone()
        return None if row is None else self._letter(db, row)

    def _letter(self, db: Database, row: Any) -> DeadLetter | None:
        seq, size, attempts, buried, reason, detail = row
        case = db.execute(READ_CASE, (seq,)).fetchone()
        if case is not None and is_intact(case):
            return DeadLetter(queries.case_of(case, attempts), reason, detail, buried)
        with self._file.transaction(db) as draft:
            queries.remove_dead_letter(db, draft, seq, size)
            draft.damaged += 1
        log.error("a dead letter in the outbox fails its checksum and is dropped as damaged")
        return None

    def _requeue(self, case_id: str, db: Database) -> bool:
        letter = self._dead_one(case_id, db)
        if letter is None:
            return False
        seq, size, *_ = db.execute(_DEAD_ONE, (stored_id(case_id),)).fetchone()
        with self._file.transaction(db) as draft:
            queries.remove_dead_letter(db, draft, seq, size)
            queries.insert(db, draft, [letter.case])
            draft.accepted -= 1  # it was accepted when it first came
        return True

    def _discard(self, case_id: str, db: Database) -> bool:
        row = db.execute(_DEAD_ONE, (stored_id(case_id),)).fetchone()
        if row is None:
            return False
        with self._file.transaction(db) as draft:
            queries.remove_dead_letter(db, draft, row[0], row[1])
            draft.discarded += 1
        return True

    # How cases ended --------------------------------------------------------------------------------------------------

    @property
    def unpublished(self) -> int:
        """Number of closings that the sinks do not have yet; as of the last commit, without a look at the file."""
        return self._file.ledger.unpublished

    @property
    def accepted(self) -> int:
        """Number of cases accepted so far, over all runs; as of the last commit, without a look at the file."""
        return self._file.ledger.accepted

    def closings(self, limit: int) -> list[Closing]:
        """Read closings that the sinks do not have yet, oldest first; the same ones until `published` is called.

        One that fails its checksum is dropped and left out.
        """
        return self._file.run(partial(self._closings, limit))

    def _closings(self, limit: int, db: Database) -> list[Closing]:
        found, damaged = closings.unpublished(db, limit)
        if damaged:
            with self._file.transaction(db) as draft:
                closings.published(db, draft, damaged, self._memory)
            log.error("%d final messages in the outbox fail their checksum and are dropped", len(damaged))
        return found

    def published(self, seqs: Sequence[int]) -> None:
        """Take closings that the sinks have off the list."""

        def work(db: Database) -> None:
            with self._file.transaction(db) as draft:
                closings.published(db, draft, seqs, self._memory)

        self._file.run(work)

    def claims(self) -> list[tuple[str, int | None]]:
        """Return the ids of the last cases and of those remembered, each with its digest; None where it has none."""

        def read(db: Database) -> list[tuple[str, bytes]]:
            return queries.newest(db, self._config.remembered) + closings.remembered(db)

        return [(one, queries.digest_of(meta)) for one, meta in self._file.run(read)]

    # Beside the queue -------------------------------------------------------------------------------------------------

    def get_state(self, name: str) -> bytes | None:
        """Read a value kept by `put_state`; None if there is none."""
        row = self._file.run(lambda db: db.execute("SELECT value FROM state WHERE name = ?", (name,)).fetchone())
        return None if row is None else bytes(row[0])

    def put_state(self, name: str, value: bytes) -> None:
        """Keep a small value (at most 4 KiB) durably in the same file, for example the gate's budget.

        Raises:
            ValueError: the value is larger than that.
        """
        if len(value) > PAGE_BYTES:
            raise ValueError(f"a state value may have {PAGE_BYTES} bytes, not {len(value)}")

        def write(db: Database) -> None:
            with self._file.transaction(db):
                db.execute("INSERT OR REPLACE INTO state VALUES (?,?)", (name, value))

        self._file.run(write)

    def counts(self) -> OutboxCounts:
        """Return the ledger and levels, as of now."""
        return self._file.run(self._counts)

    def _counts(self, db: Database) -> OutboxCounts:
        ledger = self._file.ledger
        first = queries.oldest(db, ledger, set(), 1)
        return OutboxCounts(
            accepted=ledger.accepted,
            delivered=ledger.delivered,
            queued=ledger.queued,
            dead=ledger.dead,
            dropped=ledger.dropped(),
            in_flight=len(self._leases),
            refused=dict(self._refused),
            duplicates=self._duplicates,
            repeated=ledger.repeated,
            unpublished=ledger.unpublished,
            used_bytes=(self._page_limit - queries.free_pages(db, self._page_limit)) * PAGE_BYTES,
            oldest_age_s=self._file.elapsed() - first[0][1] if first else 0.0,
        )
