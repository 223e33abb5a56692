"""The file of all answers, made of its parts: lines of JSON, or a Parquet table."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Final

import orjson

from edge_runtime.base.system import durable_file
from edge_runtime.errors import ConfigError

_ROWS: Final = 16_384
"""Rows in a group of a Parquet file."""

_COLUMNS: Final = {
    "id": "string", "key": "string", "start": "float64", "end": "float64", "label": "string",
    "confidence": "float64", "scores": "list", "route": "string", "hard": "bool", "model": "string",
    "variant": "string", "latency_ms": "float64",
}  # fmt: skip
"""Fields of `edge_runtime.types.Prediction`, and their types. Those of a task stand in ``more``, as JSON."""


def is_table(out: Path) -> bool:
    """Tell whether a file is to be a Parquet table."""
    return out.suffix.lower() == ".parquet"


def require_writable(out: Path) -> None:
    """Ask for what the format of a file needs, before hours of work.

    Raises:
        ConfigError: it is not installed.
    """
    if is_table(out):
        try:
            import pyarrow.parquet  # noqa: F401, PLC0415 - 100 MB that only this format needs
        except ImportError:
            raise ConfigError(f'{out}: Parquet needs pyarrow: pip install "edge-runtime[parquet]"') from None


def write_all(out: Path, parts: Sequence[Path]) -> None:
    """Put the answers of all parts into one file, which is whole and on disk once it is there under its name.

    Raises:
        OSError: the disk takes no more; `out` is as it was.
    """
    beside = out.with_name(out.name + durable_file.NEW)
    try:
        if is_table(out):
            _write_table(beside, parts)
        else:
            with beside.open("wb") as file:
                for part in parts:
                    with part.open("rb") as lines:
                        shutil.copyfileobj(lines, file)
        with beside.open("rb") as file:
            os.fsync(file.fileno())  # the parts, which are on disk, go next
        durable_file.move(beside, out)
    finally:
        beside.unlink(missing_ok=True)


def _write_table(path: Path, parts: Sequence[Path]) -> None:
    import pyarrow as pa  # noqa: PLC0415 - see above
    import pyarrow.parquet as pq  # noqa: PLC0415

    types = {"list": pa.list_(pa.float64()), "bool": pa.bool_(), "string": pa.string(), "float64": pa.float64()}
    schema = pa.schema([*((name, types[kind]) for name, kind in _COLUMNS.items()), ("more", pa.string())])
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        rows = _rows(parts)
        while some := list(islice(rows, _ROWS)):
            writer.write_table(pa.Table.from_pylist(some, schema=schema))


def _rows(parts: Sequence[Path]) -> Iterator[dict[str, Any]]:
    for part in parts:
        with part.open("rb") as lines:
            for line in lines:
                answer = orjson.loads(line)
                more = {name: answer.pop(name) for name in list(answer) if name not in _COLUMNS}
                yield answer | {"more": orjson.dumps(more).decode() if more else None}
