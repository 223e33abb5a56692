"""CSV text: one or several rows a message, as spreadsheets, Arduino sketches and loggers write them.

::

    t,ax (m/s2),ay (m/s2),az (m/s2)
    1700000000.00,0.5,0.25,9.75
    1700000000.02,1.0,-0.5,9.5

1. With `CsvConfig.columns`, rows have these columns; a row that repeats their names is skipped.
2. Without, the first row of each message names them.
3. With `CsvConfig.pair`, each cell names its own column: ``temperature:22.5,humidity:40``.
4. A name may state a unit: ``ax (m/s2)`` is the channel ``ax``, in m/s2, and is converted to the model's unit.
5. Empty rows, and rows that begin with ``#``, are skipped. Empty cells hold no value.

Each row becomes an object of texts, which is then read as one of a JSON list is (`edge_runtime.io.codecs.fields`).
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from functools import partial
from io import StringIO
from itertools import islice
from typing import Literal

from edge_runtime import units
from edge_runtime.errors import ConfigError, InputError
from edge_runtime.io.codecs import Codec, Notice
from edge_runtime.io.codecs.conversion import converted
from edge_runtime.io.codecs.document_config import DocumentConfig, FieldConfig
from edge_runtime.io.codecs.fields import FieldReader
from edge_runtime.io.codecs.json import as_text
from edge_runtime.io.codecs.numbers import MAX_LINES
from edge_runtime.manifest import Channel
from edge_runtime.types import Reading

MAX_COLUMNS = 512

_HEADERS = 64
"""Headers whose reader is kept; a message with another one pays for a new reader."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CsvConfig(FieldConfig):
    """Settings of the CSV codec."""

    type: Literal["csv"] = "csv"
    columns: tuple[str, ...] = ()
    """Names of the columns, in order; ``-`` skips one. Empty: the first row of each message names them."""
    separator: str = ","
    """One character between cells; a space stands for any white space."""
    pair: str = ""
    """One character between name and value, where each cell has both, as in ``temperature:22.5``."""
    max_samples: int = MAX_LINES

    def __post_init__(self) -> None:
        FieldConfig.__post_init__(self)
        marks = (self.separator, self.pair or ":")
        named = [column for column in self.columns if column != "-"]
        wrong = {
            "separator and pair must be one character, and no quote, line end or #": any(
                len(mark) != 1 or mark in '"\r\n#' for mark in marks
            ),
            "columns names the cells, pair says that cells name themselves: use one of them": self.pair
            and self.columns,
            "separator, pair and decimal must differ; use separator = ';' with a decimal comma": (
                self.pair == self.separator or (self.decimal == "," and "," in marks)
            ),
            "columns must have names that differ; '-' skips a column": len(set(named)) < len(named),
        }
        if text := next((text for text, holds in wrong.items() if holds), ""):
            raise ValueError(text)


class TableCodec:
    """Decodes rows whose columns are known, or name themselves.

    Args:
        config: how rows are cut.
        columns: name of each column; empty with `CsvConfig.pair`.
        reader: makes readings of rows.
    """

    name = "csv"

    def __init__(self, config: CsvConfig, columns: tuple[str, ...], reader: FieldReader) -> None:
        self._config = config
        self._columns = list(columns)
        self._reader = reader

    def decode(self, key: str, payload: bytes, received: float) -> list[Reading]:
        """See `edge_runtime.io.codecs.Codec`."""
        most = self._config.max_samples
        rows = list(islice(_rows(self._config, payload), most + 2))
        read = self._pairs if self._config.pair else self._item
        items = [item for row in rows if row != self._columns and (item := read(row))]  # rule 1
        if len(items) > most:
            raise InputError("too_large", f"more than {most} rows; at most {most} are allowed in a message")
        if not rows or not (items or self._config.columns):
            raise InputError("empty", "no rows; if each message is a single row, set columns under [source.codec]")
        return self._reader.read(items, key, received, scan=False) if items else []

    def _item(self, row: list[str]) -> dict[str, str]:
        """Return the cells of a row by their columns; nothing for a row of another kind, which `select` passes over."""
        item = self._decimal(dict(zip(self._columns, row, strict=False)))
        if len(row) < len(self._columns) or any(row[len(self._columns) :]):  # empty cells at the end are common
            if self._config.select.items() - item.items():
                return {}
            raise InputError("malformed", f"a row has {len(row)} cells, the columns are {len(self._columns)}")
        return item

    def _pairs(self, row: list[str]) -> dict[str, str]:
        """Return the cells of a row by their own names."""
        pairs = [cell.partition(self._config.pair) for cell in row if cell]
        if wrong := next((name for name, mark, _ in pairs if not mark), None):
            raise InputError("malformed", f"the cell {wrong[:40]!r} has no {self._config.pair!r} behind a name")
        return self._decimal({name.strip(): value.strip() for name, _, value in pairs})

    def _decimal(self, item: dict[str, str]) -> dict[str, str]:
        if self._config.decimal == ".":
            return item
        return {name: cell.replace(",", ".") for name, cell in item.items()}


class CsvCodec:
    """Decodes messages that begin with a row of column names.

    Args:
        config: how rows are cut and what their columns are.
        channels: the model's channels, in order.
        rate_hz: the model's own rate; 0 where unknown.
        notice: callback, as in `edge_runtime.io.codecs.fields.FieldReader`.
    """

    name = "csv"

    def __init__(
        self, config: CsvConfig, channels: Sequence[Channel], rate_hz: float = 0.0, notice: Notice | None = None
    ) -> None:
        self._config = config
        self._load = partial(_load_table, config, channels=channels, rate_hz=rate_hz, notice=notice)
        self._tables: dict[tuple[str, ...], Codec] = {}

    def decode(self, key: str, payload: bytes, received: float) -> list[Reading]:
        """See `edge_runtime.io.codecs.Codec`."""
        header = tuple(next(_rows(self._config, payload), ()))
        table = self._tables.get(header)
        if table is None:
            table = self._table(header)
        return table.decode(key, payload, received)

    def _table(self, header: tuple[str, ...]) -> Codec:
        """Make the codec for a header, and keep it for the messages to come."""
        if not header:
            raise InputError("empty", "no rows in the message")
        if any(map(_is_number, header)):
            raise InputError("malformed", "the first row holds numbers, no names: set columns under [source.codec]")
        if len(header) > MAX_COLUMNS or len(set(header)) < len(header):
            raise InputError("malformed", "the first row names a column twice, or too many of them")
        try:
            table = self._load(header)
        except ConfigError as error:
            if "".join(header).isprintable():
                raise InputError("wrong_channels", str(error)) from None
            raise InputError("malformed", f"the first row is not UTF-8 text: {error}") from None
        if len(self._tables) >= _HEADERS:
            self._tables.clear()
        self._tables[header] = table
        return table


def load_csv(
    config: CsvConfig, channels: Sequence[Channel], rate_hz: float = 0.0, notice: Notice | None = None
) -> Codec:
    """Make the codec for a configuration.

    Raises:
        ConfigError: columns, channels or units do not fit the model.
    """
    if config.columns or config.pair:
        return _load_table(config, config.columns, channels=channels, rate_hz=rate_hz, notice=notice)
    names = [channel.name for channel in channels]
    _load_table(config, tuple(config.channels.get(name, name) for name in names), channels=channels)  # or says why not
    return CsvCodec(config, channels, rate_hz, notice)


def _load_table(
    config: CsvConfig,
    columns: tuple[str, ...],
    *,
    channels: Sequence[Channel],
    rate_hz: float = 0.0,
    notice: Notice | None = None,
) -> Codec:
    names = [channel.name for channel in channels]
    shared = {one.name: getattr(config, one.name) for one in fields(FieldConfig)}
    document = DocumentConfig(
        **shared | {"channels": _mapping(config, columns, names), "decimal": "."}, samples="."
    )  # fmt: skip
    table = TableCodec(config, columns, FieldReader(document, names, rate_hz, notice=notice))
    return converted(table, document.stated_units(names), channels, document.brings(names))


def _mapping(config: CsvConfig, columns: tuple[str, ...], names: Sequence[str]) -> dict[str, str]:
    """Return the column of each channel (rule 4)."""
    if unknown := sorted(set(config.channels) - set(names)):
        raise ConfigError(f"codec csv maps {', '.join(unknown)}; the model's channels are {', '.join(names)}")
    if config.pair:
        return {name: config.channels.get(name, name) for name in names}
    by_name = {_bare(column): column for column in columns} | {column: column for column in columns}
    mapping = {name: by_name.get(config.channels.get(name, name), "") for name in names}
    lacking = [name for name, column in mapping.items() if not column]
    if lacking and (len(lacking) == len(names) or not config.partial):
        shown = ", ".join(repr(column[:40]) for column in columns[:8])
        raise ConfigError(f"codec csv: no column for channel {', '.join(lacking)}; the columns are {shown}")
    return {name: column for name, column in mapping.items() if column}


def _bare(column: str) -> str:
    """Return a column's name without the unit in it."""
    return units.split_name(column)[0] if units.in_name(column) else column


def _rows(config: CsvConfig, payload: bytes) -> Iterator[list[str]]:
    """Iterate over the rows of a message, cells stripped (rule 5).

    Raises:
        InputError: ``too_large`` or ``malformed``.
    """
    if len(payload) > config.max_bytes:
        raise InputError("too_large", f"{len(payload)} bytes; at most {config.max_bytes} are allowed in a message")
    lines = StringIO(as_text(payload), newline=None)
    kept = (line for line in lines if line.strip() and not line.startswith("#"))
    if config.separator == " ":
        yield from map(str.split, kept)
        return
    try:
        for row in csv.reader(kept, delimiter=config.separator, skipinitialspace=True, strict=True):
            yield [cell.strip() for cell in row]
    except csv.Error as error:
        raise InputError("malformed", f"not CSV: {error}") from None


def _is_number(cell: str) -> bool:
    try:
        float(cell.replace(",", "."))
    except ValueError:
        return False
    return True
