"""Length and rate of a training as a value that a recipe can state; `edge_export.learn.training.loop` trains by it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """Length and rate of a training.

    Attributes:
        steps: number of batches.
        batch: windows in each.
        learning_rate: highest rate of the one-cycle schedule (Smith and Topin 2018, arXiv:1708.07120).
        weight_decay: of AdamW (Loshchilov and Hutter 2019, arXiv:1711.05101).
        label_smoothing: share of each label spread over all classes; only where labels are trained on directly.
    """

    steps: int
    batch: int = 64
    learning_rate: float = 3e-3
    weight_decay: float = 0.01
    label_smoothing: float = 0.05

    def __post_init__(self) -> None:
        if self.steps < 10 or self.batch < 2:
            # The schedule rises over a fifth of the steps, and batch statistics need two windows.
            raise ValueError(f"need at least 10 steps and batches of 2, not {self.steps} and {self.batch}")
