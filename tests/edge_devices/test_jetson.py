"""What is special of a Jetson: provider options, release, power mode and rails."""

from __future__ import annotations

from pathlib import Path

import pytest
from edge_devices import jetson

from edge_runtime.base.hardware import Profile
from tests.edge_devices import trees


def found(root: Path, name: str) -> Profile:
    profile = jetson.detect(trees.machine(root, name))
    assert profile is not None
    return profile


def choices(profile: Profile) -> dict[str, dict[str, dict[str, str]]]:
    return {choice.name: choice.options(Path("/state/engines")) for choice in profile.choices}


def test_tensorrt_gets_a_cache_half_precision_int8_and_a_share_of_the_memory(tmp_path: Path) -> None:
    offered = choices(found(tmp_path, "jetson-orin-nano"))["tensorrt"]
    limit = str(7802424 // 1024 // 8 * 2**20)
    assert list(offered) == ["TensorrtExecutionProvider", "CUDAExecutionProvider"]
    assert offered["TensorrtExecutionProvider"] == {
        "device_id": "0",
        "trt_max_workspace_size": limit,
        "trt_fp16_enable": "True",
        "trt_int8_enable": "True",
        "trt_engine_cache_enable": "True",
        "trt_engine_cache_path": "/state/engines",
        "trt_timing_cache_enable": "True",
        "trt_timing_cache_path": "/state/engines",
        "trt_profile_min_shapes": "{min_shapes}",
        "trt_profile_opt_shapes": "{min_shapes}",
        "trt_profile_max_shapes": "{max_shapes}",
    }
    assert offered["CUDAExecutionProvider"]["gpu_mem_limit"] == limit


def test_without_a_folder_no_engine_is_kept_and_nothing_is_written(tmp_path: Path) -> None:
    """Broken once: the paths were gone and ``trt_engine_cache_enable`` was not, which keeps them where it runs."""
    (tensorrt, cuda, *_) = found(tmp_path, "jetson-orin-nano").choices
    assert tensorrt.compiles
    assert not cuda.compiles
    assert not [key for key in tensorrt.options(None)["TensorrtExecutionProvider"] if "_cache_" in key]


def test_only_symmetric_int8_goes_to_tensorrt_and_none_to_a_nano(tmp_path: Path) -> None:
    orin = found(tmp_path / "orin", "jetson-agx-orin").choices[0]
    assert orin.takes("int8", "s8s8")
    assert not orin.takes("int8", "u8s8")
    assert orin.takes("fp32")
    nano = found(tmp_path / "nano", "jetson-nano").choices[0]
    assert nano.options(None)["TensorrtExecutionProvider"]["trt_int8_enable"] == "False"
    assert not nano.takes("int8", "s8s8")
    assert nano.takes("fp16")


@pytest.mark.parametrize(
    ("compatible", "cores"),
    [("p3701-0005", 2), ("p3767-0000", 2), ("p3767-0001", 1), ("p3767-0003", 0), ("p9999-0000", 0)],
)
def test_a_dla_is_offered_where_the_module_has_one(compatible: str, cores: int, tmp_path: Path) -> None:
    root = trees.machine(tmp_path, "jetson-agx-orin")
    (root / "proc/device-tree/compatible").write_bytes(f"nvidia,{compatible}\0nvidia,tegra234\0".encode())
    profile = jetson.detect(root)
    assert profile is not None
    offered = {name: value for name, value in choices(profile).items() if "dla" in name}
    assert sorted(offered) == [f"tensorrt-dla{core}" for core in range(cores)]
    for name, options in offered.items():
        assert options["TensorrtExecutionProvider"]["trt_dla_enable"] == "True"
        assert options["TensorrtExecutionProvider"]["trt_dla_core"] == name[-1]


@pytest.mark.parametrize(
    ("name", "l4t", "jetpack", "mode"),
    [
        ("jetson-nano", "32.7.1", "4", "MAXN"),
        ("jetson-xavier-nx", "35.4.1", "5", "MODE_20W_6CORE"),
        ("jetson-agx-orin", "36.4.0", "6", "MODE_30W"),
        ("jetson-orin-nano", "36.4.3", "6", "25W"),
    ],
)
def test_release_and_power_mode_are_told(name: str, l4t: str, jetpack: str, mode: str, tmp_path: Path) -> None:
    details = found(tmp_path, name).details
    assert (details["l4t"], details["jetpack"], details["power_mode"]) == (l4t, jetpack, mode)


def test_a_mode_that_is_not_listed_keeps_its_number(tmp_path: Path) -> None:
    root = trees.machine(tmp_path, "jetson-orin-nano")
    (root / "var/lib/nvpmodel/status").write_text("pmode:0007")
    assert jetson.power_mode(root) == "7"
    (root / "var/lib/nvpmodel/status").write_text("pmode:none")
    assert jetson.power_mode(root) == ""


def test_the_rail_of_the_whole_module_is_told_from_its_parts(tmp_path: Path) -> None:
    orin = tmp_path / "orin"
    profile = found(orin, "jetson-orin-nano")
    (total,) = profile.power
    assert (total.name, round(total.read(orin) or 0, 3)) == ("VDD_IN", round(4.984 * 1.856, 3))
    assert [rail.name for rail in profile.power_parts] == ["VDD_CPU_GPU_CV", "VDD_SOC"]
    nano = tmp_path / "nano"
    profile = found(nano, "jetson-nano")
    (total,) = profile.power
    assert (total.name, round(total.read(nano) or 0, 3)) == ("POM_5V_IN", 2.435)
    assert [rail.name for rail in profile.power_parts] == ["POM_5V_GPU", "POM_5V_CPU"]


def test_rails_whose_sum_nobody_documents_are_not_called_the_total(tmp_path: Path) -> None:
    profile = found(tmp_path, "jetson-agx-orin")
    assert profile.power == ()
    assert [r.name for r in profile.power_parts] == ["VDD_GPU_SOC", "VDD_CPU_CV", "VIN_SYS_5V0", "VDDQ_VDD2_1V8AO"]
    assert any("no joules per inference" in note for note in profile.notes)


def test_over_current_is_counted(tmp_path: Path) -> None:
    profile = found(tmp_path, "jetson-agx-orin")
    flags = {flag.name: (flag.kind, flag.read(tmp_path)) for flag in profile.throttling}
    assert flags == {
        "under_voltage": ("counter", 0), "average_over_current": ("counter", 0),
        "instantaneous_over_current": ("counter", 27), "cooling_cpufreq_cpu0": ("level", 0),
    }  # fmt: skip
