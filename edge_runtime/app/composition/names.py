"""Names by which others know this device: made once, and kept beside the files of state.

1. A name that the configuration states is used as it is.
2. Others are made of the host's name at the first start, kept in ``outbox.names``. So client ids, and with them the
   broker's session, and the devices of Home Assistant stay what they are when the host is called otherwise.
3. Where no file of state is named, or its folder cannot be used, they are made of today's host name.
4. A container whose state lies on no volume is told at the start what its next image will lose.
"""

from __future__ import annotations

import logging
import socket
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from edge_runtime.app.config import AppConfig
from edge_runtime.base.system import durable_file

log = logging.getLogger(__name__)

_MOST: Final = 255
_CONTAINERS: Final = (".dockerenv", "run/.containerenv", "var/run/secrets/kubernetes.io")
"""Marks that Docker, Podman and Kubernetes leave in a container."""


def with_kept_names(config: AppConfig, *, write: bool, host: str = "") -> AppConfig:
    """Return the configuration with all names stated that were made of the host's.

    Args:
        config: the application's configuration.
        write: False keeps nothing, as for ``run --check``.
        host: name of this host; empty: ask the system.
    """
    home, update = config.home_assistant, config.update
    otlp = None if config.observe is None else config.observe.otlp
    needs = (home and not home.device_id, update and not update.device_id, otlp and not otlp.instance)
    if all(broker.client_id for broker in config.broker.values()) and not any(needs):
        return config  # rule 1
    return _named(config, _kept(_file(config), host or socket.gethostname(), write=write))


def _named(config: AppConfig, host: str) -> AppConfig:
    home, update, observe = config.home_assistant, config.update, config.observe
    brokers = {
        key: replace(one, client_id=one.session_name(key, config.name, host)) for key, one in config.broker.items()
    }
    changed: dict[str, Any] = {"broker": brokers}
    if home is not None:
        changed["home_assistant"] = replace(home, device_id=home.device_id or host)
    if update is not None:
        changed["update"] = replace(update, device_id=update.device_id or host)
    if observe is not None and (otlp := observe.otlp) is not None:
        changed["observe"] = replace(observe, otlp=otlp.named(config.name, host))
    return replace(config, **changed)


def _file(config: AppConfig) -> Path | None:
    if (beside := config.counters_file) is not None:
        return beside.with_suffix(".names")
    return None if config.update is None else config.update.folder.with_name(f"{config.update.folder.name}.names")


def _kept(path: Path | None, host: str, *, write: bool) -> str:
    """Read the host's name of the first start, or keep this one (rules 2 and 3)."""
    if path is None:
        return host
    try:
        kept = path.read_text("utf-8")[:_MOST].strip() if path.exists() else ""
        if kept.isprintable() and kept:
            if kept != host:
                log.info("runtime: this host was called otherwise, and its names stay: kept=%s file=%s", kept, path)
            return kept
        if write:
            durable_file.write(path, f"{host}\n".encode())
            log.debug("runtime: made the names of this device of its host name: kept=%s file=%s", host, path)
    except (OSError, ValueError) as error:
        log.warning("runtime: could not keep the names of this device, so they follow the host's: error=%s", error)
    return host


def warn_container(config: AppConfig, configured: AppConfig, root: Path = Path("/")) -> None:
    """Say what the next image of a container loses (rule 4).

    Args:
        config: the application's configuration.
        configured: the same, before `with_kept_names`.
        root: root of the file system, for a test.
    """
    path = _file(config)
    unnamed = [key for key, broker in configured.broker.items() if not broker.client_id]
    if not any((root / mark).exists() for mark in _CONTAINERS) or (path is None and not unnamed):
        return
    if path is not None and _on_volume(path.parent.absolute(), root):
        return
    lost = [] if path is None else ["hard cases that wait, labels and all that is kept"]
    lost += [f"what the broker queues for {config.broker[key].client_id} ([broker.{key}])" for key in unnamed]
    where = (
        "the configuration names no file of state" if path is None else f"{path.parent.absolute()} lies on no volume"
    )
    log.warning(
        "runtime: in a container whose next image loses %s, since %s: mount a volume, and put [outbox] path on it%s",
        " and ".join(lost), where, "; or set client_id" if unnamed else "",
    )  # fmt: skip


def _on_volume(folder: Path, root: Path) -> bool:
    """Return whether something is mounted at a folder or above it, besides the root (proc(5), mountinfo)."""
    try:
        mounts = [line.split()[4] for line in (root / "proc/self/mountinfo").read_text("utf-8").splitlines()]
    except (OSError, IndexError, ValueError):
        return True
    return any(mount != "/" and folder.is_relative_to(mount) for mount in mounts)
