"""Names and formats of stamps in recordings: one list for ``auto``, ``build``, ``replay`` and ``run``."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from datetime import date
from typing import Any

import numpy as np

from edge_runtime.errors import InputError
from edge_runtime.io.codecs.numbers import LATEST_S, UNITS_PER_S, TimeUnit, iso8601, unit_of_date
from edge_runtime.types import Float64

TIME_COLUMNS = ("t", "time", "timestamp", "time_stamp", "ts", "datetime", "date_time", "date")
"""Names of a column of stamps, in lower case; a unit may follow: ``time_ms``, ``Time (s)``."""
OTHER_TIME_COLUMNS = (
    "epoch", "unixtime", "unix_time", "elapsed", "elapsed_time", "seconds_elapsed", "seconds", "ms", "millis",
    "milliseconds",
)  # fmt: skip
"""Names that count where none of `TIME_COLUMNS` is there: loggers add one of these to their stamps."""

_UNITS: dict[str, TimeUnit] = {
    "s": "s", "sec": "s", "secs": "s", "second": "s", "seconds": "s",
    "ms": "ms", "msec": "ms", "millis": "ms", "milliseconds": "ms",
    "us": "us", "µs": "us", "usec": "us", "micros": "us", "microseconds": "us",
    "ns": "ns", "nsec": "ns", "nanos": "ns", "nanoseconds": "ns",
}  # fmt: skip
_SUFFIX = re.compile(rf"^(.*?)(?:[_ ]+|\s*[\[(]\s*)({'|'.join(_UNITS)})\s*[\])]?$")
_LONGEST = 64
"""Characters of a name that may be called like stamps; the search is quadratic, and names come from messages."""
_EMPTY = frozenset(("", "nan", "na", "n/a", "null", "none", "-"))


def time_positions(names: Sequence[str], taken: Collection[int | None] = ()) -> list[int]:
    """Find the columns that are called like stamps; several where the names alone do not decide.

    Args:
        names: the names of all columns.
        taken: positions of columns that hold something else.
    """
    for known in (TIME_COLUMNS, OTHER_TIME_COLUMNS):
        if found := [place for place, name in enumerate(names) if place not in taken and _is_called(name, known)]:
            return found
    return []


def is_time(name: str) -> bool:
    """Return whether a column is called like stamps."""
    return bool(time_positions([name]))


def _is_called(name: str, known: Collection[str]) -> bool:
    plain = name.strip().lower()
    match = _SUFFIX.match(plain) if len(plain) <= _LONGEST else None
    return plain in known or (match is not None and match[1] in known)


def unit_in_name(name: str) -> TimeUnit | None:
    """Read the unit in a name of stamps, as in ``time_ms``, ``Time (s)``, ``seconds_elapsed``; else None."""
    plain = name.strip().lower()
    if plain in (*TIME_COLUMNS, *OTHER_TIME_COLUMNS):
        return _UNITS.get(plain.split("_")[0])
    match = _SUFFIX.match(plain) if len(plain) <= _LONGEST else None
    return _UNITS[match[2]] if match else None


def is_empty(cell: Any) -> bool:
    """Return whether a cell of a table holds nothing: no text, NaN, or a word for it."""
    return cell is None or cell != cell or (isinstance(cell, str) and cell.strip().lower() in _EMPTY)  # noqa: PLR0124


def seconds_of(column: Sequence[Any], unit: TimeUnit) -> Float64:
    """Convert the stamps of a whole column to seconds, NaN for empty cells.

    Args:
        column: numbers, texts of numbers, ISO 8601 texts (``unit`` is ``iso8601``), or dates and times.
        unit: the unit of numbers.

    Raises:
        InputError: ``bad_time``; names the row, counted from 1.
    """
    found = np.full(len(column), np.nan)
    for row, cell in enumerate(column):
        if is_empty(cell):
            continue
        try:
            if isinstance(cell, date):  # a datetime is one, too
                found[row] = iso8601(cell.isoformat())
            elif unit == "iso8601":
                found[row] = iso8601(cell)
            else:
                found[row] = float(cell) / UNITS_PER_S[unit]
        except (TypeError, ValueError) as error:
            raise InputError("bad_time", f"row {row + 1} holds {str(cell)[:40]!r}, no number") from error
        except InputError as error:
            raise InputError("bad_time", f"row {row + 1}: {error}") from error
    return found


def are_texts(column: Sequence[Any]) -> bool:
    """Return whether the first stamp of a column is a date and time, as a text or as itself."""
    first = next((cell for cell in column if not is_empty(cell)), 0)
    if isinstance(first, date):
        return True
    try:
        float(first)
    except ValueError:
        return True
    return False


def unit_of(name: str, first: float) -> TimeUnit:
    """Infer the unit of a column of numbers: the one in its name, else seconds.

    A number that would lie beyond the year 9999 in seconds is a moment since 1970 in a smaller unit.
    """
    return unit_in_name(name) or (unit_of_date(first) if first >= LATEST_S else None) or "s"
