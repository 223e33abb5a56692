"""Signed announcement of a bundle: the message that is published for devices (docs/updates.md)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime, timedelta, timezone
from pathlib import Path

import orjson

from edge_export.package.sign import SigningKey, envelope
from edge_runtime.base.system.iso8601 import parse_time
from edge_runtime.errors import ConfigError
from edge_runtime.model.bundle.bundle import open_bundle
from edge_runtime.operate.update.announcement import PAYLOAD_TYPE, Announcement

LIFETIME = timedelta(days=30)
"""Lifetime of an announcement without an expiry of its own."""


def announce(
    bundle: Path,
    key: SigningKey,
    *,
    issued: datetime,
    url: str = "",
    chunks: str = "",
    chunk_bytes: int = 65_536,
    devices: Sequence[str] = ("*",),
    canary: float = 1.0,
    expires: str = "",
    not_before: str = "",
    sequence: int | None = None,
) -> tuple[Announcement, bytes]:
    """Make an announcement; name, version, size and digest are those of the file.

    Args:
        bundle: signed already, so that the file does not change any more.
        key: signs; its public key is among those that devices trust.
        issued: now, with its zone.
        url: the address at which devices find the file.
        chunks: instead of `url`, the topic below which its parts are.
        chunk_bytes: bytes of each part but the last.
        devices: device ids, or patterns with ``*``, ``?`` and ``[...]``.
        canary: share of the devices that take it now, 0 to 1.
        expires: ISO 8601 time from which on devices refuse it; empty: `LIFETIME` after `issued`.
        not_before: ISO 8601 time before which no device takes it.
        sequence: higher than that of every announcement of this name before; None: seconds since 1970.

    Returns:
        The announcement's contents, and the message that is published.

    Raises:
        BundleError: it is not a whole bundle.
        ConfigError: the announcement would make no sense, or the bundle is not signed.
    """
    with open_bundle(bundle) as opened:
        if opened.signature == "unsigned":
            raise ConfigError(
                f"{bundle}: is not signed, so no device would take it: edge-export sign {bundle} --key ..."
            )
        manifest, digest = opened.manifest, opened.digest
    try:
        made = Announcement(
            name=manifest.name,
            version=manifest.version,
            sequence=int(issued.timestamp()) if sequence is None else sequence,
            issued=issued.astimezone(timezone.utc).isoformat(timespec="seconds"),
            expires=_utc(expires)
            if expires
            else (issued + LIFETIME).astimezone(timezone.utc).isoformat(timespec="seconds"),
            devices=tuple(devices),
            sha256=digest,
            size=bundle.stat().st_size,
            url=url,
            chunks=chunks,
            chunk_bytes=chunk_bytes,
            canary=canary,
            not_before=_utc(not_before) if not_before else "",
        )
    except ValueError as error:
        raise ConfigError(f"this cannot be announced: {error}") from error
    return made, envelope(PAYLOAD_TYPE, orjson.dumps(asdict(made)), [key])


def _utc(text: str) -> str:
    return datetime.fromtimestamp(parse_time(text), timezone.utc).isoformat(timespec="seconds")
