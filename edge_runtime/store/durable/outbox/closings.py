"""Closings: how each case ended that has left the queue, published at least once and remembered for repeats.

Tables::

    closed        one row per ending, the last `remembered` of them and those that the sinks do not have yet
    unpublished   which of them the sinks do not have yet

A closing is written in the transaction that takes its case out of the queue, so that a crash leaves both or neither.
One of a case that was answered needs no publication (its correction was published before), until the case is offered
again: then the same closing goes out again, and the cloud is not asked.

What changes rows runs inside `Session.transaction`.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import orjson

from edge_runtime.key_table import KeyTable
from edge_runtime.store.durable.outbox.queries import digest_of
from edge_runtime.store.durable.outbox.records import DELIVERED, Closing
from edge_runtime.store.durable.outbox.schema import Database, Ledger, public_id, stored_id


class ClosingIndex:
    """Index of the last closings: where each stands in the file. A hint: what the file says at that place decides.

    Args:
        size: closings that the file remembers.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self._places: KeyTable[str, int] = KeyTable(2 * size)

    def load(self, db: Database) -> None:
        """Read all from a file just opened."""
        self._places.clear()
        for seq, crc, body in db.execute("SELECT seq, crc, body FROM closed ORDER BY seq").fetchall():
            if (closing := _unpack(seq, crc, body)) is not None:
                self.note(closing)

    def note(self, closing: Closing) -> None:
        """Remember one; the oldest beyond twice `size` are forgotten."""
        self._places[closing.id] = closing.seq

    def __contains__(self, case_id: str) -> bool:
        return case_id in self._places

    def find(self, db: Database, case_id: str) -> Closing | None:
        """Find the last closing of a case; None where there is none, or the case is in the queue."""
        seq = self._places.get(case_id)
        if seq is None or db.execute(_IS_QUEUED, (stored_id(case_id),)).fetchone():
            return None
        row = db.execute("SELECT crc, body FROM closed WHERE seq = ?", (seq,)).fetchone()
        closing = _unpack(seq, *row) if row else None
        return closing if closing is not None and closing.id == case_id else None


_IS_QUEUED = "SELECT 1 FROM cases WHERE id = ? AND NOT EXISTS (SELECT 1 FROM dead WHERE dead.seq = cases.seq)"


def of_cases(db: Database, seqs: Iterable[int], reason: str) -> list[Closing]:
    """Make closings of cases that are still there; not numbered yet."""
    found = [db.execute("SELECT id, key, created, meta FROM cases WHERE seq = ?", (seq,)).fetchone() for seq in seqs]
    return [Closing(0, public_id(row[0]), row[1], row[2], reason, bytes(row[3])) for row in found if row]


def of_damaged(db: Database, seqs: Iterable[int]) -> list[Closing]:
    """Make closings of cases that fail their checksum; only an id that its index confirms is believed."""
    closings = []
    for seq in seqs:
        (stored,) = db.execute("SELECT id FROM cases WHERE seq = ?", (seq,)).fetchone()
        if isinstance(stored, str) and db.execute("SELECT seq FROM cases WHERE id = ?", (stored,)).fetchone() == (seq,):
            closings.append(of_id(public_id(stored)))
    return closings


def of_id(case_id: str) -> Closing:
    """Make the closing of a case of which nothing but its id can be read."""
    return Closing(0, case_id, case_id.rpartition("@")[0], 0.0, "damaged", b"")


def answered(closings: Sequence[Closing], answers: Mapping[str, bytes]) -> list[Closing]:
    """Mark closings as delivered, each with the answer that its case was given, and the digest of the case."""
    return [one._replace(reason=DELIVERED, meta=_digested(answers.get(one.id, b""), one.meta)) for one in closings]


def _digested(answer: bytes, meta: bytes) -> bytes:
    digest = digest_of(meta)
    return answer if digest is None or not answer else b'{"digest":%d,' % digest + answer[1:]


def remembered(db: Database) -> list[tuple[str, bytes]]:
    """Return the ids of all closings, each with its meta."""
    rows = db.execute("SELECT seq, crc, body FROM closed ORDER BY seq").fetchall()
    return [(one.id, one.meta) for row in rows if (one := _unpack(*row)) is not None]


def write(db: Database, draft: Ledger, closings: Sequence[Closing], memory: ClosingIndex) -> None:
    """Write closings: number and remember them, and list for publication all but those of answered cases."""
    if not closings:
        return
    (last,) = db.execute("SELECT coalesce(max(seq), 0) FROM closed").fetchone()
    numbered = [one._replace(seq=seq) for seq, one in enumerate(closings, last + 1)]
    db.executemany("INSERT INTO closed VALUES (?,?,?)", [_pack(one) for one in numbered])
    publish_again(db, draft, [one for one in numbered if one.reason != DELIVERED])
    forgotten = (last - memory.size, last - memory.size + len(numbered))
    db.execute(f"DELETE FROM closed WHERE seq > ? AND seq <= ? {_UNLESS_UNPUBLISHED}", forgotten)  # noqa: S608
    for one in numbered:
        memory.note(one)


_UNLESS_UNPUBLISHED = "AND NOT EXISTS (SELECT 1 FROM unpublished WHERE unpublished.seq = closed.seq)"


def publish_again(db: Database, draft: Ledger, closings: Sequence[Closing]) -> None:
    """List closings for publication; those that say nothing, or are listed already, are left out."""
    for one in closings:
        if one.reason != DELIVERED or one.meta:
            db.execute("INSERT OR IGNORE INTO unpublished VALUES (?)", (one.seq,))
            draft.unpublished += db.execute("SELECT changes()").fetchone()[0]


def unpublished(db: Database, limit: int) -> tuple[list[Closing], list[int]]:
    """Read the oldest that the sinks do not have yet, and the numbers of those that are damaged."""
    found = {row[0]: _unpack(*row) for row in db.execute(_UNPUBLISHED, (limit,)).fetchall()}
    return [one for one in found.values() if one is not None], [seq for seq, one in found.items() if one is None]


_UNPUBLISHED = "SELECT seq, crc, body FROM unpublished LEFT JOIN closed USING (seq) ORDER BY seq LIMIT ?"


def published(db: Database, draft: Ledger, seqs: Iterable[int], memory: ClosingIndex) -> None:
    """Take these, which the sinks have, off the list; delete what is older than what is remembered."""
    (last,) = db.execute("SELECT coalesce(max(seq), 0) FROM closed").fetchone()
    for seq in seqs:
        db.execute("DELETE FROM unpublished WHERE seq = ?", (seq,))
        draft.unpublished -= db.execute("SELECT changes()").fetchone()[0]
        if seq <= last - memory.size:
            db.execute("DELETE FROM closed WHERE seq = ?", (seq,))


def carry_over(old: Database, new: Database, unreadable: tuple[type[Exception], ...]) -> None:
    """Copy what can be read of a damaged file; inside no transaction."""
    try:
        rows = old.execute("SELECT seq, crc, body FROM closed").fetchall()
        listed = {seq for (seq,) in old.execute("SELECT seq FROM unpublished").fetchall()}
    except unreadable:
        return
    intact = [row for row in rows if _unpack(*row) is not None]
    new.execute("BEGIN IMMEDIATE")
    new.executemany("INSERT OR IGNORE INTO closed VALUES (?,?,?)", intact)
    new.executemany("INSERT OR IGNORE INTO unpublished VALUES (?)", [(row[0],) for row in intact if row[0] in listed])
    new.execute("COMMIT")


def _pack(closing: Closing) -> tuple[int, int, bytes]:
    head = orjson.dumps([closing.id, closing.key, closing.created, closing.reason])
    body = head + b"\n" + closing.meta
    return closing.seq, _checksum(closing.seq, body), body


def _unpack(seq: Any, crc: Any, body: Any) -> Closing | None:
    """None for a row that is not what was written."""
    if not isinstance(seq, int) or not isinstance(body, bytes) or _checksum(seq, body) != crc:
        return None
    head, _, meta = body.partition(b"\n")
    case_id, key, created, reason = orjson.loads(head)
    return Closing(seq, case_id, key, created, reason, meta)


def _checksum(seq: int, body: bytes) -> int:
    return zlib.crc32(body, zlib.crc32(b"%d" % seq))
