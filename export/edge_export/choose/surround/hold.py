"""Threshold and spread of a gate that keeps a share for every key (`edge_runtime.answer.gate.adaptive`).

How they do on groups left out: ``python -m benchmarks.accuracy.hold``.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from edge_export.choose.evaluation.calibration import threshold_for_share
from edge_export.data.dataset import Float32
from edge_runtime.answer.gate.adaptive import AdaptiveGate, log_odds


class FittedThreshold(NamedTuple):
    """Begin of the keys of a device (`edge_runtime.manifest.surround.SurroundGate`)."""

    threshold: float
    spread: float


def fit_hold(trust: Float32, share: float) -> FittedThreshold:
    """Fit threshold and spread to scores of windows not trained on.

    Args:
        trust: (n,) scores of the gate.
        share: share of the windows that is to be hard, above 0 and at most 0.5.
    """
    half, at, twice = (threshold_for_share(trust, part) for part in (share / 2, share, 2 * share))
    return FittedThreshold(at, min(max(log_odds(twice) - log_odds(half), 0.02), 10.0))


class KeySlot(NamedTuple):
    """A window, as far as the gate knows it."""

    key: str
    slot: int

    @property
    def id(self) -> str:
        return f"{self.key}@{self.slot}"

    @property
    def place(self) -> tuple[str, int]:
        return self.key, self.slot


def decide(stream: Float32, fitted: FittedThreshold, share: float, key: str) -> npt.NDArray[np.bool_]:
    """Return which windows of a new key the device's gate calls hard, its scores in the order of time."""
    gate = AdaptiveGate()
    gate.begin("", threshold=fitted.threshold, share=share, spread=fitted.spread)
    return np.array(gate.hard([KeySlot(key, slot) for slot in range(len(stream))], stream.tolist()), np.bool_)
