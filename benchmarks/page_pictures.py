"""Pictures at the top of docs/accuracy.md and docs/performance.md, drawn from the tables of these pages.

    python -m benchmarks.page_pictures    writes docs/accuracy.svg and docs/peers.svg

A test draws both again, so a picture never says something else than its table.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import escape
from pathlib import Path

from benchmarks.peers.picture import bars

DOCS = Path(__file__).resolve().parents[1] / "docs"
SHOWN = ("20/s", "500/s", "saturated")
"""Rates that the picture of performance has a panel for."""

_STYLE = (
    "text{font:15px system-ui,sans-serif;fill:#333}.t{font-weight:600;font-size:17px}.a{fill:#9aa7b4}.o{fill:#1f6fb2}"
    ".k{stroke:#b0413e;stroke-width:3}@media (prefers-color-scheme:dark){svg{background:#1a1a1a}text{fill:#ddd}}"
)
_LEFT, _UNIT, _ROW = 154, 256.0, 38


def rows(page: str, first: str) -> Iterator[dict[str, str]]:
    """Yield the rows of a page's table by the names of its columns.

    Args:
        page: its file name.
        first: name of the table's first column.
    """
    text = (DOCS / page).read_text("utf-8")
    head, _, *lines = text[text.index(f"\n| {first} |") + 1 :].splitlines()
    for line in lines:
        if not line.startswith("|"):
            return
        yield dict(zip(_cells(head), _cells(line), strict=True))


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.replace("**", "").strip("|").split("|")]


def _number(cell: str) -> float:
    return float(re.split(r"[ ,](?!\d)", cell)[0].replace(",", ""))


def performance() -> str:
    """Draw the CPU of a message with each program, over the hand-written loop's."""
    table = {row["median of five turns"]: row for row in rows("performance.md", "median of five turns")}
    loop = table["paho loop"]
    ratios = {
        name.partition(",")[0].replace(" on ", " "): [_number(row[rate]) / _number(loop[rate]) for rate in SHOWN]
        for name, row in table.items()
        if "over the" not in name
    }
    return bars(ratios, [rate.replace("/s", " messages/s") for rate in SHOWN])


def accuracy() -> str:
    """Draw the accuracy on each set: the network alone, all parts, and the best that is known."""
    title = "Share of right answers, of windows left out"
    parts = []
    for x, kind, text in ((134, "a", "network alone"), (272, "o", "with all parts")):
        parts.append(f'<rect class="{kind}" x="{x}" y="36" width="14" height="12" rx="2"/>')
        parts.append(f'<text x="{x + 20}" y="47">{text}</text>')
    parts.append('<line class="k" x1="414" x2="414" y1="34" y2="50"/><text x="424" y="47">best known</text>')
    y = 64
    for row in rows("accuracy.md", "set"):
        alone, built, best = (
            _number(row[name]) for name in ("alone", "all (next one)", "best known (times the bytes)")
        )
        parts.append(f'<text x="{_LEFT - 8}" y="{y + 18}" text-anchor="end">{escape(row["set"])}</text>')
        for at, kind, value in ((y, "a", alone), (y + 14, "o", built)):
            parts.append(f'<rect class="{kind}" x="{_LEFT}" y="{at}" width="{_UNIT * value:.1f}" height="12" rx="2"/>')
        mark = f"{_LEFT + _UNIT * best:.1f}"
        parts.append(f'<line class="k" x1="{mark}" x2="{mark}" y1="{y - 2}" y2="{y + 28}"/>')
        shown = f"{alone:.2f}" if f"{alone:.2f}" == f"{built:.2f}" else f"{alone:.2f} to {built:.2f}"
        parts.append(f'<text x="{_LEFT + _UNIT + 10:.0f}" y="{y + 18}">{shown}</text>')
        y += _ROW
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 530 {y}" role="img" aria-label="{title}">'
    return "\n".join(
        [f"{head}<style>{_STYLE}</style>", f'<text class="t" x="8" y="24">{title}</text>', *parts, "</svg>\n"]
    )


PICTURES = {"accuracy.svg": accuracy, "peers.svg": performance}

if __name__ == "__main__":
    for name, draw in PICTURES.items():
        (DOCS / name).write_text(draw(), "utf-8")
