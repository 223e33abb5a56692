"""Scores over groups, and of streams as people use them: events with a tolerance at their borders."""

from __future__ import annotations

import functools
import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from edge_export.choose.evaluation.calibration import beta_cdf

Int64 = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

FEW = 5
"""Fewer groups than this say little about the next one; the table says so in words."""


@dataclass(frozen=True, kw_only=True)
class OverGroups:
    """A score over groups.

    Attributes:
        mean: over groups, each counting the same.
        low: lower end of the interval that holds the *next* group's score in 95 of 100 cases.
        high: its upper end.
        groups: how many there are.
    """

    mean: float
    low: float
    high: float
    groups: int

    def __str__(self) -> str:
        if self.groups < FEW:
            return f"{self.mean:.3f} (too few groups)"
        return f"{self.mean:.3f} (next: {max(0.0, self.low):.2f} to {min(1.0, self.high):.2f})"


@functools.cache
def student(freedom: int) -> float:
    """Return how many standard errors an interval of 95 % reaches to either side, by Student's t.

    Source: its distribution by the incomplete beta function, Abramowitz and Stegun 1964, 26.7.1.
    """
    low, high = 0.0, 1000.0
    for _ in range(80):
        middle = (low + high) / 2
        outside = beta_cdf(freedom / (freedom + middle**2), freedom / 2, 0.5)
        low, high = (middle, high) if outside > 0.05 else (low, middle)
    return high


def next_group(scores: Floats) -> OverGroups:
    """Return the prediction interval for one more group, of Student's t.

    Args:
        scores: (groups,) one of each.

    Source: Geisser 1993, Predictive Inference, section 2.2: mean +- t(n - 1) * s * sqrt(1 + 1 / n).
    """
    n, mean = len(scores), float(scores.mean())
    if n < 2:
        return OverGroups(mean=mean, low=0.0, high=1.0, groups=n)
    reach = float(student(n - 1) * scores.std(ddof=1) * np.sqrt(1 + 1 / n))
    return OverGroups(mean=mean, low=mean - reach, high=mean + reach, groups=n)


def paired(differences: Floats) -> tuple[float, float, float]:
    """Return the mean difference over groups, and the ends of its 95 % confidence interval (Student's t)."""
    n, mean = len(differences), float(differences.mean())
    if n < 2:
        return mean, -1.0, 1.0
    reach = float(student(n - 1) * differences.std(ddof=1) / np.sqrt(n))
    return mean, mean - reach, mean + reach


def over_groups(right: npt.NDArray[np.bool_], group: npt.NDArray[np.str_]) -> Floats:
    """Return the accuracy of each group, in the order of their names.

    Args:
        right: (n,) whether an answer is.
        group: (n,) names.
    """
    return np.array([right[group == one].mean() for one in np.unique(group)])


def log_loss(probabilities: npt.NDArray[np.floating[Any]], y: Int64) -> float:
    """Return the mean of minus the logarithm of what the right class was given, (n, classes) and (n,)."""
    return float(-np.log(np.maximum(probabilities[np.arange(len(y)), y], 1e-6)).mean())


def macro_f1(answers: Int64, y: Int64, classes: int) -> float:
    """F1 averaged over the classes that are there or were answered."""
    table = np.zeros((classes, classes))
    np.add.at(table, (y, answers), 1)
    hits, asked, given = table.diagonal(), table.sum(axis=1), table.sum(axis=0)
    there = asked + given > 0
    return float((2 * hits[there] / (asked + given)[there]).mean())


def tolerant_accuracy(answers: Int64, y: Int64, run: Int64, *, reach: int) -> float:
    """Accuracy where, near a border, either of the two labels beside it is right.

    A person who marks when walking ends and turning begins is not exact to half a second, so neither can an answer be.
    """
    right = answers == y
    for shift in range(1, reach + 1):
        for a, b in ((slice(None, -shift), slice(shift, None)), (slice(shift, None), slice(None, -shift))):
            same = run[a] == run[b]
            right[a] |= same & (answers[a] == y[b])
    return float(right.mean())


@dataclass(frozen=True, slots=True)
class Stretch:
    """Consecutive windows of one label, as an event.

    Attributes:
        label: of all its windows.
        begin: first window.
        end: one behind the last.
    """

    label: int
    begin: int
    end: int


def stretches(labels: Int64, run: Int64) -> list[Stretch]:
    """Return the stretches of a stream in order."""
    if not len(labels):
        return []
    cuts = np.flatnonzero((labels[1:] != labels[:-1]) | (run[1:] != run[:-1])) + 1
    edges = [0, *cuts.tolist(), len(labels)]
    return [Stretch(int(labels[a]), a, b) for a, b in itertools.pairwise(edges)]


def event_f1(answers: Int64, y: Int64, run: Int64, *, reach: int) -> float:
    """F1 of events: a true stretch is found by an answered one of its label that begins and ends within `reach`.

    Each answered stretch finds one true stretch at most.
    """
    true, given = stretches(y, run), stretches(answers, run)
    free: dict[int, list[int]] = {}
    for place, one in enumerate(given):
        free.setdefault(one.label, []).append(place)
    found = 0
    for one in true:
        for place in free.get(one.label, []):
            other = given[place]
            if abs(other.begin - one.begin) <= reach and abs(other.end - one.end) <= reach:
                free[one.label].remove(place)
                found += 1
                break
    return 2 * found / (len(true) + len(given)) if true or given else 1.0
