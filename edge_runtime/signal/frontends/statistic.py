"""Statistics of each channel over a cut.

Sources of the less obvious ones: `scipy.stats.median_abs_deviation` and `scipy.stats.kurtosis` with their defaults.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import numpy as np

from edge_runtime.manifest.frontends import Measure, Statistic
from edge_runtime.signal.frontends import Array, StateSpec
from edge_runtime.signal.frontends.frames import to_float32
from edge_runtime.types import Float32, Float64


class StatisticRow:
    """Front end of a `Statistic` stage: one row of channels * measures, those of the first channel first.

    Args:
        spec: the stage's settings.
        cut_shape: (samples, channels) or (samples,).
    """

    rows = 1
    states: tuple[StateSpec, ...] = ()

    def __init__(self, spec: Statistic, cut_shape: tuple[int, ...]) -> None:
        self._measures = [_MEASURES[name] for name in spec.what]
        self.shape: tuple[int, ...] = (int(np.prod(cut_shape[1:])) * len(spec.what),)

    def __call__(self, cuts: Float32, states: Sequence[Array], /) -> tuple[Float32, Sequence[Array]]:  # noqa: ARG002
        channels = by_channel(cuts)
        row = np.stack([measure(channels) for measure in self._measures], axis=-1)
        return to_float32(row.reshape(*cuts.shape[:2], *self.shape)), []


def by_channel(cuts: Float32) -> Float64:
    """Put time last: (batch, n_cuts, samples, *row) to (batch, n_cuts, channels, samples), contiguous.

    Sums over a last axis are of the same order whatever the other axes hold; numpy chooses another one elsewhere.
    """
    flat = cuts.reshape(*cuts.shape[:3], -1)
    return np.ascontiguousarray(flat.transpose(0, 1, 3, 2), np.float64)


def _mad(x: Float64) -> Float64:
    return _median(np.abs(x - _median(x)[..., None]))


def _median(x: Float64) -> Float64:
    # np.median gives the same, and takes four times as long for 200 samples of three channels
    ranked, n = np.sort(x, axis=-1), x.shape[-1]
    return np.asarray((ranked[..., (n - 1) // 2] + ranked[..., n // 2]) / 2)


def _rms(x: Float64) -> Float64:
    return np.asarray(np.sqrt(np.mean(x * x, axis=-1)))


def _peak(x: Float64) -> Float64:
    return np.asarray(np.abs(x).max(axis=-1))


def _crest(x: Float64) -> Float64:
    rms = _rms(x)
    return np.divide(_peak(x), rms, out=np.zeros_like(rms), where=rms > 0)


def _kurtosis(x: Float64) -> Float64:
    # Of shares of the largest distance: fourth powers of tiny or huge values would leave the range of a float64.
    distances = x - x.mean(axis=-1, keepdims=True)
    largest = np.abs(distances).max(axis=-1, keepdims=True)
    moves = largest > 1e-12 * np.abs(x).max(axis=-1, keepdims=True)  # below, it is what rounding left of a constant
    squared = (np.divide(distances, largest, out=np.zeros_like(distances), where=moves)) ** 2
    variance = squared.mean(axis=-1)
    fourth = (squared * squared).mean(axis=-1)
    return np.asarray(np.divide(fourth, variance**2, out=np.full_like(variance, 3.0), where=moves[..., 0]) - 3.0)


_MEASURES: Final[Mapping[Measure, Callable[[Float64], Float64]]] = {
    "mean": lambda x: np.asarray(x.mean(axis=-1)),
    "std": lambda x: np.asarray(x.std(axis=-1)),
    "rms": _rms,
    "mad": _mad,
    "min": lambda x: np.asarray(x.min(axis=-1)),
    "max": lambda x: np.asarray(x.max(axis=-1)),
    "peak": _peak,
    "kurtosis": _kurtosis,
    "crest": _crest,
}
