"""Latch: what makes one alarm of many scores over a threshold, on the device and where thresholds are set.

1. The mean of the last `LOOKS` scores counts; before there are as many, nothing does.
2. An alarm begins with the first mean at or over the threshold, and ends after `CALM` looks in a row below `RELEASE` of
   it: what hovers around a threshold is one alarm.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from edge_runtime.types import Float64

LOOKS: Final = 10
"""Looks of a mean: with 3 a third of the swapped axes of a phone were found, with 5 to 10 most, with 20 no more."""

NAMED: Final = 3
"""Looks that name the cause: the windows before them may be right, or half right."""

CALM: Final = 15
RELEASE: Final = 0.5


class Latch:
    """One alarm of one key."""

    __slots__ = ("calm", "on")

    def __init__(self) -> None:
        self.on = False
        self.calm = 0

    def step(self, score: float) -> bool:
        """Take a look; return whether the alarm begins with it (rule 2).

        Args:
            score: mean, as a share of the threshold.
        """
        if score >= 1:
            begins, self.on, self.calm = not self.on, True, 0
            return begins
        self.calm = 0 if score >= RELEASE else self.calm + self.on
        if self.calm >= CALM:
            self.on, self.calm = False, 0
        return False


class RecentRows:
    """The last `LOOKS` rows of one key.

    Args:
        width: the length of a row.
        limit: size up to which a value counts.
    """

    __slots__ = ("at", "filled", "limit", "rows")

    def __init__(self, width: int, limit: float = math.inf) -> None:
        self.rows = np.zeros((LOOKS, width))
        self.limit = limit
        self.at = 0
        self.filled = 0

    def add(self, row: Float64) -> Float64 | None:
        """Take a row; return the mean of the last ones once there are enough (rule 1)."""
        self.rows[self.at] = row
        self.at = (self.at + 1) % LOOKS
        self.filled = min(self.filled + 1, LOOKS)
        return self.mean()

    def mean(self) -> Float64 | None:
        """Return the mean of the last rows once there are enough (rule 1)."""
        if self.filled < LOOKS:
            return None
        return np.asarray(np.clip(self.rows, -self.limit, self.limit).mean(axis=0))

    def latest(self) -> Float64:
        """Return the mean of the last `NAMED` rows, whatever their size."""
        return np.asarray(self.rows[[(self.at - back) % LOOKS for back in range(1, NAMED + 1)]].mean(axis=0))


def means(rows: Float64, limit: float = math.inf) -> Float64:
    """Return the means that a `RecentRows` gives of rows in order, the first of them after `LOOKS` rows."""
    rows = np.clip(rows, -limit, limit)
    sums = np.cumsum(np.concatenate((np.zeros((1, *rows.shape[1:])), rows)), axis=0)
    return np.asarray((sums[LOOKS:] - sums[:-LOOKS]) / LOOKS)
