"""Log-mel rows and MFCC of sound, as librosa, TensorFlow, torchaudio or Kaldi compute them.

Everything is computed in float64 and rounded once. Against the libraries in float64 the rows differ by less than 1e-5
of their range; where a library computes in float32, by what that costs it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from edge_runtime.errors import ManifestError
from edge_runtime.manifest.mel import Mel
from edge_runtime.signal.frontends import Array, StateSpec
from edge_runtime.signal.frontends.frames import (
    BLOCK,
    blocks,
    framed,
    frames_in,
    one_channel,
    squares,
    taper,
    to_float32,
)
from edge_runtime.signal.frontends.mel_bank import Triangles, cosines, mel_weights
from edge_runtime.signal.frontends.pcen import Normaliser
from edge_runtime.types import Float32, Float64

_PER_DECADE: Final = {"db": 10.0, "log10": 1.0}
_LEAST_VARIANCE: Final = 1e-7
"""Added to a variance, as `WhisperFeatureExtractor.zero_mean_unit_var_norm` of transformers does."""


class MelRows:
    """Front end of a `Mel` stage. Without PCEN it has no state, and a row depends on its cut alone.

    Args:
        spec: the stage's settings.
        cut_shape: (samples, 1) or (samples,).

    Raises:
        ManifestError: the cut is too short, or has several channels.
    """

    def __init__(self, spec: Mel, cut_shape: tuple[int, ...]) -> None:
        samples = one_channel("mel", cut_shape)
        self._spec = spec
        self._pads = _pads(spec, samples)
        if spec.padding == "reflect" and samples <= self._pads[0]:
            raise ManifestError(
                f"mel: a cut of {samples} samples is too short to be reflected by {self._pads[0]}; cut more samples"
            )
        self._skip = (spec.span - spec.frame) // 2
        self.rows = frames_in("mel", samples + sum(self._pads), spec.span, spec.hop)
        self.shape: tuple[int, ...] = (spec.coefficients or spec.bands,)
        self._window = taper(_window_name(spec), spec.frame)
        self._bank = Triangles(mel_weights(spec))
        self._cosines = cosines(spec) if spec.coefficients else None
        self._pcen = Normaliser(spec.pcen, spec.hop / spec.rate_hz, spec.bands) if spec.pcen is not None else None
        self.states: tuple[StateSpec, ...] = (self._pcen.state,) if self._pcen is not None else ()

    def __call__(self, cuts: Float32, states: Sequence[Array], /) -> tuple[Float32, Sequence[Array]]:
        batch, n_cuts = cuts.shape[:2]
        flat = cuts.reshape(batch * n_cuts, -1)
        mel = np.empty((batch * n_cuts, self.rows, self._spec.bands))
        power = np.empty(mel.shape[:2]) if self._spec.energy else None
        for some in blocks(batch * n_cuts, max(1, BLOCK // self.rows)):
            samples = self._prepared(flat[some].astype(np.float64))
            frames = framed(samples, self._spec.frame, self._spec.hop, self._skip)
            for rows in blocks(self.rows, BLOCK):
                spectra = self._spectra(frames[:, rows])
                mel[some, rows] = self._bank(spectra).reshape(len(samples), -1, self._spec.bands)
                if power is not None:
                    power[some, rows] = spectra.sum(axis=1).reshape(len(samples), -1) / self._spec.fft
        if self._pcen is not None:
            made, smooth = self._pcen(mel.reshape(batch, n_cuts * self.rows, -1), states[0])
            return to_float32(made), [smooth]
        made = self._logarithm(mel)
        if self._cosines is not None:
            made = np.einsum("nrb,cb->nrc", made, self._cosines)
        if power is not None:
            made[:, :, 0] = self._logarithm(power[:, :, None])[:, :, 0]
        return to_float32(self._levelled(made).reshape(batch, n_cuts * self.rows, *self.shape)), []

    def _prepared(self, samples: Float64) -> Float64:
        """Scale, divide by the largest, emphasise, even out and pad."""
        spec = self._spec
        if spec.scale != 1.0:
            samples *= spec.scale
        if spec.normalise == "max":
            largest = samples.max(axis=1, keepdims=True)
            samples /= np.where(largest > 0, largest, 1.0)
        if spec.preemphasis and spec.definition != "kaldi":
            samples[:, 1:] -= spec.preemphasis * samples[:, :-1]
        if spec.normalise == "mean-std":
            samples = _standardised(samples)
        if any(self._pads):
            samples = np.pad(samples, ((0, 0), self._pads), mode=spec.padding or "constant")
        return samples

    def _spectra(self, frames: Float64) -> Float64:
        """Return magnitudes or their squares: (n, rows, frame) to (n * rows, bins)."""
        spec = self._spec
        if spec.definition == "kaldi":
            frames = frames - frames.mean(axis=2, keepdims=True)
            if spec.preemphasis:  # the first sample is its own predecessor
                before = np.concatenate([frames[:, :, :1], frames[:, :, :-1]], axis=2)
                frames = frames - spec.preemphasis * before
        windowed = (frames * self._window).reshape(-1, spec.frame)
        spectrum = np.fft.rfft(windowed, spec.fft)
        return np.abs(spectrum) if spec.power == 1 else squares(spectrum)

    def _logarithm(self, mel: Float64) -> Float64:
        """Return the logarithm of mel rows: (n, rows, bands), a cut each."""
        spec = self._spec
        if spec.log == "none":
            return mel
        mel = mel + spec.floor if spec.floor_by == "add" else np.maximum(mel, spec.floor)
        # decibels are of the power, whatever the rows are; of magnitudes, twice the logarithm
        scale = _PER_DECADE.get(spec.log, 1.0) * (2.0 if spec.log == "db" and spec.power == 1 else 1.0)
        rows = np.log(mel) if spec.log == "ln" else np.log10(mel)
        if scale != 1.0:
            rows *= scale
        if spec.reference == "max" or spec.top_db:
            loudest = rows.max(axis=(1, 2), keepdims=True)
            if spec.reference == "max":
                rows -= loudest
                loudest = np.zeros_like(loudest)
            if spec.top_db:
                np.maximum(rows, loudest - spec.top_db * _units_per_db(spec), out=rows)
        return np.asarray(rows)

    def _levelled(self, rows: Float64) -> Float64:
        """Return rows with the bands of a cut at one level: (n, rows, bands)."""
        if self._spec.normalise_rows == "none":
            return rows
        if self._spec.normalise_rows == "mean":
            return np.asarray(rows - rows.mean(axis=1, keepdims=True))
        return _standardised(rows)


def _standardised(values: Float64) -> Float64:
    """Return values less their mean along axis 1, by their standard deviation; those of silence stay near 0."""
    deviation = np.sqrt(values.var(axis=1, keepdims=True) + _LEAST_VARIANCE)
    return np.asarray((values - values.mean(axis=1, keepdims=True)) / deviation)


def _window_name(spec: Mel) -> str:
    # TensorFlow's periodic windows of odd lengths are the symmetric ones (_raised_cosine_window in window_ops.py).
    odd = spec.definition == "tensorflow" and spec.frame % 2 and spec.window in ("hann", "hamming")
    return f"{spec.window}-symmetric" if odd else spec.window


def _pads(spec: Mel, samples: int) -> tuple[int, int]:
    """Return the samples that are put before and after those of a cut."""
    if spec.centred:
        return spec.fft // 2, spec.fft // 2
    if spec.definition == "python_speech_features" and not spec.stream:
        steps = -(-max(samples - spec.frame, 0) // spec.hop)
        return 0, max(0, steps * spec.hop + spec.frame - samples)
    return 0, 0


def _units_per_db(spec: Mel) -> float:
    """Units of the rows in a decibel of power."""
    decades = 1.0 if spec.power == 2 else 0.5
    return {"db": 1.0, "log10": decades / 10, "ln": decades * float(np.log(10)) / 10}[spec.log]
