"""File of the reading log: accepted readings whose windows are not finished, flushed before they are acknowledged.

Tables::

    turns      one row for each iteration of the loop that took readings; `settled` is what was known then
    snapshot   one row: all that a fresh start needs in place of the iterations up to `seq`, which are gone

A commit appends one row to the end of one table, so it writes one page of the log (or as many as the readings need).
The page is written again by the next commit, into a log that is used over and over: no file grows, no block is
allocated, and a flush has no metadata to write. Every row carries a CRC-32; the first that fails it ends the reading
log.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import sqlite3
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from edge_runtime.errors import StoreError, StoreFull, StoreInUse, StoreUnusable
from edge_runtime.store.durable.outbox.open_db import close_quietly, explain, fold_log, give_up, sync_folder
from edge_runtime.store.durable.outbox.path_checks import identity_of, is_removed, refuse_foreign
from edge_runtime.store.durable.outbox.schema import Connect, Database, connect_sqlite, memory_for
from edge_runtime.store.durable.sqlite_errors import Code, is_damage, primary_code

log = logging.getLogger(__name__)

APPLICATION_ID = 0x45444A4C
"""``EDJL``, in the database header."""
PAGE_BYTES = 1024
"""A row is small; its commit writes whole pages behind 24 bytes each: with 4096 a lone reading dirties two blocks
of the disk and costs 9.2 KB, with 1024 6.3 KB (512: 6.6 KB; 2048: 7.2 KB; measured on ext4)."""
_CHECKPOINT_PAGES = 1024
"""Log pages after which SQLite copies them into the database: a megabyte, so that the log stays small."""

_TABLES = (
    "CREATE TABLE turns (seq INTEGER PRIMARY KEY, settled INTEGER NOT NULL, crc INTEGER NOT NULL, body BLOB NOT NULL)",
    """CREATE TABLE snapshot (one INTEGER PRIMARY KEY CHECK (one = 1), seq INTEGER NOT NULL, contract TEXT NOT NULL,
    crc INTEGER NOT NULL, body BLOB NOT NULL)""",
    f"PRAGMA application_id = {APPLICATION_ID}",
)
# Whatever a corrupt row says that its values are: text that is not UTF-8 would end the reading.
_SNAPSHOT = """SELECT CAST(seq AS INTEGER), CAST(contract AS BLOB), CAST(crc AS INTEGER), CAST(body AS BLOB)
    FROM snapshot"""
_TURNS = """SELECT seq, CAST(settled AS INTEGER), CAST(crc AS INTEGER), CAST(body AS BLOB) FROM turns
    WHERE seq > ? ORDER BY seq"""


class LogEntry(NamedTuple):
    """Readings that one iteration of the loop has accepted."""

    seq: int
    body: bytes


class Recovered(NamedTuple):
    """State that the run before has left."""

    contract: str
    """Of the snapshot; empty if there is none."""
    snapshot: bytes
    """Empty if there is none."""
    seq: int
    """Of the last iteration, or of the snapshot where that is the last."""
    entries: list[LogEntry]
    """After the snapshot, in order."""
    acked: int
    """Windows of iterations up to this one are answered and the answers safe, as far as rows after the snapshot say."""
    damaged: int
    """Rows that cannot be used."""


def _checksum(seq: int, beside: int | str, body: bytes) -> int:
    """Of a row; `beside` is how much was acked, or a snapshot's contract."""
    return zlib.crc32(body, zlib.crc32(f"{seq} {beside}".encode()))


class ReadingLogFile:
    """One owner, one thread at a time. After an error the next call opens the file again.

    1. The lock outlives the connection, so that no other process has the file in between.
    2. It is opened for writing first: SQLite would open one that it may only read, and fail later.
    3. Without our number, one with our tables is damaged, one with others is left alone, and an empty one becomes ours.

    Args:
        path: the database; its folder must exist.
        max_bytes: what the database may have.
        connect: source of connections; a test passes one on a disk of its own.
    """

    def __init__(self, path: Path, max_bytes: int, connect: Connect = connect_sqlite) -> None:
        self._path = path
        self._max_bytes = max_bytes
        self._connect = connect
        self._owner: int | None = None
        self._db: Database | None = None
        self._identity: tuple[int, int] | None = None  # of the file that is open
        self._headless = False  # a new file, in the place of one that turned out to be damaged while it was written to

    def read(self) -> Recovered:
        """Read what the run before has left. A file that is damaged is set aside, and nothing of it is left.

        Raises:
            StoreInUse, StoreUnusable: another process has the file, it is another program's; its folder is missing or
                forbidden.
            StoreError: the disk is full, read-only or failing; that may pass.
        """
        try:
            try:
                return self._read(self._open())
            except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
                self._abandon()
                if not is_damage(error):
                    raise self._explain(error) from error
                return self._set_aside(error)
            except MemoryError as error:
                self._abandon()
                if memory_for(2 * self._max_bytes):
                    return self._set_aside(sqlite3.DatabaseError("a row claims more bytes than the file has"))
                raise StoreError(f"no memory left to read the reading log {self._path}") from error
        except OSError as error:
            self._abandon()
            raise explain(error, f"the reading log {self._path}") from error

    def _set_aside(self, damage: Exception) -> Recovered:
        aside = self._path.with_name(f"{self._path.name}.damaged")
        for suffix in ("", "-wal"):
            source = self._path.with_name(self._path.name + suffix)
            if source.exists():
                source.replace(aside.with_name(aside.name + suffix))
        sync_folder(self._path.parent)
        log.error("the reading log is damaged (%s), what it held is lost; the file is %s", damage, aside)
        return Recovered("", b"", 0, [], 0, 1)

    def append(self, entries: Sequence[LogEntry], acked: int) -> None:
        """Make iterations durable.

        Raises:
            StoreFull: no room on the disk, or under `max_bytes`.
            StoreError: the file cannot be used; a damaged one is set aside, and the new one begins with `replace`.
        """
        self._notice_removal()
        if self._headless:
            raise StoreError(f"the reading log {self._path} is recreated: a snapshot comes first")
        rows = [(entry.seq, acked, _checksum(entry.seq, acked, entry.body), entry.body) for entry in entries]
        self._transact([("INSERT INTO turns VALUES (?,?,?,?)", row) for row in rows])

    def replace(self, contract: str, snapshot: LogEntry) -> None:
        """Put a snapshot in the place of all iterations: it is the state after the last of them.

        Raises:
            StoreFull, StoreError: as `append`; what was there before is there still.
        """
        self._notice_removal()
        crc = _checksum(snapshot.seq, contract, snapshot.body)
        self._transact([
            ("DELETE FROM turns", ()),  # those, too, that damage has hidden behind the last one
            ("DELETE FROM snapshot", ()),
            ("INSERT INTO snapshot VALUES (1,?,?,?,?)", (snapshot.seq, contract, crc, snapshot.body)),
        ])  # fmt: skip
        self._headless = False

    def close(self) -> None:
        """Fold the log into the database and give the file back. Twice does no harm."""
        db, self._db = self._db, None
        if db is not None:
            with contextlib.suppress(sqlite3.Error):
                if db.execute("PRAGMA freelist_count").fetchone()[0]:
                    db.execute("VACUUM")  # free pages hold readings that are of no use any more
            close_quietly(db)
        if self._owner is not None:
            os.close(self._owner)
            self._owner = None

    def _notice_removal(self) -> None:
        """Begin a new file where this one was deleted; it begins with a snapshot."""
        if self._db is None or not is_removed(self._path, self._identity):
            return
        log.error("the reading log %s was removed while it was in use; it is written again", self._path)
        close_quietly(self._db)
        self._db = None
        if self._owner is not None:
            os.close(self._owner)
            self._owner = None
        self._headless = True

    def _transact(self, statements: Sequence[tuple[str, tuple[object, ...]]]) -> None:
        try:
            try:
                db = self._open()
                db.execute("BEGIN IMMEDIATE")
                for statement, parameters in statements:
                    db.execute(statement, parameters)
                db.execute("COMMIT")
            except sqlite3.Error as error:
                self._abandon()  # rolls back
                if is_damage(error):
                    self._headless = True
                    self._set_aside(error)
                raise self._explain(error) from error
        except OSError as error:
            self._abandon()
            raise explain(error, f"the reading log {self._path}") from error

    def _open(self) -> Database:
        if self._owner is None:  # rule 1
            self._owner = self._lock()
        if self._db is None:
            new = not self._path.exists()
            # rule 2
            os.close(os.open(self._path, os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT | os.O_EXCL if new else 0), 0o600))
            if new:
                sync_folder(self._path.parent)
            self._db = db = self._connect(self._path)
            self._identity = identity_of(self._path)
            db.execute("PRAGMA locking_mode = EXCLUSIVE")
            db.execute(f"PRAGMA page_size = {PAGE_BYTES}")
            if db.execute("PRAGMA journal_mode = WAL").fetchone()[0] != "wal":
                raise StoreUnusable(f"the file system of the reading log {self._path} allows no write-ahead log")
            db.execute("PRAGMA synchronous = FULL")
            db.execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_PAGES}")
            db.execute(f"PRAGMA max_page_count = {self._max_bytes // PAGE_BYTES}")
            db.execute("PRAGMA secure_delete = OFF")
            db.execute("PRAGMA temp_store = MEMORY")
            (ours,) = db.execute("PRAGMA application_id").fetchone()
            if ours != APPLICATION_ID:  # rule 3
                tables = {name for (name,) in db.execute("SELECT name FROM sqlite_schema").fetchall()}
                if {"turns", "snapshot"} & tables:  # rule 3
                    raise sqlite3.DatabaseError("its header has another application's number")
                if tables:  # rule 3
                    raise StoreUnusable(
                        f"{self._path} is another program's database, not a reading log; choose another path"
                    )
                db.execute("BEGIN IMMEDIATE")
                for statement in _TABLES:
                    db.execute(statement)
                db.execute("COMMIT")
            fold_log(self._path, db, _CHECKPOINT_PAGES)
        return self._db

    def _read(self, db: Database) -> Recovered:
        found = db.execute(_SNAPSHOT).fetchone()
        contract, snapshot, at = "", b"", 0
        if found is not None:
            at, named, crc, snapshot = found
            contract = (named or b"").decode("utf-8", "replace")
            if snapshot is None or crc != _checksum(at, contract, snapshot):
                raise sqlite3.DatabaseError("the snapshot fails its checksum")
        entries: list[LogEntry] = []
        rows = db.execute(_TURNS, (at,)).fetchall()
        acked = 0
        for seq, known, crc, body in rows:
            # Rows of version 0.1 were written without `settled` in their checksum.
            whole = body is not None and crc in {_checksum(seq, known, body), _checksum(seq, "", body)}
            if not whole or (at and seq != at + len(entries) + 1):
                log.error("reading log: damaged: unusable=%d rows=%d", len(rows) - len(entries), len(rows))
                break
            entries.append(LogEntry(seq, body))
            acked = max(acked, known or 0)
        last = rows[-1][0] if rows else at
        return Recovered(contract, snapshot, last, entries, acked, len(rows) - len(entries))

    def _lock(self) -> int:
        """Lock a file beside the database, as the outbox does (`edge_runtime.store.durable.outbox.open_db.lock`)."""
        if not self._path.parent.is_dir():
            raise StoreUnusable(
                f"the reading log's folder {self._path.parent} does not exist; create it or change the path"
            )
        refuse_foreign(self._path)
        descriptor = os.open(f"{self._path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(descriptor)
            raise StoreInUse(f"the reading log {self._path} is in use by another process; stop it") from error
        return descriptor

    def _abandon(self) -> None:
        """After a failed flush Linux calls the lost pages clean: the log is written over itself first, and flushed."""
        db, self._db = self._db, None
        if db is not None:
            give_up(self._path, db)

    def _explain(self, error: Exception) -> StoreError:
        if primary_code(error) == Code.FULL:
            return StoreFull(f"no room for the reading log {self._path}: free space on its disk")
        return StoreError(f"the reading log {self._path} failed ({error}); check its disk")
