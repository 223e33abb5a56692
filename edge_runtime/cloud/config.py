"""Settings of the table ``[escalation]``: how hard cases are asked of the cloud."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class EscalationConfig:
    """How hard cases are asked and what the cloud's output means."""

    deadline_s: float = 60.0
    """An answer after this is published all the same, marked late."""
    max_batch: int = 16
    """Hard cases in one request."""
    input: str = ""
    """Name of the cloud model's input; empty takes its only one."""
    output: str = ""
    """Name of the output that holds the answer; empty takes the first."""
    output_kind: Literal["probabilities", "logits"] = "probabilities"
    labels: tuple[str, ...] = ()
    """Labels in the order of the cloud's output; empty means the bundle's."""
    unreadable_attempts: int = 5
    """How often a case is tried when the answer makes no sense, before it goes to the dead letters; at least twice.
    Only
    attempts with good answers to other cases in between count: a captive portal is not the case's fault."""
    commit_attempts: int = 3
    """How often a commit is tried before its cases are dropped and counted: a full disk must not stop the stream."""
    max_pending: int = 4096
    """Cases that may wait for a commit; what comes on top is dropped and counted."""

    def __post_init__(self) -> None:
        if self.deadline_s <= 0:
            raise ValueError("deadline_s must be above 0")
        for name in ("max_batch", "unreadable_attempts", "commit_attempts", "max_pending"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1")
