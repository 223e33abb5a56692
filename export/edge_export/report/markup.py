"""SVG elements as text, every value escaped; and numbers as people read them."""

from __future__ import annotations

import math
from collections.abc import Iterable

from markupsafe import Markup, escape

_THIN = "\u202f"
"""Between a number and its unit; no line breaks there."""
NONE = "–"  # noqa: RUF001 - the dash of an empty cell in a table

Content = str | float
"""Text, a number, or `Markup`, which is not escaped again."""


def tag(name: str, *content: Content, **attributes: Content) -> Markup:
    """Write one element.

    Args:
        name: the element's name.
        content: what stands in it; anything but `Markup` is escaped.
        attributes: their values; ``class_`` is written ``class``, other underscores become hyphens. Coordinates keep
            two decimals, which no eye can tell from more.
    """
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(_number(value))}"' for key, value in attributes.items()
    )
    return Markup(f"<{name}{written}>{joined(content)}</{name}>")  # noqa: S704 - all of it is escaped above


def joined(parts: Iterable[Content]) -> Markup:
    """Join contents, one after the other."""
    return Markup("").join(map(_number, parts))


def _number(value: Content) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else escape(value)


# -- numbers -----------------------------------------------------------------------------------------------------------


def percent(share: float | None, digits: int = 1) -> str:
    r"""Write a share from 0 to 1; one that is not whole is never rounded up to it.

    >>> percent(0.8493), percent(0.99996), percent(1.0)
    ('84.9\u202f%', '99.996\u202f%', '100.0\u202f%')
    """
    if share is None or not math.isfinite(share):
        return NONE
    while share < 1 and digits < 6 and float(f"{100 * share:.{digits}f}") >= 100:
        digits += 1
    return f"{100 * share:.{digits}f}{_THIN}%"


def points(share: float | None) -> str:
    """Write a difference of shares, in points of a hundred, with its sign.

    >>> points(0.0123), points(0.0)
    ('+1.23', '0.00')
    """
    if share is None or not math.isfinite(share):
        return NONE
    text = f"{100 * share:+.2f}"
    return text.lstrip("+-") if float(text) == 0 else text.replace("-", "−")  # noqa: RUF001 - the minus of a table


def size(count: float | None) -> str:
    r"""Write bytes, in powers of a thousand.

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
    r"""Write a time that was measured in microseconds.

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
    r"""Write a whole number with thin gaps.

    >>> thousands(80688) == "80\u202f688"
    True
    """
    return NONE if value is None else f"{round(value):,}".replace(",", _THIN)


def digits3(value: float) -> str:
    """Write three significant digits.

    >>> digits3(0.52341), digits3(1.5), digits3(15.04), digits3(150.4)
    ('0.523', '1.50', '15.0', '150')
    """
    if value == 0 or not math.isfinite(value):
        return "0" if value == 0 else NONE
    decimals = min(6, max(0, 2 - math.floor(math.log10(abs(value)))))
    return f"{value:.{decimals}f}"
