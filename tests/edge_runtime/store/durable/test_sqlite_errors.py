"""SQLite's errors are told apart alike by their code and, on a Python that gives none, by their message."""

from __future__ import annotations

import sqlite3
import sys
from pathlib import Path

import pytest

from edge_runtime.clock import SimulatedClock
from edge_runtime.errors import StoreFull
from edge_runtime.store.durable.outbox import Outbox, OutboxConfig
from edge_runtime.store.durable.outbox.schema import connect_sqlite
from edge_runtime.store.durable.sqlite_errors import Code, is_damage, primary_code
from tests.edge_runtime.store.durable.outbox.outboxes import Failing, cases

TABLE: list[tuple[type[sqlite3.Error], str, Code, bool]] = [
    # class, message, code; whether the reading log takes it for damage
    (sqlite3.OperationalError, "database or disk is full", Code.FULL, False),
    (sqlite3.OperationalError, "disk I/O error", Code.IOERR, False),
    (sqlite3.OperationalError, "unable to open database file", Code.CANTOPEN, False),
    (sqlite3.OperationalError, "attempt to write a readonly database", Code.READONLY, False),
    (sqlite3.OperationalError, "database is locked", Code.BUSY, False),
    (sqlite3.OperationalError, "database table is locked: cases", Code.LOCKED, False),
    (sqlite3.OperationalError, "locking protocol", Code.PROTOCOL, False),
    (sqlite3.OperationalError, "interrupted", Code.INTERRUPT, False),
    (sqlite3.OperationalError, "database schema has changed", Code.SCHEMA, False),
    (sqlite3.OperationalError, "no such column: body", Code.ERROR, True),
    (sqlite3.DatabaseError, "database disk image is malformed", Code.CORRUPT, True),
    (sqlite3.DatabaseError, "malformed database schema (cases)", Code.CORRUPT, True),
    (sqlite3.DatabaseError, "file is not a database", Code.NOTADB, True),
    (sqlite3.DataError, "string or blob too big", Code.TOOBIG, True),
    (sqlite3.IntegrityError, "UNIQUE constraint failed: cases.id", Code.CONSTRAINT, True),
    (sqlite3.IntegrityError, "datatype mismatch", Code.MISMATCH, True),
]


@pytest.mark.parametrize(("kind", "message", "code", "damage"), TABLE)
def test_an_error_is_the_same_by_code_and_by_message(
    kind: type[sqlite3.Error], message: str, code: Code, damage: bool
) -> None:
    bare, coded = kind(message), kind("in words that are not SQLite's")
    coded.sqlite_errorcode = code | 0x0300  # an extended code, such as SQLITE_IOERR_WRITE
    assert primary_code(bare) == primary_code(coded) == code
    assert is_damage(bare) is is_damage(coded) is damage


@pytest.mark.skipif(sys.version_info < (3, 11), reason="compares with the names that Python 3.11 has")
def test_the_codes_are_sqlite_s() -> None:
    assert {code.name: code.value for code in Code} == {
        code.name: getattr(sqlite3, f"SQLITE_{code.name}") for code in Code
    }


@pytest.mark.parametrize(
    "error",
    [
        sqlite3.OperationalError("Could not decode to UTF-8 column 'id' with text '\udcff'"),
        sqlite3.ProgrammingError("Cannot operate on a closed database."),
        OSError("disk I/O error"),
    ],
)
def test_what_is_not_from_sqlite_has_no_code(error: Exception) -> None:
    assert primary_code(error) is None


def raised(path: Path, *statements: str) -> sqlite3.Error:
    """What the last statement fails with, less its code."""
    with pytest.raises(sqlite3.Error) as caught:  # noqa: PT012 - the last of them
        db = sqlite3.connect(path, isolation_level=None, timeout=0.0)
        try:
            for statement in statements:
                db.execute(statement)
        finally:
            db.close()
    return type(caught.value)(*caught.value.args)


def test_the_messages_are_those_of_the_sqlite_at_hand(tmp_path: Path) -> None:
    table = "CREATE TABLE t (a INTEGER PRIMARY KEY, b)"
    full = raised(tmp_path / "full", table, "PRAGMA max_page_count = 3", "INSERT INTO t VALUES (1, zeroblob(100000))")
    assert primary_code(full) == Code.FULL
    twice = raised(tmp_path / "twice", table, "INSERT INTO t VALUES (1, 0)", "INSERT INTO t VALUES (1, 0)")
    assert primary_code(twice) == Code.CONSTRAINT
    assert primary_code(raised(tmp_path / "type", table, "INSERT INTO t VALUES ('x', 0)")) == Code.MISMATCH
    assert primary_code(raised(tmp_path / "type", "SELECT c FROM t")) == Code.ERROR
    assert (
        primary_code(raised(tmp_path / "type", "PRAGMA query_only = 1", "INSERT INTO t VALUES (1, 0)")) == Code.READONLY
    )
    (tmp_path / "text").write_text("not a database, but long enough to be looked at " * 100)
    assert primary_code(raised(tmp_path / "text", "SELECT 1 FROM t")) == Code.NOTADB
    assert primary_code(raised(tmp_path / "none" / "db", "SELECT 1")) == Code.CANTOPEN
    content = bytearray((tmp_path / "twice").read_bytes())
    content[4096:8192] = b"\xff" * 4096
    (tmp_path / "broken").write_bytes(content)
    assert primary_code(raised(tmp_path / "broken", "SELECT * FROM t")) == Code.CORRUPT
    holder = sqlite3.connect(tmp_path / "type", isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")
    assert primary_code(raised(tmp_path / "type", "SELECT * FROM t")) == Code.BUSY
    holder.close()


def test_a_full_disk_without_a_code_is_no_damage_and_costs_no_case(tmp_path: Path) -> None:
    class WithoutCode(Failing):
        def _fail(self, sql: str) -> None:
            if self._faults and sql.startswith("COMMIT"):
                raise sqlite3.OperationalError("database or disk is full")

    faults: dict[str, int] = {}
    config = OutboxConfig(path=tmp_path / "outbox.db")
    with Outbox(config, SimulatedClock(), connect=lambda path: WithoutCode(connect_sqlite(path), faults)) as outbox:
        outbox.put(cases(1, 2))
        faults["COMMIT"] = Code.FULL
        with pytest.raises(StoreFull, match="free space"):
            outbox.put(cases(3))
        faults.clear()
        outbox.put(cases(3))
        assert outbox.damage == []
        assert outbox.counts().queued == 3
    assert not list(tmp_path.glob("*damaged*"))
