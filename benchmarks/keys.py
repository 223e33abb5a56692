"""Ten thousand streams on one core, each with one message of 50 samples a second."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.load import Load, Traffic, raw
from benchmarks.programs import Setting, started
from benchmarks.report import Goal, Report
from benchmarks.streaming import OURS_5MS

KEYS = 10_000


def resident_bytes(pid: int) -> int:
    """Resident set of a process."""
    with Path(f"/proc/{pid}/status").open(encoding="ascii") as lines:
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS:"))


def keys(quick: bool) -> Iterator[Report]:
    """No drops, a latency below 100 ms, and what a key costs in memory."""
    seconds = 8 if quick else 20
    warm_up = 3  # a window needs three messages
    report = Report(
        f"{KEYS:,} keys at one message a second each, raw float32, cnn_m int8, 5 ms budget",
        ("net", "messages", "answers", "missing", "core busy %", "p50 ms", "p99 ms", "max ms", "bytes/key"),
    )
    traffic = Traffic(KEYS, warm_up + seconds, raw, distinct=200)
    with tempfile.TemporaryDirectory() as name:
        for net in ("cnn_m", "cnn_s"):
            setting = Setting(folder=Path(name), net=net)
            with Load() as load, started(OURS_5MS.command(setting, load.port)) as process:
                load.wait_for_subscriber(alive=lambda process=process: process.poll() is None)  # type: ignore[misc]
                before = resident_bytes(process.pid)
                outcome = load.run(traffic, process.pid, warm_up=warm_up * KEYS, rate=KEYS)
                per_key = (resident_bytes(process.pid) - before) / KEYS
            report.rows.append(
                (
                    net,
                    outcome.messages,
                    len(outcome.rows),
                    outcome.missing,
                    100 * outcome.cpu_s / outcome.wall_s,
                    outcome.latency_ms(0.5),
                    outcome.latency_ms(0.99),
                    outcome.latency_ms(1.0),
                    round(per_key),
                )
            )
            report.goals += [
                Goal(f"answers missing, {net}", outcome.missing, 0, at_most=True),
                Goal(f"p99 ms, {net}", outcome.latency_ms(0.99), 100.0, at_most=True),
            ]
    report.notes.append("bytes/key: growth of the resident set from before the first message, everything included")
    yield report
