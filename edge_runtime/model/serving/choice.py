"""Choice of variant, engine and accelerator on this machine, for ``run``, ``replay``, ``serve``, ``tune`` and updates.

1. A variant that is for other machines, or that no installed engine reads, runs only where it is named
   (`edge_runtime.model.bundle.variants.refusals`).
2. The variant that the configuration names is loaded, until it has failed.
3. Else the one that was measured here to be the fastest on the processor (`edge_runtime.model.tuning.results`).
4. Else the first in the manifest that runs here.
5. Once something has failed, only what the configuration lets stand in for it (`ModelConfig.fallbacks`).
6. Its engine and threads are those that it was measured with, else the first engine installed that reads its format.
7. Before the processor, an accelerator answers: those that the configuration names; where it names none, the one that
   has won the measurement by its price, with the variant that it won with, and that the profile of this machine offers.
8. Behind the first variant stand those that the configuration names, in its order; where it names none, all that run
   here: those that were measured, in that order; then those that cost no more than the first, in the manifest's order;
   then the rest, by cost.

`edge-runtime tune` saves what it measured in a file that any user who may write beside the bundle can change, and the
options of an accelerator can name libraries to load. So a name is all that is taken from that file: engine, providers
and options are what the machine's own profile has under it, and a name that the profile lacks is refused.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from edge_runtime.errors import ConfigError, EdgeError, IncompatibleError
from edge_runtime.model import engines
from edge_runtime.model.bundle.variants import refusals
from edge_runtime.model.tuning.compile_cache import folder_for, kept

if TYPE_CHECKING:
    from edge_runtime.base.hardware import EngineChoice, Profile
    from edge_runtime.manifest import Manifest, Variant
    from edge_runtime.model.bundle.bundle import Bundle
    from edge_runtime.model.serving.config import ModelConfig
    from edge_runtime.model.tuning.results import AcceleratorGain, Figure, Setting, Tuning

log = logging.getLogger(__name__)


class Way(NamedTuple):
    """One way to an answer."""

    variant: Variant
    accelerators: Mapping[str, Mapping[str, Any]]
    """Execution providers or delegates with their options; empty runs on the processor."""
    setting: Setting | None
    """Engine, threads and windows in a call that were measured; None where nothing was."""
    cost: float
    """Cost of a window on the processor, in one unit for all ways of a bundle."""


def variant_to_load(bundle: Bundle, config: ModelConfig, tuned: Sequence[str], failed: Mapping[str, str]) -> Variant:
    """Choose the variant to load next, by rules 2 to 5.

    Args:
        bundle: an open bundle.
        config: the variant by name, and what may stand in for it.
        tuned: names of the variants that were measured here, the fastest first.
        failed: reasons by the name of those that failed.

    Raises:
        IncompatibleError: nothing is left that can run.
    """
    if config.variant != "auto" and config.variant not in failed:  # rule 2
        return choose_variant(bundle, wanted=config.variant)
    barred = set(failed)
    if failed and config.fallbacks:  # rule 5
        barred |= {variant.name for variant in bundle.manifest.variants} - set(config.fallbacks)
    measured = next((name for name in tuned if name not in barred), None)  # rule 3
    return bundle.variant(measured) if measured else choose_variant(bundle, exclude=tuple(barred))  # rule 4


def choose_variant(
    bundle: Bundle,
    *,
    wanted: str | None = None,
    exclude: Sequence[str] = (),
    machine: str | None = None,
) -> Variant:
    """Pick the variant to run on this machine.

    It is the first in the manifest, the export's order of preference, whose targets include this machine and whose
    engine is installed.

    Args:
        bundle: an open bundle.
        wanted: the user's explicit choice; taken even against its targets, refused only if no engine reads it.
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
    return candidates[0]


def ways(bundle: Bundle, first: Variant, config: ModelConfig, tuning: Tuning | None = None) -> list[Way]:
    """List the ways to an answer on this machine, best first, by rules 6 to 8.

    Args:
        bundle: an open bundle.
        first: the variant to answer as long as it can.
        config: accelerators, and what may stand in.
        tuning: what was measured of the bundle on this machine.

    Raises:
        ConfigError: the bundle has no variant of a name that `config` gives.
    """
    settings = tuning.settings(config.threads) if tuning else {}
    cost = _costs(bundle.manifest, tuning, config.threads)
    found: list[Way] = []
    if (won := automatic(bundle, tuning, config)) is not None:  # rule 7
        found.append(Way(won.variant, won.providers, won.setting, cost[won.variant.name]))
    elif config.accelerators:
        found.append(Way(first, config.accelerators, None, cost[first.name]))
    others = _stand_ins(bundle, first, config.fallbacks, list(settings), cost)
    return found + [Way(one, {}, settings.get(one.name), cost[one.name]) for one in (first, *others)]


def _stand_ins(
    bundle: Bundle, first: Variant, fallbacks: Sequence[str] | None, tuned: Sequence[str], cost: Mapping[str, float]
) -> list[Variant]:
    """List the variants that may stand in for the first one, best first (rule 8)."""
    variants = {variant.name: variant for variant in bundle.manifest.variants}
    if fallbacks:
        for name in fallbacks:
            if name not in variants:
                has = ", ".join(variants)
                raise ConfigError(f"fallbacks: {bundle.path.name} has no variant '{name}'; it has {has}")
        return [variants[name] for name in dict.fromkeys(fallbacks) if name != first.name]
    places = {name: place for place, name in enumerate(tuned)}
    others = [variant for variant in variants.values() if variant.name != first.name and not refusals(variant)]
    others.sort(key=lambda one: (places.get(one.name, len(places)), max(cost[one.name], cost[first.name])))
    return others


def _costs(manifest: Manifest, tuning: Tuning | None, threads: int) -> dict[str, float]:
    """Cost of a window on the processor, by variant; an accelerator's draw is not measured, so it counts the same.

    Processor time where this machine has measured it, which is what warms a board, and infinite for what it could not
    measure. Else the latency that the manifest states for every variant, else the size of the file.
    """
    if tuning is not None:
        measured = {one.variant: one.cpu_us for one in tuning.ranked(threads)}
        return {variant.name: measured.get(variant.name, math.inf) for variant in manifest.variants}
    if all("latency_us" in variant.cost for variant in manifest.variants):
        return {variant.name: variant.cost["latency_us"] for variant in manifest.variants}
    return {variant.name: float(variant.size) for variant in manifest.variants}


class Acceleration(NamedTuple):
    """A variant on an accelerator, and how."""

    variant: Variant
    setting: Setting
    providers: Mapping[str, Mapping[str, str]]
    """Execution providers or delegates with their options, in order of preference."""


def automatic(
    bundle: Bundle, tuning: Tuning | None, config: ModelConfig, profile: Profile | None = None
) -> Acceleration | None:
    """Choose the accelerator that answers first, where measuring has shown that it pays; None leaves it to the CPU.

    Args:
        bundle: an open bundle.
        tuning: what was measured of it on this machine.
        config: leaves the choice to us where its `accelerators` is None.
        profile: this machine's profile; None asks for it where something is worth it.
    """
    if (won := _winner(bundle, tuning, config, profile)) is None:
        return None
    figure, choice = won
    folder = config.compiled or folder_for(bundle.path)
    cache = kept(folder, bundle, figure.variant, choice) if choice.compiles else None
    return Acceleration(bundle.variant(figure.variant), figure.setting(config.threads), choice.options(cache))


def _winner(
    bundle: Bundle, tuning: Tuning | None, config: ModelConfig, profile: Profile | None = None
) -> tuple[Figure, EngineChoice] | None:
    if tuning is None or config.accelerators is not None:
        return None
    variant = "" if config.variant == "auto" else config.variant
    gains = tuning.gains(config.threads, variant=variant, isolate=config.isolate)
    for figure in [gain.figure for gain in gains if gain.worth]:
        if profile is None:
            from edge_runtime.base.hardware import this_device  # noqa: PLC0415 - not without an accelerator

            profile = this_device()
        choice = offered(profile, bundle.variant(figure.variant), figure)
        if choice is not None:
            return figure, choice
        log.warning(
            "%s is not used: %s offers no accelerator of this name for %s; measure again by: edge-runtime tune %s",
            *(figure.accelerator, profile.model, figure.variant, bundle.path),
        )
    return None


def offered(profile: Profile, variant: Variant, figure: Figure) -> EngineChoice | None:
    """Find the profile's choice under the name of an accelerator that was measured."""
    for choice in profile.choices:
        if choice.accelerated and choice.name == figure.accelerator and choice.engine == figure.engine:
            return None if choice.compiled or not choice.takes(variant.precision, variant.scheme) else choice
    return None


def expected(config: ModelConfig) -> dict[str, dict[str, str]]:
    """List the accelerators that an application will use, named by its configuration or by measurements here.

    Empty where there are none, or where the bundle cannot be looked into now.
    """
    if config.accelerators is not None or config.failover == "off":
        return config.accelerators or {}
    from edge_runtime.model.bundle.bundle import open_bundle  # noqa: PLC0415 - numpy
    from edge_runtime.model.bundle.signature import load_keys  # noqa: PLC0415
    from edge_runtime.model.tuning.results import file_for, load_tuning  # noqa: PLC0415

    try:
        trusted = None if config.unsigned == "allow" else load_keys(config.trusted_keys)
        with open_bundle(config.bundle, trusted=trusted) as bundle:
            found = _winner(bundle, load_tuning(bundle, config.tuned or file_for(config.bundle)), config)
    except (EdgeError, OSError) as error:
        log.debug("%s cannot be looked into: %s", config.bundle, error)
        return {}
    return {} if found is None else found[1].options(None)


def measured_best(tuning: Tuning) -> tuple[Figure, AcceleratorGain | None]:
    """Find what answers first where the configuration names nothing (rules 3 and 7); the best of the accelerators."""
    best = next(iter(tuning.gains()), None)
    return best.figure if best and best.worth else tuning.choose(), best
