"""Tally of answers: windows by label, and hard ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TypedDict

from edge_runtime.base.system.loop import Loop
from edge_runtime.types import Answer, Done, Prediction

SHOWN_LABELS: Final = 10
"""Labels that the text shows, the most frequent first."""

MOST_LABELS: Final = 256
"""Labels that are told apart: the label of a measured quantity is another one with every window."""

OTHERS: Final = "(others)"


class Tallied(TypedDict):
    """All that a `Tally` has counted, as plain data."""

    labels: dict[str, int]
    hard: int


class Tally:
    """Sink that counts answers by label.

    Args:
        name: the sink's name in messages and metrics.
    """

    def __init__(self, *, name: str = "tally") -> None:
        self.name = name
        self.labels: Counter[str] = Counter()
        self.hard = 0

    def open(self, loop: Loop) -> None:
        """See `edge_runtime.io.sinks.Sink`."""

    def send(self, answers: Sequence[Answer], done: Done | None) -> None:
        """See `edge_runtime.io.sinks.Sink`."""
        self.add([answer for answer in answers if isinstance(answer, Prediction)])
        if done is not None:
            done()

    def close(self, timeout_s: float) -> None:
        """See `edge_runtime.io.sinks.Sink`."""

    def add(self, predictions: Sequence[Prediction]) -> None:
        """Count answers."""
        for prediction in predictions:
            label = prediction.label if len(self.labels) < MOST_LABELS or prediction.label in self.labels else OTHERS
            self.labels[label] += 1
        self.hard += sum(prediction.hard for prediction in predictions)

    def counts(self) -> Tallied:
        """Return all that was counted, as plain data for `merge`."""
        return {"labels": dict(self.labels), "hard": self.hard}

    def merge(self, counts: Tallied) -> None:
        """Add what another tally has counted."""
        self.labels.update(counts["labels"])
        self.hard += counts["hard"]

    def text(self) -> str:
        """Render the counts as a line for a person: ``labels: walk 312, run 40; 9 of 352 hard (2.6 %)``."""
        windows = sum(self.labels.values())
        if not windows:
            return "labels: none, since no window was answered"
        share = 100 * self.hard / windows
        return f"labels: {_listed(self.labels.most_common())}; {self.hard} of {windows} hard ({share:.1f} %)"


def summary(snapshot: Mapping[str, Any], *, stopped: bool) -> str:
    """Return the line of a replay that says how much was read, answered and dropped."""
    counts, dropped = snapshot["counts"], snapshot["dropped"]
    refused = ", ".join(f"{n} {reason}" for reason, n in sorted(dropped.items()) if n) or "nothing"
    return (
        ("stopped before the end of the recordings: " if stopped else "")
        + f"{counts.get('samples_total', 0)} samples, {counts.get('predictions_total', 0)} predictions, "
        f"{counts.get('hard_total', 0)} of them hard; dropped: {refused}"
    )


def _listed(counts: Iterable[tuple[str, int]]) -> str:
    named = [f"{label or '(none)'} {n}" for label, n in counts]
    more = [f"and {len(named) - SHOWN_LABELS} more"] if len(named) > SHOWN_LABELS else []
    return ", ".join(named[:SHOWN_LABELS] + more)
