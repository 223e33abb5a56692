"""Page of metrics and drop reasons, docs/metrics.md, from the catalogues that the runtime itself uses.

python -m scripts.metrics_page            prints it
python -m scripts.metrics_page --write    writes it; a test holds the page against the code
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from edge_runtime.operate.observe.catalogue import DESCRIPTIONS, DROPPED, STAGE
from edge_runtime.operate.observe.drops import COUNTS, REASONS
from edge_runtime.operate.observe.exposition import PREFIX
from scripts.generated_page import print_or_write

PAGE = Path(__file__).resolve().parents[1] / "docs" / "metrics.md"
_INTRODUCTION = f"""# Metrics

Every figure that a running application counts, as Prometheus sees it; [observe.md](observe.md) says how to get them.
This page is written by `python -m scripts.metrics_page --write`.

Names begin with `{PREFIX}`. Counters end with `_total` and only rise while the application runs; the topic `$stats` has
those of all runs as `lifetime`. `{PREFIX}{STAGE}` is a histogram, all others are gauges.

"""
_REASONS = f"""
## Reasons of `{PREFIX}{DROPPED}`

What is not used is counted under a reason; the log and `edge-runtime status` say the same. Below the part of the
runtime that drops: the reason, what is dropped, the cause, and what to do.
"""


def page() -> str:
    """Return the page."""
    rows = [f"- `{PREFIX}{name}`: {text}\n" for name, text in sorted(DESCRIPTIONS.items())]
    parts: dict[str, dict[tuple[str, str], list[str]]] = {}
    for name, reason in sorted({**REASONS, **COUNTS}.items()):
        if not name.endswith("_total"):
            parts.setdefault(reason.component, {}).setdefault((reason.what, reason.advice), []).append(f"`{name}`")
    return _INTRODUCTION + "".join(rows) + _REASONS + "".join(map(_lines, *zip(*sorted(parts.items()), strict=True)))


def _lines(component: str, reasons: Mapping[tuple[str, str], Sequence[str]]) -> str:
    """Lay out the reasons of a component; those with the same advice share a line."""
    lines = [f"- {', '.join(names)} ({what}): {advice}.\n" for (what, advice), names in reasons.items()]
    return f"\n### {component}\n\n{''.join(lines)}"


if __name__ == "__main__":
    print_or_write(PAGE, page())
