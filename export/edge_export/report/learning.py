"""Learning curves: loss and validation score of each network by epoch, and what they say in words."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from markupsafe import Markup

from edge_export.report.markup import digits3, percent
from edge_export.report.plot import WIDTH, Scale, dot, drawing, line, path, scale_for, text

_LEFT = 48.0
_PANE = 84.0
_NOTABLE = 0.02
"""Difference of a score that is worth a sentence."""


def learning_curve(curve: Mapping[str, Any], metric: str) -> Markup:
    """Draw loss above, score on validation groups below, by epoch.

    Args:
        curve: a curve with ``name`` and ``points``, see `edge_export.learn.training.history.Curve`.
        metric: what the score is.
    """
    points: Sequence[Mapping[str, float]] = curve["points"]
    epochs = [float(point["epoch"]) for point in points]
    x = Scale(low=0.0, high=max(*epochs, 1e-9), begin=_LEFT, end=WIDTH - 8)
    parts: list[Markup] = []
    panes: tuple[tuple[str, str, str, Callable[[float], str], float], ...] = (
        ("loss", "loss of training", "baseline", digits3, math.inf),
        ("score", f"{metric}, validation groups", "device", percent, 1.0),
    )
    for row, (key, label, kind, written, most) in enumerate(panes):
        top, values = 26 + (_PANE + 34) * row, [float(point[key]) for point in points]
        y = scale_for(values, top + _PANE, top, zero=key == "loss", most=most)
        parts += [
            text(_LEFT, top - 14, label, class_="label"),
            text(WIDTH - 8, top - 14, f"{written(values[-1])} at the end", anchor="end", class_="small strong"),
        ]
        for end in (y.low, y.high):
            name = digits3(end) if key == "loss" else percent(end, 0)
            parts += [
                line(_LEFT, y(end), WIDTH - 8, y(end), "grid"),
                text(_LEFT - 6, y(end), name, anchor="end", class_="tick"),
            ]
        places = [(x(epoch), y(value)) for epoch, value in zip(epochs, values, strict=True)]
        parts.append(path(places, f"series {kind}"))
        parts += [
            dot(px, py, f"mark {kind}", f"{label}: {written(value)} after {epoch:.3g} epochs", radius=3)
            for (px, py), epoch, value in zip(places, epochs, values, strict=True)
        ]
    bottom = 26 + 2 * _PANE + 34
    for tick in x.ticks(4):
        parts.append(text(min(x(tick), WIDTH - 20), bottom + 12, f"{tick:g}", anchor="middle", class_="tick"))
    parts.append(text((_LEFT + WIDTH) / 2, bottom + 28, "epoch", anchor="middle", class_="label"))
    return drawing(WIDTH, bottom + 40, f"learning curve: {curve['name']}", *parts)


def learning_said(curve: Mapping[str, Any]) -> str:
    """Say in a sentence what the score did: fell after its best, still rose at the end, or settled."""
    points: Sequence[Mapping[str, float]] = curve["points"]
    best, last = max(points, key=lambda point: point["score"]), points[-1]
    if best["score"] - last["score"] > _NOTABLE:
        return (
            f"Best after {digits3(best['epoch'])} epochs, {percent(best['score'])}: fewer steps, or more augmentation, "
            "may do better."
        )
    earlier = points[max(0, len(points) - 1 - len(points) // 4)]
    if last["score"] - earlier["score"] > _NOTABLE:
        rise = f"from {percent(earlier['score'])} to {percent(last['score'])}"
        return f"Still rising in the last quarter, {rise}: more steps may do better."
    return "Settled: more steps would bring little."
