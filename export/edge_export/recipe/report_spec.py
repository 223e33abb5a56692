"""Facts of a recipe that the report puts its figures beside."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class BestKnown:
    """The best accuracy that is known for the task, published or measured elsewhere.

    Attributes:
        accuracy: share of right answers, on whatever groups its source says.
        source: who reached it, and where it is written.
    """

    accuracy: float
    source: str

    def __post_init__(self) -> None:
        if not 0 < self.accuracy <= 1:
            raise ValueError(f"accuracy {self.accuracy:g} is no share: 0.93 stands for 93 %")
        if not self.source.strip():
            raise ValueError("source is empty; name who reached it, and where that is written")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportRecipe:
    """Figures of others, for the report.

    Attributes:
        best_known: for the task; the report compares with the best of it and its own peers.
    """

    best_known: BestKnown
