"""Features of the training windows: by them a device tells how its sensors are mounted, and whether they change.

A look at a window makes *features* of it (`edge_runtime.signal.drift.features`): of each channel the mean, the
logarithm of the standard deviation and that of the spectral centroid; of each pair of channels the correlation, as
``artanh``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Cause = Literal["orientation", "unit"]


def features_of(channels: int) -> int:
    """Count the features of a window."""
    return 3 * channels + channels * (channels - 1) // 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Repair:
    """A fault that a sensor may have, by what undoes it."""

    fault: str
    """In words, as a message has them: ``ax and ay swapped``."""
    cause: Cause
    takes: tuple[str, ...] = ()
    """For each channel of the reference, the one that its values come under; ``-ax``: with their sign changed. Empty:
    each its own."""
    factors: tuple[float, ...] = ()
    """For each channel, what its values are multiplied by after that; empty: 1."""
    unit: str = ""
    """Unit that the scaled channels come in."""
    threshold: float = 1.0
    """Log-likelihood that it must add to windows, in the mean, for its fault to be an alarm."""
    cost: float = 0.0
    """Accuracy that the fault cost people who were not in training, 0 to 1."""
    found: float = 0.0
    """Share of left-out people with whom it was found within 25 windows."""

    def __post_init__(self) -> None:
        if not self.fault:
            raise ValueError("a repair needs the fault that it undoes, in words")
        if not 0 < self.threshold < math.inf:
            raise ValueError(f"repair {self.fault!r}: threshold must be above 0")
        if not all(0 < factor < math.inf for factor in self.factors):
            raise ValueError(f"repair {self.fault!r}: factors must be above 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnPast:
    """By how much the features of one sensor differ from those of its own beginning, where nothing is wrong.

    Of the features of single channels only: mean, standard deviation and centroid.
    """

    windows: int
    """Looks of the beginning."""
    spread: tuple[float, ...]
    """Standard deviation of the difference, by feature."""
    correlations: tuple[float, ...]
    """Of the differences, the upper triangle by rows; shrunk, so that they can be inverted."""
    threshold: float
    """Mahalanobis distance from which on the sensor has changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SensorReference:
    """Features of the training windows, and the faults that can be told by them."""

    channels: tuple[str, ...]
    floors: tuple[float, ...]
    """Added to each channel's standard deviation before its logarithm, so that rest is not minus infinity."""
    centres: tuple[tuple[float, ...], ...]
    """Mean features of each class."""
    spread: tuple[float, ...]
    """Standard deviation of each feature within a class."""
    correlations: tuple[float, ...]
    """Of the features within a class, the upper triangle by rows; shrunk, so that they can be inverted."""
    repairs: tuple[Repair, ...] = ()
    own: OwnPast | None = None

    def __post_init__(self) -> None:
        n = len(self.channels)
        width = features_of(n)
        if not n or len(set(self.channels)) != n:
            raise ValueError("a sensor reference needs channels, all different")
        if len(self.floors) != n or not all(0 < floor < math.inf for floor in self.floors):
            raise ValueError("floors must be a number above 0 for each channel")
        if not self.centres or any(len(row) != width for row in self.centres):
            raise ValueError(f"centres must be rows of {width} features, one a class")
        _check_covariance(self.spread, self.correlations, width)
        if self.own is not None:
            _check_covariance(self.own.spread, self.own.correlations, 3 * n)
            if self.own.windows < 1 or not 0 < self.own.threshold < math.inf:
                raise ValueError("own past must be of at least one window, with a threshold above 0")
        for repair in self.repairs:
            self._check_repair(repair)

    def _check_repair(self, repair: Repair) -> None:
        taken = [name.removeprefix("-") for name in repair.takes]
        if taken and sorted(taken) != sorted(self.channels):
            raise ValueError(f"repair {repair.fault!r} must take each of {', '.join(self.channels)} once")
        if repair.factors and len(repair.factors) != len(self.channels):
            raise ValueError(f"repair {repair.fault!r} must have a factor for each channel, or none")


def _check_covariance(spread: tuple[float, ...], correlations: tuple[float, ...], width: int) -> None:
    if len(spread) != width or not all(0 < one < math.inf for one in spread):
        raise ValueError(f"spread must be {width} numbers above 0")
    if len(correlations) != width * (width - 1) // 2 or not all(-1 < one < 1 for one in correlations):
        raise ValueError(f"correlations must be {width * (width - 1) // 2} numbers between -1 and 1")


def check_sensors(reference: SensorReference, channels: Iterable[str]) -> None:
    """Refuse a reference of channels that no sensor sends.

    Raises:
        ValueError: says which.
    """
    known = set(channels)
    for name in reference.channels:
        if name not in known:
            raise ValueError(f"sensors names no channel of a sensor ({name!r}); known: {', '.join(sorted(known))}")
