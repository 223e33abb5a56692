"""Sound as a sensor sends it: raw PCM and WAV, and what the user is told of a sender."""

from __future__ import annotations

import struct

import numpy as np
import numpy.typing as npt

from edge_runtime.io.codecs.config import load_codec
from edge_runtime.io.codecs.pcm import PcmConfig
from edge_runtime.manifest import Channel

RATE = 16000
NOW = 1_700_000_000.0
SOUND = (Channel(name="sound", unit="1"),)

Ints = npt.NDArray[np.int16]


def numbers(n: int, channels: int = 1, seed: int = 0) -> Ints:
    return np.random.default_rng(seed).integers(-32768, 32768, (n, channels)).astype(np.int16)


def wav(pcm: Ints, rate: int = RATE, *, coding: int = 1, bits: int = 16, size: int | None = None) -> bytes:
    channels, data = pcm.shape[1], pcm.astype("<i2").tobytes()
    form = struct.pack("<HHIIHH", coding, channels, rate, rate * channels * 2, channels * 2, bits)
    titles = b"LIST" + struct.pack("<I", 5) + b"INFO\0\0"
    head = b"WAVEfmt " + struct.pack("<I", 16) + form + titles + b"data"
    return b"RIFF" + struct.pack("<I", 99) + head + struct.pack("<I", len(data) if size is None else size) + data


def told_of(rate_hz: float, *, pause_s: float = 0.0, seconds: float = 12.0) -> list[tuple[str, str]]:
    """What the user is told of a sender at a rate, where 16 kHz are stated."""
    told: list[tuple[str, str]] = []
    codec = load_codec(PcmConfig(), SOUND, rate_hz=RATE, notice=lambda name, text: told.append((name, text)))
    received = NOW
    for i in range(int(seconds * 50)):
        received += 0.02 + (pause_s if i % 40 == 39 else 0.0)
        codec.decode("mic", bytes(2 * round(rate_hz / 50)), received)
    return told
