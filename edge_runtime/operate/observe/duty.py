"""Duty: the share of a core that the observers' thread may use, whatever is asked of it.

Threads of one process take turns under the interpreter's lock, so what observers use is taken from the stream.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from edge_runtime.clock import Clock, thread_cpu

SHARE: Final = 0.02
"""Of a core. A page on ten keys needs a tenth of it."""
BURST_S: Final = 0.01
"""CPU time that may be used at once after a rest: a page and its files, and no more than a late window may wait."""
_LONGEST_REST_S: Final = 0.25


class Duty:
    """Has its thread rest until what it has used is within the share. Everything happens on that thread.

    Args:
        clock: how time passes.
        share: share of a core, above 0.
        cpu: CPU time of the thread so far, seconds.
    """

    def __init__(self, clock: Clock, share: float = SHARE, cpu: Callable[[], float] = thread_cpu) -> None:
        self._clock = clock
        self._share = share
        self._cpu = cpu
        self._credit = BURST_S
        self._seen = clock.monotonic()
        self._used: float | None = None

    def rest(self) -> None:
        """Rest as long as the share asks for, at most a quarter of a second; what is owed then is owed still."""
        now, used = self._clock.monotonic(), self._cpu()
        spent = 0.0 if self._used is None else used - self._used
        self._credit = min(BURST_S, self._credit + self._share * (now - self._seen) - spent)
        self._seen, self._used = now, used
        if self._credit < 0:
            self._clock.sleep(min(_LONGEST_REST_S, -self._credit / self._share))
