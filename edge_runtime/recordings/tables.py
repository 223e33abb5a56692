"""CSV and Parquet recordings, in blocks of rows. See `edge_runtime.recordings.reader`."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from edge_runtime.codecs.numbers import UNITS_PER_S, check_key, iso8601
from edge_runtime.errors import ConfigError, InputError
from edge_runtime.manifest import InputContract
from edge_runtime.recordings.columns import TIME_COLUMNS, time_positions, unit_of
from edge_runtime.types import Float32, Float64

if TYPE_CHECKING:
    from edge_runtime.recordings.layout import RecordingLayout, Refused

ROWS = 2048
"""Rows in a block: what is in memory at a time."""


class Block(NamedTuple):
    """Rows that follow one another."""

    t: Float64
    """(n,) seconds."""
    values: Float32
    """(n, channels); may hold NaN and infinity."""
    keys: str | list[str]
    """One for all rows, or one for each."""
    places: Sequence[int]
    """Number of each row in the file, counted from 1."""
    unit: str
    """Unit of `places`: ``line`` or ``row``."""


class _Columns(NamedTuple):
    """Positions of a table's columns, by their role."""

    time: int | None
    key: int | None
    channels: list[int]


def _position(path: Path, header: Sequence[str], name: str, what: str, setting: str) -> int:
    if header.count(name) == 1:
        return header.index(name)
    problem = "is there twice" if name in header else "is missing"
    shown = ", ".join(header[:20]) + (", ..." if len(header) > 20 else "")
    raise ConfigError(f"{path}: column {name!r} ({what}) {problem}; the file has {shown}; set {setting}")


def find_channels(path: Path, header: Sequence[str], contract: InputContract, layout: RecordingLayout) -> list[int]:
    """Positions of the model's channels among the columns of a table, in the model's order.

    Raises:
        ConfigError: a column is missing or there twice, or the layout maps a channel that the model does not have.
    """
    names = [channel.name for channel in contract.channels]
    if unknown := sorted(set(layout.columns) - set(names)):
        raise ConfigError(f"columns maps {', '.join(unknown)}; the model's channels are {', '.join(names)}")
    return [_position(path, header, layout.columns.get(name, name), f"channel {name}", "columns") for name in names]


def _find_columns(path: Path, header: Sequence[str], contract: InputContract, layout: RecordingLayout) -> _Columns:
    channels = find_channels(path, header, contract, layout)
    key = _position(path, header, layout.key_column, "key", "key_column") if layout.key_column else None
    if layout.time:
        return _Columns(_position(path, header, layout.time, "time", "time"), key, channels)
    likely = time_positions(header, [*channels, key])
    if len(likely) > 1:
        raise ConfigError(f"{path}: which is the time, {' or '.join(header[i] for i in likely)}? set time")
    if not likely and not layout.rate_hz:
        raise ConfigError(f"{path}: no column is called {', '.join(TIME_COLUMNS[:6])} or the like; set time or rate_hz")
    return _Columns(likely[0] if likely else None, key, channels)


def scale_of(contract: InputContract, layout: RecordingLayout) -> Float32 | None:
    """Return one factor for each channel, or None where values are physical already.

    Raises:
        ConfigError: the number of factors does not fit the model.
    """
    if not layout.scale:
        return None
    n = len(contract.channels)
    if len(layout.scale) not in (1, n):
        raise ConfigError(f"scale needs 1 or {n} factors, one per channel; got {len(layout.scale)}")
    return np.array(layout.scale if len(layout.scale) == n else layout.scale * n, np.float32)


def to_float32(values: npt.NDArray[Any], scale: Float32 | None) -> Float32:
    """Numbers of a table in physical units, (n, channels); what float32 does not hold becomes infinite."""
    with np.errstate(over="ignore", invalid="ignore"):  # too large becomes infinite, and such rows are refused
        result: Float32 = np.ascontiguousarray(values, np.float32)
        return result if scale is None else result * scale


# -- CSV ---------------------------------------------------------------------------------------------------------------


def csv_blocks(
    path: Path, contract: InputContract, layout: RecordingLayout, fallback: str, refuse: Refused
) -> Iterator[Block]:
    """Blocks of a CSV file with a header line, in UTF-8, with a point in decimal numbers.

    A first column without a name in the header, as R writes for row names, is left out.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            first = file.readline(1 << 20)
            delimiter = layout.delimiter or max(",;\t|", key=first.count)
            cells = next(csv.reader([first], delimiter=delimiter, skipinitialspace=True), [])
            header = [name.strip() for name in cells]
            if not any(header):
                raise ConfigError(f"{path}: the first line must name the columns")
            reader = csv.reader(file, delimiter=delimiter, skipinitialspace=True)
            rows = _csv_rows(reader)
            yield from _Csv(path, header, contract, layout, fallback, refuse).blocks(rows)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror or error}") from None
    except (csv.Error, UnicodeDecodeError) as error:
        refuse(InputError("malformed", f"{path}: cannot be read to its end: {error}"))


def _csv_rows(reader: Any) -> Iterator[list[tuple[int, list[str]]]]:
    """Yield lists of (line, cells); empty lines are left out."""
    rows: list[tuple[int, list[str]]] = []
    for cells in reader:
        if cells:
            rows.append((reader.line_num + 1, cells))  # the header was read before
        if len(rows) == ROWS:
            yield rows
            rows = []
    if rows:
        yield rows


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
        self._scale = scale_of(contract, layout)
        self._columns = _find_columns(path, header, contract, layout)
        self._seen = 0

    def blocks(self, batches: Iterator[list[tuple[int, list[str]]]]) -> Iterator[Block]:
        unit: str = self._layout.time_unit
        for rows in batches:
            if not self._seen and len(rows[0][1]) == len(self._header) + 1:
                self._header = ["", *self._header]
                self._columns = _find_columns(self._path, self._header, self._contract, self._layout)
            if unit == "auto" and self._columns.time is not None:
                unit = _unit(rows[0][1], self._header, self._columns.time)
            yield self._block(rows, unit)

    def _block(self, rows: list[tuple[int, list[str]]], unit: str) -> Block:
        time, key, channels = self._columns
        as_text = unit == "iso8601" and time is not None
        numeric = channels if as_text or time is None else [*channels, time]
        rows, table = self._numbers(rows, numeric)
        n = len(rows)
        if time is None:
            t: Float64 = (np.arange(self._seen, self._seen + n) / self._layout.rate_hz).astype(np.float64)
        elif as_text:
            rows, table, t = self._texts(rows, table, time)
        else:
            t = table[:, -1] / UNITS_PER_S[unit]
        self._seen += n
        keys: str | list[str] = self._key
        if key is not None:
            rows, kept, keys = self._keys(rows, key)
            table, t = table[kept], t[kept]
        values = to_float32(table[:, : len(channels)], self._scale)
        return Block(t, values, keys, [line for line, _ in rows], "line")

    def _numbers(self, rows: list[tuple[int, list[str]]], columns: list[int]) -> tuple[Any, Float64]:
        """Keep the rows whose cells are numbers, and these numbers, (n, columns)."""
        pick: Callable[[list[str]], Any] = itemgetter(*columns) if len(columns) > 1 else _only(columns[0])
        width = len(self._header)
        try:
            if {len(cells) for _, cells in rows} == {width}:
                numbers = list(map(float, chain.from_iterable(pick(cells) for _, cells in rows)))
                return rows, np.array(numbers, np.float64).reshape(len(rows), len(columns))
        except ValueError:
            pass  # some row is at fault; the slow way finds it
        good: list[tuple[int, list[str]]] = []
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
            try:
                numbers.append(float(cells[column]))
            except ValueError:
                what = f"column {self._header[column]!r}: {cells[column][:40]!r} is not a number"
                self._refuse_row(line, "bad_time" if column == self._columns.time else "malformed", what)
                return None
        return numbers

    def _texts(self, rows: Any, table: Float64, time: int) -> tuple[Any, Float64, Float64]:
        """Return rows, numbers and stamps, without the rows whose stamp is not ISO 8601."""
        kept, stamps = [], []
        for i, (line, cells) in enumerate(rows):
            try:
                stamps.append(iso8601(cells[time]))
                kept.append(i)
            except InputError as error:
                self._refuse_row(line, error.reason, f"column {self._header[time]!r}: {error}")
        return [rows[i] for i in kept], table[kept], np.array(stamps, np.float64)

    def _keys(self, rows: Any, column: int) -> tuple[Any, list[int], list[str]]:
        kept, keys = [], []
        for i, (line, cells) in enumerate(rows):
            try:
                keys.append(check_key(cells[column].strip()))
                kept.append(i)
            except InputError as error:
                self._refuse_row(line, error.reason, f"column {self._header[column]!r}: {error}")
        return [rows[i] for i in kept], kept, keys

    def _refuse_row(self, line: int, reason: str, what: str) -> None:
        self._refuse(InputError(reason, f"{self._path}: line {line}: {what}"))


def _only(column: int) -> Callable[[list[str]], tuple[str]]:
    return lambda cells: (cells[column],)


def _unit(cells: list[str], header: list[str], column: int) -> str:
    """Infer the unit of the stamps, from the first of them and from their column's name."""
    try:
        return unit_of(header[column], float(cells[column]))
    except (ValueError, IndexError):
        return "iso8601"


# -- Parquet -----------------------------------------------------------------------------------------------------------


def parquet_blocks(
    path: Path, contract: InputContract, layout: RecordingLayout, fallback: str, refuse: Refused
) -> Iterator[Block]:
    """Blocks of a Parquet file, read a row group at a time by pyarrow (extra ``[parquet]``)."""
    try:
        import pyarrow as pa  # noqa: PLC0415 - 100 MB that only this format needs
        import pyarrow.parquet as pq  # noqa: PLC0415
    except ImportError:
        raise ConfigError(f'{path}: Parquet needs pyarrow: pip install "edge-runtime[parquet]"') from None
    try:
        file = pq.ParquetFile(path)
    except (OSError, pa.ArrowException) as error:
        raise ConfigError(f"{path}: not a Parquet file: {one_line(error)}") from None
    with file:
        header = list(file.schema_arrow.names)
        columns = _find_columns(path, header, contract, layout)
        scale = scale_of(contract, layout)
        wanted = [i for i in (*columns.channels, columns.time, columns.key) if i is not None]
        row = 0
        try:
            for batch in file.iter_batches(batch_size=ROWS, columns=[header[i] for i in wanted], use_threads=False):
                n = len(batch)
                values = [_arrow_numbers(pa, path, batch.column(header[i]), header[i]) for i in columns.channels]
                t = _arrow_time(pa, path, batch, header, columns.time, layout, row)
                keys: str | list[str] = layout.key or fallback
                kept: list[int] = list(range(n))
                if columns.key is not None:
                    kept, keys = _arrow_keys(path, batch.column(header[columns.key]).to_pylist(), row, refuse)
                table = to_float32(np.stack(values, axis=1)[kept], scale)
                yield Block(t[kept], table, keys, [row + 1 + i for i in kept], "row")
                row += n
        except (OSError, pa.ArrowException) as error:
            refuse(InputError("malformed", f"{path}: cannot be read past row {row}: {one_line(error)}"))


def _arrow_numbers(pa: Any, path: Path, column: Any, name: str) -> Float64:
    kind = column.type
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        raise ConfigError(f"{path}: column {name!r} holds {kind}, numbers are needed")
    # Nulls become NaN, which refuses the row.
    numbers: Float64 = column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    return numbers


def _arrow_time(
    pa: Any, path: Path, batch: Any, header: list[str], time: int | None, layout: RecordingLayout, row: int
) -> Float64:
    if time is None:
        return np.asarray(np.arange(row, row + len(batch)) / layout.rate_hz, np.float64)
    column = batch.column(header[time])
    kind = column.type
    unit = layout.time_unit
    if pa.types.is_timestamp(kind):
        seconds = _arrow_numbers(pa, path, column.cast(pa.int64()), header[time])
        return seconds / UNITS_PER_S[kind.unit]
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or unit == "iso8601":
        return np.array([_stamp_or_nan(text) for text in column.to_pylist()], np.float64)
    numbers = _arrow_numbers(pa, path, column, header[time])
    if unit == "auto":
        unit = unit_of(header[time], float(numbers[0]) if len(numbers) else 0.0)
    return numbers / UNITS_PER_S[unit]


def _stamp_or_nan(text: Any) -> float:
    try:
        return iso8601(text)
    except InputError:
        return float("nan")


def _arrow_keys(path: Path, texts: list[Any], row: int, refuse: Refused) -> tuple[list[int], list[str]]:
    kept, keys = [], []
    for i, text in enumerate(texts):
        try:
            keys.append(check_key(text))
            kept.append(i)
        except InputError as error:
            refuse(InputError(error.reason, f"{path}: row {row + 1 + i}: {error}"))
    return kept, keys


def one_line(error: Exception) -> str:
    """Render a library's complaint on one line of bounded length."""
    return " ".join(str(error).split())[:200]
