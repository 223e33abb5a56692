"""Report of a benchmark, printed as one table and then each goal with what was measured."""

from __future__ import annotations

import platform
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

Cell = str | float | int | None


@dataclass(frozen=True)
class Goal:
    """Something we promise about a figure."""

    text: str
    measured: float
    limit: float
    at_most: bool = False
    """The limit is an upper one."""

    @property
    def met(self) -> bool:
        return self.measured <= self.limit if self.at_most else self.measured >= self.limit

    def __str__(self) -> str:
        sign = "<=" if self.at_most else ">="
        return f"{'met   ' if self.met else 'MISSED'} {self.text}: {self.measured:.4g} (goal {sign} {self.limit:g})"


@dataclass
class Report:
    """A finished benchmark."""

    title: str
    columns: tuple[str, ...]
    rows: list[tuple[Cell, ...]] = field(default_factory=list)
    goals: list[Goal] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def text(self) -> str:
        cells = [self.columns, *(tuple(_format(cell) for cell in row) for row in self.rows)]
        widths = [max(len(row[i]) for row in cells) for i in range(len(self.columns))]
        lines = [
            "  ".join(
                cell.ljust(width) if i == 0 else cell.rjust(width)
                for i, (cell, width) in enumerate(zip(row, widths, strict=True))
            ).rstrip()
            for row in cells
        ]
        lines.insert(1, "  ".join("-" * width for width in widths))
        return "\n".join([self.title, *lines, *map(str, self.goals), *self.notes])

    def plain(self) -> dict[str, Any]:
        """As data for JSON."""
        return {
            "title": self.title,
            "rows": [dict(zip(self.columns, row, strict=True)) for row in self.rows],
            "goals": [
                {"text": g.text, "measured": g.measured, "limit": g.limit, "at_most": g.at_most, "met": g.met}
                for g in self.goals
            ],
            "notes": self.notes,
        }


Benchmark = Callable[[bool], Sequence[Report]]
"""Takes whether to be quick; yields its tables."""


def median_of(values: Sequence[float]) -> float:
    return statistics.median(values)


def spread(values: Sequence[float], digits: int = 0) -> str:
    """Write the least, the median and the most of some figures."""
    return " / ".join(f"{value:,.{digits}f}" for value in (min(values), statistics.median(values), max(values)))


def machine() -> dict[str, str]:
    """Describe the machine, the date and the versions."""
    found = {
        "date": datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "machine": f"{platform.machine()}, {_processor()}",
        "system": platform.platform(),
        "python": sys.version.split()[0],
    }
    for package in ("numpy", "onnxruntime", "ai-edge-litert", "paho-mqtt", "orjson"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found


def _processor() -> str:
    try:
        with Path("/proc/cpuinfo").open(encoding="utf-8") as lines:
            return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return "unknown processor"


def _format(cell: Cell) -> str:
    if cell is None:
        return ""
    if isinstance(cell, float):
        return f"{cell:,.0f}" if abs(cell) >= 1000 else f"{cell:.3g}" if abs(cell) < 10 else f"{cell:.1f}"
    return f"{cell:,}" if isinstance(cell, int) else cell
