"""When the governor steps, what its actuators do, and a board that heats up by what it does."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_runtime.answer.gate.budget import Budget
from edge_runtime.answer.gate.config import GateConfig
from edge_runtime.base.hardware import Evidence, Flag, Gauge, Profile
from edge_runtime.base.hardware.readings import Board, SensorReadings, Temperature
from edge_runtime.base.system.loop import Loop
from edge_runtime.clock import SimulatedClock
from edge_runtime.metrics import Metrics
from edge_runtime.operate.governor.actuators import Actuator, CloudActuator, RateActuator, VariantActuator
from edge_runtime.operate.governor.config import ActuatorName, GovernorConfig
from edge_runtime.operate.governor.governor import Governor, governor_of
from edge_runtime.operate.governor.policy import ThermalPolicy
from tests.edge_runtime.operate.governor.simulated_app import CONFIG, HOP, Bench
from tests.integration.running import PATIENCE_S, until


def sensors(at: float, temperature: float | None = 50.0, **more: Any) -> SensorReadings:
    nearest_limit = None if temperature is None else Temperature(name="cpu", now=temperature, limit=80.0)
    return SensorReadings(at=at, temperature=temperature, nearest_limit=nearest_limit, **more)


# -- when --------------------------------------------------------------------------------------------------------------


def test_it_steps_down_at_once_and_again_as_long_as_it_is_hot() -> None:
    policy = ThermalPolicy(CONFIG)
    assert [policy.step(sensors(t, 76.0), 0) for t in (0.0, 2.0, 8.0, 10.0, 19.9, 20.0)] == [1, 0, 0, 1, 0, 1]


def test_between_hot_and_cool_nothing_changes() -> None:
    policy = ThermalPolicy(CONFIG)
    assert policy.step(sensors(0.0, 75.0), 0) == 1
    assert [policy.step(sensors(t, 74.9), 1) for t in range(1, 500, 10)] == [0] * 50
    assert [policy.step(sensors(t, 65.1), 1) for t in range(501, 1000, 10)] == [0] * 50


def test_it_steps_up_when_it_was_cool_without_interruption() -> None:
    """Broken once by not forgetting the cool spell before: it stepped up at 60."""
    policy = ThermalPolicy(CONFIG)
    policy.step(sensors(0.0, 80.0), 0)
    assert policy.step(sensors(1.0, 60.0), 1) == 0
    assert policy.step(sensors(40.0, 70.0), 1) == 0
    assert [policy.step(sensors(t, 60.0), 1) for t in (41.0, 61.0, 100.9, 101.0)] == [0, 0, 0, -1]
    assert [policy.step(sensors(t, 60.0), 1) for t in (160.9, 161.0)] == [0, -1]
    assert policy.step(sensors(500.0, 60.0), 0) == 0  # nothing is left to take back


@pytest.mark.parametrize(
    ("hot", "between", "cool", "word"),
    [
        ({"throttled": ("under_voltage", "throttled")}, None, {}, "under voltage, throttled"),
        ({"watts": 10.1}, {"watts": 9.5}, {"watts": 8.9}, "10.1 W of 10"),
        (
            {"battery": 19.0, "discharging": True}, {"battery": 25.0, "discharging": True},
            {"battery": 31.0, "discharging": True}, "battery at 19 %",
        ),
        ({"battery": 19.0, "discharging": True}, None, {"battery": 19.0}, "battery"),
    ],
)  # fmt: skip
def test_whatever_is_wrong_counts(
    hot: dict[str, Any], between: dict[str, Any] | None, cool: dict[str, Any], word: str
) -> None:
    config = GovernorConfig(max_power_w=10.0)
    policy = ThermalPolicy(config)
    assert word in policy.hot(sensors(0.0, **hot))
    assert policy.step(sensors(0.0, **hot), 0) == 1
    if between is not None:
        assert not policy.hot(sensors(1.0, **between))
        assert not policy.cool(sensors(1.0, **between))
    assert policy.step(sensors(2.0, **cool), 1) == 0
    assert policy.step(sensors(62.0, **cool), 1) == -1


def test_a_temperature_that_went_missing_lets_nothing_be_stepped_up() -> None:
    policy = ThermalPolicy(CONFIG)
    policy.step(sensors(0.0, 80.0), 0)
    assert [policy.step(sensors(t, None), 1) for t in range(10, 1000, 10)] == [0] * 99
    blind = ThermalPolicy(CONFIG)  # a board that never had one is governed by what it has
    assert blind.step(sensors(0.0, None, throttled=("throttled",)), 0) == 1
    assert blind.step(sensors(1.0, None), 1) == 0
    assert blind.step(sensors(61.0, None), 1) == -1


LOOKS: dict[str, dict[str, Any]] = {
    "hot": {"temperature": 90.0}, "held back": {"throttled": ("throttled",)}, "greedy": {"watts": 11.0},
    "between": {"temperature": 70.0}, "cool": {"temperature": 30.0, "watts": 5.0}, "blind": {"temperature": None},
}  # fmt: skip
SPELLS = st.lists(
    st.tuples(st.sampled_from(sorted(LOOKS)), st.integers(1, 12), st.floats(0.05, 60.0)), min_size=1, max_size=15
)
"""What is seen, how often in a row, and how far apart."""


@settings(deadline=None, max_examples=100)
@given(SPELLS, st.floats(0.0, 60.0), st.floats(1.0, 120.0), st.integers(1, 6))
def test_it_never_oscillates_faster_than_its_hold_time(
    spells: list[tuple[str, int, float]], settle_s: float, hold_s: float, steps: int
) -> None:
    """Whatever the sensors say: no step up within `hold_s` of any step, no two down within `settle_s`.

    Broken twice: with the last step up not counted, and with a cool spell that a hot one does not end.
    """
    policy = ThermalPolicy(GovernorConfig(settle_s=settle_s, hold_s=hold_s, max_power_w=10.0))
    level, now = 0, 0.0
    last_step = last_down = -math.inf
    for seen, times, wait in spells:
        for _ in range(times):
            now += wait
            step = policy.step(sensors(now, **LOOKS[seen]), level)
            if step < 0:
                assert level > 0
                assert now - last_step >= hold_s
            if step > 0:
                assert now - last_down >= settle_s
                last_down = now
            if step:
                last_step = now
            level = min(level + step, steps)  # a governor whose actuators are all pulled stays where it is


@settings(deadline=None, max_examples=25)
@given(st.lists(st.floats(-3.0, 3.0), min_size=50, max_size=200))
def test_noise_around_a_threshold_moves_it_one_way_alone(noise: list[float]) -> None:
    policy = ThermalPolicy(GovernorConfig(hysteresis_degc=10.0, settle_s=0.0))
    steps = [policy.step(sensors(2.0 * i, 75.0 + wobble), 1) for i, wobble in enumerate(noise)]
    assert -1 not in steps


@pytest.mark.parametrize(
    "wrong",
    [
        {"period_s": 0.0}, {"hold_s": 0.0}, {"hysteresis_degc": 0.0}, {"margin_degc": -1.0},
        {"order": ("rate", "rate")}, {"max_hop_multiple": 3}, {"max_hop_multiple": 1}, {"limit_degc": 200.0},
        {"max_power_w": 0.0}, {"min_battery_percent": 100.0}, {"settle_s": -1.0},
    ],
)  # fmt: skip
def test_settings_that_make_no_sense_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        GovernorConfig(**wrong)


# -- what --------------------------------------------------------------------------------------------------------------


def test_the_rate_actuator_answers_every_nth_window_and_counts_the_rest() -> None:
    """Broken once by not counting, and once by not acknowledging readings whose windows are all skipped."""
    bench = Bench(keys=3)
    actuator = RateActuator(bench.pipeline, 4)
    for i in range(40):
        bench.arrive(i * 0.5)
    full = bench.metrics.counts["predictions_total"]
    bench.balance()
    assert actuator.down("hot")
    assert actuator.down("hot")
    assert not actuator.down("hot")
    assert actuator.state() == 4
    for i in range(40, 80):
        bench.arrive(i * 0.5)
    quarter = bench.metrics.counts["predictions_total"] - full
    assert quarter == pytest.approx(full / 4, abs=6)
    bench.balance()
    slots: dict[str, list[int]] = {}
    for answer in bench.sink.answers[full:]:
        slots.setdefault(answer.key, []).append(int(answer.id.partition("@")[2]))
    for found in slots.values():
        assert set(np.diff(found)) == {4 * HOP}
    actuator.up()
    assert actuator.state() == 2
    actuator.up()
    before = bench.metrics.counts["predictions_total"]
    for i in range(80, 120):
        bench.arrive(i * 0.5)
    assert bench.metrics.counts["predictions_total"] - before == pytest.approx(full, abs=6)
    bench.pipeline.flush()
    bench.balance()


def test_the_cloud_actuator_restricts_within_the_operators_own_bounds() -> None:
    """Broken once by giving the restricted bucket its burst at the start: 25 went through at once."""
    clock = SimulatedClock()
    budget = Budget(GateConfig(max_share=0.8), clock)
    actuator = CloudActuator(budget, 0.8)
    budget.seen(100)
    assert budget.spend(1) is None
    assert actuator.down("hot")
    assert actuator.state() == pytest.approx(0.4)
    assert budget.spend(1) == "governor"
    sent = 0
    for _ in range(1000):
        budget.seen(1)
        sent += budget.spend(1) is None
    assert sent == pytest.approx(400, abs=2)
    assert actuator.down("hot")
    assert not actuator.down("hot")
    assert actuator.state() == 0.0
    budget.seen(1000)
    assert budget.spend(1) == "governor"
    actuator.up()
    actuator.up()
    assert actuator.state() == 0.8
    assert budget.spend(1) is None


class Backends:
    """A fallback chain, as far as a actuator sees it."""

    def __init__(self, *names: str) -> None:
        self.backends = [type("Backend", (), {"name": name})() for name in names]
        self.limit = 0

    def step_down(self, reason: str) -> bool:
        assert reason
        self.limit += self.limit + 1 < len(self.backends)
        return self.limit > 0 and self.backends[self.limit] is not None and self._moved()

    def _moved(self) -> bool:
        moved, self._last = getattr(self, "_last", 0) != self.limit, self.limit
        return moved

    def step_up(self) -> bool:
        if not self.limit:
            return False
        self.limit -= 1
        self._last = self.limit
        return True


def test_the_variant_actuator_follows_the_model_that_answers() -> None:
    first, second = Backends("fp32", "int8", "tiny"), Backends("other", "lighter")
    second.limit = 1  # left over from an earlier time
    actuator = VariantActuator(first)  # type: ignore[arg-type]
    assert [actuator.down("hot") for _ in range(3)] == [True, True, False]
    assert actuator.state() == "tiny"
    actuator.up()
    assert actuator.state() == "int8"
    actuator.use(second)  # type: ignore[arg-type]
    assert actuator.state() == "lighter"
    actuator.up()
    assert actuator.state() == "other"
    actuator.use(None)
    assert actuator.state() is None
    assert not actuator.down("hot")


class Notch:
    """A actuator with so many notches."""

    def __init__(self, name: ActuatorName, notches: int) -> None:
        self.name: ActuatorName = name
        self.at = 0
        self._notches = notches

    def down(self, reason: str) -> bool:
        assert reason
        if self.at == self._notches:
            return False
        self.at += 1
        return True

    def up(self) -> None:
        self.at -= 1

    def state(self) -> object:
        return self.at


def governor(
    actuators: Sequence[Actuator], config: GovernorConfig = CONFIG, **profile: Any
) -> tuple[Governor, Metrics, list[Mapping[str, Any]]]:
    metrics, said = Metrics(), list[Mapping[str, Any]]()
    clock = SimulatedClock()
    board = Board(
        Profile(family="x", model="a board", evidence=Evidence(tier="simulated", detail="t"), **profile), clock
    )
    return Governor(config, board, actuators, metrics=metrics, clock=clock, on_status=said.append), metrics, said


def test_actuators_are_pulled_in_order_and_let_go_in_reverse(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    actuators = [Notch("cloud", 1), Notch("rate", 2), Notch("variant", 1)]
    made, metrics, said = governor(actuators)
    seen = []
    for i in range(7):
        made.consider(sensors(10.0 * i, 82.0))
        seen.append(tuple(actuator.at for actuator in actuators))
    assert seen == [(1, 0, 0), (1, 1, 0), (1, 2, 0), (1, 2, 1), (1, 2, 1), (1, 2, 1), (1, 2, 1)]
    assert made.level == 4
    assert caplog.text.count("found nothing left to step down") == 1
    assert said[-1] == {
        "level": 4, "reason": "cpu at 82 degrees of 80", "cloud": 1, "rate": 2, "variant": 1, "temperature": 82.0,
    }  # fmt: skip
    seen = []
    for i in range(100, 140):
        made.consider(sensors(10.0 * i, 40.0))
        seen.append(tuple(actuator.at for actuator in actuators))
    assert list(dict.fromkeys(seen)) == [(1, 2, 1), (1, 2, 0), (1, 1, 0), (1, 0, 0), (0, 0, 0)]
    assert said[-1]["level"] == 0
    assert said[-1]["reason"] == ""
    assert metrics.counts["governor_steps_down_total"] == metrics.counts["governor_steps_up_total"] == 4
    assert metrics.gauges["governor_level"] == 0.0


def test_figures_come_and_go_with_what_the_board_reports(caplog: pytest.LogCaptureFixture) -> None:
    made, metrics, _ = governor([])
    metrics.counts["predictions_total"] = 100
    made.consider(sensors(0.0, 50.0, watts=4.0, joules=0.0, battery=90.0, throttled=("throttled",)))
    assert "joules_per_inference" not in metrics.gauges
    metrics.counts["predictions_total"] = 300
    made.consider(sensors(10.0, 51.0, watts=5.0, joules=45.0, unreadable=1))
    assert metrics.gauges["joules_per_inference"] == pytest.approx(45.0 / 200)
    assert (metrics.gauges["power_watts"], metrics.gauges["energy_joules"]) == (5.0, 45.0)
    assert metrics.gauges["temperature_celsius"] == 51.0
    assert metrics.gauges["throttled"] == 0.0
    assert "battery_percent" not in metrics.gauges
    assert metrics.counts["sensor_failures_total"] == 1
    made.consider(sensors(12.0, None, unreadable=2))
    assert "power_watts" not in metrics.gauges
    assert "temperature_celsius" not in metrics.gauges
    assert caplog.text.count("ignored sensors") == 1


def test_energy_for_each_answer_is_that_of_the_last_minute() -> None:
    made, metrics, _ = governor([])
    for i in range(200):
        metrics.counts["predictions_total"] += 10 if i < 100 else 1
        made.consider(sensors(2.0 * i, 50.0, joules=10.0 * i))
    assert metrics.gauges["joules_per_inference"] == pytest.approx(10.0)
    for i in range(200, 300):
        made.consider(sensors(2.0 * i, 50.0, joules=10.0 * i))
    assert "joules_per_inference" not in metrics.gauges  # nothing was answered


def test_a_board_without_sensors_is_said_and_nothing_runs(caplog: pytest.LogCaptureFixture) -> None:
    made, _, said = governor([])
    loop = Loop()
    threads = threading.active_count()
    made.open(loop)
    assert threading.active_count() == threads
    assert "found no sensor, so it changes nothing; see edge-runtime doctor: board=a board" in caplog.text
    assert said == []
    made.close()
    loop.close()


def test_a_sensor_that_hangs_holds_up_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Broken once by looking on the loop's thread: the loop did not turn."""
    gauge = Gauge(name="cpu", unit="degC", paths=("/t",), scale=0.001, limit=80.0)
    made, _, _ = governor([], GovernorConfig(period_s=0.05), temperatures=(gauge,))
    hangs, goes_on = threading.Event(), threading.Event()

    def read() -> SensorReadings:
        hangs.set()
        goes_on.wait(PATIENCE_S)
        return sensors(0.0)

    monkeypatch.setattr(made._board, "read", read)
    loop = Loop()
    turned: list[int] = []
    made.open(loop)
    try:
        assert hangs.wait(PATIENCE_S)
        loop.call_soon(lambda: turned.append(1))
        loop.iterate(0.0)
        assert turned
    finally:
        goes_on.set()
        made.close()
        loop.close()


def test_it_looks_again_and_again_until_it_is_closed(tmp_path: Path) -> None:
    gauge = Gauge(name="cpu", unit="degC", paths=("/t",), scale=0.001, limit=80.0)
    (tmp_path / "t").write_text("85000\n")
    metrics = Metrics()
    clock = SimulatedClock()
    profile = Profile(
        family="x", model="a board", evidence=Evidence(tier="simulated", detail="t"), temperatures=(gauge,),
        throttling=(Flag(name="f", path="/f"),),
    )  # fmt: skip
    notch = Notch("rate", 1)
    made = Governor(
        GovernorConfig(period_s=0.05), Board(profile, clock, tmp_path), [notch], metrics=metrics, clock=clock
    )
    loop = Loop()
    made.open(loop)

    def turned() -> bool:
        loop.iterate(0.01)
        return metrics.counts["sensor_failures_total"] >= 3

    until(turned)
    assert notch.at == 1
    made.close()
    made.close()
    made.consider(sensors(0.0, 20.0))  # one that was on its way
    loop.close()


def test_the_governor_of_an_application_has_the_actuators_that_there_are(tmp_path: Path) -> None:
    bench = Bench()

    def states(budget: Budget | None, *order: ActuatorName) -> dict[str, Any]:
        made = governor_of(
            GovernorConfig(root=tmp_path, order=order), pipeline=bench.pipeline, fallback_chain=None, budget=budget,
            share=0.5, metrics=bench.metrics, clock=bench.clock,
        )  # fmt: skip
        return made.status()

    assert list(states(bench.budget, "cloud", "rate")) == ["level", "reason", "cloud", "rate"]
    assert list(states(None, "variant", "rate", "cloud")) == ["level", "reason", "variant", "rate"]
