"""Schedule of the recordings on the watches: the player sends by it, and the tally knows the labels by it."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from edge_runtime.errors import ConfigError
from edge_runtime.types import Float32

PAUSE_S = 4.0
"""Of silence between two recordings of a watch: longer than any gap that a window may span."""


@dataclass(frozen=True, slots=True)
class ExerciseSet:
    """One set of repetitions of one exercise by one person."""

    person: int
    label: str
    values: Float32
    """(n_samples, n_channels)."""


@dataclass(frozen=True, slots=True)
class ScheduledSet:
    """A recording at its place in a watch's day."""

    watch: str
    start: float
    """Stamp of its first sample, seconds."""
    end: float
    recording: ExerciseSet


def load_recordings(path: Path) -> list[ExerciseSet]:
    """Read the demo's recordings.

    Args:
        path: NPZ with ``x`` (n, channels), ``offset`` (recordings + 1), ``label`` and ``subject`` (recordings), and
            ``classes``; 16-bit values in ``x`` are multiplied by ``scale`` (channels).

    Raises:
        ConfigError: no such file, or not such a file.
    """
    try:
        with np.load(path, allow_pickle=False) as data:
            x = data["x"].astype(np.float32)
            if "scale" in data:
                x *= data["scale"].astype(np.float32)
            bounds, classes = data["offset"].tolist(), data["classes"].tolist()
            labels, people = data["label"].tolist(), data["subject"].tolist()
    except (OSError, ValueError, KeyError) as error:
        raise ConfigError(f"{path}: the demo's recordings cannot be read: {error}") from error
    return [ExerciseSet(people[i], classes[labels[i]], x[bounds[i] : bounds[i + 1]]) for i in range(len(labels))]


def plan(recordings: Sequence[ExerciseSet], watches: int, base: float, rate_hz: float) -> list[ScheduledSet]:
    """Deal the recordings out to watches, one after the other on each.

    Args:
        recordings: the file's recordings, in its order.
        watches: number that play at once.
        base: stamp at which all of them begin.
        rate_hz: samples per second.
    """
    ready = [float(math.ceil(base))] * watches
    turns = []
    # Longest first, each to the watch that is free first: all watches end at about the same time.
    for recording in sorted(recordings, key=lambda r: (-len(r.values), r.person, r.label)):
        watch = min(range(watches), key=lambda i: (ready[i], i))
        end = ready[watch] + len(recording.values) / rate_hz
        turns.append(ScheduledSet(f"watch-{watch + 1}", ready[watch], end, recording))
        # At a whole second, so that windows begin at the same samples as when the recording is cut alone.
        ready[watch] = float(math.ceil(end + PAUSE_S))
    return sorted(turns, key=lambda turn: (turn.start, turn.watch))


class Truth:
    """Finds the turn that a window belongs to."""

    def __init__(self, turns: Sequence[ScheduledSet]) -> None:
        self._turns: dict[str, list[ScheduledSet]] = {}
        for turn in turns:
            self._turns.setdefault(turn.watch, []).append(turn)
        self._starts = {watch: [turn.start for turn in own] for watch, own in self._turns.items()}

    @property
    def watches(self) -> list[str]:
        """All watches, in order of their numbers."""
        return sorted(self._turns, key=lambda name: int(name.rsplit("-", 1)[1]))

    def at(self, watch: str, t: float) -> ScheduledSet | None:
        """Find what this watch played at that time; None in a pause or for a watch that is not in the plan."""
        starts = self._starts.get(watch)
        if starts is None:
            return None
        # A sample's stamp went through JSON: allow for the last digit.
        position = bisect_right(starts, t + 1e-6) - 1
        if position < 0:
            return None
        turn = self._turns[watch][position]
        return turn if t < turn.end else None
