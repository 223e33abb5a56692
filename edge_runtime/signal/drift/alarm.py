"""An alarm of drift, as it is logged, counted, and kept over a restart."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

AlarmCause = Literal["orientation", "unit", "changed"]


@dataclass(frozen=True, slots=True)
class Alarm:
    """One cause at one key, from when it began until it ends."""

    key: str
    cause: AlarmCause
    detector: str
    """That found it, as `edge_runtime.signal.drift.config.DriftConfig` names it."""
    since: float
    """Stamp of the end of the first window that told of it, seconds."""
    message: str
    """What is likely wrong, and what to do."""
