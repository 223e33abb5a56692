"""The terminal of ``edge-runtime watch``: alternate screen, single keys, one picture each half second.

Plain ANSI (ECMA-48) and `select`: what it costs beside the application that it watches is 0.3 ms a picture. The screen
and the settings of the terminal are given back however it ends.
"""

from __future__ import annotations

import os
import select
import shutil
import sys
import termios
import tty
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from edge_runtime.base.system.printing import raw
from edge_runtime.clock import Clock
from edge_runtime.errors import ConnectionFailed, EdgeError
from edge_runtime.operate.observe.asking import Asker
from edge_runtime.operate.watch.screen import MIN_HEIGHT, MIN_WIDTH, Painter, ViewState, clean, draw

EVERY_S: Final = 0.5
_ENTER: Final = "\x1b[?1049h\x1b[?25l"
_LEAVE: Final = "\x1b[?25h\x1b[?1049l"
_ESCAPES: Final = {"\x1b[A": "up", "\x1b[B": "down", "\x1bOA": "up", "\x1bOB": "down"}


class Watcher:
    """Shows an application until the person leaves.

    Args:
        asker: the application.
        clock: monotonic time for the pace.
        paint: colours.
    """

    def __init__(self, asker: Asker, clock: Clock, paint: Painter) -> None:
        self._asker = asker
        self._clock = clock
        self._paint = paint
        self._view = ViewState()
        self._report: dict[str, Any] | None = None
        self._detail: dict[str, Any] | None = None
        self._why: dict[str, Any] | None = None

    def run(self) -> None:
        """Draw and obey keys, until ``q``; raises `ConnectionFailed` if the application is not there to begin with."""
        self.ask()
        with _raw_terminal():
            due = 0.0
            while True:
                now = self._clock.monotonic()
                if now >= due:
                    self._ask_again()
                    self._draw()
                    due = now + EVERY_S
                if select.select([sys.stdin], [], [], max(0.0, due - self._clock.monotonic()))[0]:
                    keys = os.read(sys.stdin.fileno(), 256).decode("utf-8", "replace")
                    if not keys or not self.press(keys):
                        return
                    self._draw()

    # -- keys ----------------------------------------------------------------------------------------------------------

    def press(self, keys: str) -> bool:
        """Obey key presses; return whether to go on."""
        self._view.notice = ""
        if self._view.typing:
            self._type(keys)
            return True
        known = _ESCAPES.get(keys)
        if known is not None:
            self._view.chosen = max(0, self._view.chosen + (1 if known == "down" else -1))
            return True
        return all(self._obey(key) for key in keys.replace("\x1b", "b"))

    def _obey(self, key: str) -> bool:
        view = self._view
        if key in {"q", "\x03"}:
            if view.page == "keys" or key == "\x03":
                return False
            view.page = "keys"
        elif key == "b":
            view.page = "keys"
        elif key == "p":
            view.paused = not view.paused
        elif key == "/":
            view.typing, view.filter, view.page = True, "", "keys"
        elif key == "d":
            view.page = "keys" if view.page == "drops" else "drops"
        elif key in {"\r", "\n"}:
            self._enter()
        elif key == "w":
            self._explain()
        return True

    def _type(self, keys: str) -> None:
        view = self._view
        for key in keys:
            if key in {"\r", "\n"}:
                view.typing = False
            elif key == "\x1b":
                view.typing, view.filter = False, ""
            elif key in {"\x7f", "\x08"}:
                view.filter = view.filter[:-1]
            elif key.isprintable():
                view.filter = (view.filter + key)[:100]

    def _enter(self) -> None:
        shown = self._report["keys"] if self._report else []
        if shown and self._view.page == "keys":
            self._view.key = shown[min(self._view.chosen, len(shown) - 1)]["key"]
            self._view.page, self._detail, self._why = "key", None, None
            self._ask_again()

    def _explain(self) -> None:
        if self._view.page != "key":
            self._enter()
        try:
            self._why = self._asker.explain(self._view.key)
        except EdgeError as error:
            self._view.notice = str(error)

    # -- pictures ------------------------------------------------------------------------------------------------------

    def ask(self) -> None:
        """Ask for a picture; raises as `Asker.ask` does."""
        self._report = self._asker.report(filter_text=self._view.filter)
        if self._view.page == "key":
            try:
                self._detail = self._asker.key(self._view.key)
            except ConnectionFailed:
                raise
            except EdgeError:
                self._detail = None

    def _ask_again(self) -> None:
        if self._view.paused:
            return
        try:
            self.ask()
        except EdgeError as error:
            self._view.notice = str(error)

    def lines(self, width: int, height: int) -> list[str]:
        """Return the screen as it is to be drawn."""
        if width < MIN_WIDTH or height < MIN_HEIGHT or self._report is None:
            return [clean(f"make the terminal {MIN_WIDTH} x {MIN_HEIGHT} at least", width)]
        detail = self._detail
        if detail is not None and self._why is not None:
            detail = detail | {"why": self._why}
        return draw(self._report, detail, self._view, width, height, self._paint)

    def _draw(self) -> None:
        lines = self.lines(*shutil.get_terminal_size())
        raw(sys.stdout).write("\x1b[H" + "\x1b[K\r\n".join(lines) + "\x1b[K\x1b[J")
        sys.stdout.flush()


@contextmanager
def _raw_terminal() -> Iterator[None]:
    """Take the terminal over, and give it back as it was."""
    fd = sys.stdin.fileno()
    before = termios.tcgetattr(fd)
    try:
        tty.setcbreak(fd)
        raw(sys.stdout).write(_ENTER)
        sys.stdout.flush()
        yield
    finally:
        raw(sys.stdout).write(_LEAVE)
        sys.stdout.flush()
        termios.tcsetattr(fd, termios.TCSADRAIN, before)
