"""Recordings of messages, a line each: JSON lines, and every other codec whose messages are text."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from edge_runtime import units
from edge_runtime.errors import ConfigError, InputError
from edge_runtime.io.codecs import Codec
from edge_runtime.io.codecs.config import CodecConfig, load_codec
from edge_runtime.io.codecs.json import JsonConfig
from edge_runtime.io.codecs.numbers import MAX_BYTES, StampUnit
from edge_runtime.io.codecs.paths import finder
from edge_runtime.io.recordings.columns import are_texts, unit_of
from edge_runtime.io.recordings.layout import Labelled, RecordingLayout, Refused
from edge_runtime.io.recordings.tables import Block, find_columns
from edge_runtime.manifest import InputContract
from edge_runtime.types import Float64, Reading


def line_readings(
    path: Path,
    contract: InputContract,
    layout: RecordingLayout,
    fallback: str,
    refuse: Refused,
    labelled: Labelled | None = None,
) -> Iterator[Reading]:
    """Read a message per line. A line's own key counts, unless the layout has one for all.

    Messages without a stamp are laid one behind the other, `RecordingLayout.rate_hz` samples a second, from 0.
    """
    for _, readings, label in _read(path, contract, layout, fallback, refuse):
        for reading in readings:
            if labelled is not None:
                t = stamps(reading, 1 / contract.rate_hz)
                labelled(reading.key, t, [label] * len(t))
            yield reading


def line_blocks(
    path: Path, contract: InputContract, layout: RecordingLayout, fallback: str, refuse: Refused
) -> Iterator[Block]:
    """Read as `line_readings` does; channels that a message does not bring are NaN."""
    for number, readings, label in _read(path, contract, layout, fallback, refuse):
        for reading in readings:
            values = reading.values
            if reading.channels is not None:
                values = np.full((len(values), len(contract.channels)), np.nan, np.float32)
                values[:, list(reading.channels)] = reading.values
            t = stamps(reading, 1 / contract.rate_hz)
            yield Block(t, values, reading.key, [number] * len(t), "line", label)


def _read(
    path: Path, contract: InputContract, layout: RecordingLayout, fallback: str, refuse: Refused
) -> Iterator[tuple[int, list[Reading], str]]:
    """Yield the number of each line, its readings and its label."""
    try:
        config = codec_of(path, contract, layout)
        codec = load_codec(config, contract.channels, rate_hz=contract.rate_hz)
        lines = _Lines(codec, contract, layout, fallback)
        for number, text in numbered_lines(path, config.max_bytes):
            try:
                readings = lines.read(text)
            except InputError as error:
                refuse(InputError(error.reason, f"{path}: line {number}: {error}"))
                continue
            yield number, readings, lines.label(text) if layout.label else ""
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror or error}") from None


def codec_of(path: Path, contract: InputContract, layout: RecordingLayout) -> CodecConfig:
    """Return the codec of a file's lines: what is configured, or else what the first line asks for.

    1. A codec that is configured counts.
    2. A first line that is an object with a field for each channel, or for one if the file is partial, is a row of a
       table: its fields, dotted where they lie in others, are the columns, and stamps, key and units are found as in a
       CSV file.
    3. All else is in our own shape (`edge_runtime.io.codecs.document`).

    Raises:
        ConfigError: rule 2, and the columns do not suffice.
        OSError: the file cannot be read.
    """
    if layout.codec != JsonConfig():  # rule 1
        return layout.codec
    _, first = next(numbered_lines(path, layout.codec.max_bytes), (0, b""))
    row = fields_of(first)
    if not row or "values" in row:
        return layout.codec  # rule 3
    header = list(row)
    wanted = [layout.columns.get(channel.name, channel.name) for channel in contract.channels]
    found = {*header, *(units.split_name(name)[0] for name in header)}.intersection(wanted)
    if not layout.columns and len(found) < (1 if layout.partial else len(wanted)):
        return layout.codec
    columns = find_columns(path, header, contract, replace(layout, label=""))  # rule 2
    time, key = columns.time, columns.key
    fields = columns.names(header)
    if layout.partial:  # other lines have the fields of others
        fields = dict(enumerate(wanted)) | fields
    unit: StampUnit = layout.time_unit
    if unit == "auto" and time is not None:
        stamp = row[header[time]]
        unit = "iso8601" if are_texts([stamp]) else unit_of(header[time], float(stamp))
    return JsonConfig(
        channels={contract.channels[i].name: field for i, field in fields.items()},
        partial=layout.partial,
        time="" if time is None else header[time],
        time_unit=unit,
        key=JsonConfig().key if key is None else header[key],
        units=layout.units,
    )


def fields_of(line: bytes) -> dict[str, Any]:
    """Return the fields of a JSON object by their dotted paths, without lists of objects; none of anything else."""
    try:
        document = orjson.loads(line)
    except orjson.JSONDecodeError:
        return {}
    found: dict[str, Any] = {}
    waiting = [("", document)] if isinstance(document, dict) else []
    while waiting:
        path, part = waiting.pop(0)
        for name, value in part.items():
            if isinstance(value, dict):
                waiting.append((f"{path}{name}.", value))
            elif not (isinstance(value, list) and any(isinstance(item, dict) for item in value)):
                found[f"{path}{name}"] = value
    return found


def numbered_lines(path: Path, limit: int) -> Iterator[tuple[int, bytes]]:
    """Lines of a file that hold something, with their numbers from 1; of one over `limit` bytes, the beginning alone.

    Raises:
        OSError: the file cannot be read.
    """
    with path.open("rb") as file:
        number = 0
        while line := file.readline(limit + 2):  # the line end does not count
            number += 1
            if not line.endswith(b"\n") and len(line) > limit + 1:
                while (rest := file.readline(limit)) and not rest.endswith(b"\n"):
                    pass
            if text := line.strip():
                yield number, text


def stamps(reading: Reading, period_s: float) -> Float64:
    """Return one stamp per sample; `period_s` where the reading states none."""
    if isinstance(reading.t, float):
        return reading.t + np.arange(len(reading.values), dtype=np.float64) * (reading.period_s or period_s)
    return reading.t


def is_undated(reading: Reading) -> bool:
    """Return whether a reading got the stamp of an arrival that is not known, NaN."""
    return isinstance(reading.t, float) and math.isnan(reading.t)


def line_columns(path: Path) -> dict[str, Sequence[Any]]:
    """Whole columns of a file of JSON objects; see `fields_of` and `edge_runtime.io.recordings.reader.columns_of`."""
    rows = []
    try:
        for number, line in numbered_lines(path, MAX_BYTES):
            if not (row := fields_of(line)):
                raise ConfigError(f"{path}: line {number}: not a JSON object with fields")
            rows.append(row)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror or error}") from None
    if not rows:
        raise ConfigError(f"{path}: holds no rows")
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: [row.get(name) for row in rows] for name in names}


class _Lines:
    """Turns lines into readings with stamps and keys."""

    def __init__(self, codec: Codec, contract: InputContract, layout: RecordingLayout, fallback: str) -> None:
        self._codec = codec
        self._key = layout.key
        self._fallback = fallback
        self._rate_hz = layout.rate_hz or contract.rate_hz
        self._taken: Counter[str] = Counter()
        self._find_label = finder(layout.label)

    def read(self, text: bytes) -> list[Reading]:
        # A line has no time of arrival: NaN stands for it, and remains where the message has no stamp of its own.
        try:
            readings = self._codec.decode(self._key, text, math.nan)
        except InputError as error:
            if error.reason != "no_key":
                raise
            readings = self._codec.decode(self._fallback, text, math.nan)
        return [self._dated(reading) if is_undated(reading) else reading for reading in readings]

    def _dated(self, reading: Reading) -> Reading:
        """Lay samples without a stamp behind those that came before them."""
        taken = self._taken[reading.key]
        self._taken[reading.key] += len(reading.values)
        return reading._replace(t=taken / self._rate_hz, period_s=1 / self._rate_hz)

    def label(self, text: bytes) -> str:
        """Return the label that stands in a line; empty where none does."""
        try:
            found = self._find_label(orjson.loads(text))
        except (orjson.JSONDecodeError, InputError):
            return ""
        return "" if found is None or isinstance(found, dict | list) else str(found).strip()
