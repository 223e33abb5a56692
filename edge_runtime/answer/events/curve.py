"""Curve of misses against false alarms per hour, as an SVG picture."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import Final, NamedTuple

from edge_runtime.answer.events.trial import Outcome

_LEFT: Final = 64
_RIGHT: Final = 616
_TOP: Final = 48
_BOTTOM: Final = 344
_STYLE: Final = (
    "text{font:13px system-ui,sans-serif;fill:#333}.t{font-weight:600;font-size:15px}.g{stroke:#ddd}"
    ".a{fill:none;stroke:#1f6fb2;stroke-width:2}.r{stroke:#b0413e;stroke-dasharray:4 4}"
    "@media (prefers-color-scheme:dark){svg{background:#1a1a1a}text{fill:#ddd}.g{stroke:#444}}"
)


class Mark(NamedTuple):
    """A measured point with its words."""

    outcome: Outcome
    words: str
    colour: str


def draw(title: str, front: Sequence[Outcome], marks: Sequence[Mark], rate: float) -> str:
    """Draw the curve.

    Args:
        title: above it.
        front: the best rules on the recordings that they were chosen on, by rising false alarms.
        marks: the chosen rule on those, and on others.
        rate: false alarms per hour that were asked for.
    """
    rates = [one.per_hour for one in [*front, *(mark.outcome for mark in marks)] if one.hours] + [rate]
    positive = [one for one in rates if one > 0] or [1.0]
    low = math.floor(math.log10(min(positive)))
    high = max(math.ceil(math.log10(max(positive))), low + 1)

    def x(per_hour: float) -> float:
        """Place a rate: none at all is at the left edge."""
        share = (math.log10(per_hour) - low) / (high - low) if per_hour > 0 else 0.0
        return _LEFT + min(1.0, max(0.0, share)) * (_RIGHT - _LEFT)

    def y(missed: float) -> float:
        return _BOTTOM - missed * (_BOTTOM - _TOP)

    about = f'role="img" aria-label="{escape(title)}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 640 428" {about}><style>{_STYLE}</style>',
        f'<text class="t" x="{_LEFT}" y="24">{escape(title)}</text>',
    ]
    for decade in range(low, high + 1):
        at = x(10.0**decade)
        parts.append(f'<line class="g" x1="{at:.1f}" x2="{at:.1f}" y1="{_TOP}" y2="{_BOTTOM}"/>')
        parts.append(f'<text x="{at:.1f}" y="{_BOTTOM + 18}" text-anchor="middle">{10.0**decade:g}</text>')
    for percent in range(0, 101, 25):
        at = y(percent / 100)
        parts.append(f'<line class="g" x1="{_LEFT}" x2="{_RIGHT}" y1="{at:.1f}" y2="{at:.1f}"/>')
        parts.append(f'<text x="{_LEFT - 8}" y="{at + 4:.1f}" text-anchor="end">{percent} %</text>')
    parts.append(f'<text x="340" y="{_BOTTOM + 40}" text-anchor="middle">false alarms per hour</text>')
    parts.append(f'<text x="{_LEFT}" y="{_TOP - 6}">missed</text>')
    parts.append(f'<line class="r" x1="{x(rate):.1f}" x2="{x(rate):.1f}" y1="{_TOP}" y2="{_BOTTOM}"/>')
    parts.append(f'<text x="{x(rate):.1f}" y="{_TOP - 6}" text-anchor="middle">{rate:g} asked for</text>')
    parts.append(_steps([(x(one.per_hour), y(one.miss_share)) for one in front]))
    for i, mark in enumerate(marks):
        at, down = x(mark.outcome.per_hour), y(mark.outcome.miss_share)
        parts.append(f'<circle cx="{at:.1f}" cy="{down:.1f}" r="6" fill="{mark.colour}"/>')
        parts.append(f'<circle cx="{_LEFT + 6 + 280 * i}" cy="{_BOTTOM + 66}" r="6" fill="{mark.colour}"/>')
        parts.append(f'<text x="{_LEFT + 20 + 280 * i}" y="{_BOTTOM + 70}">{escape(mark.words)}</text>')
    return "\n".join([*parts, "</svg>\n"])


def _steps(points: Sequence[tuple[float, float]]) -> str:
    """Draw a staircase: more false alarms never miss more."""
    if not points:
        return ""
    path = f"M{points[0][0]:.1f} {points[0][1]:.1f}" + "".join(f"H{x:.1f}V{y:.1f}" for x, y in points[1:])
    return f'<path class="a" d="{path}H{_RIGHT}"/>'
