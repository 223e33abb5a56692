"""Fourier transforms as products with constant matrices, and short-time ones as convolutions."""

from __future__ import annotations

import numpy as np

from edge_export.graph.tflite.lower.draft import Array, Draft

_LARGEST = 1 << 22
"""Numbers of a matrix; beyond, the file is larger than anything that a small device should load (16 MiB)."""


def dft(draft: Draft) -> bool:
    """DFT along one axis: (..., n, ..., 1 or 2) times (n * 1 or 2, k * 1 or 2)."""
    shape = draft.shape(draft.input(0))
    if shape is None:
        return False
    if draft.opset >= 20:
        given = draft.parameter(2, "axis")
        axis = -2 if given is None else int(given.item())
    else:
        axis = int(draft.settings.get("axis", 1))
    length = draft.parameter(1, "dft_length")
    rank, parts = len(shape), shape[-1]
    size = shape[axis % rank]
    inverse, onesided = bool(draft.settings.get("inverse", 0)), bool(draft.settings.get("onesided", 0))
    whole = 2 * (size - 1) if inverse and onesided else size
    asked = whole if length is None else int(length.item())
    _refuse_large(draft, size * parts * asked * 2)
    matrix = _transformed(_basis(size, parts), asked, inverse=inverse, onesided=onesided)
    places = list(range(rank))
    order = [*(i for i in places[:-1] if i != axis % rank), axis % rank, rank - 1]
    moved = draft.input(0) if order == places else draft.add("Transpose", draft.input(0), perm=order)
    outer = [shape[i] for i in order[:-2]]
    flat = draft.reshape(moved, [*outer, size * parts])
    product = draft.add("MatMul", flat, draft.constant(matrix.reshape(size * parts, -1)))
    result = draft.reshape(product, [*outer, *matrix.shape[1:]])
    back = [order.index(i) for i in places]
    draft.done(result if order == places else draft.add("Transpose", result, perm=back))
    return True


def stft(draft: Draft) -> bool:
    """STFT: one convolution whose kernels are the windowed waves, (n, t, 1 or 2) to (n, frames, bins, 2)."""
    shape = draft.shape(draft.input(0))
    if shape is None:
        return False
    step, window = draft.parameter(1, "frame_step"), draft.parameter(2, "window")
    length = draft.parameter(3, "frame_length")
    if step is None or len(shape) != 3:
        raise draft.refuse("it needs a frame_step, and a signal of three axes")
    size = int(length.item()) if length is not None else len(window) if window is not None else shape[1]
    parts = shape[2]
    _refuse_large(draft, size * parts * size * 2)
    full = np.ones(size) if window is None else window.astype(np.float64)
    onesided = bool(draft.settings.get("onesided", 1))
    waves = _transformed(_basis(size, parts) * full[:, None], size, inverse=False, onesided=onesided)
    bins = waves.shape[1]
    kernels = waves.reshape(size, parts, bins * 2).transpose(2, 1, 0)
    signal = draft.add("Transpose", draft.input(0), perm=[0, 2, 1])
    spectrum = draft.add("Conv", signal, draft.constant(np.ascontiguousarray(kernels)), strides=[int(step.item())])
    rows = draft.add("Transpose", spectrum, perm=[0, 2, 1])
    frames = (shape[1] - size) // int(step.item()) + 1
    draft.done(draft.reshape(rows, [shape[0], frames, bins, 2]))
    return True


def _refuse_large(draft: Draft, numbers: int) -> None:
    if numbers > _LARGEST:
        raise draft.refuse(f"its matrix has {numbers} numbers, more than {_LARGEST}; transform shorter frames")


def _basis(size: int, parts: int) -> Array:
    """(size * parts, size, parts): a unit vector each."""
    return np.eye(size * parts).reshape(size * parts, size, parts)


def _transformed(vectors: Array, length: int, *, inverse: bool, onesided: bool) -> Array:
    """Transform (m, n, 1 or 2) vectors, (m, k, 1 or 2): real and imaginary parts along the last axis."""
    numbers = vectors[..., 0] + (1j * vectors[..., 1] if vectors.shape[-1] == 2 else 0)
    if inverse and onesided:
        return np.fft.irfft(numbers, length, axis=1)[..., None].astype(np.float32)
    answer = np.fft.ifft(numbers, length, axis=1) if inverse else np.fft.fft(numbers, length, axis=1)
    kept = answer[:, : length // 2 + 1] if onesided else answer
    return np.stack([kept.real, kept.imag], axis=-1).astype(np.float32)
