"""What a processor is called: levels of x86-64, versions of Arm, clusters, and programs unlike their kernel."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from edge_runtime.base.hardware import cpu
from tests.edge_devices import trees

V1 = "fpu lm sse sse2"
V2 = f"{V1} pni cx16 lahf_lm popcnt sse4_1 sse4_2 ssse3"
V3 = f"{V2} avx avx2 bmi1 bmi2 f16c fma abm movbe xsave"
V4 = f"{V3} avx512f avx512bw avx512cd avx512dq avx512vl"


def x86(flags: str) -> dict[str, Any]:
    return {"/proc/cpuinfo": f"processor\t: 0\nmodel name\t: A processor\nflags\t\t: {flags}\n"}


def arm(features: str, architecture: str = "8", extra: str = "") -> dict[str, Any]:
    return {"/proc/cpuinfo": f"processor\t: 0\n{extra}Features\t: {features}\nCPU architecture: {architecture}\n"}


def elf(machine: int) -> dict[str, Any]:
    return {"/proc/self/exe": {"hex": (b"\x7fELF" + bytes(14) + machine.to_bytes(2, "little")).hex()}}


@pytest.mark.parametrize(
    ("flags", "isa", "int8"),
    [
        (V1, "x86-64-v1", False), (V2, "x86-64-v2", False), (V3, "x86-64-v3", False), (V4, "x86-64-v4", False),
        (V3.replace(" fma", ""), "x86-64-v2", False), (f"{V2} avx512f", "x86-64-v2", False),
        (f"{V4} avx512_vnni", "x86-64-v4", True), (f"{V3} avx_vnni", "x86-64-v3", True),
    ],
)  # fmt: skip
def test_x86_has_its_level(flags: str, isa: str, int8: bool, tmp_path: Path) -> None:
    profile = cpu.detect(trees.plant(tmp_path, x86(flags)))
    assert (profile.architecture, profile.isa, profile.int8) == ("x86_64", isa, int8)
    assert profile.evidence.tier == "measured"


@pytest.mark.parametrize(
    ("files", "architecture", "isa"),
    [
        (arm("fp asimd crc32"), "aarch64", "armv8.0-a"),
        (arm("fp asimd atomics asimdrdm"), "aarch64", "armv8.1-a"),
        (arm("fp asimd atomics asimdrdm dcpop lrcpc"), "aarch64", "armv8.2-a"),
        (arm("fp asimd atomics asimdrdm dcpop lrcpc jscvt fcma uscat flagm dit asimddp"), "aarch64", "armv8.4-a"),
        (arm("half thumb neon vfpv4", "7"), "armv7l", "armv7-a"),
        (arm("half thumb fastmult vfp", "7", "model name\t: ARMv6-compatible processor rev 7 (v6l)\n"), "armv6l",
         "armv6"),
        (arm("half thumb neon", "AArch64"), "armv7l", "armv7-a"),
        (arm("nothing known", "seven"), "", ""),
        ({}, "", ""),
    ],
)  # fmt: skip
def test_arm_has_its_version(files: dict[str, Any], architecture: str, isa: str, tmp_path: Path) -> None:
    profile = cpu.detect(trees.plant(tmp_path, files))
    assert (profile.architecture, profile.isa) == (architecture, isa)
    assert profile.evidence.tier == ("emulated" if architecture else "simulated")


@pytest.mark.parametrize(
    ("machine", "architecture", "engines"),
    [
        (62, "x86_64", {"onnxruntime", "litert", "tflite-runtime"}),
        (183, "aarch64", {"onnxruntime", "litert", "tflite-runtime"}),
        (40, "armv7l", {"tflite-runtime"}),
        (3, "i686", {"onnxruntime", "litert", "tflite-runtime"}),
        (999, "", {"onnxruntime", "litert", "tflite-runtime"}),
    ],
)
def test_the_program_decides_and_not_the_kernel(
    machine: int, architecture: str, engines: set[str], tmp_path: Path
) -> None:
    """A 32-bit system on a 64-bit kernel, or an emulator whose /proc is that of its host."""
    profile = cpu.detect(trees.plant(tmp_path, arm("fp asimd") | elf(machine)))
    assert profile.architecture == architecture
    assert {choice.engine for choice in profile.choices} == engines


def test_a_process_confined_to_some_cores_counts_those(tmp_path: Path) -> None:
    root = trees.machine(tmp_path, "orange-pi-5-plus")
    (root / "proc/self/status").write_text("Cpus_allowed_list:\t2-4\n")
    profile = cpu.detect(root)
    assert (profile.allowed, profile.fast_cpus, profile.thread_counts) == ((2, 3, 4), (4,), (1,))
    assert profile.cores == 8


def test_counts_of_threads_double_up_to_the_strong_cores(tmp_path: Path) -> None:
    assert cpu.detect(trees.machine(tmp_path / "pi", "raspberry-pi-4")).thread_counts == (1, 2, 4)
    assert cpu.detect(trees.machine(tmp_path / "orin", "jetson-orin-nano")).thread_counts == (1, 2, 4, 6)


def test_hybrid_processors_that_are_listed_in_part_are_taken_as_one_kind(tmp_path: Path) -> None:
    root = trees.machine(tmp_path, "laptop-core-ultra")
    (root / "sys/devices/cpu_lowpower/cpus").unlink()
    assert len(cpu.detect(root).clusters) == 1


def test_energy_is_counted_for_packages_and_not_for_their_parts(tmp_path: Path) -> None:
    root = trees.machine(tmp_path, "laptop-core-ultra")
    (counter,) = cpu.detect(root).energy
    assert (counter.name, counter.read(root), counter.wraps_at) == ("package-0", 83714503961, 262143328850)


def test_the_battery_of_a_mouse_is_not_the_machines(tmp_path: Path) -> None:
    root = trees.machine(tmp_path, "laptop-core-ultra")
    (battery,) = cpu.detect(root).batteries
    assert (battery.name, battery.charge.read(root), battery.discharging(root)) == ("BAT0", 87.0, True)
