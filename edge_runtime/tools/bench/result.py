"""Result of `edge-runtime bench`, as text, JSON and a plot."""

from __future__ import annotations

import platform
from dataclasses import asdict, dataclass
from html import escape
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class BareCall:
    """Our engine without anything around it."""

    batch: int
    cpu_us_per_window: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Cost of a program, from a message on the wire to a result on the wire."""

    cpu_us_per_message: float
    cpu_us_per_window: float
    messages_per_s: float
    """Of one core that does nothing else."""
    latency_p50_us: float
    """Of a message that comes alone, wall clock."""
    latency_p99_us: float


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchResult:
    """All that was measured."""

    model: str
    variant: str
    engine: str
    machine: dict[str, str]
    streams: int
    samples_per_message: int
    windows_per_message: float
    bare_us: float
    """CPU of the library's own call for one window, as a hand-written loop makes it, microseconds."""
    calls: tuple[BareCall, ...]
    edge_runtime: Cost
    handwritten: Cost
    rows: int
    """Answers that both programs gave, and that were compared."""
    labels_differ: int
    worst_difference: float
    """Of a score."""

    @property
    def over_bare(self) -> float:
        """CPU of the whole runtime per window, over one bare call."""
        return round(self.edge_runtime.cpu_us_per_window / self.bare_us, 3)

    @property
    def handwritten_over_bare(self) -> float:
        """The same of the hand-written loop."""
        return round(self.handwritten.cpu_us_per_window / self.bare_us, 3)

    @property
    def faster_than_handwritten(self) -> float:
        """Messages that one core takes, over those of the hand-written loop."""
        return round(self.handwritten.cpu_us_per_message / self.edge_runtime.cpu_us_per_message, 3)

    def plain(self) -> dict[str, Any]:
        """Return all figures, ratios included."""
        ratios = {
            "over_bare": self.over_bare,
            "handwritten_over_bare": self.handwritten_over_bare,
            "faster_than_handwritten": self.faster_than_handwritten,
        }
        return {**asdict(self), **ratios}

    def text(self) -> str:
        """Render a table, and its summary in words."""
        rows = [("", "CPU us/window", "/ bare", "messages/s", "p50 us", "p99 us")]
        rows.append(("bare library call", f"{self.bare_us:.1f}", "1.00", "", "", ""))
        for call in self.calls:
            ratio = call.cpu_us_per_window / self.bare_us
            rows.append((f"engine, batch {call.batch}", f"{call.cpu_us_per_window:.1f}", f"{ratio:.2f}", "", "", ""))
        for name, cost in (("edge-runtime", self.edge_runtime), ("hand-written loop", self.handwritten)):
            rows.append(
                (
                    name,
                    f"{cost.cpu_us_per_window:.1f}",
                    f"{cost.cpu_us_per_window / self.bare_us:.2f}",
                    f"{cost.messages_per_s:,.0f}",
                    f"{cost.latency_p50_us:.0f}",
                    f"{cost.latency_p99_us:.0f}",
                )
            )
        widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
        lines = [
            "  ".join(
                cell.ljust(width) if i == 0 else cell.rjust(width)
                for i, (cell, width) in enumerate(zip(row, widths, strict=True))
            ).rstrip()
            for row in rows
        ]
        if not self.rows:
            agreement = "No answers to compare: the windows are too long for so few messages."
        elif self.labels_differ:
            agreement = f"ANSWERS DIFFER: {self.labels_differ} of {self.rows:,} labels."
        else:
            agreement = f"All {self.rows:,} answers agree with the loop's; scores within {self.worst_difference:.1g}."
        summary = (
            f"One core takes {self.faster_than_handwritten:.1f} times the messages of the hand-written loop; "
            f"all of it costs {self.over_bare:.2f} bare calls a window."
        )
        return "\n".join(
            [
                f"{self.model}, variant {self.variant}, {self.engine}, {self.machine['processor']}",
                f"MQTT over loopback, QoS 0, {self.streams} streams, {self.samples_per_message} samples a message",
                "",
                *lines,
                "",
                summary,
                agreement,
            ]
        )

    def svg(self) -> str:
        """Horizontal bars of CPU per window: a file of its own, with no script, font or style from elsewhere."""
        bars = [("bare library call", self.bare_us, "#9aa5b1")]
        bars += [(f"engine, batch {call.batch}", call.cpu_us_per_window, "#9aa5b1") for call in self.calls]
        bars.append(("edge-runtime, all of it", self.edge_runtime.cpu_us_per_window, "#1f7a4d"))
        bars.append(("hand-written loop, all of it", self.handwritten.cpu_us_per_window, "#b4552d"))
        left, width, row, top = 210, 420, 30, 58
        longest = max(value for _, value, _ in bars)
        height = top + row * len(bars) + 16
        title = f"CPU per window, microseconds: {self.model}, {self.variant}"
        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {left + width + 90} {height}" role="img">',
            '<g font-family="sans-serif" font-size="14">',
            f"<title>{escape(title)}</title>",
            f'<rect width="{left + width + 90}" height="{height}" fill="#ffffff"/>',
            f'<text x="12" y="24" font-size="16" fill="#1b1f24">{escape(title)}</text>',
            f'<text x="12" y="43" font-size="12" fill="#57606a">{escape(self.where)}</text>',
        ]
        for i, (name, value, colour) in enumerate(bars):
            y = top + i * row
            length = max(1.0, width * value / longest)
            parts += [
                f'<text x="{left - 10}" y="{y + 16}" text-anchor="end" fill="#1b1f24">{escape(name)}</text>',
                f'<rect x="{left}" y="{y + 2}" width="{length:.1f}" height="{row - 10}" fill="{colour}"/>',
                f'<text x="{left + length + 8:.1f}" y="{y + 16}" fill="#1b1f24">{value:.1f}</text>',
            ]
        return "\n".join([*parts, "</g>", "</svg>", ""])

    @property
    def where(self) -> str:
        """Engine and processor."""
        return f"{self.engine}, {self.machine['processor']}"


def machine() -> dict[str, str]:
    """Describe this machine: processor, system and the versions that matter."""
    found = {"processor": _processor(), "system": platform.platform(), "python": platform.python_version()}
    for package in ("numpy", "paho-mqtt", "orjson"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "unknown"
    return found


def _processor() -> str:
    """Return the processor's name as Linux tells it, which boards do in different places; else its architecture."""
    for path, mark in ((Path("/proc/device-tree/model"), ""), (Path("/proc/cpuinfo"), "model name")):
        try:
            text = path.read_text(encoding="utf-8", errors="replace").strip("\0\n ")
        except OSError:
            continue
        if not mark:
            return text
        for line in text.splitlines():
            if line.startswith(mark):
                return line.partition(":")[2].strip()
    return platform.machine()
