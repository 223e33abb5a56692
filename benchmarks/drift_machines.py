"""Detectors for machines and rooms that were measured, and are not shipped: for `bench_drift`.

*Recent against before*: the mean of each channel over the last `RECENT_S` against that over the `BEFORE_S` before, by
how much such means differ in the first `FIRST_S` of the same stream; the channel that differs most counts. Files of a
pump's test bench, a sample a second, each with one fault. The threshold for each file is set on the others, where
nothing is wrong. A fault is found if an alarm begins within `LIMIT_S`.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import NamedTuple

import numpy as np

from benchmarks import intake_data
from benchmarks.report import Report
from edge_runtime.types import Float64

RECENT_S, BEFORE_S = 20, 60
FIRST_S = 300
LIMIT_S = 60
HELD_S = 60
"""An alarm ends after this long below half of the threshold; or, where it may begin again, it does so after it."""

RATE = 0.0015
"""False alarms a second at which thresholds are set."""
_STEP_S = 10
_FLOOR = 0.1
"""Share of a channel's usual deviation that is added to how much its means differ."""


class Machine(NamedTuple):
    """One file."""

    values: Float64
    """A row a second."""
    begins: int
    ends: int
    """Seconds between which the fault is."""

    def scores(self, usual: Float64) -> Float64:
        """Recent against before, every `_STEP_S` seconds, in order."""
        sums = np.cumsum(np.concatenate((np.zeros((1, self.values.shape[1])), self.values)), axis=0)
        now = np.arange(RECENT_S + BEFORE_S, len(sums), _STEP_S)
        middle = now - RECENT_S
        apart = (sums[now] - sums[middle]) / RECENT_S - (sums[middle] - sums[middle - BEFORE_S]) / BEFORE_S
        first = np.sqrt(np.mean(apart[now <= FIRST_S] ** 2, axis=0) + (_FLOOR * usual) ** 2)
        return np.asarray((np.abs(apart) / first).max(axis=1))

    def times(self, count: int) -> Float64:
        return RECENT_S + BEFORE_S + _STEP_S * np.arange(count, dtype=np.float64)

    def clean(self, t: Float64) -> np.ndarray:
        """Seconds at which an alarm is false: after the first ones, and not until the windows have left the fault."""
        return np.asarray((t > FIRST_S) & ((t <= self.begins) | (t > self.ends + RECENT_S + BEFORE_S)))


def machines() -> list[Machine]:
    found = []
    for file in sorted((intake_data.DATA / "anomaly-skab").glob("*/*.csv")):
        with file.open() as lines:
            rows = list(csv.DictReader(lines, delimiter=";"))
        if "anomaly" not in rows[0]:
            continue
        names = list(rows[0])[1:9]
        t = np.array([datetime.fromisoformat(row["datetime"]).timestamp() for row in rows])
        wrong = t[[float(row["anomaly"]) > 0 for row in rows]] - t[0]
        values = np.array([[float(row[name]) for name in names] for row in rows])
        seconds = np.arange(0, t[-1] - t[0] + 1)
        if wrong[0] > FIRST_S + RECENT_S + BEFORE_S:
            even = np.stack([np.interp(seconds, t - t[0], column) for column in values.T], axis=1)
            found.append(Machine(even, int(wrong[0]), int(wrong[-1])))
    return found


Alarms = Callable[[Float64, float, Float64], list[float]]


def latched(scores: Float64, threshold: float, t: Float64) -> list[float]:
    """Seconds at which alarms begin, as on a device: one that lasts is one."""
    begun: list[float] = []
    last = -math.inf
    for score, at in zip((scores / threshold).tolist(), t.tolist(), strict=True):
        if score >= 1 and at - last > HELD_S:
            begun.append(at)
        if score >= 1 or (score >= 0.5 and at - last <= HELD_S):
            last = at
    return begun


def repeated(scores: Float64, threshold: float, t: Float64) -> list[float]:
    """The same, where one that lasts begins again and again."""
    begun: list[float] = []
    for at in t[scores >= threshold].tolist():
        if not begun or at - begun[-1] >= HELD_S:
            begun.append(at)
    return begun


def _false(scores: Float64, threshold: float, t: Float64, clean: np.ndarray) -> int:
    """Count false alarms; one that lasts counts again, or the lowest threshold would have none."""
    return len(repeated(scores[clean], threshold, t[clean]))


def measured(alarms: Alarms, known: Sequence[Machine]) -> tuple[int, float, float]:
    """Faults found, false alarms in 1,000 s, and the percentage of faults that a random twin finds."""
    usual = np.sqrt(np.mean([one.values[:FIRST_S].var(axis=0) for one in known], axis=0))
    scores = [one.scores(usual) for one in known]
    times = [one.times(len(row)) for one, row in zip(known, scores, strict=True)]
    clean = [one.clean(t) for one, t in zip(known, times, strict=True)]
    hits, wrong = 0, 0
    for at, one in enumerate(known):
        others = [(scores[i], times[i], clean[i]) for i in range(len(known)) if i != at]
        allowed = RATE * _STEP_S * sum(int(parts[2].sum()) for parts in others)
        levels = np.unique(np.concatenate([row[calm] for row, _, calm in others]))[::-1]
        threshold = float(levels[0])
        for level in levels.tolist():
            if sum(_false(row, level, t, calm) for row, t, calm in others) > allowed:
                break
            threshold = level
        hits += any(one.begins < t <= one.begins + LIMIT_S for t in alarms(scores[at], threshold, times[at]))
        wrong += _false(scores[at], threshold, times[at], clean[at])
    rate = wrong / (_STEP_S * sum(int(calm.sum()) for calm in clean))
    return hits, 1000 * rate, 100 * (1 - math.exp(-LIMIT_S * rate))


def pump() -> Report:
    known = machines()
    report = Report(
        f"a pump, {len(known)} faults: recent against before, within {LIMIT_S} s (not shipped)",
        ("alarms", "found %", "random twin %", "false alarms in 1,000 s"),
    )
    for name, alarms in (("one for as long as it lasts", latched), ("again every minute", repeated)):
        hits, rate, twin = measured(alarms, known)
        share = 100 * hits / len(known)
        report.rows.append((name, f"{share:.0f}", f"{twin:.0f}", f"{rate:.1f}"))
    return report


def room(windows: int = 25) -> Report:
    """Share of windows in which a room is occupied: what nights do to it, and what a light sensor that is stuck does.

    A stuck sensor makes a model that goes by the light say one label for ever.
    """
    report = Report(
        f"a room, half-hour windows: share that is occupied in {windows} windows in a row (not shipped)",
        ("recordings", "stretches", "least", "most", "all one label %"),
    )
    for name in ("datatraining", "datatest"):
        path = intake_data.DATA / "occupancy-room" / f"{name}.csv"
        labels = np.genfromtxt(path, delimiter=",", skip_header=1, usecols=(-1,), dtype=np.float64)
        of = labels[: len(labels) // 30 * 30].reshape(-1, 30).mean(axis=1) >= 0.5
        shares = np.convolve(of, np.full(windows, 1 / windows), mode="valid")
        same = (shares < 1e-9) | (shares > 1 - 1e-9)
        report.rows.append(
            (name, len(shares), f"{shares.min():.2f}", f"{shares.max():.2f}", f"{100 * same.mean():.0f}")
        )
    return report
