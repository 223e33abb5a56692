"""Pictures of another size: bilinear as Pillow does it, bit for bit, and how a picture of another shape is fitted.

Models are sensitive to how their pictures were made smaller. Pillow's `Image.resize(size, BILINEAR)`, which torchvision
and the Hugging Face image processors call, is a triangle as wide as the shrinking factor, so every pixel counts.
OpenCV's and TensorFlow's bilinear look at four pixels only, whatever the factor.

Bit for bit: Pillow's src/libImaging/Resample.c with whole numbers of 22 bits, columns first and rows second, each
rounded to 8 bits. That is every Pillow up to 12. Pillow 13 takes the cheaper of the two first, which may differ by 1.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]

_BITS: Final = 22
"""Fraction bits of a weight."""


@lru_cache(maxsize=16)
def _weights(size: int, to: int) -> tuple[npt.NDArray[Any], npt.NDArray[np.int32]]:
    """Return which pixels make each new one, (to, most), and how much each counts, (to, most), in 2**-22."""
    scale = size / to
    reach = max(scale, 1.0)
    middles = (np.arange(to) + 0.5) * scale
    first = np.maximum((middles - reach + 0.5).astype(np.int64), 0)
    behind = np.minimum((middles + reach + 0.5).astype(np.int64), size)
    pixels = first[:, None] + np.arange(int((behind - first).max()))
    weights = np.maximum(0.0, 1 - np.abs((pixels - middles[:, None] + 0.5) * (1 / reach)))
    weights[pixels >= behind[:, None]] = 0
    total = np.zeros(to)
    for column in weights.T:  # one after another, since the sum of a row may round otherwise
        total += column
    return np.minimum(pixels, size - 1), (0.5 + weights / total[:, None] * 2**_BITS).astype(np.int32)


def _shorten(rows: Bytes, to: int) -> Bytes:
    """Make `to` rows of (n, m)."""
    if len(rows) == to:
        return rows
    pixels, weights = _weights(len(rows), to)
    total = np.full((to, rows.shape[1]), 1 << (_BITS - 1), np.int32)
    for place, weight in zip(pixels.T, weights.T, strict=True):
        total += rows[place] * weight[:, None]
    return (total >> _BITS).astype(np.uint8)


def resize(picture: Bytes, height: int, width: int) -> Bytes:
    """Return a picture, (h, w, colours), at another size, (height, width, colours)."""
    h, w, colours = picture.shape
    if w != width:
        columns = np.ascontiguousarray(picture.transpose(1, 0, 2)).reshape(w, h * colours)
        picture = _shorten(columns, width).reshape(width, h, colours).transpose(1, 0, 2)
    if h != height:
        rows = np.ascontiguousarray(picture).reshape(h, width * colours)
        picture = _shorten(rows, height).reshape(height, width, colours)
    return np.ascontiguousarray(picture)


def fit(picture: Bytes, height: int, width: int, how: str, padding: int = 0) -> Bytes:
    """Return a picture, (h, w, colours), at another size, whatever its shape.

    Args:
        picture: of any size.
        height: wanted.
        width: wanted.
        how: ``stretch``, ``crop`` or ``pad``, see `edge_runtime.manifest.frames.Frame`. The part that ``crop`` takes
            and the place where ``pad`` puts it are whole pixels, the odd one right or below.
        padding: value of the ground of ``pad``.
    """
    h, w, colours = picture.shape
    if how == "crop":
        part_h, part_w = (h, max(1, round(h * width / height))) if w * height > h * width else (
            max(1, round(w * height / width)), w)  # fmt: skip
        top, left = (h - part_h) // 2, (w - part_w) // 2
        return resize(picture[top : top + part_h, left : left + part_w], height, width)
    if how == "pad":
        scale = min(height / h, width / w)
        part_h, part_w = min(height, max(1, round(h * scale))), min(width, max(1, round(w * scale)))
        top, left = (height - part_h) // 2, (width - part_w) // 2
        whole = np.full((height, width, colours), padding, np.uint8)
        whole[top : top + part_h, left : left + part_w] = resize(picture, part_h, part_w)
        return whole
    return resize(picture, height, width)
