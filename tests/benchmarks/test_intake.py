"""The benchmark of the intake, on a few people: real movement in a wrong unit, and in the right one."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import bench_intake, intake_data
from benchmarks.intake_data import ACCELERATION, RESERVED, at_rate, cut_off, frozen, scaled


@pytest.mark.slow
def test_people_that_the_references_do_not_know(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intake_data, "DATA", shared / "data")
    one = intake_data.exercise_watch()
    assert not RESERVED & one.people.keys()
    people = {name: one.people[name] for name in ("1", "2", "4")}
    cut = bench_intake.windows_of(one.contract, people)
    for name, stream in people.items():
        manifest = bench_intake.manifest_of(one.contract, bench_intake.references_of(one.contract, people, cut, name))
        assert bench_intake.play(stream, manifest).marks == {}
        metric = bench_intake.play(scaled(stream, ACCELERATION, "g", "m/s2"), manifest)
        assert metric.first["unit"] <= 60
        assert "m/s2 instead of g?" in metric.lines[0]
        assert bench_intake.play(at_rate(stream, 25), manifest).first["rate"] <= 10
        assert bench_intake.play(frozen(stream, [2], 15.0), manifest).first["stuck"] <= 15 + 21
        assert bench_intake.play(cut_off(stream, ACCELERATION), manifest).first["clipped"] <= 60


@pytest.mark.parametrize(("events", "hours", "bound"), [(0, 1.0, 3.0), (0, 10.0, 0.3), (1, 1.0, 4.74), (4, 2.0, 4.58)])
def test_the_bound_on_a_rate_is_poisson_s(events: int, hours: float, bound: float) -> None:
    assert bench_intake.upper_bound(events, hours) == pytest.approx(bound, rel=0.01)
