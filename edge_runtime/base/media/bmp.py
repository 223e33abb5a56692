"""BMP as cameras' libraries write it: 8, 24 or 32 bits a pixel, not compressed.

Source: Microsoft, Bitmap Storage (BITMAPFILEHEADER, BITMAPINFOHEADER).
"""

from __future__ import annotations

import struct

import numpy as np

from edge_runtime.base.media.resize import Bytes


def read_bmp_size(data: bytes) -> tuple[int, int]:
    """Return height and width.

    Raises:
        ValueError: the header is cut short, or another one than Windows has written since 1990.
    """
    if len(data) < 54 or struct.unpack_from("<I", data, 14)[0] < 40:
        raise ValueError("its header is not known")
    width, height = struct.unpack_from("<ii", data, 18)
    if width < 1 or not height:
        raise ValueError("its header makes no sense")
    return abs(height), width


def decode_bmp(data: bytes) -> Bytes:
    """Return a picture, (height, width, 3), red first.

    Raises:
        ValueError: it is damaged, compressed, or of another depth.
    """
    height, width = read_bmp_size(data)
    bits, compression = struct.unpack_from("<HI", data, 28)
    if bits not in (8, 24, 32) or compression not in (0, 3 if bits == 32 else 0):
        raise ValueError(f"{bits} bits a pixel, or compressed; save it as JPEG")
    (at,) = struct.unpack_from("<I", data, 10)
    line = -(-width * bits // 32) * 4
    if len(data) < at + height * line:
        raise ValueError("it is cut short")
    rows = np.frombuffer(data, np.uint8, height * line, at).reshape(height, line)[:, : width * bits // 8]
    pixels = rows.reshape(height, width, -1)
    if struct.unpack_from("<i", data, 22)[0] > 0:
        pixels = pixels[::-1]
    if bits == 8:
        begin = 14 + struct.unpack_from("<I", data, 14)[0]
        colours = np.frombuffer(data[begin:at][: 4 * 256], np.uint8)
        colours = colours[: len(colours) // 4 * 4].reshape(-1, 4)
        if int(pixels.max()) >= len(colours):
            raise ValueError("its palette is too short")
        return np.asarray(colours[:, 2::-1][pixels[..., 0]])
    return np.ascontiguousarray(pixels[..., 2::-1])
