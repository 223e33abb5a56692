"""Pictures out of JPEG, PNG, BMP and bare pixels, as bytes of red, green and blue.

JPEG needs the extra ``pictures`` (simplejpeg, 0.4 MB), or Pillow (`docs/decisions/0019-jpeg.md`); both decode it by
libjpeg-turbo and give the same pixels. PNG is decoded by Pillow where it is installed, else by our own code up to
`edge_runtime.media.png.MAX_PIXELS`; BMP by our own. Before anything is decoded, the header's size is looked at,
and the number of scans: a few kilobytes may state a picture of gigabytes, or hide thousands of passes over one.
"""

from __future__ import annotations

import importlib
import struct
import warnings
import zlib
from io import BytesIO
from typing import Any, Final, Literal

import numpy as np

from edge_runtime.errors import ConfigError, one_line
from edge_runtime.media.bmp import decode_bmp, read_bmp_size
from edge_runtime.media.png import MAX_PIXELS, decode_png, read_png_header
from edge_runtime.media.resize import Bytes

Raw = Literal["rgb", "bgr", "grey", "rgb565"]

READ: Final = ("jpeg", "png", "bmp")
"""Formats that are decoded."""

MOST_SCANS: Final = 100
"""Passes of a progressive JPEG; encoders write about ten."""

RAW_BYTES: Final = {"rgb": 3, "bgr": 3, "grey": 1, "rgb565": 2}
"""Bytes of a pixel."""

_JPEG: Final = b"\xff\xd8\xff"
_PNG: Final = b"\x89PNG\r\n\x1a\n"
_COLOURS: Final = ("RGB", "YCbCr", "Gray", "1", "L", "LA", "P", "PA", "RGBA")
"""As the libraries name them."""

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
    """A picture of more pixels than are allowed."""


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


class Decoder:
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
            TooLargeError: it has too many pixels.
            PictureError: it is damaged, or of another format.
        """
        kind = kind_of(data)
        if kind not in READ:
            raise PictureError(f"{kind} is not read; send JPEG" if kind else "neither JPEG nor PNG")
        if kind == "bmp" or (kind == "png" and self._pillow is None):
            return self._by_hand(kind, data)
        if kind == "jpeg" and data.count(b"\xff\xda") > MOST_SCANS:
            raise PictureError(f"a JPEG of more than {MOST_SCANS} scans")
        if kind == "jpeg" and self._simplejpeg is not None:
            return self._by_simplejpeg(self._simplejpeg, data)
        if self._pillow is None:
            raise PictureError(_NO_JPEG)
        return self._by_pillow(self._pillow, kind, data)

    def _by_simplejpeg(self, library: Any, data: bytes) -> Bytes:
        try:
            height, width, colours, _ = library.decode_jpeg_header(data)
            self._check(height, width)
            _check_colours(colours)
            decoded: Bytes = library.decode_jpeg(data, colorspace="RGB")
        except ValueError as error:
            raise PictureError(f"a damaged JPEG: {one_line(error)}") from None
        return decoded

    def _by_hand(self, kind: str, data: bytes) -> Bytes:
        try:
            if kind == "bmp":
                self._check(*read_bmp_size(data))
                return decode_bmp(data)
            header = read_png_header(data)
            self._check(header.height, header.width)
            if header.height * header.width > MAX_PIXELS:
                raise TooLargeError(f"a PNG of more than {MAX_PIXELS} pixels needs Pillow; run: pip install pillow")
            return decode_png(data)
        except ValueError as error:
            raise PictureError(f"a {kind.upper()} that is not read: {one_line(error)}") from None

    def _by_pillow(self, library: Any, kind: str, data: bytes) -> Bytes:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of what our own bounds refuse
                picture = library.open(BytesIO(data), formats=(kind.upper(),))
            self._check(picture.height, picture.width)
            _check_colours(picture.mode)
            return np.asarray(picture.convert("RGB"), np.uint8)
        except _DAMAGED as error:
            raise PictureError(f"a damaged {kind.upper()}: {one_line(error)}") from None

    def _check(self, height: int, width: int) -> None:
        if height * width > self._max_pixels:
            raise TooLargeError(f"{width} x {height} pixels; at most {self._max_pixels} are allowed")


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
        packed = np.frombuffer(data, ">u2").astype(np.uint16)
        red, green, blue = packed >> 11, packed >> 5 & 63, packed & 31
        colours = [red << 3 | red >> 2, green << 2 | green >> 4, blue << 3 | blue >> 2]
        return np.stack(colours, axis=1).astype(np.uint8).reshape(height, width, 3)
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
