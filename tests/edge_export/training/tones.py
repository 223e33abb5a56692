"""Windows of three frequencies in noise, to train on."""

from __future__ import annotations

import numpy as np


def tones(count: int, seed: int, shares: tuple[float, ...] = (0.4, 0.3, 0.3)) -> tuple[np.ndarray, np.ndarray]:
    """Windows of three frequencies in noise."""
    random = np.random.default_rng(seed)
    y = random.choice(3, count, p=shares).astype(np.int64)
    phase = random.uniform(0, 2 * np.pi, (count, 1))
    wave = np.sin(np.array([0.2, 0.35, 0.5])[y][:, None] * np.arange(48) + phase)
    noise = random.standard_normal((count, 2, 48))
    return (wave[:, None] + 1.0 * noise).astype(np.float32), y
