"""Float arrays as .npy files, with exactly one way to write each.

numpy's own reader accepts pickles, foreign byte orders and a header that is a Python expression. This one builds the
header that should be there and compares.

Source: NEP 1, "A simple file format for NumPy arrays", version 1.0.
"""

from __future__ import annotations

import math
import re

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]

_MAGIC = b"\x93NUMPY\x01\x00"
_ALIGN = 64
_SHAPE = re.compile(rb"'shape': \((\d{1,10}(?:, \d{1,10}){0,7})(,?)\)")


def dump(array: Floats) -> bytes:
    """A float32 array of one to eight dimensions as the bytes of an .npy file."""
    return _header(array.shape) + np.ascontiguousarray(array, dtype="<f4").tobytes()


def parse(data: bytes) -> Floats:
    """Read what `dump` wrote.

    Returns:
        A read-only view of `data`.

    Raises:
        ValueError: anything else than a C-ordered little-endian float32 array in the one accepted form.
    """
    found = _SHAPE.search(data[:256])
    if not data.startswith(_MAGIC) or found is None:
        raise ValueError("not an .npy file of version 1.0 with one to eight dimensions")
    shape = tuple(int(n) for n in found[1].split(b", "))
    header = _header(shape)
    if not data.startswith(header):
        raise ValueError("not a plain float32 array in C order")
    if len(data) - len(header) != 4 * math.prod(shape):
        raise ValueError(
            f"holds {len(data) - len(header)} bytes of numbers, its shape {shape} asks for {4 * math.prod(shape)}"
        )
    return np.frombuffer(data, "<f4", offset=len(header)).reshape(shape)


def _header(shape: tuple[int, ...]) -> bytes:
    text = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape!r}, }}"
    padding = -(len(_MAGIC) + 2 + len(text) + 1) % _ALIGN
    text += " " * padding + "\n"
    return _MAGIC + len(text).to_bytes(2, "little") + text.encode("ascii")
