"""PNG without a library: 8 bits a colour or less, not interlaced. Slow, so it is for small pictures and for files.

Source: Portable Network Graphics, third edition, 5 (chunks), 7 (pixels), 9 (filters).
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np

from edge_runtime.base.media.resize import Bytes

MAX_PIXELS: Final = 2**20
"""Most pixels: filters of the kind Paeth take a third of a second for them."""

_ESSENTIAL: Final = (b"IHDR", b"PLTE", b"tRNS", b"IDAT", b"IEND")

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


def essential_chunks(data: bytes) -> bytes:
    """Return a PNG without the chunks that do not make the picture: texts, profiles, other frames.

    Raises:
        ValueError: it is damaged.
    """
    kept = [data[:8]]
    for name, body in _chunks(data):
        if name in _ESSENTIAL:
            whole = name + body
            kept += [struct.pack(">I", len(body)), whole, struct.pack(">I", zlib.crc32(whole))]
    return b"".join(kept)


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
    if filtered[:, 0].max() > 2:
        return _by_diagonals(filtered, step)
    rows = np.empty((height, line), np.uint8)
    above = np.zeros(line, np.uint8)
    for i in range(height):
        above = rows[i] = _unfilter(filtered[i, 0], filtered[i, 1:], above, step)
    return rows


def _by_diagonals(filtered: Bytes, step: int) -> Bytes:
    """Return the rows without their filters, a diagonal of pixels at a time: each needs those left and above only.

    What the filters took away: nothing, the left, the one above, the mean of both, or the nearest of three to left +
    above - corner (Paeth).
    """
    kinds = filtered[:, 0]
    if kinds.max() > 4:
        raise ValueError(f"filter {kinds.max()} is not known")
    height, n = len(filtered), (filtered.shape[1] - 1) // step
    whole = np.zeros((height + 1, n + 1, step), np.int16)  # a row above and a pixel on the left are zeros
    whole[1:, 1:] = filtered[:, 1:].reshape(height, n, step)
    flat = whole.reshape(-1, step)
    of_kind = [(kinds == kind)[:, None] for kind in range(5)]
    for diagonal in range(height + n - 1):
        first, last = max(0, diagonal - n + 1), min(height - 1, diagonal)
        begin = (first + 1) * (n + 1) + diagonal - first + 1
        end = begin + (last - first) * n + 1
        left, above, corner = (flat[begin - back : end - back : n] for back in (1, n + 1, n + 2))
        by_left, by_above, by_corner = abs(above - corner), abs(left - corner), abs(left + above - 2 * corner)
        nearest = np.where(by_above <= by_corner, above, corner)
        nearest = np.where((by_left <= by_above) & (by_left <= by_corner), left, nearest)
        some = slice(first, last + 1)
        taken = np.where(of_kind[4][some], nearest, 0)
        for kind, guess in ((1, left), (2, above), (3, left + above >> 1)):
            np.copyto(taken, guess, where=of_kind[kind][some])
        flat[begin:end:n] = flat[begin:end:n] + taken & 255
    return whole[1:, 1:].astype(np.uint8).reshape(height, -1)


def _unfilter(kind: np.uint8, row: Bytes, above: Bytes, step: int) -> Bytes:
    """Add what the filter took away: nothing, the left, or the one above."""
    if kind == 1:
        padded = np.concatenate((row, np.zeros(-len(row) % step, np.uint8))).reshape(-1, step)
        return np.cumsum(padded, axis=0, dtype=np.uint8).reshape(-1)[: len(row)]
    return row + above if kind else row


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
