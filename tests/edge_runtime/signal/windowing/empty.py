"""Windows whose samples do not matter."""

from __future__ import annotations

import numpy as np

from edge_runtime.signal.windowing.window import Window


def window(number: int, key: str = "k", hop: int = 8) -> Window:
    samples = np.zeros((4, 2), np.float32)
    return Window(key, number * hop, 0.0, samples, samples, 0.0)
