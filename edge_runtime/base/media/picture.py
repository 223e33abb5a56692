"""Pictures out of JPEG, PNG, BMP and bare pixels, as bytes of red, green and blue.

JPEG needs the extra ``pictures`` (simplejpeg, 0.4 MB), or Pillow (`docs/decisions/0019-jpeg.md`); both decode it by
libjpeg-turbo and give the same pixels. PNG is decoded by Pillow where it is installed, else by our own code up to
`edge_runtime.base.media.png.MAX_PIXELS`; BMP by our own. A few kilobytes may state a picture of gigabytes, or hide
thousands of passes over one, so `PictureDecoder.cost` bounds memory and time by the header, before anything is decoded:

1. At most ``max_pixels``, and no side longer than `MOST_SIDES` times that of a square of as many: every row and column
   of a thin picture costs as much as one of the model's.
2. At most `MOST_BYTES` a pixel of ``max_pixels``: the result, a library's own copy, and, of a JPEG of several scans,
   its coefficients. With the default of ``max_pixels``, 59 MB.
3. At most `MOST_SCANS` passes over a JPEG, and `FULL_SCANS` over one of ``max_pixels``.
4. Of a PNG a library is given only the chunks that make the picture: others may unpack to any size.
"""

from __future__ import annotations

import importlib
import math
import struct
import warnings
import zlib
from io import BytesIO
from typing import Any, Final, Literal, NamedTuple

import numpy as np

from edge_runtime.base.media.bmp import decode_bmp, read_bmp_size
from edge_runtime.base.media.png import MAX_PIXELS, decode_png, essential_chunks, read_png_header
from edge_runtime.base.media.resize import Bytes
from edge_runtime.errors import ConfigError, one_line

Raw = Literal["rgb", "bgr", "grey", "rgb565"]

READ: Final = ("jpeg", "png", "bmp")
"""Formats that are decoded."""

MOST_SIDES: Final = 4
"""Rule 1: 11,584 pixels by default; a picture of that many pixels may be 16 times as long as it is high."""

MOST_BYTES: Final = 7
"""Rule 2. Room for a JPEG of one scan by either library, and for a progressive one with halved colours (4:2:2)."""

MOST_SCANS: Final = 100
FULL_SCANS: Final = 16
"""Rule 3: encoders write about ten."""

RAW_BYTES: Final = {"rgb": 3, "bgr": 3, "grey": 1, "rgb565": 2}
"""Bytes of a pixel."""

_JPEG: Final = b"\xff\xd8\xff"
_PNG: Final = b"\x89PNG\r\n\x1a\n"
_COLOURS: Final = ("RGB", "YCbCr", "Gray", "1", "L", "LA", "P", "PA", "RGBA")
"""As the libraries name them."""

_SAMPLES: Final = {"Gray": 1.0, "420": 1.5, "422": 2.0, "440": 2.0, "411": 1.5}
"""Numbers a pixel of a JPEG, by its halved colours."""

_BY_HAND: Final = 64
"""Passes that our own PNG code counts as."""

_ROWS: Final = 64
"""Rows that are converted together."""

_DAMAGED: Final = (OSError, ValueError, SyntaxError, EOFError, LookupError, TypeError, struct.error, zlib.error)
"""Errors that Pillow's readers raise for damaged bytes."""

_NO_JPEG: Final = "pictures need a JPEG library; run: pip install 'edge-runtime[pictures]'"
_OTHERS: Final = (
    (b"GIF8", "GIF"), (b"II*\0", "TIFF"), (b"MM\0*", "TIFF"), (b"\0\0\0\x0cjP", "JPEG 2000"),
    (b"\0\0\0\x01", "H.264 video"),
)  # fmt: skip


class PictureError(Exception):
    """Bytes that are no picture, or not one that is decoded here; the text says why."""


class TooLargeError(PictureError):
    """A picture of more pixels, memory or passes than are allowed."""


class PictureCost(NamedTuple):
    """Size of a picture, and what decoding it takes."""

    height: int
    width: int
    passes: int
    """Over its pixels; those of our own PNG code count as `_BY_HAND`."""


def kind_of(data: bytes) -> str:
    """Name the format that bytes begin with: ``jpeg``, ``png``, ``bmp``, another format's name, or nothing."""
    if data.startswith(_JPEG):
        return "jpeg"
    if data.startswith(_PNG):
        return "png"
    if data.startswith(b"BM") and int.from_bytes(data[2:6], "little") == len(data):
        return "bmp"
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "WebP"
    if data[4:8] == b"ftyp":
        return "HEIF, AVIF or video"
    return next((name for magic, name in _OTHERS if data.startswith(magic)), "")


class PictureDecoder:
    """Decodes JPEG, PNG and BMP by the libraries that are there.

    Args:
        max_pixels: a picture of more is refused before it is decoded.
        jpeg: one is expected.

    Raises:
        ConfigError: JPEG is expected, and there is no library for it.
    """

    def __init__(self, max_pixels: int, *, jpeg: bool = True) -> None:
        self._max_pixels = max_pixels
        self._simplejpeg = _find("simplejpeg")
        self._pillow = _find("PIL.Image")
        if jpeg and self._simplejpeg is None and self._pillow is None:
            raise ConfigError(_NO_JPEG)

    def __call__(self, data: bytes) -> Bytes:
        """Return a picture, (height, width, 3), red first.

        Raises:
            TooLargeError: it costs too much.
            PictureError: it is damaged, or of another format.
        """
        self.cost(data)
        kind = kind_of(data)
        try:
            if kind == "bmp":
                return decode_bmp(data)
            if kind == "jpeg" and self._simplejpeg is not None:
                return np.asarray(self._simplejpeg.decode_jpeg(data, colorspace="RGB"), np.uint8)
            return decode_png(data) if self._pillow is None else self._by_pillow(kind, data)
        except _DAMAGED as error:
            raise _damaged(kind, error) from None

    def cost(self, data: bytes) -> PictureCost:
        """Return what decoding a picture costs, by its header.

        Raises:
            TooLargeError: more than is allowed (rules 1 to 3).
            PictureError: its header is damaged, or it is of another format.
        """
        kind = kind_of(data)
        if kind not in READ:
            raise PictureError(f"{kind} is not read; send JPEG" if kind else "neither JPEG nor PNG")
        if kind == "jpeg" and self._simplejpeg is None and self._pillow is None:
            raise PictureError(_NO_JPEG)
        try:
            found, bytes_a_pixel = self._header(kind, data)
        except _DAMAGED as error:
            raise _damaged(kind, error) from None
        height, width, passes = found
        self._check(height, width, bytes_a_pixel)
        if passes == _BY_HAND and max(height * width, max(height, width) ** 2 // MOST_SIDES**2) > MAX_PIXELS:
            raise TooLargeError(f"a PNG of more than {MAX_PIXELS} pixels needs Pillow; run: pip install pillow")
        most = min(MOST_SCANS, FULL_SCANS * self._max_pixels // (height * width))
        if kind == "jpeg" and passes > most:  # rule 3
            raise TooLargeError(f"a JPEG of more than {most} scans; save it as baseline")
        return found

    def _header(self, kind: str, data: bytes) -> tuple[PictureCost, float]:
        """Return the size, and bytes that decoding takes for each pixel."""
        if kind == "jpeg":
            height, width, samples = self._jpeg_header(data)
            scans = _scans(data)
            return PictureCost(height, width, scans), (7 if self._simplejpeg is None else 3) + 2 * samples * (scans > 1)
        if kind == "bmp":
            return PictureCost(*read_bmp_size(data), 1), 3
        header = read_png_header(data)
        return PictureCost(
            header.height, header.width, _BY_HAND if self._pillow is None else 1
        ), 7 if self._pillow else 3

    def _jpeg_header(self, data: bytes) -> tuple[int, int, float]:
        """Return height, width and numbers a pixel."""
        if self._simplejpeg is not None:
            height, width, colours, sampling = self._simplejpeg.decode_jpeg_header(data)
            samples = _SAMPLES.get(sampling, 3.0)
        else:
            picture = self._open("jpeg", data)
            height, width, colours, samples = picture.height, picture.width, picture.mode, 3.0
        _check_colours(colours)
        return height, width, samples

    def _open(self, kind: str, data: bytes) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of what our own bounds refuse
            return self._pillow.open(BytesIO(data), formats=(kind.upper(),))

    def _by_pillow(self, kind: str, data: bytes) -> Bytes:
        """Convert some rows at a time: a copy of the whole takes 4 bytes a pixel."""
        picture = self._open(kind, essential_chunks(data) if kind == "png" else data)  # rule 4
        _check_colours(picture.mode)
        out = np.empty((picture.height, picture.width, 3), np.uint8)
        for top in range(0, picture.height, _ROWS):
            some = picture.crop((0, top, picture.width, min(top + _ROWS, picture.height)))
            out[top : top + _ROWS] = np.asarray(some.convert("RGB"), np.uint8)
        return out

    def _check(self, height: int, width: int, bytes_a_pixel: float) -> None:
        longest = MOST_SIDES * math.isqrt(self._max_pixels)
        if height * width > self._max_pixels or min(height, width) < 1:  # rule 1
            raise TooLargeError(f"{width} x {height} pixels; at most {self._max_pixels} are allowed")
        if max(height, width) > longest:
            raise TooLargeError(f"{width} x {height} pixels; a side of at most {longest} is allowed: cut it into parts")
        if height * width * bytes_a_pixel > MOST_BYTES * self._max_pixels:  # rule 2
            most = int(MOST_BYTES * self._max_pixels / bytes_a_pixel)
            raise TooLargeError(f"{width} x {height} pixels in several scans; at most {most} of such are allowed")


def _damaged(kind: str, error: Exception) -> PictureError:
    what = "a damaged JPEG" if kind == "jpeg" else f"a {kind.upper()} that is not read"
    return PictureError(f"{what}: {one_line(error)}")


def _scans(data: bytes) -> int:
    """Count the passes of a JPEG; those of a small picture in its head, as cameras put one there, left out."""
    at = 2
    while data[at : at + 1] == b"\xff" and at + 4 <= len(data):
        marker = data[at + 1]
        if marker <= 0xBF or 0xD0 <= marker <= 0xDA:
            break  # the first scan, or what no encoder writes: all that follows counts
        at += 1 if marker == 0xFF else 2 + int.from_bytes(data[at + 2 : at + 4], "big")
    return data.count(b"\xff\xda", at if at < len(data) else 2)


def _check_colours(colours: str) -> None:
    if colours not in _COLOURS:
        raise PictureError(f"a picture of colours {colours}; send red, green and blue, or grey, 8 bits each")


def of_raw(data: bytes, height: int, width: int, kind: Raw) -> Bytes:
    """Return bare pixels in raster order as a picture, (height, width, 3), red first; ``rgb565`` is big-endian.

    Raises:
        PictureError: another number of bytes.
    """
    if len(data) != (wanted := height * width * RAW_BYTES[kind]):
        raise PictureError(f"{len(data)} bytes; {width} x {height} pixels of {kind} take {wanted}")
    if kind == "rgb565":
        packed = np.frombuffer(data, ">u2").reshape(height, width)
        picture = np.empty((height, width, 3), np.uint8)
        for colour, (shift, bits) in enumerate(((11, 5), (5, 6), (0, 5))):
            number = (packed >> shift & (1 << bits) - 1).astype(np.uint8)
            picture[..., colour] = number << (8 - bits) | number >> (2 * bits - 8)
        return picture
    pixels = np.frombuffer(data, np.uint8).reshape(height, width, -1)
    return np.repeat(pixels, 3, axis=2) if kind == "grey" else pixels[..., ::-1] if kind == "bgr" else pixels


def in_colours(picture: Bytes, colours: str) -> Bytes:
    """Return a picture, (h, w, 3), red first, in the colours of a model, (h, w, 3) or (h, w, 1).

    Grey is Pillow's mode L: (19595 red + 38470 green + 7471 blue + 32768) / 65536, rounded down.
    """
    if colours == "rgb":
        return picture
    if colours == "bgr":
        return picture[..., ::-1]
    grey = np.full(picture.shape[:2], 0x8000, np.uint32)
    for colour, weight in enumerate((19595, 38470, 7471)):
        grey += picture[..., colour].astype(np.uint32) * weight  # numpy 1 would multiply 8 bits by 16
    return (grey >> 16).astype(np.uint8)[..., None]


def _find(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        return None
