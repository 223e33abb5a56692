"""The benchmark of drift, on a few people."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks import bench_drift, intake_data
from benchmarks.drift_data import faults, following, halves
from benchmarks.intake_data import RESERVED
from edge_runtime.drift.latch import CALM


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
