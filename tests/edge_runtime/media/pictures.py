"""Pictures as files: JPEG by the library of the extra, PNG by hand."""

from __future__ import annotations

import struct
import zlib

import numpy as np
import pytest

from edge_runtime.media.resize import Bytes


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


def png(pixels: Bytes) -> bytes:
    """Encode (height, width, 3)."""
    height, width, _ = pixels.shape

    def chunk(name: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))

    rows = b"".join(b"\0" + row.tobytes() for row in pixels)
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
