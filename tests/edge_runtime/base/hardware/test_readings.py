"""Looking at boards, over the recorded trees of real ones, and over trees that fall apart while they are looked at."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edge_runtime.base.hardware import Battery, Counter, Evidence, Flag, Gauge, Profile, this_device
from edge_runtime.base.hardware.readings import Board
from edge_runtime.clock import SimulatedClock

TREES = Path(__file__).resolve().parents[3] / "data" / "devices"
RECORDED = sorted(path.stem for path in TREES.glob("*.json"))
PI_ZONE = "sys/class/thermal/thermal_zone0/temp"
PI_BITS = "sys/devices/platform/soc/soc:firmware/get_throttled"


def planted(root: Path, name: str) -> Path:
    """A recorded machine's files."""
    for path, content in json.loads((TREES / f"{name}.json").read_text("utf-8"))["files"].items():
        place = root / path.lstrip("/")
        if content is None:
            place.mkdir(parents=True, exist_ok=True)
            continue
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(bytes.fromhex(content["hex"]) if isinstance(content, dict) else content.encode())
    return root


def profile(**more: Any) -> Profile:
    return Profile(family="x", model="a board", evidence=Evidence(tier="simulated", detail="a test"), **more)


def put(root: Path, name: str, value: object) -> None:
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text(f"{value}\n")


@pytest.mark.parametrize("name", RECORDED)
def test_every_recorded_machine_can_be_looked_at(tmp_path: Path, name: str) -> None:
    root = planted(tmp_path, name)
    board = Board(this_device(root), SimulatedClock(), root)
    sensors = board.read()
    assert sensors.unreadable <= len(board.profile.temperatures) / 2  # a zone that is switched off does not answer
    if board.profile.temperatures:
        assert sensors.temperature is not None
        assert -40 < sensors.temperature < 110
    assert (sensors.watts is not None) == bool(board.profile.power)


def test_a_raspberry_pi_is_hot_at_80_degrees_and_says_what_holds_it_back(tmp_path: Path) -> None:
    root = planted(tmp_path, "raspberry-pi-4")
    board = Board(this_device(root), SimulatedClock(), root)
    put(root, PI_ZONE, 77500)
    put(root, PI_BITS, "d0008")
    sensors = board.read()
    assert sensors.nearest_limit is not None
    assert (sensors.nearest_limit.name, sensors.nearest_limit.now, sensors.nearest_limit.limit) == (
        "cpu-thermal",
        77.5,
        80.0,
    )
    assert sensors.nearest_limit.headroom == 2.5
    assert sensors.throttled == ("soft_temperature_limit",)
    put(root, PI_BITS, "d0000")  # that it happened since boot is history
    assert board.read().throttled == ()


def test_a_jetson_says_its_tightest_zone_its_power_and_its_over_current_events(tmp_path: Path) -> None:
    clock = SimulatedClock()
    root = planted(tmp_path, "jetson-orin-nano")
    board = Board(this_device(root), clock, root)
    first = board.read()
    assert first.watts == pytest.approx(4.984 * 1.856)
    assert first.joules == 0.0
    assert first.throttled == ()  # what was counted before we came is not ours
    put(root, "sys/class/thermal/thermal_zone1/temp", 95000)
    put(root, "sys/class/hwmon/hwmon2/oc3_event_cnt", 3)
    put(root, "sys/class/hwmon/hwmon1/in1_input", 5000)
    put(root, "sys/class/hwmon/hwmon1/curr1_input", 2000)
    clock.advance(2.0)
    second = board.read()
    assert second.nearest_limit is not None
    assert (second.nearest_limit.name, second.nearest_limit.limit) == ("gpu-thermal", 99.0)
    assert second.throttled == ("instantaneous_over_current",)
    assert second.joules == pytest.approx((10.0 + 4.984 * 1.856) / 2 * 2.0)
    assert board.read().throttled == ()


def test_a_limit_of_the_configuration_counts_for_sensors_without_one(tmp_path: Path) -> None:
    gauge = Gauge(name="zone", unit="degC", paths=("/t",), scale=0.001)
    put(tmp_path, "t", 70000)
    assert Board(profile(temperatures=(gauge,)), SimulatedClock(), tmp_path).read().nearest_limit is None
    nearest_limit = Board(profile(temperatures=(gauge,)), SimulatedClock(), tmp_path, limit=75.0).read().nearest_limit
    assert nearest_limit is not None
    assert nearest_limit.headroom == 5.0


@pytest.mark.parametrize("nonsense", ["", "hot", "-274000", "4294967295000", "70.5", "NaN", "1" * 50])
def test_nonsense_has_no_say_and_is_counted(tmp_path: Path, nonsense: str) -> None:
    gauges = tuple(Gauge(name=name, unit="degC", paths=(f"/{name}",), scale=0.001, limit=90.0) for name in "ab")
    put(tmp_path, "a", nonsense)
    put(tmp_path, "b", 41000)
    sensors = Board(profile(temperatures=gauges), SimulatedClock(), tmp_path).read()
    assert sensors.nearest_limit is not None
    assert (sensors.nearest_limit.name, sensors.temperature, sensors.unreadable) == ("b", 41.0, 1)


def test_energy_counters_wrap_vanish_and_come_back(tmp_path: Path) -> None:
    clock = SimulatedClock()
    counters = (Counter(name="package", path="/energy", scale=1e-6, wraps_at=10_000_000),)
    put(tmp_path, "energy", 9_000_000)
    board = Board(profile(energy=counters), clock, tmp_path)
    assert (board.read().watts, board.read().joules) == (None, 0.0)
    clock.advance(2.0)
    put(tmp_path, "energy", 1_000_000)
    sensors = board.read()
    assert sensors.joules == pytest.approx(2.0)
    assert sensors.watts == pytest.approx(1.0)
    (tmp_path / "energy").unlink()
    clock.advance(2.0)
    sensors = board.read()
    assert sensors.joules == pytest.approx(2.0)
    assert sensors.unreadable == 1
    put(tmp_path, "energy", 5_000_000)
    clock.advance(2.0)
    assert board.read().joules == pytest.approx(2.0)  # nobody knows what was used meanwhile
    put(tmp_path, "energy", 5_500_000)
    clock.advance(1.0)
    assert board.read().watts == pytest.approx(0.5)


def test_a_counter_that_only_root_may_read_is_as_good_as_none(tmp_path: Path) -> None:
    board = Board(profile(energy=(Counter(name="p", path="/e", scale=1e-6),)), SimulatedClock(), tmp_path)
    assert not board.has_sensors
    assert board.read().unreadable == 0


def test_a_suspended_board_used_nobody_knows_what(tmp_path: Path) -> None:
    clock = SimulatedClock()
    put(tmp_path, "mw", 4000)
    board = Board(
        profile(power=(Gauge(name="all", unit="W", paths=("/mw",), scale=1e-3),)), clock, tmp_path
    )  # fmt: skip
    board.read()
    clock.advance(3600.0)
    assert board.read().joules == 0.0
    clock.advance(10.0)
    assert board.read().joules == pytest.approx(40.0)


def test_the_emptiest_battery_counts(tmp_path: Path) -> None:
    batteries = tuple(
        Battery(
            name=name, charge=Gauge(name=name, unit="percent", paths=(f"/{name}/capacity",), scale=1.0),
            status=f"/{name}/status",
        )
        for name in ("b0", "b1")
    )  # fmt: skip
    put(tmp_path, "b0/capacity", 80)
    put(tmp_path, "b0/status", "Full")
    put(tmp_path, "b1/capacity", 15)
    put(tmp_path, "b1/status", "Discharging")
    board = Board(profile(batteries=batteries), SimulatedClock(), tmp_path)
    sensors = board.read()
    assert (sensors.battery, sensors.discharging) == (15.0, True)
    put(tmp_path, "b1/capacity", 255)
    sensors = board.read()
    assert (sensors.battery, sensors.discharging, sensors.unreadable) == (80.0, False, 1)


@pytest.mark.slow
@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(seed=st.integers(0, 2**32), name=st.sampled_from(RECORDED))
def test_a_tree_that_falls_apart_never_stops_anything(
    tmp_path_factory: pytest.TempPathFactory, seed: int, name: str
) -> None:
    """Files are deleted, emptied, filled with noise, or become folders between and before looks."""
    rng = random.Random(seed)
    root = planted(tmp_path_factory.mktemp("tree"), name)
    clock = SimulatedClock()
    board = Board(this_device(root), clock, root)
    files = [path for path in (root / "sys").rglob("*") if path.is_file()]
    for _ in range(4):
        clock.advance(rng.random() * 100)
        board.read()
        for path in rng.sample(files, min(len(files), 12)):
            if path.is_dir():
                shutil.rmtree(path)
            path.unlink(missing_ok=True)
            match rng.randrange(4):
                case 0:
                    path.mkdir()
                case 1:
                    path.write_bytes(rng.randbytes(rng.randrange(40)))
                case 2:
                    path.write_text(str(rng.randrange(-(10**12), 10**12)))
    sensors = board.read()
    assert sensors.temperature is None or -40 <= sensors.temperature <= 150
    assert sensors.watts is None or sensors.watts >= 0
    assert sensors.battery is None or 0 <= sensors.battery <= 100
    shutil.rmtree(root)


def test_a_flag_that_grows_is_told_once(tmp_path: Path) -> None:
    flag = Flag(name="over_current", path="/count", kind="counter")
    put(tmp_path, "count", 7)
    board = Board(profile(throttling=(flag,)), SimulatedClock(), tmp_path)
    seen = []
    for value in (7, 8, 8, 3, 4):  # a driver that is loaded anew begins at 0
        put(tmp_path, "count", value)
        seen.append(board.read().throttled)
    assert seen == [(), ("over_current",), (), (), ("over_current",)]
