"""Observers beside a stream: what ten that hang, and ten that ask without end, cost it.

The same program with the same messages: without ``[observe]``, with a page without callers, and with ten clients
of `benchmarks.observer_clients`. They take turns; a ratio is taken within a round, and the median is reported. Goals
compare the clients with a page without callers: what the page itself costs stands in the table.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.load import Traffic, raw
from benchmarks.programs import Program, Setting
from benchmarks.report import Goal, Report
from benchmarks.streaming import STREAMS, Comparison

ALONE = Program("nothing listens", "edge-runtime")
PAGE = Program("a page, no caller", "edge-runtime", observers="none")
PROGRAMS = [
    ALONE,
    PAGE,
    Program("ten that hang", "edge-runtime", observers="hanging"),
    Program("ten that flood", "edge-runtime", observers="flooding"),
]
PACED_PER_S = 2_000


def observers(quick: bool) -> Iterator[Report]:
    """Saturated: messages a second. Paced: latency."""
    rounds = 3 if quick else 5
    with tempfile.TemporaryDirectory() as name:
        setting = Setting(folder=Path(name))
        comparison = Comparison(setting, Traffic(STREAMS, 400 if quick else 1000, raw), PROGRAMS, rounds)
        comparison.run(warm_up=40 * STREAMS)
        report = Report(
            "saturated, raw float32, cnn_m int8", ("observers", "msg/s", "msg/CPU s", "msg/s x", "msg/CPU s x")
        )
        for program in PROGRAMS:
            figures = [comparison.of(program, figure) for figure in ("rate", "cpu_rate")]
            ratios = [comparison.ratio(program, ALONE, figure) for figure in ("rate", "cpu_rate")]
            report.rows.append((program.name, *figures, *ratios))
        report.goals = [
            Goal(f"messages/s of one core, {program.name}", comparison.ratio(program, PAGE, "cpu_rate"), 0.95)
            for program in PROGRAMS[2:]
        ]
        report.notes += comparison.notes()
        yield report
        seconds = 4 if quick else 8
        paced = Comparison(setting, Traffic(STREAMS, 3 + seconds * PACED_PER_S // STREAMS, raw), PROGRAMS, rounds)
        paced.run(warm_up=3 * STREAMS, rate=PACED_PER_S)
        report = Report(f"{PACED_PER_S:,} messages/s", ("observers", "CPU us/msg", "p50 ms", "p99 ms", "max ms"))
        for program in PROGRAMS:
            quantiles = [paced.of(program, "latency_ms", q) for q in (0.5, 0.99, 1.0)]
            report.rows.append((program.name, paced.of(program, "cpu_us_per_message"), *quantiles))
        alone = paced.of(PAGE, "latency_ms", 0.99)
        report.goals = [
            Goal(f"p99 with {program.name}, ms more", paced.of(program, "latency_ms", 0.99) - alone, 2.0, at_most=True)
            for program in PROGRAMS[2:]
        ]
        report.notes += paced.notes()
        yield report
