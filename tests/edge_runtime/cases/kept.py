"""A contract, and cases that fit it."""

from __future__ import annotations

import numpy as np

from edge_runtime.cases.case import Case, Contract
from edge_runtime.manifest import Channel

CONTRACT = Contract("watch/1", 50.0, (Channel(name="ax", unit="g"), Channel(name="ay", unit="g")), ("walk", "sit"))


def case(at: int, key: str = "a", *, samples: int = 100, kept: float = 0.0) -> Case:
    values = np.random.default_rng(at).normal(size=(samples, 2)).astype(np.float32)
    return Case(f"{key}@{at}", key, float(at), kept, "hard", CONTRACT, values, {"label": "sit", "confidence": 0.4})
