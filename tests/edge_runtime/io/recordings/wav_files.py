"""WAV files."""

from __future__ import annotations

import wave
from pathlib import Path

import numpy as np

from edge_runtime.types import Float32


def write(path: Path, pcm: Float32, rate: int = 800, channels: int = 1, width: int = 2) -> Path:
    """Samples (n,) or (n, channels), -1 to 1, as a WAV file."""
    with wave.open(str(path), "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(width)
        file.setframerate(rate)
        file.writeframes((np.asarray(pcm) * 32768).astype("<i2").tobytes())
    return path
