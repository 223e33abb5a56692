"""Store of kept cases: one SQLite file, bounded in bytes and days, from which each key can be erased.

Several processes may use it at a time: the application writes cases, its page and ``edge-runtime review`` write labels.
What is erased is overwritten (SQLite's ``secure_delete``) and does not stay in the log beside the file.

Windows on which two models differ are a sample: each is drawn by its id, a number as good as random; those with the
lowest numbers stay, up to `MOST_DIFFERING` without a label, and are shown in that order. So whenever one looks, it is a
random sample of all that have differed, however long ago, over restarts too (a bottom-k sketch: Cohen and Kaplan 2007).
The sample is of one pair of models at a time: once others differ, windows of the earlier pair without a label go.

All others wait for a label by turns: of each key and each answer of the device one, as drawn, then the next. The oldest
first would be the same few movements: those of the first minutes (docs/accuracy.md, few labels).
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
import orjson

from edge_runtime.cases.case import NONE_OF_THESE, SKIP, Case, Contract, Rival
from edge_runtime.durable.outbox.path_checks import refuse_foreign
from edge_runtime.errors import InputError, StoreError, StoreUnusable

State = Literal["open", "labelled", "all"]

_APPLICATION_ID: Final = 0x65_43_61_73
_PAGE_BYTES: Final = 4096
_BUSY_S: Final = 10.0
_DAY_S: Final = 86_400.0
MOST_DIFFERING: Final = 256
"""Windows without a label that are kept since two models differ on them."""
MOST_DRAWN: Final = 2**32 - 1
_AT_ONCE: Final = 64
"""Cases that make room together."""
_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS contract (id INTEGER PRIMARY KEY, document BLOB NOT NULL UNIQUE);
CREATE TABLE IF NOT EXISTS cases (
    place INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, key TEXT NOT NULL, start REAL NOT NULL, kept REAL NOT NULL,
    why TEXT NOT NULL, contract INTEGER NOT NULL REFERENCES contract, samples BLOB NOT NULL, device BLOB NOT NULL,
    cloud BLOB, label TEXT NOT NULL DEFAULT '', rival BLOB, draw INTEGER
);
CREATE INDEX IF NOT EXISTS by_key ON cases (key);
CREATE INDEX IF NOT EXISTS by_label ON cases (label, place);
"""
_ONE: Final = """
SELECT cases.id, key, start, kept, why, document, samples, device, cloud, label, rival
FROM cases JOIN contract ON contract.id = contract WHERE cases.id = ?
"""
_SUMMARIES: Final = """
SELECT id, key, start, why, label FROM (
    SELECT id, key, start, why, label, rival, draw, place, row_number() OVER (
        PARTITION BY key, json_extract(CAST(device AS TEXT), '$.label') ORDER BY label = '', draw, place
    ) AS turn FROM cases
)
WHERE (?1 = 'all' OR (label = '') = (?1 = 'open')) AND (?2 = '' OR key = ?2)
ORDER BY ?1 = 'open' AND rival IS NOT NULL DESC,
    CASE WHEN ?1 != 'open' THEN NULL WHEN rival IS NULL THEN turn ELSE draw END, place
LIMIT ?3
"""
"""Those that two models differ on come first among the open ones, as drawn: an update waits for their labels. Cases
with a label are turns that are over, so what has few labels comes next."""
_DRAWN_LATEST: Final = """
DELETE FROM cases WHERE place IN
    (SELECT place FROM cases WHERE why = 'differ' AND label = '' ORDER BY draw LIMIT -1 OFFSET ?)
"""
_ONLY_OTHERS_DIFFER: Final = """
DELETE FROM cases WHERE why = 'differ' AND rival IS NOT NULL AND label = '' AND substr(rival, 1, length(?1)) != ?1
"""
_NO_RIVAL: Final = """
UPDATE cases SET rival = NULL
WHERE rival IS NOT NULL AND label = '' AND substr(rival, 1, length(?1)) != ?1
"""


def drawn(id_: str) -> int:
    """Draw a number by the id of a window, 0 to `MOST_DRAWN`, evenly."""
    return int.from_bytes(hashlib.blake2b(id_.encode("utf-8", "surrogatepass"), digest_size=4).digest(), "big")


class CaseStore:
    """The file. Safe to use from several threads.

    Args:
        path: of the file; it is made where there is none.
        max_bytes: most that the file may have.
        max_days: longest time that a case is kept.

    Raises:
        StoreUnusable: the file is another program's, or others could have written it.
        StoreError: the disk fails.
    """

    def __init__(self, path: Path, max_bytes: int, max_days: float) -> None:
        self.path = path
        self._max_bytes = max_bytes
        self._max_days = max_days
        self._lock = threading.Lock()
        self._pair = b""
        try:
            refuse_foreign(path)
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        except OSError as error:
            raise StoreError(f"cannot use the cases {path}: {error.strerror}; check its disk") from error
        self._db = sqlite3.connect(path, timeout=_BUSY_S, isolation_level=None, check_same_thread=False)
        with self._named_errors():
            self._configure()

    def _configure(self) -> None:
        db = self._db
        (owner,) = db.execute("PRAGMA application_id").fetchone()
        (tables,) = db.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if tables and owner != _APPLICATION_ID:
            raise StoreUnusable(f"{self.path} holds no cases; name another file")
        db.execute(f"PRAGMA page_size = {_PAGE_BYTES}")
        db.execute("PRAGMA auto_vacuum = INCREMENTAL")
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = NORMAL")
        db.execute("PRAGMA secure_delete = ON")
        db.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
        db.executescript(_SCHEMA)
        if "rival" not in {column for _, column, *_ in db.execute("PRAGMA table_info(cases)")}:
            db.execute("ALTER TABLE cases ADD COLUMN rival BLOB")  # a file of a version before models were proved
            db.execute("ALTER TABLE cases ADD COLUMN draw INTEGER")

    @contextmanager
    def _named_errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.DatabaseError as error:
            raise StoreError(f"the cases in {self.path} cannot be used: {error}") from error

    @contextmanager
    def _changing(self) -> Iterator[sqlite3.Connection]:
        with self._lock, self._named_errors():
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield self._db
            except BaseException:
                self._pair = b""  # what it dropped is back
                self._db.execute("ROLLBACK")
                raise
            self._db.execute("COMMIT")

    def close(self) -> None:
        """Close the file. May be called twice."""
        with self._lock:
            self._db.close()

    # -- writing -------------------------------------------------------------------------------------------------------

    def write(self, cases: Sequence[Case], corrections: Sequence[tuple[str, bytes]], now: float) -> None:
        """Add cases, then the cloud's answers to such cases, by id; then make room.

        Args:
            cases: a case that is there already stays as it is, but for a rival that it did not have.
            corrections: id and JSON; of a window that was not kept, nothing is noted.
            now: wall clock, seconds.

        Raises:
            StoreError: the disk fails; nothing of it was written.
        """
        with self._changing() as db:
            for case in cases:
                if case.rival is not None:
                    self._turn_to(db, _pair(case.rival))
                self._add(db, case)
            db.executemany("UPDATE cases SET cloud = ? WHERE id = ?", [(data, id_) for id_, data in corrections])
            db.execute(_DRAWN_LATEST, (MOST_DIFFERING,))
            db.execute("DELETE FROM cases WHERE kept < ?", (now - self._max_days * _DAY_S,))
            while (
                self._used(db) > self._max_bytes - self._max_bytes // 16
                and db.execute(
                    "DELETE FROM cases WHERE place IN (SELECT place FROM cases ORDER BY label != '', place LIMIT ?)",
                    (_AT_ONCE,),
                ).rowcount
            ):
                pass
        self._give_back()

    def _turn_to(self, db: sqlite3.Connection, pair: bytes) -> None:
        """Drop what waits for a label since two other models differ."""
        if pair != self._pair:
            db.execute(_ONLY_OTHERS_DIFFER, (pair,))
            db.execute(_NO_RIVAL, (pair,))
            self._pair = pair

    @staticmethod
    def _add(db: sqlite3.Connection, case: Case) -> None:
        document = case.contract.to_json()
        db.execute("INSERT OR IGNORE INTO contract (document) VALUES (?)", (document,))
        samples = np.ascontiguousarray(case.samples, "<f4").tobytes()
        db.execute(
            "INSERT INTO cases (id, key, start, kept, why, contract, samples, device, rival, draw) "
            "VALUES (?, ?, ?, ?, ?, (SELECT id FROM contract WHERE document = ?), ?, ?, ?, ?) "
            "ON CONFLICT (id) DO UPDATE SET "
            "rival = coalesce(excluded.rival, rival), draw = excluded.draw",
            (
                case.id, case.key, case.start, case.kept, case.why, document, samples, orjson.dumps(case.device),
                case.rival and orjson.dumps(case.rival), drawn(case.id),
            ),
        )  # fmt: skip

    @staticmethod
    def _used(db: sqlite3.Connection) -> int:
        """Bytes that hold something; pages that became free count as room."""
        (pages,) = db.execute("PRAGMA page_count").fetchone()
        (free,) = db.execute("PRAGMA freelist_count").fetchone()
        return int(pages - free) * _PAGE_BYTES

    def _give_back(self) -> None:
        """Shorten the file by what is free, and empty the log beside it, where erased samples could stand."""
        with self._lock, self._named_errors():
            self._db.execute("PRAGMA incremental_vacuum").fetchall()
            self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def label(self, id_: str, label: str) -> None:
        """Note what a person says of a case; an empty label takes it back.

        Raises:
            InputError: ``id``: no such case is kept; ``label``: its bundle has no such label.
            StoreError: the disk fails.
        """
        with self._changing() as db:
            found = db.execute(_ONE, (id_,)).fetchall()
            if not found:
                raise _gone(id_)
            choices = _case(found[0]).contract.choices
            if label and label not in choices:
                raise InputError(
                    "label", f"{label[:60]!r} is no label of this case; choose among {', '.join(choices)[:500]}"
                )
            db.execute("UPDATE cases SET label = ? WHERE id = ?", (label, id_))

    def erase(self, key: str | None) -> int:
        """Erase the cases of a key, or all of them; return how many there were.

        Raises:
            StoreError: the disk fails.
        """
        with self._changing() as db:
            erased = db.execute("DELETE FROM cases WHERE ?1 IS NULL OR key = ?1", (key,)).rowcount
            db.execute("DELETE FROM contract WHERE id NOT IN (SELECT contract FROM cases)")
        self._give_back()
        return erased

    # -- reading -------------------------------------------------------------------------------------------------------

    def one(self, id_: str) -> Case:
        """Return a case.

        Raises:
            InputError: ``id``: no such case is kept.
            StoreError: the disk fails.
        """
        found = self._rows(_ONE, id_)
        if not found:
            raise _gone(id_)
        return _case(found[0])

    def each(self, ids: Iterable[str]) -> Iterator[Case]:
        """Give cases, each read when it is its turn, without those that were erased or made room by then.

        Raises:
            StoreError: the disk fails.
        """
        for id_ in ids:
            yield from map(_case, self._rows(_ONE, id_))

    def summaries(self, state: State, limit: int, key: str = "") -> list[dict[str, Any]]:
        """Return id, key, start, reason and label of cases: open ones by turns, others the oldest first.

        Raises:
            StoreError: the disk fails.
        """
        rows = self._rows(_SUMMARIES, state, key, limit)
        return [dict(zip(("id", "key", "start", "why", "label"), row, strict=True)) for row in rows]

    def counts(self) -> dict[str, int]:
        """Count cases that are open, have a label of the bundle, or were put aside; and bytes that they use.

        Raises:
            StoreError: the disk fails.
        """
        [(everything, done, aside)] = self._rows(
            "SELECT count(*), total(label != ''), total(label IN (?, ?)) FROM cases", NONE_OF_THESE, SKIP
        )
        with self._lock, self._named_errors():
            used = self._used(self._db)
        return {"open": int(everything - done), "labelled": int(done - aside), "aside": int(aside), "bytes": used}

    def labelled(self) -> Iterator[Case]:
        """Give the cases that have a label of their bundle: key by key, the newest first.

        Raises:
            StoreError: the disk fails.
        """
        asked = "SELECT id FROM cases WHERE label NOT IN ('', ?, ?) ORDER BY key, start DESC"
        return self.each(id_ for (id_,) in self._rows(asked, NONE_OF_THESE, SKIP))

    def rivals(self, bundle: str) -> list[tuple[int, Rival, str]]:
        """Give the windows on which a model on trial differs: as drawn, what both said, the label (empty: none yet).

        Args:
            bundle: SHA-256 of its file.

        Raises:
            StoreError: the disk fails.
        """
        rows = self._rows("SELECT draw, rival, label FROM cases WHERE rival IS NOT NULL ORDER BY place")
        found = [(draw, Rival(**orjson.loads(rival)), label) for draw, rival, label in rows]
        return [one for one in found if one[1].bundle == bundle]

    def last_draw(self) -> int:
        """Return the draw of the last window that is kept since two models differ; later ones would not stay.

        Raises:
            StoreError: the disk fails.
        """
        found = self._rows(
            "SELECT draw FROM cases WHERE why = 'differ' AND label = '' ORDER BY draw LIMIT 1 OFFSET ?",
            MOST_DIFFERING - 1,
        )
        return int(found[0][0]) if found else MOST_DRAWN

    def _rows(self, statement: str, *parameters: object) -> list[Any]:
        with self._lock, self._named_errors():
            return self._db.execute(statement, parameters).fetchall()


def _gone(id_: str) -> InputError:
    return InputError("id", f"no case {id_[:80]!r} is kept; it was erased, or made room for others")


def _pair(rival: Rival) -> bytes:
    """Return how the record of each window begins that these two models differ on."""
    return orjson.dumps({"bundle": rival.bundle, "against": rival.against})[:-1]


def _case(row: Iterable[Any]) -> Case:
    id_, key, start, kept, why, document, samples, device, cloud, label, rival = row
    contract = Contract.from_json(document)
    values = np.frombuffer(samples, "<f4").reshape(-1, len(contract.channels))
    return Case(
        id_, key, start, kept, why, contract, values, orjson.loads(device), cloud and orjson.loads(cloud), label,
        rival and Rival(**orjson.loads(rival)),
    )  # fmt: skip
