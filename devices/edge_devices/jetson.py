"""NVIDIA Jetson: Nano, Xavier and Orin families (and TX1 and TX2, which have the same files).

Choices, best first: the TensorRT execution provider, with CUDA behind it for what TensorRT does not take; CUDA alone;
TensorRT on a deep-learning accelerator (DLA) where the module has one, which is there to spare power and the GPU; the
processor. Which is fastest for a small sensor model is for ``tune`` to measure: a GPU call costs tens of microseconds
before it computes anything.

Options, as documented at onnxruntime.ai/docs/execution-providers/TensorRT-ExecutionProvider.html and
CUDA-ExecutionProvider.html:

- ``trt_engine_cache_enable``, ``trt_engine_cache_path``, ``trt_timing_cache_enable``, ``trt_timing_cache_path``:
  building an engine takes from seconds to minutes on a Jetson. A built one fits one model, library version and board
  ("engine files are not portable"), so the caller names a folder that belongs to all three.
- ``trt_fp16_enable`` from the Nano on; ``trt_int8_enable`` from Xavier on. Our int8 variants carry their calibration in
  QuantizeLinear and DequantizeLinear nodes, for which no calibration table may be given; TensorRT wants symmetric
  ones, so only the ``s8s8`` scheme goes there.
- ``trt_max_workspace_size`` and ``gpu_mem_limit``, bytes: a Jetson's GPU shares the board's memory, and unlimited
  arenas starve the rest of it. An eighth of the memory each, at least 128 MB.
- ``trt_profile_min_shapes``, ``_opt_``, ``_max_``: without them each new size of a batch builds a new engine while the
  stream waits; with them one engine serves every batch up to the largest.
- ``trt_dla_enable``, ``trt_dla_core``.

Sources of the files: NVIDIA Jetson Linux Developer Guide, "Platform Power and Performance" (INA3221 rails,
``oc*_event_cnt``, nvpmodel); Documentation/hwmon/ina3221.rst of the kernel (mV, mA); the layout of older releases as
jetson_stats reads it.
"""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass
from pathlib import Path

from edge_runtime.base.hardware import cpu, files, sensors
from edge_runtime.base.hardware.profile import (
    CACHE,
    MAX_SHAPES,
    MIN_SHAPES,
    EngineChoice,
    Evidence,
    Flag,
    Gauge,
    Profile,
)

EVIDENCE = Evidence(
    tier="simulated",
    detail=(
        "detection, rails and power mode over file trees modelled on the documented layout of JetPack 4 to 6; provider "
        "lists and options against a fake onnxruntime; on 2026-11-21 the library of onnxruntime-gpu 1.24.4 held every "
        "option by name and, without CUDA, was refused out loud; no Jetson was at hand"
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Chip:
    """Properties of a Tegra chip. Sources: NVIDIA's module data sheets and the CUDA GPU table (compute capability)."""

    name: str
    compute: str

    @property
    def int8(self) -> bool:
        """TensorRT's support matrix: int8 from compute capability 6.1 and from 7.0 on, but not on 6.2 (TX2)."""
        return self.compute not in {"5.3", "6.2"}


CHIPS = {
    "tegra210": Chip(name="Jetson Nano or TX1", compute="5.3"),
    "tegra186": Chip(name="Jetson TX2", compute="6.2"),
    "tegra194": Chip(name="Jetson Xavier", compute="7.2"),
    "tegra234": Chip(name="Jetson Orin", compute="8.7"),
}

JETPACK = {"32": "4", "34": "5", "35": "5", "36": "6", "38": "7"}
"""Major release of Jetson Linux (L4T) to that of JetPack (developer.nvidia.com/embedded/jetpack-archive)."""

# NVIDIA's wheels have TensorRT and are for its own Python; the public one for Arm (1.31) wants CUDA 13 and has none.
_WHEEL = "onnxruntime-gpu for this JetPack, from elinux.org/Jetson_Zoo#ONNX_Runtime or built with --use_tensorrt"
_CUDA_13 = "pip uninstall -y onnxruntime && pip install onnxruntime-gpu"
_DRIVER = "sudo apt install nvidia-jetpack"
_LIBRARIES = {
    name: (f"/usr/lib/aarch64-linux-gnu/{name}.so*", f"/usr/local/cuda*/lib64/{name}.so*", f"/usr/lib/{name}.so*")
    for name in ("libnvinfer", "libcudart")
}

# The rail that feeds the whole module, where there is one: Orin NX and Nano and Xavier NX, and the first Nano.
_TOTAL_RAILS = ("VDD_IN", "POM_5V_IN")
_BOGUS_ZONES = frozenset({"PMIC-Die", "PMIC"})  # the Nano's always says 100 degrees
_OVER_CURRENT = {1: "under_voltage", 2: "average_over_current", 3: "instantaneous_over_current"}


def detect(root: Path = files.ROOT) -> Profile | None:
    """Detect the Jetson that this is, or None."""
    compatible = files.strings(root, "/proc/device-tree/compatible")
    soc = next((name.removeprefix("nvidia,") for name in compatible if name.removeprefix("nvidia,") in CHIPS), "")
    if not soc:
        return None
    board = cpu.detect(root)
    chip = CHIPS[soc]
    l4t = release(root)
    rails = power_rails(root)
    total = tuple(rail for rail in rails if rail.name in _TOTAL_RAILS)
    parts = tuple(rail for rail in rails if rail.name not in _TOTAL_RAILS)
    details = {"soc": soc, "chip": chip.name, "compute_capability": chip.compute}
    if l4t:
        details["l4t"] = l4t
        details["jetpack"] = JETPACK.get(l4t.partition(".")[0], "unknown")
    if mode := power_mode(root):
        details["power_mode"] = mode
    dla = _dla_cores(soc, compatible)
    return dataclasses.replace(
        board,
        family="jetson",
        evidence=EVIDENCE,
        choices=(*gpu_choices(chip, board.memory_mb, dla, details.get("jetpack", "")), *board.choices),
        temperatures=sensors.thermal_zones(root, skip=_BOGUS_ZONES),
        throttling=(*over_current(root), *board.throttling),
        power=total,
        power_parts=parts,
        details=details | ({"dla_cores": str(dla)} if dla else {}),
        notes=_notes(details.get("jetpack", ""), has_total=bool(total)),
    )


def gpu_choices(chip: Chip, memory_mb: int, dla_cores: int, jetpack: str) -> tuple[EngineChoice, ...]:
    """TensorRT, CUDA, and TensorRT on each DLA core, for a chip in a board with so much memory."""
    limit = str(max(memory_mb // 8, 128) * 2**20)
    cuda = {
        "device_id": "0",
        "gpu_mem_limit": limit,
        "arena_extend_strategy": "kSameAsRequested",
        "cudnn_conv_algo_search": "HEURISTIC",
        "do_copy_in_default_stream": "1",
    }
    tensorrt = {
        "device_id": "0",
        "trt_max_workspace_size": limit,
        "trt_fp16_enable": "True",
        "trt_int8_enable": "True" if chip.int8 else "False",
        "trt_engine_cache_enable": "True",
        "trt_engine_cache_path": CACHE,
        "trt_timing_cache_enable": "True",
        "trt_timing_cache_path": CACHE,
        "trt_profile_min_shapes": MIN_SHAPES,
        "trt_profile_opt_shapes": MIN_SHAPES,
        "trt_profile_max_shapes": MAX_SHAPES,
    }
    precisions = ("fp32", "fp16", "int8", "mixed") if chip.int8 else ("fp32", "fp16")

    def choice(name: str, options: dict[str, str]) -> EngineChoice:
        return EngineChoice(
            name=name,
            engine="onnxruntime",
            providers={"TensorrtExecutionProvider": options, "CUDAExecutionProvider": cuda},
            caching=("trt_engine_cache_enable", "trt_timing_cache_enable"),
            precisions=precisions,
            schemes=("s8s8",),
            install=_WHEEL,
            requires=_LIBRARIES["libnvinfer"],
            driver=_DRIVER,
        )

    return (
        choice("tensorrt", tensorrt),
        EngineChoice(
            name="cuda",
            engine="onnxruntime",
            providers={"CUDAExecutionProvider": cuda},
            precisions=("fp32", "fp16"),
            install=_CUDA_13 if jetpack == "7" else _WHEEL,
            requires=_LIBRARIES["libcudart"],
            driver=_DRIVER,
        ),
        *(
            choice(f"tensorrt-dla{core}", tensorrt | {"trt_dla_enable": "True", "trt_dla_core": str(core)})
            for core in range(dla_cores)
        ),
    )


def release(root: Path) -> str:
    """Return the release of Jetson Linux, for example ``36.4.0``; empty if the machine does not say.

    The file's first line reads ``# R36 (release), REVISION: 4.0, GCID: ..., BOARD: generic, ...``.
    """
    line = files.text(root, "/etc/nv_tegra_release") or ""
    match = re.match(r"#\s*R(\d{1,3})\b.*?REVISION:\s*(\d+(?:\.\d+)*)", line)
    return f"{match[1]}.{match[2]}" if match else ""


def power_mode(root: Path) -> str:
    """Return the active nvpmodel mode, for example ``MAXN``; its number where the name is not listed; else empty."""
    match = re.search(r"pmode:\s*(\d{1,4})", files.text(root, "/var/lib/nvpmodel/status") or "")
    if match is None:
        return ""
    number = int(match[1])
    listed = re.findall(r"<\s*POWER_MODEL\s+ID=(\d+)\s+NAME=(\S+)\s*>", files.text(root, "/etc/nvpmodel.conf") or "")
    return next((name for mode, name in listed if int(mode) == number), str(number))


def power_rails(root: Path) -> tuple[Gauge, ...]:
    """List every rail that an INA3221 measures, in watts.

    From JetPack 5 on as a hardware monitor with millivolts and milliamperes; before, as an IIO device of NVIDIA's own
    driver with milliwatts.
    """
    found = []
    for path in files.entries(root, "/sys/class/hwmon/hwmon*/in*_label"):
        folder, _, file = path.rpartition("/")
        label = files.text(root, path)
        channel = file.removeprefix("in").removesuffix("_label")
        if (
            files.text(root, f"{folder}/name") != "ina3221"
            or not label
            or label == "NC"
            or channel not in {"1", "2", "3"}
        ):
            continue
        volts, amperes = f"{folder}/in{channel}_input", f"{folder}/curr{channel}_input"
        if files.exists(root, volts) and files.exists(root, amperes):
            found.append(Gauge(name=label, unit="W", paths=(volts, amperes), scale=1e-6))
    for path in files.entries(root, "/sys/bus/i2c/devices/*/iio:device*/rail_name_*"):
        folder, _, file = path.rpartition("/")
        label = files.text(root, path)
        power = f"{folder}/in_power{file.removeprefix('rail_name_')}_input"
        if label and label != "NC" and files.exists(root, power):
            found.append(Gauge(name=label, unit="W", paths=(power,), scale=1e-3))
    return tuple(found)


def over_current(root: Path) -> tuple[Flag, ...]:
    """Count what makes an Orin throttle itself: under-voltage, average and instantaneous over-current."""
    found = []
    for folder in files.entries(root, "/sys/class/hwmon/hwmon*"):
        if files.text(root, f"{folder}/name") != "soctherm_oc":
            continue
        for number, name in _OVER_CURRENT.items():
            path = f"{folder}/oc{number}_event_cnt"
            if files.exists(root, path):
                found.append(Flag(name=name, path=path, kind="counter"))
    return tuple(found)


def _dla_cores(soc: str, compatible: tuple[str, ...]) -> int:
    """Count by chip on Xavier, by module on Orin; 0 for an unknown module, since a core that is not there fails."""
    if soc == "tegra194":
        return 2
    module = re.search(r"p3701-\d{4}|p3767-\d{4}", " ".join(compatible))
    if soc != "tegra234" or module is None:
        return 0
    return 2 if module[0].startswith("p3701") else {"p3767-0000": 2, "p3767-0001": 1}.get(module[0], 0)


def _notes(jetpack: str, *, has_total: bool) -> tuple[str, ...]:
    notes = []
    if jetpack in {"4", "5", "6"}:
        python = {"4": "3.6", "5": "3.8", "6": "3.10"}[jetpack]
        notes.append(
            f"JetPack {jetpack} has Python {python} and NVIDIA's wheels of onnxruntime are for it, while edge-runtime "
            "needs 3.11: the GPU takes an onnxruntime that was built for the newer Python"
        )
    if not has_total:
        notes.append("no rail of this module measures all that it draws, so no joules per inference are reported")
    return tuple(notes)
