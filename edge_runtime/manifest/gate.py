"""The gate in a manifest: which answers are hard."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class GateSpec:
    """Rule for hard windows: a score below the threshold, which was set at export for a stated promise."""

    score: Literal["confidence", "margin", "entropy"] = "confidence"
    """Highest probability; its lead over the second; or one minus the entropy over its maximum. All in 0..1."""
    threshold: float = 0.0
    """Hard below it. 0 trusts every answer, anything above 1 none."""
    expected: dict[str, float] = field(default_factory=dict)
    """Figures measured at export on groups not trained on, for example ``forwarded``, ``local_error``."""

    def __post_init__(self) -> None:
        if not math.isfinite(self.threshold):
            raise ValueError("threshold must be finite")
