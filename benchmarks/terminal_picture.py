"""Picture of ``edge-runtime watch``: the screens of a real run as an SVG of text.

Command: ``python -m benchmarks.terminal_picture [--write]`` plays the demo (people 8 and 10) for some seconds, looks at
it as ``edge-runtime watch`` does, and writes ``docs/watch.svg``.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Final

from edge_runtime.clock import SystemClock
from edge_runtime.errors import EdgeError
from edge_runtime.operate.observe.asking import Asker
from edge_runtime.operate.watch.screen import Painter
from edge_runtime.operate.watch.terminal import Watcher

PICTURE: Final = Path(__file__).resolve().parents[1] / "docs" / "watch.svg"
WIDTH, HEIGHT = 80, 22
_CHAR, _LINE = 8.4, 18
_STYLES: Final = {
    "1": "font-weight:700",
    "2": "opacity:.65",
    "31": "fill:#ff8f87",
    "32": "fill:#74d99f",
    "33": "fill:#f0c066",
}
_CODE: Final = re.compile(r"\x1b\[(\d+)m")
_STARTED_S = 60.0


def svg(screens: Sequence[Sequence[str]]) -> str:
    """Draw screens below each other, each line a text of fixed width, with the colours of its ANSI codes."""
    tall = sum(len(screen) for screen in screens) * _LINE + 12 * len(screens) + 12
    says = "two screens of edge-runtime watch: all keys, and one key with its window"
    font = "14px ui-monospace,DejaVu Sans Mono,Menlo,Consolas,monospace"
    wide = round(WIDTH * _CHAR + 24)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {tall}" role="img" aria-label="{says}">',
        f"<style>text{{font:{font};white-space:pre;fill:#e6ece8}}</style>",
        f'<rect width="100%" height="{tall}" rx="8" fill="#141a17"/>',
    ]
    top = 12
    for screen in screens:
        for line in screen:
            parts += _line(line, top)
            top += _LINE
        top += 12
    return "\n".join([*parts, "</svg>"]) + "\n"


def _line(line: str, top: float) -> list[str]:
    """Draw a line: runs of one style each, at their column, so that no font shifts what follows."""
    parts, column, styles = [], 0, list[str]()
    for at, piece in enumerate(_CODE.split(line)):
        if at % 2:
            styles = [] if piece == "0" else [*styles, piece]
            continue
        if not piece:
            continue
        x = 12 + column * _CHAR
        wide = len(piece) * _CHAR
        if "7" in styles:
            parts.append(f'<rect x="{x:.1f}" y="{top}" width="{wide:.1f}" height="{_LINE}" fill="#2f4a3d"/>')
        style = ";".join(_STYLES[one] for one in styles if one in _STYLES)
        drawn = f' style="{style}"' if style else ""
        if piece.strip():
            parts.append(
                f'<text x="{x:.1f}" y="{top + 13.5}" textLength="{wide:.1f}" lengthAdjust="spacingAndGlyphs"{drawn} '
                f'xml:space="preserve">{escape(piece)}</text>'
            )
        column += len(piece)
    return parts


def screens(state: Path) -> list[list[str]]:
    """Look at the application that keeps its state in this folder: all keys, then one with its window and reasons."""
    clock = SystemClock()
    watcher = Watcher(Asker(state / "outbox.sock", clock), clock, Painter(colours=True))
    until = clock.monotonic() + _STARTED_S
    while True:
        try:
            watcher.ask()
            break
        except EdgeError:
            if clock.monotonic() > until:
                raise
            time.sleep(0.2)
    for _ in range(30):
        time.sleep(1.0)
        watcher.ask()
    keys = watcher.lines(WIDTH, HEIGHT)
    watcher.press("\x1b[B")
    watcher.press("\r")
    for _ in range(6):  # the next windows are kept
        time.sleep(1.0)
        watcher.ask()
    watcher.press("w")
    watcher.ask()
    return [keys, watcher.lines(WIDTH, HEIGHT + 4)]


def main() -> int:
    """Play the demo, look at it, write or print the picture."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--write", action="store_true", help="write docs/watch.svg")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        state = Path(folder) / "state"
        demo = subprocess.Popen(
            [sys.executable, "-m", "edge_runtime", "demo", "--speed", "2", "--state", str(state), "--json"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            found = screens(state)
        finally:
            demo.terminate()
            demo.wait(30)
    if options.write:
        PICTURE.write_text(svg(found), "utf-8")
    print("\n".join(line for screen in found for line in screen))
    return 0


if __name__ == "__main__":
    sys.exit(main())
