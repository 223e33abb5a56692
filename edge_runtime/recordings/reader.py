"""Reading recordings: JSONL, CSV, Parquet and NPZ files, as the readings that a sensor would have sent.

One way in, `iter_readings`, for the recording source, for ``edge-runtime replay`` and for the export toolchain, so that
all of them see the same samples. Files are read in pieces: memory stays bounded, and the same file always gives the
same readings, cut at the same places.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from edge_runtime.codecs.json import JsonCodec
from edge_runtime.codecs.numbers import EARLIEST_S, LATEST_S
from edge_runtime.errors import ConfigError, InputError
from edge_runtime.manifest import InputContract
from edge_runtime.recordings.layout import Format, RecordingLayout, Refused
from edge_runtime.types import Reading

if TYPE_CHECKING:
    from edge_runtime.recordings.tables import Block

_SUFFIXES: dict[str, Format] = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".csv": "csv",
    ".tsv": "csv",
    ".parquet": "parquet",
    ".npz": "npz",
}


def iter_readings(
    path: Path,
    contract: InputContract,
    layout: RecordingLayout | None = None,
    *,
    key: str = "",
    on_refused: Refused | None = None,
) -> Iterator[Reading]:
    """Read one file.

    Args:
        path: the recording.
        contract: channels and rate of the model that will see it.
        layout: where things stand in it.
        key: what readings belong to where neither file nor layout says; empty: the file's name without suffix.
        on_refused: called with each line or row that cannot be used, which is then left out. None: it is raised, and
            the reading ends there.

    Yields:
        Readings, in the order of the file; of a table, at most `RecordingLayout.chunk_s` long.

    Raises:
        ConfigError: the file is not there, is no recording, or lacks a column; before the first reading.
        InputError: see `on_refused`; names the file, the line or row, and the column.
    """
    layout = layout or RecordingLayout()
    refuse = on_refused or _raise
    fallback = key or path.stem
    kind = layout.format if layout.format != "auto" else _SUFFIXES.get(path.suffix.lower())
    if kind is None:
        raise ConfigError(f"{path}: which format? its suffix is none of {', '.join(_SUFFIXES)}; set format")
    if not path.is_file():
        raise ConfigError(f"{path}: no such file")
    if kind == "jsonl":
        yield from _jsonl(path, contract, layout, fallback, refuse)
        return
    # csv, zipfile and the rest only where such a file is read.
    from edge_runtime.recordings.npz import npz_blocks  # noqa: PLC0415
    from edge_runtime.recordings.tables import csv_blocks, parquet_blocks  # noqa: PLC0415

    readers = {"csv": csv_blocks, "parquet": parquet_blocks, "npz": npz_blocks}
    for block in readers[kind](path, contract, layout, fallback, refuse):
        yield from _cut(_sound(block, path, contract, refuse), layout.chunk_s)


def expand(files: Sequence[Path]) -> list[tuple[Path, str]]:
    """List the files to read, each with a key that no other has: its stem, with as much of its path as is needed.

    The last part of a path may hold wildcards, which expand in the order of the names.

    Raises:
        ConfigError: a pattern fits no file.
    """
    paths: list[Path] = []
    for file in files:
        if any(mark in file.name for mark in "*?["):
            found = sorted(path for path in file.parent.glob(file.name) if path.is_file())
            if not found:
                raise ConfigError(f"{file}: no file fits")
            paths += found
        else:
            paths.append(file)
    parts = [(*path.parts[:-1], path.stem) for path in paths]
    return [(path, _key(own, parts)) for path, own in zip(paths, parts, strict=True)]


def _key(own: tuple[str, ...], parts: Sequence[tuple[str, ...]]) -> str:
    depth = 1
    while depth < len(own) and sum(other[-depth:] == own[-depth:] for other in parts) > 1:
        depth += 1
    return "/".join(own[-depth:]).lstrip("/")


def _raise(error: InputError) -> None:
    raise error


# -- JSONL -------------------------------------------------------------------------------------------------------------


def _jsonl(
    path: Path, contract: InputContract, layout: RecordingLayout, fallback: str, refuse: Refused
) -> Iterator[Reading]:
    """Read a JSON document per line. A line's own key counts, unless the layout has one for all."""
    codec = JsonCodec(layout.json, [channel.name for channel in contract.channels], contract.rate_hz)
    limit = layout.json.max_bytes
    try:
        with path.open("rb") as file:
            number = 0
            while line := file.readline(limit + 2):  # the line end does not count
                number += 1
                whole = line.endswith(b"\n")
                text = line.strip()
                if not whole and len(line) > limit + 1:
                    while (rest := file.readline(limit)) and not rest.endswith(b"\n"):
                        pass
                if not text:
                    continue
                try:
                    yield from _line(codec, layout.key, fallback, text)
                except InputError as error:
                    refuse(InputError(error.reason, f"{path}: line {number}: {error}"))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror or error}") from None


def _line(codec: JsonCodec, key: str, fallback: str, text: bytes) -> list[Reading]:
    try:
        return codec.decode(key, text, 0.0)
    except InputError as error:
        if error.reason != "no_key":
            raise
        return codec.decode(fallback, text, 0.0)


# -- tables ------------------------------------------------------------------------------------------------------------


def _sound(block: Block, path: Path, contract: InputContract, refuse: Refused) -> Block:
    """Keep the rows of a block that hold finite numbers and a sensible stamp."""
    finite = np.isfinite(block.values)
    timely = (block.t >= EARLIEST_S) & (block.t < LATEST_S)
    good = finite.all(axis=1) & timely
    if good.all():
        return block
    for i in np.flatnonzero(~good).tolist():
        if timely[i]:
            name = contract.channels[int(np.argmin(finite[i]))].name
            reason, what = "not_finite", f"channel {name} is missing, NaN, infinite or beyond float32"
        else:
            reason, what = (
                "bad_time",
                f"time stamp {block.t[i]:g} s lies outside the years 1900 to 9999; set time_unit?",
            )
        refuse(InputError(reason, f"{path}: {block.unit} {block.places[i]}: {what}"))
    keep = np.flatnonzero(good).tolist()
    keys = block.keys if isinstance(block.keys, str) else [block.keys[i] for i in keep]
    return block._replace(t=block.t[good], values=block.values[good], keys=keys, places=[block.places[i] for i in keep])


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
            yield Reading(block.keys, t, values)
            continue
        rows: dict[str, list[int]] = {}
        for i, name in enumerate(block.keys[start:end]):
            rows.setdefault(name, []).append(i)
        for name, own in rows.items():
            yield Reading(name, t[own], values[own])
