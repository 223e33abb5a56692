"""Messages of pictures: JPEG, PNG, base64, bare pixels; bombs and other formats are refused before they are decoded."""

from __future__ import annotations

import base64
import importlib.util
import struct
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_runtime.base.media import picture as pictures
from edge_runtime.base.media.resize import Bytes, resize
from edge_runtime.errors import ConfigError, InputError
from edge_runtime.io.codecs import Codec
from edge_runtime.io.codecs.config import load_codec
from edge_runtime.io.codecs.frame import FrameConfig
from edge_runtime.manifest import Channel
from edge_runtime.manifest.frames import Frame, frame_names
from edge_runtime.types import Reading
from tests.edge_runtime.base.media.pictures import bmp, jpeg, picture, png, stated

NOW = 1_700_000_000.0
FRAME = Frame(height=12, width=16)

pillow = pytest.mark.skipif(importlib.util.find_spec("PIL") is None, reason="needs Pillow")


def codec_of(frame: Frame | None = FRAME, **settings: Any) -> Codec:
    channels = [Channel(name=name, unit="1") for name in frame_names(frame.colours if frame else "rgb")]
    return load_codec(FrameConfig(**settings), channels, frame=frame)


def decode(codec: Codec, payload: bytes) -> Reading:
    (reading,) = codec.decode("camera", payload, NOW)
    return reading


def refused(codec: Codec, payload: bytes) -> InputError:
    with pytest.raises(InputError) as caught:
        codec.decode("camera", payload, NOW)
    return caught.value


def decoded(payload: bytes) -> Bytes:
    import simplejpeg  # noqa: PLC0415 - `jpeg` has skipped the test where it is missing

    return np.asarray(simplejpeg.decode_jpeg(payload))


def test_a_jpeg_becomes_pixels_in_raster_order_with_the_stamp_of_its_arrival() -> None:
    payload = jpeg(picture(12, 16))
    reading = decode(codec_of(), payload)
    assert (reading.key, reading.t, reading.channels) == ("camera", NOW, None)
    assert reading.values.dtype == np.float32
    assert reading.values.flags.c_contiguous
    assert reading.values.tolist() == decoded(payload).reshape(-1, 3).tolist()


def test_another_size_is_fitted() -> None:
    payload = jpeg(picture(48, 100))
    reading = decode(codec_of(), payload)
    assert reading.values.tolist() == resize(decoded(payload), 12, 16).reshape(-1, 3).tolist()


def test_colours_are_those_of_the_model() -> None:
    payload = jpeg(picture(12, 16))
    rgb = decoded(payload).reshape(-1, 3)
    bgr = decode(codec_of(Frame(height=12, width=16, colours="bgr")), payload)
    grey = decode(codec_of(Frame(height=12, width=16, colours="grey")), payload)
    assert bgr.values.tolist() == rgb[:, ::-1].tolist()
    assert grey.values.shape == (192, 1)
    np.testing.assert_allclose(grey.values[:, 0], rgb @ [0.299, 0.587, 0.114], atol=0.51)


def test_a_grey_jpeg_is_read_by_models_of_colours() -> None:
    payload = jpeg(picture(12, 16)[..., :1], colours="GRAY")
    reading = decode(codec_of(), payload)
    assert (reading.values == reading.values[:, :1]).all()


@pytest.mark.parametrize("prefix", [b"", b"data:image/jpeg;base64,"])
def test_base64_is_unpacked(prefix: bytes) -> None:
    payload = jpeg(picture(12, 16))
    reading = decode(codec_of(), prefix + base64.b64encode(payload))
    assert reading.values.tolist() == decode(codec_of(), payload).values.tolist()


@pytest.mark.parametrize("made", [png, bmp], ids=["png", "bmp"])
@pytest.mark.parametrize("by_hand", [False, True])
def test_png_and_bmp_are_read_exactly(
    made: Callable[[Bytes], bytes], by_hand: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    jpeg(picture(1, 1))
    if by_hand:
        without_pillow(monkeypatch)
    pixels = picture(12, 16)
    assert decode(codec_of(), made(pixels)).values.tolist() == pixels.reshape(-1, 3).tolist()


def without_pillow(monkeypatch: pytest.MonkeyPatch) -> None:
    found = pictures._find
    monkeypatch.setattr(pictures, "_find", lambda name: None if name == "PIL.Image" else found(name))


@pytest.mark.parametrize(
    ("payload", "told"),
    [
        (png(picture(9, 9))[:60], "a PNG that is not read: a chunk is damaged"),
        (png(picture(9, 9)).replace(b"IDAT", b"IDAX"), "a chunk is damaged"),
        (png(picture(9, 9))[:20], "it has no header"),
        (png(picture(9, 9))[:24] + b"\x10" + png(picture(9, 9))[25:], "of more than 8 bits"),
        (bmp(picture(9, 9))[:28] + b"\x10" + bmp(picture(9, 9))[29:], "a BMP that is not read: 16 bits a pixel"),
        (bmp(picture(9, 9))[:18] + bytes(8) + bmp(picture(9, 9))[26:], "its header makes no sense"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_damaged_png_or_bmp_is_named(payload: bytes, told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    jpeg(picture(1, 1))
    without_pillow(monkeypatch)
    error = refused(codec_of(), payload)
    assert error.reason == "malformed"
    assert told in str(error)


def test_a_large_png_needs_pillow(monkeypatch: pytest.MonkeyPatch) -> None:
    jpeg(picture(1, 1))
    without_pillow(monkeypatch)
    whole = png(picture(9, 9))
    error = refused(codec_of(), whole[:16] + struct.pack(">II", 2000, 1000) + whole[24:])
    assert error.reason == "too_large"
    assert "run: pip install pillow" in str(error)


@pillow
def test_pillow_alone_gives_the_same_pixels(monkeypatch: pytest.MonkeyPatch) -> None:
    payload = jpeg(picture(50, 70))
    expected = decode(codec_of(), payload).values.tolist()
    found = pictures._find
    monkeypatch.setattr(pictures, "_find", lambda name: None if name == "simplejpeg" else found(name))
    assert decode(codec_of(), payload).values.tolist() == expected


@pytest.mark.parametrize(
    ("raw", "payload", "pixels"),
    [
        ("rgb", bytes([1, 2, 3, 4, 5, 6]), [[1, 2, 3], [4, 5, 6]]),
        ("bgr", bytes([1, 2, 3, 4, 5, 6]), [[3, 2, 1], [6, 5, 4]]),
        ("grey", bytes([7, 9]), [[7, 7, 7], [9, 9, 9]]),
        ("rgb565", struct.pack(">HH", 0b11111_000000_00001, 0b00000_111111_00000), [[255, 0, 8], [0, 255, 0]]),
    ],
)
def test_bare_pixels_are_read(raw: str, payload: bytes, pixels: list[list[int]]) -> None:
    reading = decode(codec_of(Frame(height=1, width=2), raw=raw), payload)
    assert reading.values.tolist() == pixels


def test_bare_pixels_of_another_size_are_fitted() -> None:
    pixels = picture(24, 20)
    reading = decode(codec_of(raw="rgb", height=24, width=20), pixels.tobytes())
    assert reading.values.tolist() == resize(pixels, 12, 16).reshape(-1, 3).tolist()


# -- what is refused ---------------------------------------------------------------------------------------------------


@pillow
def test_a_png_bomb_is_refused_by_its_header() -> None:
    whole = png(picture(12, 16))
    assert refused(codec_of(), whole[:16] + struct.pack(">II", 60_000, 60_000) + whole[24:]).reason in (
        "too_large",
        "malformed",
    )
    assert refused(codec_of(max_pixels=100), whole).reason == "too_large"


def test_thousands_of_scans_are_refused() -> None:
    bomb = jpeg(picture(12, 16)) + b"\xff\xda" * 101
    error = refused(codec_of(), bomb)
    assert "more than 100 scans" in str(error)


@pytest.mark.parametrize(
    ("height", "width", "progressive", "told"),
    [
        (65_000, 65_000, False, "65000 x 65000 pixels; at most 8388608 are allowed"),
        (65_000, 1, False, "1 x 65000 pixels; a side of at most 11584"),
        (100, 60_000, False, "60000 x 100 pixels; a side of at most 11584"),
        (2160, 3840, True, "3840 x 2160 pixels in several scans"),
    ],
)
def test_what_takes_too_much_memory_is_refused_by_its_header(
    height: int, width: int, progressive: bool, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = stated(jpeg(picture(12, 16)), height, width) + b"\xff\xda" * progressive
    codec = codec_of()
    monkeypatch.setattr("simplejpeg.decode_jpeg", None)
    error = refused(codec, whole)
    assert (error.reason, told in str(error)) == ("too_large", True)


def test_scans_of_the_small_picture_in_a_cameras_head_are_not_counted() -> None:
    small, whole = b"\xff\xda" * 200, jpeg(picture(12, 16))
    head = b"\xff\xff\xe1" + struct.pack(">H", len(small) + 2) + small
    reading = decode(codec_of(), whole[:2] + head + whole[2:])
    assert reading.values.tolist() == decode(codec_of(), whole).values.tolist()


@pillow
def test_a_png_of_many_texts_is_read_without_them() -> None:
    pixels = picture(12, 16)
    whole = png(pixels)
    text = b"zTXtt\0\0" + zlib.compress(bytes(2**20 - 100))
    texts = (struct.pack(">I", len(text) - 4) + text + struct.pack(">I", zlib.crc32(text))) * 80
    assert decode(codec_of(), whole[:33] + texts + whole[33:]).values.tolist() == pixels.reshape(-1, 3).tolist()


@pytest.mark.parametrize(
    ("payload", "told"),
    [
        (b"RIFF\0\0\0\0WEBPVP8 ", "WebP is not read; send JPEG"),
        (b"GIF89a" + bytes(30), "GIF is not read"),
        (b"\0\0\0\x18ftypavif", "HEIF, AVIF or video"),
        (b"\0\0\0\x01gH.264", "H.264 video"),
        (b"hello, camera", "neither JPEG nor PNG"),
        (b"\xff\xd8\xff\xe0 no picture", "a damaged JPEG"),
        (b"/9j/4AAQ", "a damaged JPEG"),
        (b"/9j/4A=A", "damaged"),
    ],
)
def test_what_is_no_picture_is_named(payload: bytes, told: str) -> None:
    jpeg(picture(1, 1))
    error = refused(codec_of(), payload)
    assert error.reason == "malformed"
    assert told in str(error)


def test_a_picture_cut_short_is_refused() -> None:
    short = jpeg(picture(120, 160))[:-900]
    assert refused(codec_of(), short).reason == "malformed"


def test_empty_large_and_nameless_messages_are_refused() -> None:
    codec = codec_of(max_bytes=64, raw="rgb")
    assert refused(codec, b"").reason == "empty"
    assert refused(codec, bytes(65)).reason == "too_large"
    assert refused(codec, bytes(6)).reason == "malformed"
    with pytest.raises(InputError, match="no key") as caught:
        codec_of(raw="rgb").decode("", bytes(12 * 16 * 3), NOW)
    assert caught.value.reason == "no_key"


@given(st.binary(max_size=300), st.integers(0, 600), st.sampled_from([jpeg, png, bmp]))
def test_noise_behind_a_good_start_gives_a_picture_or_a_reason(
    noise: bytes, at: int, made: Callable[[Bytes], bytes]
) -> None:
    jpeg(picture(1, 1))
    codec, good = codec_of(), made(picture(12, 16))
    try:
        reading = decode(codec, good[:at] + noise + good[at + len(noise) :])
    except InputError as error:
        assert error.reason in ("malformed", "too_large")  # noqa: PT017 - either is right
        assert "\n" not in str(error)  # noqa: PT017
    else:
        assert reading.values.shape == (192, 3)


def test_a_model_without_a_frame_takes_no_pictures() -> None:
    with pytest.raises(ConfigError, match="takes no pictures"):
        codec_of(None)


def test_a_missing_library_is_named_with_what_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pictures, "_find", lambda _name: None)
    with pytest.raises(ConfigError, match=r"pip install 'edge-runtime\[pictures\]'"):
        codec_of()
    assert decode(codec_of(raw="rgb"), bytes(12 * 16 * 3)).values.shape == (192, 3)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"raw": "rgb", "height": 3}, "both"),
        ({"height": 3, "width": 3}, "set raw"),
        ({"max_pixels": 0}, "max_pixels 1 to"),
        ({"max_bytes": 0}, "max_bytes must be"),
    ],
)
def test_settings_that_contradict_themselves_are_refused(settings: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        FrameConfig(**settings)
