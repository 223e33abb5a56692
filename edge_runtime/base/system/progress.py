"""Progress of a long command, for a person at a terminal: how far it is, and how long it will still take.

    files  [######              ]  312 of 1,000   day7.csv   4 min left

One line on standard error, drawn over itself and wiped at the end. Nothing is shown before two seconds have passed, and
nothing at all where standard error is not a terminal: logs and pipes stay as they were.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from types import TracebackType
from typing import Final, TextIO

from edge_runtime.base.system.printing import escaped, raw
from edge_runtime.clock import SystemClock

_AFTER_S: Final = 2.0
"""Quicker work shows nothing."""
_EVERY_S: Final = 0.2
_BAR: Final = 20


class Progress:
    """Line of progress; a context manager, so that it is wiped however the work ends.

    Not for several threads. Methods may be called as often as there is news; the terminal is written to five times a
    second at most.
    """

    def __init__(
        self,
        what: str,
        total: int | None = None,
        *,
        stream: TextIO | None = None,
        clock: Callable[[], float] | None = None,
    ) -> None:
        """Begin at 0.

        Args:
            what: name of the work, such as ``files``.
            total: steps that it takes; None where that is not known.
            stream: terminal to draw on; standard error if None.
            clock: seconds; the system's if None.
        """
        self._what = what
        self._total = total
        self._detail = ""
        self._done = 0.0
        self._skipped = 0.0
        self._stream = sys.stderr if stream is None else stream
        self._terminal = self._stream.isatty()
        self._clock = clock or SystemClock().monotonic
        self._began = self._clock()
        self._drawn_at = self._began + _AFTER_S - _EVERY_S
        self._shown = False

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.wipe()

    def advance(self, steps: float = 1, detail: str = "") -> None:
        """Count steps that were done, a part of one too, and name what is done now."""
        self._done += steps
        self._draw_if_due(detail)

    def skip(self, steps: float) -> None:
        """Count steps that an earlier run did: they say nothing about how long the rest takes."""
        self._done += steps
        self._skipped += steps

    def at(self, done: float, detail: str = "") -> None:
        """Say how many steps are done."""
        self._done = done
        self._draw_if_due(detail)

    def note(self, line: str) -> None:
        """Write a line that stays, terminal or not."""
        self.wipe()
        self._stream.write(f"{line}\n")
        self._stream.flush()

    def wipe(self) -> None:
        """Take the line away; the next news draw it again."""
        if self._shown:
            raw(self._stream).write("\r\x1b[K")
            self._stream.flush()
            self._shown = False

    def _draw_if_due(self, detail: str) -> None:
        self._detail = detail or self._detail
        if not self._terminal or (now := self._clock()) - self._drawn_at < _EVERY_S:
            return
        self._drawn_at = now
        width = shutil.get_terminal_size().columns - 1
        self._shown = True  # before it is: a Ctrl-C between the two would leave the line there
        raw(self._stream).write("\r" + escaped(self.line(now))[:width] + "\x1b[K")
        self._stream.flush()

    def line(self, now: float) -> str:
        """Return the line as it is at a time of the clock."""
        passed = now - self._began
        if self._total is None:
            parts = [self._what, f"{self._done:,.0f}", self._detail, f"{duration(passed)} so far"]
        else:
            share = min(1.0, self._done / self._total) if self._total else 1.0
            bar = "#" * int(_BAR * share)
            count = f"{self._done:,.0f} of {self._total:,}"
            parts = [self._what, f"[{bar:<{_BAR}}]", count, self._detail, self._left(passed)]
        return "  ".join(part for part in parts if part)

    def _left(self, passed: float) -> str:
        """Return the time left, as the steps of this run took it so far."""
        ours = self._done - self._skipped
        if self._total is None or ours <= 0:
            return ""
        return f"{duration(passed * max(0.0, self._total - self._done) / ours)} left"


def duration(seconds: float) -> str:
    """Return seconds in the largest units that say enough: ``40 s``, ``4 min``, ``2 h 10 min``."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 90:
        return f"{minutes} min"
    return f"{minutes // 60} h {minutes % 60} min"
