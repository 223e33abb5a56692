"""Labels set while recording: by number keys in a terminal, by lines on a pipe."""

from __future__ import annotations

import contextlib
import math
import os
import stat
import termios
import tty
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from edge_runtime.base.system.loop import Loop
from edge_runtime.clock import Clock, SystemClock
from edge_runtime.types import Float64

MAX_LABEL: Final = 64
"""Characters of a label."""
_KEYS: Final = "123456789"
PAUSE: Final = "0 "
"""Keys that pause: nothing is recorded until a label is chosen."""


class CurrentLabel:
    """The label that rows get now.

    1. Names given at the start have the number keys from 1; the first one is current.
    2. A line on a pipe is a label, new or known; an empty line pauses.
    3. While paused, nothing is recorded.

    Args:
        names: the labels' names; none: rows get no label, and nothing pauses.
        changed: called when the current label has changed.
        clock: dates the changes.
    """

    def __init__(
        self, names: Sequence[str], changed: Callable[[], None] = lambda: None, clock: Clock | None = None
    ) -> None:
        self.names = list(dict.fromkeys(names))
        self.current = self.names[0] if self.names else ""
        self._changed = changed
        self._line = b""
        self._wall = (clock or SystemClock()).wall
        self._since = [-math.inf]
        self._labels = [self.current]

    def at(self, times: Float64) -> list[str]:
        """Return the label of each moment, wall-clock seconds; empty where nothing was to be recorded."""
        return [self._labels[bisect_right(self._since, t) - 1] for t in times.tolist()]

    def press(self, keys: str) -> None:
        """Take pressed keys: 1 to 9 choose a label, 0 and space pause."""
        for key in keys:
            if key in PAUSE:
                self._choose("")
            elif key in _KEYS[: len(self.names)]:
                self._choose(self.names[_KEYS.index(key)])

    def feed(self, data: bytes) -> None:
        """Take bytes of a pipe: each whole line is a label."""
        *lines, rest = (self._line + data).split(b"\n")
        self._line = rest[: 4 * MAX_LABEL]
        for line in lines if self.names else ():
            name = line.decode("utf-8", "replace").strip()
            if len(name) > MAX_LABEL or not (name.isprintable() or not name):
                continue
            if name and name not in self.names:
                self.names.append(name)
            self._choose(name)

    def _choose(self, name: str) -> None:
        if name != self.current and self.names:
            self.current = name
            self._since.append(max(self._wall(), self._since[-1]))
            self._labels.append(name)
            self._changed()

    @contextmanager
    def read_from(self, fd: int, loop: Loop) -> Iterator[bool]:
        """Read keys or lines from a terminal, a pipe or a socket while the block runs.

        Args:
            fd: descriptor of standard input.
            loop: the loop on which it is read.

        Returns:
            Whether it is a terminal, whose keys are read one by one.
        """
        terminal, readable = _kind(fd)
        if not readable or not self.names:
            yield False
            return

        def read() -> None:
            try:
                data = os.read(fd, 4096)
            except OSError:
                data = b""
            if not data:
                loop.unwatch(fd)
            elif terminal:
                self.press(data.decode("utf-8", "ignore"))
            else:
                self.feed(data)

        with _single_keys(fd) if terminal else contextlib.nullcontext():
            loop.watch(fd, read)
            try:
                yield terminal
            finally:
                loop.unwatch(fd)


def _kind(fd: int) -> tuple[bool, bool]:
    """Return whether a descriptor is a terminal in the foreground, and whether it can be waited for."""
    try:
        if os.isatty(fd):
            foreground = os.tcgetpgrp(fd) == os.getpgrp()
            return foreground, foreground
        mode = os.fstat(fd).st_mode
    except OSError:
        return False, False
    return False, stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


@contextmanager
def _single_keys(fd: int) -> Iterator[None]:
    """Have a terminal hand over keys as they are pressed, without showing them; Ctrl-C still ends the program."""
    before = termios.tcgetattr(fd)
    tty.setcbreak(fd)
    try:
        yield
    finally:
        termios.tcsetattr(fd, termios.TCSADRAIN, before)
