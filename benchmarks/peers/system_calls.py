"""System calls a message, counted by strace while a program answers; in a pass of its own, since strace slows it."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks.load import Load, Traffic
from benchmarks.programs import Program, Setting, started
from benchmarks.report import Report


@contextmanager
def _traced(pid: int, summary: Path) -> Iterator[None]:
    """Trace all threads of a process that runs; the summary is there afterwards."""
    command = ["strace", "-c", "-f", "-o", str(summary), "-p", str(pid)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as tracer:
        assert tracer.stderr is not None
        if "attached" not in tracer.stderr.readline():
            raise RuntimeError("strace may not attach here: run as root, or allow ptrace")
        try:
            yield
        finally:
            tracer.send_signal(signal.SIGINT)
            tracer.wait(10)


def total_calls(summary: str) -> int:
    """The number of calls in a summary of `strace -c`."""
    last = next(line for line in reversed(summary.splitlines()) if line.rstrip().endswith("total"))
    return int(last.split()[3])


def report(programs: Sequence[Program], setting: Setting, traffic: Traffic) -> Report:
    """Count at 100 messages a second."""
    made = Report("100 messages/s, strace -c -f", ("program", "system calls a message", "messages"))
    summary = setting.folder / "strace.txt"
    for program in programs:
        with Load() as load, started(program.command(setting, load.port)) as process:
            load.wait_for_subscriber(alive=lambda process=process: process.poll() is None)  # type: ignore[misc]
            with _traced(process.pid, summary):
                outcome = load.run(traffic, process.pid, warm_up=0, rate=100)
        made.rows.append((program.name, total_calls(summary.read_text("utf-8")) / outcome.messages, outcome.messages))
    return made
