"""Stages of real models, as a card has them."""

from __future__ import annotations

from typing import Any

KEYWORD: dict[str, Any] = {
    "type": "mel", "definition": "tensorflow", "frame": 480, "hop": 320, "bands": 40, "coefficients": 10, "low_hz": 20,
    "high_hz": 4000, "normalise": "max",
}  # fmt: skip
"""MLPerf Tiny, keywords: 49 rows of 10 of a second that is scaled to its largest sample."""

WAKE_WORD: dict[str, Any] = {
    "type": "mel", "definition": "tensorflow", "frame": 1024, "hop": 512, "bands": 40, "low_hz": 0, "high_hz": 8000,
    "power": 2, "log": "db", "floor": 1e-27, "floor_by": "clip", "preemphasis": 0.96875, "window": "hamming-symmetric",
}  # fmt: skip
"""MLPerf Tiny, streaming wake word. Training divides the power by 1,024, and the model takes (dB + 52) / 64 in 0..1:
offset -21.897, scale 1 / 64, and its int8 input saturates."""

TOYCAR: dict[str, Any] = {
    "type": "mel", "frame": 1024, "hop": 512, "floor": 2.220446049250313e-16, "floor_by": "add", "top_db": 0,
    "padding": "reflect",
}  # fmt: skip
"""MLPerf Tiny, anomaly: five rows in a row; trained with a librosa of before 0.10."""

YAMNET: dict[str, Any] = {
    "type": "mel", "fft": 512, "frame": 400, "hop": 160, "bands": 64, "low_hz": 125, "high_hz": 7500, "mel": "htk",
    "norm": "none", "power": 1, "log": "ln", "floor": 1e-3, "centred": False,
}  # fmt: skip
"""ST's YAMNet-256: patches of 96 rows every 72."""

MINIRESNET: dict[str, Any] = {
    "type": "mel", "frame": 1024, "hop": 320, "bands": 64, "low_hz": 20, "high_hz": 7500, "reference": "max",
    "padding": "reflect",
}  # fmt: skip
"""ST's MiniResNet: patches of 50 rows every 37 of a clip whose loudest value is 0 dB."""

KALDI_64: dict[str, Any] = {
    "type": "mel", "definition": "kaldi", "scale": 32768, "bands": 64, "window": "hann-symmetric", "low_hz": 60,
    "high_hz": 7600,
}  # fmt: skip

TUTORIAL: dict[str, Any] = {
    "rate_hz": 8000, "frame": 800, "hop": 400, "fft": 2048, "coefficients": 16, "preemphasis": 0, "lifter": 0,
    "energy": False, "window": "hann-symmetric",
}  # fmt: skip
