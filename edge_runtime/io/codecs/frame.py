"""Pictures: JPEG, PNG or bare pixels, one a message, at the size and in the colours of the model.

A message becomes a reading of height x width samples in raster order, values 0 to 255, with the stamp of its arrival.
The picture is fitted (`edge_runtime.base.media.resize`) in red, green and blue, and then turned into the model's
colours. Base64 is unpacked. The key has to come from the topic.
"""

from __future__ import annotations

import binascii
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from edge_runtime.base.media.picture import (
    PictureDecoder,
    PictureError,
    Raw,
    TooLargeError,
    in_colours,
    kind_of,
    of_raw,
)
from edge_runtime.base.media.resize import Bytes, fit
from edge_runtime.errors import ConfigError, InputError
from edge_runtime.io.codecs.numbers import Arrival
from edge_runtime.manifest.frames import Frame
from edge_runtime.types import Reading

MAX_BYTES: Final = 8 * 2**20
"""Default payload limit; the connection to the broker takes as much (`edge_runtime.io.sources.build.with_room`)."""

MAX_PIXELS: Final = 2**23
"""Default limit of pixels: 3840 x 2160 are .99 of it."""

COSTLY: Final = 2**17
"""Pixels that are looked at on the way to the model's picture, in 2 ms on the machine of `docs/speed.md`."""

_BASE64: Final = (b"/9j/", b"iVBORw0K")
"""Start of JPEG and PNG in base64."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameConfig:
    """Settings of messages that hold a picture."""

    type: Literal["frame"] = "frame"
    raw: Literal["", "rgb", "bgr", "grey", "rgb565"] = ""
    """Order of bare pixels, where a message is neither JPEG nor PNG; ``rgb565`` is big-endian, as an ESP32 has it."""
    height: int = 0
    """Of bare pixels; 0: the model's."""
    width: int = 0
    max_bytes: int = MAX_BYTES
    max_pixels: int = MAX_PIXELS

    def __post_init__(self) -> None:
        if self.height < 0 or self.width < 0 or bool(self.height) != bool(self.width):
            raise ValueError("height and width must both be 0 (the model's) or both be set")
        if self.height and not self.raw:
            raise ValueError("height and width are for raw pixels, other pictures state theirs; set raw")
        if self.max_bytes < 1 or not 1 <= self.max_pixels <= 2**28:
            raise ValueError("max_bytes must be at least 1, max_pixels 1 to 2**28")


class FrameCodec:
    """Decodes pictures.

    Args:
        config: format and limits.
        frame: the model's frame; None: it takes no pictures.
        jpeg: JPEG is expected.

    Raises:
        ConfigError: the model takes no pictures, or JPEG is expected and no library for it is installed.
    """

    name = "frame"

    def __init__(self, config: FrameConfig, frame: Frame | None, *, jpeg: bool = True) -> None:
        if frame is None:
            raise ConfigError("codec frame: the model takes no pictures; its bundle states no frame")
        self._frame = frame
        self._config = config
        self._decode = None if config.raw else PictureDecoder(config.max_pixels, jpeg=jpeg)
        self._size = (config.height or frame.height, config.width or frame.width)

    def decode(self, key: str, payload: bytes, received: float) -> list[Reading]:
        """See `edge_runtime.io.codecs.Codec`."""
        if not payload:
            raise InputError("empty", "no picture in the message")
        if len(payload) > self._config.max_bytes:
            raise InputError("too_large", f"{len(payload)} bytes; at most {self._config.max_bytes} are allowed")
        if not key:
            raise InputError("no_key", "a picture names no key; take it from the topic")
        try:
            picture = self._picture(payload)
        except TooLargeError as error:
            raise InputError("too_large", str(error)) from None
        except PictureError as error:
            raise InputError("malformed", str(error)) from None
        frame = self._frame
        fitted = in_colours(fit(picture, frame), frame.colours)
        return [Reading(key, Arrival(received), fitted.reshape(frame.pixels, frame.channels).astype(np.float32))]

    def is_costly(self, payload: bytes) -> bool:
        """Return whether decoding and fitting takes longer than `COSTLY` allows, by the header alone."""
        (h, w), passes = self._size, 1
        if self._decode is not None:
            try:
                h, w, passes = self._decode.cost(_unpacked(payload))
            except PictureError:
                return False  # it is refused as soon
        frame = self._frame
        return passes * h * w + h * frame.width + frame.pixels > COSTLY

    def _picture(self, payload: bytes) -> Bytes:
        if self._decode is None:
            raw: Raw = self._config.raw or "rgb"
            return of_raw(payload, *self._size, raw)
        return self._decode(_unpacked(payload))


def _unpacked(payload: bytes) -> bytes:
    """Return a picture out of base64, or as it is."""
    if kind_of(payload) or not (encoded := _base64(payload)):
        return payload
    try:
        return binascii.a2b_base64(encoded)
    except binascii.Error as error:
        raise PictureError(f"damaged base64: {error}") from None


def _base64(payload: bytes) -> bytes:
    """Return what is base64 of a picture in a message; empty where it is none."""
    if payload.startswith(b"data:image/"):
        payload = payload.partition(b",")[2]
    return payload if payload.startswith(_BASE64) else b""
