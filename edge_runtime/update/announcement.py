"""What an announcement says, and whether it concerns this device. Unsigned: it only says where to look.

What it leads to is checked against `size` and `sha256` before anything reads it, and then for its own signature.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from datetime import datetime
from urllib.parse import urlsplit

import orjson

from edge_runtime import schema
from edge_runtime.errors import UpdateRefused
from edge_runtime.mqtt.topics import validate_topic_name
from edge_runtime.mqtt.wire import MalformedPacket

MAX_BYTES = 16 * 1024
_MAX_CHUNKS = 65_536
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Announcement:
    """One retained message: a bundle that devices should run."""

    name: str
    """Of the bundle; an update has the name of what it replaces."""
    version: int
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
    """Share of the devices that take it now."""
    not_before: str = ""
    """ISO 8601 time before which nobody takes it."""

    def __post_init__(self) -> None:
        if not 1 <= self.version < 2**63 or not self.name or len(self.name) > 200:
            raise ValueError("name must not be empty, and version must be a positive number")
        if not _SHA256.fullmatch(self.sha256):
            raise ValueError("sha256 must be 64 hexadecimal digits in lower case")
        if self.size < 1 or self.chunk_bytes < 1 or not 0 <= self.canary <= 1:
            raise ValueError("size and chunk_bytes must be at least 1, and canary 0 to 1")
        if bool(self.url) == bool(self.chunks):
            raise ValueError("needs either url or chunks")
        if self.url:
            _check_url(self.url)
        else:
            if -(-self.size // self.chunk_bytes) > _MAX_CHUNKS:
                raise ValueError(f"has more than {_MAX_CHUNKS} chunks; make them larger")
            try:
                validate_topic_name(self.chunks)
            except MalformedPacket as error:
                raise ValueError(f"chunks is no topic: {error}") from error
        if self.not_before:
            self.due()

    @property
    def model(self) -> str:
        """Name and version as predictions carry them."""
        return f"{self.name}/{self.version}"

    def due(self) -> float:
        """`not_before` in seconds since 1970; 0 without one. A time without a zone is UTC."""
        if not self.not_before:
            return 0.0
        moment = datetime.fromisoformat(self.not_before)
        if moment.tzinfo is None:
            moment = datetime.fromisoformat(self.not_before + "+00:00")
        return moment.timestamp()


def _check_url(url: str) -> None:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or not url.isascii() or not url.isprintable():
        raise ValueError("url must be http:// or https://")
    if "@" in parts.netloc or parts.fragment or " " in url:
        raise ValueError("url must carry neither credentials nor a fragment nor spaces")
    if parts.port == 0:
        raise ValueError("url has port 0")


def parse(data: bytes) -> Announcement:
    """Read one.

    Raises:
        UpdateRefused: it is none; says why.
    """
    if len(data) > MAX_BYTES:
        raise UpdateRefused("announcement", f"the announcement has {len(data)} bytes, more than {MAX_BYTES}")
    try:
        return schema.load(Announcement, orjson.loads(data))
    except orjson.JSONDecodeError as error:
        raise UpdateRefused("announcement", f"the announcement is not JSON: {error}") from error
    except schema.SchemaError as error:
        where = f"{error.dotted()}: " if error.where else ""
        raise UpdateRefused("announcement", f"the announcement is malformed: {where}{error}") from error


def in_canary(device_id: str, model: str, share: float) -> bool:
    """Whether this device is among the share that goes first.

    The device's place is the hash of its id and the release: it does not change while the share grows, and other
    devices go first with the next release.

    Args:
        device_id: names the device.
        model: name and version of the release.
        share: 0 to 1.
    """
    digest = hashlib.sha256(f"{model}\0{device_id}".encode()).digest()
    return int.from_bytes(digest[:8], "big") < share * 2**64
