"""Pictures of another size: bilinear as Pillow does it, bit for bit, and how a picture of another shape is fitted.

Models are sensitive to how their pictures were made smaller. Pillow's `Image.resize(size, BILINEAR)`, which torchvision
and the Hugging Face image processors call, is a triangle as wide as the shrinking factor, so every pixel counts.
OpenCV's and TensorFlow's bilinear look at four pixels only, whatever the factor; without `antialias` this one does too,
and differs from OpenCV's by 1 at most, since that rounds once.

Bit for bit: Pillow's src/libImaging/Resample.c with whole numbers of 22 bits, columns first and rows second, each
rounded to 8 bits. That is every Pillow up to 12. Pillow 13 takes the cheaper of the two first, which may differ by 1.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]

_BITS: Final = 22
"""Fraction bits of a weight."""

_BLOCK: Final = 2**19
"""Numbers that are made smaller together, about: 2 MB of whole numbers."""


class _Frame(Protocol):
    """Way to fit a picture, as `edge_runtime.manifest.frames.Frame` has it."""

    @property
    def height(self) -> int:
        """Of the model's picture."""
        ...

    @property
    def width(self) -> int:
        """Of the model's picture."""
        ...

    @property
    def fit(self) -> str:
        """``stretch``, ``crop`` or ``pad``."""
        ...

    @property
    def at(self) -> str:
        """``middle`` or ``top-left``, of ``pad``."""
        ...

    @property
    def padding(self) -> int | tuple[int, ...]:
        """Ground of ``pad``."""
        ...

    @property
    def crop_share(self) -> float:
        """Share of height and width that the middle has."""
        ...

    @property
    def antialias(self) -> bool:
        """True where every pixel counts."""
        ...


@lru_cache(maxsize=16)
def _weights(size: int, to: int, *, antialias: bool) -> tuple[npt.NDArray[Any], npt.NDArray[np.int32]]:
    """Return which pixels make each new one, (to, most), and how much each counts, (to, most), in 2**-22."""
    scale = size / to
    reach = max(scale, 1.0) if antialias else 1.0
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


def _shorten(rows: Bytes, pixels: npt.NDArray[Any], weights: npt.NDArray[np.int32]) -> Bytes:
    """Make a row of (n, m) for each row of `pixels`."""
    total = np.full((len(pixels), rows.shape[1]), 1 << (_BITS - 1), np.int32)
    for place, weight in zip(pixels.T, weights.T, strict=True):
        total += rows[place] * weight[:, None]
    return (total >> _BITS).astype(np.uint8)


def _across(picture: Bytes, width: int, *, antialias: bool) -> Bytes:
    """Make `width` columns of (h, w, colours)."""
    h, w, colours = picture.shape
    if w == width:
        return picture
    columns = np.ascontiguousarray(picture.transpose(1, 0, 2)).reshape(w, h * colours)
    made = _shorten(columns, *_weights(w, width, antialias=antialias))
    return made.reshape(width, h, colours).transpose(1, 0, 2)


def resize(picture: Bytes, height: int, width: int, *, antialias: bool = True) -> Bytes:
    """Return a picture, (h, w, colours), at another size, (height, width, colours).

    Some rows at a time, each of the rows that they are made of first across: what lies between the two, h rows of
    `width` pixels, would take gigabytes for a picture that is high and narrow.
    """
    h, w, colours = picture.shape
    pixels, weights = _weights(h, height, antialias=antialias)
    out = np.empty((height, width, colours), np.uint8)
    step = max(1, _BLOCK * height // (h * max(w, width) * colours))
    rows, first = np.empty((0, width, colours), np.uint8), 0  # across already, and their number in the picture
    for begin in range(0, height, step):
        some = slice(begin, begin + step)
        before, first = first, int(pixels[begin, 0]) if h != height else begin
        last = int(pixels[some][-1, -1]) if h != height else begin + step - 1
        new = picture[max(first, before + len(rows)) : last + 1]
        rows = np.concatenate((rows[first - before :], _across(new, width, antialias=antialias)))
        if h == height:
            out[some] = rows
        else:
            made = _shorten(rows.reshape(len(rows), -1), pixels[some] - first, weights[some])
            out[some] = made.reshape(-1, width, colours)
    return out


def fit(picture: Bytes, frame: _Frame) -> Bytes:
    """Return a picture, (h, w, 3), as a model takes it, (height, width, 3), whatever its shape.

    What ``crop`` and `_Frame.crop_share` take, and the place where ``pad`` puts the picture, are whole pixels, the odd
    one right or below.

    Args:
        picture: the pixels, red, green and blue, of any size.
        frame: the model's frame; its colours are not looked at.
    """
    height, width = (max(1, round(size / frame.crop_share)) for size in (frame.height, frame.width))
    h, w, colours = picture.shape
    if frame.fit == "crop":
        tall = w * height > h * width
        part = (h, max(1, round(h * width / height))) if tall else (max(1, round(w * height / width)), w)
        picture = _middle(picture, *part)
    elif frame.fit == "pad":
        scale = min(height / h, width / w)
        part_h, part_w = min(height, max(1, round(h * scale))), min(width, max(1, round(w * scale)))
        top, left = (0, 0) if frame.at == "top-left" else ((height - part_h) // 2, (width - part_w) // 2)
        whole = np.empty((height, width, colours), np.uint8)
        whole[...] = np.array(frame.padding, np.uint8)
        part_of = resize(picture, part_h, part_w, antialias=frame.antialias)
        whole[top : top + part_h, left : left + part_w] = part_of
        return whole
    return _middle(resize(picture, height, width, antialias=frame.antialias), frame.height, frame.width)


def _middle(picture: Bytes, height: int, width: int) -> Bytes:
    top, left = (picture.shape[0] - height) // 2, (picture.shape[1] - width) // 2
    return picture[top : top + height, left : left + width]
