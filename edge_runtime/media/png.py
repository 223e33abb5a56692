"""PNG without a library: 8 bits a colour or less, not interlaced. Slow, so it is for small pictures and for files.

Source: Portable Network Graphics, third edition, 5 (chunks), 7 (pixels), 9 (filters).
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np

from edge_runtime.media.resize import Bytes

MAX_PIXELS: Final = 2**20
"""Most pixels: a filter of the kind Paeth takes a second for them."""

_SAMPLES: Final = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
"""Numbers of a pixel by colour type: grey, colours, palette, grey with alpha, colours with alpha."""


class PngHeader(NamedTuple):
    """Size and layout."""

    width: int
    height: int
    bits: int
    colour_type: int
    compression: int
    filters: int
    interlaced: int


def read_png_header(data: bytes) -> PngHeader:
    """Read the first chunk.

    Raises:
        ValueError: it is damaged.
    """
    if data[12:16] != b"IHDR" or len(data) < 33:
        raise ValueError("it has no header")
    return PngHeader(*struct.unpack_from(">IIBBBBB", data, 16))


def decode_png(data: bytes) -> Bytes:
    """Return a picture, (height, width, 3), red first; transparency is left out.

    Raises:
        ValueError: it is damaged, or of a kind that is not read; the text says which.
    """
    header = read_png_header(data)
    samples = _SAMPLES.get(header.colour_type)
    if samples is None or not header.height * header.width:
        raise ValueError("its header makes no sense")
    if header.bits > 8 or (header.bits < 8 and samples > 1) or header.interlaced:
        raise ValueError("of more than 8 bits, or interlaced; save it otherwise, or run: pip install pillow")
    palette, packed = b"", []
    for name, body in _chunks(data):
        if name == b"PLTE":
            palette = body
        elif name == b"IDAT":
            packed.append(body)
    line = -(-header.width * samples * header.bits // 8)
    rows = _rows(b"".join(packed), header.height, line, max(1, samples * header.bits // 8))
    if header.bits < 8:
        rows = _spread(rows, header)
    return _colours(rows.reshape(header.height, header.width, samples), header.colour_type, palette)


def _chunks(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    at = 8
    while at + 12 <= len(data):
        (size,) = struct.unpack_from(">I", data, at)
        whole = data[at + 4 : at + 8 + size]
        if len(data) < at + 12 + size or zlib.crc32(whole) != int.from_bytes(
            data[at + 8 + size : at + 12 + size], "big"
        ):
            raise ValueError("a chunk is damaged")
        yield whole[:4], whole[4:]
        at += 12 + size


def _rows(packed: bytes, height: int, line: int, step: int) -> Bytes:
    """Return the rows without their filters, (height, line)."""
    wanted = height * (line + 1)
    try:
        data = zlib.decompressobj().decompress(packed, wanted)
    except zlib.error as error:
        raise ValueError(str(error)) from None
    if len(data) < wanted:
        raise ValueError("it is cut short")
    filtered = np.frombuffer(data, np.uint8).reshape(height, line + 1)
    rows = np.empty((height, line), np.uint8)
    above = np.zeros(line, np.uint8)
    for i in range(height):
        above = rows[i] = _unfilter(int(filtered[i, 0]), filtered[i, 1:], above, step)
    return rows


def _unfilter(kind: int, row: Bytes, above: Bytes, step: int) -> Bytes:
    """Add what the filter took away: nothing, the left, the one above, the mean of both, or the nearest of three."""
    if kind == 0:
        return row
    if kind == 1:
        padded = np.concatenate((row, np.zeros(-len(row) % step, np.uint8))).reshape(-1, step)
        return np.cumsum(padded, axis=0, dtype=np.uint8).reshape(-1)[: len(row)]
    if kind == 2:
        return row + above
    if kind not in (3, 4):
        raise ValueError(f"filter {kind} is not known")
    out, up = [0] * step + row.tolist(), [0] * step + above.tolist()
    if kind == 3:
        for i in range(step, len(out)):
            out[i] = (out[i] + (out[i - step] + up[i] >> 1)) & 255
    else:
        for i in range(step, len(out)):
            out[i] = (out[i] + _nearest(out[i - step], up[i], up[i - step])) & 255
    return np.array(out[step:], np.uint8)


def _nearest(left: int, above: int, corner: int) -> int:
    """Return which of three is nearest to left + above - corner; of equal ones the first (Paeth)."""
    by_left, by_above, by_corner = abs(above - corner), abs(left - corner), abs(left + above - 2 * corner)
    if by_left <= by_above and by_left <= by_corner:
        return left
    return above if by_above <= by_corner else corner


def _spread(rows: Bytes, header: PngHeader) -> Bytes:
    """Return a number for each pixel of 1, 2 or 4 bits; grey is scaled to 8."""
    bits = np.unpackbits(rows, axis=1).reshape(len(rows), -1, header.bits)
    numbers = np.zeros(bits.shape[:2], np.uint8)
    for place in range(header.bits):
        numbers = numbers * np.uint8(2) + bits[..., place]
    numbers = numbers[:, : header.width]
    return np.asarray(numbers if header.colour_type == 3 else numbers * np.uint8(255 // (2**header.bits - 1)))


def _colours(pixels: Bytes, colour_type: int, palette: bytes) -> Bytes:
    if colour_type == 3:
        colours = np.frombuffer(palette, np.uint8)
        if not len(colours) or len(colours) % 3 or int(pixels.max()) >= len(colours) // 3:
            raise ValueError("its palette is too short")
        return np.asarray(colours.reshape(-1, 3)[pixels[..., 0]])
    return np.repeat(pixels[..., :1], 3, axis=2) if colour_type in (0, 4) else pixels[..., :3]
