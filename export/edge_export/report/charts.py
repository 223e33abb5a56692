"""Drawings of the report, each from the figures it shows."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from markupsafe import Markup

from edge_export.report.figures import BASELINE, TEACHER, CandidateFile, Interval, front
from edge_export.report.markup import digits3, joined, micros, percent, points, size, tag, thousands
from edge_export.report.plot import WIDTH, PlotAxes, Scale, box, dot, drawing, line, path, scale_for, spread, text

_ROW = 38.0
"""Height of a row that has its name above its mark."""
_EDGE = 6.0
_LONGEST = 16
"""Letters of a class's name beside the confusion matrix."""


def _room(names: Iterable[str]) -> float:
    """Return the pixels that the longest of some names takes, bold."""
    return min(176.0, 22 + 7.2 * max((len(name) for name in names), default=0))


def intervals(scores: Mapping[str, Interval], device: str, metric: str) -> Markup:
    """Draw scores as dots with their 95 % intervals, one row each."""
    bottom = _ROW * len(scores) + 8
    x = scale_for([end for score in scores.values() for end in (score.low, score.high)], _EDGE, WIDTH - _EDGE, most=1.0)
    parts = [_grid(x, bottom, f"{metric} on test groups", _tick_share(x))]
    for row, (name, score) in enumerate(scores.items()):
        y, bold = 28.0 + _ROW * row, "strong" if name == device else ""
        kind = "device" if name == device else {TEACHER: "cloud", BASELINE: "baseline"}.get(name, "other")
        spoken = f"{name}: {percent(score.value, 2)}, 95 % interval {percent(score.low)} to {percent(score.high)}"
        parts += [
            *_named(y - 16, name, percent(score.value, 2), bold),
            line(x(score.low), y, x(score.high), y, f"whisker {kind}"),
            dot(x(score.value), y, f"mark {kind}", spoken),
        ]
    return drawing(WIDTH, bottom + 44, f"{metric} on test groups with 95 % intervals", *parts)


def _named(y: float, name: str, value: str, class_: str = "") -> tuple[Markup, Markup]:
    """Write a row's name at the left and its value at the right, above its mark."""
    return text(_EDGE, y, name, class_=class_), text(WIDTH - _EDGE, y, value, anchor="end", class_=class_)


def latencies(candidates: Sequence[CandidateFile]) -> Markup:
    """Draw the median time per window as bars, with a line to the 95th percentile; nothing where none was timed."""
    timed = [each for each in candidates if each.p50_us is not None]
    if not timed:
        return Markup("")
    timed.sort(key=lambda each: (float(each.timing["ratio"]), each.name))
    bottom = _ROW * len(timed) + 8
    x = scale_for([float(each.timing["p95_us"]) for each in timed], _EDGE, WIDTH - _EDGE - 10, zero=True)
    parts = [_grid(x, bottom, "median, and line to the 95th percentile, one thread", micros)]
    for row, each in enumerate(timed):
        y, p50, p95 = 28.0 + _ROW * row, float(each.timing["p50_us"]), float(each.timing["p95_us"])
        value = f"{micros(p50)}, {digits3(each.timing['ratio'])} × the reference"  # noqa: RUF001 - a factor
        spoken = f"{each.name}: median {micros(p50)}, 95th percentile {micros(p95)}"
        kind = f"bar {each.format}{'' if each.shipped else ' lost'}"
        parts += [
            *_named(y - 16, each.name, value, "strong" if each.shipped else ""),
            box(x(0), y - 6, max(1.0, x(p50) - x(0)), 12, kind, spoken),
            line(x(p50), y, x(p95), y, "whisker faint"),
        ]
    return drawing(WIDTH, bottom + 44, "time per window of each candidate", *parts)


def pareto(candidates: Sequence[CandidateFile], by: str, metric: str) -> Markup:
    """Draw score against cost; the line joins what nothing else beats.

    1. The line rises in steps: there is nothing to choose between two candidates.
    2. Names stand apart at the right, in the order of their marks, so that none covers another.
    3. Marks are drawn last, above lines; their form tells the format, their class whether it ships.

    Args:
        candidates: those without the cost or the score are left out.
        by: ``latency`` or ``bytes``.
        metric: what the score is.
    """
    shown = [
        (float(cost), each.validation, each)
        for each in candidates
        if (cost := each.p50_us if by == "latency" else each.size) is not None and each.validation is not None
    ]
    if not shown:
        return Markup("")
    height = max(250.0, 15.0 * len(shown) + 90)
    right = WIDTH - _room(each.name for _, _, each in shown)
    x = scale_for([value for value, _, _ in shown], 58, right)
    y = scale_for([score.value for _, score, _ in shown], height - 48, 34, most=1.0)
    frame = PlotAxes(x=x, y=y)
    spoken = micros if by == "latency" else size
    parts = [
        frame.axes(
            x_label="median time per window" if by == "latency" else "bytes on disk",
            y_label=f"{metric}, groups not seen",
            x_text=spoken,
            y_text=_tick_share(y),
        )
    ]
    best = front([(value, score.value) for value, score, _ in shown])
    steps: list[tuple[float, float]] = []
    for i in best:  # rule 1
        place = x(shown[i][0]), y(shown[i][1].value)
        steps += [(place[0], steps[-1][1]), place] if steps else [place]
    parts.append(path([*steps, (x.end, steps[-1][1])], "front"))
    order = sorted(range(len(shown)), key=lambda i: (y(shown[i][1].value), -x(shown[i][0])))
    labels = spread([y(shown[i][1].value) for i in order], 30, height - 52)
    for i, at in zip(order, labels, strict=True):  # rule 2
        value, score, each = shown[i]
        px, py = x(value), y(score.value)
        parts += [
            path([(px, py), (right + 8, at), (right + 14, at)], "leader"),
            text(right + 18, at, each.name, class_="small" + (" strong" if i in best else "")),
        ]
    for i in order:  # rule 3
        value, score, each = shown[i]
        state = "" if each.shipped else " lost"
        spot = f"{each.name}: {percent(score.value, 2)}, {spoken(value)}"
        parts.append(dot(x(value), y(score.value), f"mark {each.format}{state}", spot, square=each.format == "tflite"))
    return drawing(WIDTH, height, f"{metric} against {by}", *parts)


def cascade(curve: Sequence[Mapping[str, Any]], gate: Mapping[str, Any]) -> Markup:
    """Draw accuracy against the share of windows that the cloud answers."""
    height = 290.0
    shares = [float(point["forwarded"]) for point in curve]
    lines = (
        ("with the cloud's answers", "combined_accuracy", "device"),
        ("answers that stay local", "local_accuracy", "baseline"),
    )
    values = [float(point[key]) for point in curve for _, key, _ in lines]
    values += [float(gate[key]) for key in ("combined_accuracy", "cloud_accuracy", "device_accuracy") if key in gate]
    x = Scale(low=0.0, high=max(*shares, 0.05), begin=58, end=WIDTH - 24)
    y = scale_for(values, height - 48, 34, most=1.0)
    parts = [
        PlotAxes(x=x, y=y).axes(
            x_label="share of windows answered by the cloud",
            y_label="accuracy, test groups",
            x_text=lambda share: percent(share, 0),
            y_text=_tick_share(y),
        )
    ]
    if "cloud_accuracy" in gate:
        at = y(float(gate["cloud_accuracy"]))
        parts.append(line(x.begin, at, x.end, at, "cloud dashed"))
    for name, key, kind in lines:
        places = [(x(share), y(float(point[key]))) for share, point in zip(shares, curve, strict=True)]
        parts.append(path(places, f"series {kind}"))
        parts += [
            dot(px, py, f"mark {kind}", f"{name}: {percent(float(point[key]), 2)} at {percent(share)}", radius=2.5)
            for (px, py), point, share in zip(places, curve, shares, strict=True)
        ]
    if gate:
        px, py = x(float(gate["forwarded"])), y(float(gate["combined_accuracy"]))
        spoken = f"the gate: {percent(gate['combined_accuracy'], 2)} with {percent(gate['forwarded'])} forwarded"
        parts += [line(px, y.begin, px, y.end, "gate"), dot(px, py, "mark ring device", spoken, radius=7)]
    return drawing(WIDTH, height, "accuracy against the share forwarded to the cloud", *parts)


def calibration(bins: Sequence[Mapping[str, Any]]) -> Markup:
    """Draw how often answers of each confidence are right; dots as large as the number of windows they stand for."""
    height, filled = 290.0, [each for each in bins if each["count"]]
    x = Scale(low=0.0, high=1.0, begin=58, end=WIDTH - 24)
    y = Scale(low=0.0, high=1.0, begin=height - 48, end=34)
    parts = [
        PlotAxes(x=x, y=y).axes(
            x_label="confidence of the answer",
            y_label="share of right answers",
            x_text=lambda share: percent(share, 0),
            y_text=lambda share: percent(share, 0),
        ),
        line(x(0), y(0), x(1), y(1), "ideal"),
        path([(x(float(each["confidence"])), y(float(each["accuracy"]))) for each in filled], "series device"),
    ]
    most = max(int(each["count"]) for each in filled)
    for each in filled:
        spoken = (
            f"{thousands(each['count'])} windows of {percent(each['confidence'])} confidence: "
            f"{percent(each['accuracy'])} right"
        )
        radius = 2.5 + 6.5 * math.sqrt(each["count"] / most)
        parts.append(
            dot(x(float(each["confidence"])), y(float(each["accuracy"])), "mark device soft", spoken, radius=radius)
        )
    return drawing(WIDTH, height, "calibration: confidence against accuracy", *parts)


def confusion(counts: Sequence[Sequence[int]], classes: Sequence[str]) -> Markup:
    """Draw labels in rows, answers in columns; a cell is as dark as its share of the row.

    Columns have names where these are short, and else the numbers of the rows.
    """
    n = len(classes)
    numbered = [f"{number} {_short(name)}" for number, name in enumerate(classes, 1)]
    left = 14 + 6.6 * max(len(name) for name in numbered)
    side = max(16.0, min(56.0, (WIDTH - left - 4) / n))
    plain = all(6.8 * len(name) <= side - 2 for name in classes)
    names, top = ([_short(name) for name in classes] if plain else numbered), 40.0
    parts = [text(left, 10, "answer", class_="label"), text(left - 8, 26, "label", anchor="end", class_="label")]
    for i, row in enumerate(counts):
        y = top + side * i
        parts.append(text(left - 8, y + side / 2, names[i], anchor="end"))
        parts += [_cell(classes, i, j, row, left + side * j, y, side) for j in range(n)]
        heading = classes[i] if plain else str(i + 1)
        parts.append(text(left + side * (i + 0.5), 28, heading, anchor="middle", class_="small"))
    return drawing(max(WIDTH, left + side * n + 4), top + side * n + 6, "confusion matrix", *parts)


def _short(name: str) -> str:
    return name if len(name) <= _LONGEST else f"{name[: _LONGEST - 1]}…"


def _cell(classes: Sequence[str], i: int, j: int, row: Sequence[int], x: float, y: float, side: float) -> Markup:
    """Draw windows of class `i` that were answered `j`; `row` holds the counts of all answers to them."""
    count, total = row[j], sum(row)
    share = count / total if total else 0.0
    right = f"{classes[i]}: {count} of {total} right"
    note = right if i == j else f"{classes[i]} taken for {classes[j]}: {count} of {total}"
    shade = f"{0.06 + 0.94 * share:.2f}" if count else "0.04"
    kind = "cell right" if i == j else "cell wrong"
    parts = [box(x + 1, y + 1, side - 2, side - 2, kind, note, opacity=shade)]
    if count and 6.8 * len(str(count)) <= side - 3:
        on = "on" if share > 0.5 else "small"
        parts.append(text(x + side / 2, y + side / 2, str(count), anchor="middle", class_=f"{on} small"))
    return joined(parts)


def losses(layers: Sequence[Mapping[str, Any]], metric: str) -> Markup:
    """Draw what each layer alone loses when it is made of integers, the most sensitive first."""
    ranked = sorted(layers, key=lambda each: (-float(each["drop"]), str(each["layer"])))
    values = [(each, float(each["drop"]), f"{points(float(each['drop']))} points") for each in ranked]
    return _layers(values, f"points of {metric} lost", lambda share: f"{100 * share:g}", least=0.001)


def noises(layers: Sequence[Mapping[str, Any]]) -> Markup:
    """Draw how far answers stand above the noise of each layer's integers, the most sensitive first."""
    ranked = sorted(layers, key=lambda each: (float(each["alone_db"]), str(each["layer"])))
    values = [(each, float(each["alone_db"]), f"{float(each['alone_db']):.1f} dB") for each in ranked]
    return _layers(values, "signal against noise, dB", lambda value: f"{value:g}", least=10.0)


def _layers(
    values: Sequence[tuple[Mapping[str, Any], float, str]],
    label: str,
    written: Callable[[float], str],
    *,
    least: float,
    most: int = 15,
) -> Markup:
    """Draw a bar for each of the first layers, and the bytes of its weights.

    Args:
        values: layer, length of its bar, and what that says.
        label: the axis's label.
        written: how its numbers are written.
        least: value that the axis reaches at least.
        most: layers shown.
    """
    shown = values[:most]
    bottom = _ROW * len(shown) + 8
    x = scale_for([*(value for _, value, _ in shown), least], _EDGE, WIDTH - _EDGE - 10, zero=True)
    parts = [_grid(x, bottom, label, written)]
    for row, (each, value, spoken) in enumerate(shown):
        y, name = 28.0 + _ROW * row, str(each["layer"])
        begin, end = sorted((x(0), x(value)))
        name_shown = name if len(name) <= 28 else f"…{name[-27:]}"
        parts += [
            *_named(y - 16, name_shown, f"{spoken}, {size(each.get('bytes'))}"),
            box(begin, y - 5, max(1.0, end - begin), 10, "bar onnx", f"{name}: {spoken}, {size(each.get('bytes'))}"),
        ]
    return drawing(WIDTH, bottom + 44, "sensitivity of each layer", *parts)


def pruning(steps: Sequence[Mapping[str, Any]], metric: str) -> Markup:
    """Draw score against parameters, step by step; nothing where fewer than two steps have both.

    Args:
        steps: ``parameters``, ``score`` after tuning, ``before_training`` before it; the unpruned network first.
        metric: what the score is.
    """
    places = [
        (int(each["parameters"]), each["score"], each.get("before_training"))
        for each in steps
        if each.get("score") is not None and "parameters" in each
    ]
    if len(places) < 2:
        return Markup("")
    height = 290.0
    x = scale_for([float(count) for count, _, _ in places], 58, WIDTH - 24)
    y = scale_for(
        [score for _, after, before in places for score in (after, before) if score is not None],
        height - 48,
        34,
        most=1.0,
    )
    parts = [
        PlotAxes(x=x, y=y).axes(
            x_label="parameters", y_label=f"{metric}, validation groups", x_text=thousands, y_text=_tick_share(y)
        ),
        path([(x(count), y(after)) for count, after, _ in places], "series device"),
    ]
    for step, (count, after, before) in enumerate(places):
        if before is not None:
            parts += [
                line(x(count), y(before), x(count), y(after), "leader"),
                dot(x(count), y(before), "mark lost device", f"step {step}, cut: {percent(before, 2)}", radius=3.5),
            ]
        parts.append(dot(x(count), y(after), "mark device", f"step {step}, tuned: {percent(after, 2)}", radius=4))
    return drawing(WIDTH, height, "accuracy while pruning", *parts)


def legend(*entries: tuple[str, str]) -> Markup:
    """Explain marks: class of the mark, and its meaning."""
    items = []
    for class_, meaning in entries:
        square = "tflite" in class_.split()
        mark = dot(8, 8, class_, meaning, square=square) if "line" not in class_.split() else line(0, 8, 18, 8, class_)
        drawn = tag("svg", mark, viewBox="0 0 18 16", class_="key", aria_hidden="true")
        items.append(tag("span", drawn, meaning))
    return tag("p", joined(items), class_="legend")


def _grid(x: Scale, bottom: float, label: str, written: Callable[[float], str]) -> Markup:
    """Draw the grid of a chart whose rows are named, not measured."""
    parts = [text((x.begin + x.end) / 2, bottom + 34, label, anchor="middle", class_="label")]
    for value in x.ticks(4):
        parts += [
            line(x(value), bottom, x(value), 6, "grid"),
            text(min(max(x(value), 22), WIDTH - 22), bottom + 14, written(value), anchor="middle", class_="tick"),
        ]
    return joined(parts)


def _tick_share(scale: Scale) -> Callable[[float], str]:
    """Write shares on an axis, with as many decimals as its ticks need."""
    ticks = scale.ticks()
    step = min((b - a for a, b in itertools.pairwise(ticks)), default=1.0)
    return lambda share: percent(share, 0 if step > 0.0099 else 1 if step > 0.00099 else 2)
