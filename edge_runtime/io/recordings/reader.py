"""Reading recordings: lines of messages, CSV, Parquet, NPZ and WAV files, pictures, as the readings of a sensor.

One way in, `iter_readings`, for the recording source, for ``edge-runtime replay`` and for the export toolchain, so that
all of them see the same samples. Files are read in pieces: memory stays bounded, and the same file always gives the
same readings, cut at the same places.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from glob import glob
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

import numpy as np

from edge_runtime.errors import ConfigError, InputError
from edge_runtime.io.codecs.numbers import EARLIEST_S, LATEST_S
from edge_runtime.io.recordings.layout import Format, Labelled, RecordingLayout, Refused
from edge_runtime.io.recordings.lines import line_blocks, line_columns, line_readings
from edge_runtime.io.recordings.tables import KEY
from edge_runtime.manifest import InputContract
from edge_runtime.types import Float32, Float64, Reading

if TYPE_CHECKING:
    from edge_runtime.io.recordings.tables import Block

CHUNK_S: Final = 1.0
"""Longest span of a reading, where the layout says nothing."""

_SUFFIXES: dict[str, Format] = {
    ".jsonl": "lines",
    ".ndjson": "lines",
    ".csv": "csv",
    ".tsv": "csv",
    ".parquet": "parquet",
    ".npz": "npz",
    ".wav": "wav",
    ".jpg": "pictures",
    ".jpeg": "pictures",
    ".png": "pictures",
    ".bmp": "pictures",
}


def iter_readings(
    path: Path,
    contract: InputContract,
    layout: RecordingLayout | None = None,
    *,
    key: str = "",
    on_refused: Refused | None = None,
    on_labels: Labelled | None = None,
) -> Iterator[Reading]:
    """Read one file.

    Args:
        path: the recording.
        contract: channels and rate of the model that will see it.
        layout: the places of stamps, keys and channels in it.
        key: what readings belong to where neither file nor layout says; empty: the file's name without suffix.
        on_refused: called with each line or row that cannot be used, which is then left out. None: it is raised, and
            the reading ends there.
        on_labels: called with the stamps and labels of samples before they are yielded; needs `RecordingLayout.label`.

    Yields:
        Readings, in the order of the file; of a table, at most `RecordingLayout.chunk_s` long.

    Raises:
        ConfigError: the file is not there, is no recording, or lacks a column; before the first reading.
        InputError: see `on_refused`; names the file, the line or row, and the column.
    """
    layout = layout or RecordingLayout()
    refuse = on_refused or _raise
    labelled = on_labels if layout.label else None
    kind = _format_of(path, layout)
    if kind == "pictures":
        from edge_runtime.io.recordings.pictures import picture_readings  # noqa: PLC0415 - see below

        yield from picture_readings(path, contract, layout, key=key or path.stem, refuse=refuse, labelled=labelled)
        return
    if kind == "lines":
        yield from line_readings(path, contract, layout, key or path.stem, refuse, labelled)
        return
    for block in iter_blocks(path, contract, layout, key=key, on_refused=refuse):
        sound = _sound(block, path, contract, refuse, partial=layout.partial)
        if labelled is not None:
            _hand_on(sound, labelled)
        yield from _cut(sound, layout.chunk_s or CHUNK_S)


def iter_blocks(
    path: Path, contract: InputContract, layout: RecordingLayout, *, key: str = "", on_refused: Refused
) -> Iterator[Block]:
    """Read one file as blocks of rows, as `iter_readings` does before it leaves out what holds no finite number.

    Args:
        path: the recording.
        contract: channels, units and rate of the model.
        layout: the places of stamps, keys and channels in it.
        key: the default key, as in `iter_readings`.
        on_refused: called with each line or row that cannot be read. Empty cells are NaN.

    Raises:
        ConfigError: as `iter_readings`.
    """
    kind = _format_of(path, layout)
    # csv, zipfile and the rest only where such a file is read.
    from edge_runtime.io.recordings.csv_file import csv_blocks  # noqa: PLC0415
    from edge_runtime.io.recordings.npz import npz_blocks  # noqa: PLC0415
    from edge_runtime.io.recordings.parquet_file import parquet_blocks  # noqa: PLC0415
    from edge_runtime.io.recordings.wav import wav_blocks  # noqa: PLC0415

    if kind == "pictures":
        raise ConfigError(f"{path}: a picture has no rows")
    readers = {
        "lines": line_blocks, "csv": csv_blocks, "parquet": parquet_blocks, "npz": npz_blocks, "wav": wav_blocks,
    }  # fmt: skip
    yield from readers[kind](path, contract, layout, key or path.stem, on_refused)


def _format_of(path: Path, layout: RecordingLayout) -> Format:
    kind = layout.format if layout.format != "auto" else _SUFFIXES.get(path.suffix.lower())
    if path.is_dir() and kind in (None, "pictures"):
        return "pictures"
    if kind is None:
        raise ConfigError(f"{path}: which format? its suffix is none of {', '.join(_SUFFIXES)}; set format")
    if not path.is_file():
        raise ConfigError(f"{path}: no such file")
    return kind


def columns_of(path: Path) -> dict[str, Sequence[Any]]:
    """Whole columns of a CSV or Parquet file, or of JSON lines: texts of a CSV file, else the file's own types.

    Raises:
        ConfigError: it cannot be read, has no header, holds no rows, or rows of several lengths; names the line.
    """
    from edge_runtime.io.recordings.csv_file import csv_columns  # noqa: PLC0415 - see above
    from edge_runtime.io.recordings.parquet_file import parquet_columns  # noqa: PLC0415

    kind = _SUFFIXES.get(path.suffix.lower())
    return {"lines": line_columns, "parquet": parquet_columns}.get(kind or "", csv_columns)(path)


def expand(files: Sequence[Path], layout: RecordingLayout | None = None) -> list[tuple[Path, str]]:
    """List the files to read, each with its key.

    1. A part of a path may hold wildcards, ``**`` any number of folders; they expand in the order of the paths.
    2. A folder stands for the recordings in it and below it, in the order of their paths, but for pictures; one that
       holds pictures alone is a recording itself.
    3. The key of a file in a folder called ``key=VALUE`` (or as the layout's column of keys) is VALUE.
    4. The key of any other is its stem, with as much of its path as is needed so that no other has the same.

    Raises:
        ConfigError: a pattern fits no file.
    """
    paths = [path for file in files for path in _files_of(file)]
    parts = [(*path.parts[:-1], path.stem) for path in paths]
    alike = [Counter(part[-depth:] for part in parts) for depth in range(1, max(map(len, parts), default=0) + 1)]
    mark = f"{layout.key_column if layout and layout.key_column else KEY}="
    return [(path, _partition(path, mark) or _key(own, alike)) for path, own in zip(paths, parts, strict=True)]


def _files_of(file: Path) -> list[Path]:
    if any(mark in str(file) for mark in "*?[") and not file.exists():
        every = map(Path, glob(str(file), recursive=True))  # noqa: PTH207 - as the shell has it, `**` at the end too
        found = sorted(path for path in every if path.is_file())
        if not found:
            raise ConfigError(f"{file}: no file fits")
        return found
    if not file.is_dir():
        return [file]
    return [path for path in recorded(file) if _SUFFIXES[path.suffix.lower()] != "pictures"] or [file]


def _partition(path: Path, mark: str) -> str:
    """Return the key that a folder of the path names, percent signs decoded as Hive and Spark write them."""
    return next((unquote(part.removeprefix(mark)) for part in reversed(path.parts[:-1]) if part.startswith(mark)), "")


def recorded(folder: Path) -> list[Path]:
    """List the recordings in a folder and those below it, by their suffix, in the order of their paths."""
    return sorted(path for path in folder.rglob("*") if path.suffix.lower() in _SUFFIXES and path.is_file())


def _key(own: tuple[str, ...], alike: Sequence[Counter[tuple[str, ...]]]) -> str:
    depth = 1
    while depth < len(own) and alike[depth - 1][own[-depth:]] > 1:
        depth += 1
    return "/".join(own[-depth:]).lstrip("/")


def _raise(error: InputError) -> None:
    raise error


# -- tables ------------------------------------------------------------------------------------------------------------


def _sound(block: Block, path: Path, contract: InputContract, refuse: Refused, *, partial: bool) -> Block:
    """Keep the rows of a block that hold finite numbers, or some of them if partial, and a sensible stamp."""
    finite = np.isfinite(block.values)
    timely = (block.t >= EARLIEST_S) & (block.t < LATEST_S)
    whole = finite.any(axis=1) & ~np.isinf(block.values).any(axis=1) if partial else finite.all(axis=1)
    good = whole & timely
    if good.all():
        return block
    channels = block.channels or range(len(contract.channels))
    for i in np.flatnonzero(~good).tolist():
        if timely[i]:
            name = contract.channels[channels[int(np.argmin(finite[i]))]].name
            reason, what = "not_finite", f"channel {name} is missing, NaN, infinite or beyond float32"
        else:
            reason, what = (
                "bad_time",
                f"time stamp {block.t[i]:g} s lies outside the years 1900 to 9999; set time_unit?",
            )
        refuse(InputError(reason, f"{path}: {block.unit} {block.places[i]}: {what}"))
    keep = np.flatnonzero(good).tolist()
    return block._replace(
        t=block.t[good],
        values=block.values[good],
        keys=block.keys if isinstance(block.keys, str) else [block.keys[i] for i in keep],
        places=[block.places[i] for i in keep],
        labels=block.labels if isinstance(block.labels, str) else [block.labels[i] for i in keep],
    )


def _hand_on(block: Block, labelled: Labelled) -> None:
    """Hand on the labels of a block, key by key."""
    labels = [block.labels] * len(block.t) if isinstance(block.labels, str) else block.labels
    if isinstance(block.keys, str):
        labelled(block.keys, block.t, labels)
        return
    for name, own in _rows_by_key(block.keys).items():
        labelled(name, block.t[own], [labels[i] for i in own])


def _rows_by_key(keys: Sequence[str]) -> dict[str, list[int]]:
    rows: dict[str, list[int]] = {}
    for i, name in enumerate(keys):
        rows.setdefault(name, []).append(i)
    return rows


def _cut(block: Block, chunk_s: float) -> Iterator[Reading]:
    """Cut readings of at most `chunk_s`, and of one key each, in the order of the rows."""
    n = len(block.t)
    if not n:
        return
    chunk = np.floor(block.t / chunk_s)
    starts = [0, *(np.flatnonzero(chunk[1:] != chunk[:-1]) + 1).tolist(), n]
    for start, end in pairwise(starts):
        t, values = block.t[start:end], block.values[start:end]
        if isinstance(block.keys, str):
            yield from _whole_channels(block.keys, t, values, block.channels)
            continue
        for name, own in _rows_by_key(block.keys[start:end]).items():
            yield from _whole_channels(name, t[own], values[own], block.channels)


def _whole_channels(key: str, t: Float64, values: Float32, channels: tuple[int, ...] | None) -> Iterator[Reading]:
    """Cut readings whose rows all hold the same channels; NaN stands for those that a row lacks."""
    there = np.isfinite(values)
    if there.all():
        yield Reading(key, t, values, 0.0, channels)
        return
    known = np.arange(values.shape[1]) if channels is None else np.array(channels)
    starts = [0, *(np.flatnonzero((there[1:] != there[:-1]).any(axis=1)) + 1).tolist(), len(t)]
    for start, end in pairwise(starts):
        own = np.flatnonzero(there[start])
        rows = np.ascontiguousarray(values[start:end, own])
        yield Reading(key, t[start:end], rows, 0.0, tuple(known[own].tolist()))
