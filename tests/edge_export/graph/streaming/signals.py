"""Random streams, and the answers of networks whose one window is the stream so far."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx

from tests.edge_export.graphs import onnx_answers


def noise(*shape: int, seed: int = 0) -> np.ndarray:
    """A random stream that wanders, so that windows differ."""
    steps = np.random.default_rng(seed).standard_normal(shape)
    return (np.cumsum(steps, axis=-1) * 0.3 + steps).astype(np.float32)


def prefix_answers(build: Callable[..., onnx.ModelProto], hop: int, updates: int, stream: np.ndarray) -> np.ndarray:
    """Answers of networks whose one window is the whole stream so far."""
    answers = []
    for count in range(1, updates + 1):
        model = build(samples=count * hop)
        answers.append(onnx_answers(model, stream[:, :, : count * hop]))
    return np.stack(answers)
