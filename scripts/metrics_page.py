"""Page of metrics and drop reasons, docs/metrics.md, from the catalogues that the runtime itself uses.

python -m scripts.metrics_page            prints it
python -m scripts.metrics_page --write    writes it; a test holds the page against the code
"""

from __future__ import annotations

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
those of all runs as `lifetime`.

| metric | type | meaning |
|---|---|---|
"""
_REASONS = f"""
## Reasons of `{PREFIX}{DROPPED}`

What is not used is counted under a reason; the log and `edge-runtime status` say the same.

| reason | what | cause | what to do |
|---|---|---|---|
"""


def page() -> str:
    """Return the page."""
    rows = [f"| `{PREFIX}{name}` | {_kind(name)} | {text} |" for name, text in sorted(DESCRIPTIONS.items())]
    reasons = [
        f"| `{name}` | {reason.component}: {reason.what} | {reason.cause} | {reason.todo} |"
        for name, reason in sorted({**REASONS, **COUNTS}.items())
        if not name.endswith("_total")
    ]
    return _INTRODUCTION + "\n".join(rows) + "\n" + _REASONS + "\n".join(reasons) + "\n"


def _kind(name: str) -> str:
    if name == STAGE:
        return "histogram"
    return "counter" if name.endswith("_total") else "gauge"


if __name__ == "__main__":
    print_or_write(PAGE, page())
