"""Sinks: a file for each destination of answers; `Sink` is all that the pipeline knows of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from edge_runtime.base.system.loop import Loop
from edge_runtime.types import Answer, Done

if TYPE_CHECKING:
    from edge_runtime.manifest import Manifest


class Described(NamedTuple):
    """Fields that answers may have, for sinks that state them before the first answer."""

    manifest: Manifest
    """Of the bundle that answers; an update may bring another one."""
    labels: tuple[str, ...]
    """Of the scores of an answer; examples that are added on the device bring others."""
    events: tuple[str, ...]
    """Names of the event rules."""


class Sink(Protocol):
    """Something that takes predictions and corrections, on the loop's thread.

    A sink never blocks the loop: one that has to wait (a webhook) owns a bounded queue and a thread that waits.
    """

    name: str

    def open(self, loop: Loop) -> None:
        """Get ready. A sink that cannot reach its destination yet keeps trying and logs it."""
        ...

    def send(self, answers: Sequence[Answer], done: Done | None) -> None:
        """Take answers, in order per key.

        Args:
            answers: what to hand over.
            done: called once, on the loop's thread, when all of them are handed over (written, or acknowledged where
                the transport acknowledges) or dropped by the sink's stated policy, and counted. None: nothing waits.
        """
        ...

    def close(self, timeout_s: float) -> None:
        """Hand over what is queued, within the time given, then close everything. May be called twice."""
        ...
