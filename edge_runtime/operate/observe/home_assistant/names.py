"""Names for Home Assistant: identifiers that do not collide, topics that nothing can break, texts that show as text."""

from __future__ import annotations

import hashlib
import re
from typing import Final, NamedTuple

MAX_TEXT: Final = 120
MAX_STATE: Final = 250
"""Home Assistant refuses states of more than 255 characters."""

_PLAIN: Final = re.compile(r"[a-z0-9](?:_?[a-z0-9]){0,39}")
_OTHER: Final = re.compile(r"[^a-z0-9]+")
IDENTIFIER: Final = re.compile(r"[a-z0-9_]{1,80}")


def slug(text: str) -> str:
    """Write a text with small letters, digits and single underscores; several texts may become the same."""
    return _OTHER.sub("_", text[:200].lower()).strip("_")[:40].strip("_") or "x"


def identifier(text: str) -> str:
    """Write a text as an identifier that no other text has.

    1. A text of small letters, digits and single underscores, 40 of them at most, is its own.
    2. Any other becomes its slug, ``__``, and 16 digits of its SHA-256: rule 1 never makes two underscores in a row.
    """
    if _PLAIN.fullmatch(text) and len(text) <= 40:
        return text
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return f"{slug(text)}__{digest}"


def readable(text: str, limit: int = MAX_TEXT) -> str:
    """Write a text as one line of characters that can be seen; Home Assistant shows it as text, HTML or not."""
    short = text[: limit + 1]
    seen = "".join(c if c.isprintable() else " " for c in short)
    line = " ".join(seen.split())
    return line if len(short) <= limit and len(line) <= limit else line[: limit - 1] + "…"


class Topics(NamedTuple):
    """Topics of one application."""

    prefix: str
    """Of discovery."""
    base: str
    device: str
    """Identifier of the application's device."""

    @property
    def birth(self) -> str:
        """Topic on which Home Assistant says that it is there."""
        return f"{self.prefix}/status"

    def discovery(self, key: str = "") -> str:
        """Make the topic of a device's discovery message.

        Args:
            key: identifier of the key; empty: the application's own.
        """
        return f"{self.prefix}/device/{self.device_of(key)}/config"

    def device_of(self, key: str) -> str:
        """Make the identifier of the device of a key. Hyphens part the three names; none is within them."""
        return f"{self.device}-{key}" if key else self.device

    def own(self, *levels: str) -> str:
        """Make a topic of the application's: ``stats``, ``update``, ``set/restart``."""
        return "/".join((self.base, *levels))

    def of(self, key: str, *levels: str) -> str:
        """Make a topic of a key: ``state``, ``availability``, ``set/reset``."""
        return "/".join((self.base, "keys", key, *levels))


def topics_of(prefix: str, base: str, identity: str, application: str) -> Topics:
    """Make the topics of an application on a machine."""
    names = [identifier(identity), identifier(application)]
    return Topics(prefix, base or "/".join(("edge-runtime", *names)), "-".join(("er", *names)))
