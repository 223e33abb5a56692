"""One HTML file that shows what a build has measured: nothing to install, nothing to fetch, nothing that runs in it.

It is made of ``report.json`` alone (`edge-export report OUT/report.json` makes it again), and the same figures give the
same bytes. Keys that a report does not have leave their section out, so reports of earlier versions stay readable.

Imports `edge_runtime` alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from edge_export.report.figures import BuildMetrics
from edge_export.report.next_steps import next_steps
from edge_export.report.page import page
from edge_export.report.verdict import verdict
from edge_runtime.errors import ConfigError

REPORT = "report.html"

__all__ = ["REPORT", "conclusions", "page", "write_report"]


def conclusions(figures: Mapping[str, Any]) -> dict[str, Any]:
    """Return verdict and next commands as ``report.json`` holds them; the page makes them again from the figures."""
    known = BuildMetrics(figures)
    return {
        "verdict": [asdict(finding) for finding in verdict(known)],
        "next": [asdict(step) for step in next_steps(known)],
    }


def write_report(figures: Mapping[str, Any], folder: Path) -> Path:
    """Write ``report.html``.

    Args:
        figures: what `edge_export.build.build` returns, and ``report.json`` holds.
        folder: the folder to write into.

    Returns:
        The file.

    Raises:
        ConfigError: these are no figures of a build, or the file cannot be written.
    """
    path = folder / REPORT
    text = page(figures)
    try:
        path.write_text(text, "utf-8")
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror}") from error
    return path
