"""Choice of the accelerator where the configuration names none: the one that has won on this very machine.

`edge-runtime tune` saves what it measured in a file that any user who may write beside the bundle can change, and the
options of an accelerator can name libraries to load. So a name is all that is taken from that file: engine, providers
and options are what the machine's own profile has under it, and a name that the profile lacks is refused.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from edge_runtime.errors import EdgeError
from edge_runtime.model.tuning.compile_cache import folder_for, kept

if TYPE_CHECKING:
    from edge_runtime.base.hardware import EngineChoice, Profile
    from edge_runtime.manifest import Variant
    from edge_runtime.model.bundle.bundle import Bundle
    from edge_runtime.model.serving.config import ModelConfig
    from edge_runtime.model.tuning.results import Figure, Setting, Tuning

log = logging.getLogger(__name__)


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
