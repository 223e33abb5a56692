"""Pictures as files: JPEG by the library of the extra, PNG by hand."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from edge_runtime.base.media.resize import Bytes


def picture(height: int, width: int, seed: int = 0) -> Bytes:
    """Soft blobs, which JPEG keeps, (height, width, 3)."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[:height, :width]
    waves = [np.sin(x / a + p) + np.cos(y / b) for a, b, p in rng.uniform(3, 9, (3, 3))]
    return np.asarray(np.stack(waves, axis=2) * 60 + 128, np.uint8)


def jpeg(pixels: Bytes, colours: str = "RGB") -> bytes:
    """Encode; skips the test where the library is missing."""
    simplejpeg = pytest.importorskip("simplejpeg", reason='needs pip install "edge-runtime[pictures]"')
    made: bytes = simplejpeg.encode_jpeg(np.ascontiguousarray(pixels), quality=90, colorspace=colours)
    return made


def png(pixels: Bytes, filters: Sequence[int] = (0,)) -> bytes:
    """Encode (height, width, 3); the filters take turns, a row each."""
    height, width, _ = pixels.shape

    def chunk(name: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))

    rows, above = [], np.zeros(width * 3, np.uint8)
    for i, row in enumerate(pixels.reshape(height, -1)):
        rows.append(_filtered(filters[i % len(filters)], row, above))
        above = row
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    body = chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(b"".join(rows))) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + body


def _filtered(kind: int, row: Bytes, above: Bytes) -> bytes:
    """A row as the filter leaves it, by the formulas of the standard on plain integers."""
    start, up = np.zeros(3, np.int64), above.astype(np.int64)
    left: np.ndarray[Any, Any] = np.concatenate((start, row[:-3]))
    corner: np.ndarray[Any, Any] = np.concatenate((start, above[:-3]))
    guess = left + up - corner
    apart = np.abs(np.stack((left, up, corner)) - guess)
    paeth = np.choose(np.argmin(apart, axis=0), (left, up, corner))
    taken: np.ndarray[Any, Any] = (0 * left, left, up, (left + up) // 2, paeth)[kind]
    return bytes([kind, *((row - taken) % 256).tolist()])


def bmp(pixels: Bytes) -> bytes:
    """Encode (height, width, 3), 24 bits a pixel, the lowest row first."""
    height, width, _ = pixels.shape
    rows = b"".join(row[:, ::-1].tobytes() + bytes(-3 * width % 4) for row in pixels[::-1])
    info = struct.pack("<IiiHHIIiiII", 40, width, height, 1, 24, 0, len(rows), 0, 0, 0, 0)
    return b"BM" + struct.pack("<IHHI", 54 + len(rows), 0, 0, 54) + info + rows


def stated(payload: bytes, height: int, width: int) -> bytes:
    """A JPEG whose header states another size."""
    at = payload.index(b"\xff\xc0") + 5
    return payload[:at] + struct.pack(">HH", height, width) + payload[at + 4 :]


def tall_png() -> bytes:
    """Return a PNG of a few kilobytes, one pixel wide and a million high."""
    head = b"IHDR" + struct.pack(">IIBBBBB", 1, 2**20, 8, 2, 0, 0, 0)
    data = b"IDAT" + zlib.compress(bytes(2**22))
    chunks = (struct.pack(">I", len(one) - 4) + one + struct.pack(">I", zlib.crc32(one)) for one in (head, data))
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)
