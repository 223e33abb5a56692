"""One replay of many recordings, as values that every process can be given."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from edge_runtime.errors import ConfigError
from edge_runtime.io.recordings.labels import Played
from edge_runtime.io.recordings.score import Score, ScoreCounts
from edge_runtime.io.recordings.tally import Tallied, Tally
from edge_runtime.io.sources.recording import RecordingConfig
from edge_runtime.metrics import Metrics
from edge_runtime.model.serving.config import ModelConfig
from edge_runtime.signal.windowing.config import WindowConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """Treatment of every recording."""

    model: ModelConfig
    layout: RecordingConfig
    """Its `files` are all of them."""
    window: WindowConfig
    labels: Path | None = None
    """Table of labels; those of a column are in the layout."""
    played: Played = field(default_factory=Played)
    """Files that a table of labels may name."""

    @property
    def scored(self) -> bool:
        """The answers are compared with labels."""
        return self.labels is not None or bool(self.layout.label)

    def digest(self) -> str:
        """Return a digest of all that the answers depend on but the recordings: another one means other answers.

        Raises:
            ConfigError: the bundle or the table of labels cannot be read.
        """
        made = hashlib.sha256(repr((self.model, self.layout, self.window)).encode())
        for path in filter(None, (self.model.bundle, self.labels)):
            try:
                made.update(hashlib.sha256(path.read_bytes()).digest())
            except OSError as error:
                raise ConfigError(f"{path}: cannot be read: {error.strerror or error}") from None
        return made.hexdigest()


class Group(NamedTuple):
    """Recordings that are answered together, in this order, since they may continue each other."""

    number: int
    """Place in the job."""
    files: tuple[tuple[Path, str], ...]
    """With their keys, as `edge_runtime.io.recordings.reader.expand` lists them."""

    @property
    def name(self) -> str:
        """Name for a person: the first file, and how many more there are."""
        more = len(self.files) - 1
        return self.files[0][0].name + (f" and {more} more" if more else "")

    def because(self, why: str) -> dict[str, str]:
        """Return a reason for each of its files, by path."""
        return {str(path): why for path, _ in self.files}

    @property
    def size(self) -> int:
        """Bytes; 0 for what is not there."""
        return sum(path.stat().st_size for path, _ in self.files if path.exists())

    def digest(self, job: str) -> str:
        """Return a digest of these recordings, as they are on the disk now, in a job with that digest."""
        stats = [(str(path.absolute()), key, *_state(path)) for path, key in self.files]
        return hashlib.sha256(repr((job, stats)).encode()).hexdigest()[:32]


def _state(path: Path) -> tuple[int, int]:
    try:
        found = path.stat()
    except OSError:
        return 0, 0
    return found.st_size, found.st_mtime_ns


def grouped(files: Sequence[tuple[Path, str]], layout: RecordingConfig) -> list[Group]:
    """Cut a job into groups that can be answered apart.

    1. Files that complete each other, and those whose key the layout states, are one group.
    2. So are captured messages, any of which may belong to any key.
    3. Files with the same key are one group: parts of a data set in folders ``key=VALUE``.
    4. Every other file is a group; whether it shares a key with another one shows when it is answered (`joined`).
    """
    if layout.partial or layout.key or layout.mqtt:  # rules 1, 2
        return [Group(0, tuple(files))]
    by_key: dict[str, list[tuple[Path, str]]] = {}
    for path, key in files:
        by_key.setdefault(key, []).append((path, key))  # rule 3
    return [Group(number, tuple(own)) for number, own in enumerate(by_key.values())]


class GroupFigures(NamedTuple):
    """Counts and answers of one group, added up."""

    keys: list[str]
    """All that something was read of."""
    counts: dict[str, int]
    dropped: dict[str, int]
    examples: dict[str, str]
    tally: Tallied
    score: ScoreCounts | None
    broken: dict[str, str]
    """Recordings without answers, by path, and why."""

    def to_json(self) -> bytes:
        """Return them as one line of JSON."""
        return orjson.dumps(self._asdict())

    @classmethod
    def from_json(cls, data: bytes) -> GroupFigures:
        """Read what `to_json` wrote.

        Raises:
            ValueError: it is something else.
        """
        document = orjson.loads(data)
        if not isinstance(document, dict) or set(document) != set(cls._fields):
            raise ValueError("these are no figures")
        return cls(**document)

    @classmethod
    def of(
        cls, keys: Iterable[str], metrics: Metrics, tally: Tally, score: Score | None, broken: dict[str, str]
    ) -> GroupFigures:
        """Take all that was counted."""
        counts = {name: n for name, n in metrics.counts.items() if isinstance(name, str)}
        return cls(
            sorted(keys),
            counts,
            dict(metrics.dropped),
            dict(metrics.examples),
            tally.counts(),
            score.counts() if score else None,
            broken,
        )

    @classmethod
    def none(cls, broken: dict[str, str]) -> GroupFigures:
        """Return those of a group that gave no answers."""
        return cls([], {}, {}, {}, Tally().counts(), None, broken)


class Totals:
    """Sum of what came of all groups.

    Args:
        score: empty, where answers are scored.
    """

    def __init__(self, score: Score | None) -> None:
        self.metrics = Metrics()
        self.tally = Tally()
        self.score = score
        self.broken: dict[str, str] = {}

    def add(self, figures: GroupFigures) -> None:
        """Add what came of a group."""
        self.metrics.counts.update(figures.counts)
        self.metrics.dropped.update(figures.dropped)
        self.metrics.examples.update(figures.examples)
        self.tally.merge(figures.tally)
        if self.score is not None and figures.score is not None:
            self.score.merge(figures.score)
        self.broken.update(figures.broken)

    def plain(self) -> dict[str, Any]:
        """Return everything as plain data, ready for JSON."""
        scored = {} if self.score is None else {"score": self.score.plain()}
        snapshot = self.metrics.snapshot()
        return {
            "counts": snapshot["counts"],
            "dropped": snapshot["dropped"],
            "labels": dict(self.tally.labels),
            "broken": self.broken,
        } | scored


def joined(answered: Sequence[tuple[Group, GroupFigures]]) -> list[Group]:
    """Join groups that turned out to share a key, since windows and memory go on from one to the other.

    Args:
        answered: groups with what came of them, in the order of the job.

    Returns:
        Groups to be answered in place of their parts, each under the number of its first; empty if no key is shared.
    """
    leader = {group.number: group.number for group, _ in answered}

    def led(number: int) -> int:
        while leader[number] != number:
            leader[number] = leader[leader[number]]
            number = leader[number]
        return number

    first: dict[str, int] = {}
    for group, figures in answered:
        for key in figures.keys:
            low, high = sorted((led(first.setdefault(key, group.number)), led(group.number)))
            leader[high] = low
    together: dict[int, list[Group]] = {}
    for group, _ in answered:
        together.setdefault(led(group.number), []).append(group)
    return [
        Group(number, tuple(file for part in parts for file in part.files))
        for number, parts in together.items()
        if len(parts) > 1
    ]
