"""Cuts of one key, for tests of front ends."""

from __future__ import annotations

import numpy as np

from edge_runtime.signal.frontends import Array, Frontend
from edge_runtime.types import Float32


def fresh(frontend: Frontend, batch: int = 1) -> list[Array]:
    """The states of keys that are new."""
    return [np.broadcast_to(s.initial, (batch, *s.shape)).astype(s.dtype) for s in frontend.states]


def rows_of(frontend: Frontend, cut: Float32) -> Float32:
    """The rows of one cut, (samples, *row), of a key that is new."""
    rows, _ = frontend(cut[None, None], fresh(frontend))
    return np.asarray(rows[0])
