"""TOML of a ``[[source]]`` table with a comment at each guess, and the same as plain data."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

_BARE: Final = re.compile(r"[A-Za-z0-9_-]+")
_COLUMN: Final = 36
"""Where comments begin, as in the examples of the docs."""


@dataclass(frozen=True, slots=True)
class Line:
    """A setting and what it rests on."""

    key: str
    value: Any
    comment: str = ""

    def text(self) -> str:
        """Return its line of TOML."""
        return commented(f"{toml_key(self.key)} = {toml_value(self.value)}", self.comment)


@dataclass(slots=True)
class SourceTable:
    """One ``[[source]]``: its own settings, the codec's, and tables below either."""

    source: list[Line] = field(default_factory=list)
    codec: list[Line] = field(default_factory=list)
    below: dict[str, list[Line]] = field(default_factory=dict)
    """By path below ``source``, as ``codec.channels``."""
    notes: list[str] = field(default_factory=list)
    """Comments before the table."""

    def data(self) -> dict[str, Any]:
        """Return what a TOML reader makes of it."""
        found: dict[str, Any] = {line.key: line.value for line in self.source}
        if self.codec:
            found["codec"] = {line.key: line.value for line in self.codec}
        for path, lines in self.below.items():
            table = found
            for step in path.split("."):
                table = table.setdefault(step, {})
            table |= {line.key: line.value for line in lines}
        return found

    def text(self) -> str:
        """Return it as TOML, with its comments."""
        parts = [*(f"# {plain(note)}" for note in self.notes), "[[source]]", *(line.text() for line in self.source)]
        if self.codec:
            parts += ["", "[source.codec]", *(line.text() for line in self.codec)]
        for path, lines in self.below.items():
            parts += ["", f"[source.{path}]", *(line.text() for line in lines)]
        return "\n".join(parts) + "\n"


def commented(line: str, comment: str) -> str:
    """Put a comment behind a line."""
    return f"{line:<{_COLUMN - 1}} # {plain(comment)}" if comment else line


def plain(text: str) -> str:
    """Return a text on one line, without what a comment or a terminal must not see."""
    return "".join(letter if letter.isprintable() else "?" for letter in " ".join(text.split()))


def toml_key(key: str) -> str:
    """Write a key, quoted where it must be."""
    return key if _BARE.fullmatch(key) else toml_value(key)


def toml_value(value: Any) -> str:
    """Write a value: texts, numbers, truth values, lists, and tables in one line."""
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{toml_key(key)} = {toml_value(one)}' for key, one in value.items())}}}"
    if isinstance(value, Sequence):
        return f"[{', '.join(map(toml_value, value))}]"
    return repr(value)
