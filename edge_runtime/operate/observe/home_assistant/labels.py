"""Labels that people give through Home Assistant: written down, and used by nothing as they are.

Anybody who may publish on the topic can write one, so a person has to confirm them before they train or prove anything.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from edge_runtime.io.sinks.jsonl import JsonlSink, JsonlSinkConfig
from edge_runtime.metrics import Metrics
from edge_runtime.types import Correction, JsonLine, Prediction

_MAX_BYTES: Final = 2**20
_KEPT: Final = 1


@dataclass
class Label(JsonLine):
    """A label that was given for an answer; its field names are public."""

    id: str
    """Of the answer."""
    key: str
    start: float
    end: float
    label: str
    """Label that was given."""
    answered: str
    """Label of the answer, or of its correction."""
    model: str
    at: float
    """Wall clock, seconds since 1970."""
    source: str = "home_assistant"
    confirmed: bool = False
    """Always false: who gave it is not known."""

    @classmethod
    def of(cls, answer: Prediction | Correction, label: str, at: float) -> Label:
        """Make the label of a key's last answer."""
        return cls(answer.id, answer.key, answer.start, answer.end, label, answer.label, answer.model, at)


def label_sink(path: Path, metrics: Metrics) -> JsonlSink:
    """Build what writes them: a file of 1 MiB at most, and one old one."""
    return JsonlSink(
        JsonlSinkConfig(path=path, max_bytes=_MAX_BYTES, keep=_KEPT), metrics, name="home_assistant.labels"
    )
