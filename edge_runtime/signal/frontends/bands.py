"""Power of each channel in frequency bands, of the signal or of its envelope: vibration of machines.

The power of a band is the part of the variance whose frequencies lie in it (Parseval's theorem), under a Hann window
that is scaled to keep the variance of noise. The envelope is the magnitude of the analytic signal of one band.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edge_runtime.errors import ManifestError
from edge_runtime.manifest.frontends import Bands
from edge_runtime.signal.frontends import Array, StateSpec
from edge_runtime.signal.frontends.frames import squares, taper, to_float32
from edge_runtime.signal.frontends.statistic import by_channel
from edge_runtime.types import Float32, Float64

_LEAST = 1e-10


class BandPowers:
    """Front end of a `Bands` stage: one row of channels * bands, those of the first channel first.

    Args:
        spec: the stage's settings.
        cut_shape: (samples, channels) or (samples,).

    Raises:
        ManifestError: the cut is too short for a band to hold a frequency.
    """

    rows = 1
    states: tuple[StateSpec, ...] = ()

    def __init__(self, spec: Bands, cut_shape: tuple[int, ...]) -> None:
        samples = cut_shape[0]
        hz = np.arange(samples // 2 + 1, dtype=np.float64) * (spec.rate_hz / samples)
        edges = np.array(spec.edges_hz)
        edges[-1] = np.nextafter(edges[-1], np.inf)  # the last band has its upper edge
        self._starts = np.searchsorted(hz, edges)
        lengths = np.diff(self._starts)
        if not lengths.all():
            low, high = spec.edges_hz[int(lengths.argmin()) :][:2]
            raise ManifestError(
                f"bands: a cut of {samples} samples has no frequency from {low:g} to {high:g} Hz (they are "
                f"{spec.rate_hz / samples:g} Hz apart); cut more samples or make the band wider"
            )
        self.shape: tuple[int, ...] = (int(np.prod(cut_shape[1:])) * len(lengths),)
        self._log = spec.log == "db"
        window = taper("hann", samples)
        self._window = window / np.sqrt(np.mean(window**2))
        self._weights = np.full(len(hz), 2.0 / samples**2)  # a frequency stands for its negative, too
        self._weights[0] /= 2
        if samples % 2 == 0:
            self._weights[-1] /= 2
        self._analytic = None if spec.envelope_hz is None else analytic_factors(hz, spec.envelope_hz, samples)

    def __call__(self, cuts: Float32, states: Sequence[Array], /) -> tuple[Float32, Sequence[Array]]:  # noqa: ARG002
        x = by_channel(cuts)
        if self._analytic is not None:
            x = envelope(x, self._analytic)
        x -= x.mean(axis=-1, keepdims=True)
        powers = squares(np.fft.rfft(x * self._window)) * self._weights
        sums = np.add.reduceat(powers[..., : self._starts[-1]], self._starts[:-1], axis=-1)
        if self._log:
            sums = 10 * np.log10(np.maximum(sums, _LEAST))
        return to_float32(sums.reshape(*cuts.shape[:2], *self.shape)), []


def envelope(x: Float64, factors: Float64) -> Float64:
    """Return the magnitudes of the analytic signal, (..., samples)."""
    spectrum = np.zeros(x.shape, np.complex128)
    spectrum[..., : len(factors)] = np.fft.rfft(x) * factors
    return np.abs(np.fft.ifft(spectrum))


def analytic_factors(hz: Float64, band: tuple[float, float], samples: int) -> Float64:
    """Return the factors of frequencies 0 to half the rate that leave one band's analytic signal."""
    factors = np.where((hz >= band[0]) & (hz <= band[1]), 2.0, 0.0)
    factors[0] /= 2
    if samples % 2 == 0:
        factors[-1] /= 2
    return np.asarray(factors)
