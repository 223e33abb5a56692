"""Description of a machine, as far as the time of a model depends on it."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from dataclasses import dataclass
from pathlib import Path

from edge_runtime._version import __version__

FLAGS = (
    "ssse3", "avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512_vnni", "avx_vnni", "avx_vnni_int8", "amx_int8",
    "neon", "asimd", "asimdhp", "asimddp", "i8mm", "sve", "sve2", "bf16",
)  # fmt: skip
"""Processor flags, as Linux names them, that decide which kernels an engine takes for floats and for int8."""

_PACKAGES = (
    "numpy", "onnxruntime", "onnxruntime-gpu", "onnxruntime-openvino", "onnxruntime-qnn", "onnxruntime-vitisai",
    "ai-edge-litert", "tflite-runtime",
)  # fmt: skip
"""All that computes; onnxruntime's builds for accelerators are distributions of their own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Machine on which something was measured. Holds no host name, user or path: it may be published.

    Attributes:
        architecture: as `platform.machine` names it.
        processor: the board's own name where it has one (Raspberry Pi, Jetson), else the processor's.
        cores: that this process may use.
        memory_mb: installed.
        flags: those of `FLAGS` that the processor has.
        system: kernel and its release.
        versions: of Python, this package, numpy and the engines installed.
    """

    architecture: str
    processor: str
    cores: int
    memory_mb: int
    flags: tuple[str, ...]
    system: str
    versions: dict[str, str]

    @property
    def label(self) -> str:
        """One line that names it, for example ``Raspberry Pi 4 Model B Rev 1.4 (aarch64, 4 cores)``."""
        cores = "1 core" if self.cores == 1 else f"{self.cores} cores"
        return f"{self.processor} ({self.architecture}, {cores})"


def this_machine(root: Path = Path("/proc")) -> Machine:
    """Describe the machine this runs on.

    Args:
        root: folder in which the kernel tells about itself.
    """
    lines = _lines(root / "cpuinfo")
    versions = {"python": platform.python_version(), "edge-runtime": __version__}
    for package in _PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    known = {flag for key in ("flags", "Features") for flag in _value(lines, key).split()}
    board = next(iter(_lines(root / "device-tree" / "model")), "").rstrip("\0").strip()
    return Machine(
        architecture=platform.machine(),
        processor=board or _value(lines, "model name") or platform.processor() or "unknown processor",
        cores=available_cores(),
        memory_mb=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20,
        flags=tuple(flag for flag in FLAGS if flag in known),
        system=f"{platform.system()} {platform.release()}",
        versions=versions,
    )


def available_cores() -> int:
    """Cores that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text("utf-8", "replace").splitlines()
    except OSError:
        return []


def _value(lines: list[str], key: str) -> str:
    for line in lines:
        name, _, value = line.partition(":")
        if name.strip() == key:
            return value.strip()
    return ""
