"""Own past: how far a sensor is from its own first windows.

1. The features of single channels count (mean, deviation, centroid); their mean over the first looks of a key is its
   beginning, which is kept over restarts.
2. The distance of the mean of the last looks from it is that of Mahalanobis, by how much such means differ in
   training where nothing is wrong.
3. That of a channel alone is the same of its three features. It is never above that of all channels: a channel beyond
   the threshold is enough for an alarm, and several below it may be, too.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from edge_runtime.manifest.drift import OwnPast
from edge_runtime.signal.drift.features import whitening
from edge_runtime.types import Float64


class Beginning:
    """Mean features of a key's first looks."""

    __slots__ = ("_sum", "looks")

    def __init__(self, width: int) -> None:
        self._sum = np.zeros(width)
        self.looks = 0

    def add(self, row: Float64) -> None:
        """Take a look."""
        self._sum += row
        self.looks += 1

    @property
    def mean(self) -> Float64:
        """Mean of the looks so far."""
        return self._sum / max(1, self.looks)

    def plain(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {"looks": self.looks, "sum": self._sum.tolist()}

    @classmethod
    def of(cls, plain: dict[str, Any], width: int) -> Beginning:
        """Make one of plain data.

        Raises:
            KeyError, TypeError, ValueError: it is something else.
        """
        made = cls(width)
        values = np.array(plain["sum"], np.float64)
        if values.shape != (width,) or not np.isfinite(values).all() or type(plain["looks"]) is not int:
            raise ValueError("not a beginning")
        made._sum, made.looks = values, plain["looks"]
        return made


class Distance:
    """Distance of features from a beginning.

    Args:
        own: differences in training.
    """

    def __init__(self, own: OwnPast) -> None:
        self.own = own
        self._whiten = whitening(own.spread, own.correlations)
        whole = np.linalg.inv(self._whiten @ self._whiten.T)
        channels = len(own.spread) // 3
        self._alone = [whole[np.ix_(part, part)] for part in np.arange(3 * channels).reshape(3, channels).T]

    def of(self, difference: Float64) -> Float64:
        """Return the distance of each row (rule 2)."""
        return np.asarray(np.sqrt(((difference @ self._whiten) ** 2).sum(axis=-1)))

    def by_channel(self, difference: Float64) -> list[float]:
        """Return the distance of each channel alone, of a single row (rule 3)."""
        parts = difference.reshape(3, -1).T
        found = (part @ np.linalg.solve(alone, part) for part, alone in zip(parts, self._alone, strict=True))
        return [float(np.sqrt(square)) for square in found]
