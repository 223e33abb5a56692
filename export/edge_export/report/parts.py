"""What several sections are made of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from edge_export.report.markup import (
    Content,
    Markup,
    digits3,
    joined,
    micros,
    size,
    tag,
    thousands,
)


def section(title: str, *parts: Content) -> Markup:
    """A part of the page under a heading of its own."""
    return tag("section", tag("h2", title), joined(parts))


def facts(values: Mapping[str, Any]) -> Markup:
    """A table of figures whose names say what they are, ``window_us`` for instance."""
    rows: list[Content] = []
    for key, value in values.items():
        if isinstance(value, Mapping):
            rows += [tag("dt", _words(key)), tag("dd", facts(value))]
        elif value is not None:
            rows += [tag("dt", _words(key)), tag("dd", _said(key, value))]
    return tag("dl", joined(rows))


def _words(key: str) -> str:
    return key.removesuffix("_us").replace("_", " ")


def _said(key: str, value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(str(each) for each in value)
    if isinstance(value, int | float):
        if key.endswith("_us"):
            return micros(value)
        if key.endswith("bytes"):
            return size(value)
        if isinstance(value, float):
            return f"{value:.1e}" if 0 < abs(value) < 1e-3 else digits3(value)
        return thousands(value)
    return str(value)
