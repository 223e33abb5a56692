"""Cache of what accelerators compile.

That is a program, and compiling takes up to minutes. So it is kept, in a folder that other users cannot have written.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from edge_runtime.base.hardware import EngineChoice
    from edge_runtime.model.bundle.bundle import Bundle

log = logging.getLogger(__name__)

SUFFIX: Final = ".compiled"
"""Suffix of the folder beside a bundle, after the bundle's name."""


def folder_for(bundle: Path) -> Path:
    """Return where compiled models are kept by default: beside the bundle."""
    return bundle.with_name(bundle.name + SUFFIX)


def kept(folder: Path, bundle: Bundle, variant: str, choice: EngineChoice) -> Path | None:
    """Make the folder for what an accelerator compiles of one variant.

    It belongs to the bundle's contents, the machine and all versions, as the figures do, and to one variant: libraries
    tell models apart by the names of their nodes, which all variants share.

    Args:
        folder: the folder for all of them.
        bundle: an open bundle.
        variant: name in it.
        choice: a choice of the machine's profile.

    Returns:
        None where there is no folder that can be trusted, which the log says: each start compiles it again.
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
        log.warning(
            "tuning: compiled model not kept, so each start compiles it again: accelerator=%s: %s", choice.name, why
        )
        return None
    return place


def discard(place: Path) -> None:
    """Delete a folder of compiled models, as far as that can be done."""
    import shutil  # noqa: PLC0415 - with its compressors 3 ms, and only while tuning

    shutil.rmtree(place, ignore_errors=True)


def compiled_of(folder: Path, bundle: Bundle) -> Path:
    """Return where in a folder everything lies that was compiled of a bundle on this machine with these versions."""
    from edge_runtime.model.tuning.results import key_of  # noqa: PLC0415
    from edge_runtime.model.tuning.timing import this_machine  # noqa: PLC0415 - as in tuning

    return folder / key_of(bundle, this_machine())


def _open_to_others(folder: Path) -> str:
    """Explain how another user could write there, now or earlier; empty if none could (the rules are sshd's)."""
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
    """Return whether a group is one user's own, as distributions with a umask of 002 (Ubuntu, so Jetson) make them."""
    import grp  # noqa: PLC0415 - with an accelerator that compiles
    import pwd  # noqa: PLC0415

    try:
        user, group = pwd.getpwuid(uid), grp.getgrgid(gid)
    except KeyError:
        return False
    return (group.gr_name, group.gr_gid) == (user.pw_name, user.pw_gid) and set(group.gr_mem) <= {user.pw_name}
