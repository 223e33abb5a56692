"""``edge-runtime doctor`` on this machine, on recorded ones, and with plug-ins that are broken."""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path
from typing import Any

import orjson
import pytest

from edge_runtime.base.hardware import discovery
from edge_runtime.model.engines import onnx
from edge_runtime.tools.cli import doctor, main
from tests.edge_devices import trees


def report(root: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    assert main(["doctor", "--json", "--root", str(root)]) == 0
    return orjson.loads(capsys.readouterr().out)


def text(root: Path, capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["doctor", "--root", str(root)]) == 0
    return capsys.readouterr().out


def test_this_machine_is_told_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    found = report(Path("/"), capsys)
    assert found["machine"] == os.uname().machine
    assert found["cpus"] == len(os.sched_getaffinity(0))
    pages = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20
    assert abs(found["memory_mb"] - pages) <= 1
    assert sum(len(one["cpus"]) for one in found["device"]["clusters"]) == os.sysconf("SC_NPROCESSORS_ONLN")
    ready = {choice["name"] for choice in found["choices"] if choice["ready"]}
    assert "onnxruntime" in ready
    assert not [plugin for plugin in found["plugins"] if plugin["error"]]


def test_figures_of_another_machine_are_not_said_of_this_one(capsys: pytest.CaptureFixture[str]) -> None:
    detail = report(Path("/"), capsys)["device"]["evidence"]["detail"]
    (line,) = [line for line in text(Path("/"), capsys).splitlines() if detail in line]
    assert "evidence from another machine" in line.removesuffix(detail)


@pytest.mark.parametrize("name", trees.NAMES)
def test_a_recorded_machine_is_told_in_words_and_in_json(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = trees.machine(tmp_path, name)
    found, words = report(root, capsys), text(root, capsys)
    assert found["board"] in words
    assert found["device"]["evidence"]["detail"] in words
    for accelerator in found["accelerators"]:
        assert accelerator["model"] in words
        assert accelerator["evidence"]["detail"] in words
    for choice in found["choices"]:
        assert choice["ready"] == (not choice["missing"])
        for lack in choice["missing"]:
            assert lack["install"], choice["name"]
            assert f"{lack['what']}; " in words
            assert lack["install"] in words
    for note in found["notes"]:
        assert note in words
    for sensor in found["sensors"]:
        assert sensor["name"] in words


def test_a_jetson_without_its_libraries_hears_of_the_wheel_and_of_jetpack(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = report(trees.machine(tmp_path, "jetson-orin-nano"), capsys)
    (tensorrt,) = (choice for choice in found["choices"] if choice["name"] == "tensorrt")
    assert [lack["what"] for lack in tensorrt["missing"]] == [
        "this onnxruntime has no TensorrtExecutionProvider, CUDAExecutionProvider", "there is no libnvinfer.so",
    ]  # fmt: skip
    assert tensorrt["missing"][1]["install"] == "sudo apt install nvidia-jetpack"


def test_a_board_with_everything_installed_is_ready(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ["TensorrtExecutionProvider", "CUDAExecutionProvider"]
    monkeypatch.setattr(onnx, "available_providers", lambda: names)
    found = report(trees.machine(tmp_path, "jetson-agx-orin"), capsys)
    ready = [choice["name"] for choice in found["choices"] if choice["ready"]]
    assert ready[:4] == ["tensorrt", "cuda", "tensorrt-dla0", "tensorrt-dla1"]


def test_a_build_of_a_vendor_counts_as_the_engine(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    versions = {"onnxruntime-openvino": "1.24.1"}
    monkeypatch.setattr(doctor, "_version", versions.get)
    found = report(trees.machine(tmp_path, "laptop-core-ultra"), capsys)
    assert found["engines"][0]["version"] == "1.24.1"
    versions.clear()
    assert report(tmp_path, capsys)["engines"][0]["version"] == "of unknown version"


def test_a_node_that_this_user_may_not_open_is_said_with_its_group(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    root = trees.machine(tmp_path, "laptop-core-ultra")
    node = root / "dev/accel/accel0"
    node.chmod(stat.S_IRUSR | stat.S_IWUSR)
    monkeypatch.setattr(os, "access", lambda path, mode: path != node)
    found = report(root, capsys)
    assert found["accelerators"][0]["access"].startswith("this user may not open /dev/accel/accel0; run: sudo usermod")
    assert node.group() in found["accelerators"][0]["access"]


def test_sensors_that_cannot_be_read_are_said_to(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = trees.machine(tmp_path, "laptop-core-ultra")
    counter = root / "sys/class/powercap/intel-rapl:0/energy_uj"
    counter.unlink()
    counter.mkdir()  # as unreadable to root as to anybody
    shutil.rmtree(root / "sys/class/power_supply/BAT0")
    found = text(root, capsys)
    assert "energy         package-0                        cannot be read by this user" in found
    assert "BAT0" not in found


def test_a_broken_plug_in_is_reported_and_stops_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken() -> Any:
        raise ImportError("libvendor.so.1: cannot open shared object file")

    ours = discovery._entries
    monkeypatch.setattr(
        discovery, "_entries", lambda: [*ours(), ("vendor_npu", "vendor-package", "vendor:detect", broken)]
    )
    root = trees.machine(tmp_path, "raspberry-pi-4")
    words = text(root, capsys)
    assert "vendor_npu of vendor-package (vendor:detect): ImportError: libvendor.so.1" in words
    assert "Raspberry Pi 4 Model B Rev 1.4" in words
    (plugin,) = (one for one in report(root, capsys)["plugins"] if one["error"])
    assert plugin["name"] == "vendor_npu"
