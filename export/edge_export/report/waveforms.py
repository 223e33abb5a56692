"""Drawings of windows: a pane for each unit, a line for each channel, the same scales in all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from edge_export.report.charts import legend
from edge_export.report.plot import Scale, drawing, line, path, scale_for, text

_WIDE = 280.0
_LEFT = 52.0
_PANE = 58.0
_GAP = 20.0
_COLOURS = "abcdef"
"""Classes of channels' lines; from the seventh channel on they come again, dashed."""
_PANES = 3


def channel_legend(channels: Sequence[Mapping[str, str]], drawn: int) -> Markup:
    """Name the lines of the channels that are drawn; `drawn` is how many."""
    entries = []
    for place, channel in enumerate(channels[:drawn]):
        unit = f", {channel['unit']}" if channel.get("unit", "1") != "1" else ""
        entries.append((f"wave {_line(place)} line", f"{channel['name']}{unit}"))
    return legend(*entries)


def window(
    shown: Mapping[str, Any], channels: Sequence[Mapping[str, str]], beside: Sequence[Mapping[str, Any]], seconds: float
) -> Markup:
    """Draw one window.

    Args:
        shown: its ``values`` by channel, and where it was cut.
        channels: name and unit of each.
        beside: all windows that are to have the same scales, this one among them.
        seconds: length of a window.
    """
    panes = _panes(channels, len(shown["values"]))
    height = 8 + (_PANE + _GAP) * len(panes) + 6
    parts: list[Markup] = []
    for row, (unit, members) in enumerate(panes.items()):
        top = 8 + (_PANE + _GAP) * row
        values = [value for each in beside for place in members for value in each["values"][place]]
        parts += _pane(shown["values"], members, unit, _scale(values, top))
    parts.append(text(_LEFT, height - 8, "0", class_="tick"))
    parts.append(text(_WIDE - 2, height - 8, f"{seconds:.4g} s", anchor="end", class_="tick"))
    names = ", ".join(channel["name"] for channel in channels[: len(shown["values"])])
    return drawing(_WIDE, height, f"window of group {shown['group']}: {names}", *parts)


def _scale(values: Sequence[float], top: float) -> Scale:
    """Fit a linear scale to the values of a pane."""
    y = scale_for(values, top + _PANE, top)
    return Scale(low=min(values), high=max(values), begin=y.begin, end=y.end) if y.logarithmic else y


def _pane(lines: Sequence[Sequence[float]], members: Sequence[int], unit: str, y: Scale) -> list[Markup]:
    """Draw the channels of one unit between the ends of their scale."""
    parts = [text(_LEFT - 6, (y.begin + y.end) / 2, unit, anchor="end", class_="label")]
    for end in (y.low, y.high):
        parts.append(line(_LEFT, y(end), _WIDE - 2, y(end), "grid"))
        parts.append(text(_LEFT - 6, y(end), f"{end:.4g}", anchor="end", class_="tick"))
    for place in members:
        x = Scale(low=0, high=max(1, len(lines[place]) - 1), begin=_LEFT, end=_WIDE - 2)
        parts.append(path([(x(at), y(value)) for at, value in enumerate(lines[place])], f"wave {_line(place)}"))
    return parts


def _line(place: int) -> str:
    again = " again" if place >= len(_COLOURS) else ""
    return f"w{_COLOURS[place % len(_COLOURS)]}{again}"


def _panes(channels: Sequence[Mapping[str, str]], drawn: int) -> dict[str, list[int]]:
    """Group channels by unit; of more units than there is room for, the first ones."""
    panes: dict[str, list[int]] = {}
    for place, channel in enumerate(channels[:drawn]):
        unit = channel.get("unit", "1")
        panes.setdefault("" if unit == "1" else unit, []).append(place)
    return dict(list(panes.items())[:_PANES])
