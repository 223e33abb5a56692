"""A pair of axes as SVG: scales with round ticks, and the marks that stand in them.

Colours and fonts are classes of ``templates/style.css``, so a drawing follows the reader's light or dark setting;
lengths are in pixels of the drawing, which is as wide as a telephone and grows a little with its column.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from edge_export.report.markup import joined, tag

WIDTH = 344.0
"""Width of a drawing that a telephone shows as it is: 390 pixels less the margins of the page, and some to spare."""
GAP = 15.0
"""Least distance of two labels below each other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """An axis: places of values in pixels.

    Attributes:
        low: value at `begin`.
        high: value at `end`.
        begin: pixel.
        end: pixel; may be below `begin`, for an axis that points up.
        logarithmic: equal factors take equal room.
    """

    low: float
    high: float
    begin: float
    end: float
    logarithmic: bool = False

    def __call__(self, value: float) -> float:
        """Return the pixel of a value; values beyond the ends are taken to the end."""
        value = min(max(value, self.low), self.high)
        if self.logarithmic:
            share = math.log(value / self.low) / math.log(self.high / self.low)
        else:
            share = (value - self.low) / (self.high - self.low)
        return self.begin + share * (self.end - self.begin)

    def ticks(self, about: int = 5) -> list[float]:
        """Return round values within the scale.

        Args:
            about: how many, roughly.
        """
        if not self.logarithmic:
            step = _round_step((self.high - self.low) / about)
            first = math.ceil(self.low / step - 1e-9)
            return [round(i * step, 12) for i in range(first, math.floor(self.high / step + 1e-9) + 1)]
        decades = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        many = math.log10(self.high / self.low) > 2
        steps = (1,) if many else (1, 2, 5)
        return [m * 10.0**d for d in decades for m in steps if self.low * 0.999 <= m * 10.0**d <= self.high * 1.001]


def scale_for(
    values: Sequence[float], begin: float, end: float, *, zero: bool = False, most: float = math.inf
) -> Scale:
    """Fit a scale to some values with a little room around them.

    Args:
        values: finite.
        begin: pixel of the low end.
        end: pixel of the high end.
        zero: begin at 0, as bars must.
        most: end that nothing goes beyond, such as 1 for a share.
    """
    low, high = (min(0.0, *values) if zero else min(values)), max(values)
    if not zero and low > 0 and high / low > 6 and most == math.inf:
        return Scale(low=low / 1.3, high=high * 1.3, begin=begin, end=end, logarithmic=True)
    room = (high - low) or abs(high) or 1.0
    step = _round_step(room * 1.1 / 5)
    bottom = 0.0 if zero and low == 0 else math.floor((low - 0.05 * room) / step) * step
    top = min(most, math.ceil((high + 0.05 * room) / step - 1e-9) * step)
    if not zero and low >= 0:
        bottom = max(bottom, 0.0)
    return Scale(low=bottom, high=max(top, bottom + 1e-9), begin=begin, end=end)


def _round_step(rough: float) -> float:
    """Round up to 1, 2, 5 or 10 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(rough))
    return next(m * power for m in (1, 2, 5, 10) if m * power >= rough * (1 - 1e-9))


def text(x: float, y: float, content: str, *, anchor: str = "start", class_: str = "") -> Markup:
    """Draw a line of text whose middle is at `y`."""
    return tag("text", content, x=x, y=y + 4, text_anchor=anchor, **({"class_": class_} if class_ else {}))


def line(x1: float, y1: float, x2: float, y2: float, class_: str) -> Markup:
    """Draw a straight line."""
    return tag("line", x1=float(x1), y1=float(y1), x2=float(x2), y2=float(y2), class_=class_)


def path(places: Sequence[tuple[float, float]], class_: str) -> Markup:
    """Draw a line through several places."""
    return tag("path", d="M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in places), class_=class_)


def dot(x: float, y: float, class_: str, title: str, *, square: bool = False, radius: float = 5.0) -> Markup:
    """Draw a mark with what it says when it is pointed at."""
    if square:
        side = 1.8 * radius
        return box(x - side / 2, y - side / 2, side, side, class_, title, rx=1.5)
    return tag("circle", tag("title", title), cx=float(x), cy=float(y), r=radius, class_=class_)


def box(
    x: float, y: float, width: float, height: float, class_: str, title: str, *, rx: float = 2, opacity: str = "1"
) -> Markup:
    """Draw a rectangle with what it says when it is pointed at; `x` and `y` are its upper left corner."""
    shape = {"x": x, "y": y, "width": width, "height": height, "rx": rx}
    return tag("rect", tag("title", title), **shape, class_=class_, fill_opacity=opacity)


def drawing(width: float, height: float, title: str, *parts: Markup) -> Markup:
    """Wrap parts in an SVG that is read out as its title; one wider than a telephone scrolls within its frame."""
    inside = tag("title", title), joined(parts)
    frame = {"viewBox": f"0 0 {width:.0f} {height:.0f}", "role": "img"}
    if width <= WIDTH:
        return tag("svg", *inside, **frame, class_="plot")
    drawn = tag("svg", *inside, **frame, style=f"width:{width:.0f}px")
    return tag("div", drawn, class_="wide", tabindex="0", role="region", aria_label=title)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlotAxes:
    """Two axes around a plot.

    Attributes:
        x: scale to the right.
        y: scale upwards: its `begin` is the bottom.
    """

    x: Scale
    y: Scale

    def axes(
        self,
        *,
        x_label: str,
        y_label: str,
        x_text: Callable[[float], str],
        y_text: Callable[[float], str],
    ) -> Markup:
        """Draw the grid, ticks with their texts, and labels."""
        left, right, bottom, top = self.x.begin, self.x.end, self.y.begin, self.y.end
        parts = []
        for value in self.y.ticks():
            at = self.y(value)
            parts += [line(left, at, right, at, "grid"), text(left - 8, at, y_text(value), anchor="end", class_="tick")]
        written = -math.inf
        for value in self.x.ticks():
            at = self.x(value)
            parts.append(line(at, bottom, at, top, "grid"))
            if at - written >= 48:
                parts.append(text(at, bottom + 14, x_text(value), anchor="middle", class_="tick"))
                written = at
        parts += [
            line(left, bottom, right, bottom, "axis"),
            text((left + right) / 2, bottom + 34, x_label, anchor="middle", class_="label"),
            text(left, top - 16, y_label, anchor="start", class_="label"),
        ]
        return joined(parts)


def spread(wanted: Sequence[float], low: float, high: float, gap: float = GAP) -> list[float]:
    """Place labels, in the given order, near where they are wanted and at least a gap apart.

    Args:
        wanted: rising.
        low: least place.
        high: largest place; exceeded only where there are more labels than room.
        gap: between neighbours.

    >>> spread([10.0, 11.0, 50.0], 0.0, 60.0, 10.0)
    [10.0, 20.0, 50.0]
    """
    places: list[float] = []
    for place in wanted:
        places.append(max(place, low, places[-1] + gap if places else low))
    ceiling = max(high, low + gap * (len(places) - 1))
    for i in range(len(places) - 1, -1, -1):
        places[i] = min(places[i], ceiling)
        ceiling = places[i] - gap
    return places
