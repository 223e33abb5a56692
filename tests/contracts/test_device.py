"""One list of checks over every device file: what `edge_runtime.base.hardware` promises of them."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from edge_devices import npu
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_runtime.base.hardware import Profile, find_devices, this_device
from edge_runtime.base.hardware.discovery import BUILT_IN, reference
from edge_runtime.model import engines
from tests.edge_devices import trees

Detect = Callable[[Path], Profile | None]

CPU = ["onnxruntime", "litert", "tflite-runtime"]
RK3588 = {"soc-thermal": 75.0, "bigcore0-thermal": None, "littlecore-thermal": None, "npu-thermal": None}
PI = ["onnxruntime", "litert", "xnnpack", "tflite-runtime"]


@dataclass(frozen=True)
class Machine:
    """What a recorded tree must be recognised as."""

    family: str
    model: str
    architecture: str
    isa: str
    cores: int
    choices: list[str]
    temperatures: dict[str, float | None]
    """Sensors with the limit from which on the machine throttles, degrees Celsius."""
    clusters: tuple[tuple[int, ...], ...] = ()
    accelerators: tuple[str, ...] = ()
    fp16: bool = False
    int8: bool = False


MACHINES = {
    "x86-server": Machine("cpu", "AMD EPYC", "x86_64", "x86-64-v3", 2, CPU, {}),
    "raspberry-pi-3-32-bit": Machine(
        "raspberry_pi", "Raspberry Pi 3 Model B Plus Rev 1.3", "armv7l", "armv7-a", 4, ["tflite-runtime"],
        {"cpu-thermal": 80.0},
    ),
    "raspberry-pi-4": Machine(
        "raspberry_pi", "Raspberry Pi 4 Model B Rev 1.4", "aarch64", "armv8.0-a", 4, PI,
        {"cpu-thermal": 80.0},
    ),
    "raspberry-pi-4-32-bit-system": Machine(
        "raspberry_pi", "Raspberry Pi 4 Model B Rev 1.4", "armv7l", "armv7-a", 4, ["tflite-runtime"],
        {"cpu-thermal": 80.0},
    ),
    "raspberry-pi-5": Machine(
        "raspberry_pi", "Raspberry Pi 5 Model B Rev 1.0", "aarch64", "armv8.2-a", 4, PI,
        {"cpu-thermal": 80.0}, fp16=True, int8=True,
    ),
    "raspberry-pi-zero-2": Machine(
        "raspberry_pi", "Raspberry Pi Zero 2 W Rev 1.0", "aarch64", "armv8.0-a", 4, PI,
        {"cpu-thermal": 80.0},
    ),
    "jetson-nano": Machine(
        "jetson", "NVIDIA Jetson Nano Developer Kit", "aarch64", "armv8.0-a", 4, ["tensorrt", "cuda", *CPU],
        {"CPU-therm": 97.0, "GPU-therm": 97.0, "AO-therm": None, "PLL-therm": None, "thermal-fan-est": None},
    ),
    "jetson-xavier-nx": Machine(
        "jetson", "NVIDIA Jetson Xavier NX Developer Kit", "aarch64", "armv8.2-a", 6,
        ["tensorrt", "cuda", "tensorrt-dla0", "tensorrt-dla1", *CPU],
        {"CPU-therm": 96.0, "GPU-therm": None, "AUX-therm": None, "AO-therm": None}, fp16=True,
    ),
    "jetson-agx-orin": Machine(
        "jetson", "NVIDIA Jetson AGX Orin Developer Kit", "aarch64", "armv8.2-a", 12,
        ["tensorrt", "cuda", "tensorrt-dla0", "tensorrt-dla1", *CPU],
        {"cpu-thermal": 99.0, "gpu-thermal": 99.0, "tj-thermal": 99.0, "cv0-thermal": 99.0, "soc0-thermal": None},
        fp16=True, int8=True,
    ),
    "jetson-orin-nano": Machine(
        "jetson", "NVIDIA Jetson Orin Nano Engineering Reference Developer Kit Super", "aarch64", "armv8.2-a", 6,
        ["tensorrt", "cuda", *CPU], {"cpu-thermal": 99.0, "gpu-thermal": 99.0, "tj-thermal": 99.0},
        fp16=True, int8=True,
    ),
    "raspberry-pi-5-hailo": Machine(
        "raspberry_pi", "Raspberry Pi 5 Model B Rev 1.0", "aarch64", "armv8.2-a", 4, PI, {"cpu-thermal": 80.0},
        accelerators=("npu_hailo",), fp16=True, int8=True,
    ),
    "raspberry-pi-4-coral": Machine(
        "raspberry_pi", "Raspberry Pi 4 Model B Rev 1.4", "aarch64", "armv8.0-a", 4,
        ["edgetpu-litert", "edgetpu-tflite-runtime", *PI], {"cpu-thermal": 80.0}, accelerators=("npu_coral",),
    ),
    "orange-pi-5-plus": Machine(
        "cpu", "Orange Pi 5 Plus", "aarch64", "armv8.2-a", 8, CPU, RK3588, clusters=((4, 5, 6, 7), (0, 1, 2, 3)),
        accelerators=("npu_rockchip",), fp16=True, int8=True,
    ),
    "orange-pi-5-plus-mainline": Machine(
        "cpu", "Orange Pi 5 Plus", "aarch64", "armv8.2-a", 8, ["teflon", *CPU], RK3588,
        clusters=((4, 5, 6, 7), (0, 1, 2, 3)), accelerators=("npu_rockchip",), fp16=True, int8=True,
    ),
    "imx8mp-evk": Machine(
        "cpu", "NXP i.MX8MPlus EVK board", "aarch64", "armv8.0-a", 4, ["vx", *CPU],
        {"cpu-thermal": 85.0, "soc-thermal": 85.0}, accelerators=("npu_ethos",),
    ),
    "imx93-evk": Machine(
        "cpu", "NXP i.MX93 11X11 EVK board", "aarch64", "armv8.2-a", 2, ["ethos-u", *CPU], {"cpu-thermal": 80.0},
        accelerators=("npu_ethos",), fp16=True, int8=True,
    ),
    "qualcomm-rb3gen2": Machine(
        "cpu", "Qualcomm Technologies, Inc. Robotics RB3gen2", "aarch64", "armv8.2-a", 8, ["qnn", *CPU],
        {"cpu0-thermal": 90.0}, clusters=((7,), (4, 5, 6), (0, 1, 2, 3)), accelerators=("npu_qualcomm",),
        fp16=True, int8=True,
    ),
    "laptop-core-ultra": Machine(
        "cpu", "Intel(R) Core(TM) Ultra 5 125U", "x86_64", "x86-64-v3", 14, ["openvino-npu", "openvino-gpu", *CPU],
        {"acpitz": 119.0, "x86_pkg_temp": None, "coretemp Package id 0": 110.0},
        clusters=((0, 1, 2, 3), (4, 5, 6, 7, 8, 9, 10, 11), (12, 13)), accelerators=("npu_intel",), int8=True,
    ),
    "laptop-ryzen-ai": Machine(
        "cpu", "AMD Ryzen AI 9 HX 370 w/ Radeon 890M", "x86_64", "x86-64-v4", 24, ["vitisai", *CPU],
        {"k10temp Tctl": None}, accelerators=("npu_amd",), int8=True,
    ),
    "macos": Machine("cpu", "unknown processor", "", "", 1, ["coreml", *CPU], {}, accelerators=("npu_apple",)),
    "android-phone": Machine(
        "cpu", "Qualcomm Technologies, Inc QCM6490", "aarch64", "armv8.2-a", 8, ["nnapi", *CPU], {},
        clusters=((4, 5, 6, 7), (0, 1, 2, 3)), accelerators=("npu_android",), fp16=True, int8=True,
    ),
}  # fmt: skip


def detector(name: str) -> Detect:
    module, function = reference(name).split(":")
    found: Detect = getattr(importlib.import_module(module), function)
    return found


def test_every_recorded_tree_has_an_expectation_and_a_source() -> None:
    assert set(trees.NAMES) == set(MACHINES)
    for name in trees.NAMES:
        assert json.loads((trees.DATA / f"{name}.json").read_text("utf-8"))["source"]


def test_every_device_file_is_listed_and_registered() -> None:
    folder = Path(importlib.import_module("edge_devices").__file__ or "").parent
    listed = {reference(name).partition(":")[0] for name in BUILT_IN}
    ours = {f"edge_devices.{path.stem}" for path in folder.glob("*.py")} - {"edge_devices.__init__"}
    assert listed == ours | {"edge_runtime.base.hardware.cpu", "edge_runtime.base.hardware.null"}
    assert {name for name in BUILT_IN if name.startswith("npu_")} == npu.FACTS.keys()
    project = "".join((folder.parents[1] / name / "pyproject.toml").read_text("utf-8") for name in (".", "devices"))
    for name in BUILT_IN:
        assert f'{name} = "{reference(name)}"' in project


@pytest.mark.parametrize("name", MACHINES)
def test_a_machine_is_recognised_as_what_it_is(name: str, roots: dict[str, Path]) -> None:
    expected, found = MACHINES[name], find_devices(roots[name])
    profile = found.profile
    assert not found.broken
    assert (profile.family, profile.model) == (expected.family, expected.model)
    assert (profile.architecture, profile.isa) == (expected.architecture, expected.isa)
    assert (profile.fp16, profile.int8) == (expected.fp16, expected.int8)
    assert profile.cores == expected.cores
    assert (profile.memory_mb > 0) == (name != "macos")  # it says so through a call only
    assert tuple(cluster.cpus for cluster in profile.clusters) == (expected.clusters or (tuple(range(expected.cores)),))
    assert [choice.name for choice in profile.choices] == expected.choices
    assert {gauge.name: gauge.limit for gauge in profile.temperatures} == expected.temperatures
    assert tuple(one.family for one in found.accelerators) == expected.accelerators


@pytest.mark.parametrize("name", MACHINES)
def test_what_a_profile_names_can_be_read(name: str, roots: dict[str, Path]) -> None:
    profile, root = this_device(roots[name]), roots[name]
    for gauge in (*profile.power, *profile.power_parts):
        value = gauge.read(root)
        assert value is not None
        assert 0 <= value < 100
    for gauge in profile.temperatures:
        value = gauge.read(root)
        # The sensor of an Orin's vision accelerator says -256 while that is switched off.
        assert (value is None) == (gauge.name == "cv0-thermal")
        assert value is None or 20 < value < 110
    for flag in profile.throttling:
        assert flag.read(root) is not None
    for battery in profile.batteries:
        assert battery.charge.read(root) is not None
    gone = root / "no such folder"
    assert {gauge.read(gone) for gauge in (*profile.temperatures, *profile.power)} <= {None}
    assert {flag.read(gone) for flag in profile.throttling} <= {None}


@pytest.mark.parametrize("name", MACHINES)
def test_every_choice_can_be_made_and_the_processor_stands_at_the_end(name: str, roots: dict[str, Path]) -> None:
    profile = this_device(roots[name])
    names = [choice.name for choice in profile.choices]
    assert len(set(names)) == len(names)
    for choice in profile.choices:
        engines.find(choice.engine)
        assert choice.install, choice.name
        assert "\n" not in choice.install
        for settings_ in choice.options(Path("/cache")).values():
            assert all(isinstance(value, str) and "{cache}" not in value for value in settings_.values())
    assert not profile.choices[-1].accelerated
    assert any(not choice.accelerated for choice in profile.choices)


@pytest.mark.parametrize("family", BUILT_IN)
def test_a_device_file_says_what_backs_it(family: str) -> None:
    in_table = npu.FACTS.get(family)
    evidence = in_table.evidence if in_table else importlib.import_module(reference(family).partition(":")[0]).EVIDENCE
    assert evidence.tier in {"simulated", "emulated", "measured"}
    assert len(evidence.detail) > 20
    # Of what is listed here, only this x86 processor was ever at hand.
    assert (evidence.tier == "measured") == (family == "cpu")


@pytest.mark.parametrize("name", MACHINES)
def test_only_the_processor_that_was_at_hand_is_called_measured(name: str, roots: dict[str, Path]) -> None:
    found = find_devices(roots[name])
    assert (found.profile.evidence.tier == "measured") == (MACHINES[name].architecture == "x86_64")
    assert all(one.evidence.tier == "simulated" for one in found.accelerators)


@pytest.mark.parametrize("family", [family for family in BUILT_IN if family != "cpu"])
def test_a_device_file_answers_none_on_the_wrong_machine(family: str, roots: dict[str, Path], tmp_path: Path) -> None:
    assert detector(family)(tmp_path) is None
    assert detector(family)(tmp_path / "missing") is None
    for name, expected in MACHINES.items():
        if family not in {expected.family, *expected.accelerators}:
            assert detector(family)(roots[name]) is None, name


def test_an_empty_tree_is_one_core_and_the_processor(tmp_path: Path) -> None:
    profile = this_device(tmp_path)
    assert (profile.family, profile.cores, profile.thread_counts, profile.fast_cpus) == ("cpu", 1, (1,), (0,))
    assert [choice.name for choice in profile.choices] == CPU


@pytest.mark.parametrize("name", MACHINES)
def test_a_machine_with_one_core_left_is_told_so(name: str, tmp_path: Path) -> None:
    root = trees.machine(tmp_path, name)
    trees.plant(root, {"/sys/devices/system/cpu/online": "0\n", "/proc/self/status": "Cpus_allowed_list:\t0\n"})
    profile = this_device(root)
    assert (profile.cores, profile.fast_cpus, profile.thread_counts) == (1, (0,), (1,))
    assert profile.family == MACHINES[name].family


NONSENSE = st.one_of(
    st.just(b""),
    st.just(b"\0"),
    st.just(b"0"),
    st.just(b"-1\n"),
    st.just(b"99999999999999999999999999\n"),
    st.just(b"0-999999999\n"),
    st.just(b"processor: \nFeatures: half\nCPU architecture: 99999999999\n\n" * 3),
    st.binary(max_size=64),
)
DAMAGE = st.one_of(
    NONSENSE.map(lambda data: ("write", data)),
    st.sampled_from(["remove", "folder", "pipe", "loop", "dangling"]).map(lambda kind: (kind, b"")),
)


def damage(path: Path, kind: str, data: bytes) -> None:
    path.unlink()
    if kind == "write":
        path.write_bytes(data)
    elif kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "loop":
        path.symlink_to(path.name)
    elif kind == "dangling":
        path.symlink_to("nowhere")


@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_no_damage_to_a_tree_stops_detection(data: Any) -> None:
    name = data.draw(st.sampled_from(sorted(MACHINES)))
    files = sorted(trees.read(name))
    hit = data.draw(st.dictionaries(st.sampled_from(files), DAMAGE, min_size=1, max_size=12))
    with tempfile.TemporaryDirectory() as folder:
        root = trees.machine(Path(folder), name)
        for path, (kind, content) in hit.items():
            damage(root / path.lstrip("/"), kind, content)
        found = find_devices(root)
        assert not found.broken
        profile = found.profile
        assert profile.cores >= 1
        assert profile.fast_cpus
        assert not profile.choices[-1].accelerated
        json.dumps(profile.describe())
        for gauge in (*profile.temperatures, *profile.power, *profile.power_parts):
            gauge.read(root)
        for flag in profile.throttling:
            flag.read(root)
        for counter in profile.energy:
            counter.read(root)
        for battery in profile.batteries:
            battery.discharging(root)


def test_detection_writes_nothing(tmp_path: Path) -> None:
    root = trees.machine(tmp_path, "jetson-agx-orin")

    def state() -> dict[str, int]:
        return {str(path): path.stat().st_mtime_ns for path in sorted(root.rglob("*"))}

    before = state()
    find_devices(root)
    assert state() == before


def test_asking_every_device_file_imports_no_library_of_a_vendor() -> None:
    code = (
        "import sys\nfrom edge_runtime.base.hardware import find_devices\nassert not find_devices().broken\n"
        "loaded = {name.partition('.')[0] for name in sys.modules}\n"
        "print(*sorted(loaded & {'numpy', 'onnxruntime', 'ai_edge_litert', 'tflite_runtime', 'paho', 'rknnlite',"
        " 'hailo_platform', 'openvino', 'pycoral', 'tensorrt', 'jtop'}))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60,
        cwd=Path(__file__).resolve().parents[2],
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "\n", "")
