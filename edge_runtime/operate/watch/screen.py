"""Screens of ``edge-runtime watch``: a picture of an application as lines of text, in a given width and height.

Pure: no terminal is touched here. What comes from outside (keys, labels, topics) is cleaned before it is drawn: a
control character in a key must not move the cursor of the person who looks on.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

_BARS: Final = "▁▂▃▄▅▆▇█"
_CODES: Final = {
    "plain": "\x1b[0m", "bold": "\x1b[1m", "dim": "\x1b[2m", "red": "\x1b[31m", "green": "\x1b[32m",
    "yellow": "\x1b[33m", "reverse": "\x1b[7m",
}  # fmt: skip
SPARK: Final = 16
"""Answers in a sparkline."""
MIN_WIDTH: Final = 40
MIN_HEIGHT: Final = 10
HELP: Final = "q quit  p pause  / filter  arrows choose  enter look  w why  d drops"


@dataclass(slots=True)
class ViewState:
    """Choices of the person who looks on."""

    filter: str = ""
    typing: bool = False
    """The filter is being typed."""
    paused: bool = False
    chosen: int = 0
    """Place of the chosen key among those shown."""
    page: str = "keys"
    """``keys``, ``drops`` or ``key``."""
    key: str = ""
    """Key that is looked at on the page ``key``."""
    notice: str = ""
    """Line for the person, until the next key press."""


class Painter:
    """Puts colours around texts, or leaves them alone.

    Args:
        colours: whether the terminal has them.
    """

    def __init__(self, *, colours: bool) -> None:
        self._colours = colours

    def __call__(self, text: str, *styles: str) -> str:
        """Return the text in these styles."""
        if not self._colours or not styles or not text:
            return text
        return "".join(_CODES[style] for style in styles) + text + _CODES["plain"]


def clean(text: str, width: int) -> str:
    """Make a text harmless, and exactly `width` columns wide; what is cut off ends with ``…``."""
    safe = "".join("·" if unicodedata.category(char)[0] in "CZ" and char != " " else char for char in text)
    columns = 0
    taken: list[str] = []
    for char in safe:
        wide = columns_of(char)
        if columns + wide > width:
            while taken and columns + 1 > width:
                columns -= columns_of(taken.pop())
            if width:
                taken.append("…")
                columns += 1
            break
        taken.append(char)
        columns += wide
    return "".join(taken) + " " * (width - columns)


def columns_of(char: str) -> int:
    """Return the columns that a terminal gives a character."""
    if unicodedata.combining(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def sparkline(values: Sequence[float], width: int) -> str:
    """Draw the last `width` values, 0 to 1, as bars."""
    last = [min(1.0, max(0.0, value)) for value in values[-width:]]
    return "".join(_BARS[min(7, int(8 * value))] for value in last).rjust(width)


def curve(values: Sequence[float], width: int) -> str:
    """Draw a channel of a window in one line of bars, from its lowest to its highest value."""
    if not values:
        return " " * width
    low, high = min(values), max(values)
    span = high - low or 1.0
    picked = [values[at * len(values) // width] for at in range(width)] if len(values) > width else list(values)
    return "".join(_BARS[min(7, int(8 * (value - low) / span))] for value in picked).ljust(width)


def duration(seconds: float) -> str:
    """Write a time in two units at most: ``3 s``, ``4 m 10 s``, ``2 d 3 h``."""
    left = max(0, int(seconds))
    if left < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{left} s"
    for unit, inner, outer, name in ((60, 3600, "m", "s"), (3600, 86_400, "h", "m"), (86_400, math.inf, "d", "h")):
        if left < inner:
            smaller = left % unit // {"m": 1, "h": 60, "d": 3600}[outer]
            return f"{left // unit} {outer} {smaller} {name}" if smaller else f"{left // unit} {outer}"
    return f"{left} s"


def draw(
    report: Mapping[str, Any],
    detail: Mapping[str, Any] | None,
    view: ViewState,
    width: int,
    height: int,
    paint: Painter,
) -> list[str]:
    """Draw a screen.

    Args:
        report: one picture (`edge_runtime.operate.observe.report`).
        detail: picture of the key that is looked at; None on other pages.
        view: what the person has chosen.
        width: columns.
        height: lines; what does not fit is left out.
        paint: colours.

    Returns:
        At most `height` lines of at most `width` columns.
    """
    lines = _head(report, view, width, paint)
    room = height - len(lines) - 1
    if view.page == "key":
        body = _key_page(detail, view, width, room, paint)
    elif view.page == "drops":
        body = _drops_page(report, width, paint)
    else:
        body = _keys_page(report, view, width, room, paint)
    lines += body[: max(0, room)]
    lines += [""] * (height - 1 - len(lines))
    foot = f"filter: {view.filter}_ (enter to keep, esc to drop)" if view.typing else view.notice or HELP
    return [*lines[: height - 1], paint(clean(foot, width), "reverse")]


def _head(report: Mapping[str, Any], view: ViewState, width: int, paint: Painter) -> list[str]:
    app, rates, backend = report["app"], report["rates"], report["backend"]
    brokers = report["brokers"]
    away = [name for name, connected in brokers.items() if not connected]
    state = paint(" PAUSED ", "yellow", "reverse") if view.paused else ""
    first = f"{app['model']}  {backend.get('backend', backend.get('variant', ''))}  up {duration(app['uptime_s'])}"
    lines = [paint(clean(first, width - (9 if state else 0)), "bold") + (" " + state if state else "")]
    lines.append(
        clean(
            f"{rates['messages_per_s']:.3g} msg/s  {rates['predictions_per_s']:.3g} answers/s  unsure "
            f"{rates['hard_share']:.0%}  cloud {rates['cloud_share']:.0%}  engine "
            f"{report['latency_ms']['engine']['p50']:.3g} ms  p99 {report['latency_ms']['total']['p99']:.3g} ms",
            width,
        )
    )
    lines.append(clean(_state_line(report), width))
    if away:
        lines.append(paint(clean(f"broker {', '.join(away)} is not connected", width), "red"))
    stalled = [one for one in report.get("sinks", ()) if one["stalled_s"]]
    for one in stalled:
        text = f"{one['name']} takes no answers for {duration(one['stalled_s'])}: {one['waiting']} wait"
        lines.append(paint(clean(text, width), "red"))
    if failed := backend.get("failed"):
        lines.append(
            paint(clean(f"failed: {'; '.join(f'{name}: {why}' for name, why in failed.items())}", width), "red")
        )
    alarms = [f"{alarm['key']}: {alarm['message']}" for alarm in report["alarms"][:3]]
    lines += [paint(clean(text, width), "red") for text in alarms]
    governor = report.get("governor")
    if governor and governor.get("level"):
        lines.append(paint(clean(f"stepped down {governor['level']} times: {governor.get('reason')}", width), "yellow"))
    return lines


def _state_line(report: Mapping[str, Any]) -> str:
    """Outbox, cloud, board and drops, as far as there are any."""
    parts = []
    outbox, cloud, board = report.get("outbox"), report["cloud"], report.get("board") or {}
    if outbox is not None:
        waits = f" ({duration(outbox['oldest_age_s'])})" if outbox["queued"] else ""
        parts.append(f"outbox {outbox['queued']}{waits}" + (f" dead {outbox['dead']}" if outbox["dead"] else ""))
    if cloud["url"]:
        reached = {None: "not asked", 0.0: "UNREACHABLE", 1.0: "up"}.get(cloud["reachable"], "up")
        parts.append(f"cloud {reached}, {cloud['corrections']} corrections")
    if "temperature_c" in board:
        parts.append(f"{board['temperature_c']:.0f} °C" + (" THROTTLED" if board.get("throttled") else ""))
    memory = report.get("process", {}).get("resident_bytes")
    if memory:
        parts.append(f"{memory / 2**20:.0f} MB")
    dropped = sum(one["count"] for one in report["drops"])
    parts.append(f"dropped {dropped}" if dropped else "nothing dropped")
    return "  ".join(parts)


def _keys_page(report: Mapping[str, Any], view: ViewState, width: int, room: int, paint: Painter) -> list[str]:
    keys = report["keys"]
    if not keys:
        return ["", clean("no key has answered yet" if not view.filter else f"no key has '{view.filter}' in it", width)]
    view.chosen = max(0, min(view.chosen, len(keys) - 1))
    events = report["events"][-3:]
    rows = max(1, room - 2 - (len(events) + 1 if events else 0))
    first = max(0, view.chosen - rows + 1)
    longest = max(sum(map(columns_of, one["key"])) for one in keys[first : first + rows])
    name = max(6, min(longest, 24, width - SPARK - 34))
    title = f"{'key':{name}} {'label':14} {'conf':>5} {'':{SPARK}} {'age':>7}"
    lines = [paint(clean(title, width), "dim")]
    for place, one in enumerate(keys[first : first + rows], start=first):
        lines.append(_row(one, width, name, chosen=place == view.chosen, paint=paint))
    hidden = report["keys_found"] - min(len(keys), rows)
    if hidden > 0:
        lines.append(paint(clean(f"and {hidden} more keys; / filters", width), "dim"))
    if events:
        lines.append("")
        lines += [clean(f"{one['event']} {one['kind']}s on {one['key']}: {one['label']}", width) for one in events]
    return lines


def _row(one: Mapping[str, Any], width: int, name: int, *, chosen: bool, paint: Painter) -> str:
    history = [step[1] for step in one["history"]]
    marks = []
    if one["suspect"]:
        marks.append(one["suspect"])
    if one["corrected"]:
        marks.append("cloud agrees" if one["corrected"] == one["label"] else f"→ {one['corrected']}")
    elif one["hard"]:
        marks.append("unsure")
    number = one["number"]
    confidence = f"{one['confidence']:.0%}" if number is None else f"{number:.3g}"
    text = (
        f"{clean(one['key'], name)} {clean(one['label'] or '(none)', 14)} {confidence:>5} "
        f"{sparkline(history, SPARK)} {duration(one['age_s']):>7} {', '.join(marks)}"
    )
    styles = ["reverse"] if chosen else []
    if one["suspect"]:
        styles.append("red")
    elif one["hard"]:
        styles.append("yellow")
    return paint(clean(text, width), *styles)


def _drops_page(report: Mapping[str, Any], width: int, paint: Painter) -> list[str]:
    if not report["drops"]:
        return ["", clean("nothing was dropped", width)]
    lines = []
    for one in report["drops"]:
        lines.append(paint(clean(f"{one['count']} {one['what']}: {one['reason']}", width), "bold"))
        lines += [f"  {line}" for line in wrapped(one["advice"], width - 2)]
        if one["example"]:
            lines.append(paint("  " + clean(f"the last one: {one['example']}", width - 2), "dim"))
    return lines


def _key_page(detail: Mapping[str, Any] | None, view: ViewState, width: int, room: int, paint: Painter) -> list[str]:
    if detail is None:
        return ["", clean(f"{view.key} has not answered lately", width)]
    confidence = f"{detail['label']} {detail['confidence']:.1%}" + (", unsure" if detail["hard"] else "")
    corrected = f", corrected to {detail['corrected']}" if detail["corrected"] else ""
    lines = [
        paint(clean(f"key {detail['key']}", width), "bold"),
        clean(f"{confidence}{corrected}  {duration(detail['age_s'])} ago  {detail['id']}", width),
    ]
    if detail["suspect"]:
        lines.append(paint(clean(f"readings are suspect: {detail['suspect']}", width), "red"))
    scores = sorted(zip(detail["labels"], detail["scores"], strict=False), key=lambda pair: -pair[1])
    lines += [
        clean(f"  {clean(label, 14)} {score:6.1%} {'█' * int(score * max(0, width - 26))}", width)
        for label, score in scores[:5]
    ]
    window = detail["window"]
    if window is None:
        lines.append(clean("its next window will be drawn here", width))
    else:
        seconds = window["length"] / window["rate_hz"]
        lines.append(paint(clean(f"last window, {seconds:g} s:", width), "dim"))
        for channel, values in zip(window["channels"], window["values"], strict=False):
            lines.append(clean(f"  {clean(channel['name'], 10)} {curve(values, max(1, width - 13))}", width))
    why = detail.get("why")
    if why:
        lines.append(
            paint(clean(f"why {why['label'] or 'this answer'}: what moved it (+ for, - against)", width), "dim")
        )
        effects = sorted(why["channels"].items(), key=lambda pair: -abs(pair[1]))
        for name, effect in effects[:6]:
            lines.append(
                clean(f"  {clean(name, 10)} {effect:+.3f} {_shares(why['cells'].get(name, ()), width - 22)}", width)
            )
    left = max(0, room - len(lines))
    lines += [clean("  " + _step_line(step), width) for step in reversed(detail["steps"][-left:])][:left]
    return lines


def _step_line(step: Sequence[Any]) -> str:
    """Describe an earlier answer (`edge_runtime.operate.observe.live._Step`)."""
    _, label, confidence, hard, corrected, _ = step
    mark = f" → {corrected}" if corrected else " unsure" if hard else ""
    return f"{label or '(none)'} {confidence:.0%}{mark}"


def _shares(cells: Sequence[float], width: int) -> str:
    """Draw the effects of the spans of a channel, by their size."""
    most = max((abs(cell) for cell in cells), default=0.0) or 1.0
    return "".join(_BARS[min(7, int(7.99 * abs(cell) / most))] * 2 for cell in cells)[: max(0, width)]


def wrapped(text: str, width: int) -> list[str]:
    """Break a text at spaces."""
    lines: list[str] = [""]
    for word in text.split():
        if lines[-1] and len(lines[-1]) + 1 + len(word) > width:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return [clean(line, width).rstrip() for line in lines]
