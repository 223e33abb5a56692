"""The numbers inside front ends: impulse responses, Fourier tables, mel bands, cosine transforms."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import signal

from edge_export.recipe.feature_spec import (
    Coefficients,
    Filter,
    FilterBankSpec,
    LogMelSpec,
    MelScale,
    SpectrogramSpec,
    WindowName,
)
from edge_runtime.errors import ConfigError

Float64 = npt.NDArray[np.float64]

_TAIL = 1e-3
"""Share of an impulse response's energy that may be cut off."""


def impulse_response(spec: Filter) -> Float64:
    """Return a filter's impulse response, (taps,), the newest sample's factor last, as a convolution wants it.

    Raises:
        ConfigError: a Butterworth response is not over after that many taps.
    """
    if spec.design == "sinc":
        return _windowed_sinc(spec)
    response = _butterworth(spec, 8 * spec.taps)
    energy = np.cumsum(response**2)
    needed = int(np.searchsorted(energy, (1 - _TAIL) * energy[-1])) + 1
    if needed > spec.taps:
        raise ConfigError(f"filter: {spec.taps} taps cut the response off; at least {needed} are needed")
    newest_last: Float64 = response[: spec.taps][::-1].copy()
    return newest_last


def _windowed_sinc(spec: Filter) -> Float64:
    """Source: Smith 1997, The Scientist and Engineer's Guide to Digital Signal Processing, chapter 16."""
    n = np.arange(spec.taps) - (spec.taps - 1) / 2
    shape = 0.54 + 0.46 * np.cos(2 * np.pi * n / (spec.taps - 1))

    def low_pass(edge_hz: float) -> Float64:
        response = np.sinc(2 * edge_hz / spec.rate_hz * n) * shape
        scaled: Float64 = response / response.sum()  # exactly 1 at 0 Hz
        return scaled

    everything: Float64 = (n == 0).astype(np.float64)
    match spec.kind:
        case "low":
            response = low_pass(spec.high_hz)
        case "high":
            response = everything - low_pass(spec.low_hz)
        case "band":
            response = low_pass(spec.high_hz) - low_pass(spec.low_hz)
        case "stop":
            response = everything - low_pass(spec.high_hz) + low_pass(spec.low_hz)
    return response


def _butterworth(spec: Filter, length: int) -> Float64:
    """Compute the first values of the causal filter's response."""
    edges = {"low": spec.high_hz, "high": spec.low_hz}.get(spec.kind, (spec.low_hz, spec.high_hz))
    forward, feedback = signal.butter(spec.order, edges, spec.kind, fs=spec.rate_hz)
    impulse = np.zeros(length)
    impulse[0] = 1
    response: Float64 = signal.lfilter(forward, feedback, impulse)
    return response


def taper(name: WindowName, length: int) -> Float64:
    """Return a periodic window: one period of its cosine spans `length` samples."""
    cosine = np.cos(2 * np.pi * np.arange(length) / length)
    match name:
        case "hann":
            window: Float64 = 0.5 - 0.5 * cosine
        case "hamming":
            window = 0.54 - 0.46 * cosine
        case "rectangular":
            window = np.ones(length)
    return window


def fourier(spec: SpectrogramSpec) -> tuple[Float64, Float64]:
    """Tables of weighted cosines and sines, (bins, frame) each, or (bins, frame + 1) with pre-emphasis folded in."""
    window = taper(spec.window, spec.frame)
    angle = 2 * np.pi * np.outer(spec.bins, np.arange(spec.frame)) / spec.points
    tables = []
    for table in (np.cos(angle) * window, np.sin(angle) * window):
        if spec.pre_emphasis:
            folded = np.zeros((len(table), spec.frame + 1))
            folded[:, 1:] = table
            folded[:, :-1] -= spec.pre_emphasis * table
            tables.append(folded)
        else:
            tables.append(table)
    return tables[0], tables[1]


def mel_bands(spec: LogMelSpec) -> Float64:
    """Triangular filters over the bins of `spec.spectrogram`, (bands, bins).

    Raises:
        ConfigError: a band holds no bin; names it.
    """
    corners = mel_corners(spec.scale, spec.bands, spec.low_hz, spec.high_hz or spec.rate_hz / 2)
    left, centre, right = (corners[i : i + spec.bands, None] for i in range(3))
    hertz = spec.spectrogram.bins * spec.rate_hz / spec.spectrogram.points
    weights: Float64 = np.maximum(0, np.minimum((hertz - left) / (centre - left), (right - hertz) / (right - centre)))
    if (empty := np.flatnonzero(weights.max(axis=1) <= 0)).size:
        raise ConfigError(
            f"log-mel: band {empty[0]} of {spec.bands} lies between two bins; take fewer bands, longer frames or more "
            f"points"
        )
    return weights * (2 / (right - left)) if spec.area else weights


def mel_corners(scale: MelScale, bands: int, low_hz: float, high_hz: float) -> Float64:
    """Hertz where bands begin, peak and end: band i at corners i, i + 1 and i + 2; (bands + 2,)."""
    to_mel, to_hertz = (_htk, _htk_back) if scale == "htk" else (_slaney, _slaney_back)
    return to_hertz(np.linspace(to_mel(np.array(low_hz)), to_mel(np.array(high_hz)), bands + 2))


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairs:
    """Neighbouring bands whose filters are of one length.

    Attributes:
        parts: times that they are heard in a frame.
        table: (2 * bands, taps): the cosines of all bands, then the sines.
    """

    parts: int
    table: Float64


def filter_pairs(spec: FilterBankSpec) -> tuple[Pairs, ...]:
    """Design filters of all bands, from the lowest up; white noise has the power in them that it has in mel triangles.

    A Hann window of L samples passes half the power at 0.72 / L of the rate on either side of the centre, a triangle at
    a quarter of its base on either side. The L at which both agree says how often a band's filter fits into a frame.
    """
    corners = mel_corners(spec.scale, spec.bands, spec.low_hz, spec.high_hz or spec.rate_hz / 2)
    centre, base = corners[1:-1], corners[2:] - corners[:-2]
    fits = spec.frame * base / (4 * 0.72 * spec.rate_hz)
    # The nearest power of two: no tap is wasted on zeros, and no sample goes unheard.
    parts = np.clip(2 ** np.rint(np.log2(fits)), 1, spec.parts).astype(np.int64)
    found = []
    for count in np.unique(parts):
        taps = spec.frame // int(count)
        own = parts == count
        gain = spec.frame * np.sqrt(base[own] / (2 * taps * spec.rate_hz))
        angle = 2 * np.pi * np.outer(centre[own], np.arange(taps) - (taps - 1) / 2) / spec.rate_hz
        shape = gain[:, None] * taper("hann", taps)
        found.append(Pairs(parts=int(count), table=np.concatenate([np.cos(angle) * shape, np.sin(angle) * shape])))
    return tuple(found)


def cosine_transform(coefficients: int, bands: int) -> Float64:
    """Return the orthonormal DCT-II, (coefficients, bands)."""
    k, n = np.arange(coefficients)[:, None], np.arange(bands)[None]
    matrix: Float64 = np.sqrt(2 / bands) * np.cos(np.pi * k * (2 * n + 1) / (2 * bands))
    matrix[0] /= np.sqrt(2)
    return matrix


def held(table: Float64, coefficients: Coefficients, *, largest: float = 0.0) -> tuple[npt.NDArray[np.float32], float]:
    """Return a table as it is stored, and the factor that the stored numbers are too large by.

    ``int8`` gives whole numbers of -127 to 127, ``float16`` numbers that half precision holds exactly: a file can store
    either in its own width, and compute the same.

    Args:
        table: any shape.
        coefficients: how exactly.
        largest: number that becomes 127, where several tables need one factor; 0 takes the table's own.
    """
    if coefficients == "float32":
        return table.astype(np.float32), 1.0
    if coefficients == "float16":
        return table.astype(np.float16).astype(np.float32), 1.0
    factor = 127 / (largest or float(np.abs(table).max()))
    return np.rint(table * factor).astype(np.float32), factor


def _htk(hertz: Float64) -> Float64:
    mel: Float64 = 2595 * np.log10(1 + hertz / 700)
    return mel


def _htk_back(mel: Float64) -> Float64:
    hertz: Float64 = 700 * (10 ** (mel / 2595) - 1)
    return hertz


_SLANEY_STEP = np.log(6.4) / 27
"""27 bands from 1 kHz to 6.4 kHz; below 1 kHz, 15 bands of 66.7 Hz."""


def _slaney(hertz: Float64) -> Float64:
    mel: Float64 = np.where(hertz < 1000, hertz * 3 / 200, 15 + np.log(np.maximum(hertz, 1000) / 1000) / _SLANEY_STEP)
    return mel


def _slaney_back(mel: Float64) -> Float64:
    hertz: Float64 = np.where(mel < 15, mel * 200 / 3, 1000 * np.exp(_SLANEY_STEP * (mel - 15)))
    return hertz
