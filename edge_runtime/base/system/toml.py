"""TOML reader: the standard library's, and before Python 3.11 the package that it came from, behind bounds.

The library recurses for each level, is quadratic in the length of a dotted key, and keeps a kilobyte for each table. So
a text is looked at before it: its texts and comments are left out first, then

1. it has at most `MOST_CHARS` characters,
2. lists and tables nest at most `MOST_LEVELS` deep, dotted names too,
3. a number has at most `MOST_DIGITS` digits,
4. it has at most `MOST_TABLES` tables and dots of names.

The worst text that is read takes 24 MB (`python -m tests.faults.prices`).
"""

from __future__ import annotations

import re
import sys
from typing import Any, Final

if sys.version_info >= (3, 11):
    import tomllib as library  # novermin
else:
    import tomli as library

TOMLDecodeError = library.TOMLDecodeError

MOST_CHARS: Final = 2**20
MOST_LEVELS: Final = 32
MOST_DIGITS: Final = 128
MOST_TABLES: Final = 10_000

_BEGIN: Final = re.compile(r"\"\"\"|'''|[\"'#]")
_END: Final = {
    kind: re.compile(end, re.DOTALL)
    for kind, end in {'"': r'\\.|["\n]', "'": r"['\n]", '"""': r'\\.|"{3,5}', "'''": r"'{3,5}", "#": r"\n"}.items()
}
"""By the mark that begins a text or comment: the one that ends it, or an escape."""

_DOTTED: Final = re.compile(rf"(?<![\w-])(?:[\w-]+[ \t]*\.[ \t]*){{{MOST_LEVELS}}}")
_NUMBER: Final = re.compile(rf"(?<![\w-])(?:0[xob])?[\da-fA-F_]{{{MOST_DIGITS + 1}}}")
_TABLES: Final = re.compile(r"^[ \t]*\[|[.{]", re.MULTILINE)


class BoundError(TOMLDecodeError):
    """A text beyond the bounds of this reader, or one that the library fails at."""

    def __init__(self, reason: str) -> None:
        ValueError.__init__(self, reason)  # the library's own wants a text and a place from Python 3.14 on


def loads(text: str) -> dict[str, Any]:
    """Parse a text.

    Raises:
        TOMLDecodeError: it is not valid, or beyond the bounds.
    """
    if len(text) > MOST_CHARS:  # rule 1
        raise BoundError(f"{len(text):,} characters; at most {MOST_CHARS:,} are read")
    bare = _bare(text)
    level = 0
    for mark in re.findall(r"[\[\]{}]", bare):
        level += 1 if mark in "[{" else -1
        if level > MOST_LEVELS:  # rule 2
            raise BoundError(f"lists or tables nest deeper than {MOST_LEVELS}")
    if _DOTTED.search(bare):
        raise BoundError(f"a dotted name has more than {MOST_LEVELS} parts")
    if _NUMBER.search(bare):  # rule 3
        raise BoundError(f"a number has more than {MOST_DIGITS} digits")
    if sum(1 for _ in _TABLES.finditer(bare)) > MOST_TABLES:  # rule 4
        raise BoundError(f"more than {MOST_TABLES:,} tables and dots")
    try:
        return library.loads(text)
    except TOMLDecodeError:
        raise
    except (ValueError, RecursionError) as error:
        raise BoundError(f"{type(error).__name__}: {error}") from error


def _bare(text: str) -> str:
    """Return a text without its texts and comments; a loop, since a pattern for all would keep each step of its way."""
    kept: list[str] = []
    at = 0
    while (begin := _BEGIN.search(text, at)) is not None:
        kept.append(text[at : begin.start()])
        at = begin.end()
        while (mark := _END[begin[0]].search(text, at)) is not None:
            at = mark.end()
            if not mark[0].startswith("\\"):
                break
        kept.append("\n" if mark is not None and mark[0] == "\n" else "x")
        at = len(text) if mark is None else at
    return "".join([*kept, text[at:]])
