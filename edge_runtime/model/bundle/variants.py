"""Choice of a variant: which of a bundle's files this machine can run, and on which engine."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence

import numpy as np

from edge_runtime.errors import (
    IncompatibleError,
)
from edge_runtime.manifest import Variant
from edge_runtime.model import engines
from edge_runtime.model.bundle.bundle import Bundle, Floats

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


def choose_variant(
    bundle: Bundle,
    *,
    wanted: str | None = None,
    measured: Mapping[str, float] | None = None,
    exclude: Sequence[str] = (),
    machine: str | None = None,
) -> Variant:
    """Pick the variant to run on this machine.

    Among those whose targets include this machine and whose engine is installed: the fastest measured here, if any was
    measured; else the one that the manifest lists first, which is the export's order of preference.

    Args:
        bundle: an open bundle.
        wanted: the user's explicit choice; taken even against its targets, refused only if no engine reads it.
        measured: microseconds per window measured on this machine, by variant name.
        exclude: names not to take, for example those that failed.
        machine: architecture; None asks this one.

    Raises:
        IncompatibleError: none can run; says why for each, and what to install.
    """
    if wanted is not None:
        variant = bundle.variant(wanted)
        if not engines.available(variant.format):
            raise IncompatibleError(f"variant {wanted} cannot run: {refusals(variant, machine)[-1]}")
        return variant
    candidates = []
    why = []
    for variant in bundle.manifest.variants:
        reasons = ["it failed before"] if variant.name in exclude else refusals(variant, machine)
        if reasons:
            why.append(f"{variant.name}: {'; '.join(reasons)}")
        else:
            candidates.append(variant)
    if not candidates:
        raise IncompatibleError(f"no variant of {bundle.path.name} runs here ({' | '.join(why)})")
    timed = [variant for variant in candidates if variant.name in (measured or {})]
    if measured and timed:
        return min(timed, key=lambda variant: measured[variant.name])
    return candidates[0]


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
