"""Messages in, answers out: edge-runtime beside the loop that a competent user writes by hand.

Every program gets the same messages over TCP from the same load generator on another core, and every answer row of
every run is compared. Variants take turns, round by round, so that a busy machine slows all of them; ratios are taken
within a round, and the median over the rounds is reported. CPU is process time, all threads; "msg/CPU s" is what the
program would do with the core to itself, and is the figure to judge by where others use the machine at the same time.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.load import Outcome, Traffic, checksum, difference, nested_json, raw
from benchmarks.programs import Program, Setting, bare_us, measure
from benchmarks.report import Goal, Report, spread

STREAMS = 64

OURS = Program("edge-runtime", "edge-runtime")
OURS_5MS = Program("edge-runtime, 5 ms", "edge-runtime", budget_ms=5.0)
HAND = Program("hand-written", "handwritten")
HAND_QUEUE = Program("hand-written, queue", "handwritten", queue=True)
HAND_ORJSON = Program("hand-written, orjson", "handwritten", decoder="orjson")
HAND_JSON = Program("hand-written, json", "handwritten", decoder="json")


class Comparison:
    """Rounds of several programs under one setting.

    Args:
        setting: what they have in common.
        traffic: what they are sent.
        programs: the first one is the yardstick of the ratios.
        rounds: how often each runs.
    """

    def __init__(self, setting: Setting, traffic: Traffic, programs: Sequence[Program], rounds: int) -> None:
        self.setting, self.traffic, self.programs, self.rounds = setting, traffic, programs, rounds
        self.outcomes: dict[str, list[Outcome]] = {program.name: [] for program in programs}
        self.bare: list[float] = []
        self.disagreements: list[str] = []
        self.checksum = ""

    def run(self, *, warm_up: int, rate: float | None = None, until: int | None = None, bare_calls: int = 0) -> None:
        for turn in range(self.rounds):
            if bare_calls:
                self.bare.append(bare_us(self.setting, bare_calls))
            # The order turns too: no program always runs behind the same neighbour.
            shift = turn % len(self.programs)
            for program in (*self.programs[shift:], *self.programs[:shift]):
                outcome = measure(program, self.setting, self.traffic, warm_up=warm_up, rate=rate, until=until)
                self.outcomes[program.name].append(outcome)
                self._compare(program, outcome)

    def _compare(self, program: Program, outcome: Outcome) -> None:
        if not self.checksum:
            self._reference, self.checksum = outcome.rows, checksum(outcome.rows)
        if checksum(outcome.rows) != self.checksum and (found := difference(self._reference, outcome.rows)):
            self.disagreements.append(f"{program.name}: {found}")
        if outcome.missing or outcome.repeated:
            self.disagreements.append(f"{program.name}: {outcome.missing} answers missing, {outcome.repeated} repeated")

    def all(self, program: Program, figure: str, *arguments: float) -> list[float]:
        """Return a figure of every round."""
        values: list[float] = []
        for outcome in self.outcomes[program.name]:
            value = getattr(outcome, figure)
            values.append(value(*arguments) if arguments else value)
        return values

    def of(self, program: Program, figure: str, *arguments: float) -> float:
        """Median of a figure over the rounds."""
        return statistics.median(self.all(program, figure, *arguments))

    def ratio(self, above: Program, below: Program, figure: str) -> float:
        """Median over the rounds of one program's figure over another's."""
        pairs = zip(self.outcomes[above.name], self.outcomes[below.name], strict=True)
        ratios: list[float] = [getattr(a, figure) / getattr(b, figure) for a, b in pairs]
        return statistics.median(ratios)

    def over_bare(self, program: Program) -> float:
        """CPU per window over one plain batch-1 call, median of the rounds."""
        return statistics.median(
            outcome.cpu_us_per_window / bare
            for outcome, bare in zip(self.outcomes[program.name], self.bare, strict=True)
        )

    def notes(self) -> list[str]:
        """Say in words that all answers agree, or which do not."""
        rows = len(self._reference)
        if self.disagreements:
            return [f"ANSWERS DISAGREE: {'; '.join(self.disagreements[:5])}"]
        return [f"all {rows:,} answer rows of all {self.rounds} rounds agree, checksum {self.checksum}"]


def _saturated_report(title: str, comparison: Comparison) -> Report:
    report = Report(
        title,
        ("program", "msg/s", "msg/CPU s", "CPU us/msg", "CPU us/window", "/ session.run", "msg/s x", "msg/CPU s x"),
    )
    base = comparison.programs[0]
    for program in comparison.programs:
        report.rows.append(
            (
                program.name,
                comparison.of(program, "rate"),
                spread(comparison.all(program, "cpu_rate")),
                comparison.of(program, "cpu_us_per_message"),
                spread(comparison.all(program, "cpu_us_per_window"), 1),
                comparison.over_bare(program) if comparison.bare else None,
                comparison.ratio(program, base, "rate"),
                comparison.ratio(program, base, "cpu_rate"),
            )
        )
    if comparison.bare:
        report.rows.append(("session.run, batch 1", None, None, None, spread(comparison.bare, 1), 1.0, None, None))
    report.notes += comparison.notes()
    return report


def saturated(quick: bool) -> Iterator[Report]:
    """As many messages as are taken: raw payloads, then nested JSON."""
    rounds = 5
    messages = 300 if quick else 1000
    warm_up = 40 * STREAMS
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        traffic = Traffic(STREAMS, messages, raw)
        for net in ("cnn_m", "cnn_s"):
            comparison = Comparison(Setting(folder=folder, net=net), traffic, [HAND, HAND_QUEUE, OURS], rounds)
            comparison.run(warm_up=warm_up, bare_calls=5_000)
            report = _saturated_report(
                f"saturated, raw float32, {traffic.payload_bytes} B a message, {net} int8, {STREAMS} streams",
                comparison,
            )
            if net == "cnn_m":
                report.goals = [
                    Goal(
                        "messages/s of one core, over the hand-written loop",
                        comparison.ratio(OURS, HAND, "cpu_rate"),
                        4.0,
                    ),
                    Goal("CPU per window over one session.run", comparison.over_bare(OURS), 0.8, at_most=True),
                ]
            yield report
        for title, setting in (("QoS 1 both ways, MQTT 5", Setting(folder=folder, qos=1, mqtt5=True)),):
            comparison = Comparison(setting, traffic, [HAND, OURS], rounds)
            comparison.run(warm_up=warm_up, bare_calls=5_000)
            yield _saturated_report(f"saturated, raw float32, {title}, cnn_m int8, {STREAMS} streams", comparison)
        traffic = Traffic(STREAMS, messages // 2, nested_json)
        setting = Setting(folder=folder, payload="json")
        comparison = Comparison(setting, traffic, [HAND_ORJSON, HAND_JSON, OURS], rounds)
        comparison.run(warm_up=warm_up, bare_calls=5_000)
        report = _saturated_report(
            f"saturated, nested JSON, {traffic.payload_bytes} B a message, cnn_m int8, {STREAMS} streams", comparison
        )
        report.goals = [
            Goal(
                "messages/s of one core, over the loop with stdlib json",
                comparison.ratio(OURS, HAND_JSON, "cpu_rate"),
                2.5,
            ),
            Goal(
                "messages/s of one core, over the loop with orjson",
                comparison.ratio(OURS, HAND_ORJSON, "cpu_rate"),
                2.5,
            ),
        ]
        yield report


def paced(quick: bool) -> Iterator[Report]:
    """A steady rate: latency and CPU."""
    rounds = 5
    seconds = 3 if quick else 5
    with tempfile.TemporaryDirectory() as name:
        setting = Setting(folder=Path(name))
        for rate in (100, 500, 2_000, 10_000):
            programs = [HAND, OURS, OURS_5MS]
            warm_up = 3 * STREAMS
            traffic = Traffic(STREAMS, 3 + seconds * rate // STREAMS, raw)
            comparison = Comparison(setting, traffic, programs, rounds)
            comparison.run(warm_up=warm_up, rate=rate)
            report = Report(
                f"{rate:,} messages/s, raw float32, cnn_m int8, {STREAMS} streams",
                ("program", "CPU us/msg", "CPU ratio", "core busy %", "p50 ms", "p99 ms", "max ms"),
            )
            for program in programs:
                report.rows.append(
                    (
                        program.name,
                        spread(comparison.all(program, "cpu_us_per_message")),
                        comparison.ratio(program, programs[0], "cpu_us_per_message"),
                        100 * comparison.of(program, "cpu_s") / comparison.of(program, "wall_s"),
                        spread(comparison.all(program, "latency_ms", 0.5), 2),
                        spread(comparison.all(program, "latency_ms", 0.99), 2),
                        comparison.of(program, "latency_ms", 1.0),
                    )
                )
            report.goals = _paced_goals(comparison, rate)
            report.notes += comparison.notes()
            yield report


def _paced_goals(comparison: Comparison, rate: int) -> list[Goal]:
    if rate == 500:
        p50, loop = comparison.of(OURS, "latency_ms", 0.5), comparison.of(HAND, "latency_ms", 0.5)
        return [
            Goal("p50 ms with budget 0", p50, 0.3, at_most=True),
            Goal("p50 over the hand-written loop's", p50 / loop, 1.0, at_most=True),
        ]
    if rate == 10_000:
        return [
            Goal(
                "CPU over the hand-written loop's, 5 ms budget",
                comparison.ratio(OURS_5MS, HAND, "cpu_us_per_message"),
                1 / 3,
                at_most=True,
            ),
            Goal("p99 ms with 5 ms budget", comparison.of(OURS_5MS, "latency_ms", 0.99), 15.0, at_most=True),
        ]
    return []
