"""Bars of the comparison as an SVG picture: CPU a message over the hand-written loop's, a panel a rate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Final

_STYLE: Final = (
    "text{font:15px system-ui,sans-serif;fill:#333}.t{font-weight:600;font-size:17px}.b{fill:#9aa7b4}.o{fill:#1f6fb2}"
    ".r{stroke:#b0413e;stroke-dasharray:4 4}"
    "@media (prefers-color-scheme:dark){svg{background:#1a1a1a}text{fill:#ddd}}"
)
_LEFT: Final = 150
_UNIT: Final = 100.0
"""Pixels of the hand-written loop's bar."""
_MOST: Final = 3.2
"""A longer bar is cut there; its number says how long it is."""
_ROW: Final = 22


def bars(ratios: Mapping[str, Sequence[float]], rates: Sequence[str]) -> str:
    """Draw the bars.

    Args:
        ratios: of each program at each rate; 1 is the hand-written loop's CPU. The first program is ours.
        rates: in words.
    """
    ours = next(iter(ratios))
    parts: list[str] = []
    y = 56
    for place, rate in enumerate(rates):
        top = y
        parts.append(f'<text class="t" x="8" y="{y}">{escape(rate)}</text>')
        for name, values in sorted(ratios.items(), key=lambda item: item[1][place]):
            y += _ROW
            width = _UNIT * min(_MOST, values[place])
            kind = "o" if name == ours else "b"
            parts.append(f'<text x="{_LEFT - 8}" y="{y + 5}" text-anchor="end">{escape(name)}</text>')
            parts.append(f'<rect class="{kind}" x="{_LEFT}" y="{y - 8}" width="{width:.1f}" height="16" rx="2"/>')
            parts.append(f'<text x="{_LEFT + width + 6:.1f}" y="{y + 5}">{values[place]:.2f}</text>')
        mark = _LEFT + _UNIT
        parts.append(f'<line class="r" x1="{mark}" x2="{mark}" y1="{top + 8}" y2="{y + 12}"/>')
        y += 40
    title = "CPU a message, over the paho loop's (1.00)"
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 530 {y - 12}" role="img" '
        f'aria-label="{escape(title, quote=True)}"><style>{_STYLE}</style>'
    )
    return "\n".join([head, f'<text class="t" x="8" y="24">{escape(title)}</text>', *parts, "</svg>\n"])
