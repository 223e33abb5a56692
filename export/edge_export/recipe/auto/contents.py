"""Contents of each file of a folder, as far as a recipe depends on them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from edge_export.data.readers.files import arrays_of
from edge_runtime.errors import ConfigError
from edge_runtime.io.recordings.reader import columns_of
from edge_runtime.io.recordings.wav import open_wav

Kind = Literal["wav", "table", "npz"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """One file.

    Attributes:
        name: path within the folder.
        columns: of a table, or arrays of an NPZ, by name; none of a WAV. A single number or text has no dimension.
        samples: of the longest column.
        rate_hz: that a WAV states; 0 where a file states none.
        digest: SHA-256 of the file.
    """

    name: str
    columns: Mapping[str, Any]
    samples: int
    rate_hz: float = 0.0
    digest: str = ""


def content_of(kind: Kind, path: Path, name: str) -> Content:
    """Read one file.

    Args:
        kind: the file's kind.
        path: the file's place.
        name: its path within the folder.

    Raises:
        ConfigError: it is damaged or holds nothing; names the file.
    """
    if kind == "wav":
        with open_wav(path) as (header, file):
            left = header.frames if header.frames >= 0 else (path.stat().st_size - file.tell()) // 2 // header.channels
            return Content(name=name, columns={}, samples=left, rate_hz=header.rate_hz, digest=_digest(path))
    columns = arrays_of(path, name) if kind == "npz" else table_of(path, name)
    samples = max((len(column) for column in columns.values() if kind == "table" or column.ndim), default=0)
    if not samples:
        raise ConfigError(f"{name}: holds nothing")
    return Content(name=name, columns=columns, samples=samples, digest=_digest(path))


def table_of(path: Path, name: str) -> dict[str, Any]:
    """Columns of a CSV or Parquet file by name.

    Raises:
        ConfigError: it cannot be read, has no header, or rows of other lengths.
    """
    columns = columns_of(path)
    if path.suffix.lower() != ".parquet" and all(is_number(column) for column in columns):
        raise ConfigError(f"{name}: begins with numbers; give its columns names in a first line")
    return dict(columns)


def is_number(text: object) -> bool:
    """Return whether a cell, as a text, is a number."""
    try:
        float(str(text))
    except ValueError:
        return False
    return True


def _digest(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error


def refuse_copies(files: Sequence[Content]) -> None:
    """Refuse copies: the same recording in two groups would be trained on and tested with.

    Raises:
        ConfigError: names two files that are the same.
    """
    seen: dict[str, str] = {}
    for file in files:
        if (first := seen.setdefault(file.digest, file.name)) != file.name:
            raise ConfigError(
                f"{file.name} and {first} are the same recording; what one teaches would be asked of the other: "
                "delete one of them"
            )
