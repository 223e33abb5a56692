"""Log lines about keys, with a bound: a sender of readings could fill the log with them."""

from __future__ import annotations

import logging
import math
from typing import Final

from edge_runtime.clock import Clock

LINES: Final = 8
"""Log lines in `LINES_S`; the others are counted."""

LINES_S: Final = 60.0


class BoundedLog:
    """Log with a bound: `LINES` in `LINES_S`.

    Args:
        clock: monotonic time.
        log: the log of the module that speaks.
        room: what it is called in the log.
    """

    def __init__(self, clock: Clock, log: logging.Logger, room: str) -> None:
        self._clock = clock
        self._to = log
        self._room = room
        self._until = -math.inf
        self._left = 0
        self._left_out = 0

    def log(self, level: int, line: str) -> None:
        """Log a line, or count it as left out."""
        now = self._clock.monotonic()
        if now >= self._until:
            self._until, self._left = now + LINES_S, LINES
        if not self._left:
            self._left_out += 1
            return
        self._left -= 1
        more = f"; {self._left_out} lines about other keys were left out" if self._left_out else ""
        self._left_out = 0
        self._to.log(level, "%s: %s%s", self._room, line, more)
