"""Answers of two models to simulated windows of several groups."""

from __future__ import annotations

import numpy as np
from edge_export.choose.surround.asking import CalibratedAnswers
from edge_export.choose.surround.log_linear import softmax

from edge_runtime.types import Float32

CLASSES = 4


def simulated(
    seed: int = 0, *, n: int = 1600, groups: int = 8, device: float = 1.3, cloud: float = 2.0
) -> CalibratedAnswers:
    """Draw windows; the larger the number of a model, the more it knows, and it is as sure as it is right."""
    random = np.random.default_rng(seed)
    y = random.integers(0, CLASSES, n)
    group = np.arange(n) % groups

    def answers(knows: float) -> Float32:
        seen = random.normal(size=(n, CLASSES)) + knows * np.eye(CLASSES)[y]
        return softmax(knows * seen).astype(np.float32)  # Bayes' rule for unit noise

    return CalibratedAnswers(
        device=answers(device), cloud=answers(cloud), y=y, group=group.astype(str), fold=group % (groups // 2)
    )
