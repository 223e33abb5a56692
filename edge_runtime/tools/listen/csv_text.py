"""CSV text in messages: separator, header, decimal mark, and the columns of rows without names."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from edge_runtime.errors import InputError
from edge_runtime.io.codecs.numbers import iso8601
from edge_runtime.tools.listen.tree import MAX_SAMPLES, MAX_TEXT, NUMBER, Leaf, Leaves

_MOST_COLUMNS: Final = 256
_PAIR: Final = re.compile(r"\s*([^\s:=,;][^:=,;\t]{0,63}?)\s*([:=])\s*(\S.*)$")
_COMMA: Final = re.compile(r"^([-+]?\d+),(\d+)$")
NAMELESS: Final = "column "
"""How columns without a name are called, with their number from 1."""


class Dialect(NamedTuple):
    """Form of CSV text, as `edge_runtime.io.codecs.csv.CsvConfig` states it."""

    separator: str
    columns: int
    header: bool = False
    """The first row names the columns."""
    pair: str = ""
    """Character between name and value in each cell."""
    decimal: str = "."


def csv_rows(text: str) -> tuple[Dialect, tuple[Leaves, ...]] | None:
    """Take CSV text apart; None where it is something else.

    1. The separator is the first of semicolon, tab, comma and white space that parts a row into two cells or more.
    2. Cells that are a name, ``:`` or ``=`` and a number name themselves.
    3. A first row of texts above rows of numbers names the columns; else they are numbered.
    4. Numbers, dates, and at most one other text make a row; numbers may have a decimal comma where a semicolon or a
       tab parts the cells.
    """
    lines = [line for line in text.splitlines()[: MAX_SAMPLES + 1] if line.strip() and not line.startswith("#")]
    for separator in ";\t, ":  # rule 1
        rows = [_cells(line, separator) for line in lines]
        if rows and len(set(map(len, rows))) == 1 and 2 <= len(rows[0]) <= _MOST_COLUMNS:
            return _pairs(rows, separator) or _table(rows, separator)
    return None


def _cells(line: str, separator: str) -> list[str]:
    return line.split() if separator == " " else [cell.strip() for cell in line.split(separator)]


def _pairs(rows: list[list[str]], separator: str) -> tuple[Dialect, tuple[Leaves, ...]] | None:  # rule 2
    found: list[Leaves] = []
    marks = set()
    for row in rows:
        matches = [_PAIR.match(cell) for cell in row]
        if not all(match is not None and NUMBER.match(match[3]) for match in matches):
            return None
        marks |= {match[2] for match in matches if match}
        found.append(tuple(Leaf(match[1], float(match[3])) for match in matches if match))
    if len(marks) != 1:
        return None
    return Dialect(separator, len(rows[0]), pair=marks.pop()), tuple(found)


def _table(rows: list[list[str]], separator: str) -> tuple[Dialect, tuple[Leaves, ...]] | None:
    plain = [[_COMMA.sub(r"\1.\2", cell) for cell in row] for row in rows] if separator in ";\t" else rows
    decimal = "." if plain == rows else ","
    rows = plain
    header = len(rows) > 1 and all(cell and not NUMBER.match(cell) for cell in rows[0])  # rule 3
    names = rows[0] if header else [f"{NAMELESS}{i}" for i in range(1, len(rows[0]) + 1)]
    body = rows[1:] if header else rows
    if not all(map(_is_row, body)):
        return None
    dialect = Dialect(separator, len(names), header=header, decimal=decimal)
    return dialect, tuple(_leaves(names, row) for row in body)


def _leaves(names: list[str], row: list[str]) -> Leaves:
    return tuple(Leaf(name, _value(cell)) for name, cell in zip(names, row, strict=True))


def _is_row(cells: list[str]) -> bool:  # rule 4
    numbers = sum(1 for cell in cells if NUMBER.match(cell))
    others = sum(1 for cell in cells if cell and not NUMBER.match(cell) and not _is_date(cell))
    return numbers >= 1 and others <= 1


def _value(cell: str) -> float | str | None:
    if not cell:
        return None
    return float(cell) if NUMBER.match(cell) else cell[:MAX_TEXT]


def _is_date(cell: str) -> bool:
    try:
        iso8601(cell)
    except InputError:
        return False
    return True
