"""Output contracts: what the numbers of an answer are. One class for each task, told apart by `kind`.

Every one of them has `labels`, names that the answer may give (empty where it gives none), and `shape`, that of one
answer. An answer of several tensors is one row of numbers, the tensors' one after another.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from edge_runtime import schema


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputContract:
    """One label of several, from probabilities."""

    labels: tuple[str, ...]
    kind: Literal["probabilities"] = "probabilities"
    """Softmax and temperature are part of the graph: the output sums to one."""

    def __post_init__(self) -> None:
        if len(self.labels) < 2 or len(set(self.labels)) != len(self.labels):
            raise ValueError("needs two or more labels, all different")

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one window's answer."""
        return (len(self.labels),)


@dataclass(frozen=True, slots=True, kw_only=True)
class MultiLabelOutput:
    """Any number of labels at once, from a probability for each."""

    labels: tuple[str, ...]
    kind: Literal["multi-label"] = "multi-label"
    thresholds: tuple[float, ...] = (0.5,)
    """Probability from which on a label is given: one for all, or one for each."""

    def __post_init__(self) -> None:
        if not self.labels or len(set(self.labels)) != len(self.labels):
            raise ValueError("needs one or more labels, all different")
        if len(self.thresholds) not in (1, len(self.labels)) or not all(0 < one < 1 for one in self.thresholds):
            raise ValueError("thresholds must be one number for all labels, or one for each, between 0 and 1")

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one window's answer."""
        return (len(self.labels),)


if TYPE_CHECKING:
    AnyOutput = OutputContract | MultiLabelOutput
else:
    AnyOutput = schema.OneOf(
        "kind",
        "probabilities",
        **{
            "probabilities": f"{__name__}:OutputContract",
            "multi-label": f"{__name__}:MultiLabelOutput",
        },
    )
