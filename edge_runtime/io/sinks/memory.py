"""A sink that keeps answers in memory: for tests of your own, and for programs that embed a pipeline."""

from __future__ import annotations

from collections.abc import Sequence

from edge_runtime.base.system.loop import Loop
from edge_runtime.types import Answer, Done


class MemorySink:
    """Keeps what it is given.

    Args:
        hold: do not report answers as handed over until `release` is called, as a slow destination would.
        name: the sink's name in messages and metrics.
    """

    def __init__(self, *, hold: bool = False, name: str = "memory") -> None:
        self.name = name
        self.hold = hold
        self.answers: list[Answer] = []
        """Everything that was sent, in order."""
        self.opened = False
        self.closed = False
        self._held: list[Done] = []

    def open(self, loop: Loop) -> None:  # noqa: ARG002 - the protocol's
        """See `edge_runtime.io.sinks.Sink`."""
        self.opened = True

    def send(self, answers: Sequence[Answer], done: Done | None) -> None:
        """See `edge_runtime.io.sinks.Sink`."""
        self.answers += answers
        if done is None:
            return
        if self.hold:
            self._held.append(done)
        else:
            done()

    def release(self) -> int:
        """Report everything held back as handed over; returns how many calls of `send` that were."""
        held, self._held = self._held, []
        for done in held:
            done()
        return len(held)

    def close(self, timeout_s: float) -> None:  # noqa: ARG002 - the protocol's
        """See `edge_runtime.io.sinks.Sink`."""
        self.closed = True
        self.release()
