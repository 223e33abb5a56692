"""Backends to be measured: the variants of a bundle in the engines of this machine, and on its accelerators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from edge_runtime.model import engines
from edge_runtime.model.bundle.variants import refusals
from edge_runtime.model.tuning.compile_cache import discard, kept
from edge_runtime.model.tuning.engine_choices import choices_for

if TYPE_CHECKING:
    from edge_runtime.base.hardware import EngineChoice, Profile
    from edge_runtime.manifest import Variant
    from edge_runtime.model.bundle.bundle import Bundle


class BackendSpec(NamedTuple):
    """Backend that may run here: a variant in an engine, perhaps on an accelerator."""

    variant: Variant
    engine: str
    accelerator: str = ""
    providers: Mapping[str, Mapping[str, str]] = MappingProxyType({})
    stated: Mapping[str, Mapping[str, str]] = MappingProxyType({})
    """The same without the folder for what is compiled."""
    cache: Path | None = None
    """That folder, where it stays."""

    @property
    def name(self) -> str:
        """Return the variant and where it runs, for people."""
        return f"{self.variant.name} on {self.accelerator or self.engine}"


def on_processor(bundle: Bundle, refused: dict[str, str]) -> list[BackendSpec]:
    """List each variant in each engine that is installed; put the variants that cannot run here into `refused`."""
    found: list[BackendSpec] = []
    for variant in bundle.manifest.variants:
        if reasons := refusals(variant):
            refused[variant.name] = "; ".join(reasons)
        else:
            found += [BackendSpec(variant, kind.name) for kind in engines.available(variant.format)]
    return found


def on_accelerators(
    bundle: Bundle, profile: Profile, compiled: Path | None, scratch: Path, refused: dict[str, str]
) -> list[BackendSpec]:
    """List the variants on the accelerators that would take them; put the others into `refused` with what is missing.

    Args:
        bundle: an open bundle.
        profile: this machine's profile.
        compiled: folder in which what an accelerator compiles is kept for later runs; None keeps nothing.
        scratch: folder for what is not kept: it is there from the proof to the end of the measurement.
        refused: reasons by the name of the backend.
    """
    found: list[BackendSpec] = []
    pairs = [
        (variant, choice)
        for variant in bundle.manifest.variants
        if not refusals(variant)
        for choice in choices_for(profile, variant.format, variant.precision, variant.scheme)
        if choice.accelerated
    ]
    for variant, choice in pairs:
        backend = BackendSpec(variant, choice.engine, choice.name, stated=choice.options(None))
        if reason := _missing(choice):
            refused[backend.name] = reason
            continue
        cache = kept(compiled, bundle, variant.name, choice) if compiled and choice.compiles else None
        folder = cache or scratch / str(len(found))  # one for each: libraries cannot tell variants apart
        folder.mkdir(exist_ok=True)
        found.append(backend._replace(providers=choice.options(folder), cache=cache))
    return found


def _missing(choice: EngineChoice) -> str:
    """Name what keeps a choice from being measured; empty if nothing."""
    if choice.compiled:
        return f"it runs what has been through {choice.compiled} alone"
    if not engines.find(choice.engine).importable():
        return f"{choice.engine} is not installed; {choice.install}"
    return ""


def discard_refused(backends: Sequence[BackendSpec], refused: Mapping[str, str]) -> None:
    """Delete what was compiled for backends that were refused."""
    for backend in backends:
        if backend.cache is not None and backend.name in refused:
            discard(backend.cache)
            with suppress(OSError):  # others are kept there
                backend.cache.parent.rmdir()
