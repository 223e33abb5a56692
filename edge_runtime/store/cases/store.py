"""Store of kept cases: one SQLite file, bounded in bytes and days, from which each key can be erased.

Several processes may use it at a time: the application writes cases, its page and ``edge-runtime review`` write labels.
What is erased is overwritten (SQLite's ``secure_delete``) and does not stay in the log beside the file.

What goes, and what stays:

1. Only `CaseStore.erase` deletes a label: no clock does, and no lack of room.
2. A case is `max_days` old after so much powered time, kept over restarts as the outbox keeps it: the wall clock has no
   say. Then a case without a label goes; of one with a label the samples and answers go, and its id, key, stamp, model,
   label, origin and the digest of its samples stay.
3. Where the file is full, cases without a label go, the oldest first; then those of a proof, the last drawn first, down
   to half of the file; then the samples of cases with a label, the oldest first.
4. Labels are bounded, too: of `max_bytes` each may use `LABEL_BYTES`. What is beyond is refused, and says so.
5. Windows on which two models differ are a sample, drawn and ordered by `edge_runtime.store.cases.draw`. It is of one
   try of one pair of models: once another begins, those without a label go. None joins it once it is closed.

All others wait for a label by turns: of each key and each answer of the device one, as drawn, then the next. The oldest
first would be the same few movements: those of the first minutes (docs/accuracy.md, few labels).
"""

from __future__ import annotations

import hashlib
import math
import os
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

import numpy as np
import orjson

from edge_runtime.errors import InputError, StoreCorrupt, StoreError, StoreUnusable
from edge_runtime.store.cases import schema
from edge_runtime.store.cases.case import NONE_OF_THESE, SKIP, Case, Contract, Origin, Rival
from edge_runtime.store.cases.draw import PLACES, drawn, secret_of
from edge_runtime.store.durable.outbox import recovery
from edge_runtime.store.durable.outbox.open_db import explain
from edge_runtime.store.durable.outbox.path_checks import refuse_foreign
from edge_runtime.store.durable.sqlite_errors import Code, primary_code

State = Literal["open", "labelled", "all"]

_APPLICATION_ID: Final = 0x65_43_61_73
_PAGE_BYTES: Final = 4096
_BUSY_S: Final = 10.0
_DAY_S: Final = 86_400.0
LABEL_BYTES: Final = 4096
_WORTH_A_WRITE_S: Final = 60.0
_DAMAGE: Final = {Code.CORRUPT, Code.NOTADB, Code.ERROR}  # the last: tables or JSON that are not ours any more
_AT_ONCE: Final = 64
"""Cases that make room together."""


class Sampled(NamedTuple):
    """A window on which two models differ."""

    draw: int
    key: str
    rival: Rival
    label: str
    origin: str


class CaseStore:
    """The file. Safe to use from several threads.

    Args:
        path: the file's path; it is made where there is none.
        max_bytes: most that the file may have.
        max_days: longest time that a case is kept.

    Raises:
        StoreUnusable: the file is another program's, or others could have written it.
        StoreCorrupt: the file is damaged (`edge_runtime.store.cases.salvage`).
        StoreError: the disk fails.
    """

    def __init__(self, path: Path, max_bytes: int, max_days: float) -> None:
        self.path = path
        self._max_bytes = max_bytes
        self._max_days = max_days
        self._lock = threading.Lock()
        self._pair = b""
        self._secret = b""
        self._seen_s: float | None = None
        self._kept_s = 0.0
        try:
            refuse_foreign(path)
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        except OSError as error:
            raise explain(error, f"the cases {path}") from error
        with self._named_errors():
            self._db = sqlite3.connect(path, timeout=_BUSY_S, isolation_level=None, check_same_thread=False)
            try:
                self._configure()
            except BaseException:
                self._db.close()
                raise

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
        db.executescript(schema.SCHEMA)
        db.create_function("digest", 1, lambda samples: hashlib.sha256(samples).digest(), deterministic=True)
        there = {column for _, column, *_ in db.execute("PRAGMA table_info(cases)")}
        for name, kind in schema.ADDED.items():
            if name not in there:
                db.execute(f"ALTER TABLE cases ADD COLUMN {name} {kind}")
        db.executescript(schema.INDEXES)

    @contextmanager
    def _named_errors(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
            if isinstance(error, UnicodeDecodeError) or primary_code(error) in _DAMAGE:
                raise StoreCorrupt(
                    f"the cases in {self.path} are damaged ({error}); an application that runs sets the file aside"
                ) from error
            raise StoreError(f"the cases in {self.path} cannot be used: {error}; check its disk") from error

    @contextmanager
    def _changing(self) -> Iterator[sqlite3.Connection]:
        with self._lock, self._named_errors():
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield self._db
                self._db.execute("COMMIT")
            except BaseException:
                self._pair = b""  # what it dropped is back
                if self._db.in_transaction:  # on a full disk SQLite has rolled back by its own rules
                    self._db.execute("ROLLBACK")
                raise

    def close(self) -> None:
        """Close the file. May be called twice."""
        with self._lock:
            self._db.close()

    # -- writing -------------------------------------------------------------------------------------------------------

    def write(self, cases: Sequence[Case], corrections: Sequence[tuple[str, bytes]], now: float) -> int:
        """Add cases, then the cloud's answers to such cases, by id; then make room.

        Args:
            cases: a case that is there already stays as it is, but for a rival that it did not have.
            corrections: id and JSON; of a window that was not kept, nothing is noted.
            now: monotonic time of this process, seconds.

        Returns:
            How many cases with a label lost their samples.

        Raises:
            StoreError: the disk fails; nothing of it was written.
        """
        with self._changing() as db:
            age_s = self._powered(db, now)
            for case in cases:
                if case.rival is not None:
                    self._turn_to(db, pair_of(case.rival), age_s)
                self._add(db, case, age_s)
            db.executemany(
                "UPDATE cases SET cloud = ? WHERE id = ? AND length(samples) > 0", [one[::-1] for one in corrections]
            )
            if any(case.rival for case in cases):
                self._shorten_sample(db, self._places(db))
            oldest = age_s - self._max_days * _DAY_S
            stripped = db.execute(schema.STRIP, (oldest, -1)).rowcount  # rule 2
            db.execute("DELETE FROM cases WHERE stored_s < ? AND label = ''", (oldest,))
            stripped += self._make_room(db)
        self._seen_s = self._kept_s
        self._give_back()
        return stripped

    def _powered(self, db: sqlite3.Connection, now: float, worth_s: float = 0.0) -> float:
        """Return how long the application has run with this file (rule 2), and keep it where that is worth a write."""
        passed_s = 0.0 if self._seen_s is None else max(0.0, now - self._seen_s)
        powered_s = float(_state(db, "powered_s")) + passed_s
        if self._seen_s is None or passed_s >= worth_s:
            db.execute("INSERT OR REPLACE INTO state VALUES ('powered_s', ?)", (powered_s,))
            self._kept_s = now
        return powered_s

    def _make_room(self, db: sqlite3.Connection) -> int:
        """Make room by rule 3; return how many cases with a label lost their samples."""
        others = (
            "DELETE FROM cases WHERE place IN "
            "(SELECT place FROM cases WHERE label = '' AND rival IS NULL ORDER BY place LIMIT ?)"
        )
        sampled = "SELECT count(*), total(length(samples)) FROM cases WHERE label = '' AND rival IS NOT NULL"
        stripped, places = 0, self._places(db)
        while self._used(db) > self._max_bytes - self._max_bytes // 16:
            if db.execute(others, (_AT_ONCE,)).rowcount:
                continue
            n, used = db.execute(sampled).fetchone()
            if n and used > self._max_bytes // 2 and places > _AT_ONCE // 8:
                places -= _AT_ONCE // 8
                db.execute("INSERT OR REPLACE INTO state VALUES ('places', ?)", (places,))
                self._shorten_sample(db, places)
            elif found := db.execute(schema.STRIP, (math.inf, _AT_ONCE)).rowcount:
                stripped += found
            else:
                break
        return stripped

    @staticmethod
    def _places(db: sqlite3.Connection) -> int:
        """Return how many windows the sample may have: once it was shortened, later ones alone would fill it again."""
        return int(_state(db, "places") or PLACES)

    def _shorten_sample(self, db: sqlite3.Connection, places: int) -> None:
        beyond = f"(SELECT place {schema.SAMPLE} LIMIT -1 OFFSET ?2)"
        pair = _state(db, "pair") or b""
        db.execute(f"UPDATE cases SET rival = NULL WHERE place IN {beyond}", (pair, places))  # noqa: S608
        db.execute(schema.NOT_OF_THE_SAMPLE)

    def _turn_to(self, db: sqlite3.Connection, pair: bytes, age_s: float) -> None:
        """Begin a sample, where another pair of models, or another try, is not what the last one was of (rule 5)."""
        if pair == self._pair:
            return
        if _state(db, "pair") != pair:
            db.execute(schema.LEAVE_OTHERS, (pair,))
            db.execute(schema.NOT_OF_THE_SAMPLE)
            db.executemany(
                "INSERT OR REPLACE INTO state VALUES (?, ?)",
                [("pair", pair), ("began_s", age_s), ("closed", 0), ("places", PLACES)],
            )
        self._pair = pair

    def draw(self, id_: str) -> int:
        """Draw a number by the id of a window and the secret of this device."""
        self._secret = self._secret or secret_of(self.path.with_name(f"{self.path.name}.key"))
        return drawn(self._secret, id_)

    def _add(self, db: sqlite3.Connection, case: Case, age_s: float) -> None:
        document = case.contract.to_json()
        db.execute("INSERT OR IGNORE INTO contract (document) VALUES (?)", (document,))
        samples = np.ascontiguousarray(case.samples, "<f4").tobytes()
        closed = case.rival is not None and _state(db, "closed")
        db.execute(
            "INSERT INTO cases (id, key, start, kept, why, contract, samples, device, rival, draw, stored_s) "
            "VALUES (?, ?, ?, ?, ?, (SELECT id FROM contract WHERE document = ?), ?, ?, ?, ?, ?) "
            "ON CONFLICT (id) DO UPDATE SET rival = excluded.rival, draw = excluded.draw "
            "WHERE excluded.rival IS NOT NULL AND rival IS NOT excluded.rival",
            (
                case.id, case.key, case.start, case.kept, case.why, document, samples, orjson.dumps(case.device),
                None if closed else case.rival and orjson.dumps(case.rival), self.draw(case.id), age_s,
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
            # As a script: `execute` would take one step, which frees one page.
            self._db.executescript("PRAGMA incremental_vacuum; PRAGMA wal_checkpoint(TRUNCATE)")

    def label(self, id_: str, label: str, origin: Origin) -> None:
        """Note what a person says of a case; an empty label takes it back.

        Raises:
            InputError: ``id``: no such case is kept; ``label``: its bundle has no such label, or the file holds as many
                labels as it may (rule 4).
            StoreError: the disk fails.
        """
        with self._changing() as db:
            found = db.execute(schema.ONE, (id_,)).fetchall()
            if not found:
                raise _gone(id_)
            case = case_of(found[0])
            choices = case.contract.choices
            if label and label not in choices:
                raise InputError(
                    "label", f"{label[:60]!r} is no label of this case; choose among {', '.join(choices)[:500]}"
                )
            most = self._max_bytes // LABEL_BYTES
            if (
                label
                and not case.label
                and db.execute("SELECT count(*) FROM cases WHERE label != ''").fetchone()[0] >= most
            ):
                raise InputError(
                    "label", f"{most} cases have a label, all that max_bytes allows; export and erase them"
                )
            db.execute("UPDATE cases SET label = ?, origin = ? WHERE id = ?", (label, origin if label else "", id_))
            db.execute("DELETE FROM cases WHERE id = ? AND label = '' AND length(samples) = 0", (id_,))

    def close_sample(self, pair: Rival) -> None:
        """Close the sample of this try of these two models (rule 5).

        Raises:
            StoreError: the disk fails.
        """
        with self._changing() as db:
            if _state(db, "pair") == pair_of(pair):
                db.execute("UPDATE state SET value = 1 WHERE name = 'closed'")

    def erase(self, key: str | None) -> int:
        """Erase the cases of a key, or all of them, and damaged files that were set aside; return how many cases.

        Raises:
            StoreError: the disk fails.
        """
        with self._changing() as db:
            erased = db.execute("DELETE FROM cases WHERE ?1 IS NULL OR key = ?1", (key,)).rowcount
            db.execute("DELETE FROM contract WHERE id NOT IN (SELECT contract FROM cases)")
            if erased:  # what is left may be too few to decide by
                db.execute("UPDATE state SET value = 0 WHERE name = 'closed'")
        self._give_back()
        try:
            for damaged in recovery.set_aside(self.path):
                recovery.remove(damaged)
        except OSError as error:
            raise StoreError(f"{self.path}: what was set aside of it cannot be removed: {error.strerror}") from error
        return erased

    # -- reading -------------------------------------------------------------------------------------------------------

    def one(self, id_: str) -> Case:
        """Return a case.

        Raises:
            InputError: ``id``: no such case is kept.
            StoreError: the disk fails.
        """
        found = self._rows(schema.ONE, id_)
        if not found:
            raise _gone(id_)
        return case_of(found[0])

    def each(self, ids: Iterable[str]) -> Iterator[Case]:
        """Give cases, each read when it is its turn, without those that were erased or made room by then.

        Raises:
            StoreError: the disk fails.
        """
        for id_ in ids:
            yield from map(case_of, self._rows(schema.ONE, id_))

    def summaries(self, state: State, limit: int, key: str = "") -> list[dict[str, Any]]:
        """Return id, key, start, reason and label of cases: open ones by turns, others the oldest first.

        Raises:
            StoreError: the disk fails.
        """
        rows = self._rows(schema.SUMMARIES, state, key, limit)
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
        """Give the cases that have a label of their bundle, and samples: key by key, the newest first.

        Raises:
            StoreError: the disk fails.
        """
        asked = "SELECT id FROM cases WHERE label NOT IN ('', ?, ?) AND length(samples) > 0 ORDER BY key, start DESC"
        return self.each(id_ for (id_,) in self._rows(asked, NONE_OF_THESE, SKIP))

    def begin_sample(self, pair: Rival, now: float) -> tuple[float, bool, int]:
        """Begin the sample of a try of two models where it is not begun.

        Returns:
            Powered seconds since it began, whether it is closed, and how many windows it may have.

        Raises:
            StoreError: the disk fails.
        """
        with self._changing() as db:
            age_s = self._powered(db, now, _WORTH_A_WRITE_S)
            self._turn_to(db, pair_of(pair), age_s)
            found = age_s - _state(db, "began_s"), bool(_state(db, "closed")), self._places(db)
        self._seen_s = self._kept_s
        return found

    def sample(self, bundle: str) -> list[Sampled]:
        """Give the windows on which a model on trial differs, of all tries, in the order in which they count.

        Args:
            bundle: SHA-256 of its file.

        Raises:
            StoreError: the disk fails.
        """
        rows = self._rows(
            f"SELECT draw, key, rival, label, origin {schema.SAMPLE}", orjson.dumps({"bundle": bundle})[:-1] + b","
        )
        return [Sampled(draw, key, Rival(**orjson.loads(rival)), *rest) for draw, key, rival, *rest in rows]

    def _rows(self, statement: str, *parameters: object) -> list[Any]:
        with self._lock, self._named_errors():
            return self._db.execute(statement, parameters).fetchall()


def _gone(id_: str) -> InputError:
    return InputError("id", f"no case {id_[:80]!r} is kept; it was erased, or made room for others")


def pair_of(rival: Rival) -> bytes:
    """Return how the record of each window begins on which these two models differ, in one try."""
    return orjson.dumps({"bundle": rival.bundle, "against": rival.against, "attempt": rival.attempt})[:-1] + b","


def _state(db: sqlite3.Connection, name: str) -> Any:
    found = db.execute("SELECT value FROM state WHERE name = ?", (name,)).fetchone()
    return found[0] if found else 0


def case_of(row: Iterable[Any]) -> Case:
    """Read the case in a row; raises what damaged values do."""
    id_, key, start, kept, why, document, samples, device, cloud, label, rival, origin = row
    contract = Contract.from_json(document)
    values = np.frombuffer(samples, "<f4").reshape(-1, len(contract.channels))
    return Case(
        id_, key, start, kept, why, contract, values, orjson.loads(device), cloud and orjson.loads(cloud), label,
        rival and Rival(**orjson.loads(rival)), origin,
    )  # fmt: skip
