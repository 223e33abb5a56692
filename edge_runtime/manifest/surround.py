"""Surround of a classifier: how its answers follow one another, are joined with the cloud's, and are doubted.

All of it is fitted at export, to answers about groups that the network was not trained on, and ships only where it wins
there. An application answers without it where it says ``alone = true`` under ``[model]``.
Papers and figures: docs/accuracy.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

_EXACT = 1e-6
"""Sums of shares may lie this far from one: they are written with seven digits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OverTime:
    """Sequence of the labels of a key, from one window to the next that is `InputContract.hop` samples later.

    A hidden Markov model, whose observations are the network's answers; `edge_runtime.model.over_time` filters by it.
    """

    transition: tuple[tuple[float, ...], ...]
    """Row: the label of a window; column: the share of its next windows that have this label. Rows sum to one."""
    prior: tuple[float, ...]
    """Share of each label, as the network's probabilities have it: what they are divided by."""
    weight: float = 1.0
    """Weight of one window's answer, above 0: windows that overlap say the same again, so it is below 1 for them."""

    def __post_init__(self) -> None:
        n = len(self.prior)
        if len(self.transition) != n or any(len(row) != n for row in self.transition):
            raise ValueError(f"transition must have a row and a column for each of the {n} labels")
        for row in (*self.transition, self.prior):
            if not (min(row) > 0 and abs(sum(row) - 1) <= _EXACT):
                raise ValueError("rows of transition, and prior, must be shares above 0 that sum to 1")
        if not 0 < self.weight <= 4:
            raise ValueError("weight must be above 0 and at most 4")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fusion:
    """Weights that make one answer of the device's and the cloud's: a weighted sum of their log-probabilities."""

    device: float
    """Weight of the device's."""
    cloud: float
    """Weight of the cloud's."""
    bias: tuple[float, ...] = ()
    """Added for each label; empty: nothing is."""

    def __post_init__(self) -> None:
        if not all(map(math.isfinite, (self.device, self.cloud, *self.bias))) or self.device < 0 or self.cloud < 0:
            raise ValueError("fusion: weights must be finite, device and cloud 0 or more")
        if self.device + self.cloud <= 0:
            raise ValueError("fusion: one of the two must count")


@dataclass(frozen=True, slots=True, kw_only=True)
class Gain:
    """Expected gain of asking the cloud, a linear function of the device's answer.

    The gain is the probability that the answer becomes right, less the probability that it becomes wrong.
    """

    bias: tuple[float, ...]
    """By the most probable label."""
    confidence: float = 0.0
    """For each unit of 1 - highest probability."""
    margin: float = 0.0
    """For each unit of 1 - lead of the first over the second."""

    def __post_init__(self) -> None:
        if not all(map(math.isfinite, (*self.bias, self.confidence, self.margin))):
            raise ValueError("gain: weights must be finite")


@dataclass(frozen=True, slots=True, kw_only=True)
class SurroundGate:
    """Gate of the answers that `OverTime` makes: it takes the place of the network's own."""

    score: Literal["confidence", "margin", "entropy", "gain"] = "confidence"
    """As of `GateSpec`; or half of one minus the expected gain of asking (`Gain`). All in 0..1."""
    threshold: float = 0.0
    """Hard below it, where keys begin. 0 trusts every answer, anything above 1 none."""
    gain: Gain | None = None
    """Of the score ``gain``."""
    share: float = 0.0
    """Share of its windows that is hard for every key: its threshold moves to keep it
    (`edge_runtime.answer.gate.adaptive`). 0: the threshold stays."""
    spread: float = 1.0
    """Distance between the thresholds for half and for twice the share, in log-odds: the unit of these moves."""
    expected: dict[str, float] = field(default_factory=dict)
    """As of `GateSpec`."""

    def __post_init__(self) -> None:
        if not math.isfinite(self.threshold):
            raise ValueError("threshold must be finite")
        if (self.score == "gain") != (self.gain is not None):
            raise ValueError("the score gain and the table gain go together")
        if not 0 <= self.share <= 0.5:
            raise ValueError("share must be 0 to 0.5")
        if not 0.01 <= self.spread <= 10:
            raise ValueError("spread must be 0.01 to 10")


@dataclass(frozen=True, slots=True, kw_only=True)
class Surround:
    """All of it. The gate is always there: the network's own was set for answers of one window."""

    gate: SurroundGate
    over_time: OverTime | None = None
    """None: each window is answered alone."""
    fusion: Fusion | None = None
    """None: the cloud's answer takes the place of the device's."""

    def check(self, labels: Sequence[str]) -> None:
        """Check that it speaks of these labels.

        Raises:
            ValueError: it does not.
        """
        n = len(labels)
        spoken_of = {
            "over_time": None if self.over_time is None else len(self.over_time.prior),
            "fusion": len(self.fusion.bias) or None if self.fusion is not None else None,
            "gate.gain": None if self.gate.gain is None else len(self.gate.gain.bias),
        }
        for part, count in spoken_of.items():
            if count not in {None, n}:
                raise ValueError(f"surround.{part} speaks of {count} labels, the answer has {n}")
