"""Recordings that several tests build from."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest


@pytest.fixture(scope="session")
def waves(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six people who wave slowly, fast or not at all, sample by sample, on jittering clocks."""
    folder = tmp_path_factory.mktemp("waves")
    for person in range(6):
        random = np.random.default_rng(person)
        y = np.repeat(random.permutation([0, 1, 2, 0, 1, 2]), 300)
        t = np.arange(len(y)) / 50 + random.uniform(-0.002, 0.002, len(y))
        frequency = np.array([0.7, 3.0, 0.0])[y]
        phase = np.cumsum(2 * np.pi * frequency / 50)
        x = np.stack([np.sin(phase), np.cos(phase)], 1) * (1 + 0.1 * person) + 0.2 * random.standard_normal((len(y), 2))
        np.savez(folder / f"p{person}.npz", x=x.astype(np.float32), y=y, t=t)
    return folder
