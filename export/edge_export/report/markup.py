"""HTML and SVG as text, every value escaped; and numbers as people read them."""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

_THIN = "\u202f"
"""Between a number and its unit; no line breaks there."""
NONE = "–"  # noqa: RUF001 - the dash of an empty cell in a table


@dataclass(frozen=True, slots=True)
class Markup:
    """Text that is HTML already and is not escaped again."""

    text: str


Content = Markup | str | float


def tag(name: str, *content: Content, **attributes: str | float) -> Markup:
    """One element.

    Args:
        name: of the element.
        content: what stands in it; anything but `Markup` is escaped.
        attributes: their values; ``class_`` is written ``class``, other underscores become hyphens. Coordinates keep
            two decimals, which no eye can tell from more.
    """
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{html.escape(_number(value))}"' for key, value in attributes.items()
    )
    inside = joined(content).text
    return Markup(f"<{name}{written}>{inside}</{name}>")


def joined(parts: Iterable[Content]) -> Markup:
    """Several contents, one after the other."""
    return Markup("".join(part.text if isinstance(part, Markup) else html.escape(_number(part)) for part in parts))


def table(head: Sequence[Content], rows: Iterable[Sequence[Content]], *, numbers: Sequence[int] = ()) -> Markup:
    """A table.

    Args:
        head: names of its columns.
        rows: their cells.
        numbers: columns that hold numbers, and are set flush right.
    """

    def cells(kind: str, values: Sequence[Content]) -> Markup:
        return joined(
            tag(kind, value, class_="n") if place in numbers else tag(kind, value) for place, value in enumerate(values)
        )

    body = joined(tag("tr", cells("td", row)) for row in rows)
    return tag("div", tag("table", tag("thead", tag("tr", cells("th", head))), tag("tbody", body)), class_="wide")


def _number(value: str | float) -> str:
    if isinstance(value, str):
        return value
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)


# -- numbers -----------------------------------------------------------------------------------------------------------


def percent(share: float | None, digits: int = 1) -> str:
    r"""A share from 0 to 1; one that is not whole is never rounded up to it.

    >>> percent(0.8493), percent(0.99996), percent(1.0)
    ('84.9\u202f%', '99.996\u202f%', '100.0\u202f%')
    """
    if share is None or not math.isfinite(share):
        return NONE
    while share < 1 and digits < 6 and float(f"{100 * share:.{digits}f}") >= 100:
        digits += 1
    return f"{100 * share:.{digits}f}{_THIN}%"


def points(share: float | None) -> str:
    """A difference of shares, in points of a hundred, with its sign.

    >>> points(0.0123), points(0.0)
    ('+1.23', '0.00')
    """
    if share is None or not math.isfinite(share):
        return NONE
    text = f"{100 * share:+.2f}"
    return text.lstrip("+-") if float(text) == 0 else text.replace("-", "−")  # noqa: RUF001 - the minus of a table


def size(count: float | None) -> str:
    r"""Bytes, in powers of a thousand.

    >>> size(812), size(11_460), size(4_656_332)
    ('812\u202fB', '11.5\u202fkB', '4.66\u202fMB')
    """
    if count is None:
        return NONE
    for unit, limit in (("B", 1e3), ("kB", 1e6), ("MB", 1e9)):
        if count < limit:
            return f"{count:.0f}{_THIN}B" if unit == "B" else f"{digits3(count / (limit / 1e3))}{_THIN}{unit}"
    return f"{digits3(count / 1e9)}{_THIN}GB"


def micros(value: float | None) -> str:
    r"""A time that was measured in microseconds.

    >>> micros(13.18), micros(1340.0), micros(2_500_000.0)
    ('13.2\u202fµs', '1.34\u202fms', '2.50\u202fs')
    """
    if value is None or not math.isfinite(value):
        return NONE
    for unit, limit in (("µs", 1e3), ("ms", 1e6)):
        if value < limit:
            return f"{digits3(value / (limit / 1e3))}{_THIN}{unit}"
    return f"{digits3(value / 1e6)}{_THIN}s"


def thousands(value: float | None) -> str:
    r"""A whole number with thin gaps.

    >>> thousands(80688) == "80\u202f688"
    True
    """
    return NONE if value is None else f"{round(value):,}".replace(",", _THIN)


def digits3(value: float) -> str:
    """Three digits that count.

    >>> digits3(0.52341), digits3(1.5), digits3(15.04), digits3(150.4)
    ('0.523', '1.50', '15.0', '150')
    """
    if value == 0 or not math.isfinite(value):
        return "0" if value == 0 else NONE
    decimals = min(6, max(0, 2 - math.floor(math.log10(abs(value)))))
    return f"{value:.{decimals}f}"
