"""Rows of TensorFlow's own micro-frontend, for tests: micro_frontend.npz.

    pip install pymicro-features==2.0.2 .
    python tests/data/frontends/micro_frontend.py                  # writes the file
    python tests/data/frontends/micro_frontend.py FOLDER           # compares all recordings of a folder instead

`pymicro-features` 2.0.2 holds TensorFlow's C code.
"""

from __future__ import annotations

import sys
import wave
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from pymicro_features import MicroFrontend  # type: ignore[import-not-found, unused-ignore]

from edge_runtime.manifest.micro_frontend import MicroFrontend as Spec
from edge_runtime.signal.frontends.micro_frontend import MicroFrontendRows

HOP, FRAME = 160, 480
SAMPLES = FRAME + 11 * HOP


def sounds() -> dict[str, npt.NDArray[Any]]:
    """Sounds that take every branch: near-silence, voice-like, the ends of the scale, edges loud and middle silent."""
    rng = np.random.default_rng(1)
    t = np.arange(SAMPLES) / 16000
    voice = sum(np.sin(2 * np.pi * k * (140 + 300 * t) * t) / k for k in range(1, 30))
    inverse = np.clip(1200 / np.maximum(np.hanning(FRAME), 0.001), -32768, 32767)
    whole = {
        "ends": rng.choice([-32768, 32767], SAMPLES),
        "inverse": np.resize(inverse, SAMPLES) * np.sign(np.cos(2 * np.pi * np.arange(SAMPLES) / 8 + 0.3)),
        "lowest": np.full(SAMPLES, -32768),
        "quiet": rng.integers(-2, 3, SAMPLES),
        "square": np.where(np.arange(SAMPLES) // 37 % 2, 32767, -32767),
        "voice": 9000 * voice * np.hanning(SAMPLES) + rng.normal(0, 30, SAMPLES),
    }
    return {name: np.clip(values, -32768, 32767).astype(np.int16) for name, values in whole.items()}


def rows(sound: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Rows of a whole sound, (n, 40)."""
    frontend, data, made = MicroFrontend(), sound.tobytes(), []
    for at in range(0, len(data) - 2 * HOP + 1, 2 * HOP):
        features = frontend.process_samples(data[at : at + 2 * HOP]).features
        if features:
            made.append(features)
    return np.array(made, np.float32)


def compare(folder: Path) -> int:
    """Print how many rows of a folder's recordings differ."""
    ours, all_rows, different = MicroFrontendRows(Spec(), (FRAME,)), 0, 0
    for path in sorted(folder.rglob("*.wav")):
        with wave.open(str(path)) as file:
            sound = np.frombuffer(file.readframes(file.getnframes()), "<i2").reshape(-1, file.getnchannels())[:, 0]
        if len(sound) < FRAME:
            continue
        frames = np.lib.stride_tricks.sliding_window_view(sound, FRAME)[::HOP]
        made, _ = ours(np.asarray(frames[None] / 32768, np.float32), [np.zeros((1, 40), np.uint32)])
        different += int((made[0] != rows(sound)).any(axis=1).sum())
        all_rows += len(frames)
    print(f"{different} of {all_rows} rows differ")
    return different


if __name__ == "__main__":
    if sys.argv[1:]:
        sys.exit(min(compare(Path(sys.argv[1])), 1))
    made: dict[str, Any] = {}
    for name, sound in sounds().items():
        steps = np.rint(rows(sound) * 25.6).astype(np.uint16)
        assert np.array_equal(steps * np.float32(10 / 256), rows(sound))
        made |= {f"{name}.sound": sound, f"{name}.rows": steps}
    np.savez_compressed(Path(__file__).with_suffix(".npz"), **made)
