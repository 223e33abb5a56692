"""One open outbox file: who owns it, transactions that keep the ledger true, and healing after errors."""

from __future__ import annotations

import logging
import math
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from edge_runtime.clock import Clock
from edge_runtime.errors import StoreCorrupt, StoreError, StoreFull
from edge_runtime.store.durable.config import OutboxConfig
from edge_runtime.store.durable.outbox import open_db
from edge_runtime.store.durable.outbox.path_checks import identity_of, is_removed
from edge_runtime.store.durable.outbox.recovery import Damage, finish, salvage
from edge_runtime.store.durable.outbox.schema import DROP_REASONS, Connect, Damaged, Database, Ledger, memory_for
from edge_runtime.store.durable.sqlite_errors import Code, primary_code

log = logging.getLogger(__name__)

T = TypeVar("T")

_SALVAGE_PAUSE_S = 30.0
"""A salvage that failed (no room for the new file) is not tried again at every call."""

_ROW_COPIES = 4
"""Memory that reading a row takes, in rows: SQLite's copy, ours, and room."""

_DAMAGE = {
    Code.CORRUPT,
    Code.NOTADB,
    Code.CONSTRAINT,  # our tables contradict each other; an id seen before is not an error
}


class Session:
    """Runs work on the outbox's file, one caller at a time.

    After an I/O error the connection is given up and the next call opens the file again; after damage the file is
    replaced by what can be salvaged, and the work is done once more.

    Args:
        config: the outbox's configuration.
        clock: monotonic time.
        connect: source of connections.
        on_open: called with a connection just opened, before any work.
        on_damage: called when a damaged file was set aside.
    """

    def __init__(
        self,
        config: OutboxConfig,
        clock: Clock,
        connect: Connect,
        on_open: Callable[[Database], None],
        on_damage: Callable[[Damage], None] | None,
    ) -> None:
        self._config = config
        self._clock = clock
        self._connect = connect
        self._on_open = on_open
        self._on_damage = on_damage
        self.lock = threading.RLock()
        self.ledger = Ledger()
        """As of the last commit."""
        self.damage: list[Damage] = []
        self._closed = False
        self._owner: int | None = None
        self._db: Database | None = None
        self._identity: tuple[int, int] | None = None  # of the file that is open
        self._lost: Ledger | None = None  # of a file that was removed while it was open
        self._started = clock.monotonic()
        self._elapsed_before = 0.0
        self._salvage_after = -math.inf

    def elapsed(self) -> float:
        """Powered seconds that this outbox has seen, earlier runs included; never goes back."""
        return self._elapsed_before + self._clock.monotonic() - self._started

    def run(self, work: Callable[[Database], T]) -> T:
        """Do `work` on the open file; after damage, once more on the file that replaced it.

        Raises:
            StoreFull: the disk is full.
            StoreCorrupt: the file is damaged and could not be replaced.
            StoreInUse, StoreUnusable: another program's file, a wrong path or wrong permissions: waiting does not help.
            StoreError: the file cannot be used; the message says why.
        """
        with self.lock:
            try:
                return self._attempt(work)
            except Damaged as damaged:
                self._replace(str(damaged))
            try:
                return self._attempt(work)
            except Damaged as damaged:
                raise StoreCorrupt(
                    f"the outbox {self._config.path} is damaged again ({damaged}) after it was rebuilt; check its disk"
                ) from damaged

    @contextmanager
    def transaction(self, db: Database) -> Iterator[Ledger]:
        """One durable transaction. The draft of the ledger is kept, in the file and here, only if it commits."""
        draft = self.ledger.copy()
        draft.elapsed_s = self.elapsed()
        db.execute("BEGIN IMMEDIATE")
        try:
            yield draft
            draft.write(db)
            db.execute("COMMIT")
        except BaseException:
            try:
                db.execute("ROLLBACK")
            except sqlite3.Error:  # SQLite has rolled back on its own, or cannot: start from the file again
                self._abandon()
            raise
        self.ledger = draft

    def full(self) -> StoreFull:
        """Return the error of a disk that has no room."""
        return StoreFull(f"no room for the outbox {self._config.path}: free space on its disk")

    def close(self) -> None:
        """Fold the log into the database and give the file back; twice does no harm."""
        with self.lock:
            self._closed = True
            if self._db is not None:
                open_db.close_quietly(self._db)
                self._db = None
            if self._owner is not None:
                os.close(self._owner)
                self._owner = None

    def _attempt(self, work: Callable[[Database], T]) -> T:
        try:
            return work(self._open())
        except Damaged:
            self._abandon()
            raise
        except UnicodeDecodeError as error:  # SQLite's message quotes what it could not read
            self._abandon()
            raise Damaged("a text that is not UTF-8") from error
        except MemoryError as error:
            self._abandon()
            if memory_for(_ROW_COPIES * self._config.case_limit):
                raise Damaged("a row that claims more bytes than any has") from error
            raise StoreError(f"no memory left to read the outbox {self._config.path}") from error
        except sqlite3.Error as error:
            self._abandon()
            raise self._explain(error) from error
        except OSError as error:
            self._abandon()
            raise open_db.explain(error, f"the outbox {self._config.path}") from error

    def _open(self) -> Database:
        if self._closed:
            raise StoreError("the outbox is closed")
        if self._db is not None and is_removed(self._config.path, self._identity):
            self._give_up_removed(self._db)
        if self._owner is None:
            self._owner = open_db.lock(self._config.path)
        if self._db is None:
            finish(self._config.path)
            self._db, self.ledger = open_db.open_database(self._config, self._connect)
            self._identity = identity_of(self._config.path)
            self._carry_over()
            self._elapsed_before += max(0.0, self.ledger.elapsed_s - self.elapsed())
            self._on_open(self._db)
        return self._db

    def _give_up_removed(self, db: Database) -> None:
        """Handle a file or folder that was deleted. What it held is lost; the counters are not."""
        self._lost = self.ledger.copy()
        log.error(
            "the outbox %s was removed while it was in use: %d hard cases and %d dead letters are lost",
            self._config.path, self._lost.queued, self._lost.dead,
        )  # fmt: skip
        open_db.close_quietly(db)
        self._db = None
        if self._owner is not None:
            os.close(self._owner)
            self._owner = None

    def _carry_over(self) -> None:
        """Into a new file: the counters of a removed one, what it held being dropped as ``damaged``."""
        lost = self._lost
        if lost is None or self._db is None:
            return
        if self.ledger.accepted:  # another outbox was put in its place
            self._lost = None
            return
        with self.transaction(self._db) as draft:
            for name in ("next_seq", "accepted", "delivered", *DROP_REASONS):
                setattr(draft, name, getattr(lost, name))
            draft.damaged += lost.queued + lost.dead
        self._lost = None

    def _abandon(self) -> None:
        if self._db is not None:
            open_db.give_up(self._config.path, self._db)
            self._db = None

    def _replace(self, cause: str) -> None:
        path = self._config.path
        now = self._clock.monotonic()
        if now < self._salvage_after:
            raise StoreCorrupt(
                f"the outbox {path} is damaged ({cause}) and waits to be rebuilt; free space on its disk"
            )
        try:
            damage = salvage(self._config, self._connect, cause)
        except (sqlite3.Error, OSError, MemoryError, Damaged) as error:
            self._salvage_after = now + _SALVAGE_PAUSE_S
            why = str(error) or "no memory"
            raise StoreCorrupt(
                f"the outbox {path} is damaged ({cause}) and cannot be rebuilt yet ({why}); free space on its disk"
            ) from error
        self.damage.append(damage)
        log.error(
            "the outbox was damaged (%s): %d cases carried over, %s lost; the damaged file is %s",
            cause,
            damage.recovered,
            "an unknown number" if damage.lost is None else damage.lost,
            damage.set_aside,
        )
        if self._on_damage is not None:
            self._on_damage(damage)

    def _explain(self, error: sqlite3.Error) -> StoreError | Damaged:
        path = self._config.path
        code = primary_code(error)
        if code is None:  # not from SQLite: Python could not decode a text that we had encoded
            return Damaged(str(error)) if isinstance(error, sqlite3.OperationalError) else StoreError(str(error))
        if code in _DAMAGE:
            return Damaged(str(error))
        if code == Code.FULL:
            return self.full()
        if code in {Code.BUSY, Code.LOCKED}:
            return StoreError(f"the outbox {path} is in use by another program; close it")
        if code == Code.READONLY:
            return StoreError(f"the outbox {path} is read-only; check its permissions and how its disk is mounted")
        return StoreError(f"the outbox {path} failed ({error}); check its disk")
