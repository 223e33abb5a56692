"""Sensor references: measured on people, tested on one that they do not know, in a real replay."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from edge_export.choose.evaluation.sensors import (
    cost_of,
    count_alarms,
    faults_of,
    inflict,
    inverse,
    look_at,
    measure_sensors,
    threshold_of,
    triads_of,
)
from edge_export.data.dataset import Dataset, Recording, load_recordings
from edge_export.data.labels import label_windows
from edge_export.package.rewrite import rewrite
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_runtime.app.application import App
from edge_runtime.app.config import parse
from edge_runtime.app.python_api import open_model, replay
from edge_runtime.base.system.loop import Loop
from edge_runtime.io.sinks.memory import MemorySink
from edge_runtime.io.sources import Deliver
from edge_runtime.manifest import Channel, InputContract, Manifest
from edge_runtime.manifest.drift import Repair, SensorReference
from edge_runtime.signal.drift.features import Repairs, measure
from edge_runtime.signal.drift.latch import CALM
from edge_runtime.signal.drift.words import notices
from edge_runtime.types import Float32, Float64, Reading, SuspectPrediction

EXAMPLE = Path(__file__).resolve().parents[4] / "examples" / "exercise-watch"
NAMES = ("ax", "ay", "az", "wx", "wy", "wz")
TRIADS = (NAMES[:3], NAMES[3:])
CHANNELS = tuple(Channel(name=name, unit="g" if name[0] == "a" else "rad/s") for name in NAMES)
CONTRACT = InputContract(channels=CHANNELS, rate_hz=50.0, window=100, hop=50)
HELD_OUT = "10 left"


def by_wrist() -> Dataset:
    """The example's recordings; each wrist of each person is a group."""
    known = load_recordings(EXAMPLE / "recordings.npz")
    recordings = tuple(dataclasses.replace(one, group=f"{one.group} {one.tags['side']}") for one in known.recordings)
    return dataclasses.replace(known, recordings=recordings)


def measured(dataset: Dataset, triads: Sequence[Sequence[str]] = TRIADS) -> SensorReference | None:
    """Reference of a data set, with flips that cost nothing."""
    return measure_sensors(
        label_windows(dataset, CONTRACT), CONTRACT, triads, lambda repair: 0.0 if "flipped" in repair.fault else 0.3
    )


@pytest.fixture(scope="module")
def reference() -> SensorReference:
    everyone = by_wrist()
    found = measured(everyone.only(group for group in everyone.groups if group != HELD_OUT))
    assert found is not None
    return found


@pytest.fixture(scope="module")
def bundle(reference: SensorReference, tmp_path_factory: pytest.TempPathFactory) -> Path:
    def with_sensors(before: Manifest) -> Manifest:
        return dataclasses.replace(before, schema_version=2, sensors=reference)

    return rewrite(EXAMPLE / "watch.edge", with_sensors, out=tmp_path_factory.mktemp("bundle") / "watch.edge")


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All exercises of one wrist that the reference does not know, as one recording."""
    values = np.concatenate([one.values for one in by_wrist().only([HELD_OUT]).recordings])
    rows = np.column_stack((np.arange(len(values)) / 50, values))
    path = tmp_path_factory.mktemp("session") / "session.csv"
    np.savetxt(path, rows, delimiter=",", header=",".join(("t", *NAMES)), comments="", fmt="%.6g")
    return path


def test_faults_that_cost_nothing_are_not_looked_for(reference: SensorReference) -> None:
    faults = {repair.fault for repair in reference.repairs}
    assert "ax and ay swapped" in faults
    assert "ax, ay, az in m/s2 instead of g" in faults
    assert not any("flipped" in fault for fault in faults)
    assert all(repair.threshold >= 2 and repair.found >= 0.5 and repair.cost == 0.3 for repair in reference.repairs)
    assert "costs 0.3 of the accuracy" in notices(reference)["ax and ay swapped"]


SWAPPED = {**dict(zip(NAMES, NAMES, strict=True)), "ax": "ay", "ay": "ax"}


def played(bundle: Path, session: Path, caplog: pytest.LogCaptureFixture) -> tuple[list[bool], str]:
    """Play a recording right, and with two columns swapped: which windows are suspect then, and the first warning."""
    with open_model(bundle) as model, caplog.at_level(logging.WARNING):
        right = list(replay(model, session, time="t"))
        assert not any(isinstance(answer, SuspectPrediction) for answer in right)
        assert not caplog.records
        wrong = list(replay(model, session, time="t", columns=SWAPPED))
    assert all(answer.hard for answer in wrong if isinstance(answer, SuspectPrediction))
    suspect = [isinstance(answer, SuspectPrediction) and answer.suspect == "orientation" for answer in wrong]
    return suspect, caplog.records[0].getMessage()


@pytest.mark.slow
def test_a_recording_whose_columns_are_swapped_is_suspect(
    bundle: Path, session: Path, caplog: pytest.LogCaptureFixture
) -> None:
    suspect, line = played(bundle, session, caplog)
    assert suspect.index(True) < 2 * 25, "within 25 windows, each of which overlaps the next by half"
    assert "cause=orientation: orientation changed (best match: " in line


@pytest.mark.slow
def test_with_enough_people_the_swap_is_named(shared: Path, session: Path, tmp_path: Path,
                                              caplog: pytest.LogCaptureFixture) -> None:  # fmt: skip
    with np.load(shared / "data" / "exercise-watch-seglearn" / "watch.npz") as stored:
        x, offset, subject, label = (stored[name] for name in ("x", "offset", "subject", "label"))
    known = tuple(
        Recording(name=f"r{i}", group=str(subject[i]), label=int(label[i]), values=x[offset[i] : offset[i + 1]])
        for i in range(len(label))
        if str(subject[i]) in ("1", "2", "4", "5", "7", "8")
    )
    found = measured(dataclasses.replace(by_wrist(), recordings=known))
    bundle = rewrite(
        EXAMPLE / "watch.edge",
        lambda before: dataclasses.replace(before, schema_version=2, sensors=found),
        out=tmp_path / "watch.edge",
    )
    suspect, line = played(bundle, session, caplog)
    assert suspect.index(True) < 2 * 25
    assert sum(suspect) > 0.8 * len(suspect)
    assert "best match: ax and ay swapped" in line


class Fed:
    """A source that gives one stream at once and ends."""

    name = "fed"

    def __init__(self, t: Float64, values: Float32) -> None:
        self.finished = False
        self._reading = Reading("w", t, values)

    def open(self, loop: Loop, deliver: Deliver) -> None:
        def give() -> None:
            deliver([self._reading], loop.clock.monotonic(), None)
            self.finished = True

        loop.call_soon(give)

    def pause(self) -> None:
        pass

    def close(self) -> None:
        pass


@pytest.mark.slow
def test_an_alarm_outlives_the_application(bundle: Path, session: Path, tmp_path: Path) -> None:
    rows = np.loadtxt(session, delimiter=",", skiprows=1)
    wrong = rows[:, [2, 1, 3, 4, 5, 6]].astype(np.float32)
    text = f"""
[model]
bundle = "{bundle}"
unsigned = "allow"
failover = "off"
[reading_log]
path = "log.db"
"""
    split, found = 50 * 60, []
    for t, values in ((rows[:split, 0], wrong[:split]), (rows[split : 2 * split, 0], wrong[split : 2 * split])):
        sink = MemorySink()
        app = App(parse(text, tmp_path / "app.toml"), sources=[Fed(t, values)], sinks=[sink])
        assert app.run()
        found.append((app, [isinstance(answer, SuspectPrediction) for answer in sink.answers]))
    (first, before), (second, after) = found
    assert not before[0]
    assert before[-1]
    assert after[0], "the alarm was on when the run before ended"
    assert first.figures()["drift_alarms"][0]["cause"] == "orientation"
    assert first.metrics.counts['drift_alarms_total{cause="orientation"}'] == 1
    assert second.metrics.counts['drift_alarms_total{cause="orientation"}'] <= 1
    assert (tmp_path / "log.state.db").stat().st_size > 0


def test_a_bundle_says_what_it_can_notice(bundle: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from edge_runtime.tools.cli import main  # noqa: PLC0415 - as in a shell

    assert main(["inspect", str(bundle)]) == 0
    text = capsys.readouterr().out
    assert "ax and ay swapped: costs 0.3 of the accuracy; found in 100 % of left-out groups" in text
    assert "centres" not in text


def test_too_few_groups_or_no_triad_give_no_reference() -> None:
    assert measured(by_wrist().only(["8 left", HELD_OUT])) is None
    assert measured(by_wrist(), ()) is None


def test_what_a_fault_costs_is_asked_of_the_model() -> None:
    windows = label_windows(by_wrist().only([HELD_OUT]), CONTRACT)

    def answers(x: Float32) -> Float32:
        """Right as long as gravity lies on y as it did."""
        same = np.abs(x[:, 1].mean(axis=1) - windows.x[:, 1].mean(axis=1)) < 1e-6
        return np.eye(8, dtype=np.float32)[np.where(same, windows.y, 7)]

    cost = cost_of(answers, windows, CONTRACT, TRIADS)
    lost = {repair.fault: cost(repair) for repair in faults_of(CHANNELS, TRIADS)}
    assert lost["ax and az swapped"] == lost["wx flipped"] == 0
    assert lost["ax and ay swapped"] > 0.95
    assert lost["ay flipped"] > 0.95


def test_triads_are_those_of_the_recipe_or_found_by_name() -> None:
    assert triads_of(CONTRACT) == [tuple(triad) for triad in TRIADS]
    assert triads_of(CONTRACT, [["az", "ax", "ay"], ["wx", "wy"]]) == [("az", "ax", "ay")]


def test_looks_overlap_none_before_them() -> None:
    windows = label_windows(by_wrist(), CONTRACT)
    looks = look_at(windows, CONTRACT, range(6))
    assert len(looks.y) < 0.55 * len(windows)


def test_the_family_has_swaps_flips_units_and_the_turns_of_a_cube() -> None:
    faults = faults_of(CHANNELS, TRIADS)
    count = {
        word: sum(word in repair.fault for repair in faults) for word in ("swapped", "flipped", "turned", "instead")
    }
    assert count == {"swapped": 6, "flipped": 6, "turned": 23, "instead": 3}
    assert len({repair.fault for repair in faults}) == len(faults)
    assert len({(repair.takes, repair.factors) for repair in faults}) == len(faults)


@settings(max_examples=40, deadline=None)
@given(repair=st.sampled_from(faults_of(CHANNELS, TRIADS)), seed=st.integers(0, 99))
def test_a_repair_undoes_the_fault_that_is_inflicted(repair: Repair, seed: int) -> None:
    right = np.random.default_rng(seed).normal(0, 1, (2, 6, 32)).astype(np.float32)
    wrong = inflict(right, repair, NAMES)
    assert not np.allclose(wrong, right)
    np.testing.assert_allclose(inflict(wrong, inverse(repair, NAMES), NAMES), right, rtol=1e-5)
    undone = Repairs([repair], NAMES).apply(measure(wrong.transpose(0, 2, 1)))
    for found, wanted in zip(undone, measure(right.transpose(0, 2, 1)), strict=True):
        np.testing.assert_allclose(found[:, 0], wanted, rtol=1e-4, atol=1e-5)


def test_a_turn_is_named_by_its_angle_and_axis() -> None:
    turn = next(one for one in faults_of(CHANNELS, TRIADS) if one.fault == "all axes turned by 90 degrees about z")
    # The sensor's x now points where y did, and its y where -x did: what was seen at x is seen at -y.
    right = np.zeros((1, 6, 4), np.float32)
    right[0, 0] = 1
    assert inflict(right, turn, NAMES)[0, :, 0].tolist() == [0, -1, 0, 0, 0, 0]


def test_the_threshold_is_the_lowest_with_few_alarms() -> None:
    quiet = [np.zeros(500) for _ in range(3)]
    assert threshold_of(quiet, 0.002) == 0
    loud = [np.zeros(500) for _ in range(3)]
    for at, height in enumerate((9.0, 8.0, 7.0, 6.0)):
        loud[0][100 * at] = height
    assert threshold_of(loud, 0.002) == 7.0  # three alarms in 1,527 windows
    assert threshold_of(loud, 0.0001) > 9.0


def test_an_alarm_that_goes_on_counts_again() -> None:
    assert count_alarms(np.ones(CALM), 1.0) == 1
    assert count_alarms(np.ones(CALM + 1), 1.0) == 2
