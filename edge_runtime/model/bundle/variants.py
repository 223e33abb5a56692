"""Variants on this machine: reasons against one, its best installed engine, and its layout of windows.

Data for `edge_runtime.model.serving.choice`, which decides.
"""

from __future__ import annotations

import platform

import numpy as np

from edge_runtime.errors import IncompatibleError
from edge_runtime.manifest import Variant
from edge_runtime.model import engines
from edge_runtime.model.bundle.bundle import Floats

_MACHINES = {"amd64": "x86_64", "x64": "x86_64", "arm64": "aarch64", "armv8l": "armv7l"}


def refusals(variant: Variant, machine: str | None = None) -> list[str]:
    """Explain why a variant cannot run here, best reason first; empty if it can.

    Args:
        variant: a variant of the manifest.
        machine: architecture as `platform.machine` names it; None asks this one.
    """
    here = _machine(machine or platform.machine())
    reasons = []
    if variant.targets and here not in map(_machine, variant.targets):
        reasons.append(f"it is for {', '.join(variant.targets)} and this machine is {here}")
    if not engines.available(variant.format):
        wanted = engines.engines_for(variant.format)
        reasons.append(f"no engine for {variant.format} is installed, run: {wanted[0].install}")
    return reasons


def _machine(name: str) -> str:
    return _MACHINES.get(name.lower(), name.lower())


def engine_for(variant: Variant) -> str:
    """Find the best installed engine for a variant.

    Raises:
        IncompatibleError: none is installed; the message has the line that installs one.
    """
    installed = engines.available(variant.format)
    if not installed:
        wanted = engines.engines_for(variant.format)
        raise IncompatibleError(
            f"no engine for {variant.format} is installed, so {variant.name} cannot run; run: {wanted[0].install}",
        )
    return installed[0].name


def arrange(windows: Floats, variant: Variant) -> Floats:
    """Windows (n, channels, samples) in the layout of a variant."""
    return windows if variant.layout == "NCW" else np.ascontiguousarray(windows.transpose(0, 2, 1))
