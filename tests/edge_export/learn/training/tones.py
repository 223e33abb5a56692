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


class ArraySampler:
    """Draws from windows that are cut already.

    Args:
        x: (n, n_channels, samples).
        y: (n,) class indices.
        seed: of the sequence of draws.
    """

    def __init__(self, x: np.ndarray, y: np.ndarray, *, seed: int = 0) -> None:
        self._x, self._y = x, y
        self._random = np.random.default_rng(seed)

    def draw(self, count: int) -> tuple[np.ndarray, np.ndarray]:
        """(count, n_channels, samples) windows and (count,) class indices."""
        chosen = self._random.choice(len(self._y), count)
        return self._x[chosen], self._y[chosen]
