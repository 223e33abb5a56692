"""Labels in time, by key: from a column of the recordings, from a table of stretches, or by the ids of windows."""

from __future__ import annotations

import math
import re
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import orjson

from edge_runtime.errors import ConfigError, InputError
from edge_runtime.io.codecs.numbers import iso8601
from edge_runtime.io.recordings.columns import are_texts, is_empty, seconds_of, unit_of
from edge_runtime.io.recordings.reader import columns_of
from edge_runtime.manifest import InputContract
from edge_runtime.types import Float64

LEAST = 0.5
"""Share of a window that must be labelled for the window to have a label."""

_EXACT_S = 1e-6
"""Less is nothing: stamps in seconds since 1970 are exact to 0.2 us."""

_JSON_LINES = frozenset((".jsonl", ".ndjson"))

ANY_KEY = ""
"""Key of stretches that count for all keys."""


class Stretch(NamedTuple):
    """A time with one label."""

    start: float
    end: float
    label: str


class Labels:
    """Labels that a recording's answers are compared with.

    1. A window whose id is labelled has that label.
    2. Of stretches, the label counts that covers most of the window, if labelled time is at least `LEAST` of it.
    3. A stretch of samples goes from the first stamp to one step behind the last; where samples are further apart than
       `max_gap_s`, it ends.

    Args:
        period_s: between samples.
        max_gap_s: longest time between samples of one stretch.
    """

    def __init__(self, period_s: float, max_gap_s: float) -> None:
        self._period_s = period_s
        self._max_gap_s = max_gap_s
        self._ids: dict[str, str] = {}
        self._stretches: defaultdict[str, list[Stretch]] = defaultdict(list)
        self._sorted: dict[str, tuple[list[Stretch], list[float], list[float]]] = {}

    def add(self, key: str, t: Float64, labels: Sequence[str]) -> None:
        """Take the labels of samples, in order of their stamps; see `edge_runtime.io.recordings.layout.Labelled`."""
        if not len(t):
            return
        known, stamps = self._stretches[key], np.asarray(t, np.float64)
        changes = [i for i in range(1, len(labels)) if labels[i] != labels[i - 1]]
        gaps = np.flatnonzero((np.diff(stamps) > self._max_gap_s) | (np.diff(stamps) < 0)) + 1
        cuts = [0, *sorted({*changes, *gaps.tolist()}), len(labels)]
        for begin, end in pairwise(cuts):
            first, label = float(stamps[begin]), labels[begin]
            behind = float(stamps[end]) if end < len(stamps) else math.inf
            last = float(stamps[end - 1])
            until = behind if 0 < behind - last <= self._max_gap_s else last + self._period_s
            if known and known[-1].label == label and 0 <= first - known[-1].end <= self._max_gap_s:
                known[-1] = known[-1]._replace(end=until)
            else:
                known.append(Stretch(first, until, label))
        self._sorted.pop(key, None)

    def add_stretch(self, key: str, stretch: Stretch) -> None:
        """Take one stretch; `ANY_KEY` for all keys."""
        self._stretches[key].append(stretch)
        self._sorted.pop(key, None)

    def add_id(self, window_id: str, label: str) -> None:
        """Take the label of one window."""
        self._ids[window_id] = label

    def spans(self, key: str, label: str) -> list[tuple[float, float]]:
        """Return start and end of each stretch of a key with this label, seconds; labels of windows are none."""
        found = [stretch for name in dict.fromkeys((key, ANY_KEY)) for stretch in self._stretches.get(name, ())]
        return [(stretch.start, stretch.end) for stretch in found if stretch.label == label]

    def of(self, window_id: str, key: str, start: float, end: float) -> str:
        """Return the label of the window from `start` to `end`, seconds; empty where it has none."""
        if (label := self._ids.get(window_id)) is not None:  # rule 1
            return label
        covered: defaultdict[str, float] = defaultdict(float)
        for name in dict.fromkeys((key, ANY_KEY)):
            for stretch in self._overlapping(name, start, end):
                shared_s = min(end, stretch.end) - max(start, stretch.start)
                if stretch.label and shared_s > _EXACT_S:
                    covered[stretch.label] += shared_s
        if sum(covered.values()) < LEAST * (end - start) - _EXACT_S:  # rule 2
            return ""
        return max(covered, key=lambda label: round(covered[label], 6), default="")  # of equal ones the first

    def _overlapping(self, key: str, start: float, end: float) -> list[Stretch]:
        if key not in self._stretches:
            return []
        if key not in self._sorted:
            ordered = sorted(self._stretches[key])
            furthest = list(accumulate((stretch.end for stretch in ordered), max))
            self._sorted[key] = (ordered, [stretch.start for stretch in ordered], furthest)
        ordered, starts, furthest = self._sorted[key]
        # The furthest end so far only rises, so it can be searched although stretches may lie within one another.
        found = ordered[bisect_right(furthest, start) : bisect_left(starts, end)]
        return [stretch for stretch in found if stretch.end > start]


def labels_for(contract: InputContract) -> Labels:
    """Return empty labels for the recordings of a model: a picture is one sample."""
    step_s = (contract.window if contract.frame is not None else 1) / contract.rate_hz
    return Labels(step_s, max(contract.max_gap, step_s))


@dataclass(frozen=True, slots=True)
class Played:
    """Files that are played, found as the rows of a table name them.

    1. A row has the file's name, or its path, or the last parts of that: ``walk.csv`` or ``p1/walk.csv``.
    2. ``p2/walk.csv`` is not the file ``p1/walk.csv``; that one's rows are of no use here.
    3. ``walk.csv`` for both is refused.

    Attributes:
        files: with their keys, as `edge_runtime.io.recordings.reader.expand` lists them.
    """

    files: tuple[tuple[Path, str], ...] = ()
    _by_name: dict[str, list[tuple[Path, str]]] = field(default_factory=dict, init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        for path, key in self.files:
            self._by_name.setdefault(path.name, []).append((path.absolute(), key))

    def key_of(self, named: str) -> str | None:
        """Return the key of the file that is meant; None if it is not played.

        Raises:
            ConfigError: files of several keys may be meant.
        """
        parts = Path(named).parts
        alike = self._by_name.get(Path(named).name, ())
        found = {key: path for path, key in alike if path.parts[-len(parts) :] == parts}
        if len(found) > 1:
            first, second, *_ = sorted(found.values())
            raise ConfigError(f"{named!r} may be {first} or {second}; write the folder before the name, too")
        return next(iter(found), None)


def read_labels(path: Path, labels: Labels, played: Played, column: str = "label") -> None:
    """Read a file of labels.

    A CSV or Parquet table has a column ``label`` and any of ``start``, ``end``, ``key`` and ``file``. JSON lines have
    ``label`` and the same, or the ``id`` of a window, as in the ``test-labels.jsonl`` that ``edge-export build``
    writes. Without ``start`` or ``end`` the label holds from the beginning or to the end.

    Args:
        path: the file.
        labels: receives them.
        played: files that rows may name.
        column: the column's name, in place of ``label``.

    Raises:
        ConfigError: it cannot be read, lacks the column ``label``, or a row cannot be used; names the line.
    """
    lines = path.suffix.lower() in _JSON_LINES
    name = column if lines else column.lower()
    for place, row in _rows_of_json(path) if lines else _rows_of_table(path, name):
        label = "" if is_empty(row.get(name)) else str(row[name]).strip()
        if label and not is_empty(row.get("id")):
            labels.add_id(str(row["id"]), label)
        elif label and (key := _key(row, played, f"{path}: {place}")) is not None:
            labels.add_stretch(key, Stretch(*_span(row, f"{path}: {place}"), label))


def _key(row: Mapping[str, Any], played: Played, where: str) -> str | None:
    """Return the key that a row is for; None for that of a file that is not played."""
    if not is_empty(row.get("key")):
        return str(row["key"]).strip()
    if is_empty(row.get("file")):
        return ANY_KEY
    try:
        return played.key_of(str(row["file"]).strip())
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None


def _span(row: Mapping[str, Any], where: str) -> tuple[float, float]:
    """Return start and end of a row, seconds."""
    try:
        start, end = _moment(row.get("start"), -math.inf), _moment(row.get("end"), math.inf)
    except (InputError, TypeError, ValueError) as error:
        raise ConfigError(f"{where}: start and end must be seconds or dates: {error}") from None
    if not start < end:
        raise ConfigError(f"{where}: start must lie before end, got {start:g} and {end:g}")
    return start, end


def _moment(value: Any, missing: float) -> float:
    if is_empty(value):
        return missing
    return iso8601(value) if isinstance(value, str) else float(value)


def _rows_of_json(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Rows of JSON lines, with their places."""
    for number, line in enumerate(_bytes(path).splitlines(), start=1):
        try:
            row = orjson.loads(line) if line.strip() else {}
        except orjson.JSONDecodeError as error:
            raise ConfigError(f"{path}: line {number}: not JSON: {error}") from None
        if not isinstance(row, dict):
            raise ConfigError(f"{path}: line {number}: an object with the field label is needed")
        yield f"line {number}", row


def _rows_of_table(path: Path, name: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Rows of a table, with their places; ``start`` and ``end`` in seconds."""
    columns = _columns(path)
    if name not in columns:
        raise ConfigError(
            f"{path}: needs the column {name}, and may have start, end, key, file; it has {', '.join(columns)}"
        )
    for i in range(len(columns[name])):
        yield f"row {i + 1}", {own: column[i] for own, column in columns.items()}


def _columns(path: Path) -> dict[str, Sequence[Any]]:
    columns: dict[str, Sequence[Any]] = {}
    for name, column in columns_of(path).items():
        plain = name.strip().lower()
        role = next((one for one in ("start", "end") if re.match(rf"{one}\b|{one}_", plain)), "")
        columns[role or plain] = _seconds(path, name, column) if role else column
    return columns


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror or error}") from None


def _seconds(path: Path, name: str, column: Sequence[Any]) -> Sequence[Any]:
    first = next((cell for cell in column if not is_empty(cell)), 0.0)
    unit = "iso8601" if are_texts(column) else unit_of(name, float(first))
    try:
        return list(seconds_of(column, unit))
    except InputError as error:
        raise ConfigError(f"{path}: column {name!r}: {error}") from None
