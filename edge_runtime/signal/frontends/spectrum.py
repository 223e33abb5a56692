"""Short-time Fourier transforms, and the way back: magnitudes, masked frames, overlap-add.

A complex row is (2, bins): real parts, then imaginary ones. So one transform serves a model that takes magnitudes and
the inverse transform after it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edge_runtime.errors import ManifestError
from edge_runtime.manifest.frontends import Magnitude, Masked, OverlapAdd, Spectrum
from edge_runtime.signal.frontends import Array, StateSpec
from edge_runtime.signal.frontends.frames import blocks, framed, frames_in, one_channel, squares, taper, to_float32
from edge_runtime.types import Float32


class SpectrumRows:
    """Front end of a `Spectrum` stage: rows of fft // 2 + 1 magnitudes or powers, or of (2, fft // 2 + 1).

    Args:
        spec: the stage's settings.
        cut_shape: (samples, 1) or (samples,).

    Raises:
        ManifestError: the cut is too short, or has several channels.
    """

    states: tuple[StateSpec, ...] = ()

    def __init__(self, spec: Spectrum, cut_shape: tuple[int, ...]) -> None:
        self.rows = frames_in("spectrum", one_channel("spectrum", cut_shape), spec.frame, spec.hop)
        self._spec = spec
        self._fft = spec.fft or spec.frame
        bins = self._fft // 2 + 1
        self.shape: tuple[int, ...] = (2, bins) if spec.values == "complex" else (bins,)
        self._window = taper(spec.window, spec.frame) if spec.window != "none" else None

    def __call__(self, cuts: Float32, states: Sequence[Array], /) -> tuple[Float32, Sequence[Array]]:  # noqa: ARG002
        batch, n_cuts = cuts.shape[:2]
        frames = framed(cuts.reshape(batch * n_cuts, -1).astype(np.float64), self._spec.frame, self._spec.hop)
        frames = frames.reshape(-1, self._spec.frame)
        rows = np.empty((len(frames), *self.shape), np.float32)
        for block in blocks(len(frames)):
            some = frames[block] if self._window is None else frames[block] * self._window
            spectrum = np.fft.rfft(some, self._fft)
            if self._spec.values == "complex":
                rows[block, 0] = to_float32(spectrum.real)
                rows[block, 1] = to_float32(spectrum.imag)
            else:
                rows[block] = to_float32(np.abs(spectrum) if self._spec.values == "magnitude" else squares(spectrum))
        return rows.reshape(batch, n_cuts * self.rows, *self.shape), []


class MagnitudeRows:
    """Joint of a `Magnitude` stage: (2, bins) to (bins,).

    Args:
        spec: the stage's settings.
        cut_shape: (rows, 2, bins).

    Raises:
        ManifestError: these are no complex rows.
    """

    states: tuple[StateSpec, ...] = ()

    def __init__(self, spec: Magnitude, cut_shape: tuple[int, ...]) -> None:
        if len(cut_shape) != 3 or cut_shape[1] != 2:
            raise ManifestError(
                f"{spec.type}: the rows before it, {cut_shape[1:]}, are not complex; give it those of a spectrum with "
                "values = 'complex'"
            )
        self.rows = cut_shape[0]
        self.shape: tuple[int, ...] = (cut_shape[2],)

    def __call__(self, cuts: Float32, states: Sequence[Array], /) -> tuple[Float32, Sequence[Array]]:  # noqa: ARG002
        parts = cuts.reshape(len(cuts), -1, 2, *self.shape).astype(np.float64)
        return to_float32(np.hypot(parts[:, :, 0], parts[:, :, 1])), []


class MaskedFrames:
    """Joint of a `Masked` stage: frames of sound from complex rows and masks.

    Args:
        spec: the stage's settings.
        cut_shape: (rows, 2, bins), complex rows.
        mask_shape: (rows, bins).

    Raises:
        ManifestError: the two do not belong together.
    """

    states: tuple[StateSpec, ...] = ()

    def __init__(self, spec: Masked, cut_shape: tuple[int, ...], mask_shape: tuple[int, ...]) -> None:
        self._bins = int(np.prod(mask_shape[1:]))
        if self._bins < 2 or cut_shape != (mask_shape[0], 2, self._bins):
            raise ManifestError(
                f"{spec.type}: rows of {cut_shape[1:]} and a mask of {mask_shape[1:]} do not fit; give it rows of "
                "a spectrum with values = 'complex', and a mask of the same frequencies"
            )
        self.rows = cut_shape[0]
        self.shape: tuple[int, ...] = (2 * (self._bins - 1),)

    def __call__(self, cuts: Float32, states: Sequence[Array], /) -> tuple[Float32, Sequence[Array]]:  # noqa: ARG002
        parts = cuts.reshape(len(cuts), -1, 3, self._bins).astype(np.float64)
        spectrum = np.empty((*parts.shape[:2], self._bins), np.complex128)
        np.multiply(parts[:, :, 0], parts[:, :, 2], out=spectrum.real)
        np.multiply(parts[:, :, 1], parts[:, :, 2], out=spectrum.imag)
        return to_float32(np.fft.irfft(spectrum, self.shape[0])), []


class OverlapAdded:
    """Joint of an `OverlapAdd` stage: frames to sound; a frame gives `hop` rows of one sample.

    Args:
        spec: the stage's settings.
        cut_shape: (rows, frame).

    Raises:
        ManifestError: a frame is shorter than `hop`.
    """

    def __init__(self, spec: OverlapAdd, cut_shape: tuple[int, ...]) -> None:
        self._frame = int(np.prod(cut_shape[1:]))
        self._hop = spec.hop
        if self._frame < spec.hop:
            raise ManifestError(
                f"overlap-add: frames of {self._frame} samples do not reach the next one; write hop = {self._frame} or "
                "less"
            )
        self.rows = cut_shape[0] * spec.hop
        self.shape: tuple[int, ...] = (1,)
        self.states: tuple[StateSpec, ...] = (StateSpec("tail", np.dtype(np.float32), (self._frame - spec.hop,)),)

    def __call__(self, cuts: Float32, states: Sequence[Array], /) -> tuple[Float32, Sequence[Array]]:
        frames = cuts.reshape(len(cuts), -1, self._frame)
        hop = self._hop
        sound = np.empty((len(cuts), frames.shape[1], hop), np.float32)
        tail = states[0]
        for row in range(frames.shape[1]):
            added = frames[:, row].copy()
            added[:, : tail.shape[1]] += tail
            sound[:, row] = added[:, :hop]
            tail = added[:, hop:]
        return sound.reshape(len(cuts), -1, 1), [tail.copy()]
