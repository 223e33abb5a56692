"""State file: what an application has learnt, in a SQLite database beside the outbox with a row for each part.

Rules:

1. Parts that have changed are written in one transaction: once a minute, at an orderly stop, and by `write_now`. A kill
   costs the last minute, so this is for what is learnt slowly. Parts that this run does not know stay as they are.
2. A part that cannot be read is set aside (``outbox.gate.damaged``) and begins again. Where SQLite calls the file
   damaged, the file is set aside, and the parts that could be read are written to a new one.
3. A full or failing disk, and a file that others own or may write to, cost what it held and nothing else. That is
   logged once, and tried again at the next write.
4. Earlier versions had a file for each part (``outbox.gate``). It is read in place of the part, and removed once
   that is committed.
5. A new row goes into free pages, then the one before is deleted: pages that were free need no journal, so that a large
   part is written once and not twice. What a person may take out (`add`, ``erases``) is overwritten all the same.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

from edge_runtime.base.system import durable_file
from edge_runtime.base.system.loop import Loop
from edge_runtime.errors import StoreError, StoreUnusable
from edge_runtime.store.durable.outbox.path_checks import refuse_foreign
from edge_runtime.store.durable.sqlite_errors import is_damage

log = logging.getLogger(__name__)

EVERY_S: Final = 60.0
DAMAGED: Final = ".damaged"
"""Suffix of what could not be read: a program of another version may still read it."""
_FORMAT: Final = 1
_WAIT_S: Final = 5.0
"""Longest wait for a command, or another worker, that reads the file."""


class StateFile:
    """Writes what its parts save, and hands them what was written last. All methods belong to the loop's thread.

    Args:
        path: the database; its folder must exist.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._parts: dict[str, Callable[[], bytes]] = {}
        self._left: dict[str, bytes] = {}
        """Parts of the run before that this one has not added."""
        self._written: dict[str, bytes] = {}
        self._erased: set[str] = set()
        self._replaced: list[Path] = []
        self._failing = self._open = False
        self._thread: threading.Thread | None = None

    def open(self, loop: Loop) -> None:
        """Read the file, and write from now on."""
        with self._logged():
            refuse_foreign(self._path)
            self._left, damage = _read(self._path)
            self._written = dict(self._left)
            if damage is not None:
                self._set_aside(damage)
        self._open = True
        loop.call_every(EVERY_S, self._save)

    def add(
        self, part: str, save: Callable[[], bytes], restore: Callable[[bytes], object], *, erases: bool = False
    ) -> bool:
        """Keep a part from now on.

        Args:
            part: the part's name.
            save: encodes the part.
            restore: takes what the run before has left; it raises `StoreError` for what it cannot read.
            erases: what a new state no longer has may not stay readable in the file.

        Returns:
            Whether a run before has left something.
        """
        self._parts[part] = save
        if erases:
            self._erased.add(part)
        data = self._left.pop(part, None)
        earlier = earlier_file(self._path, part)
        with self._logged():
            if earlier.exists():  # rule 4
                refuse_foreign(earlier)
                data = earlier.read_bytes()
                self._replaced.append(earlier)
        if data is None:
            return False
        try:
            restore(data)
        except StoreError as error:  # rule 2
            aside = earlier.with_name(earlier.name + DAMAGED)
            log.warning("state: a part begins again, and is set aside: part=%s file=%s error=%s", part, aside, error)
            with self._logged():
                durable_file.write(aside, data)
        return True

    def write_now(self) -> bool:
        """Write what must not wait for the minute. Returns whether the disk has it."""
        if self._thread is not None:
            self._thread.join()
        self._write(self._saved())
        return not self._failing

    def close(self) -> None:
        """Write once more. May be called twice."""
        if self._open:
            self._open = False
            self.write_now()

    def _saved(self) -> dict[str, bytes]:
        return self._left | {part: save() for part, save in self._parts.items()}

    def _save(self) -> None:
        if self._open and (self._thread is None or not self._thread.is_alive()):
            self._thread = threading.Thread(target=self._write, args=(self._saved(),), name="state", daemon=True)
            self._thread.start()

    def _write(self, parts: dict[str, bytes]) -> None:
        with self._logged():
            refuse_foreign(self._path)
            try:
                self._commit(parts)
            except sqlite3.DatabaseError as error:
                self._set_aside(_damage(error))  # rule 2
                self._commit(parts)
            while self._replaced:
                durable_file.remove(self._replaced[-1])  # rule 4
                durable_file.sync_folder(self._path.parent)
                self._replaced.pop()
            self._failing = False

    def _commit(self, parts: dict[str, bytes]) -> None:
        if not self._path.exists():
            self._written.clear()
        changed = {part: data for part, data in parts.items() if self._written.get(part) != data}
        if changed:
            with _opened(self._path) as db:
                if self._erased & changed.keys():
                    db.execute("PRAGMA secure_delete = ON")
                db.execute("BEGIN IMMEDIATE")
                for part, data in changed.items():  # rule 5
                    new = db.execute("INSERT INTO parts VALUES (?,?,?)", (part, _FORMAT, data)).lastrowid
                    db.execute("DELETE FROM parts WHERE part = ? AND rowid != ?", (part, new))
                db.execute("COMMIT")
            self._written.update(changed)

    def _set_aside(self, damage: Exception) -> None:
        aside = self._path.with_name(self._path.name + DAMAGED)
        for suffix in ("-journal", ""):  # a journal that stayed would be played into the new file
            if (source := self._path.with_name(self._path.name + suffix)).exists():
                durable_file.move(source, aside.with_name(aside.name + suffix))
        log.warning("state: the file is damaged, and was set aside: file=%s error=%s", aside, damage)

    @contextmanager
    def _logged(self) -> Iterator[None]:
        """Keep an error from going further (rule 3)."""
        try:
            yield
        except (OSError, StoreError, sqlite3.Error) as error:
            if not self._failing:
                log.warning("state: what is learnt cannot be read or kept: file=%s error=%s", self._path, error)
            self._failing = True


def read_part(path: Path, part: str) -> bytes | None:
    """Read a part as it was written last, also beside a running application; None where there is none.

    Raises:
        StoreError: it cannot be read.
    """
    try:
        earlier = earlier_file(path, part)
        return earlier.read_bytes() if earlier.exists() else _read(path)[0].get(part)
    except (OSError, sqlite3.Error) as error:
        raise StoreError(f"{path}: cannot be read: {error}") from error


def earlier_file(path: Path, part: str) -> Path:
    """Return the file that a part had in earlier versions: ``outbox.gate`` for ``outbox.state.db``."""
    return path.with_suffix("").with_suffix(f".{part}")


def _read(path: Path) -> tuple[dict[str, bytes], Exception | None]:
    """Return the parts that can be read, and what is damaged (rule 2)."""
    found: dict[str, bytes] = {}
    damage: Exception | None = None
    if path.exists():
        try:
            with _opened(path) as db:
                for (part,) in db.execute("SELECT part FROM parts WHERE format = ?", (_FORMAT,)).fetchall():
                    try:
                        (data,) = db.execute("SELECT CAST(bytes AS BLOB) FROM parts WHERE part = ?", (part,)).fetchone()
                        found[part] = data or b""
                    except (sqlite3.DatabaseError, MemoryError) as error:
                        damage = _damage(error)
        except sqlite3.DatabaseError as error:
            damage = _damage(error)
    return found, damage


def _damage(error: Exception) -> Exception:
    if not is_damage(error):
        raise error
    return error


@contextmanager
def _opened(path: Path) -> Iterator[sqlite3.Connection]:
    """Open the database, and close it.

    Raises:
        StoreUnusable: it is another program's.
        sqlite3.Error, OSError: the disk fails, or the file is damaged.
    """
    if not path.exists():
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        durable_file.sync_folder(path.parent)
    with closing(sqlite3.connect(path, timeout=_WAIT_S, isolation_level=None)) as db:
        db.execute("PRAGMA secure_delete = OFF")  # ON, as some systems build it, writes what is deleted twice more
        db.execute("PRAGMA synchronous = EXTRA")  # FULL may give back what was there before, after a power cut
        tables = {name for (name,) in db.execute("SELECT name FROM sqlite_schema").fetchall()}
        if not tables:
            db.execute("CREATE TABLE parts (part TEXT NOT NULL, format INTEGER NOT NULL, bytes BLOB NOT NULL)")
        elif "parts" not in tables:
            raise StoreUnusable(f"{path} is another program's database; move it away")
        yield db
