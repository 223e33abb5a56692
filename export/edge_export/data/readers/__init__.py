"""Readers of recordings: NPZ, CSV, Parquet and WAV files as they lie in a folder, and the demo's package."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from edge_export.data.dataset import Dataset, Recording
from edge_export.data.readers.npz import read_npz
from edge_export.data.readers.spec import (
    Events,
    NpzReader,
    Origin,
    Reader,
    SeglearnReader,
    Sensor,
    TableReader,
    WavReader,
)
from edge_export.data.readers.table import read_table
from edge_export.data.readers.wav import read_wav
from edge_runtime.errors import ConfigError
from edge_runtime.manifest import Channel

__all__ = ["Events", "NpzReader", "Origin", "Reader", "SeglearnReader", "Sensor", "TableReader", "WavReader", "read"]


def read(
    reader: Reader, where: Path, *, channels: Sequence[Channel], classes: Sequence[str], rate_hz: float
) -> Dataset:
    """Read one source of data.

    Args:
        reader: what stands where.
        where: the folder, or for `SeglearnReader` the wheel.
        channels: channels of the model to be; every recording must have them.
        classes: labels in the model's order; recordings of other classes are an error, or left out as the reader says.
        rate_hz: samples per second of what the files hold.

    Raises:
        ConfigError: a file is missing, damaged, or not as the recipe says; names the file and what to do.
    """
    if isinstance(reader, SeglearnReader):
        from edge_export.data.readers.seglearn import load_watch  # noqa: PLC0415 - the demo's data, only where it is asked for

        return load_watch(where)
    if not where.is_dir():
        raise ConfigError(f"--data {reader.key}={where}: no such folder")
    paths = sorted(path for path in where.glob(reader.files) if path.is_file())
    if not paths:
        raise ConfigError(f"--data {reader.key}={where}: no file fits {reader.files!r}")
    recordings: list[Recording] = []
    for path in paths:
        name = path.relative_to(where).as_posix()
        if isinstance(reader, NpzReader):
            recordings += read_npz(reader, path, name, channels, classes, rate_hz)
        elif isinstance(reader, TableReader):
            recordings += read_table(reader, path, name, channels, classes, rate_hz)
        elif (recording := read_wav(reader, path, name, classes, rate_hz)) is not None:
            recordings.append(recording)
    return Dataset(
        name=reader.key,
        channels=tuple(channels),
        rate_hz=rate_hz,
        classes=tuple(classes),
        recordings=tuple(recordings),
    )
