"""The accelerator that answers where the configuration names none: one that has won on this very machine.

`edge-runtime tune` writes down what it measured in a file that whoever may write beside the bundle may change, and the
options of an accelerator can name libraries to load. So a name is all that is taken from that file: engine, providers
and options are what the machine's own profile has under it, and a name that the profile lacks is refused.

What an accelerator compiles is a program, too, and compiling takes up to minutes. So it is kept, in a folder to which
nobody else can have written.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from edge_runtime.errors import EdgeError

if TYPE_CHECKING:
    from edge_runtime.bundle.bundle import Bundle
    from edge_runtime.config import ModelConfig
    from edge_runtime.hardware import EngineChoice, Profile
    from edge_runtime.manifest import Variant
    from edge_runtime.tuning.results import Figure, Setting, Tuning

log = logging.getLogger(__name__)

SUFFIX: Final = ".compiled"
"""What the folder beside a bundle adds to the bundle's name."""


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
        profile: of this machine; None asks for it where something is worth it.
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
            from edge_runtime.hardware import this_device  # noqa: PLC0415 - not without an accelerator

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
    from edge_runtime.bundle.bundle import open_bundle  # noqa: PLC0415 - numpy
    from edge_runtime.bundle.signature import load_keys  # noqa: PLC0415
    from edge_runtime.tuning.results import file_for, recall  # noqa: PLC0415

    try:
        trusted = None if config.unsigned == "allow" else load_keys(config.trusted_keys)
        with open_bundle(config.bundle, trusted=trusted) as bundle:
            found = _winner(bundle, recall(bundle, config.tuned or file_for(config.bundle)), config)
    except (EdgeError, OSError) as error:
        log.debug("%s cannot be looked into: %s", config.bundle, error)
        return {}
    return {} if found is None else found[1].options(None)


# -- what accelerators compile -----------------------------------------------------------------------------------------


def folder_for(bundle: Path) -> Path:
    """Where compiled models are kept unless somebody says otherwise: beside the bundle."""
    return bundle.with_name(bundle.name + SUFFIX)


def kept(folder: Path, bundle: Bundle, variant: str, choice: EngineChoice) -> Path | None:
    """Make the folder for what an accelerator compiles of one variant.

    It belongs to the bundle's contents, the machine and all versions, as the figures do, and to one variant: libraries
    tell models apart by the names of their nodes, which all variants share.

    Args:
        folder: for all of them.
        bundle: an open bundle.
        variant: name in it.
        choice: of the machine's profile.

    Returns:
        None where there is no folder that can be trusted, which the log says: it is compiled anew each time.
    """
    # Names of variants and plug-ins are anybody's: not fit for a path.
    name = hashlib.sha256(json.dumps([variant, choice.name]).encode()).hexdigest()[:16]
    place = compiled_of(folder, bundle) / name
    try:
        for one in (folder, place.parent, place):  # each, since a umask of 002 would open those in between
            one.mkdir(mode=0o755, parents=True, exist_ok=True)
        place = place.resolve(strict=True)
        why = _open_to_others(place)
    except OSError as error:
        why = f"{error.filename or place}: {error.strerror}"
    if why:
        log.warning("what %s compiles is not kept, so each start compiles it anew: %s", choice.name, why)
        return None
    return place


def discard(place: Path) -> None:
    """Delete a folder of compiled models, as far as that can be done."""
    import shutil  # noqa: PLC0415 - with its compressors 3 ms, and only while tuning

    shutil.rmtree(place, ignore_errors=True)


def compiled_of(folder: Path, bundle: Bundle) -> Path:
    """Where in a folder everything lies that was compiled of a bundle on this machine with these versions."""
    from edge_runtime.tuning.results import key_of  # noqa: PLC0415
    from edge_runtime.tuning.timing import this_machine  # noqa: PLC0415 - as in tuning

    return folder / key_of(bundle, this_machine())


def _open_to_others(folder: Path) -> str:
    """How somebody else could put a file there, now or earlier; empty if nobody could (as sshd judges its files)."""
    for path in (folder, *folder.parents):
        found = path.stat()
        if found.st_uid not in {0, os.geteuid()}:
            return f"{path} belongs to another user; let the user who runs the application run edge-runtime tune"
        # Others may write to a sticky folder such as /tmp, and cannot replace what is not theirs.
        sticky = path != folder and found.st_mode & stat.S_ISVTX
        group = found.st_mode & stat.S_IWGRP and not _own_group(found.st_uid, found.st_gid)
        if (group or found.st_mode & stat.S_IWOTH) and not sticky:
            return f"{path} can be written to by others; run: chmod go-w {path}"
    return ""


def _own_group(uid: int, gid: int) -> bool:
    """Whether a group has one member, as distributions with a umask of 002 (Ubuntu, so Jetson) give each user one."""
    import grp  # noqa: PLC0415 - with an accelerator that compiles
    import pwd  # noqa: PLC0415

    try:
        user, group = pwd.getpwuid(uid), grp.getgrgid(gid)
    except KeyError:
        return False
    return (group.gr_name, group.gr_gid) == (user.pw_name, user.pw_gid) and set(group.gr_mem) <= {user.pw_name}
