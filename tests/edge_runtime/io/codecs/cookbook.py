"""Recipes of docs/payloads*.md and docs/codecs.md as data: messages, source table, contract and result of each."""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import Any, NamedTuple

from edge_runtime.base.system import toml
from edge_runtime.manifest import Channel, InputContract
from edge_runtime.manifest.frames import Frame
from tests.integration.running import ROOT

PAGE = ROOT / "docs/payloads.md"
INDUSTRY = ROOT / "docs/payloads-industry.md"
PAGES = (PAGE, ROOT / "docs/payloads-home.md", INDUSTRY)
SETTINGS = ROOT / "docs/codecs.md"
ARRIVED = 1_700_000_000.0
"""When the page says that its messages arrived, seconds since 1970."""

APP = """
[model]
bundle = "model.edge"
unsigned = "allow"
[broker.local]
url = "mqtt://localhost"
[[sink]]
type = "stdout"
"""
"""What a source table needs around it to be a whole configuration."""

_MESSAGE = re.compile(
    r"^(Topic|Standard input|Serial port|File)(?: `([^`]+)`)?(, retained)?(?:, bytes in hexadecimal)?:\n+"
    r"```(\w+)\n(.*?)^```$\n+",
    re.MULTILINE | re.DOTALL,
)
_RESULT = re.compile(r"^```toml\n(.*?)^```$\n+```text\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_MODEL = re.compile(r"^\| (\w+) \| (`.*?) \| ([\d.]+) Hz \|$", re.MULTILINE)
_CHANNEL = re.compile(r"`(\w+)` in ([^\s,|]+)")
_FRAME = re.compile(r"pictures of (\d+) x (\d+)")
_UPSTREAM = re.compile(r"\]\((https://[^)]+)\)")


class Message(NamedTuple):
    """One message of a recipe."""

    where: str
    """``Topic``, ``Standard input``, ``Serial port`` or ``File``."""
    name: str
    """Topic or file; empty for streams."""
    payload: bytes
    retained: bool


class Entry(NamedTuple):
    """One recipe of the page."""

    section: str
    """Heading of the part of the page that it stands in."""
    name: str
    """Its own heading."""
    upstream: str
    """Page of the program that sends these messages; empty for formats of our own."""
    messages: tuple[Message, ...]
    source_table: str
    """The ``[[source]]`` table, TOML."""
    result: str
    """Readings, a row for each sample, as the page shows them; or ``refused: reason (channels a b)``."""
    contract: InputContract
    """Of the model that the page's example uses."""

    @property
    def topics(self) -> tuple[str, ...]:
        """Topic of each message; empty where the source is no broker."""
        return tuple(message.name for message in self.messages if message.where == "Topic")

    @property
    def payloads(self) -> tuple[bytes, ...]:
        """Bytes of each message."""
        return tuple(message.payload for message in self.messages)

    @property
    def table(self) -> dict[str, Any]:
        """The source table, parsed."""
        (source,) = toml.loads(self.source_table)["source"]
        found: dict[str, Any] = source
        return found


@functools.cache
def models() -> dict[tuple[str, ...], InputContract]:
    """The models of the page's table, by the names of their channels."""
    found = {}
    for _, channels, rate_hz in _MODEL.findall(PAGE.read_text("utf-8")):
        units = dict(_CHANNEL.findall(channels))
        sizes = _FRAME.search(channels)
        frame = Frame(height=int(sizes[1]), width=int(sizes[2])) if sizes else None
        found[tuple(units)] = InputContract(
            channels=tuple(Channel(name=name, unit=unit) for name, unit in units.items()),
            rate_hz=float(rate_hz) * (frame.pixels if frame else 1),
            window=frame.pixels if frame else 100,
            hop=frame.pixels if frame else 50,
            frame=frame,
        )
    return found


@functools.cache
def entries(*pages: Path) -> tuple[Entry, ...]:
    """Every recipe of these pages, or of the cookbook, in its order.

    Raises:
        AssertionError: a section has not the form messages, source table, result.
    """
    found = []
    for page in pages or PAGES:
        for part in page.read_text("utf-8").split("\n## ")[1:]:
            section, *recipes = part.split("\n### ")
            found += [_entry(section.partition("\n")[0], recipe) for recipe in recipes]
    return tuple(found)


def _entry(section: str, recipe: str) -> Entry:
    name, _, text = recipe.partition("\n")
    messages = [
        Message(where, at, bytes.fromhex(body) if kind == "hex" else body.encode(), bool(retained))
        for where, at, retained, kind, body in _MESSAGE.findall(text)
    ]
    end = _RESULT.search(text)
    assert messages, f"the recipe '{name}' shows no message"
    assert end, f"the recipe '{name}' does not end with a source table and its result"
    if messages[0].where == "Topic":
        messages = [message._replace(payload=message.payload.rstrip(b"\n")) for message in messages]
    upstream = _UPSTREAM.search(text)
    words = end[2].splitlines()[0].replace(")", "").split()
    channels = tuple(words[words.index("(channels") + 1 :] if "(channels" in words else words[2:])
    source = upstream[1] if upstream else ""
    return Entry(section, name, source, tuple(messages), end[1], end[2], models()[channels])
