"""TensorFlow Lite Micro's audio front end: the same integers as its C code, for many keys at once.

Models for microcontrollers (microWakeWord, micro_speech) are trained on what this front end gives, int16 rounding and
all. Steps: Hann window in int16, shift to full scale, fixed-point FFT, mel bands, square root, noise estimate for each
band (the only state), gain control for each band (PCAN), logarithm.

Source: https://github.com/tensorflow/tflite-micro, tensorflow/lite/experimental/microfrontend, with the constants of
microWakeWord and pymicro-features.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from edge_runtime.errors import ManifestError
from edge_runtime.manifest.micro_frontend import MicroFrontend
from edge_runtime.signal.frontends import Array, StateSpec
from edge_runtime.signal.frontends.fixed_fft import RealFft
from edge_runtime.types import Float32

Int16 = npt.NDArray[np.int16]
Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]

_FFT = 512
"""Samples; the window is filled up with zeros."""
_BIN_HZ = 16000 / _FFT
_FIRST_BIN, _LAST_BIN = 4, 240
"""Ends of the mel bands: 125 and 7500 Hz."""
_LOG_BELOW = (6, 13, 15, 31, 38, 50, 99, 100, 108, 115, 126, 148, 243)
_LOG_ABOVE = (56, 98, 116, 216, 218, 225, 236, 240, 245, 252)
_WINDOW_BITS = 12
_WEIGHT_BITS = 12
_SMOOTHING = (0.025, 0.06)
"""Of the noise estimate in even and odd bands, a row."""
_LEAST_SIGNAL = 0.05
"""Share of a band's signal that noise reduction always leaves."""
_NOISE_BITS = 14
_NOISE_SHIFT = np.array(_NOISE_BITS, np.int64)
_ESTIMATE_BITS = 10
_GAIN_STRENGTH, _GAIN_OFFSET, _GAIN_BITS = 0.95, 80.0, 21
_GAIN_STEPS = 10
_SNR_BITS, _GAIN_OUT_BITS = 12, 6
_CORRECTION_BITS = _FFT.bit_length() - 1 - _WEIGHT_BITS // 2
"""Bits by which FFT and weights have scaled the signal down."""
_LN_2 = 45426
"""ln 2 with 16 bits."""
_LOG_SHIFT = 6
_FULL_SCALE, _LARGEST = 32768.0, 32767.0
_STEP = np.float32(10 / 256)
"""One unit of the row, as in training."""
_WORD = 0xFFFFFFFF
_FRAMES = 240
"""Frames of one FFT, whose arrays take 1.7 MB: more gains nothing, fewer pay more for each operation. Eight keys of
300 ms fill it; 192 left 12 places of each round empty."""
_TOGETHER = 480
"""Frames of keys that are computed together; each array of all bands takes 150 kB. Of 64 keys of 300 ms it was
600 kB: no cache holds the ten of them, malloc maps and unmaps each, and a frame cost 7.4 us in place of 5.1."""
_BLOCK = 10
"""Bands of one matrix product: neighbours share bins, and small products stay on one thread."""


class MicroFrontendRows:
    """See `edge_runtime.signal.frontends.Frontend`.

    Args:
        spec: the stage's settings.
        cut_shape: (samples,) or (samples, 1) of a cut: sound at 16 kHz, -1 to 1. A cut gives a row for each whole
            frame; the next cut begins `hop` samples after this one's last frame.

    Raises:
        ManifestError: no frame fits into the cut, or it has several channels.
    """

    def __init__(self, spec: MicroFrontend, cut_shape: tuple[int, ...]) -> None:
        samples = cut_shape[0]
        if samples < spec.frame or math.prod(cut_shape) != samples:
            raise ManifestError(
                f"micro-frontend takes cuts of one channel and at least {spec.frame} samples, not {cut_shape}; change "
                "the window"
            )
        self.rows = (samples - spec.frame) // spec.hop + 1
        self.shape: tuple[int, ...] = (spec.bands,)
        self.states: tuple[StateSpec, ...] = (StateSpec("noise", np.dtype(np.uint32), (spec.bands,)),)
        self._hop = spec.hop
        self._window = _window(spec.frame)
        self._fft = RealFft(_FFT, _FRAMES)
        self._bands = _band_blocks(_band_weights(spec.bands), self._fft.bins)
        shares = np.array([int(share * (1 << _NOISE_BITS)) for share in np.array(_SMOOTHING, np.float32)])
        self._smoothing: Int64 = np.resize(shares, spec.bands)[:, None]

    def __call__(self, cuts: Float32, states: Sequence[Array], /) -> tuple[Float32, Sequence[Array]]:
        """See `edge_runtime.signal.frontends.Frontend.__call__`."""
        keys, n_cuts = cuts.shape[:2]
        some_keys = max(1, _TOGETHER // (n_cuts * self.rows))
        if keys <= some_keys:
            return self._some(cuts, states[0])
        parts = [
            self._some(cuts[at : at + some_keys], states[0][at : at + some_keys]) for at in range(0, keys, some_keys)
        ]
        rows, noise = zip(*parts, strict=True)
        return np.concatenate(rows), (np.concatenate([one for (one,) in noise]),)

    def _some(self, cuts: Float32, before: Array) -> tuple[Float32, tuple[Array]]:
        """Make the rows of some keys, and their noise estimates."""
        keys, n_cuts = cuts.shape[:2]
        frames = self._frames(cuts)
        energies = np.empty((self.shape[0], keys * n_cuts * self.rows), np.int64)
        step = max(1, _FRAMES // frames.shape[1])
        for start in range(0, len(frames), step):
            some = self._energies(frames[start : start + step])
            at = start * frames.shape[1]
            energies[:, at : at + some.shape[1]] = some
        # A row of all keys is one block: the noise estimates go from row to row.
        signal = np.ascontiguousarray(energies.reshape(-1, keys, n_cuts * self.rows).transpose(2, 0, 1))
        noise = self._track_noise(signal, before)
        logs = _compress(_reduce_noise(signal, noise) * _gain(noise))
        return np.ascontiguousarray(logs.transpose(2, 0, 1)), (noise[-1].T.astype(np.uint32, order="C"),)

    def _frames(self, cuts: Float32) -> Int32:
        """Return (n, rows, frame) of 16-bit samples, a view in which frames overlap."""
        cuts = cuts.reshape(*cuts.shape[:2], -1)
        step, hop = self.rows * self._hop, cuts.strides[2]
        # Cuts of one sound, as a chain has them: each sample is converted once.
        overlap = cuts.shape[1] > 1 and cuts.strides[1] == step * hop and step <= cuts.shape[2]
        if overlap:
            shape = (len(cuts), step * (cuts.shape[1] - 1) + cuts.shape[2])
            cuts = np.lib.stride_tricks.as_strided(cuts, shape, (cuts.strides[0], hop), writeable=False)
        sound = np.clip(cuts.reshape(-1, cuts.shape[-1]), np.float32(-1), np.float32(_LARGEST / _FULL_SCALE))
        sound *= np.float32(_FULL_SCALE)
        return _frames(np.rint(sound, out=sound).astype(np.int32), len(self._window), self._hop)

    def _energies(self, pcm: Int32) -> Int64:
        """Return the magnitude in each band, (bands, cuts * rows).

        Args:
            pcm: (cuts, rows, frame), int16 values.
        """
        scaled = pcm * self._window
        scaled >>= _WINDOW_BITS
        frames = scaled.astype(np.int16).reshape(-1, len(self._window))
        # The source takes the absolute value in 16 bits, where that of -32768 is negative.
        shift = 15 - _bits(np.abs(frames).max(axis=1, initial=0))
        frames *= (1 << shift).astype(np.int16)[:, None]
        work = np.empty((self.shape[0], len(frames)))
        for start in range(0, len(frames), _FRAMES):
            part = slice(start, start + _FRAMES)
            power = self._fft.power(frames[part])
            for bands, bins, weights in self._bands:
                np.matmul(weights, power[bins].astype(np.float64), out=work[bands, part])
        return _root(work) >> shift

    def _track_noise(self, signal: Int64, before: Array) -> Int64:
        """Return the noise estimates after each row, (rows, bands, keys).

        Args:
            signal: (rows, bands, keys).
            before: (keys, bands).
        """
        estimates = (signal << _ESTIMATE_BITS) & _WORD
        estimates *= self._smoothing
        last = before.T.astype(np.int64)
        # As an array of its own shape: numpy copies one of other strides, and a plain number, at each call.
        remaining = np.ascontiguousarray(np.broadcast_to((1 << _NOISE_BITS) - self._smoothing, last.shape))
        kept = np.empty_like(last, order="C")
        for row in estimates:
            np.multiply(last, remaining, out=kept)
            np.add(row, kept, out=row)
            last = np.right_shift(row, _NOISE_SHIFT, out=row)
        return estimates


def _frames(samples: Int32, size: int, hop: int) -> Int32:
    """(n, samples) as (n, rows, size); a view."""
    count = (samples.shape[1] - size) // hop + 1
    step = samples.strides[1]
    return np.lib.stride_tricks.as_strided(samples, (len(samples), count, size), (samples.strides[0], hop * step, step))


def _window(size: int) -> Int32:
    step = np.float32(math.pi) * np.float32(2) / np.float32(size)
    angle = step * (np.arange(size, dtype=np.float32) + np.float32(0.5))
    hann = np.float32(0.5) - np.float32(0.5) * np.cos(angle.astype(np.float64)).astype(np.float32)
    coefficients: Int32 = np.floor(hann * np.float32(1 << _WINDOW_BITS) + np.float32(0.5)).astype(np.int32)
    return coefficients


def _bin_mels() -> npt.NDArray[np.float32]:
    """Mel of each bin of the FFT, in single precision as in the source.

    Models were trained with a C library whose log1pf is one unit in the last place off at some bins. Newer libraries
    are not, and some weights would then differ by 1 of 4096; so the units are written here.
    """
    ratio = np.float32(_BIN_HZ) * np.arange(_FFT // 2 + 1, dtype=np.float32) / np.float32(700)
    logs = np.log1p(ratio.astype(np.float64)).astype(np.float32)
    for bins, towards in ((_LOG_BELOW, 0), (_LOG_ABOVE, np.inf)):
        logs[list(bins)] = np.nextafter(logs[list(bins)], np.float32(towards))
    return np.float32(1127) * logs


def _band_weights(bands: int) -> Int64:
    """Weight of each bin in each band, (bands, 257), 4096 for 1.

    A bin lies between the centres of two bands and is shared by them; what the one does not get is the other's, but
    both shares are rounded up where they lie half-way.
    """
    mel = _bin_mels()
    spacing = (mel[_LAST_BIN] - mel[_FIRST_BIN]) / np.float32(bands + 1)
    centres = mel[_FIRST_BIN] + spacing * np.arange(bands + 2, dtype=np.float32)
    weights = np.zeros((bands + 2, len(mel)), np.int64)
    for k in range(_FIRST_BIN + 1, len(mel)):
        upper = int(np.searchsorted(centres, mel[k]))
        if upper > bands + 1:
            break
        share = (centres[upper] - mel[k]) / (centres[upper] - centres[upper - 1])
        for band, part in ((upper - 1, share), (upper, np.float32(1) - share)):
            weights[band, k] = math.floor(part * np.float32(1 << _WEIGHT_BITS) + np.float32(0.5))
    return weights[1:-1]


def _band_blocks(weights: Int64, bins: npt.NDArray[Any]) -> list[tuple[slice, Any, npt.NDArray[np.float64]]]:
    """Cut the matrix of weights into blocks of bands, each with the rows of the spectrum that it needs."""
    ordered, blocks = weights[:, bins], []
    for start in range(0, len(weights), _BLOCK):
        bands = slice(start, start + _BLOCK)
        used = np.flatnonzero(ordered[bands].any(axis=0))
        # A run of rows is a view; bins on both sides of the FFT's middle are none.
        rows: Any = slice(used[0], used[-1] + 1) if used[-1] - used[0] < len(used) else used
        blocks.append((bands, rows, ordered[bands][:, rows].astype(np.float64)))
    return blocks


def _bits(numbers: Array) -> Int64:
    """Return the number of bits of integers of 0 or more, below 2 ** 53."""
    return np.maximum(_float_bits(numbers, 0) - 1022, 0)


def _float_bits(numbers: Array, fraction: int) -> Int64:
    """Return the exponent of a double, and behind it as many bits as asked of the fraction: log2 in whole steps."""
    bits: Int64 = numbers.astype(np.float64).view(np.int64) >> (52 - fraction)
    return bits


def _root(squares: npt.NDArray[np.float64]) -> Int64:
    """Return the rounded square roots of integers below 2 ** 48, for which double precision is exact."""
    root = np.rint(np.sqrt(squares))
    # The source's 32-bit branch does not round up to 65536.
    np.copyto(root, 0xFFFF, where=(root == 0x10000) & (squares <= _WORD))
    rounded: Int64 = root.astype(np.int64)
    return rounded


def _reduce_noise(signal: Int64, noise: Int64) -> Int64:
    scaled = (signal << _ESTIMATE_BITS) & _WORD
    remaining = (scaled - np.minimum(noise, scaled)) >> _ESTIMATE_BITS
    least = (signal * int(np.float32(_LEAST_SIGNAL) * (1 << _NOISE_BITS))) >> _NOISE_BITS
    kept: Int64 = np.maximum(remaining, least)
    return kept


def _gain_table() -> Int64:
    """Gain for each number of bits of the noise and the 10 bits behind its first one: a parabola for each octave."""

    def gain(noise: int) -> int:
        level = np.float32(noise) / np.float32(1 << (_ESTIMATE_BITS - _CORRECTION_BITS)) + np.float32(_GAIN_OFFSET)
        power = np.float32(float(level) ** -float(np.float32(_GAIN_STRENGTH)))
        return min(int(np.float32(1 << _GAIN_BITS) * power + np.float32(0.5)), 0x7FFF)

    fraction = np.arange(1 << _GAIN_STEPS)
    table = np.empty((33, len(fraction)), np.int64)
    table[:2] = [[gain(0)], [gain(1)]]
    for bits in range(2, 33):
        first = 1 << (bits - 1)
        last = 2 * first - (bits == 32)
        start, middle, end = (gain(x) for x in (first, first + first // 2, last))
        slope = 4 * (middle - start) - (end - start)
        bend = end - start - slope
        rise = (((bend * fraction) >> 5) + (slope << 5)) * fraction
        table[bits] = start + ((rise + (1 << 14)) >> 15)
    return table.ravel()


_GAINS = _gain_table()


def _gain(noise: Int64) -> Int64:
    """Return the gain of each band for its noise estimate."""
    place = _float_bits(noise, _GAIN_STEPS)
    place -= 1022 << _GAIN_STEPS
    gains: Int64 = np.take(_GAINS, np.maximum(place, 0, out=place))
    return gains


def _log_table() -> Int32:
    """Excess of log2(1 + x) over x, both with 16 bits, for each x of 0 to 1."""
    knots = np.arange(129) / 128
    excess = np.rint((np.log2(1 + knots) - knots) * 65536).astype(np.int32)
    segment, within = np.divmod(np.arange(1 << 16, dtype=np.int32), 512)
    # Interpolation is 1/128 of what it should be in the source, and so in what models were trained on.
    return excess[segment] + ((np.diff(excess)[segment] * within) >> 16)


_LOG2 = _log_table()


def _log_of_ratio(ratio: Int64) -> Float32:
    """Compress a band's signal over its noise, 12 bits of them fraction, by PCAN's curve and 64 ln."""
    ratio = ratio & _WORD
    quiet = (ratio * ratio) >> (2 + 2 * _SNR_BITS - _GAIN_OUT_BITS)
    loud = (ratio >> (_SNR_BITS - _GAIN_OUT_BITS)) - (1 << _GAIN_OUT_BITS)
    signal = (np.where(ratio < 2 << _SNR_BITS, quiet, loud) << _CORRECTION_BITS) & _WORD
    bits = _float_bits(np.maximum(signal, 1), 16)
    log2 = bits - (1023 << 16) + np.take(_LOG2, bits & 0xFFFF)
    natural = (log2 * _LN_2 + (1 << 15)) >> 16
    steps = ((natural << _LOG_SHIFT) + (1 << 15)) >> 16
    return np.asarray(steps * _STEP, np.float32)


_COARSE = _SNR_BITS - _GAIN_OUT_BITS
"""Bits that do not count of a ratio from `_FINE` on."""
_FINE = 2 << _SNR_BITS
_OFFSET = _FINE - (_FINE >> _COARSE)
_LOGS = _log_of_ratio(np.r_[0:_FINE, _FINE : 1 << 20 : 1 << _COARSE])
"""Row values of all ratios that were seen, 10 kHz bursts after silence among them."""


def _compress(product: Int64) -> Float32:
    """Return the rows' values for the product of signal and gain."""
    ratio = product >> (_GAIN_BITS - _CORRECTION_BITS - _SNR_BITS)
    place = ratio >> _COARSE
    place += _OFFSET
    np.minimum(place, ratio, out=place)
    rows: Float32 = np.take(_LOGS, place, mode="clip")
    if place.max(initial=0) >= len(_LOGS):
        beyond = place >= len(_LOGS)
        rows[beyond] = _log_of_ratio(ratio[beyond])
    return rows
