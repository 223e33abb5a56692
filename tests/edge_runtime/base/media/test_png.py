"""PNG by our own code: every filter, depth and palette gives back what was encoded."""

from __future__ import annotations

import struct
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_runtime.base.media.png import decode_png
from tests.edge_runtime.base.media.pictures import png


@given(
    height=st.integers(1, 12),
    width=st.integers(1, 12),
    filters=st.lists(st.integers(0, 4), min_size=1, max_size=12),
    seed=st.integers(0, 99),
)
def test_every_filter_gives_back_the_pixels(height: int, width: int, filters: list[int], seed: int) -> None:
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    assert decode_png(png(pixels, filters)).tolist() == pixels.tolist()


def chunk(name: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))


def made(width: int, rows: list[bytes], bits: int, colour_type: int, *more: tuple[bytes, bytes]) -> bytes:
    head = struct.pack(">IIBBBBB", width, len(rows), bits, colour_type, 0, 0, 0)
    body = b"".join(b"\0" + row for row in rows)
    chunks = [(b"IHDR", head), *more, (b"IDAT", zlib.compress(body)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunk(*one) for one in chunks)


@pytest.mark.parametrize(
    ("bits", "rows", "grey"),
    [
        (1, [b"\xa0"], [255, 0, 255]),
        (2, [b"\x1b"], [0, 85, 170]),
        (4, [b"\x0f\x80"], [0, 255, 136]),
        (8, [b"\x07\x09\xff"], [7, 9, 255]),
    ],
)
def test_grey_of_fewer_bits_is_scaled(bits: int, rows: list[bytes], grey: list[int]) -> None:
    assert decode_png(made(3, rows, bits, 0))[0].tolist() == [[one] * 3 for one in grey]


def test_a_palette_is_looked_up_and_alpha_is_left_out() -> None:
    palette = (b"PLTE", bytes(range(9)))
    assert decode_png(made(3, [b"\x02\x00\x01"], 8, 3, palette))[0].tolist() == [[6, 7, 8], [0, 1, 2], [3, 4, 5]]
    assert decode_png(made(1, [b"\x01\x02\x03\x80"], 8, 6))[0].tolist() == [[1, 2, 3]]
    assert decode_png(made(1, [b"\x09\x80"], 8, 4))[0].tolist() == [[9, 9, 9]]
    with pytest.raises(ValueError, match="palette is too short"):
        decode_png(made(3, [b"\x02\x00\x09"], 8, 3, palette))


@pytest.mark.parametrize(("bits", "colour_type"), [(16, 0), (4, 2), (8, 5)])
def test_what_is_not_read_is_refused(bits: int, colour_type: int) -> None:
    with pytest.raises(ValueError, match=r"more than 8 bits|makes no sense"):
        decode_png(made(1, [bytes(6)], bits, colour_type))
