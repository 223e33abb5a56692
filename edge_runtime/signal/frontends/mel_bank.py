"""Mel filter banks as the libraries define them, and cosine transforms.

Sources: librosa 0.11 `filters.mel`; TensorFlow 2.21 `signal.linear_to_mel_weight_matrix`; torchaudio 2.11
`functional.melscale_fbanks` and `compliance.kaldi.get_mel_banks`; python_speech_features 0.6 `get_filterbanks`.
Computed in float64; librosa, torchaudio and TensorFlow round to float32.
"""

from __future__ import annotations

import numpy as np

from edge_runtime.manifest.mel import Mel
from edge_runtime.types import Float64

_BREAK_HZ = 1000.0
"""Slaney's scale is linear below, logarithmic above: 15 mel and 27 steps from there to 6.4 kHz."""
_LINEAR_HZ = 200.0 / 3
_LOG_STEP = np.log(6.4) / 27.0


def to_mel(hz: Float64, scale: str) -> Float64:
    """Convert frequencies to mel: O'Shaughnessy's formula (``htk``) or the Auditory Toolbox's (``slaney``)."""
    if scale == "htk":
        return np.asarray(2595.0 * np.log10(1.0 + hz / 700.0))
    above = _BREAK_HZ / _LINEAR_HZ + np.log(np.maximum(hz, _BREAK_HZ) / _BREAK_HZ) / _LOG_STEP
    return np.where(hz < _BREAK_HZ, hz / _LINEAR_HZ, above)


def to_hz(mel: Float64, scale: str) -> Float64:
    """Convert mel to frequencies."""
    if scale == "htk":
        return np.asarray(700.0 * (10.0 ** (mel / 2595.0) - 1.0))
    break_mel = _BREAK_HZ / _LINEAR_HZ
    above = _BREAK_HZ * np.exp(_LOG_STEP * (np.maximum(mel, break_mel) - break_mel))
    return np.where(mel < break_mel, mel * _LINEAR_HZ, above)


def mel_weights(spec: Mel) -> Float64:
    """Return the weights of a filter bank, (bands, fft // 2 + 1).

    The libraries differ in the slopes of a triangle: librosa and torchaudio draw it over hertz, TensorFlow and Kaldi
    over mel, python_speech_features over whole bins. TensorFlow leaves out the bin at 0 Hz, Kaldi the one at half the
    rate.
    """
    if spec.definition == "python_speech_features":
        return _over_bins(spec)
    bins_hz = np.arange(spec.fft // 2 + 1, dtype=np.float64) * (spec.rate_hz / spec.fft)
    ends = to_mel(np.array([spec.low_hz, spec.high_hz]), spec.mel)
    corners_mel = np.linspace(ends[0], ends[1], spec.bands + 2, dtype=np.float64)
    over_mel = spec.definition in ("tensorflow", "kaldi")
    corners = corners_mel if over_mel else to_hz(corners_mel, spec.mel)
    at = to_mel(bins_hz, spec.mel) if over_mel else bins_hz
    steps = np.diff(corners)[:, None]
    up = (at - corners[:-2, None]) / steps[:-1]
    down = (corners[2:, None] - at) / steps[1:]
    weights = np.maximum(0.0, np.minimum(up, down))
    if spec.definition == "tensorflow":
        weights[:, 0] = 0.0
    elif spec.definition == "kaldi":
        weights[:, spec.fft // 2 :] = 0.0
    if spec.norm == "slaney":
        hz = to_hz(corners_mel, spec.mel)
        weights *= (2.0 / (hz[2:] - hz[:-2]))[:, None]
    return np.asarray(weights)


def _over_bins(spec: Mel) -> Float64:
    ends = to_mel(np.array([spec.low_hz, spec.high_hz]), spec.mel)
    corners_hz = to_hz(np.linspace(ends[0], ends[1], spec.bands + 2, dtype=np.float64), spec.mel)
    corners = np.floor((spec.fft + 1) * corners_hz / spec.rate_hz).astype(int)
    weights = np.zeros((spec.bands, spec.fft // 2 + 1))
    for row, low, peak, high in zip(weights, corners, corners[1:], corners[2:], strict=False):
        row[low:peak] = (np.arange(low, peak) - low) / max(peak - low, 1)
        row[peak:high] = (high - np.arange(peak, high)) / max(high - peak, 1)
    return weights / spec.fft  # powers are shares of the transform's length


def cosines(spec: Mel) -> Float64:
    """Return the cosine transform (DCT-II) of log-mel rows, (coefficients, bands).

    Orthonormal, but for TensorFlow, whose first coefficient lacks the factor sqrt(1/2).
    """
    k = np.arange(spec.coefficients)[:, None]
    table = np.sqrt(2.0 / spec.bands) * np.cos(np.pi / spec.bands * (np.arange(spec.bands) + 0.5) * k)
    if spec.definition != "tensorflow":
        table[0] *= np.sqrt(0.5)
    if spec.lifter:
        table *= 1 + spec.lifter / 2 * np.sin(np.pi * k / spec.lifter)
    return np.asarray(table)


class Triangles:
    """Filter bank whose neighbours overlap by half: sums of slopes, in an order that the number of rows cannot change.

    A matrix product would cost more (257 by 64 weights: 128 of 16,448 products are of use for each band's two slopes),
    and BLAS adds in another order for other numbers of rows: a key's rows would depend on the keys beside it. Each bin
    lies on one rising slope and on the falling slope of the band below, so two sums over the same spans are all.

    Args:
        weights: (bands, bins); no bin in more than two bands, and those neighbours.
    """

    def __init__(self, weights: Float64) -> None:
        self._bands = len(weights)
        used = np.flatnonzero(weights.any(axis=0))
        self._bins = slice(int(used[0]), int(used[-1]) + 1) if len(used) else slice(0, 1)
        inside = weights[:, self._bins]
        span = _spans(inside)
        bins = np.arange(len(span))
        padded = np.vstack([np.zeros(len(span)), inside, np.zeros(len(span))])  # row b + 1 is band b
        self._slopes = np.stack([padded[span + 1, bins], padded[span, bins]])[None]  # rising, falling
        starts = np.searchsorted(span, np.arange(self._bands + 1))
        filled = np.flatnonzero(np.diff(starts, append=len(span)))  # reduceat knows no empty spans
        self._starts = starts[filled]
        self._filled = filled if len(filled) <= self._bands else None

    def __call__(self, spectra: Float64) -> Float64:
        """Sum (n, bins) to (n, bands)."""
        sums = np.add.reduceat(spectra[:, None, self._bins] * self._slopes, self._starts, axis=2)
        if self._filled is not None:
            narrow, sums = sums, np.zeros((len(spectra), 2, self._bands + 1))
            sums[:, :, self._filled] = narrow
        return np.asarray(sums[:, 0, :-1] + sums[:, 1, 1:])


def _spans(weights: Float64) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    """Return for each bin the band on whose rising slope it lies; `bands` for the last falling one."""
    bands, bins = weights.shape
    positive = weights > 0
    highest = bands - 1 - np.argmax(positive[::-1], axis=0)
    lowest = np.argmax(positive, axis=0)
    if ((highest - lowest)[positive.any(axis=0)] > 1).any():
        raise ValueError("a bin lies in more than two bands")
    alone = highest == lowest
    falling = alone & (np.arange(bins) > np.argmax(weights, axis=1)[highest])
    span = np.where(positive.any(axis=0), highest + falling, 0)
    return np.maximum.accumulate(span)
