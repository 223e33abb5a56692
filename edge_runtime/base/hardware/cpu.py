"""Any machine with a processor: x86-64 by level, 64-bit and 32-bit Arm. Every other family starts from this one.

Sources: x86-64 psABI, "Micro-Architecture Levels" (v1 to v4); Documentation/arch/arm64/elf_hwcaps.rst and cputype.h of
the kernel (flags and part numbers); Documentation/ABI/testing/sysfs-devices-system-cpu (``cpu_capacity``, ``online``);
the ELF header (gABI, ``e_machine`` at byte 18).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from pathlib import Path

from edge_runtime.base.hardware import files, sensors
from edge_runtime.base.hardware.profile import Cluster, EngineChoice, Evidence, Gauge, Profile

EVIDENCE = Evidence(
    tier="measured",
    detail=(
        "2026-11-28 on two virtual x86-64 cores (Intel Xeon, 2.3 GHz): 53,320 messages a second of CPU, a window for "
        "1.21 of a plain onnxruntime call (docs/performance.md has these and more, with the command)"
    ),
)
"""Of x86-64, the one processor that was at hand."""

ARM_EVIDENCE = Evidence(
    tier="emulated",
    detail="both engines and the demo's bundle on arm64 and armv7 under qemu (docs/devices.md); no speed was taken",
)

UNKNOWN_EVIDENCE = Evidence(tier="simulated", detail="detection over file trees; nothing was run on such a processor")

_MACHINES = {62: "x86_64", 183: "aarch64", 40: "armv7l", 3: "i686"}

# The psABI's levels, by the names in cpuinfo: "abm" is LZCNT, "pni" SSE3.
_LEVELS = (
    ("x86-64-v2", {"cx16", "lahf_lm", "popcnt", "pni", "sse4_1", "sse4_2", "ssse3"}),
    ("x86-64-v3", {"avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe", "xsave"}),
    ("x86-64-v4", {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}),
)
_X86_INT8 = {"avx512_vnni", "avx_vnni", "avx_vnni_int8", "amx_int8"}

# Features that the Arm architecture makes mandatory with a version, by the names in cpuinfo.
_ARM_VERSIONS = (
    ("armv8.1-a", {"atomics", "asimdrdm"}),
    ("armv8.2-a", {"dcpop"}),
    ("armv8.3-a", {"jscvt", "fcma", "lrcpc"}),
    ("armv8.4-a", {"flagm", "uscat", "asimddp", "dit"}),
    ("armv8.5-a", {"sb", "flagm2"}),
)

# Some chips have pairs of cores of slightly different grades (RK3588: 2256 and 2304 MHz): no clusters of their own.
_SAME_CLOCK = 0.95

FEATURES = (
    "sse4_1", "avx", "avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512_vnni", "avx_vnni", "avx_vnni_int8",
    "avx512_fp16", "amx_int8",
    "neon", "vfpv4", "asimd", "asimdhp", "asimddp", "i8mm", "bf16", "sve", "sve2", "sme",
)  # fmt: skip
"""Processor flags, as Linux names them, that decide which kernels an engine takes."""

# (implementer, part) of arch/arm64/include/asm/cputype.h and arch/arm/include/asm/cputype.h.
_PARTS = {
    (0x41, 0xB76): "ARM1176", (0x41, 0xC07): "Cortex-A7", (0x41, 0xC08): "Cortex-A8", (0x41, 0xC09): "Cortex-A9",
    (0x41, 0xC0E): "Cortex-A17", (0x41, 0xC0F): "Cortex-A15", (0x41, 0xD03): "Cortex-A53", (0x41, 0xD04): "Cortex-A35",
    (0x41, 0xD05): "Cortex-A55", (0x41, 0xD07): "Cortex-A57", (0x41, 0xD08): "Cortex-A72", (0x41, 0xD09): "Cortex-A73",
    (0x41, 0xD0A): "Cortex-A75", (0x41, 0xD0B): "Cortex-A76", (0x41, 0xD0C): "Neoverse-N1",
    (0x41, 0xD0D): "Cortex-A77", (0x41, 0xD40): "Neoverse-V1", (0x41, 0xD41): "Cortex-A78",
    (0x41, 0xD42): "Cortex-A78AE", (0x41, 0xD44): "Cortex-X1", (0x41, 0xD46): "Cortex-A510",
    (0x41, 0xD47): "Cortex-A710", (0x41, 0xD48): "Cortex-X2", (0x41, 0xD49): "Neoverse-N2",
    (0x41, 0xD4B): "Cortex-A78C", (0x41, 0xD4D): "Cortex-A715", (0x41, 0xD4E): "Cortex-X3",
    (0x41, 0xD4F): "Neoverse-V2", (0x41, 0xD80): "Cortex-A520", (0x41, 0xD81): "Cortex-A720",
    (0x41, 0xD82): "Cortex-X4", (0x4E, 0x003): "Denver 2", (0x4E, 0x004): "Carmel",
}  # fmt: skip

CPU_CHOICES = (
    EngineChoice(name="onnxruntime", engine="onnxruntime", install='pip install "edge-runtime[onnx]"'),
    EngineChoice(name="litert", engine="litert", install='pip install "edge-runtime[tflite]"'),
    EngineChoice(name="tflite-runtime", engine="tflite-runtime", install='pip install "edge-runtime[tflite-runtime]"'),
)
"""What runs on any processor. The first two read different files of a bundle, so none is before the other: ``tune``
measures. LiteRT uses XNNPACK unasked, with KleidiAI's kernels inside on Arm."""


def detect(root: Path = files.ROOT) -> Profile:
    """Describe the machine as a plain processor; always an answer, since something runs this.

    Args:
        root: folder of the machine's files.
    """
    info = _cpuinfo(root)
    flags = {flag for block in info for key in ("flags", "Features") for flag in block.get(key, "").split()}
    architecture = _architecture(root, info, flags)
    online = files.ranges(files.text(root, "/sys/devices/system/cpu/online"))
    if not online:
        online = tuple(range(sum("processor" in block for block in info))) or (0,)
    allowed = files.ranges(_status(root, "Cpus_allowed_list")) or online
    arm = architecture.startswith(("aarch64", "arm"))
    return Profile(
        family="cpu",
        model=_model(root, info),
        evidence=EVIDENCE if architecture == "x86_64" else ARM_EVIDENCE if arm else UNKNOWN_EVIDENCE,
        architecture=architecture,
        isa=_isa(architecture, flags, info),
        features=tuple(flag for flag in FEATURES if flag in flags),
        fp16=bool(flags & {"asimdhp", "avx512_fp16"}),
        int8=bool(flags & {"asimddp", "i8mm"} if arm else flags & _X86_INT8),
        clusters=_arm_clusters(root, online, info) if arm else _x86_clusters(root, online),
        allowed=tuple(cpu for cpu in online if cpu in allowed) or online,
        memory_mb=_memory_mb(root),
        choices=_choices(architecture),
        temperatures=_temperatures(root),
        throttling=(
            *sensors.cooling_flags(root, ("cpufreq-", "thermal-cpufreq", "Processor", "cpuidle-")),
            *sensors.throttle_counts(root),
        ),
        energy=sensors.energy_counters(root),
        batteries=sensors.batteries(root),
    )


def _choices(architecture: str) -> tuple[EngineChoice, ...]:
    """32-bit Arm has wheels of the retired package alone (and numpy from Debian)."""
    if architecture in {"armv7l", "armv6l"}:
        return tuple(choice for choice in CPU_CHOICES if choice.engine == "tflite-runtime")
    return CPU_CHOICES


def _cpuinfo(root: Path) -> list[dict[str, str]]:
    """``/proc/cpuinfo`` as one dictionary for each block of lines; Arm has a block for the board at the end."""
    blocks: list[dict[str, str]] = [{}]
    for line in (files.text(root, "/proc/cpuinfo") or "").splitlines():
        key, colon, value = line.partition(":")
        if colon:
            blocks[-1].setdefault(key.strip(), value.strip())
        elif not line.strip() and blocks[-1]:
            blocks.append({})
    return blocks


def _architecture(root: Path, info: Sequence[dict[str, str]], flags: Iterable[str]) -> str:
    """Return this program's architecture: a 64-bit kernel may carry a 32-bit system, an emulator another processor."""
    header = files.data(root, "/proc/self/exe", 20)
    if header is not None and len(header) == 20 and header[:4] == b"\x7fELF":
        machine = _MACHINES.get(int.from_bytes(header[18:20], "little"), "")
        if machine != "armv7l":
            return machine
        # ARMv6 boards (the first Raspberry Pi, Zero) run the same kind of files.
        return "armv6l" if _arm_version(info) == 6 else machine
    flags = set(flags)
    if "lm" in flags:
        return "x86_64"
    if "asimd" in flags:
        return "aarch64"
    version = _arm_version(info)
    return {6: "armv6l", 7: "armv7l", 8: "armv7l"}.get(version, "") if "half" in flags else ""


def _arm_version(info: Sequence[dict[str, str]]) -> int:
    # "7", "8", "AArch64" on early kernels; the ARM1176 says 7 and its name in cpuinfo ARMv6.
    for block in info:
        if "ARMv6" in block.get("model name", "") + block.get("Processor", ""):
            return 6
        version = block.get("CPU architecture", "")
        if version:
            return 8 if version == "AArch64" else int(version) if version.isdigit() and len(version) < 3 else 0
    return 0


def _isa(architecture: str, flags: set[str], info: Sequence[dict[str, str]]) -> str:
    if architecture == "x86_64":
        return _highest("x86-64-v1", _LEVELS, flags)
    if architecture == "aarch64":
        return _highest("armv8.0-a", _ARM_VERSIONS, flags) if "asimd" in flags else "armv8.0-a"
    return {"armv7l": "armv7-a", "armv6l": "armv6"}.get(architecture, "") if info else ""


def _highest(base: str, levels: Iterable[tuple[str, set[str]]], flags: set[str]) -> str:
    level = base
    for name, needed in levels:
        if not needed <= flags:
            break
        level = name
    return level


def _model(root: Path, info: Sequence[dict[str, str]]) -> str:
    board = files.text(root, "/proc/device-tree/model") or files.text(root, "/sys/firmware/devicetree/base/model")
    if board:
        return board
    names = ("model name", "Hardware", "Model", "cpu model", "Processor")
    return next((block[name] for name in names for block in info if block.get(name)), "unknown processor")


def _x86_clusters(root: Path, online: tuple[int, ...]) -> tuple[Cluster, ...]:
    """Return performance and efficient cores of hybrid processors, which the kernel lists by kind of counter unit."""
    kinds = [("performance core", "cpu_core"), ("efficient core", "cpu_atom"), ("low-power core", "cpu_lowpower")]
    found = []
    for name, unit in kinds:
        cpus = files.ranges(files.text(root, f"/sys/devices/{unit}/cpus"))
        if here := tuple(cpu for cpu in cpus if cpu in online):
            found.append(Cluster(cpus=here, core=name, max_mhz=_max_mhz(root, here[0])))
    listed = {cpu for cluster in found for cpu in cluster.cpus}
    if len(found) < 2 or listed != set(online):
        return (Cluster(cpus=online, max_mhz=max(_max_mhz(root, cpu) for cpu in online)),)
    return tuple(found)


def _arm_clusters(root: Path, online: tuple[int, ...], info: Sequence[dict[str, str]]) -> tuple[Cluster, ...]:
    """Cores of one kind: the same part, at the same capacity and highest clock or nearly so."""
    parts: dict[int, str] = {}
    for block in info:
        name = block.get("processor", "")
        if name.isdigit() and len(name) < 6:
            kind = _hex(block.get("CPU implementer", "")), _hex(block.get("CPU part", ""))
            parts[int(name)] = _PARTS.get(kind, "")
    groups: dict[tuple[int, int, str], list[int]] = {}
    for cpu in online:
        capacity = files.number(root, f"/sys/devices/system/cpu/cpu{cpu}/cpu_capacity") or 0
        groups.setdefault((capacity, _max_mhz(root, cpu), parts.get(cpu, "")), []).append(cpu)
    found: list[Cluster] = []
    for (capacity, mhz, core), cpus in sorted(groups.items(), key=lambda item: item[0], reverse=True):
        last = found[-1] if found else None
        if last is not None and last.core == core and mhz >= _SAME_CLOCK * last.max_mhz:
            found[-1] = dataclasses.replace(last, cpus=tuple(sorted((*last.cpus, *cpus))))
        else:
            found.append(Cluster(cpus=tuple(cpus), core=core, max_mhz=mhz, capacity=capacity))
    return tuple(found)


def _hex(text: str) -> int:
    try:
        return int(text, 16)
    except ValueError:
        return 0


def _max_mhz(root: Path, cpu: int) -> int:
    khz = files.number(root, f"/sys/devices/system/cpu/cpu{cpu}/cpufreq/cpuinfo_max_freq")
    return 0 if khz is None or khz < 0 else khz // 1000


def _memory_mb(root: Path) -> int:
    for line in (files.text(root, "/proc/meminfo") or "").splitlines():
        name, _, value = line.partition(":")
        amount = value.split()[:1]
        if name == "MemTotal" and amount and amount[0].isdigit():
            return int(amount[0]) // 1024
    return 0


def _status(root: Path, key: str) -> str:
    for line in (files.text(root, "/proc/self/status") or "").splitlines():
        name, _, value = line.partition(":")
        if name == key:
            return value.strip()
    return ""


def _temperatures(root: Path) -> tuple[Gauge, ...]:
    """Thermal zones, and the sensors inside of Intel's and AMD's processors, which most servers have no zone for."""
    return (
        *sensors.thermal_zones(root),
        *sensors.hwmon_temperatures(root, {"coretemp", "k10temp", "zenpower"}),
    )
