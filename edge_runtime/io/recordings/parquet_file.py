"""Parquet recordings, in blocks of rows. See `edge_runtime.io.recordings.reader`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from edge_runtime.errors import ConfigError, InputError, one_line
from edge_runtime.io.codecs.numbers import UNITS_PER_S, check_key, iso8601
from edge_runtime.io.recordings.columns import unit_of
from edge_runtime.io.recordings.tables import ROWS, Block, find_columns, of_all, to_physical
from edge_runtime.manifest import InputContract
from edge_runtime.types import Float64

if TYPE_CHECKING:
    from edge_runtime.io.recordings.layout import RecordingLayout, Refused


_BUFFER_BYTES: Final = 2**16
MOST_CELLS: Final = 20_000_000
"""Of a table that is read whole, as Python objects: 1.2 GB."""


def _open(path: Path) -> tuple[Any, Any]:
    """Open a Parquet file; returns pyarrow, too.

    Raises:
        ConfigError: it is none, or pyarrow is missing.
    """
    try:
        import pyarrow as pa  # noqa: PLC0415 - 100 MB that only this format needs
        import pyarrow.parquet as pq  # noqa: PLC0415
    except ImportError:
        raise ConfigError(f'{path}: Parquet needs pyarrow: pip install "edge-runtime[parquet]"') from None
    try:
        return pa, pq.ParquetFile(path, pre_buffer=False, buffer_size=_BUFFER_BYTES)  # no row group as a whole
    except (OSError, pa.ArrowException) as error:
        raise ConfigError(f"{path}: not a Parquet file: {one_line(error)}") from None


def parquet_columns(path: Path) -> dict[str, Sequence[Any]]:
    """Whole columns of a Parquet file by name; see `edge_runtime.io.recordings.reader.columns_of`."""
    pa, file = _open(path)
    with file:
        numbers = file.metadata.num_rows * file.metadata.num_columns
        if numbers > MOST_CELLS:
            raise ConfigError(
                f"{path}: {numbers:,} cells; at most {MOST_CELLS:,} are read as a table: cut it into parts"
            )
        try:
            columns: dict[str, Sequence[Any]] = file.read(use_threads=False).to_pydict()
        except (OSError, pa.ArrowException) as error:
            raise ConfigError(f"{path}: cannot be read: {one_line(error)}") from None
    return columns


def parquet_blocks(
    path: Path, contract: InputContract, layout: RecordingLayout, fallback: str, refuse: Refused
) -> Iterator[Block]:
    """Blocks of a Parquet file, read a row group at a time by pyarrow (extra ``[parquet]``)."""
    pa, file = _open(path)
    with file:
        header = list(file.schema_arrow.names)
        columns = find_columns(path, header, contract, layout)
        channels = of_all(columns.present, contract)
        physical = to_physical(path, contract, layout, columns.names(header))
        wanted = [i for i in (*columns.channels, columns.time, columns.key, columns.label) if i is not None]
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
                table = physical(np.stack(values, axis=1)[kept])
                labels = "" if columns.label is None else _arrow_labels(batch.column(header[columns.label]), kept)
                yield Block(t[kept], table, keys, [row + 1 + i for i in kept], "row", labels, channels)
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


def _arrow_labels(column: Any, kept: list[int]) -> list[str]:
    texts = column.to_pylist()
    return ["" if texts[i] is None else str(texts[i]).strip() for i in kept]
