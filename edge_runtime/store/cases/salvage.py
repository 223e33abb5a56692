"""Salvage of a damaged file of cases: it is set aside, and what can still be read of it goes into a new one.

1. Rows are read one by one, by the numbers that the table or one of its indexes still gives, from either end.
2. Of a row that is readable in part, the label is kept with id, key and stamp: an index holds it a second time.
3. The time that the file has seen, and how a proof stands, are kept where they can be read.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Final

from edge_runtime.errors import StoreCorrupt, StoreError
from edge_runtime.manifest import Channel
from edge_runtime.store.cases.case import Contract
from edge_runtime.store.cases.schema import ADDED
from edge_runtime.store.cases.store import CaseStore, case_of
from edge_runtime.store.durable.outbox import recovery
from edge_runtime.store.durable.outbox.open_db import explain

log = logging.getLogger(__name__)

_WHOLE: Final = ("id", "key", "start", "kept", "why", "samples", "device", "cloud", "label", *ADDED)
_UNREADABLE: Final = (sqlite3.Error, ValueError, TypeError, KeyError, MemoryError)
"""Errors that damaged pages and damaged values raise."""
_TYPES: Final = {"id": str, "key": str, "start": float, "kept": float, "why": str}
_CONTRACT: Final = "SELECT document FROM contract WHERE id = (SELECT contract FROM cases WHERE place = ?)"
_NUMBERS: Final = (
    "SELECT place, label FROM cases INDEXED BY by_label ORDER BY label, place",
    "SELECT place, label FROM cases INDEXED BY by_label ORDER BY label DESC, place DESC",
    "SELECT place, '' FROM cases INDEXED BY by_key",
    "SELECT place, '' FROM cases ORDER BY place",
    "SELECT place, '' FROM cases ORDER BY place DESC",
)


def open_or_salvage(path: Path, max_bytes: int, max_days: float, *, damaged: bool = False) -> CaseStore:
    """Open the file of the cases; where it is damaged, set it aside and go on with a new one.

    Args:
        path: the file's path, as of `CaseStore`.
        max_bytes: most bytes, as of `CaseStore`.
        max_days: longest time, as of `CaseStore`.
        damaged: it was found damaged when it was used, which opening it need not show.

    Raises:
        StoreError: as `CaseStore`; or there is no room for the new file.
    """
    why = "found when it was used"
    try:
        recovery.finish(path)
        store = CaseStore(path, max_bytes, max_days)
        if not damaged:
            return store
        store.close()
    except StoreCorrupt as error:
        why = str(error.__cause__)
    except OSError as error:
        raise explain(error, f"the cases {path}") from error
    rebuilt = recovery.rebuilt_of(path)
    try:
        recovery.remove(rebuilt)
        CaseStore(rebuilt, max_bytes, max_days).close()
        with closing(sqlite3.connect(path)) as old, closing(sqlite3.connect(rebuilt)) as new:
            labels = _carry_over(old, new)
        path.with_name(f"{path.name}-shm").unlink(missing_ok=True)
        aside = recovery.replace_damaged(path)
    except (sqlite3.Error, OSError) as error:
        raise StoreError(f"the cases in {path} are damaged and cannot be rebuilt: {error}; make room") from error
    log.error("cases: set a damaged file aside: path=%s labels_kept=%d error=%s", aside, labels, why)
    return CaseStore(path, max_bytes, max_days)


def _carry_over(old: sqlite3.Connection, new: sqlite3.Connection) -> int:
    """Copy what is readable; return how many labels there are."""
    labels: dict[int, str] = {}
    for query in _NUMBERS:  # rule 1
        with suppress(*_UNREADABLE):
            for place, label in old.execute(query):
                labels[place] = labels.get(place) or label
    state: list[Any] = []
    with suppress(*_UNREADABLE):
        state = old.execute("SELECT name, value FROM state").fetchall()
    with new:
        new.executemany("INSERT OR REPLACE INTO state VALUES (?, ?)", state)
        for document, row in _rows(old, labels):
            new.execute("INSERT OR IGNORE INTO contract (document) VALUES (?)", (document,))
            names, marks = ", ".join(row), ", ".join("?" * len(row))
            new.execute(
                f"INSERT OR IGNORE INTO cases ({names}, contract) "  # noqa: S608 - names of columns
                f"VALUES ({marks}, (SELECT id FROM contract WHERE document = ?))",
                (*row.values(), document),
            )
    return int(new.execute("SELECT count(*) FROM cases WHERE label > ''").fetchone()[0])


def _rows(old: sqlite3.Connection, labels: dict[int, str]) -> Iterator[tuple[bytes, dict[str, Any]]]:
    """Give rows, each with the document of its contract."""
    there: list[str] = []
    with suppress(*_UNREADABLE):
        there = [column for _, column, *_ in old.execute("PRAGMA table_info(cases)")]
    for place, label in labels.items():
        try:
            row = _read(old, place, [name for name in _WHOLE if name in there])
            (document,) = old.execute(_CONTRACT, (place,)).fetchone()
            rest = (row.get(name) for name in ("samples", "device", "cloud", "label", "rival", "origin"))
            case_of((*(row[name] for name in _TYPES), document, *rest))
            yield document, row
        except _UNREADABLE:
            with suppress(*_UNREADABLE):
                row = _read(old, place, list(_TYPES))
                contract = Contract("lost", 1.0, (Channel(name="lost", unit=""),), (label,))
                if label:  # rule 2
                    yield contract.to_json(), row | {"samples": b"", "device": b"{}", "label": label}


def _read(old: sqlite3.Connection, place: int, names: list[str]) -> dict[str, Any]:
    """Read a row; raises what is in `_UNREADABLE`."""
    found = old.execute(f"SELECT {', '.join(names)} FROM cases WHERE place = ?", (place,)).fetchone()  # noqa: S608
    row = dict(zip(names, found, strict=True))
    if not all(isinstance(row[name], kind) for name, kind in _TYPES.items()):
        raise TypeError("a row holds a value of the wrong type")
    return row
