"""``edge-runtime doctor``: what this machine is, what it can run, and what is missing.

1. What is missing stands in its place, with what installs it.
2. A section that has nothing to say is left out; that no engine is there is said at the end.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edge_runtime._version import __version__
from edge_runtime.base.hardware import EngineChoice, Findings, Profile, find_devices
from edge_runtime.base.hardware.files import ROOT
from edge_runtime.tools.cli.options import option
from edge_runtime.tools.cli.program import CommandAnswer, CommandOptions, command

if TYPE_CHECKING:
    from edge_runtime.model.engines import EngineKind

_OPTIONAL = (
    ("ormsgpack", "MessagePack payloads", 'pip install "edge-runtime[codecs]"'),
    ("cbor2", "CBOR and SenML-CBOR payloads", 'pip install "edge-runtime[codecs]"'),
    ("cryptography", "signed bundles", 'pip install "edge-runtime[sign]"'),
    ("pyarrow", "Parquet recordings", 'pip install "edge-runtime[parquet]"'),
)

# onnxruntime's builds for accelerators install the same module.
_BUILDS = ("gpu", "openvino", "vitisai", "qnn")


@dataclass(frozen=True, kw_only=True)
class DoctorOptions(CommandOptions):
    root: Path = option(None, ROOT)
    """For tests, and for looking at the recorded files of another machine."""


@command(
    "doctor",
    "what this machine is and can run, and what is missing",
    "Tell what this machine is and can run, and the line that installs what is missing.",
    "doctor --json",
)
def run(options: DoctorOptions) -> CommandAnswer:
    """Look. Exit code 1 when no engine is installed: nothing could run."""
    report = examine(options.root)
    return CommandAnswer(report, _text(report), int(not any(engine["version"] for engine in report["engines"])))


def examine(root: Path = ROOT) -> dict[str, Any]:
    """Collect the findings as plain data.

    Args:
        root: folder of the machine's files.
    """
    from edge_runtime.model import engines  # noqa: PLC0415 - numpy, only when needed

    found = find_devices(root)
    profile = found.profile
    return {
        "edge_runtime": __version__,
        "python": platform.python_version(),
        "machine": profile.architecture or platform.machine(),
        "system": f"{platform.system()} {platform.release()}",
        "board": profile.model,
        "cpus": len(profile.allowed) if profile.allowed else profile.cores,
        "memory_mb": profile.memory_mb,
        "device": {
            "family": profile.family,
            "evidence": {"tier": profile.evidence.tier, "detail": profile.evidence.detail},
            "isa": profile.isa,
            "features": list(profile.features),
            "fp16": profile.fp16,
            "int8": profile.int8,
            "clusters": [
                {"core": cluster.core, "cpus": list(cluster.cpus), "max_mhz": cluster.max_mhz}
                for cluster in profile.clusters
            ],
            "details": dict(profile.details),
        },
        "accelerators": [
            {
                "family": one.family,
                "model": one.model,
                "evidence": {"tier": one.evidence.tier, "detail": one.evidence.detail},
                "access": _access(one, root),
            }
            for one in found.accelerators
        ],
        "engines": [
            {
                "name": kind.name,
                "formats": list(kind.formats),
                "version": _installed(kind),
                "install": kind.install,
            }
            for kind in engines.ENGINES
            if kind.package
        ],
        "choices": [_choice(choice, root) for choice in profile.choices],
        "sensors": list(_sensors(profile, root)),
        "notes": list(profile.notes),
        "optional": [
            {"name": name, "for": purpose, "version": _version(name), "install": install}
            for name, purpose, install in _OPTIONAL
        ],
        "plugins": _plugins(found),
    }


def _choice(choice: EngineChoice, root: Path) -> dict[str, Any]:
    """Describe one way to run a model, and what it lacks."""
    from edge_runtime.model import engines  # noqa: PLC0415
    from edge_runtime.model.tuning.engine_choices import missing  # noqa: PLC0415

    kind = engines.find(choice.engine)
    lacks: list[dict[str, str]] = []
    if kind.package and not _installed(kind):
        lacks.append({"what": f"{kind.name} is not installed", "install": choice.install or kind.install})
    elif kind.name == "tflite-runtime" and _numpy() >= 2:
        what = f"it works with numpy 1 only and this is numpy {_version('numpy')}"
        lacks.append({"what": what, "install": "pip install 'numpy<2'"})
    elif lacking := _providers(choice):
        lacks.append({"what": lacking, "install": choice.install})
    if gone := missing(choice, root):
        lacks.append({"what": gone, "install": choice.driver})
    return {
        "name": choice.name,
        "engine": choice.engine,
        "formats": list(kind.formats),
        "providers": {name: dict(options) for name, options in choice.providers.items()},
        "precisions": list(choice.precisions),
        "compiled": choice.compiled,
        "ready": not lacks,
        "missing": lacks,
    }


def _providers(choice: EngineChoice) -> str:
    """Name the execution providers that the installed onnxruntime lacks; empty if none."""
    if choice.engine != "onnxruntime" or not choice.accelerated:
        return ""
    lacking = []
    for name, options in choice.providers.items():
        package = options.get("library", "").removeprefix("package:")
        if "library" in options:
            if importlib.util.find_spec(package) is None:
                return f"the package {package} is not installed"
        elif name not in _available():
            lacking.append(name)
    return f"this onnxruntime has no {', '.join(lacking)}" if lacking else ""


def _available() -> list[str]:
    from edge_runtime.model.engines import onnx  # noqa: PLC0415 - 0.2 s, and only where there is an accelerator to ask about

    return onnx.available_providers()


def _sensors(profile: Profile, root: Path) -> Iterator[dict[str, Any]]:
    """Read the machine's sensors once."""
    for gauge in profile.temperatures:
        yield {"kind": "temperature", "name": gauge.name, "value": gauge.read(root), "unit": gauge.unit,
               "limit": gauge.limit}  # fmt: skip
    for kind, gauges in (("power", profile.power), ("power, part", profile.power_parts)):
        for gauge in gauges:
            yield {"kind": kind, "name": gauge.name, "value": gauge.read(root), "unit": gauge.unit}
    for flag in profile.throttling:
        yield {"kind": "throttling", "name": flag.name, "value": flag.read(root), "counts": flag.kind == "counter"}
    for counter in profile.energy:
        yield {"kind": "energy", "name": counter.name, "value": counter.read(root), "unit": "J", "scale": counter.scale}
    for battery in profile.batteries:
        yield {"kind": "battery", "name": battery.name, "value": battery.charge.read(root), "unit": "percent",
               "discharging": battery.discharging(root)}  # fmt: skip


def _access(profile: Profile, root: Path) -> str:
    """Explain what keeps this user from an accelerator's device nodes; empty if nothing does."""
    for node in filter(None, profile.details.get("nodes", "").split(", ")):
        path = root / node.lstrip("/")
        if path.exists() and not os.access(path, os.R_OK | os.W_OK):
            try:
                group = path.group()
            except (KeyError, OSError):
                group = "its group"
            return f"this user may not open {node}; run: sudo usermod -aG {group} $USER, and log in again"
    return ""


def _plugins(found: Findings) -> list[dict[str, Any]]:
    return [
        {
            "name": plugin.name,
            "origin": plugin.origin,
            "reference": plugin.reference,
            "error": plugin.error,
            "found": plugin.profile is not None,
        }
        for plugin in found.plugins
    ]


def _installed(kind: EngineKind) -> str | None:
    """Version of an engine's library, which vendors ship under names of their own; None if it is not installed."""
    if not kind.importable():
        return None
    names = (kind.package, *(f"{kind.package}-{build}" for build in _BUILDS))
    return next(filter(None, map(_version, names)), "of unknown version")


def _version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def _numpy() -> int:
    major = (_version("numpy") or "0").partition(".")[0]
    return int(major) if major.isdigit() else 0


# -- for people --------------------------------------------------------------------------------------------------------


def _text(report: dict[str, Any]) -> list[str]:
    device = report["device"]
    lines = [
        f"edge-runtime {report['edge_runtime']}, Python {report['python']} in {sys.prefix}",
        f"{report['board']}: {_processor(report)}, {report['memory_mb']} MB, {report['system']}",
    ]
    if len(device["clusters"]) > 1:  # rule 2
        lines += [f"  {len(one['cpus'])} x {_core(one)}" for one in device["clusters"]]
    lines += [f"  {key}: {value}" for key, value in device["details"].items()]
    lines.append(f"  {_backing(device)}")
    for one in report["accelerators"]:
        lines += ["", f"{one['model']}", f"  {_backing(one)}"]
        if one["access"]:
            lines.append(f"  {one['access']}")
    lines += ["", "engines"]
    for engine in report["engines"]:
        state = engine["version"] or f"not installed: {engine['install']}"  # rule 1
        lines.append(f"  {engine['name']:<22} {', '.join(engine['formats']):<8} {state}")
    lines += ["", "ways to run a model, best first; edge-runtime tune measures which is fastest"]
    for choice in report["choices"]:
        head = f"  {choice['name']:<22} {', '.join(choice['formats']):<8} "
        lines.append(f"{head}{'ready' if choice['ready'] else 'not ready'}{_takes(choice)}")
        lines += [f"    {lack['what']}; {_imperative(lack['install'])}" for lack in choice["missing"]]  # rule 1
    if report["sensors"]:  # rule 2
        lines += ["", "sensors", *(f"  {_sensor(sensor)}" for sensor in report["sensors"])]
    lines += ["", "optional"]
    for part in report["optional"]:
        state = part["version"] or f"not installed: {part['install']}"  # rule 1
        lines.append(f"  {part['name']:<22} {part['for']:<32} {state}")
    broken = [plugin for plugin in report["plugins"] if plugin["error"]]
    if broken:  # rule 2
        lines += ["", "device files that cannot be asked; the others are not touched by it"]
        lines += [f"  {one['name']} of {one['origin']} ({one['reference']}): {one['error']}" for one in broken]
    if report["notes"]:  # rule 2
        lines += ["", "notes", *(f"  {note}" for note in report["notes"])]
    if not any(engine["version"] for engine in report["engines"]):  # rule 2
        lines += ["", "no engine is installed, so no model can run; install one of the above"]
    return lines


def _backing(device: dict[str, Any]) -> str:
    """Say what the support of a family rests on; `doctor` itself runs and measures nothing."""
    evidence = device["evidence"]
    return f"{device['family']}; evidence from another machine, {evidence['tier']}: {evidence['detail']}"


def _processor(report: dict[str, Any]) -> str:
    cores = "1 core" if report["cpus"] == 1 else f"{report['cpus']} cores"
    return f"{' '.join(filter(None, (report['machine'], report['device']['isa'])))}, {cores}"


def _takes(choice: dict[str, Any]) -> str:
    """Name the variants of a bundle that it takes, where that is not any."""
    if len(choice["precisions"]) == 4:
        return ""
    made = f" made by {choice['compiled']}" if choice["compiled"] else ""
    return f" for {', '.join(choice['precisions'])}{made}"


def _imperative(install: str) -> str:
    return f"run: {install}" if install.startswith(("pip ", "sudo ")) else f"to install: {install}"


def _core(cluster: dict[str, Any]) -> str:
    cpus = ", ".join(map(str, cluster["cpus"]))
    clock = f", {cluster['max_mhz']} MHz" if cluster["max_mhz"] else ""
    return f"{cluster['core'] or 'core'}{clock} (processors {cpus})"


def _sensor(sensor: dict[str, Any]) -> str:
    value, kind = sensor["value"], sensor["kind"]
    if value is None:
        shown = "cannot be read" + (" by this user" if kind == "energy" else "")
    elif kind == "throttling":
        shown = f"{value} times since it was started" if sensor["counts"] else ("YES" if value else "no")
    elif kind == "energy":
        shown = f"{value * sensor['scale']:.0f} J"
    else:
        shown = f"{value:.3g} {sensor['unit']}"
    if sensor.get("limit") is not None:
        shown += f", limit {sensor['limit']:g}"
    if sensor.get("discharging"):
        shown += ", discharging"
    return f"{kind:<14} {sensor['name']:<32} {shown}"
