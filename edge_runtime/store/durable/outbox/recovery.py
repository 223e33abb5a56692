"""After damage: read what can still be read, build a new file from it, set the damaged one aside.

A crash at any point leaves either the old file or the new one under the outbox's name. The new one is built complete
under ``.rebuilt``; linking the old one to ``.damaged-N`` is the decision to switch, and `finish` repeats the rest.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from edge_runtime.store.durable.config import PAGE_BYTES, OutboxConfig
from edge_runtime.store.durable.outbox import closings
from edge_runtime.store.durable.outbox.open_db import close_quietly, has_our_schema, log_of, open_database, sync_folder
from edge_runtime.store.durable.outbox.schema import (
    INSERT_CASE,
    Connect,
    Damaged,
    Database,
    Ledger,
    is_intact,
    public_id,
)

_KEEP = 2
"""Damaged files kept for inspection; older ones are removed, since a failing card must not fill itself."""

_UNREADABLE = (sqlite3.Error, UnicodeDecodeError, MemoryError)
"""Errors that reading a damaged file raises: the second where SQLite's message, or a text, holds bytes that are no
UTF-8, the third where a row claims gigabytes. The caller of a salvage has seen that there is memory for a row."""

_ROWS = 32
_MAX_FAILURES = 50_000
"""Reads that may fail before a table is given up: more than any damaged page can spoil, below a second of work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """One damaged file, and what became of its cases."""

    cause: str
    set_aside: Path
    recovered: int
    """Cases carried over: queued and dead letters."""
    lost: int | None
    """Accepted cases that could not be read, counted as dropped for ``damaged``; None where the old count is lost."""


def finish(path: Path) -> None:
    """Complete, or throw away, a salvage that a crash interrupted."""
    rebuilt = rebuilt_of(path)
    if rebuilt.exists():
        decided = not path.exists() or any(aside.samefile(path) for aside in set_aside(path))
        if decided:
            _switch(path, rebuilt)
        else:
            remove(rebuilt)


def salvage(config: OutboxConfig, connect: Connect, cause: str) -> Damage:
    """Replace the damaged file at `config.path`. The caller holds the lock and no connection.

    Raises:
        sqlite3.Error, OSError: no room or no luck with the new file; the old one is still in place.
    """
    path = config.path
    rebuilt = rebuilt_of(path)
    remove(rebuilt)
    new, ledger = open_database(replace(config, path=rebuilt), connect)
    try:
        recovered, lost = _carry_over(path, connect, new, ledger, rebuilt, config.remembered)
        new.execute("PRAGMA synchronous = FULL")
        new.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    finally:
        close_quietly(new)
    return Damage(cause=cause, set_aside=replace_damaged(path), recovered=recovered, lost=lost)


def replace_damaged(path: Path) -> Path:
    """Put what was rebuilt in the place of the damaged file at `path`; return where that one was set aside.

    Raises:
        OSError: the disk fails; the old one is still in place, or `finish` does the rest.
    """
    rebuilt = rebuilt_of(path)
    _flush(rebuilt)
    aside = _next_aside(path)
    if log_of(path).exists():
        os.link(log_of(path), log_of(aside))
    os.link(path, aside)
    sync_folder(path.parent)
    _switch(path, rebuilt)
    for old in set_aside(path)[:-_KEEP]:
        remove(old)
    return aside


def _switch(path: Path, rebuilt: Path) -> None:
    # The old log must go first: SQLite would apply it to whatever database it finds beside it.
    log_of(path).unlink(missing_ok=True)
    sync_folder(path.parent)
    rebuilt.replace(path)
    sync_folder(path.parent)


def _carry_over(
    path: Path, connect: Connect, new: Database, ledger: Ledger, rebuilt: Path, remembered: int
) -> tuple[int, int | None]:
    """Copy every intact row of the damaged file into `new`; return how many, and how many are lost."""
    new.execute("PRAGMA synchronous = OFF")  # one flush at the end; until then the old file is the outbox
    old = _open_damaged(path, connect)
    if old is None and _is_ours_after_page_one(path):
        new.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        _lend_first_page(rebuilt, path)
        old = _open_damaged(path, connect)
    if old is None:
        return 0, None
    try:
        known = True
        try:
            before = Ledger.read(old)
            top = before.next_seq
        except (Damaged, *_UNREADABLE):
            known = False
            before = Ledger()
            top = _highest(old)
        _copy_rows(old, new, top)
        _close_lost(old, new, ledger, closings.ClosingIndex(remembered))
    finally:
        close_quietly(old)
    ledger.count_rows(new)
    recovered = ledger.queued + ledger.dead
    gone = before.accepted - before.delivered - sum(before.dropped().values()) - recovered
    if gone < 0:  # rows that the lost end of the log had already ended are back: at least once, not exactly once
        before.accepted -= gone
        gone = 0
    highest, latest = new.execute("SELECT coalesce(max(seq), 0), coalesce(max(stored_s), 0.0) FROM cases").fetchone()
    before.next_seq = max(before.next_seq, highest + 1)
    before.elapsed_s = max(before.elapsed_s, latest)  # no case is younger than now
    before.damaged += gone
    before.write(new)
    return recovered, gone if known else None


def _close_lost(old: Database, new: Database, ledger: Ledger, memory: closings.ClosingIndex) -> None:
    """Close the cases whose rows are lost and whose ids the index still has; inside no transaction."""
    lost: list[str] = []
    after = ""
    try:
        while found := old.execute(_INDEXED_IDS, (after, _ROWS)).fetchall():
            names = [name for (name,) in found if isinstance(name, str)]
            lost += [name for name in names if not new.execute("SELECT 1 FROM cases WHERE id = ?", (name,)).fetchone()]
            if len(names) < len(found) or names[-1] <= after:
                break  # not an index of ids any more
            after = names[-1]
    except _UNREADABLE:
        pass  # whatever was found until then is told
    new.execute("BEGIN IMMEDIATE")
    closings.write(new, ledger, [closings.of_id(public_id(name)) for name in dict.fromkeys(lost)], memory)
    new.execute("COMMIT")


_INDEXED_IDS = "SELECT id FROM cases INDEXED BY sqlite_autoindex_cases_1 WHERE id > ? ORDER BY id LIMIT ?"


def _copy_rows(old: Database, new: Database, top: int) -> None:
    for some in _cases(old, top):
        new.execute("BEGIN IMMEDIATE")
        for row in filter(is_intact, some):
            seq, priority, size = row[0], row[5], len(row[9]) + len(row[10])
            new.execute(INSERT_CASE, row)
            if not new.execute("SELECT changes()").fetchone()[0]:
                continue  # the same id twice: a page that is in two places of the tree
            if buried := _side_row(old, "SELECT attempts, buried, reason, detail FROM dead WHERE seq = ?", seq, _DEAD):
                new.execute("INSERT INTO dead VALUES (?,?,?,?,?,?)", (seq, size, *buried))
            elif failed := _side_row(old, "SELECT due_s, attempts, error FROM waiting WHERE seq = ?", seq, _WAITING):
                new.execute("INSERT INTO waiting VALUES (?,?,?,?,?,?)", (seq, priority, size, *failed))
            else:
                new.execute("INSERT INTO ready VALUES (?,?,?)", (priority, seq, size))
        new.execute("COMMIT")
    closings.carry_over(old, new, _UNREADABLE)
    for name, value in _state(old):
        new.execute("INSERT OR IGNORE INTO state VALUES (?,?)", (name, value))


_DEAD = (int, float, str, str)
_WAITING = (float, int, str)


def _side_row(old: Database, query: str, seq: int, types: tuple[type, ...]) -> Any:
    """Read what is known of a case beside its row; None where nothing is, and the case is queued as fresh."""
    try:
        row = old.execute(query, (seq,)).fetchone()
    except _UNREADABLE:
        return None
    return row if row and all(isinstance(value, kind) for value, kind in zip(row, types, strict=True)) else None


def _state(old: Database) -> list[tuple[str, bytes]]:
    try:
        rows = old.execute("SELECT name, value FROM state").fetchall()
    except _UNREADABLE:
        return []
    return [(name, value) for name, value in rows if isinstance(name, str) and isinstance(value, bytes)]


def _cases(db: Database, top: int) -> Iterator[list[Any]]:
    """Rows of `cases`, some at a time, some perhaps twice.

    1. Damaged pages are stepped over by halving the range that fails; after `_MAX_FAILURES` the rest is given up.
    2. A range is read by rising `seq`; where that ends, by falling `seq` from the other end, because a row whose number
       was corrupt looks like the end of its range to a scan that comes from below.
    """
    failures = 0
    ranges = [(1, top)]
    while ranges and failures < _MAX_FAILURES:  # rule 1
        low, high = ranges.pop()
        rows, sound = _some(db, _RISING, low, high)
        yield rows
        if sound and len(rows) == _ROWS:
            ranges.append((rows[-1][0] + 1, high))
            continue
        if rows:
            low = rows[-1][0] + 1
        if sound:  # rule 2
            rows, sound = _some(db, _FALLING, low, high)
            yield rows
            if rows:
                high = rows[-1][0]
                if sound:
                    ranges.append((low, high))
                    continue
        if not sound:  # rule 1
            failures += 1
            if high - low > 1:
                middle = (low + high) // 2
                ranges += [(middle, high), (low, middle)]


_RISING = "SELECT * FROM cases WHERE seq >= ? AND seq < ? ORDER BY seq LIMIT ?"
_FALLING = "SELECT * FROM cases WHERE seq >= ? AND seq < ? ORDER BY seq DESC LIMIT ?"


def _some(db: Database, query: str, low: int, high: int) -> tuple[list[Any], bool]:
    """Rows of a range up to the first that does not belong there, and whether that is all which could be read."""
    try:
        rows = db.execute(query, (low, high, _ROWS)).fetchall()
    except _UNREADABLE:
        return [], False
    rising = query is _RISING
    for at, row in enumerate(rows):
        seq = row[0]
        if not isinstance(seq, int) or not low <= seq < high:
            return rows[:at], False
        low, high = (seq + 1, high) if rising else (low, seq)
    return rows, True


def _highest(db: Database) -> int:
    """One above the highest sequence number that can be found."""
    highest = 0
    for table in ("cases", "ready"):
        try:
            (found,) = db.execute(f"SELECT coalesce(max(seq), 0) FROM {table}").fetchone()  # noqa: S608 - named above
        except _UNREADABLE:
            continue
        highest = max(highest, found)
    return highest + 1


def _open_damaged(path: Path, connect: Connect) -> Database | None:
    db = connect(path)
    try:
        db.execute("PRAGMA locking_mode = EXCLUSIVE")
        if has_our_schema(db):
            return db
    except _UNREADABLE:
        pass  # the same as a wrong schema: page one is of no use
    close_quietly(db)
    return None


def _is_ours_after_page_one(path: Path) -> bool:
    """Return whether pages two and three are the roots of `ledger` and `cases`, and not another program's."""
    with path.open("rb") as file:
        file.seek(PAGE_BYTES)
        ledger, cases = file.read(1), file.read(PAGE_BYTES)[-1:]
    return ledger == b"\x0d" and cases in {b"\x0d", b"\x05"}  # leaf, interior: fileformat.html section 1.6


def _lend_first_page(fresh: Path, damaged: Path) -> None:
    """Put a new file's first page into the damaged one.

    Page one holds the header and the table definitions, and both are the same in every outbox of one schema; with it
    gone no row could be found, with a fresh one nearly all can.
    """
    with fresh.open("rb") as file:
        page = bytearray(file.read(PAGE_BYTES))
    pages = damaged.stat().st_size // PAGE_BYTES
    page[28:32] = pages.to_bytes(4, "big")  # size of the database, see https://www.sqlite.org/fileformat.html 1.3.8
    page[32:40] = bytes(8)  # no free list: nothing will be written
    with damaged.open("r+b") as file:
        file.write(page)


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def rebuilt_of(path: Path) -> Path:
    """Return where the file is built that takes the place of a damaged one."""
    return path.with_name(path.name + ".rebuilt")


def set_aside(path: Path) -> list[Path]:
    """Damaged files beside `path`, oldest first."""
    start = f"{path.name}.damaged-"
    numbers = [entry.name.removeprefix(start) for entry in path.parent.glob(f"{path.name}.damaged-*")]
    return [path.with_name(f"{start}{n}") for n in sorted(int(n) for n in numbers if n.isdecimal())]


def _next_aside(path: Path) -> Path:
    taken = set_aside(path)
    last = int(taken[-1].name.rpartition("-")[2]) if taken else 0
    return path.with_name(f"{path.name}.damaged-{last + 1}")


def remove(path: Path) -> None:
    """Remove a database and its log."""
    for victim in (path, log_of(path)):
        victim.unlink(missing_ok=True)
