"""Wrong units, wrong rates and stuck channels: how soon they are noticed, and how often nothing is wrong.

::

    python -m benchmarks intake          # needs the recordings that lie beside a development checkout (EDGE_SHARED)

Each person's recordings, one after the other, are one stream; its references are measured on all other people. Seconds
count from the fault to the end of the first window that is marked.
"""

from __future__ import annotations

import dataclasses
import logging
import math
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from edge_export.data.dataset import Dataset, Recording, Windows
from edge_export.data.references import measure_references, rates_of

from benchmarks.intake_data import (
    ACCELERATION,
    DATA,
    T0,
    Float32,
    Set,
    Stream,
    contract,
    ecg,
    exercise_watch,
    faults,
    har,
    in_units,
    room,
    scaled,
)
from benchmarks.report import Cell, Goal, Report
from edge_runtime.app.python_api import open_model
from edge_runtime.clock import SystemClock
from edge_runtime.manifest import InputContract, Manifest, Reference
from edge_runtime.metrics import Metrics
from edge_runtime.model.bundle.bundle import open_bundle
from edge_runtime.model.tasks.build import build_task
from edge_runtime.signal.intake.config import CHECKS, IntakeConfig
from edge_runtime.signal.intake.intake import Intake
from edge_runtime.signal.stage import WindowBatch
from edge_runtime.signal.windowing.recorded import cut_recording
from edge_runtime.signal.windowing.window import Window, Windower
from edge_runtime.types import Reading

EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "exercise-watch" / "watch.edge"


# -- one stream --------------------------------------------------------------------------------------------------------


def manifest_of(described: InputContract, references: tuple[Reference, ...]) -> Manifest:
    """The example's manifest with other windows and references."""
    with open_bundle(EXAMPLE) as bundle:
        return dataclasses.replace(bundle.manifest, schema_version=2, input=described, references=references)


class Heard(logging.Handler):
    """Lines of the intake."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


class Noticed(NamedTuple):
    """Outcome of one stream."""

    first: dict[str, float]
    """Second at which the first window ends that is marked, by reason."""
    begun: dict[str, int]
    """Notices by reason."""
    lines: list[str]
    marks: dict[tuple[str, int], str]


def play(stream: Stream, manifest: Manifest) -> Noticed:
    """Run a stream through windower and intake."""
    metrics, heard = Metrics(), Heard()
    intake = Intake(IntakeConfig(), 10, metrics, SystemClock())
    intake.use(manifest)
    logger = logging.getLogger("edge_runtime.signal.intake.intake")
    logger.addHandler(heard)
    try:
        readings = [Reading("w", stream.t, stream.values)]
        intake.read(readings)
        batch = WindowBatch(Windower(manifest.input).push(readings))
        intake.run(batch)
    finally:
        logger.removeHandler(heard)
    first: dict[str, float] = {}
    length = manifest.input.window
    for (_, slot), reasons in sorted(batch.suspects.items()):
        for reason in reasons.split(","):
            first.setdefault(reason, (slot + length) / manifest.input.rate_hz - float(stream.t[0]))
    begun: dict[str, int] = {reason: metrics.counts[f'suspect_keys_total{{reason="{reason}"}}'] for reason in CHECKS}
    return Noticed(first, begun, heard.lines, batch.suspects)


def windows_of(described: InputContract, people: Mapping[str, Stream]) -> dict[str, list[Window]]:
    return {name: cut_recording(described, name, stream.t, stream.values) for name, stream in people.items()}


def references_of(
    described: InputContract, people: Mapping[str, Stream], cut: Mapping[str, list[Window]], but: str = ""
) -> tuple[Reference, ...]:
    """References of all people but one, as a build measures them."""
    others = [
        Recording(name=name, group=name, label=0, values=stream.values, t=stream.t)
        for name, stream in people.items()
        if name != but
    ]
    known = Dataset(
        name="known", channels=described.channels, rate_hz=described.rate_hz, classes=("",), recordings=tuple(others)
    )
    rows = [(i, window) for i, (name, windows) in enumerate(cut.items()) if name != but for window in windows]
    return measure_references(
        Windows(
            contexts=np.stack([window.samples.T for _, window in rows]),
            samples=described.window,
            y=np.zeros(len(rows), np.int64),
            group=np.array([window.key for _, window in rows]),
            recording=np.array([i for i, _ in rows]),
            start=np.array([window.slot for _, window in rows]),
        ),
        described,
        rates_hz=rates_of(known, described),
    )


# -- tables ------------------------------------------------------------------------------------------------------------


def upper_bound(events: int, hours: float) -> float:
    """95 % upper bound on a rate per hour, given this many events in this time (Poisson)."""
    low, high = 0.0, 100.0 + 10 * events
    for _ in range(60):
        mean = (low + high) / 2
        below = sum(math.exp(-mean) * mean**k / math.factorial(k) for k in range(events + 1))
        low, high = (mean, high) if below > 0.05 else (low, mean)
    return high / hours


def noticed(one: Set) -> Report:
    """Each fault on each person."""
    report = Report(
        f"{one.name}: {len(one.people)} people, each against references of the others",
        ("fault", "people", "noticed", "named", "median s", "last s", "limit s"),
    )
    known: dict[tuple[str, str], tuple[Set, dict[str, Manifest]]] = {}
    for fault in faults(one):
        pair = (fault.acceleration, fault.rotation)
        if pair not in known:
            right = in_units(one, *pair)
            cut = windows_of(right.contract, right.people)
            known[pair] = (
                right,
                {
                    name: manifest_of(right.contract, references_of(right.contract, right.people, cut, name))
                    for name in right.people
                },
            )
        right, manifests = known[pair]
        seconds, named = [], 0
        for name, stream in right.people.items():
            found = play(fault.make(stream), manifests[name])
            if fault.reason in found.first:
                seconds.append(found.first[fault.reason] - fault.after_s)
                named += any(fault.named in line for line in found.lines)
        in_time = sum(one <= fault.within_s for one in seconds)
        report.rows.append(
            (
                fault.name,
                len(right.people),
                in_time,
                named if fault.named else None,
                float(np.median(seconds)) if seconds else None,
                max(seconds, default=None),
                fault.within_s,
            )
        )
        report.goals.append(Goal(f"{fault.name}: people missed", len(right.people) - in_time, 1, at_most=True))
    return report


def clean(sets: Sequence[Set]) -> Report:
    """Right recordings of people that the references do not know."""
    report = Report(
        "notices where nothing is wrong",
        ("recordings", "people", "hours", *CHECKS, "at most an hour (95 %)"),
    )
    for one in sets:
        cut = windows_of(one.contract, one.people)
        begun: dict[str, int] = dict.fromkeys(CHECKS, 0)
        for name, stream in one.people.items():
            found = play(stream, manifest_of(one.contract, references_of(one.contract, one.people, cut, name)))
            for reason, count in found.begun.items():
                begun[reason] += count
            for line in found.lines:
                report.notes.append(f"{one.name} {name}: {line}")
        hours = sum(float(stream.t[-1] - stream.t[0]) for stream in one.people.values()) / 3600
        total = sum(begun.values())
        report.rows.append((one.name, len(one.people), hours, *begun.values(), upper_bound(total, hours)))
    hours, total = (
        sum(float(row[2] or 0) for row in report.rows),
        sum(int(row[i] or 0) for row in report.rows for i in range(3, 3 + len(CHECKS))),
    )
    report.rows.append(("all", None, hours, *(None for _ in CHECKS), upper_bound(total, hours)))
    return report


def answers(one: Set, test: Sequence[str] = ("8", "10")) -> Report:
    """The example's bundle on its test people, in another unit: accuracy, and what is passed on as sure."""
    with np.load(DATA / "exercise-watch-seglearn" / "watch.npz") as stored:
        offset = stored["offset"]
        subject, label = stored["subject"].astype(str), stored["label"]
    model = open_model(EXAMPLE)
    described = model.manifest.input
    trained = {name: stream for name, stream in one.people.items() if name not in test}
    references = references_of(described, trained, windows_of(described, trained))
    manifest = dataclasses.replace(model.manifest, schema_version=2, references=references)
    task = build_task(model.manifest)
    report = Report(
        f"exercise-watch, people {' and '.join(test)}: {model.manifest.model}, {model.variant.name}",
        ("values in", "intake", "windows", "accuracy %", "hard %", "sure and wrong %"),
    )
    for given in ("g", "m/s2", "mg"):
        right: list[bool] = []
        hard: list[bool] = []
        suspect: list[bool] = []
        for person in test:
            indices = np.flatnonzero(subject == person)
            stream = scaled(one.people[person], ACCELERATION, "g", given)
            marks = play(stream, manifest).marks
            bounds = T0 + np.cumsum([offset[i + 1] - offset[i] for i in indices]) / 50
            windows = Windower(described).push([Reading("w", stream.t, stream.values)])
            for at in range(0, len(windows), model.max_batch):
                some = windows[at : at + model.max_batch]
                decision = task.decide(model.predict(some).rows)
                for window, best, is_hard in zip(some, decision.best, decision.hard, strict=True):
                    part = int(np.searchsorted(bounds, window.start + 1.0))
                    right.append(best == label[indices[min(part, len(indices) - 1)]])
                    hard.append(is_hard)
                    suspect.append(("w", window.slot) in marks)
        for name, unsure in (("off", np.array(hard)), ("on", np.array(hard) | np.array(suspect))):
            correct = np.array(right)
            row: tuple[Cell, ...] = (
                given,
                name,
                len(right),
                100 * float(correct.mean()),
                100 * float(unsure.mean()),
                100 * float((~unsure & ~correct).mean()),
            )
            report.rows.append(row)
    model.close()
    return report


def cost() -> Report:
    """Time of the intake on a stream with nothing wrong, beside that of cutting the windows."""
    report = Report("cost with nothing wrong", ("messages of", "us a message", "us a window", "windower: us a message"))
    described = contract(50, 128, acceleration="g")
    rng = np.random.default_rng(0)
    rows = rng.normal(0.5, 0.3, (4096, 6)).astype(np.float32)
    references = measure_references(
        Windows(
            contexts=rows.reshape(32, 128, 6).transpose(0, 2, 1), samples=128, y=np.zeros(32, np.int64),
            group=np.full(32, "p"), recording=np.zeros(32, np.int64), start=np.arange(32) * 64,
        ),
        described,
    )  # fmt: skip
    for size in (1, 50):
        best = [math.inf] * 3
        for _ in range(5):
            best = [min(pair) for pair in zip(best, _timed(described, references, rows, size), strict=True)]
        report.rows.append((f"{size} samples", *best))
    return report


def _timed(described: InputContract, references: tuple[Reference, ...], rows: Float32, size: int) -> list[float]:
    """CPU in us: the intake's a message, its a window, the windower's a message; 100 keys, 40 s each."""
    intake = Intake(IntakeConfig(), 1000, Metrics(), SystemClock())
    intake.use(manifest_of(described, references))
    windower = Windower(described)
    spent, messages, cut = [0.0, 0.0, 0.0], 0, 0
    for at in range(0, 2000, size):
        readings = [Reading(f"w{key}", T0 + at / 50, rows[at : at + size]) for key in range(100)]
        marks = [time.process_time()]
        intake.read(readings)
        marks.append(time.process_time())
        windows = windower.push(readings)
        marks.append(time.process_time())
        intake.run(WindowBatch(windows))
        marks.append(time.process_time())
        messages, cut = messages + len(readings), cut + len(windows)
        for i in range(3):
            spent[i] += marks[i + 1] - marks[i]
    return [1e6 * spent[0] / messages, 1e6 * spent[2] / cut, 1e6 * spent[1] / messages]


def main() -> int:
    if not DATA.is_dir():
        print(f"no recordings in {DATA}; set EDGE_SHARED to their folder")
        return 1
    sets = [exercise_watch(), har("sp", "har phone"), har("sw", "har watch")]
    for one in sets:
        print(f"\n{noticed(one).text()}", flush=True)
    print(f"\n{clean([*sets, ecg(), room()]).text()}", flush=True)
    print(f"\n{answers(sets[0]).text()}", flush=True)
    print(f"\n{cost().text()}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
