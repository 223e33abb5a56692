"""Tasks: what the numbers of a model mean, on the device, from the cloud, and next to another model's.

A model answers windows with numbers, one row each. A `Task` makes predictions of them, tells hard rows from easy ones,
compares two models, and reads what the cloud answers. No other room takes the largest of several scores, which
`tests/contracts/test_task.py` holds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, Protocol

from edge_runtime.base.oip import Array, OipTensor
from edge_runtime.model.tasks.answers import AnswerTypes
from edge_runtime.signal.windowing.window import Window
from edge_runtime.types import Correction, Decision, Float32, Prediction

ReplyValues = Literal["probabilities", "logits"]
"""Kind of numbers that the cloud's model answers with, where they are probabilities of labels."""

Author = tuple[str, str]
"""Bundle (``name/version``) and variant that answered."""


class Finding(NamedTuple):
    """One answer in words, as predictions and corrections carry it."""

    label: str
    confidence: float
    scores: list[float]
    own: Mapping[str, Any] = {}
    """Fields of the task's own (`edge_runtime.model.tasks.answers`)."""


class Task(Protocol):
    """Meaning of a model's answers. Without state: the same numbers mean the same at any time."""

    outputs: tuple[OipTensor, ...]
    """Answer of a server that offers such a model, first axis the windows; the first one is the answer itself."""
    asked: bool
    """The cloud can be asked about an answer."""
    types: AnswerTypes
    """Classes of its answers."""

    def decide(self, answers: Float32, /) -> Decision:
        """Decide for each window, (windows, ...), which ones are hard; one with NaN is."""
        ...

    def predictions(
        self, windows: Sequence[Window], answers: Float32, decision: Decision, latencies_ms: list[float], by: Author
    ) -> list[Prediction]:
        """Make the predictions of windows, routed ``local``.

        Args:
            windows: 1 or more.
            answers: a row for each.
            decision: what `decide` said of `answers`.
            latencies_ms: one for each.
            by: author of the answers.
        """
        ...

    def agree(self, one: Float32, other: Float32) -> list[bool]:
        """Compare two models' answers to the same windows: would a user be told the same?"""
        ...

    def offer(self, answers: Float32) -> dict[str, Array]:
        """Make the tensors of `outputs` of a model's answers, for a server that offers it."""
        ...

    def read_reply(self, reply: Mapping[str, Array], n: int, values: ReplyValues, /) -> list[Finding]:
        """Read what the cloud answered to n cases.

        Args:
            reply: what it answered, by the names of `outputs`; it may have left some out.
            n: cases that were asked.
            values: what its numbers are.

        Raises:
            CloudRejected: the answer makes no sense.
        """
        ...

    def correction(self, found: Finding, mine: Finding, common: Mapping[str, Any], /) -> Correction:
        """Make the correction of a case.

        Args:
            found: what the cloud answered.
            mine: what the device answered. Where nothing did there are no scores, and `Finding.own` has ``task`` at
                most; scores of another bundle are left out too.
            common: the fields that `found` does not have.
        """
        ...

    def upheld(self, correction: Correction) -> bool:
        """Return whether the cloud's answer to a case is the device's own."""
        ...
