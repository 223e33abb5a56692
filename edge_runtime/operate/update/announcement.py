"""Announcement of a bundle: a signed message that says which one, where it lies, for which devices, and until when.

It travels in a DSSE envelope (`edge_runtime.operate.update.envelope`). Nothing in it counts before the signature holds;
then `edge_runtime.operate.update.freshness` decides whether it is fresh. The bundle that it leads to is checked against
`size` and `sha256` before anything reads it, and then for its own signature.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Literal
from urllib.parse import urlsplit

import orjson

from edge_runtime import schema
from edge_runtime.base.system.iso8601 import parse_time
from edge_runtime.errors import SignatureError, UpdateRefused
from edge_runtime.io.mqtt.topics import validate_topic_name
from edge_runtime.io.mqtt.wire import MalformedPacket
from edge_runtime.model.bundle.signature import TrustedKey
from edge_runtime.operate.update import envelope

PAYLOAD_TYPE = "application/vnd.edge-runtime.announcement+json"
MAX_BYTES = 64 * 1024
_MAX_CHUNKS = 65_536
_MAX_DEVICES = 1000
_MAX_NAME = 200
_MAX_LEVELS = 16
_SHA256 = re.compile(r"[0-9a-f]{64}")
_LABEL = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?")
"""Of a host name: RFC 1123 section 2.1, and the underscore that private networks use."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Announcement:
    """Signed content of an announcement."""

    type: Literal["announcement"] = "announcement"
    name: str
    """Of the bundle; an update has the name of what it replaces."""
    version: int
    sequence: int
    """Rises with every announcement of this name: an older one is refused."""
    issued: str
    """ISO 8601 time at which it was made."""
    expires: str
    """ISO 8601 time from which on it is refused."""
    devices: tuple[str, ...]
    """Whom it concerns: device ids, or patterns with ``*``, ``?`` and ``[...]``; ``*`` is every device."""
    sha256: str
    """Of the whole file, lower-case hexadecimal."""
    size: int
    """Of the whole file, bytes."""
    url: str = ""
    """``https://`` or ``http://``."""
    chunks: str = ""
    """Instead of a URL: the file lies in parts under this topic, as ``TOPIC/0``, ``TOPIC/1``, ..."""
    chunk_bytes: int = 65_536
    """Of each part but the last."""
    canary: float = 1.0
    """Share of the devices that take it now, 0 to 1."""
    not_before: str = ""
    """ISO 8601 time before which no device takes it."""

    def __post_init__(self) -> None:
        if not 1 <= self.version < 2**63 or not 0 < len(self.name) <= _MAX_NAME or not self.name.isprintable():
            raise ValueError(f"name must have 1 to {_MAX_NAME} characters, and version must be a positive number")
        if not 1 <= self.sequence < 2**63:
            raise ValueError("sequence must be a positive number")
        if not _SHA256.fullmatch(self.sha256):
            raise ValueError("sha256 must be 64 hexadecimal digits in lower case")
        if self.size < 1 or self.chunk_bytes < 1 or not 0 <= self.canary <= 1:
            raise ValueError("size and chunk_bytes must be at least 1, and canary 0 to 1")
        if not 1 <= len(self.devices) <= _MAX_DEVICES or not all(0 < len(one) <= _MAX_NAME for one in self.devices):
            raise ValueError(f"devices must be 1 to {_MAX_DEVICES} ids or patterns; '*' is every device")
        if bool(self.url) == bool(self.chunks):
            raise ValueError("needs either url or chunks")
        if self.url:
            _check_url(self.url)
        else:
            _check_chunks(self.chunks, -(-self.size // self.chunk_bytes))
        if parse_time(self.expires) <= parse_time(self.issued):
            raise ValueError("expires must be later than issued")
        if self.not_before:
            parse_time(self.not_before)

    @property
    def model(self) -> str:
        """Name and version as predictions carry them."""
        return f"{self.name}/{self.version}"

    @property
    def topic_filter(self) -> str:
        """Topic filter for the chunks."""
        return f"{self.chunks}/+"

    def concerns(self, device_id: str) -> bool:
        """Return whether a device is among `devices`."""
        return any(fnmatchcase(device_id, one) for one in self.devices)


@dataclass(frozen=True, slots=True)
class Signed:
    """An announcement whose signature holds.

    Attributes:
        announcement: what it says.
        digest: SHA-256 of the signed bytes, hexadecimal.
    """

    announcement: Announcement
    digest: str


def parse(data: bytes, keys: Sequence[TrustedKey]) -> Signed:
    """Verify one and read it.

    Args:
        data: the message.
        keys: any of these may have signed it.

    Raises:
        UpdateRefused: it is unsigned, foreign or malformed; says why.
    """
    try:
        found = envelope.read(data, PAYLOAD_TYPE, MAX_BYTES)
    except SignatureError as error:
        if _is_unsigned(data):
            raise UpdateRefused(
                "announcement_unsigned", "the announcement is not signed; make it with 'edge-export announce' "
                "(docs/updates.md)"
            ) from error  # fmt: skip
        raise UpdateRefused("announcement", f"the announcement is malformed: {error}") from error
    if not found.signers(keys):
        trusted = ", ".join(map(str, keys)) or "none"
        raise UpdateRefused("announcement_signature", f"no trusted key has signed the announcement; trusted: {trusted}")
    try:
        announcement = schema.load(Announcement, orjson.loads(found.payload))
    except orjson.JSONDecodeError as error:
        raise UpdateRefused("announcement", f"the announcement is not JSON: {error}") from error
    except schema.SchemaError as error:
        where = f"{error.dotted()}: " if error.where else ""
        raise UpdateRefused("announcement", f"the announcement is malformed: {where}{error}") from error
    return Signed(announcement, hashlib.sha256(found.payload).hexdigest())


def in_canary(device_id: str, model: str, share: float) -> bool:
    """Return whether this device is among the share that goes first.

    The device's place is the hash of its id and the release: it does not change while the share grows, and other
    devices go first with the next release.

    Args:
        device_id: names the device.
        model: name and version of the release.
        share: 0 to 1.
    """
    digest = hashlib.sha256(f"{model}\0{device_id}".encode()).digest()
    return int.from_bytes(digest[:8], "big") < share * 2**64


def _is_unsigned(data: bytes) -> bool:
    """Return whether it has the form that announcements had before they were signed."""
    try:
        found: Any = orjson.loads(data[:MAX_BYTES])
    except orjson.JSONDecodeError:
        return False
    return isinstance(found, dict) and {"name", "version", "sha256", "size"} <= found.keys()


def _check_url(url: str) -> None:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or not url.isascii() or not url.isprintable():
        raise ValueError("url must be http:// or https://")
    if "@" in parts.netloc or parts.fragment or " " in url:
        raise ValueError("url must carry neither credentials nor a fragment nor spaces")
    if parts.port == 0:
        raise ValueError("url has port 0")
    host = parts.hostname
    if len(host) > 253 or not (":" in host or all(_LABEL.fullmatch(one) for one in host.removesuffix(".").split("."))):
        raise ValueError(f"url has no host name: {host[:100]!r}")


def _check_chunks(topic: str, count: int) -> None:
    if count > _MAX_CHUNKS:
        raise ValueError(f"has more than {_MAX_CHUNKS} chunks; make them larger")
    try:
        validate_topic_name(topic)
    except MalformedPacket as error:
        raise ValueError(f"chunks is no topic: {error}") from error
    # As a filter, $share/... would be a shared subscription, and $SYS/... the broker's own topics.
    if topic.startswith("$") or topic.count("/") >= _MAX_LEVELS or len(topic) > _MAX_NAME:
        raise ValueError(
            f"chunks must not begin with $, and have at most {_MAX_LEVELS} levels and {_MAX_NAME} characters"
        )
