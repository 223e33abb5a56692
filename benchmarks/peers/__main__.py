"""Our runtime beside the programs that a user would write: ``python -m benchmarks.peers [--turns N] [--json FILE]``.

Each program is started once a turn and gets every rate in that process; programs take turns, so that a busy machine
slows all of them. All run the same int8 network over the same messages, and every answer is compared. A peer that is
not installed (`make bench-peers` installs them) is named and left out.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import orjson

from benchmarks.keys import resident_bytes
from benchmarks.load import Load, Outcome, Traffic, difference, raw
from benchmarks.peers import picture, system_calls
from benchmarks.peers.catalogue import BASE, available
from benchmarks.programs import Program, Setting, started
from benchmarks.report import Report, machine, spread

RATES: Final = (20, 100, 500, 2_000, None)
"""Messages a second; None: as many as are taken."""
SATURATED_MESSAGES: Final = 150


@dataclass
class Phase:
    """One program at one rate, a figure of each turn."""

    us: list[float] = field(default_factory=list)
    p50_ms: list[float] = field(default_factory=list)
    p99_ms: list[float] = field(default_factory=list)
    megabytes: list[float] = field(default_factory=list)
    wrong: int = 0
    """Answers that are missing, repeated or not those of the first program."""
    answers: int = 0

    def add(self, outcome: Outcome, reference: Outcome, resident: int) -> None:
        self.us.append(outcome.cpu_us_per_message)
        self.p50_ms.append(outcome.latency_ms(0.5))
        self.p99_ms.append(outcome.latency_ms(0.99))
        self.megabytes.append(resident / 1e6)
        self.answers += len(outcome.rows)
        self.wrong += outcome.missing + outcome.repeated
        same = outcome.rows.keys() & reference.rows.keys()
        self.wrong += sum(
            bool(difference({name: outcome.rows[name]}, {name: reference.rows[name]})) for name in sorted(same)
        )


def traffic_at(rate: int | None, seconds: float) -> Traffic:
    """Messages of a rate; each rate has keys of its own, since a program keeps what it knows of a key."""
    streams = 64 if rate is None else min(64, rate // 5)
    messages = SATURATED_MESSAGES if rate is None else 3 + round(seconds * rate / streams)
    made = Traffic(streams, messages, raw)
    made.keys = [f"r{rate or 0}-{key}" for key in made.keys]
    made.topics = [b"sensors/%s/raw" % key.encode() for key in made.keys]
    return made


def one_turn(program: Program, setting: Setting, traffics: Sequence[Traffic]) -> list[tuple[Outcome, int]]:
    """Start a program and give it every rate; returns what was measured and the resident bytes after it."""
    found = []
    with Load() as load, started(program.command(setting, load.port)) as process:
        load.wait_for_subscriber(alive=lambda: process.poll() is None)
        for rate, traffic in zip(RATES, traffics, strict=True):
            outcome = load.run(traffic, process.pid, warm_up=3 * traffic.streams, rate=rate)
            found.append((outcome, resident_bytes(process.pid)))
    return found


Figures = dict[str, list[Phase]]


def measured(programs: Sequence[Program], setting: Setting, turns: int, seconds: float, write: Path | None) -> Figures:
    """All programs in turns; figures so far are written after each turn."""
    figures: Figures = {program.name: [Phase() for _ in RATES] for program in programs}
    traffics = [traffic_at(rate, seconds) for rate in RATES]
    reference: list[Outcome] = []
    for turn in range(turns):
        shift = turn % len(programs)
        for program in (*programs[shift:], *programs[:shift]):
            found = one_turn(program, setting, traffics)
            reference = reference or [outcome for outcome, _ in found]
            for phase, (outcome, resident), first in zip(figures[program.name], found, reference, strict=True):
                phase.add(outcome, first, resident)
        print(f"turn {turn + 1} of {turns} done", file=sys.stderr, flush=True)
        if write is not None:
            write.write_bytes(orjson.dumps({"machine": machine(), "turns": turn + 1, "programs": figures}))
    return figures


def ratio(figures: Figures, name: str, place: int) -> float:
    """Median over the turns of a program's CPU a message over the paho loop's."""
    pairs = zip(figures[name][place].us, figures[BASE][place].us, strict=True)
    return statistics.median(ours / loop for ours, loop in pairs)


def table(figures: Figures, place: int) -> Report:
    """Make the table of one rate."""
    rate = RATES[place]
    columns = ("program", "CPU us/msg min / median / max", "/ paho", "p50 ms", "p99 ms", "MB", "answers", "wrong")
    report = Report("saturated" if rate is None else f"{rate:,} messages/s", columns)
    for name, phases in figures.items():
        phase = phases[place]
        # Saturated, an answer's age is the length of the queue that the sender made.
        late = (None, None) if rate is None else (statistics.median(phase.p50_ms), statistics.median(phase.p99_ms))
        memory = round(statistics.median(phase.megabytes))
        over = ratio(figures, name, place)
        report.rows.append((name, spread(phase.us), over, *late, memory, phase.answers, phase.wrong))
    return report


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4.0, help="length of each rate in each turn")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every figure there, after each turn")
    parser.add_argument("--picture", type=Path, metavar="FILE", help="write the bars there, as SVG")
    parser.add_argument("--system-calls", action="store_true", help="count system calls with strace and nothing else")
    options = parser.parse_args()
    print("\n".join(f"{key}: {value}" for key, value in machine().items()))
    programs, missing = available()
    print("\n".join(f"left out: {name}: {why}" for name, why in missing.items()))
    with tempfile.TemporaryDirectory() as folder:
        setting = Setting(folder=Path(folder))
        if options.system_calls:
            print(system_calls.report(programs, setting, traffic_at(100, options.seconds)).text())
            return 0
        figures = measured(programs, setting, options.turns, options.seconds, options.json)
    for place in range(len(RATES)):
        print(f"\n{table(figures, place).text()}")
    if options.picture:
        ratios = {name: [ratio(figures, name, place) for place in range(len(RATES))] for name in figures}
        labels = ["saturated" if rate is None else f"{rate:,} messages/s" for rate in RATES]
        options.picture.write_text(picture.bars(ratios, labels), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
