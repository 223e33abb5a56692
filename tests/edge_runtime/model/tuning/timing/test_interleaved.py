"""Figures of an interleaved benchmark: right on a machine that does nothing else, and right on one that does."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_runtime.clock import SimulatedClock
from edge_runtime.errors import EngineError
from edge_runtime.model import engines
from edge_runtime.model.engines import null
from edge_runtime.model.engines.base import Array, TensorSpec
from edge_runtime.model.tuning.timing import TimedModel, TimingPlan, time_interleaved
from edge_runtime.model.tuning.timing.interleaved import median_interval

WINDOWS = np.arange(24, dtype=np.float32).reshape(4, 6)


class Machine:
    """A simulated machine: a call takes what its model says, times what else goes on just then."""

    def __init__(self, load: Callable[[float], float] = lambda _now: 1.0) -> None:
        self.clock = SimulatedClock()
        self.load = load
        self.used = 0.0
        self.seen: list[tuple[str, float]] = []
        self.closed: list[str] = []

    def cpu(self) -> float:
        return self.used


class FakeEngine:
    def __init__(self, machine: Machine, cost: float) -> None:
        self.name = f"fake {cost:g}"
        self.inputs: tuple[TensorSpec, ...] = ()
        self.outputs: tuple[TensorSpec, ...] = ()
        self._machine, self._cost = machine, cost

    def run(self, *arrays: Array) -> tuple[Array, ...]:
        machine = self._machine
        assert arrays[0].shape == (1, 6)
        machine.seen.append((self.name, float(arrays[0][0, 0])))
        machine.clock.advance(self._cost * machine.load(machine.clock.monotonic()))
        machine.used += self._cost
        return arrays

    def close(self) -> None:
        self._machine.closed.append(self.name)


@pytest.fixture
def simulated(monkeypatch: pytest.MonkeyPatch) -> Callable[[Machine], None]:
    def use(machine: Machine) -> None:
        monkeypatch.setattr(
            engines, "load", lambda _name, model, _options, *_: FakeEngine(machine, float(model.decode()))
        )

    return use


def candidate(name: str, cost: float) -> TimedModel:
    return TimedModel(name=name, engine="fake", model=str(cost).encode(), inputs=(WINDOWS,))


def test_quiet_machine_gives_the_true_times(simulated: Callable[[Machine], None]) -> None:
    machine = Machine()
    simulated(machine)
    slow, fast = time_interleaved(
        [candidate("slow", 4e-4), candidate("fast", 1e-4)], reference="slow", clock=machine.clock, cpu=machine.cpu
    )
    assert (slow.name, slow.engine, fast.engine) == ("slow", "fake 0.0004", "fake 0.0001")
    assert slow.p50_us == pytest.approx(400)
    assert fast.p50_us == pytest.approx(100)
    assert fast.min_us == pytest.approx(100)
    assert fast.p95_us == pytest.approx(100)
    assert fast.cpu_us == pytest.approx(100)
    assert (slow.ratio, slow.ratio_low, slow.ratio_high) == (1, 1, 1)
    assert fast.ratio == pytest.approx(0.25)
    assert fast.rounds == TimingPlan().rounds
    assert fast.calls == 61 * 50  # blocks of 5 ms


def test_a_machine_that_slows_down_changes_times_and_not_ratios(simulated: Callable[[Machine], None]) -> None:
    machine = Machine(load=lambda now: 1 + now)  # twice as slow after a second
    simulated(machine)
    _, fast = time_interleaved(
        [candidate("slow", 4e-4), candidate("fast", 1e-4)], reference="slow", clock=machine.clock
    )
    assert fast.p50_us > 120
    assert fast.ratio == pytest.approx(0.25, rel=0.03)
    assert fast.ratio_low == pytest.approx(0.25, rel=0.06)


def test_calls_that_are_interrupted_do_not_move_the_median(simulated: Callable[[Machine], None]) -> None:
    random = np.random.default_rng(3)
    machine = Machine(load=lambda _now: 40.0 if random.random() < 0.1 else 1.0)
    simulated(machine)
    slow, fast = time_interleaved(
        [candidate("slow", 4e-4), candidate("fast", 1e-4)], reference="slow", clock=machine.clock, cpu=machine.cpu
    )
    assert fast.p50_us == pytest.approx(100)
    assert slow.p50_us == pytest.approx(400)
    assert slow.p95_us > 1000
    assert fast.ratio == pytest.approx(0.25)
    assert fast.cpu_us == pytest.approx(100)


def test_turns_are_taken_round_by_round_in_changing_order_over_all_windows(
    simulated: Callable[[Machine], None],
) -> None:
    machine = Machine()
    simulated(machine)
    names = ["a", "b", "c"]
    costs = [1e-3, 2e-3, 3e-3]
    time_interleaved(
        [candidate(n, c) for n, c in zip(names, costs, strict=True)],
        reference="a",
        plan=TimingPlan(rounds=6, block_s=0.006, warm_up=1),
        clock=machine.clock,
    )
    turns = [machine.seen[0][0]]
    for name, _ in machine.seen:
        if name != turns[-1]:
            turns.append(name)
    assert len(turns) >= 3 * 4
    assert len({tuple(turns[i : i + 3]) for i in range(3, len(turns) - 2, 3)}) > 1
    assert {value for _, value in machine.seen} == set(WINDOWS[:, 0])
    assert sorted(machine.closed) == sorted(f"fake {c:g}" for c in costs)


def test_a_real_engine_is_timed() -> None:
    model = null.describe((6,), 2)
    one, two = (TimedModel(name=n, engine="null", model=model, inputs=(WINDOWS,)) for n in "ab")
    timings = time_interleaved([one, two], reference="a", threads=1, plan=TimingPlan(rounds=6, block_s=0.002))
    for timing in timings:
        assert 0 < timing.min_us <= timing.p50_us <= timing.p95_us
        assert timing.ratio_low <= timing.ratio <= timing.ratio_high
        assert timing.calls >= 18
    assert 0.2 < timings[1].ratio < 5


def test_a_candidate_that_does_not_take_its_windows_is_named() -> None:
    wrong = TimedModel(name="wide", engine="null", model=null.describe((7,), 2), inputs=(WINDOWS,))
    with pytest.raises(EngineError, match="wide does not take the windows"):
        time_interleaved([wrong], reference="wide")


@pytest.mark.parametrize("names", [("a", "a"), ("b", "c")])
def test_names_must_differ_and_hold_the_reference(names: tuple[str, str]) -> None:
    with pytest.raises(ValueError, match="one of them 'a'"):
        time_interleaved([candidate(name, 1e-3) for name in names], reference="a")


@pytest.mark.parametrize("inputs", [(), (WINDOWS[:0],), (WINDOWS, WINDOWS[:2])])
def test_a_candidate_needs_windows(inputs: tuple[Array, ...]) -> None:
    with pytest.raises(ValueError, match="windows"):
        TimedModel(name="a", engine="null", model=b"", inputs=inputs)


@pytest.mark.parametrize("wrong", [{"rounds": 0}, {"block_s": 0}, {"warm_up": -1}, {"block_s": float("nan")}])
def test_a_plan_makes_sense(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="rounds"):
        TimingPlan(**wrong)  # type: ignore[arg-type]


@given(st.lists(st.floats(0.1, 10), min_size=1, max_size=60))
def test_the_interval_holds_the_median_and_lies_among_the_values(values: list[float]) -> None:
    low, high = median_interval(values)
    assert low <= np.median(values) <= high
    assert {low, high} <= set(values)


def test_the_interval_covers_the_true_median_as_often_as_it_says() -> None:
    random = np.random.default_rng(5)
    hits = 0
    for _ in range(2000):
        low, high = median_interval(list(random.lognormal(0, 1, 15)))
        hits += low <= 1 <= high
    assert hits / 2000 == pytest.approx(0.9648, abs=0.015)  # 1 - 2 P(Bin(15, 1/2) < 4)
