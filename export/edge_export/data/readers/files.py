"""Contents of the files that recordings come in, as they stand there; every error names the file."""

from __future__ import annotations

import csv
import wave
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from edge_runtime.errors import ConfigError


def arrays_of(path: Path, name: str) -> dict[str, npt.NDArray[Any]]:
    """All arrays of an NPZ file by name; one that needs pickle is refused.

    Raises:
        ConfigError: it cannot be read.
    """
    try:
        # Opened here: numpy leaves a file open that turns out not to be an archive.
        with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
            return {key: stored[key] for key in stored.files}
    except (OSError, EOFError, ValueError, TypeError, KeyError, zipfile.BadZipFile) as error:
        raise ConfigError(f"{name}: not a usable .npz file: {error}") from error


def rows_of_csv(path: Path, name: str) -> list[list[str]]:
    """Read the header of a CSV file and its rows, without empty lines; the delimiter is the header's most frequent.

    Raises:
        ConfigError: it cannot be read.
    """
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            head = file.readline()
            delimiter = max(",;\t|", key=head.count)
            file.seek(0)
            header, *rows = list(csv.reader(file, delimiter=delimiter)) or [[]]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ConfigError(f"{name}: cannot be read: {error}") from error
    return [header, *(row for row in rows if row)]


def columns_of_parquet(path: Path, name: str) -> Mapping[str, Sequence[Any]]:
    """All columns of a Parquet file by name.

    Raises:
        ConfigError: it cannot be read, or pyarrow is missing.
    """
    try:
        from pyarrow import parquet  # noqa: PLC0415 - the extra [parquet]
    except ImportError as error:
        raise ConfigError(f'{name}: Parquet needs pyarrow; pip install "edge-runtime[parquet]"') from error
    try:
        columns: Mapping[str, Sequence[Any]] = parquet.read_table(path).to_pydict()
    except (OSError, ValueError) as error:
        raise ConfigError(f"{name}: cannot be read: {error}") from error
    return columns


@contextmanager
def pcm_of(path: Path, name: str) -> Iterator[wave.Wave_read]:
    """Open a WAV file of 16-bit samples.

    Raises:
        ConfigError: it is something else, or damaged.
    """
    try:
        with wave.open(str(path), "rb") as file:
            if (width := file.getsampwidth()) != 2:
                raise ConfigError(f"{name}: {8 * width} bits a sample; convert it to 16-bit PCM")
            yield file
    except (OSError, EOFError, wave.Error) as error:
        raise ConfigError(f"{name}: not a PCM WAV file: {error}") from error
