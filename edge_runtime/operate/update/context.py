"""Everything that a rollout works on and with, and a run of it under way."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from edge_runtime.answer.pipeline import Pipeline
from edge_runtime.base.system.barrier import Scheduler
from edge_runtime.clock import Clock
from edge_runtime.metrics import Metrics
from edge_runtime.operate.update.acceptance import Rules
from edge_runtime.operate.update.boot import ModelHost, Served, Starter
from edge_runtime.operate.update.config import UpdateConfig
from edge_runtime.operate.update.job import Jobs
from edge_runtime.operate.update.shadow import Alone, Pair
from edge_runtime.operate.update.state import Installed
from edge_runtime.operate.update.update_store import UpdateStore
from edge_runtime.signal.windowing.config import WindowConfig

if TYPE_CHECKING:
    from edge_runtime.operate.update.proof import Proof


@dataclass(slots=True)
class CandidateRun:
    """A shadow run or a trial under way."""

    candidate: Installed
    new: Served
    pair: Pair | Alone
    rules: Rules
    began: float
    answers: int
    """Number of answers when the last one was seen."""
    readings: int
    """Number of readings at that time."""
    answered_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutContext:
    """Everything that a rollout works on and with."""

    config: UpdateConfig
    window: WindowConfig
    threshold: float | None
    """Of the configuration's gate."""
    store: UpdateStore
    starter: Starter
    host: ModelHost
    metrics: Metrics
    clock: Clock
    loop: Scheduler
    jobs: Jobs
    pipeline: Pipeline
    publish_status: Callable[[], None]
    """Called when something changed that the status shows."""
    on_idle: Callable[[], None]
    """Called when it is idle again: the next bundle may come."""
    proof: Proof | None = None
    """With ``prove = "better"``."""

    def proof_of(self, candidate: Installed) -> Proof | None:
        """Return what has to prove a candidate, or None: no labels are asked for, or an operator installs it."""
        return None if candidate.by_operator else self.proof
