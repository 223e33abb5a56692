"""Opening the outbox's file: one owner, safe creation, checks, upgrade. What fails here is never a surprise later.

Beside ``outbox.db`` there may lie ``-wal`` (SQLite's log), ``.lock`` (held while a process owns the outbox),
``.rebuilt`` (a salvage in progress) and ``.damaged-N`` (what a salvage set aside).
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import sqlite3
from pathlib import Path

from edge_runtime.base.system.fs_errors import NOT_THE_DISK
from edge_runtime.errors import StoreError, StoreInUse, StoreUnusable
from edge_runtime.store.durable.config import PAGE_BYTES, OutboxConfig
from edge_runtime.store.durable.outbox.path_checks import refuse_foreign
from edge_runtime.store.durable.outbox.schema import (
    ADDED_LATER,
    APPLICATION_ID,
    BY_VALUE,
    UPGRADES,
    Connect,
    Damaged,
    Database,
    Ledger,
)

_COPY_BYTES = 1 << 20


def explain(error: OSError, what: str) -> StoreError:
    """Translate the system's refusal into an error of the store.

    Args:
        error: error of a call on the store's file or folder.
        what: the store, for the message, such as ``the outbox /data/outbox.db``.
    """
    if error.errno in NOT_THE_DISK:
        return StoreUnusable(f"cannot use {what}: {error.strerror}; check its path, owner and permissions")
    if error.errno == errno.EROFS:
        return StoreError(
            f"cannot use {what}: its file system is read-only; a failing card does that, or how it is mounted"
        )
    return StoreError(f"cannot use {what}: {error.strerror}; check its disk")


def lock(path: Path) -> int:
    """Become the only owner of the outbox at `path`.

    A lock file of its own and not SQLite's lock: it must cover the time before SQLite opens the file and the time in
    which a damaged file is replaced, and two owners in one process exclude each other too (POSIX locks would not).

    Returns:
        A descriptor; closing it, or the end of the process however it ends, gives the lock back.

    Raises:
        StoreInUse: another process owns the outbox.
        StoreUnusable: the folder is missing, or may not be written to; a file is another program's, or open to others.
        OSError: the disk is full, read-only or failing.
    """
    if not path.parent.is_dir():
        raise StoreUnusable(f"the outbox's folder {path.parent} does not exist; create it or change the path")
    refuse_foreign(path)
    descriptor = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        raise StoreInUse(f"the outbox {path} is in use by another process; stop it or choose another path") from error
    return descriptor


def sync_folder(folder: Path) -> None:
    """Make creations and renames in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def log_of(path: Path) -> Path:
    """Return where SQLite keeps the log of the database at `path`."""
    return path.with_name(path.name + "-wal")


def open_database(config: OutboxConfig, connect: Connect) -> tuple[Database, Ledger]:
    """Open or create the file, check it, and bring its schema up to date. The caller holds the lock.

    Args:
        config: path, size, and whether cases are ranked by value.
        connect: source of connections.

    Raises:
        Damaged: the file is ours, but not as we wrote it. Some damage shows as a sqlite3.DatabaseError instead.
        StoreUnusable: the file is another program's, or from a newer version.
        sqlite3.Error, OSError: the disk is full, read-only or failing.
    """
    path = config.path
    if not path.exists():
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        sync_folder(path.parent)
    _check_header(path)
    db = connect(path)
    try:
        # Exclusive first: the log's index then lives in memory, and no -shm file appears.
        db.execute("PRAGMA locking_mode = EXCLUSIVE")
        _refuse_a_strangers(path, db)
        _configure(db, config)
        _rewrite_log(path)
        _create_or_upgrade(path, db)
        ledger = _check(db)
        fold_log(path, db, config.checkpoint_pages)
        db.execute(BY_VALUE if config.when_full == "drop_least_valuable" else "DROP INDEX IF EXISTS by_value")
    except BaseException:
        give_up(path, db)
        raise
    return db, ledger


def give_up(path: Path, db: Database) -> None:
    """Close a connection that has failed. Closing copies the log into the database: it must be on the disk first."""
    with contextlib.suppress(OSError):
        _rewrite_log(path)
    close_quietly(db)


def close_quietly(db: Database) -> None:
    """Close a connection whose last words add nothing."""
    with contextlib.suppress(sqlite3.Error):
        db.close()


def _configure(db: Database, config: OutboxConfig) -> None:
    db.execute(f"PRAGMA page_size = {PAGE_BYTES}")
    # Freed pages are used again and the file keeps its size: shrinking it would write each page twice to gain nothing.
    db.execute("PRAGMA auto_vacuum = NONE")
    mode = db.execute("PRAGMA journal_mode = WAL").fetchone()[0]
    if mode != "wal":
        raise StoreUnusable(f"the outbox's file system allows no write-ahead log (got {mode!r}); use a local disk")
    db.execute("PRAGMA synchronous = FULL")  # NORMAL loses acknowledged rows at a power cut, up to the last checkpoint
    db.execute(f"PRAGMA wal_autocheckpoint = {config.checkpoint_pages}")
    db.execute(f"PRAGMA journal_size_limit = {config.checkpoint_pages * PAGE_BYTES}")
    db.execute(f"PRAGMA max_page_count = {config.max_bytes // PAGE_BYTES}")
    db.execute("PRAGMA secure_delete = ON")  # a delivered body is not to stay readable in a free page
    db.execute("PRAGMA temp_store = MEMORY")  # no file beyond those that we open
    db.execute("PRAGMA mmap_size = 0")  # with a map, a failing disk is a SIGBUS and not an error
    db.execute("PRAGMA cell_size_check = ON")
    db.execute("PRAGMA trusted_schema = OFF")


def _rewrite_log(path: Path) -> None:
    """Write the log's bytes over themselves and flush them.

    After a failed fsync Linux keeps the pages in memory but calls them clean: SQLite would read the log as whole, and
    the next fsync would succeed without writing them. Rewriting makes the kernel flush them again, or fail again
    (Rebello et al., "Can Applications Recover from fsync Failures?", USENIX ATC 2020).
    """
    log = log_of(path)
    if not log.exists():
        return
    descriptor = os.open(log, os.O_RDWR | os.O_CLOEXEC)
    try:
        at = 0
        while piece := os.pread(descriptor, _COPY_BYTES, at):
            at += os.pwrite(descriptor, piece, at)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def fold_log(path: Path, db: Database, pages: int) -> None:
    """Copy a log into the database when it has this many pages, and start it over.

    SQLite does so on its own, after a commit, but does not write down that it has. After a crash it would go on behind
    the old log, and copy it again: a device that loses its power every few minutes would have a log without bounds.
    """
    log = log_of(path)
    page_bytes = int(db.execute("PRAGMA page_size").fetchone()[0])
    if log.exists() and log.stat().st_size >= pages * (LOG_FRAME_BYTES + page_bytes):
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()


LOG_FRAME_BYTES = 24
"""Header of each page in the log: https://www.sqlite.org/fileformat.html section 4.1."""


def _check_header(path: Path) -> None:
    """Refuse a header with which SQLite would misread the rest, or call the file read-only or unsupported for ever."""
    with path.open("r+b") as file:  # for writing: SQLite would open one that it may only read, and fail later
        header = file.read(100)
    if not header or path.with_name(path.name + "-journal").exists():
        return  # creation was interrupted: SQLite rolls it back on its own
    if header[:16] != _MAGIC:
        raise Damaged("the header is not a database's")
    if header[68:72] == APPLICATION_ID.to_bytes(4, "big") and any(header[at : at + len(b)] != b for at, b in _FIXED):
        raise Damaged("the header is not ours any more")


_MAGIC = b"SQLite format 3\0"
# https://www.sqlite.org/fileformat.html section 1.3: what never changes in a file of ours, by offset.
_FIXED = (
    (16, PAGE_BYTES.to_bytes(2, "big")),
    (18, b"\2\2"),  # write-ahead log
    (20, b"\0\x40\x20\x20"),  # bytes reserved in each page; payload fractions
    (44, b"\0\0\0\4"),  # schema format
    (52, bytes(4)),  # no auto-vacuum
    (56, b"\0\0\0\1"),  # UTF-8
    (64, bytes(4)),  # no incremental vacuum
    (72, bytes(20)),
)


def _refuse_a_strangers(path: Path, db: Database) -> None:
    """StoreUnusable for a database that is not an outbox; nothing has been written to it yet."""
    tables = {name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()}
    (owner,) = db.execute("PRAGMA application_id").fetchone()
    if tables and "ledger" not in tables and owner != APPLICATION_ID:
        raise StoreUnusable(f"{path} is another program's database; give the outbox a file of its own")


def _create_or_upgrade(path: Path, db: Database) -> None:
    (owner,) = db.execute("PRAGMA application_id").fetchone()
    (version,) = db.execute("PRAGMA user_version").fetchone()
    if db.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone():
        if version <= len(UPGRADES) and not has_our_schema(db):
            raise Damaged("the table definitions are not ours")
        row = db.execute("SELECT schema FROM ledger").fetchone()
        if row is None or row[0] != version or owner != APPLICATION_ID:
            raise Damaged("header and ledger disagree about owner or schema")
    if version > len(UPGRADES):
        raise StoreUnusable(
            f"{path} has schema {version}, this version knows up to {len(UPGRADES)}; install the newer edge-runtime"
        )
    if version == len(UPGRADES):
        return
    db.execute("BEGIN IMMEDIATE")
    try:
        for script in UPGRADES[version:]:
            for statement in script:
                db.execute(statement)
        db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        db.execute(f"PRAGMA user_version = {len(UPGRADES)}")
        db.execute("UPDATE ledger SET schema = ?", (len(UPGRADES),))
        if version == 0:
            Ledger().write(db)
        db.execute("COMMIT")
    except BaseException:
        with contextlib.suppress(sqlite3.Error):  # SQLite may have rolled back on its own
            db.execute("ROLLBACK")
        raise


def has_our_schema(db: Database) -> bool:
    """Return whether the table definitions are what `UPGRADES` makes, down to the pages where the tables begin."""
    (version,) = db.execute("PRAGMA user_version").fetchone()
    reference = sqlite3.connect(":memory:")
    try:
        for script in UPGRADES[:version]:
            for statement in script:
                reference.execute(statement)
        return bool(_definitions(reference) == _definitions(db))
    finally:
        reference.close()


def _definitions(db: Database) -> list[tuple[str, int, str]]:
    """Names, first pages and SQL. What an upgrade adds begins wherever there is room: 0 in place of its page."""
    query = "SELECT name, rootpage, sql FROM sqlite_master WHERE name != 'by_value' ORDER BY name"
    rows = db.execute(query).fetchall()
    return [(name, 0 if name in ADDED_LATER else rootpage, sql) for name, rootpage, sql in rows]


_SUM_OF_PLACES = """SELECT sum(seq) FROM
    (SELECT seq FROM ready UNION ALL SELECT seq FROM waiting UNION ALL SELECT seq FROM dead)"""


def _check(db: Database) -> Ledger:
    """Check structure and counters.

    Reads every page in use: a drained outbox takes a millisecond whatever its size, a backlog as long as the disk
    takes to read it once. Rows are checked when they are taken. SQLite's quick check would not compare the indexes with
    their tables, and a case that its index hides is never taken: 0.15 s for 100,000 cases instead of 0.22 s.
    """
    (verdict,) = db.execute("PRAGMA integrity_check(1)").fetchone()
    if verdict != "ok":
        raise Damaged(str(verdict).replace("\n", " "))
    ledger = Ledger.read(db)
    ledger.count_rows(db)
    cases, sum_of_cases = db.execute("SELECT count(*), sum(seq) FROM cases").fetchone()
    if not ledger.balances() or cases != ledger.queued + ledger.dead:
        raise Damaged("the ledger does not match the rows")
    (sum_of_places,) = db.execute(_SUM_OF_PLACES).fetchone()
    if sum_of_cases != sum_of_places:  # a corrupt number in the queue names one case twice, and another never
        raise Damaged("the queue does not match the cases")
    return ledger
