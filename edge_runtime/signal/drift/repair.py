"""Repair test: would these windows be likelier under training if an axis had been swapped, flipped, turned or scaled?

1. Of a window, the log-likelihood of its features under training is taken: classes in equal shares, each a normal
   distribution around its centre, all with one covariance. So it does not matter what the wearer does.
2. Of each repair, the same after it. What it adds is its score.
3. The mean score of the last looks counts (`edge_runtime.signal.drift.latch`), each between -`LIMIT` and `LIMIT`: one
   odd window decides nothing. The best repair names the fault.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from edge_runtime.manifest.drift import SensorReference
from edge_runtime.signal.drift.features import Repairs, WindowStatistics, features, whitening
from edge_runtime.types import Float64

LIMIT: Final = 12.0
"""With 3, faults that cost most and those that cost little had the same score."""


class Likelihood:
    """Log-likelihood of features under training, but for a constant.

    Args:
        reference: centres and covariance.
    """

    def __init__(self, reference: SensorReference) -> None:
        self._floors = np.array(reference.floors)
        self._whiten = whitening(reference.spread, reference.correlations)
        self._centres = (np.array(reference.centres) @ self._whiten).T
        self._sizes = np.einsum("fc,fc->c", self._centres, self._centres)

    def distances(self, statistics: WindowStatistics) -> Float64:
        """Return half the squared distance to each class's centre, along the last axis."""
        whitened = features(statistics, self._floors) @ self._whiten
        sizes = np.einsum("...f,...f->...", whitened, whitened)[..., np.newaxis]
        return np.asarray((sizes + self._sizes) / 2 - whitened @ self._centres)

    def of(self, statistics: WindowStatistics) -> Float64:
        """Return the log-likelihood of each window."""
        distances = self.distances(statistics)
        least = distances.min(axis=-1)
        return np.asarray(np.log(np.exp(least[..., np.newaxis] - distances).mean(axis=-1)) - least)


class RepairTest:
    """Scores of a bundle's repairs.

    Args:
        reference: the training data's reference, with repairs.
    """

    def __init__(self, reference: SensorReference) -> None:
        self._likelihood = Likelihood(reference)
        self._repairs = Repairs(reference.repairs, reference.channels)

    def scores(self, statistics: WindowStatistics) -> Float64:
        """Return what each repair adds to each window, (n, repairs) (rule 2)."""
        before = self._likelihood.of(statistics)
        after = self._likelihood.of(self._repairs.apply(statistics))
        return np.asarray(after - before[:, np.newaxis])
