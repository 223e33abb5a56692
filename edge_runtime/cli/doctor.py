"""``edge-runtime doctor``: what this machine is, what it can run, and what is missing."""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import platform
import sys
from pathlib import Path
from typing import Any

import orjson

from edge_runtime._version import __version__

_OPTIONAL = (
    ("ormsgpack", "MessagePack payloads", 'pip install "edge-runtime[codecs]"'),
    ("cbor2", "CBOR and SenML-CBOR payloads", 'pip install "edge-runtime[codecs]"'),
    ("cryptography", "signed bundles", 'pip install "edge-runtime[sign]"'),
    ("pyarrow", "Parquet recordings", 'pip install "edge-runtime[parquet]"'),
    ("grpcio", "cloud endpoints over gRPC", 'pip install "edge-runtime[grpc]"'),
)


def add(commands: Any) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "doctor",
        help="what this machine can run, and what is missing",
        description="Tell what this machine is and can run, and the line that installs what is missing.",
        epilog="example: edge-runtime doctor --json",
    )
    parser.add_argument("--json", action="store_true", help="one JSON object, for programs")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Look, and print. Exit code 1 when no engine is installed: nothing could run."""
    report = examine()
    if options.json:
        print(orjson.dumps(report, option=orjson.OPT_INDENT_2).decode())
    else:
        print("\n".join(_text(report)))
    return 0 if any(engine["version"] for engine in report["engines"]) else 1


def examine() -> dict[str, Any]:
    """The findings as plain data."""
    from edge_runtime import engines  # noqa: PLC0415 - numpy, only when needed

    return {
        "edge_runtime": __version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "system": f"{platform.system()} {platform.release()}",
        "board": _board(),
        "cpus": len(os.sched_getaffinity(0)),
        "memory_mb": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20,
        "engines": [
            {
                "name": kind.name,
                "formats": list(kind.formats),
                "version": _version(kind.package),
                "install": kind.install,
            }
            for kind in engines.ENGINES
            if kind.package
        ],
        "optional": [
            {"name": name, "for": purpose, "version": _version(name), "install": install}
            for name, purpose, install in _OPTIONAL
        ],
    }


def _board() -> str:
    """The board's own name from the device tree (Raspberry Pi, Jetson), or the CPU's from cpuinfo."""
    try:
        return Path("/proc/device-tree/model").read_text("utf-8").rstrip("\0")
    except (OSError, UnicodeDecodeError):
        pass
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8", "replace").splitlines()
    except OSError:
        return "unknown"
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "unknown")


def _version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def _text(report: dict[str, Any]) -> list[str]:
    lines = [
        f"edge-runtime {report['edge_runtime']}, Python {report['python']} in {sys.prefix}",
        f"{report['board']}: {report['machine']}, {report['cpus']} cores, {report['memory_mb']} MB, {report['system']}",
        "",
        "engines",
    ]
    for engine in report["engines"]:
        state = engine["version"] or f"not installed: {engine['install']}"
        lines.append(f"  {engine['name']:<16} {', '.join(engine['formats']):<8} {state}")
    lines += ["", "optional"]
    for part in report["optional"]:
        state = part["version"] or f"not installed: {part['install']}"
        lines.append(f"  {part['name']:<16} {part['for']:<32} {state}")
    if not any(engine["version"] for engine in report["engines"]):
        lines += ["", "no engine is installed, so no model can run; install one of the above"]
    return lines
