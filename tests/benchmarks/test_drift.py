"""The benchmark of drift, on a few people."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks import bench_drift, drift_machines, intake_data
from benchmarks.drift_data import faults, following, halves
from benchmarks.intake_data import RESERVED
from edge_runtime.signal.drift.latch import CALM


@pytest.mark.slow
def test_a_person_whom_the_reference_does_not_know(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intake_data, "DATA", shared / "data")
    one = intake_data.exercise_watch()
    assert not RESERVED & one.people.keys()
    windows = bench_drift.windows_of(one)
    manifest = bench_drift.manifest_for(one, windows, [name for name in one.people if name != "10"])
    first, second = halves(one.people["10"])
    makes = {fault.name: fault for fault in faults(one, None)}
    for name in ("ax and ay swapped", "all axes turned by 90 degrees about z"):
        wrong = makes[name].make("10", second)
        assert wrong is not None
        run = bench_drift.play(following(first, wrong, 50), manifest)
        seen = bench_drift.found(run, float(first.t[-1]), makes[name])
        assert seen.after["repair"] <= 25
        assert seen.named
        assert "rules" not in seen.after
    assert not bench_drift.play(first, manifest).on["rules"].any()


@pytest.mark.parametrize(
    ("runs", "alarms"),
    [([], 0), ([(3, 4)], 1), ([(3, 3 + CALM)], 1), ([(3, 3 + 3 * CALM)], 3), ([(0, 5), (30, 40)], 2)],
)
def test_an_alarm_that_goes_on_counts_again_without_what_its_latch_adds(
    runs: list[tuple[int, int]], alarms: int
) -> None:
    on = np.zeros(100, bool)
    for begin, end in runs:
        on[begin:end] = True
    assert bench_drift.alarms_of(on) == alarms


def test_an_alarm_that_lasts_is_one_and_may_be_counted_again() -> None:
    t = np.arange(0.0, 400.0, 10.0)
    scores = np.where((t >= 100) & (t < 250), 2.0, 0.0)
    assert drift_machines.latched(scores, 1.0, t) == [100.0]
    assert drift_machines.repeated(scores, 1.0, t) == [100.0, 160.0, 220.0]
    hovering = np.where((t >= 100) & (t < 250), np.tile(np.array([1.2, 0.6]), 20), 0.0)
    assert drift_machines.latched(hovering, 1.0, t) == [100.0]
    apart = np.isin(t, (50, 200)).astype(np.float64)
    assert drift_machines.latched(apart, 1.0, t) == [50.0, 200.0]


def test_a_step_of_one_channel_is_what_differs_most() -> None:
    values = np.random.default_rng(0).normal(5, 1, (900, 3))
    values[600:, 1] += 20
    machine = drift_machines.Machine(values, 600, 900)
    scores = machine.scores(np.ones(3))
    t = machine.times(len(scores))
    assert t[0] == 80
    assert t[scores.argmax()] == 620, "the recent 20 s have it all, and the 60 s before nothing"
    assert scores[t <= 600].max() < 10 < scores.max()
    assert machine.clean(t)[(t > 300) & (t <= 600)].all()
    assert not machine.clean(t)[(t <= 300) | (t > 600)].any()


@pytest.mark.slow
def test_a_pump_and_a_room_are_measured(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intake_data, "DATA", shared / "data")
    held, again = drift_machines.pump().rows
    assert float(str(held[2])) < float(str(held[1])) <= float(str(again[1]))
    assert [row[2:4] for row in drift_machines.room().rows] == [("0.00", "0.80")] * 2
