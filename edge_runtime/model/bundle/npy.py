"""Float arrays as .npy files, with exactly one way to write each.

numpy's own reader accepts pickles, foreign byte orders and a header that is a Python expression. This one builds the
header that should be there and compares.

Source: NEP 1, "A simple file format for NumPy arrays", version 1.0.
"""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]

_MAGIC = b"\x93NUMPY\x01\x00"
_ALIGN = 64
_SHAPE = re.compile(rb"'shape': \((\d{1,10}(?:, \d{1,10}){0,7})(,?)\)")


def dump(array: npt.NDArray[np.floating[Any]]) -> bytes:
    """Encode an array of one to eight dimensions as .npy bytes: float16 as it is, all others as float32."""
    kind = "<f2" if array.dtype == np.float16 else "<f4"
    return _header(array.shape, kind) + np.ascontiguousarray(array, dtype=kind).tobytes()


def parse(data: bytes) -> Floats:
    """Read what `dump` wrote.

    Returns:
        Read-only float32: a view of `data`, or a copy where it holds float16.

    Raises:
        ValueError: anything else than a C-ordered little-endian array of the two types in the one accepted form.
    """
    found = _SHAPE.search(data[:256])
    if not data.startswith(_MAGIC) or found is None:
        raise ValueError("not an .npy file of version 1.0 with one to eight dimensions")
    shape = tuple(int(n) for n in found[1].split(b", "))
    kind = next((kind for kind in ("<f4", "<f2") if data.startswith(_header(shape, kind))), "")
    if not kind:
        raise ValueError("not a plain float32 or float16 array in C order")
    header, size = _header(shape, kind), int(kind[-1])
    if len(data) - len(header) != size * math.prod(shape):
        raise ValueError(
            f"holds {len(data) - len(header)} bytes of numbers, its shape {shape} asks for {size * math.prod(shape)}"
        )
    array = np.frombuffer(data, kind, offset=len(header)).reshape(shape).astype(np.float32, copy=False)
    array.flags.writeable = False
    return array


def _header(shape: tuple[int, ...], kind: str) -> bytes:
    text = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape!r}, }}"
    padding = -(len(_MAGIC) + 2 + len(text) + 1) % _ALIGN
    text += " " * padding + "\n"
    return _MAGIC + len(text).to_bytes(2, "little") + text.encode("ascii")
