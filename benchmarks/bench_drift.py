"""Drift without labels: how soon each detector finds what happens to a sensor, beside a twin that fires at random.

::

    python -m benchmarks drift          # needs the recordings that lie beside a development checkout (EDGE_SHARED)

People are in four folds; references and thresholds are measured on the people of three, and the fault begins in the
middle of a stream of the fourth. A *window* is one that overlaps none before it. The *twin* fires at random, so often
that it has as many false alarms on the same clean streams; where a detector has none there, as many as the 95 % upper
bound allows.
"""

from __future__ import annotations

import dataclasses
import logging
import sys
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from edge_export.choose.evaluation.sensors import (
    LEAST_COST,
    Cost,
    Looks,
    faults_of,
    fit,
    inflict,
    inverse,
    look_at,
    measure_sensors,
    triads_of,
)
from edge_export.data.dataset import Dataset, Recording, Windows, load_recordings
from edge_export.data.labels import label_windows
from edge_export.data.references import measure_references

from benchmarks import drift_machines
from benchmarks.bench_intake import EXAMPLE, manifest_of, upper_bound
from benchmarks.drift_data import LOOKS, Fault, faults, following, halves
from benchmarks.intake_data import DATA, Set, Stream, exercise_watch, har
from benchmarks.report import Goal, Report
from edge_runtime.app.python_api import open_model
from edge_runtime.clock import SystemClock
from edge_runtime.manifest import Manifest
from edge_runtime.manifest.drift import Repair
from edge_runtime.metrics import Metrics
from edge_runtime.model.serving.loading import Model
from edge_runtime.signal.drift.agreement import wilson
from edge_runtime.signal.drift.config import DriftConfig
from edge_runtime.signal.drift.features import Repairs
from edge_runtime.signal.drift.latch import CALM
from edge_runtime.signal.drift.monitor import Drift
from edge_runtime.signal.drift.repair import Likelihood
from edge_runtime.signal.intake.config import IntakeConfig
from edge_runtime.signal.intake.intake import Intake
from edge_runtime.signal.stage import WindowBatch
from edge_runtime.signal.windowing.window import Window, Windower
from edge_runtime.types import Float32, Float64, Reading

DETECTORS = ("rules", "repair", "changed")
FOLDS = 4


# -- one stream --------------------------------------------------------------------------------------------------------


class Run(NamedTuple):
    """Detectors that were on at each window of a stream, and the messages of alarms."""

    on: Mapping[str, np.ndarray]
    """By detector."""
    end: Float64
    """Stamp at which each window ends."""
    messages: list[str]
    begun: int
    """Alarms of drift, as an operator sees them."""


def play(stream: Stream, manifest: Manifest) -> Run:
    """Run a stream through windower, intake and drift; what is on at windows that overlap none before them."""
    metrics = Metrics()
    intake, drift = (
        Intake(IntakeConfig(), 10, metrics, SystemClock()),
        Drift(DriftConfig(), 10, metrics, SystemClock()),
    )
    intake.use(manifest)
    drift.use(manifest)
    readings = [Reading("w", stream.t, stream.values)]
    intake.read(readings)
    on: dict[str, list[bool]] = {name: [] for name in DETECTORS}
    ends, contract = [], manifest.input
    messages: dict[str, None] = {}
    every = contract.hop * -(-contract.window // contract.hop)
    for window in Windower(contract).push(readings):
        batch = WindowBatch([window])
        intake.run(batch)
        by_rule = bool(batch.suspects)
        drift.run(batch)
        if window.slot % every:
            continue
        alarms = {alarm.detector: alarm for alarm in drift.alarms}
        for name in DETECTORS:
            on[name].append(by_rule if name == "rules" else name in alarms)
        messages |= {alarm.message: None for alarm in alarms.values()}
        ends.append(window.start + contract.window / contract.rate_hz)
    begun = sum(count for name, count in metrics.counts.items() if name.startswith("drift_alarms_total"))
    return Run({name: np.array(row) for name, row in on.items()}, np.array(ends), list(messages), begun)


# -- references of a fold ----------------------------------------------------------------------------------------------


def windows_of(one: Set) -> Windows:
    recordings = tuple(
        Recording(name=name, group=name, label=-1, values=stream.values, t=stream.t, marks=one.labels[name])
        for name, stream in one.people.items()
    )
    described = one.contract
    classes = tuple(str(i) for i in range(1 + max(int(labels.max()) for labels in one.labels.values())))
    return label_windows(
        Dataset(
            name=one.name,
            channels=described.channels,
            rate_hz=described.rate_hz,
            classes=classes,
            recordings=recordings,
        ),
        described,
    )


def chosen(windows: Windows, people: Sequence[str]) -> Windows:
    which = np.isin(windows.group, people)
    return dataclasses.replace(
        windows,
        **{name: getattr(windows, name)[which] for name in ("contexts", "y", "group", "recording", "start")},
    )


def cost_by_centres(looks: Looks, names: Sequence[str]) -> Cost:
    """Accuracy that faults cost the nearest centre, each group answered by the centres of the others."""
    floors = np.full(len(names), 1e-6)
    parts = []
    for name in np.unique(looks.group):
        alone = looks.of(looks.group == name)
        parts.append((Likelihood(fit(looks.of(looks.group != name), names, floors)), alone))

    def right(repair: Repair | None) -> int:
        count = 0
        for likelihood, alone in parts:
            statistics = alone.statistics
            if repair is not None:
                fault = Repairs([inverse(repair, names)], names).apply(statistics)
                statistics = type(statistics)(*(part[:, 0] for part in fault))
            count += int((likelihood.distances(statistics).argmin(axis=1) == alone.y).sum())
        return count

    whole = right(None)
    return lambda repair: (whole - right(repair)) / len(looks.y)


def manifest_for(one: Set, windows: Windows, people: Sequence[str]) -> Manifest:
    """The bundle that these people would make."""
    training = chosen(windows, people)
    names = [channel.name for channel in one.contract.channels]
    looks = look_at(training, one.contract, range(len(names)))
    sensors = measure_sensors(training, one.contract, triads_of(one.contract), cost_by_centres(looks, names))
    references = measure_references(training, one.contract)
    return dataclasses.replace(manifest_of(one.contract, references), sensors=sensors)


# -- tables ------------------------------------------------------------------------------------------------------------


def alarms_of(on: np.ndarray) -> int:
    """Count alarms; one that goes on counts again after `CALM` windows, but for those that its latch adds."""
    edges = np.flatnonzero(np.diff(np.concatenate(([0], on.astype(np.int8), [0]))))
    return sum(1 + max(0, end - begin - CALM) // CALM for begin, end in zip(edges[::2], edges[1::2], strict=True))


class Found(NamedTuple):
    """Outcome of one person's stream."""

    after: Mapping[str, int]
    """Windows from the fault to the first one in which a detector was on."""
    named: bool
    """An alarm named the cause."""


def found(run: Run, begins: float, fault: Fault) -> Found:
    later = np.flatnonzero(run.end > begins)[:LOOKS]
    after = {}
    for name, on in run.on.items():
        hits = np.flatnonzero(on[later])
        if len(hits):
            after[name] = int(hits[0]) + 1
    named = "orientation changed"
    if fault.repair is not None and fault.repair.cause == "unit":
        named = f"values look like {fault.repair.unit} instead"
    return Found(after, any(named in message for message in run.messages))


def measured(one: Set, other: Set | None = None) -> tuple[Report, Report]:
    """Measure one set: each fault, and clean streams."""
    windows, people = windows_of(one), sorted(one.people)
    outcomes: dict[str, list[Found]] = defaultdict(list)
    names = [channel.name for channel in one.contract.channels]
    cost = cost_by_centres(look_at(windows, one.contract, range(len(names))), names)
    shown = {fault.name: fault for fault in faults(one, other)}
    costs = {name: None if fault.repair is None else cost(fault.repair) for name, fault in shown.items()}
    clean: dict[str, list[np.ndarray]] = defaultdict(list)
    hours, begun = 0.0, 0
    for fold in (people[at::FOLDS] for at in range(FOLDS)):
        manifest = manifest_for(one, windows, [name for name in people if name not in fold])
        assert manifest.sensors is not None
        logging.getLogger(__name__).info("%s: %s", one.name, manifest.sensors)
        for name in fold:
            whole = play(one.people[name], manifest)
            for detector, on in whole.on.items():
                clean[detector].append(on)
            hours += float(one.people[name].t[-1] - one.people[name].t[0]) / 3600
            begun += whole.begun
            first, second = halves(one.people[name])
            for fault in faults(one, other):
                wrong = fault.make(name, second)
                if wrong is not None:
                    stream = following(first, wrong, one.contract.rate_hz)
                    outcomes[fault.name].append(found(play(stream, manifest), float(first.t[-1]), fault))
    return _table(one.name, outcomes, (shown, costs), clean), _days(one.name, clean, hours, begun)


def _table(
    name: str,
    outcomes: Mapping[str, list[Found]],
    about: tuple[Mapping[str, Fault], Mapping[str, float | None]],
    clean: Mapping[str, list[np.ndarray]],
) -> Report:
    faults_shown, costs = about
    title = f"{name}: % of people found within {LOOKS} windows (median windows)"
    report = Report(title, ("", "accuracy lost", *DETECTORS, "named %"))
    count = sum(len(on) for on in clean["repair"])
    rates = {detector: sum(map(alarms_of, runs)) / count for detector, runs in clean.items()}
    twins = {one: 1 - (1 - (rate or 3 / count)) ** LOOKS for one, rate in rates.items()}
    report.rows.append(
        ("false alarms in 1,000 windows", None, *(f"{1000 * rates[one]:.1f}" for one in DETECTORS), None)
    )
    report.rows.append(("random twin at that rate", None, *(f"{100 * twins[one]:.0f}" for one in DETECTORS), None))
    shares: dict[str, list[float]] = defaultdict(list)
    for fault, people in outcomes.items():
        cells = []
        for detector in DETECTORS:
            after = [one.after[detector] for one in people if detector in one.after]
            cells.append(f"{100 * len(after) / len(people):.0f} ({np.median(after):.0f})" if after else "0")
        named = 100 * sum(one.named for one in people) / len(people)
        lost = costs[fault]
        report.rows.append(
            (fault, None if lost is None else f"{lost:.2f}", *cells, None if lost is None else f"{named:.0f}")
        )
        kind = faults_shown[fault].kind
        if lost is not None and lost >= LEAST_COST:
            finders = {"repair", "rules"} if kind == "unit" else {"repair"}
            shares[kind].append(100 * sum(bool(one.after.keys() & finders) for one in people) / len(people))
    for kind, found_of in shares.items():
        text = f"{name}: {kind}, faults that cost {LEAST_COST:g} or more, found in the mean; twin plus 40"
        report.goals.append(Goal(text, float(np.mean(found_of)), 100 * twins["repair"] + 40))
    text = f"{name}: false alarms of repair in 1,000 windows"
    report.goals.append(Goal(text, 1000 * rates["repair"], 5, at_most=True))
    return report


def _days(name: str, clean: Mapping[str, list[np.ndarray]], hours: float, begun: int) -> Report:
    report = Report(f"{name}: alarms on clean streams", ("hours", "windows", "alarms", "at most a day (95 %)"))
    report.rows.append((hours, sum(map(len, clean["repair"])), begun, 24 * upper_bound(begun, hours)))
    return report


def cost(one: Set) -> Report:
    """Time of a window: the detectors of a bundle with references, and those of one without."""
    windows = windows_of(one)
    people = sorted(one.people)
    known = manifest_for(one, windows, people[1:])
    stream = Windower(known.input).push([Reading("w", *one.people[people[0]])])
    report = Report("cost", ("bundle", "repairs", "us a window", "us a window, 100 keys at once"))
    for name, manifest in (("with sensors", known), ("without", dataclasses.replace(known, sensors=None))):
        spent = []
        for keys in (1, 100):
            drift = Drift(DriftConfig(), keys, Metrics(), SystemClock())
            drift.use(manifest)
            calls = [[window._replace(key=str(key)) for key in range(keys)] for window in stream]
            began = time.perf_counter()
            for call in calls:
                if drift.active:
                    drift.run(WindowBatch(call))
            spent.append(1e6 * (time.perf_counter() - began) / (keys * len(calls)))
        count = 0 if manifest.sensors is None else len(manifest.sensors.repairs)
        report.rows.append((name, count, *spent))
    return report


def agreement() -> Report:
    """The example's device and cloud models on its test people: what audits of a tenth say of the accuracy."""
    known = load_recordings(EXAMPLE.parent / "recordings.npz")
    names = [channel.name for channel in known.channels]
    report = Report(
        "exercise-watch, people 8 and 10: accuracy, and agreement with the cloud (audits of one window in ten)",
        ("", "accuracy", "agreement", "in the audits", "interval"),
    )
    with open_model(EXAMPLE) as device, open_model(EXAMPLE.parent / "teacher.edge") as cloud:
        windows = label_windows(known, dataclasses.replace(device.manifest.input, context=0))
        whole = label_windows(known, device.manifest.input)
        for fault in (None, *(one for one in faults_of(known.channels, (names[:3], names[3:])) if one.fault in _SHOWN)):
            x, contexts = windows.x, whole.contexts
            if fault is not None:
                x, contexts = inflict(x, fault, names), inflict(contexts, fault, names)
            mine, theirs = _best(device, x), _best(cloud, contexts)
            agreed = mine == theirs
            audits = agreed[np.random.default_rng(0).random(len(agreed)) < 0.1]
            low, high = wilson(int(audits.sum()), len(audits))
            report.rows.append(
                (
                    "right" if fault is None else fault.fault,
                    float((mine == windows.y).mean()),
                    float(agreed.mean()),
                    float(audits.mean()),
                    f"{low:.2f} to {high:.2f}",
                )
            )
    return report


_SHOWN = ("ax and ay swapped", "ax, ay, az in m/s2 instead of g", "all axes turned by 90 degrees about z")


def _best(model: Model, x: Float32) -> np.ndarray:
    """Best label of each window, (n, channels, samples)."""
    samples = np.ascontiguousarray(x.transpose(0, 2, 1))
    windows = [Window("w", at, float(at), one, one, 0.0) for at, one in enumerate(samples)]
    size = model.max_batch
    rows = [model.predict(windows[at : at + size]).rows.argmax(axis=1) for at in range(0, len(windows), size)]
    return np.concatenate(rows)


def main() -> int:
    if not DATA.is_dir():
        print(f"no recordings in {DATA}; set EDGE_SHARED to their folder")
        return 1
    logging.getLogger("edge_runtime").setLevel(logging.ERROR)
    phone, watch = har("sp", "har phone"), har("sw", "har watch")
    for one, other in ((phone, watch), (watch, phone), (exercise_watch(), None)):
        began = time.monotonic()
        for report in measured(one, other):
            print(f"\n{report.text()}", flush=True)
        print(f"({time.monotonic() - began:.0f} s)")
    for report in (drift_machines.pump(), drift_machines.room()):
        print(f"\n{report.text()}", flush=True)
    print(f"\n{agreement().text()}")
    print(f"\n{cost(phone).text()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
