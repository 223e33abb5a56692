"""Frames of a cut: window functions, padding, overlapping views, and blocks that stay in the cache."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from edge_runtime.errors import ManifestError
from edge_runtime.types import Float32, Float64

BLOCK = 64
"""Frames that are computed at a time, so that their spectra stay in a core's own cache."""

_LARGEST = float(np.finfo(np.float32).max)


def taper(name: str, length: int) -> Float64:
    """Return a window function.

    A symmetric one ends where it began; a periodic one would do so a sample later, as spectra want it.

    Args:
        name: ``none``, ``hann``, ``hamming``, each of these also with ``-symmetric``, or ``povey``.
        length: samples.

    Returns:
        (length,).
    """
    if name == "none":
        return np.ones(length)
    symmetric = name.endswith("-symmetric") or name == "povey"
    cosine = np.cos(2 * np.pi * np.arange(length) / max(length - symmetric, 1))
    if name.startswith("hamming"):
        return np.asarray(0.54 - 0.46 * cosine)
    hann = 0.5 - 0.5 * cosine
    return np.asarray(hann**0.85 if name == "povey" else hann)  # povey: Kaldi, feature-window.cc


def one_channel(stage: str, cut_shape: tuple[int, ...]) -> int:
    """Return the samples of a cut of one channel.

    Raises:
        ManifestError: it has several.
    """
    channels = int(np.prod(cut_shape[1:]))
    if channels != 1:
        raise ManifestError(
            f"{stage}: takes one channel, and the rows before it have {channels} values; name one channel"
        )
    return cut_shape[0]


def frames_in(stage: str, samples: int, frame: int, hop: int) -> int:
    """Return how many whole frames lie in some samples.

    Raises:
        ManifestError: none.
    """
    if samples < frame:
        raise ManifestError(f"{stage}: a cut of {samples} samples is shorter than a frame of {frame}; cut more samples")
    return 1 + (samples - frame) // hop


def framed(samples: Float64, frame: int, hop: int, skip: int = 0) -> Float64:
    """Return the frames of some cuts as a view, which is only read.

    Args:
        samples: (n, samples), contiguous.
        frame: samples of one.
        hop: samples from one to the next.
        skip: samples before the first.

    Returns:
        (n, frames, frame).
    """
    n, length = samples.shape
    size = samples.itemsize
    shape = (n, 1 + (length - skip - frame) // hop, frame)
    # numpy's sliding_window_view does the same in ten times the time, which a stream of single frames pays each time
    return np.ndarray(shape, samples.dtype, samples, skip * size, (length * size, hop * size, size))


def blocks(n: int, size: int = BLOCK) -> Iterator[slice]:
    """Split 0..n into slices of at most `size`."""
    for start in range(0, n, size):
        yield slice(start, min(start + size, n))


def squares(spectrum: np.ndarray[tuple[int, ...], np.dtype[np.complex128]]) -> Float64:
    """Return the squared magnitudes, contiguous."""
    return np.asarray(spectrum.real**2 + spectrum.imag**2)


def to_float32(values: Float64) -> Float32:
    """Round to float32; what is beyond its range becomes the largest number of that range."""
    return np.clip(values, -_LARGEST, _LARGEST).astype(np.float32)
