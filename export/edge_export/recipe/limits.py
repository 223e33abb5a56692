"""The recipe's table ``[limits]``: the accuracy, bytes and time that a candidate must keep to ship."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from edge_runtime.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits that a recipe sets.

    Attributes:
        max_accuracy_drop: largest loss against the reference on unseen groups, a share: 0.005 is half a point.
        max_bytes: of a model file on disk; None for any.
        max_latency_ms: median time per window with a batch of 1; None for any.
        metric: what the drop is taken of; ``macro_f1`` where classes are unbalanced.
    """

    max_accuracy_drop: float = 0.005
    max_bytes: int | None = None
    max_latency_ms: float | None = None
    metric: Literal["accuracy", "macro_f1"] = "accuracy"

    def __post_init__(self) -> None:
        if not 0 <= self.max_accuracy_drop <= 1:
            raise ConfigError(
                f"max_accuracy_drop is a share from 0 to 1 (0.005 is half a point), got {self.max_accuracy_drop}"
            )
        if (self.max_bytes is not None and self.max_bytes <= 0) or (
            self.max_latency_ms is not None and not self.max_latency_ms > 0
        ):
            raise ConfigError("max_bytes and max_latency_ms must be above 0, or left out")
