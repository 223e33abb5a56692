"""CPU a message against what grows: keys, rate, length of a window, channels, size of the model.

Each curve changes one thing and leaves the others as they are: 64 keys, 50 samples of 6 channels a message, windows of
128 samples every 64, the network ``cnn_s``, as many messages as are taken. edge-runtime (a latency budget of 5 ms) and
the hand-written loop take turns at every point, and every answer of both is compared. Where a curve is about the model,
the CPU of a plain call of it is drawn too.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from edge_export.report.plot import Scale, dot, line, path, text
from markupsafe import Markup

from benchmarks.example_pictures import WIDTH, svg
from benchmarks.keys import resident_bytes
from benchmarks.load import SAMPLES, Load, Outcome, Traffic, difference, raw
from benchmarks.models import CHANNELS, FILTERS, NETS, WINDOWS
from benchmarks.programs import Program, Setting, bare_us, started
from benchmarks.report import Report, spread

OURS: Final = Program("edge-runtime", "edge-runtime", budget_ms=5.0)
LOOP: Final = Program("hand-written loop", "handwritten")
MODEL: Final = "the model alone"
RATE_S: Final = 3
"""Seconds that a rate is kept."""
DOCS: Final = Path(__file__).parent.parent / "docs"
CLASSES: Final = {OURS.name: "p", LOOP.name: "l", MODEL: "o"}


@dataclass(frozen=True, kw_only=True)
class Point:
    """Messages that are sent at one place of a curve."""

    x: float
    net: str = "cnn_s"
    streams: int = 64
    measured: int = 6_000
    """Messages in the measured part, about."""
    rate: float | None = None
    """Messages a second; None: as many as are taken."""

    def traffic(self) -> tuple[Traffic, int]:
        """Return the messages, and how many of them come before the clock starts."""
        net = NETS[self.net]
        first = -(-net.window // SAMPLES)  # a window of every key, so that everything of a key is there
        messages = first + max(2, round(self.measured / self.streams))
        return Traffic(self.streams, messages, raw, distinct=200, net=net), first * self.streams


@dataclass(frozen=True, kw_only=True)
class Curve:
    """One picture.

    Attributes:
        name: of its file, ``docs/curve-NAME.svg``.
        title: above it.
        axis: in words, with its unit.
        points: from left to right.
        model: draw a plain call of the model too.
    """

    name: str
    title: str
    axis: str
    points: tuple[Point, ...]
    model: bool = False


@dataclass
class Found:
    """Measurements at one point, a figure of each turn."""

    us: dict[str, list[float]] = field(default_factory=dict)
    """CPU a message by program."""
    busy: list[float] = field(default_factory=list)
    """Share of a core that edge-runtime took."""
    p99_ms: list[float] = field(default_factory=list)
    key_bytes: list[float] = field(default_factory=list)
    """Growth of edge-runtime's memory, over the keys."""
    wrong: int = 0
    """Answers that are missing, repeated, or not the loop's."""


def curves_of(quick: bool) -> tuple[Curve, ...]:
    """All curves; quick ones leave out every second point and the largest numbers of keys."""
    some = slice(None, None, 2 if quick else 1)
    keys = (10, 100, 1_000, 10_000) if quick else (10, 100, 1_000, 10_000, 20_000, 50_000)
    rates = [20, 100, 500, 2_000, 5_000, 10_000][some]
    windows = {n: f"window_{n}" for n in list(WINDOWS)[some]}
    channels = {n: f"channels_{n}" for n in list(CHANNELS)[some]}
    sizes = {NETS[net].products(): net for net in [f"filters_{n}" for n in FILTERS][some]}
    return (
        Curve(
            name="keys",
            title="CPU a message, by number of keys",
            axis="keys",
            points=tuple(Point(x=n, streams=n, measured=max(6_000, 2 * n)) for n in keys),
        ),
        Curve(
            name="rate",
            title="CPU a message, by rate",
            axis="messages a second",
            points=tuple(Point(x=n, streams=min(64, n), measured=RATE_S * n, rate=n) for n in rates),
        ),
        _of_nets("window", "CPU a message, by length of window", "samples in a window, one every 64", windows),
        _of_nets("channels", "CPU a message, by channels", "channels", channels),
        _of_nets("model", "CPU a message, by size of model", "multiplications a window", sizes, measured=3_000),
    )


def _of_nets(name: str, title: str, axis: str, nets: Mapping[int, str], measured: int = 6_000) -> Curve:
    """Make a curve whose points differ in the network alone."""
    points = tuple(Point(x=x, net=net, measured=measured) for x, net in nets.items())
    return Curve(name=name, title=title, axis=axis, points=points, model=True)


def curves(quick: bool) -> Iterator[Report]:
    """Measure every curve; the pictures of a whole run go to ``docs/``."""
    with tempfile.TemporaryDirectory() as folder:
        for curve in curves_of(quick):
            found = measured(curve, Path(folder), turns=2 if quick else 5)
            if not quick:
                (DOCS / f"curve-{curve.name}.svg").write_text(picture(curve, found), "utf-8")
            yield report(curve, found)


def measured(curve: Curve, folder: Path, turns: int) -> list[Found]:
    """Both programs at every point, in turns."""
    all_found = []
    for point in curve.points:
        found = Found()
        setting = Setting(folder=folder, net=point.net, keys=point.streams)
        traffic, warm_up = point.traffic()
        for turn in range(turns):
            if curve.model:
                calls = max(20, min(2_000, round(1e9 / NETS[point.net].products())))
                windows_a_message = traffic.samples / traffic.net.hop
                found.us.setdefault(MODEL, []).append(windows_a_message * bare_us(setting, calls))
            outcomes = {}
            for program in (OURS, LOOP) if turn % 2 else (LOOP, OURS):
                outcome, grown = _run(program, setting, traffic, warm_up, point.rate)
                outcomes[program.name] = outcome
                found.us.setdefault(program.name, []).append(outcome.cpu_us_per_message)
                found.wrong += outcome.missing + outcome.repeated
                if program is OURS:
                    found.busy.append(outcome.cpu_s / outcome.wall_s)
                    found.p99_ms.append(outcome.latency_ms(0.99))
                    found.key_bytes.append(grown / point.streams)
            found.wrong += bool(difference(outcomes[OURS.name].rows, outcomes[LOOP.name].rows))
        all_found.append(found)
    return all_found


def _run(program: Program, setting: Setting, traffic: Traffic, warm_up: int, rate: float | None) -> tuple[Outcome, int]:
    """One run of one program: what came out, and by how many bytes its memory grew."""
    with Load() as load, started(program.command(setting, load.port)) as process:
        load.wait_for_subscriber(alive=lambda: process.poll() is None)
        before = resident_bytes(process.pid)
        outcome = load.run(traffic, process.pid, warm_up=warm_up, rate=rate)
        return outcome, resident_bytes(process.pid) - before


def report(curve: Curve, found: Sequence[Found]) -> Report:
    """Make the table of a curve."""
    shown = (OURS.name, LOOP.name, *([MODEL] if curve.model else ()))
    costs = tuple(f"{name} us/msg" for name in shown)
    made = Report(curve.title, (curve.axis, *costs, "over the loop", "core %", "p99 ms", "bytes/key", "wrong"))
    for point, one in zip(curve.points, found, strict=True):
        made.rows.append(
            (
                round(point.x),
                *(spread(one.us[name]) for name in shown),
                statistics.median(a / b for a, b in zip(one.us[OURS.name], one.us[LOOP.name], strict=True)),
                100 * statistics.median(one.busy),
                # Saturated, an answer's age is the length of the queue that the sender made.
                statistics.median(one.p99_ms) if point.rate else None,
                round(statistics.median(one.key_bytes)),
                one.wrong,
            )
        )
    made.notes.append("us/msg: CPU of the process a message, least / median / most of the turns")
    return made


def picture(curve: Curve, found: Sequence[Found]) -> str:
    """Draw the medians as lines and the spread of the turns as bars, both axes logarithmic."""
    xs = [point.x for point in curve.points]
    series = {name: [one.us[name] for one in found] for name in CLASSES if name in found[0].us}
    values = [value for lists in series.values() for turns in lists for value in turns]
    x = Scale(low=xs[0] / 1.15, high=xs[-1] * 1.15, begin=62, end=WIDTH - 16, logarithmic=True)
    y = Scale(low=min(values) / 1.3, high=max(values) * 1.3, begin=300, end=44, logarithmic=True)
    parts: list[Markup] = []
    for value in y.ticks():
        parts += [
            line(x.begin, y(value), x.end, y(value), "g"),
            text(x.begin - 8, y(value), _short(value), anchor="end"),
        ]
    parts += [text(x(value), y.begin + 16, _short(value), anchor="middle") for value in xs]
    parts += [text((x.begin + x.end) / 2, y.begin + 38, curve.axis, anchor="middle", class_="s")]
    for name, lists in series.items():
        parts += _line(lists, xs, x, y, CLASSES[name])
    return svg(f"{curve.title} (us)", y.begin + 84, [*parts, *_legend(series, y.begin + 66)])


def _line(lists: Sequence[Sequence[float]], xs: Sequence[float], x: Scale, y: Scale, class_: str) -> list[Markup]:
    drawn = [path([(x(at), y(statistics.median(turns))) for at, turns in zip(xs, lists, strict=True)], class_)]
    for at, turns in zip(xs, lists, strict=True):
        drawn.append(line(x(at), y(min(turns)), x(at), y(max(turns)), class_))
        drawn.append(dot(x(at), y(statistics.median(turns)), class_, spread(turns), radius=3))
    return drawn


def _legend(series: Mapping[str, object], at: float) -> list[Markup]:
    parts, left = [], 12.0
    for name in series:
        parts += [line(left, at, left + 22, at, CLASSES[name]), text(left + 27, at, name)]
        left += 48 + 7 * len(name)
    return parts


def _short(value: float) -> str:
    """A number in at most four letters: 50k, 1.2M."""
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.3g}{letter}" if value / size < 10 else f"{value / size:.0f}{letter}"
    return f"{value:g}"
