"""The outbox's tables, its ledger, and the connection it expects.

Tables::

    cases    one immutable row per hard case, from acceptance until it is delivered, dropped or discarded
    ready    cases never tried, or handed back untouched        ┐
    waiting  cases that failed and may be tried again at due_s  ├ every case is in exactly one of the three
    dead     cases that are not tried again without a command  ┘
    ledger   one row of counters, written in the same transaction as the rows they count
    state    small values that must survive a restart, for example the gate's budget

    closed       how the last cases ended; see `edge_runtime.store.durable.outbox.closings`
    unpublished  which of these the sinks do not have yet

A case's state lies beside its body and not in it, so a failed attempt rewrites forty bytes and not the tensor: flash
wear is a budget. Rows carry a CRC-32 of their own, because SQLite has no checksum in the database file.
"""

from __future__ import annotations

import sqlite3
import struct
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

APPLICATION_ID = 0x45444745
"""``EDGE``, in the database header: tells our file from another program's."""

_V1 = (
    """CREATE TABLE ledger (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    schema INTEGER NOT NULL, crc INTEGER NOT NULL, next_seq INTEGER NOT NULL, elapsed_s REAL NOT NULL,
    accepted INTEGER NOT NULL, delivered INTEGER NOT NULL, evicted INTEGER NOT NULL, expired INTEGER NOT NULL,
    damaged INTEGER NOT NULL, discarded INTEGER NOT NULL, dead_letters_full INTEGER NOT NULL)""",
    """CREATE TABLE cases (
    seq INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, key TEXT NOT NULL, created REAL NOT NULL,
    deadline_s REAL NOT NULL, priority INTEGER NOT NULL, value REAL NOT NULL, stored_s REAL NOT NULL,
    crc INTEGER NOT NULL, meta BLOB NOT NULL, body BLOB NOT NULL)""",
    """CREATE TABLE ready (
    priority INTEGER NOT NULL, seq INTEGER NOT NULL, size INTEGER NOT NULL, PRIMARY KEY (priority, seq))
    WITHOUT ROWID""",
    """CREATE TABLE waiting (
    seq INTEGER PRIMARY KEY, priority INTEGER NOT NULL, size INTEGER NOT NULL, due_s REAL NOT NULL,
    attempts INTEGER NOT NULL, error TEXT NOT NULL)""",
    "CREATE INDEX waiting_due ON waiting (due_s)",
    """CREATE TABLE dead (
    seq INTEGER PRIMARY KEY, size INTEGER NOT NULL, attempts INTEGER NOT NULL, buried REAL NOT NULL,
    reason TEXT NOT NULL, detail TEXT NOT NULL)""",
    "CREATE TABLE state (name TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID",
    "INSERT INTO ledger VALUES (1, 1, 0, 1, 0.0, 0, 0, 0, 0, 0, 0, 0)",  # its checksum follows in the same transaction
)

_V2 = (
    "CREATE TABLE closed (seq INTEGER PRIMARY KEY, crc INTEGER NOT NULL, body BLOB NOT NULL)",
    "CREATE TABLE unpublished (seq INTEGER PRIMARY KEY)",
)

UPGRADES: tuple[tuple[str, ...], ...] = (_V1, _V2)
"""Script n takes a file from schema n to schema n + 1; a new file runs them all, an old one those it lacks."""

ADDED_LATER = frozenset({"closed", "unpublished"})
"""Tables that a file of the first schema gets by an upgrade, at pages that cannot be known."""

BY_VALUE = "CREATE INDEX IF NOT EXISTS by_value ON cases (priority DESC, value, seq)"
"""Only where the policy ranks by value: a third index costs a tenth of the put rate."""

INSERT_CASE = "INSERT OR IGNORE INTO cases VALUES (?,?,?,?,?,?,?,?,?,?,?)"
"""A case whose id is there already is left as it is."""

READ_CASE = "SELECT * FROM cases WHERE seq = ?"
"""A row of `cases`, in the order of the table's columns, which `is_intact` expects."""


class Cursor(Protocol):
    """Result of a statement."""

    def fetchone(self) -> Any:
        """Next row, or None."""
        ...

    def fetchall(self) -> list[Any]:
        """All remaining rows."""
        ...


class Database(Protocol):
    """The part of ``sqlite3.Connection`` that the outbox uses, in autocommit mode.

    A test passes a connection on a virtual file system of its own instead; it must raise ``sqlite3`` errors with
    ``sqlite_errorcode`` set, whatever library is behind it.
    """

    def execute(self, sql: str, parameters: Sequence[Any] = (), /) -> Cursor:
        """Run one statement."""
        ...

    def executemany(self, sql: str, parameters: Iterable[Sequence[Any]], /) -> Any:
        """Run one statement for each row of parameters."""
        ...

    def close(self) -> None:
        """Close; as the last connection, also fold the log into the database."""
        ...


Connect = Callable[[Path], Database]


def connect_sqlite(path: Path) -> Database:
    """Open the standard library's SQLite; one connection that threads use in turn."""
    return sqlite3.connect(path, timeout=0.0, isolation_level=None, check_same_thread=False)


def memory_for(size: int) -> bool:
    """Return whether this many bytes can be had.

    Where they can, a MemoryError is the file's doing: of a corrupt row that claims four gigabytes, SQLite (3.40) says
    that there is no memory for it, and not that it is damaged.
    """
    try:
        bytearray(size)
    except MemoryError:
        return False
    return True


class Damaged(Exception):  # noqa: N818 - internal: becomes a set-aside file, never reaches a caller
    """Damage that SQLite did not notice, or named in its own words: the file is not what we wrote."""


@dataclass(slots=True)
class Ledger:
    """The counters. The first nine fields are stored; the others follow from the rows."""

    next_seq: int = 1
    """Sequence number of the next accepted case; the order of acceptance, whatever the clocks say."""
    elapsed_s: float = 0.0
    """Powered time that this outbox has seen: monotonic within a run, carried on by the next run."""
    accepted: int = 0
    delivered: int = 0
    evicted: int = 0
    expired: int = 0
    damaged: int = 0
    discarded: int = 0
    dead_letters_full: int = 0
    queued: int = 0
    dead: int = 0
    dead_bytes: int = 0
    floor: int = 0
    """No queued case has this sequence number or a smaller one: where to look for the oldest."""
    unpublished: int = 0
    """Closings that the sinks do not have yet."""
    repeated: int = 0
    """Cases offered again under an id that was accepted before. Outside the law, so it is kept in `state`."""
    repeated_stored: int = 0

    def dropped(self) -> dict[str, int]:
        """Cases that left undelivered, by reason."""
        return {name: getattr(self, name) for name in DROP_REASONS}

    def balances(self) -> bool:
        """Return whether accepted = delivered + queued + dropped + dead."""
        return self.accepted == self.delivered + self.queued + sum(self.dropped().values()) + self.dead

    def copy(self) -> Ledger:
        """Make a draft that a transaction may change."""
        derived = (self.queued, self.dead, self.dead_bytes, self.floor)
        return Ledger(
            *self._stored(), *derived, self.unpublished, self.repeated, self.repeated_stored
        )  # copy.copy: 6 us

    def count_rows(self, db: Database) -> None:
        """Set the fields that follow from the rows."""
        (ready,) = db.execute("SELECT count(*) FROM ready").fetchone()
        (waiting,) = db.execute("SELECT count(*) FROM waiting").fetchone()
        self.queued = ready + waiting
        self.dead, self.dead_bytes = db.execute("SELECT count(*), coalesce(sum(size), 0) FROM dead").fetchone()
        (self.unpublished,) = db.execute("SELECT count(*) FROM unpublished").fetchone()
        row = db.execute("SELECT value FROM state WHERE name = 'repeated'").fetchone()
        text = row[0] if row and isinstance(row[0], bytes) else b""
        self.repeated = self.repeated_stored = int(text[:18]) if text.isdigit() else 0

    def write(self, db: Database) -> None:
        """Store it; inside a transaction."""
        row = self._stored()
        db.execute(_WRITE_LEDGER, (zlib.crc32(_LEDGER_ROW.pack(*row)), *row))
        if self.repeated != self.repeated_stored:
            db.execute("INSERT OR REPLACE INTO state VALUES ('repeated', ?)", (b"%d" % self.repeated,))
            self.repeated_stored = self.repeated

    @classmethod
    def read(cls, db: Database) -> Ledger:
        """Read the stored fields; Damaged when the row is missing or fails its checksum."""
        row = db.execute(_READ_LEDGER).fetchone()
        if row is None:
            raise Damaged("the ledger is empty")
        crc, *values = row
        try:
            intact = zlib.crc32(_LEDGER_ROW.pack(*values)) == crc
        except struct.error:
            intact = False
        if not intact:
            raise Damaged("the ledger fails its checksum")
        return cls(*values)

    def _stored(self) -> tuple[int, float, int, int, int, int, int, int, int]:
        return (
            self.next_seq,
            self.elapsed_s,
            self.accepted,
            self.delivered,
            self.evicted,
            self.expired,
            self.damaged,
            self.discarded,
            self.dead_letters_full,
        )


DROP_REASONS = ("evicted", "expired", "damaged", "discarded", "dead_letters_full")
_LEDGER_ROW = struct.Struct("<qd7q")
_WRITE_LEDGER = """UPDATE ledger SET crc = ?, next_seq = ?, elapsed_s = ?, accepted = ?, delivered = ?, evicted = ?,
    expired = ?, damaged = ?, discarded = ?, dead_letters_full = ? WHERE one = 1"""
_READ_LEDGER = """SELECT crc, next_seq, elapsed_s, accepted, delivered, evicted, expired, damaged, discarded,
    dead_letters_full FROM ledger WHERE one = 1"""

_CASE_HEAD = struct.Struct("<qdddqd")


def stored_id(case_id: str) -> str:
    """Return an id as it is stored: ``watch-3@1700`` as ``1700@watch-3``.

    A window's id ends in its number, which rises with time on every stream. With the number first, new ids go to one
    end of the index whatever stream they are from; a commit writes one page of it instead of one for each stream.
    """
    stream, at, number = case_id.rpartition("@")
    return f"{number}{at}{stream}"


def public_id(stored: str) -> str:
    """Return the id that `stored_id` keeps this way."""
    number, at, stream = stored.partition("@")
    return f"{stream}{at}{number}"


def case_row(
    seq: int,
    case_id: str,
    key: str,
    created: float,
    deadline_s: float,
    priority: int,
    value: float,
    stored_s: float,
    meta: bytes,
    body: bytes,
) -> tuple[Any, ...]:
    """Make a row of `cases` with its checksum; `case_id` as `stored_id` gives it."""
    head = _CASE_HEAD.pack(seq, created, deadline_s, value, priority, stored_s)
    crc = zlib.crc32(body, zlib.crc32(f"{case_id}\0{key}\0".encode(), zlib.crc32(head + meta)))
    return seq, case_id, key, created, deadline_s, priority, value, stored_s, crc, meta, body


def is_intact(row: Sequence[Any]) -> bool:
    """Return whether a row of `cases` is what was put."""
    try:
        return bool(case_row(*row[:8], *row[9:])[8] == row[8])
    except (struct.error, TypeError, UnicodeError):  # a flipped type byte: text for a blob, null for a number
        return False
