"""Sound and pictures are named in the report, with what to write."""

from __future__ import annotations

import math
import struct

import numpy as np
import pytest

from edge_runtime.io.recordings.capture import Captured
from edge_runtime.tools.listen.capture import Capture
from edge_runtime.tools.listen.media import describe_bytes
from edge_runtime.tools.listen.propose import observations_of
from edge_runtime.tools.listen.report import describe

WAV = b"RIFF" + bytes(4) + b"WAVEfmt " + struct.pack("<IHHIIHH", 16, 1, 2, 22050, 88200, 4, 16) + b"data" + bytes(12)


@pytest.mark.parametrize(
    ("payload", "told"),
    [
        (b"\xff\xd8\xff\xe0 a picture", 'pictures, JPEG; write type = "frame" under [source.codec]'),
        (b"\x89PNG\r\n\x1a\n", 'pictures, PNG; write type = "frame" under [source.codec]'),
        (b"GIF89a", "pictures, GIF; let the sender write JPEG"),
        (WAV, 'sound, WAV of 22050 Hz and 2 channels; write type = "pcm" under [source.codec]'),
        (WAV[:30], "WAV that is not read: its format is cut short"),
        (b"OggS" + bytes(20), "sound, Ogg (Opus or Vorbis); let the sender write 16-bit PCM or WAV"),
    ],
)
def test_what_begins_like_sound_or_a_picture_is_named(payload: bytes, told: str) -> None:
    assert describe_bytes(payload, [len(payload)], math.nan) == told


@pytest.mark.parametrize(
    ("size", "messages_per_s", "told"),
    [
        (640, 50.2, 'as 16-bit sound they are 16000 Hz: type = "pcm" with rate_hz = 16000'),
        (1764, 100.0, "they are 44100 Hz"),
        (3840, 50.0, "rate_hz = 48000 and channels = 2"),
        (12, 50.0, ""),
        (640, math.nan, ""),
    ],
)
def test_bytes_that_come_as_fast_as_sound_say_so(size: int, messages_per_s: float, told: str) -> None:
    found = describe_bytes(bytes(size), [size, size], messages_per_s)
    assert found.startswith(f"bytes of no known format, {size} long")
    assert told in found
    assert told or "sound" not in found


def test_the_report_names_a_microphone() -> None:
    rng = np.random.default_rng(1)
    sound = [rng.integers(-3000, 3000, 320).astype("<i2").tobytes() for _ in range(100)]
    heard = Capture([Captured("home/mic/audio", payload, 1e9 + i / 50, False) for i, payload in enumerate(sound)])
    (line,) = [line for line in describe(heard, observations_of(heard)) if "no sensor" in line]
    assert 'as 16-bit sound they are 16000 Hz: type = "pcm" with rate_hz = 16000' in line
