"""CSV recordings, in blocks of rows. See `edge_runtime.io.recordings.reader`."""

from __future__ import annotations

import csv
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain, islice
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from edge_runtime.errors import ConfigError, InputError
from edge_runtime.io.codecs.numbers import UNITS_PER_S, check_key, iso8601
from edge_runtime.io.recordings.columns import is_empty, unit_of
from edge_runtime.io.recordings.spreadsheet import unguarded
from edge_runtime.io.recordings.tables import ROWS, Block, find_columns, of_all, to_physical
from edge_runtime.manifest import InputContract
from edge_runtime.types import Float64

if TYPE_CHECKING:
    from edge_runtime.io.recordings.layout import RecordingLayout, Refused


@contextmanager
def open_csv(path: Path, delimiter: str = "") -> Iterator[tuple[list[str], Iterator[_Row]]]:
    """Open a CSV file with a header line, in UTF-8, for ``auto``, ``build``, ``replay`` and ``run`` alike.

    The first column of a file whose rows have one cell more than the header, as R writes for row names, is called "".

    Args:
        path: the file.
        delimiter: one character; empty: comma, semicolon, tab or bar, whichever the header holds most of.

    Returns:
        Names of the columns; then line number and cells of each row that holds any.

    Raises:
        ConfigError: it cannot be read, or its first line is empty.
    """
    with _opened(path, delimiter) as (header, _, rows, _):
        yield header, rows


_Row: TypeAlias = tuple[int, list[str]]
"""Line number and cells."""


class _Opened(NamedTuple):
    """An open file behind its header."""

    header: list[str]
    delimiter: str
    rows: Iterator[_Row]
    """Those that hold any cells; reads of `lines` no more than it gives, but for the first."""
    lines: Iterator[str]


@contextmanager
def _opened(path: Path, delimiter: str) -> Iterator[_Opened]:
    try:
        file = path.open(encoding="utf-8-sig", newline="")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror or error}") from None
    with file:
        first = file.readline(1 << 20)
        delimiter = delimiter or max(",;\t|", key=first.count)
        header = [
            unguarded(name).strip()
            for name in next(csv.reader([first], delimiter=delimiter, skipinitialspace=True), [])
        ]
        if not any(header):
            raise ConfigError(f"{path}: the first line must name the columns")
        rows = _rows(file, delimiter, 2)
        ahead = list(islice(rows, 1))
        if ahead and len(ahead[0][1]) == len(header) + 1:
            header.insert(0, "")
        yield _Opened(header, delimiter, chain(ahead, rows), file)


def _rows(lines: Iterable[str], delimiter: str, number: int) -> Iterator[_Row]:
    """Cut lines, the first of which has this number, into cells."""
    reader = csv.reader(lines, delimiter=delimiter, skipinitialspace=True)
    return ((reader.line_num + number - 1, cells) for cells in reader if cells)


def csv_blocks(
    path: Path, contract: InputContract, layout: RecordingLayout, fallback: str, refuse: Refused
) -> Iterator[Block]:
    """Blocks of a CSV file, with a point in decimal numbers. Empty cells of channels and stamps are NaN."""
    try:
        with _opened(path, layout.delimiter) as file:
            yield from _Csv(path, file.header, contract, layout, fallback, refuse).blocks(file)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror or error}") from None
    except (csv.Error, UnicodeDecodeError) as error:
        refuse(InputError("malformed", f"{path}: cannot be read to its end: {_why(error)}"))


def _why(error: Exception) -> str:
    if isinstance(error, UnicodeDecodeError):
        return "it is not UTF-8 text; save it as CSV in UTF-8"
    return str(error.strerror or error) if isinstance(error, OSError) else str(error)


def csv_columns(path: Path) -> dict[str, Sequence[Any]]:
    """Whole columns of a CSV file by name; see `edge_runtime.io.recordings.reader.columns_of`."""
    try:
        with open_csv(path) as (header, lines):
            rows = []
            for number, cells in lines:
                if len(cells) != len(header):
                    raise ConfigError(f"{path}: line {number} has another number of columns than the header")
                rows.append([unguarded(cell) for cell in cells])
    except (OSError, csv.Error, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {_why(error)}") from None
    if not rows:
        raise ConfigError(f"{path}: holds no rows")
    return dict(zip(header, map(list, zip(*rows, strict=True)), strict=True))


class _Csv:
    """Turns rows of texts into blocks."""

    def __init__(
        self,
        path: Path,
        header: list[str],
        contract: InputContract,
        layout: RecordingLayout,
        fallback: str,
        refuse: Refused,
    ) -> None:
        self._path = path
        self._header = header
        self._contract = contract
        self._layout = layout
        self._key = layout.key or fallback
        self._refuse = refuse
        self._columns = find_columns(path, header, contract, layout)
        self._physical = to_physical(path, contract, layout, self._columns.names(header))
        self._seen: Counter[str] = Counter()

    def blocks(self, file: _Opened) -> Iterator[Block]:
        """Read a file.

        1. Cells are cut by the csv module, as long as stamps, keys or labels are texts, or nothing says what unit
           stamps have; so are the first rows.
        2. Then lines are read by numpy, three times as fast, unless they hold a quotation mark, behind which a cell may
           go on in the next line, or anything but numbers.
        """
        unit: str = self._layout.time_unit
        line = 2
        while rows := list(islice(file.rows, ROWS)):
            if unit == "auto" and self._columns.time is not None:
                unit = _unit(rows, self._header, self._columns.time)
            yield self._block(rows, unit)
            line = rows[-1][0] + 1
            numbers = self._columns.time is None or unit in UNITS_PER_S
            if numbers and self._columns.key is None and self._columns.label is None:
                break  # rule 2
        yield from self._lines(file, line, unit)

    def _lines(self, file: _Opened, line: int, unit: str) -> Iterator[Block]:
        """Read what is left of a file, from the line with this number on (rule 2)."""
        while lines := list(islice(file.lines, ROWS)):
            table = self._table(lines, file.delimiter)
            if table is not None:
                yield self._numbers_block(table, line, unit)
            else:
                quoted = any('"' in text for text in lines)
                rest = _rows(chain(lines, file.lines) if quoted else lines, file.delimiter, line)
                while rows := list(islice(rest, ROWS)):
                    yield self._block(rows, unit)
            line += len(lines)

    def _table(self, lines: list[str], delimiter: str) -> Float64 | None:
        """Read the channels and the stamp of lines, (lines, columns); None where the csv module has to."""
        between = len(self._header) - 1
        if any(text.count(delimiter) != between or '"' in text or text.isspace() for text in lines):
            return None
        time = self._columns.time
        columns = self._columns.channels if time is None else [*self._columns.channels, time]
        try:
            table = np.loadtxt(lines, np.float64, comments=None, delimiter=delimiter, usecols=columns, ndmin=2)
        except ValueError:
            return None
        return table if len(table) == len(lines) else None

    def _numbers_block(self, table: Float64, line: int, unit: str) -> Block:
        columns = self._columns
        channels = len(columns.channels)
        return Block(
            t=self._counted(self._key, len(table)) if columns.time is None else table[:, -1] / UNITS_PER_S[unit],
            values=self._physical(table[:, :channels]),
            keys=self._key,
            places=range(line, line + len(table)),
            unit="line",
            channels=of_all(columns.present, self._contract),
        )

    def _block(self, rows: list[_Row], unit: str) -> Block:
        time, key, label, channels, present = self._columns
        as_text = unit == "iso8601" and time is not None
        numeric = channels if as_text or time is None else [*channels, time]
        rows, table = self._numbers(rows, numeric)
        if as_text and time is not None:
            rows, kept, stamps = self._parsed(rows, time, _stamp)
            table = np.column_stack((table[kept], stamps))
        keys: str | list[str] = self._key
        if key is not None:
            rows, kept, keys = self._parsed(rows, key, lambda cell: check_key(unguarded(cell)))
            table = table[kept]
        return Block(
            t=self._counted(keys, len(rows)) if time is None else table[:, -1] / UNITS_PER_S.get(unit, 1.0),
            values=self._physical(table[:, : len(channels)]),
            keys=keys,
            places=[line for line, _ in rows],
            unit="line",
            labels="" if label is None else [unguarded(cells[label].strip()) for _, cells in rows],
            channels=of_all(present, self._contract),
        )

    def _counted(self, keys: str | list[str], n: int) -> Float64:
        """Stamps of rows that have none: those of a key are one period apart."""
        if isinstance(keys, str):
            numbers = np.arange(self._seen[keys], self._seen[keys] + n, dtype=np.float64)
            self._seen[keys] += n
        else:
            numbers = np.empty(n)
            for i, key in enumerate(keys):
                numbers[i] = self._seen[key]
                self._seen[key] += 1
        return np.asarray(numbers / self._layout.rate_hz, np.float64)

    def _numbers(self, rows: list[_Row], columns: list[int]) -> tuple[Any, Float64]:
        """Keep the rows whose cells are numbers, and these numbers, (n, columns)."""
        pick: Callable[[list[str]], Any] = itemgetter(*columns) if len(columns) > 1 else _only(columns[0])
        width = len(self._header)
        try:
            if {len(cells) for _, cells in rows} == {width}:
                numbers = list(map(float, chain.from_iterable(pick(cells) for _, cells in rows)))
                return rows, np.array(numbers, np.float64).reshape(len(rows), len(columns))
        except ValueError:
            pass  # some row is at fault; the slow way finds it
        good: list[_Row] = []
        table: list[list[float]] = []
        for line, cells in rows:
            if len(cells) != width:
                self._refuse_row(line, "malformed", f"{len(cells)} cells, the header has {width}")
                continue
            row = self._row_numbers(line, cells, columns)
            if row is not None:
                good.append((line, cells))
                table.append(row)
        return good, np.array(table, np.float64).reshape(len(good), len(columns))

    def _row_numbers(self, line: int, cells: list[str], columns: list[int]) -> list[float] | None:
        """Convert these cells of a row; refuse the row and return None where one is not a number."""
        numbers = []
        for column in columns:
            cell = cells[column]
            try:
                numbers.append(math.nan if is_empty(cell) else float(cell))
            except ValueError:
                what = f"column {self._header[column]!r}: {cell[:40]!r} is not a number"
                self._refuse_row(line, "bad_time" if column == self._columns.time else "malformed", what)
                return None
        return numbers

    def _parsed(self, rows: Any, column: int, parse: Callable[[str], Any]) -> tuple[Any, list[int], list[Any]]:
        """Return the rows whose cell of a column can be parsed, their positions among all, and what the cells say."""
        kept, found = [], []
        for i, (line, cells) in enumerate(rows):
            try:
                found.append(parse(cells[column].strip()))
                kept.append(i)
            except InputError as error:
                self._refuse_row(line, error.reason, f"column {self._header[column]!r}: {error}")
        return [rows[i] for i in kept], kept, found

    def _refuse_row(self, line: int, reason: str, what: str) -> None:
        self._refuse(InputError(reason, f"{self._path}: line {line}: {what}"))


def _only(column: int) -> Callable[[list[str]], tuple[str]]:
    return lambda cells: (cells[column],)


def _stamp(text: str) -> float:
    return math.nan if is_empty(text) else iso8601(text)


def _unit(rows: list[_Row], header: list[str], column: int) -> str:
    """Infer the unit of the stamps, from the first of them and from their column's name."""
    cells = (cells[column] for _, cells in rows if column < len(cells))
    try:
        return unit_of(header[column], float(next(cell for cell in cells if not is_empty(cell))))
    except ValueError:
        return "iso8601"
    except StopIteration:
        return "auto"  # not in these rows
