"""Sources: a file for each origin of readings; `Source` is all that the pipeline knows of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from edge_runtime.base.system.loop import Loop
from edge_runtime.types import Done, Reading


class Deliver(Protocol):
    """Callback through which a source hands readings to the pipeline."""

    def __call__(self, readings: Sequence[Reading], received: float, done: Done | None) -> None:
        """Take readings that arrived together.

        Args:
            readings: decoded messages in the order of arrival. What could not be decoded is counted and left out.
            received: monotonic time of arrival, seconds.
            done: called once, on the loop's thread, when the consequences of all of them are safe: results handed to
                the sinks, hard cases committed. A source acknowledges then and not before. None where nothing waits.
        """
        ...


class Source(Protocol):
    """Something that delivers readings on the loop's thread."""

    name: str
    """As it appears in messages and metrics."""

    def open(self, loop: Loop, deliver: Deliver) -> None:
        """Start delivering. A source that cannot reach its origin yet keeps trying and logs it.

        Raises:
            ConfigError: what it needs does not exist, and trying again would not help (a missing file).
        """
        ...

    def pause(self) -> None:
        """Take nothing new from now on: the pipeline is draining. Acknowledgements still go out."""
        ...

    def close(self) -> None:
        """Close everything. May be called twice."""
        ...

    @property
    def finished(self) -> bool:
        """True when nothing will come any more; always False for a live source."""
        ...
