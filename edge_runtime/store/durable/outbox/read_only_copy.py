"""Read-only copy of an outbox that another process may own: its file, read as after a crash.

The runtime holds its outbox for itself (docs/decisions/0005-outbox-on-sqlite.md), so a second process cannot open it.
It can copy it: the database first, then the log. While the log's header stays the same, SQLite only adds frames to the
log and copies committed ones into the database; whatever of them the first copy caught half-done, the second one holds
whole, and replaying it gives the state as of its last committed frame. A header that changed in between means that the
log was recreated, and the copy is made again. https://www.sqlite.org/fileformat2.html#walformat
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

from edge_runtime.errors import StoreCorrupt, StoreError
from edge_runtime.store.durable.config import OutboxConfig
from edge_runtime.store.durable.outbox import queries
from edge_runtime.store.durable.outbox.open_db import close_quietly, log_of, open_database
from edge_runtime.store.durable.outbox.records import HardCase
from edge_runtime.store.durable.outbox.schema import Damaged, Database, Ledger, connect_sqlite, is_intact, stored_id

_ATTEMPTS = 10
_AT_ONCE = 64
_LOG_HEADER_BYTES = 32

# Types as they should be, whatever a corrupt row says: what a person looks at has no checksum of its own.
_COLUMNS = """cases.*, CAST(dead.reason AS TEXT), CAST(dead.detail AS TEXT), CAST(dead.buried AS REAL),
    CAST(coalesce(dead.attempts, waiting.attempts, 0) AS INTEGER), CAST(waiting.error AS TEXT)"""
_DEAD = f"""SELECT {_COLUMNS} FROM dead CROSS JOIN cases USING (seq) LEFT JOIN waiting USING (seq)
    WHERE dead.seq > ? ORDER BY dead.seq LIMIT ?"""  # noqa: S608 - constants
_ALL = f"""SELECT {_COLUMNS} FROM cases LEFT JOIN dead USING (seq) LEFT JOIN waiting USING (seq)
    WHERE cases.seq > ? ORDER BY cases.seq LIMIT ?"""  # noqa: S608 - constants
_ONE = f"""SELECT {_COLUMNS} FROM cases LEFT JOIN dead USING (seq) LEFT JOIN waiting USING (seq)
    WHERE cases.id = ?"""  # noqa: S608 - constants
_CASE_COLUMNS = 11


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One case in the outbox, and where it stands."""

    case: HardCase
    state: Literal["ready", "waiting", "dead"]
    """``ready`` was not tried yet, ``waiting`` failed and will be tried again, ``dead`` will not."""
    reason: str
    """Reason of a dead letter, in a word; empty for others."""
    detail: str
    """Last error; empty for a case that was never tried."""
    buried: float | None
    """Wall clock, for dead ones."""


class Snapshot:
    """Copy of an outbox as it was a moment ago. The outbox itself is neither locked nor written to.

    Leaving the ``with`` block removes the copy, which needs as much room in the folder for temporary files as the
    outbox has on its disk.

    Args:
        config: the outbox's configuration.

    Raises:
        StoreError: there is no outbox, no room for the copy, or no permission to read.
        StoreCorrupt: it is damaged; who opens it next carries over what can be read.
    """

    def __init__(self, config: OutboxConfig) -> None:
        self.damaged = 0
        """Rows that were met so far and fail their checksum; left out."""
        self._path = config.path
        if not self._path.is_file():
            raise StoreError(f"there is no outbox {self._path}; it is made when the application first runs")
        try:
            self._folder = Path(tempfile.mkdtemp(prefix="edge-outbox-"))  # readable for this user alone
        except OSError as error:
            raise StoreError(f"no folder for temporary files: {error.strerror}; set TMPDIR") from error
        try:
            copy = self._folder / "outbox.db"
            self._copy(copy)
            self._db, self.ledger = self._open(replace(config, path=copy))
        except BaseException:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise

    def __enter__(self) -> Snapshot:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        close_quietly(self._db)
        shutil.rmtree(self._folder, ignore_errors=True)

    def dead(self) -> Iterator[Entry]:
        """Dead letters, oldest first."""
        return self._pages(_DEAD)

    def all(self) -> Iterator[Entry]:
        """Every case, oldest first."""
        return self._pages(_ALL)

    def find(self, case_id: str) -> Entry | None:
        """Read the case with this id; None if there is none."""
        row = self._db.execute(_ONE, (stored_id(case_id),)).fetchone()
        return None if row is None else self._entry(row)

    def _pages(self, query: str) -> Iterator[Entry]:
        after = 0
        while page := self._db.execute(query, (after, _AT_ONCE)).fetchall():
            for row in page:
                entry = self._entry(row)
                if entry is not None:
                    yield entry
            after = page[-1][0]

    def _entry(self, row: Any) -> Entry | None:
        case, (reason, detail, buried, attempts, error) = row[:_CASE_COLUMNS], row[_CASE_COLUMNS:]
        if not is_intact(case):
            self.damaged += 1
            return None
        return Entry(
            case=queries.case_of(case, attempts),
            state="dead" if reason is not None else "waiting" if error is not None else "ready",
            reason=reason or "",
            detail=detail or error or "",
            buried=buried,
        )

    def _copy(self, to: Path) -> None:
        try:
            for _ in range(_ATTEMPTS):
                before = _generation(self._path)
                shutil.copyfile(self._path, to)
                log_of(to).unlink(missing_ok=True)
                with contextlib.suppress(FileNotFoundError):
                    shutil.copyfile(log_of(self._path), log_of(to))
                if _generation(self._path) == before:
                    return
        except OSError as error:
            raise StoreError(
                f"cannot copy the outbox {self._path} to {to.parent}: {error.strerror}; "
                "check permissions and free space, or set TMPDIR"
            ) from error
        raise StoreError(f"the outbox {self._path} changes faster than it can be copied; try again")

    def _open(self, config: OutboxConfig) -> tuple[Database, Ledger]:
        try:
            return open_database(config, _connect)
        except (Damaged, sqlite3.Error, UnicodeDecodeError, MemoryError) as error:
            why = str(error) or "a row claims gigabytes"
            raise StoreCorrupt(
                f"the outbox {self._path} is damaged ({why}); what can be read is carried over when it is next opened"
            ) from error
        except OSError as error:
            raise StoreError(f"cannot read a copy of the outbox in {self._folder}: {error.strerror}") from error


def _connect(path: Path) -> Database:
    """Text that is not UTF-8 any more is shown as well as it can be."""
    db = connect_sqlite(path)
    if isinstance(db, sqlite3.Connection):
        db.text_factory = lambda data: data.decode("utf-8", "replace")
    return db


def _generation(path: Path) -> tuple[object, ...]:
    """Return what changes when the log is recreated, or the file replaced."""
    status = os.stat(path)  # noqa: PTH116 - beside the open() below
    try:
        with log_of(path).open("rb") as log:
            header = log.read(_LOG_HEADER_BYTES)
    except FileNotFoundError:
        header = b""
    return status.st_ino, header, 0 if header else status.st_mtime_ns
