"""Counts right and wrong answers while they come, as a sink beside the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from edge_runtime.base.system.loop import Loop
from edge_runtime.tools.demo.schedule import Truth
from edge_runtime.types import Answer, Correction, Done, Prediction


@dataclass(slots=True)
class Seen:
    """Truth and answers of one window."""

    watch: str
    truth: str
    local: str
    confidence: float
    route: str
    corrected: str | None = None


class DemoTally:
    """Sink that keeps the answers to every window, and compares them with the truth."""

    name = "tally"

    def __init__(self, truth: Truth) -> None:
        self._truth = truth
        self.windows: dict[str, Seen] = {}
        self.latest: dict[str, Seen] = {}
        self.repeats = 0

    def open(self, loop: Loop) -> None:
        """Do nothing; there is nothing to connect to."""

    def send(self, answers: Sequence[Answer], done: Done | None) -> None:
        """Count, and be done."""
        for answer in answers:
            if isinstance(answer, Correction):
                seen = self.windows.get(answer.id)
                if seen is not None:
                    self.repeats += seen.corrected is not None
                    seen.corrected = answer.label
                continue
            if not isinstance(answer, Prediction):
                continue  # a final message repeats the device's own answer, and an event is none
            turn = self._truth.at(answer.key, answer.start)
            if turn is not None:
                seen = Seen(answer.key, turn.recording.label, answer.label, answer.confidence, answer.route)
                self.windows[answer.id] = self.latest[answer.key] = seen
        if done is not None:
            done()

    def close(self, timeout_s: float) -> None:
        """Do nothing; there is nothing to close."""

    @property
    def provisional(self) -> int:
        """Windows whose correction was promised."""
        return sum(seen.route == "provisional" for seen in self.windows.values())

    @property
    def corrected(self) -> int:
        """Windows whose correction came."""
        return sum(seen.corrected is not None for seen in self.windows.values())

    def accuracy(self, *, with_cloud: bool) -> float:
        """Share of windows answered right, by the device alone or with the corrections that came."""
        if not self.windows:
            return 0.0
        right = sum(
            (seen.corrected if with_cloud and seen.corrected is not None else seen.local) == seen.truth
            for seen in self.windows.values()
        )
        return right / len(self.windows)
