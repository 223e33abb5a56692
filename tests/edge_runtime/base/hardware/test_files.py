"""Reading a machine's files, whatever they turn out to be."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_runtime.base.hardware import files
from edge_runtime.base.hardware.profile import Battery, Counter, Flag, Gauge


def test_texts_lose_the_nul_of_the_device_tree(tmp_path: Path) -> None:
    (tmp_path / "model").write_bytes(b"Raspberry Pi 4\0")
    (tmp_path / "compatible").write_bytes(b"raspberrypi,4-model-b\0brcm,bcm2711\0")
    assert files.text(tmp_path, "/model") == "Raspberry Pi 4"
    assert files.strings(tmp_path, "/compatible") == ("raspberrypi,4-model-b", "brcm,bcm2711")


@pytest.mark.parametrize("text", ["", "4x", "1.5", "0x", "9" * 40, "\0", "4 2"])
def test_a_number_that_is_none_is_none(text: str, tmp_path: Path) -> None:
    (tmp_path / "value").write_text(text)
    assert files.number(tmp_path, "/value") is None


@given(st.sets(st.integers(min_value=0, max_value=4000), min_size=1, max_size=20))
def test_a_list_of_numbers_comes_back_as_it_was_written(numbers: set[int]) -> None:
    assert files.ranges(",".join(map(str, numbers))) == tuple(sorted(numbers))


@pytest.mark.parametrize(
    ("text", "base", "number"), [("42\n", 10, 42), ("-7", 10, -7), ("0x1f", 16, 31), ("1f", 16, 31)]
)
def test_a_number_is_read_in_its_base(text: str, base: int, number: int, tmp_path: Path) -> None:
    (tmp_path / "value").write_text(text)
    assert files.number(tmp_path, "/value", base) == number


def test_a_pipe_a_folder_and_a_loop_of_links_are_nothing(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "loop").symlink_to("loop")
    for name in ("pipe", "folder", "loop", "missing", "pipe/below", "\0"):
        assert not files.text(tmp_path, f"/{name}")
        assert files.number(tmp_path, f"/{name}") is None


def test_no_more_than_the_limit_is_read(tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(b"x" * 200_000)
    assert files.data(tmp_path, "/large", 70_000) == b"x" * 70_000


def test_entries_come_in_their_natural_order(tmp_path: Path) -> None:
    for name in ("cpu10", "cpu2", "cpu0", "cpufreq"):
        (tmp_path / "cpus" / name).mkdir(parents=True)
        (tmp_path / "cpus" / name / "online").touch()
    assert files.entries(tmp_path, "/cpus/cpu*/online") == [
        "/cpus/cpu0/online", "/cpus/cpu2/online", "/cpus/cpu10/online", "/cpus/cpufreq/online",
    ]  # fmt: skip
    assert files.entries(tmp_path, "/none/cpu*") == []


@pytest.mark.parametrize(
    ("listed", "numbers"),
    [("0-2,5\n", (0, 1, 2, 5)), ("0", (0,)), ("", ()), (None, ()), ("0-", ()), ("5-2", ()), ("0-99999", ()), ("a", ())],
)
def test_ranges_are_the_kernels(listed: str | None, numbers: tuple[int, ...]) -> None:
    assert files.ranges(listed) == numbers


def test_a_gauge_multiplies_its_files_and_believes_nothing_impossible(tmp_path: Path) -> None:
    (tmp_path / "mv").write_text("5000\n")
    (tmp_path / "ma").write_text("300\n")
    assert Gauge(name="rail", unit="W", paths=("/mv", "/ma"), scale=1e-6).read(tmp_path) == pytest.approx(1.5)
    (tmp_path / "ma").write_text("-300\n")
    assert Gauge(name="rail", unit="W", paths=("/mv", "/ma"), scale=1e-6).read(tmp_path) is None
    (tmp_path / "temp").write_text("-256000")
    assert Gauge(name="cv0", unit="degC", paths=("/temp",), scale=1e-3).read(tmp_path) is None


def test_a_flag_is_its_bits(tmp_path: Path) -> None:
    (tmp_path / "bits").write_text("50005\n")
    assert Flag(name="throttled", path="/bits", base=16, mask=0x4).read(tmp_path) == 4
    assert Flag(name="capped", path="/bits", base=16, mask=0x2).read(tmp_path) == 0


def test_energy_goes_on_over_a_wrap(tmp_path: Path) -> None:
    counter = Counter(name="package-0", path="/energy", scale=1e-6, wraps_at=10_000_000)
    assert counter.joules(1_000_000, 4_000_000) == pytest.approx(3.0)
    assert counter.joules(9_000_000, 2_000_000) == pytest.approx(3.0)
    assert Counter(name="unknown", path="/energy", scale=1e-6).joules(9, 2) == 0.0
    assert counter.read(tmp_path) is None


@pytest.mark.parametrize(
    ("status", "discharging"), [("Discharging", True), ("Full", False), ("Unknown", None), (None, None)]
)
def test_a_battery_says_whether_it_is_needed(status: str | None, discharging: bool | None, tmp_path: Path) -> None:
    if status is not None:
        (tmp_path / "status").write_text(f"{status}\n")
    charge = Gauge(name="BAT0", unit="percent", paths=("/capacity",), scale=1.0)
    assert Battery(name="BAT0", charge=charge, status="/status").discharging(tmp_path) is discharging
