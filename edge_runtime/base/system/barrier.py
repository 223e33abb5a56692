"""Fault barrier: what goes wrong in a side channel is counted and logged, and inference goes on.

A *side channel* is everything that the loop runs besides readings and answers: announcements, keys, chunks, status,
what an operator asks for. Its input comes from others, and its code is run seldom; so an unexpected exception
must not end the stream::

    barrier = Barrier("update", metrics)
    loop = GuardedLoop(loop, barrier)        # whatever is scheduled on it runs behind the barrier
    broker_client.listen([("fleet/update", 1)], receive, barrier)

Errors that a side channel expects (`EdgeError`) are its own to handle; the barrier is for the others.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable
from typing import Protocol

from edge_runtime.base.system.loop import Callback, Timer
from edge_runtime.clock import Clock
from edge_runtime.errors import one_line
from edge_runtime.metrics import Metrics

log = logging.getLogger(__name__)

_CAUSES = 64
"""Causes that are kept, so that each is logged once."""


class Barrier:
    """Catches every `Exception` of one side channel.

    Counts ``side_channel_errors_total``, and ``NAME_internal_error`` among the drops. Logs one line for each cause
    (type of the exception and line of code); the traceback goes to the debug log.

    Args:
        name: the side channel's name, for example ``update``.
        metrics: counters of the errors.
    """

    def __init__(self, name: str, metrics: Metrics) -> None:
        self.name = name
        self._metrics = metrics
        self._causes: set[tuple[str, str, int]] = set()

    def call(self, callback: Callable[[], object]) -> bool:
        """Call it; return whether it ended without an exception."""
        try:
            callback()
        except Exception as error:  # noqa: BLE001 - that is what a barrier is for
            self.caught(error)
            return False
        return True

    def caught(self, error: Exception) -> None:
        """Count and log an exception that was caught elsewhere, for example on another thread."""
        self._metrics.counts["side_channel_errors_total"] += 1
        self._metrics.dropped[f"{self.name}_internal_error"] += 1
        frames = traceback.extract_tb(error.__traceback__)
        place = (frames[-1].filename.rpartition("/")[2], frames[-1].lineno or 0) if frames else ("unknown", 0)
        cause = (type(error).__name__, *place)
        if cause in self._causes or len(self._causes) >= _CAUSES:
            return
        self._causes.add(cause)
        text = one_line(error, 200)
        line = "%s: unexpected error, inference goes on: error=%s at=%s:%d text=%r; please report it"
        log.error(line, self.name, *cause, text)
        log.debug("%s: traceback", self.name, exc_info=error)


class Scheduler(Protocol):
    """The part of a `Loop` that schedules."""

    @property
    def clock(self) -> Clock:
        """Return where time comes from."""
        ...

    def call_soon(self, callback: Callback) -> None:
        """Call in the next iteration; from the loop's own thread."""
        ...

    def call_soon_threadsafe(self, callback: Callback) -> None:
        """Call in the next iteration; from any thread."""
        ...

    def call_later(self, seconds: float, callback: Callback) -> Timer:
        """Call once after `seconds`."""
        ...


class GuardedLoop:
    """A scheduler whose callbacks run behind a barrier.

    Args:
        loop: runs them.
        barrier: catches what they raise.
    """

    def __init__(self, loop: Scheduler, barrier: Barrier) -> None:
        self._loop = loop
        self._barrier = barrier

    @property
    def clock(self) -> Clock:
        """Of the loop."""
        return self._loop.clock

    def call_soon(self, callback: Callback) -> None:
        """See `Loop.call_soon`."""
        self._loop.call_soon(lambda: self._barrier.call(callback))

    def call_soon_threadsafe(self, callback: Callback) -> None:
        """See `Loop.call_soon_threadsafe`."""
        self._loop.call_soon_threadsafe(lambda: self._barrier.call(callback))

    def call_later(self, seconds: float, callback: Callback) -> Timer:
        """See `Loop.call_later`."""
        return self._loop.call_later(seconds, lambda: self._barrier.call(callback))
