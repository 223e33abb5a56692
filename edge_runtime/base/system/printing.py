r"""Text as it is printed and logged: whatever a stranger's file or message put into it, it cannot steer a terminal.

1. Controls (C0, DEL, C1), marks that turn the direction of a text, and separators of lines are written as JSON writes
   them, \u001b; so JSON stays the same JSON. Line feed and tab stay, and a carriage return at the start of what is
   written, by which our own progress is drawn.
2. An error or a line of the log is one line, line feeds in it are written as \n, and has at most `LONGEST` characters:
   its middle is left out, since what to do about it comes last.
3. Screens of our own (`raw`) are drawn past this, and clean what they draw themselves.
"""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, TextIO, cast

LONGEST: Final = 2000
_UNSAFE: Final = re.compile(
    r"(?!\A)\r(?!\n)|[\0-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)


def escaped(text: str) -> str:
    """Return a text by rule 1."""
    return _UNSAFE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def shortened(text: str, most: int = LONGEST) -> str:
    """Return one line of a text by rule 2."""
    text = escaped(text).replace("\n", "\\n")
    if len(text) <= most:
        return text
    return f"{text[: most * 2 // 3]} ... ({len(text) - most:,} characters) ... {text[-most // 3 :]}"


class LogFormatter(logging.Formatter):
    """Formatter of log lines, by rule 2; tracebacks of the debug log follow on lines of their own."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's own name
        """Return the line of a record."""
        return shortened(super().formatMessage(record))


class _Escaping:
    """Stream that escapes what is written, and is the stream itself in all else."""

    def __init__(self, stream: TextIO) -> None:
        self.raw_stream = stream

    def write(self, text: str) -> int:
        self.raw_stream.write(escaped(text))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.raw_stream, name)


def raw(stream: TextIO) -> TextIO:
    """Return the stream below, for a screen of our own (rule 3)."""
    return cast("TextIO", getattr(stream, "raw_stream", stream))


@contextmanager
def escaped_output() -> Iterator[None]:
    """Escape what is written to standard output and standard error."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (cast("TextIO", one and _Escaping(raw(one))) for one in before)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before
