"""Figures of an application, and what a page of metrics says of them."""

from __future__ import annotations

import re

from edge_runtime.metrics import Metrics

SAMPLE = re.compile(r'([a-z_:]+)(?:\{((?:[a-z_]+="(?:[^"\\\n]|\\["\\n])*",?)*)\})? ([0-9.e+-]+|\+Inf|NaN)')


def some() -> Metrics:
    metrics = Metrics()
    metrics.counts["predictions_total"] = 7
    metrics.counts['state_resets_total{reason="gap"}'] = 2
    metrics.counts['state_resets_total{reason="asked"}'] = 1
    metrics.dropped["late"] = 3
    metrics.gauges['connected{broker="home"}'] = 1.0
    metrics.stages["engine"].observe(0.0003, 4)
    metrics.stages["engine"].observe(1000.0)
    return metrics


def parsed(text: str) -> dict[str, float]:
    """Read a page: each family once, its samples together, all of them described before."""
    found: dict[str, float] = {}
    described: set[str] = set()
    family = ""
    for line in text.splitlines():
        if line.startswith("# HELP "):
            family = line.split()[2]
            assert family not in described
            assert len(line.split()) > 3, line
            described.add(family)
        elif not line.startswith("#"):
            match = SAMPLE.fullmatch(line)
            assert match is not None, line
            assert match[1].startswith(family)
            found[line.rpartition(" ")[0]] = float(match[3])
    return found
