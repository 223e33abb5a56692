"""The statements behind the outbox: what each move of a case does to the tables and to the draft of the ledger.

Everything here runs inside `Session.run`; what changes rows also runs inside `Session.transaction`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import orjson

from edge_runtime.store.durable.config import GROUP_BYTES, GROUP_CASES, PAGE_BYTES
from edge_runtime.store.durable.outbox.records import LAST_PRIORITY, TRUSTED_ATTEMPTS, HardCase
from edge_runtime.store.durable.outbox.schema import (
    INSERT_CASE,
    Damaged,
    Database,
    Ledger,
    case_row,
    public_id,
    stored_id,
)

_NAME_LIMIT = 512

_DUE_CONSIDERED = 4096
"""Of the cases due for another try, this many that waited longest compete by priority; bounds the cost of a `lease`."""

# Dead letters stay in `cases` and are stepped over here; max_dead_bytes bounds that walk.
_OLDEST = """SELECT seq, priority, id, stored_s FROM cases
    WHERE seq > ? AND NOT EXISTS (SELECT 1 FROM dead WHERE dead.seq = cases.seq) ORDER BY seq LIMIT ?"""
_LEAST_VALUABLE = """SELECT seq, priority, id, priority > ? OR (priority = ? AND value < ?) FROM cases
    WHERE NOT EXISTS (SELECT 1 FROM dead WHERE dead.seq = cases.seq) ORDER BY priority DESC, value, seq LIMIT ?"""
_QUEUE_NEW = "INSERT INTO ready SELECT priority, seq, length(meta) + length(body) FROM cases WHERE seq >= ?"
_READY = "SELECT priority, seq, size FROM ready ORDER BY priority, seq LIMIT ?"
_NEWEST = "SELECT priority, seq, size FROM ready WHERE priority = ? ORDER BY seq DESC LIMIT ?"
_DUE = "SELECT priority, seq, size, attempts, due_s FROM waiting WHERE due_s <= ? ORDER BY due_s, seq LIMIT ?"


_LARGEST = """SELECT max(size) FROM
    (SELECT size FROM ready UNION ALL SELECT size FROM waiting UNION ALL SELECT size FROM dead)"""


class Lease(NamedTuple):
    """A case in flight. Only in memory, so a restart ends all leases."""

    seq: int
    priority: int
    size: int
    attempts: int
    waited: bool
    """Its row is in `waiting` and not in `ready`."""
    due_s: float = 0.0
    """Since when it was due again, if it waited."""


class Queued(NamedTuple):
    """Position of a queued case."""

    seq: int
    priority: int
    id: str


def groups(cases: Sequence[HardCase]) -> Iterator[list[HardCase]]:
    """Cut into what one transaction may hold; a case larger than that goes alone."""
    group: list[HardCase] = []
    room = GROUP_BYTES
    for case in cases:
        size = len(case.body) + len(case.meta)
        if group and (len(group) == GROUP_CASES or size > room):
            yield group
            group, room = [], GROUP_BYTES
        group.append(case)
        room -= size
    if group:
        yield group


def is_valid(case: HardCase) -> bool:
    """Return whether a case can be stored as it is."""
    return (
        0 <= case.priority <= LAST_PRIORITY
        and math.isfinite(case.created + case.deadline_s + case.value)
        and 0 < len(case.id) <= _NAME_LIMIT
        and len(case.key) <= _NAME_LIMIT
        and (case.id.isascii() or _is_unicode(case.id))
        and (case.key.isascii() or _is_unicode(case.key))
    )


def _is_unicode(text: str) -> bool:
    """Return False for a lone surrogate, which JSON may spell out and UTF-8 cannot hold."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def pages_for(case: HardCase) -> float:
    """Pages that a case may come to use, never too few: the file's limit must not be met inside a commit.

    Source: https://www.sqlite.org/fileformat.html section 1.6, cells of a table leaf page and overflow pages.
    """
    name = 3 * (len(case.id) + len(case.key))  # UTF-8 takes up to three bytes for most of what a key may hold
    cell = len(case.body) + len(case.meta) + name + 100
    own = 1 / ((PAGE_BYTES - 8) // cell) if cell <= PAGE_BYTES - 35 else 2 + cell // (PAGE_BYTES - 4)
    return own + (2 * name + 100) / PAGE_BYTES  # entries of the two or three indexes, their pages half full


def free_pages(db: Database, limit: int) -> int:
    """Pages that may still be filled before `limit` are in use."""
    (pages,) = db.execute("PRAGMA page_count").fetchone()
    (unused,) = db.execute("PRAGMA freelist_count").fetchone()
    return int(limit - pages + unused)


def largest(db: Database) -> int:
    """Return the bytes of body and meta of the largest case that is in the outbox, queued or dead; 0 for none."""
    (size,) = db.execute(_LARGEST).fetchone()
    return int(size or 0)


def case_of(row: Sequence[Any], attempts: int) -> HardCase:
    """Read the case in a row of `cases`."""
    _, stored, key, created, deadline_s, priority, value, _, _, meta, body = row
    return HardCase(public_id(stored), key, created, deadline_s, priority, value, body, meta, attempts)


def digest_of(meta: bytes) -> int | None:
    """Return the digest of a case's window; None where its meta has none, as those of earlier releases."""
    try:
        plain = orjson.loads(meta)
    except orjson.JSONDecodeError:
        return None
    digest = plain.get("digest") if isinstance(plain, dict) else None
    return digest if isinstance(digest, int) else None


def is_other(known: bytes, case: HardCase) -> bool:
    """Return whether the case that this meta is of is another one than one with the same id."""
    digest = digest_of(known)
    return digest is not None and digest_of(case.meta) not in {None, digest}


def known(db: Database, case_id: str) -> bytes | None:
    """Return the meta of the case with this id, queued or dead; None where there is none in the outbox."""
    row = db.execute("SELECT meta FROM cases WHERE id = ?", (stored_id(case_id),)).fetchone()
    return None if row is None else bytes(row[0])


def newest(db: Database, limit: int) -> list[tuple[str, bytes]]:
    """Return the ids of the cases accepted last, each with its meta; those that cannot be read are left out."""
    rows = db.execute("SELECT id, meta FROM cases ORDER BY seq DESC LIMIT ?", (limit,)).fetchall()
    return [(public_id(one), meta) for one, meta in rows if isinstance(one, str) and isinstance(meta, bytes)]


def insert(db: Database, draft: Ledger, cases: Sequence[HardCase]) -> set[int]:
    """Accept cases.

    Returns:
        Indexes of those whose id was there already; they are not accepted again.
    """
    first = draft.next_seq
    now = draft.elapsed_s
    db.executemany(
        INSERT_CASE,
        [
            case_row(seq, stored_id(c.id), c.key, c.created, c.deadline_s, c.priority, c.value, now, c.meta, c.body)
            for seq, c in enumerate(cases, first)
        ],
    )
    db.execute(_QUEUE_NEW, (first,))
    (accepted,) = db.execute("SELECT changes()").fetchone()
    draft.next_seq += len(cases)
    draft.accepted += accepted
    draft.queued += accepted
    if accepted == len(cases):
        return set()
    kept = {seq for (seq,) in db.execute("SELECT seq FROM cases WHERE seq >= ?", (first,)).fetchall()}
    return {index for index in range(len(cases)) if first + index not in kept}


def forget(db: Database, draft: Ledger, queued: Sequence[Queued | Lease]) -> None:
    """Delete queued cases; the caller counts why."""
    db.executemany("DELETE FROM ready WHERE priority = ? AND seq = ?", [(case.priority, case.seq) for case in queued])
    db.executemany("DELETE FROM waiting WHERE seq = ?", [(case.seq,) for case in queued])
    db.executemany("DELETE FROM cases WHERE seq = ?", [(case.seq,) for case in queued])
    draft.queued -= len(queued)


def ack(db: Database, draft: Ledger, leases: Sequence[Lease]) -> None:
    """Delete delivered cases."""
    leave_queue(db, leases)
    db.executemany("DELETE FROM cases WHERE seq = ?", [(lease.seq,) for lease in leases])
    draft.queued -= len(leases)
    draft.delivered += len(leases)


def postpone(db: Database, draft: Ledger, leases: Sequence[Lease], delay_s: float, error: str) -> None:
    """Make cases due again later, with one failed attempt more."""
    due_s = draft.elapsed_s + max(0.0, delay_s)
    leave_queue(db, leases)
    db.executemany(
        "INSERT INTO waiting VALUES (?,?,?,?,?,?)",
        [(lease.seq, lease.priority, lease.size, due_s, lease.attempts + 1, error) for lease in leases],
    )


def leave_queue(db: Database, leases: Iterable[Lease]) -> None:
    """Delete the queue's rows of cases in flight, not the cases."""
    ready, waiting = [], []
    for lease in leases:
        if lease.waited:
            waiting.append((lease.seq,))
        else:
            ready.append((lease.priority, lease.seq))
    if ready:
        db.executemany("DELETE FROM ready WHERE priority = ? AND seq = ?", ready)
    if waiting:
        db.executemany("DELETE FROM waiting WHERE seq = ?", waiting)


def is_queued(db: Database, lease: Lease) -> bool:
    """Return whether a leased case is still where it was; a commit that reported an error may have happened."""
    if lease.waited:
        row = db.execute("SELECT attempts = ? FROM waiting WHERE seq = ?", (lease.attempts, lease.seq)).fetchone()
    else:
        row = db.execute("SELECT 1 FROM ready WHERE priority = ? AND seq = ?", (lease.priority, lease.seq)).fetchone()
    return row is not None and bool(row[0])


def oldest(db: Database, draft: Ledger, leased: set[int], limit: int) -> list[tuple[Queued, float]]:
    """Find the oldest queued cases that are not in flight, each with its `stored_s`."""
    rows = db.execute(_OLDEST, (draft.floor, limit + len(leased))).fetchall()
    draft.floor = rows[0][0] - 1 if rows else draft.next_seq - 1
    for _, _, stored, stored_s in rows:
        _expect(isinstance(stored, str) and isinstance(stored_s, float))
    found = [(Queued(seq, priority, public_id(stored)), stored_s) for seq, priority, stored, stored_s in rows]
    return [entry for entry in found if entry[0].seq not in leased][:limit]


def least_valuable(db: Database, leased: set[int], newcomer: HardCase) -> Queued | None:
    """Find the queued case worth least, if it is worth less than `newcomer`; never one in flight."""
    bounds = (newcomer.priority, newcomer.priority, newcomer.value, 1 + len(leased))
    for seq, priority, case_id, worth_less in db.execute(_LEAST_VALUABLE, bounds).fetchall():
        if seq not in leased:
            _expect(isinstance(case_id, str))
            return Queued(seq, priority, public_id(case_id)) if worth_less else None
    return None


def _expect(types_are_ours: bool) -> None:
    """SQLite keeps any type in any column, so a corrupt row may hold another one."""
    if not types_are_ours:
        raise Damaged("a row holds a value of the wrong type")


def choose(db: Database, now: float, leased: set[int], *, limit: int, max_bytes: int, live_share: float) -> list[Lease]:
    """Choose what the next `lease` gets; see `Outbox.lease` for the rules."""
    in_order = [
        Lease(seq, priority, size, 0, waited=False)
        for priority, seq, size in db.execute(_READY, (limit + len(leased),)).fetchall()
        if seq not in leased
    ]
    in_order += [
        Lease(seq, priority, size, attempts, True, due_s)
        for priority, seq, size, attempts, due_s in db.execute(_DUE, (now, _DUE_CONSIDERED + len(leased))).fetchall()
        if seq not in leased
    ]
    if not in_order:
        return []
    in_order.sort(key=_order)  # rules 1 and 2
    first = in_order[0]
    chosen = {first.seq: first}  # rule 1: nothing that comes later may hold it up for ever
    used = first.size
    live = int(limit * live_share)
    live_bytes = max_bytes * live_share
    for priority, seq, size in db.execute(_NEWEST, (first.priority, live + len(leased) + 1)).fetchall():  # rule 3
        if seq in leased or seq in chosen:
            continue
        live -= 1
        live_bytes -= size
        if live < 0 or live_bytes < 0 or len(chosen) == limit or used + size > max_bytes:
            break
        chosen[seq] = Lease(seq, priority, size, 0, waited=False)
        used += size
    for lease in in_order:  # rule 1
        if lease.seq in chosen:
            continue
        if len(chosen) == limit or used + lease.size > max_bytes:
            break
        chosen[lease.seq] = lease
        used += lease.size
    return sorted(chosen.values(), key=_order)


def read_cases(db: Database, leases: Sequence[Lease]) -> dict[int, Any]:
    """Rows of `cases` by sequence number.

    Raises:
        Damaged: the queue names a case that is not there, or not as the queue says.
    """
    marks = ",".join("?" * len(leases))
    query = f"SELECT *, length(meta) + length(body) FROM cases WHERE seq IN ({marks})"  # noqa: S608 - question marks
    found = {row[0]: row for row in db.execute(query, [lease.seq for lease in leases]).fetchall()}
    for lease in leases:
        row = found.get(lease.seq)
        if row is None or row[-1] != lease.size or row[5] != lease.priority:
            raise Damaged(f"the queue and case {lease.seq} contradict each other")
        found[lease.seq] = row[:-1]
    return found


def add_dead_letters(
    db: Database, draft: Ledger, leases: Sequence[Lease], reason: str, detail: str, *, stamp: float, max_bytes: int
) -> None:
    """Make cases that have left the queue dead letters, and drop the oldest dead letters beyond `max_bytes`."""
    db.executemany(
        "INSERT INTO dead VALUES (?,?,?,?,?,?)",
        [(lease.seq, lease.size, lease.attempts, stamp, reason, detail) for lease in leases],
    )
    draft.queued -= len(leases)
    draft.dead += len(leases)
    draft.dead_bytes += sum(lease.size for lease in leases)
    while draft.dead_bytes > max_bytes:
        seq, size = db.execute("SELECT seq, size FROM dead ORDER BY seq LIMIT 1").fetchone()
        remove_dead_letter(db, draft, seq, size)
        draft.dead_letters_full += 1


def remove_dead_letter(db: Database, draft: Ledger, seq: int, size: int) -> None:
    """Delete a dead letter; the caller counts why."""
    db.execute("DELETE FROM dead WHERE seq = ?", (seq,))
    db.execute("DELETE FROM cases WHERE seq = ?", (seq,))
    draft.dead -= 1
    draft.dead_bytes -= size


def _order(lease: Lease) -> tuple[bool, int, float, int]:
    """Cases that fail whenever they are asked come last, and in turn: else those accepted first hold up all others."""
    suspect = lease.attempts >= TRUSTED_ATTEMPTS
    return suspect, lease.priority, lease.due_s if suspect else 0.0, lease.seq
