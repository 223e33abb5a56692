"""Features of windows, and what a fault of a sensor does to them.

A window of a sensor whose axes are swapped, turned, flipped or scaled has the statistics of the right window, swapped,
turned, flipped or scaled. So a repair needs no window again: it is a permutation, a sign and a factor of numbers that
are there (`tests/edge_runtime/signal/drift/test_features.py` holds it to that).
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from edge_runtime.manifest.drift import Repair
from edge_runtime.types import Float64

LEAST_ROWS: Final = 16
"""Rows of a window below which its spectrum says nothing."""

_SLOW: Final = 1e-3
"""Added to a centroid, as a share of the sampling rate, so that a constant has a logarithm, too."""

_REST: Final = 1e-6
"""Deviation of a channel that rests, as a share of its value."""

_FULL: Final = 0.98
"""Largest correlation that is told apart from 1."""


class WindowStatistics(NamedTuple):
    """Statistics of windows: (n, channels) each, and (n, pairs of channels)."""

    mean: Float64
    deviation: Float64
    centroid: Float64
    """Mean frequency of the power spectrum without its mean, as a share of the sampling rate; 0 of a constant."""
    correlation: Float64
    """As ``artanh``."""


@functools.lru_cache(maxsize=8)
def _pairs(channels: int) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    return np.triu_indices(channels, 1)


@functools.lru_cache(maxsize=8)
def _frequencies(rows: int) -> Float64:
    return np.asarray(np.fft.rfftfreq(rows), np.float64)


def measure(x: npt.NDArray[np.floating]) -> WindowStatistics:
    """Measure windows.

    Args:
        x: (n, rows, channels), at least `LEAST_ROWS` rows.
    """
    rows, channels = x.shape[1:]
    values = x.astype(np.float64)
    mean: Float64 = values.mean(axis=1)
    centred = values - mean[:, np.newaxis]
    products = np.matmul(centred.transpose(0, 2, 1), centred) / rows
    deviation = np.sqrt(np.einsum("nii->ni", products))
    a, b = _pairs(channels)
    scale = deviation[:, a] * deviation[:, b]
    # A constant goes with nothing: its correlation is 0.
    correlation = np.divide(products[:, a, b], scale, out=np.zeros_like(scale), where=scale > 0)
    spectrum = np.fft.rfft(centred, axis=1)
    power = spectrum.real**2 + spectrum.imag**2
    total = power.sum(axis=1)
    weighed = np.einsum("nfc,f->nc", power, _frequencies(rows))
    centroid = np.divide(weighed, total, out=np.zeros_like(total), where=total > 0)
    return WindowStatistics(mean, deviation, centroid, np.arctanh(np.clip(correlation, -_FULL, _FULL)))


def alive(statistics: WindowStatistics) -> npt.NDArray[np.bool_]:
    """Return for each window whether none of its channels rests; interpolation between equal values rounds."""
    return np.asarray((statistics.deviation > _REST * np.abs(statistics.mean)).all(axis=1))


def features(statistics: WindowStatistics, floors: Float64) -> Float64:
    """Return the features, along the last axis: means, deviations, centroids, correlations."""
    return np.concatenate(
        (
            statistics.mean,
            np.log(statistics.deviation + floors),
            np.log(statistics.centroid + _SLOW),
            statistics.correlation,
        ),
        axis=-1,
    )


def whitening(spread: Sequence[float], correlations: Sequence[float]) -> Float64:
    """Return the matrix after which features have the unit covariance, so that distances are sums of squares.

    Args:
        spread: standard deviation of each feature.
        correlations: upper triangle by rows.
    """
    matrix = np.eye(len(spread))
    matrix[np.triu_indices(len(spread), 1)] = correlations
    root = np.linalg.inv(np.linalg.cholesky(matrix + np.triu(matrix, 1).T))
    return np.asarray((root / np.array(spread)).T)


class Repairs:
    """Several repairs, applied together.

    Args:
        repairs: the channels' repairs.
        channels: names, in the order of the statistics.
    """

    def __init__(self, repairs: Sequence[Repair], channels: Sequence[str]) -> None:
        n = len(channels)
        place = {name: at for at, name in enumerate(channels)}
        takes = [repair.takes or tuple(channels) for repair in repairs]
        self._order = np.array([[place[name.removeprefix("-")] for name in row] for row in takes], np.intp)
        sign = np.array([[-1.0 if name.startswith("-") else 1.0 for name in row] for row in takes])
        self._factor = np.array([repair.factors or (1.0,) * n for repair in repairs])
        self._gain = sign * self._factor
        a, b = _pairs(n)
        pair = np.zeros((n, n), np.intp)
        pair[a, b] = pair[b, a] = np.arange(len(a))
        self._pair = pair[self._order[:, a], self._order[:, b]]
        self._pair_sign = sign[:, a] * sign[:, b]

    def apply(self, statistics: WindowStatistics) -> WindowStatistics:
        """Return the statistics after each repair, (n, repairs, ...)."""
        return WindowStatistics(
            statistics.mean[:, self._order] * self._gain,
            statistics.deviation[:, self._order] * self._factor,
            statistics.centroid[:, self._order],
            statistics.correlation[:, self._pair] * self._pair_sign,
        )
