"""Stage: one part of the way of a message, and the batch of windows that the stages hand on.

A stage overrides what it has; of all else it does nothing. All methods belong to the loop's thread.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from edge_runtime.manifest import Manifest
from edge_runtime.signal.windowing.window import Window
from edge_runtime.types import Decision, Event, Float32, Hard, Prediction, Reading


class WindowBatch:
    """Windows of an iteration or of one call of the model, and what the stages have made of them so far.

    Args:
        windows: those of a key in their order.
        suspects: reasons why the readings of a window are suspect, by its place; the others are missing.
    """

    __slots__ = ("answers", "cases", "decision", "numbers", "suspects", "windows")

    def __init__(self, windows: Sequence[Window], suspects: dict[tuple[str, int], str] | None = None) -> None:
        self.windows = windows
        self.suspects = {} if suspects is None else suspects
        self.answers: list[Prediction | Event] = []
        self.cases: list[Hard] = []
        """Those that the cloud is asked about."""

    numbers: Float32
    """(windows, ...): the model's answer, of one call."""
    decision: Decision
    """The task's, of one call."""

    def part(self, windows: Sequence[Window]) -> WindowBatch:
        """Return some of the windows as a batch that adds to the same answers and cases."""
        part = WindowBatch(windows, self.suspects)
        part.answers, part.cases = self.answers, self.cases
        return part


class Stage:
    """A stage that does nothing; base of all others."""

    active: bool = False
    """`run` has something to do, by the bundle that answers."""

    def use(self, manifest: Manifest) -> None:
        """Work for this bundle from now on.

        Raises:
            ConfigError: it cannot.
        """

    def read(self, readings: Sequence[Reading]) -> None:
        """See readings before they become windows."""

    def run(self, batch: WindowBatch) -> None:
        """Do the stage's part for a batch."""

    def learn(self, outcomes: Iterable[tuple[bool, bool]]) -> None:
        """Learn from what the cloud answered: whether each case was hard, which audits are not, and was upheld."""

    def reset(self, keys: Collection[str]) -> set[str]:  # noqa: ARG002 - nothing is known
        """Let keys begin again with their next windows; returns those of which something was known."""
        return set()

    def finish(self) -> list[Event]:
        """End what is open, before a stop over which nothing of it is kept; returns what ends."""
        return []


class LearningStage(Stage):
    """Stage whose knowledge outlives the process."""

    def save(self) -> bytes:
        """Encode all that is known; empty where there is nothing."""
        raise NotImplementedError

    def restore(self, data: bytes) -> bool:
        """Go on where a run before was; False where it had another bundle.

        Raises:
            StoreError: the bytes are something else.
        """
        raise NotImplementedError
