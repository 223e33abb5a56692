"""Own past: how far a sensor is from its own first windows.

1. The features of single channels count (mean, deviation, centroid); their mean over the first looks of a key is its
   beginning, which is kept over restarts.
2. The distance of the mean of the last looks from it is that of Mahalanobis, by how much such means differ in
   training where nothing is wrong.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from edge_runtime.drift.features import whitening
from edge_runtime.manifest.drift import OwnPast
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
        self._whiten = whitening(own.spread, own.correlations)

    def of(self, difference: Float64) -> Float64:
        """Return the distance of each row (rule 2)."""
        return np.asarray(np.sqrt(((difference @ self._whiten) ** 2).sum(axis=-1)))
