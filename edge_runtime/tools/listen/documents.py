"""Payloads recognised: which codec reads them, and the values that stand in them, by their paths."""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from typing import Any, Final, Literal, NamedTuple

import orjson

from edge_runtime.errors import ConfigError, InputError
from edge_runtime.io.codecs.influx import InfluxLine, parse_lines
from edge_runtime.io.codecs.numbers import MAX_BYTES
from edge_runtime.io.codecs.numbers import MAX_SAMPLES as MAX_LINES
from edge_runtime.io.codecs.sparkplug import parse_metrics
from edge_runtime.tools.listen.csv_text import Dialect, csv_rows
from edge_runtime.tools.listen.tree import (
    MAX_LEAVES,
    MAX_SAMPLES,
    MAX_TEXT,
    NUMBER,
    Leaf,
    Leaves,
    is_number,
    is_samples,
    leaves_of,
    plain,
    samples_of,
    senml_leaves,
)

logger = logging.getLogger(__name__)

Format = Literal[
    "json", "msgpack", "cbor", "senml", "senml-cbor", "csv", "influx", "sparkplug", "number", "text", "binary", "empty",
    "too large",
]  # fmt: skip
Tree = Literal["json", "msgpack", "cbor"]
SPARKPLUG: Final = "spBv1.0/"
"""Beginning of the topics of Sparkplug B."""


class Document(NamedTuple):
    """A payload, recognised."""

    format: Format
    items: tuple[Leaves, ...] = ()
    """Values of each sample, or of the one message."""
    samples: str = ""
    """Path of a list of objects, one per sample; ``.`` where the message is that list."""
    around: Leaves = ()
    """Values outside the list of samples."""
    dialect: Dialect | None = None
    """Of CSV text."""


def recognise(topic: str, payload: bytes) -> Document:
    """Recognise a payload. Never raises, whatever the bytes are.

    1. A Sparkplug topic says what it carries.
    2. Text is JSON, a number, InfluxDB line protocol, CSV, or just text.
    3. Other bytes are MessagePack or CBOR where these give an object or a list, else unknown.
    4. What makes our own code fail is bytes of no known format, and logged: no message ends a command.
    """
    try:
        return _recognise(topic, payload)
    except Exception:  # rule 4
        logger.debug("listen: a message was not understood: topic=%r", topic, exc_info=True)
        return Document("binary", ((Leaf("bytes", len(payload)),),))


def _recognise(topic: str, payload: bytes) -> Document:
    if not payload:
        return Document("empty")
    if len(payload) > MAX_BYTES:
        return Document("too large")
    if topic.startswith(SPARKPLUG):  # rule 1
        return _sparkplug(payload)
    try:
        text = payload.decode("utf-8").strip()
    except UnicodeDecodeError:
        return _binary(payload)
    if any(ord(letter) < 32 and letter not in "\t\r\n" for letter in text[:256]):
        return _binary(payload)
    return _text(text, payload)


def _text(text: str, payload: bytes) -> Document:  # rule 2
    if text[:1] in ("{", "[", '"'):
        with suppress(orjson.JSONDecodeError):
            return _tree("json", orjson.loads(payload))
    if NUMBER.match(text):
        return _single(text)
    if "=" in text:
        with suppress(InputError):
            return _influx(parse_lines(text, MAX_LINES))
    if (found := csv_rows(text)) is not None:
        dialect, rows = found
        return Document("csv", rows, dialect=dialect)
    return _single(text)


def _single(text: str) -> Document:
    value = plain(text)
    return Document("number" if is_number(value) else "text", ((Leaf("", value),),))


def _binary(payload: bytes) -> Document:  # rule 3
    for name, parse in _parsers():
        try:
            found = _tree(name, parse(payload))
        except Exception:  # noqa: BLE001, S112 - any bytes may come, and any library may stumble over them
            continue
        if found.format not in ("number", "text") and any(found.items):
            return found
    return Document("binary", ((Leaf("bytes", len(payload)),),))


@lru_cache(maxsize=1)
def _parsers() -> tuple[tuple[Tree, Callable[[bytes], Any]], ...]:
    """Parsers of binary documents, where their libraries are installed."""
    found: list[tuple[Tree, Callable[[bytes], Any]]] = []
    with suppress(ImportError):
        import ormsgpack  # noqa: PLC0415 - only where binary payloads come

        found.append(("msgpack", ormsgpack.unpackb))
    with suppress(ConfigError):
        from edge_runtime.io.codecs.cbor import load_cbor  # noqa: PLC0415

        found += [("cbor", load_cbor("listen")), ("cbor", load_cbor("listen", senml=True))]
    return tuple(found)


def _tree(kind: Tree, value: Any) -> Document:
    """Flatten a decoded document."""
    if is_samples(value):
        if leaves := senml_leaves(value):
            return Document("senml" if kind == "json" else "senml-cbor", (leaves,))
        return Document(kind, samples_of(value), samples=".")
    if type(value) is dict:
        return _object(kind, value)
    return Document(kind, (leaves_of(value),)) if type(value) is list else _single(str(value))


def _object(kind: Tree, value: dict[Any, Any]) -> Document:
    """Flatten an object; the first list of objects in it holds the samples, unless more numbers stand around it."""
    name = next((name for name, inner in value.items() if type(name) is str and is_samples(inner)), None)
    if name is not None:
        around = leaves_of({other: inner for other, inner in value.items() if other != name})
        samples = samples_of(value[name])
        if max(map(_numbers, samples)) >= _numbers(around):
            return Document(kind, samples, samples=name, around=around)
    return Document(kind, (leaves_of(value),))


def _numbers(leaves: Leaves) -> int:
    return sum(1 for leaf in leaves if is_number(leaf.value) or type(leaf.value) is list)


def _influx(lines: list[InfluxLine]) -> Document:
    """Fields of the lines, and their tags."""
    tags = [Leaf(name, value[:MAX_TEXT]) for line in lines[:MAX_SAMPLES] for name, value in line.tags.items()]
    return Document("influx", tuple(map(_influx_leaves, lines[:MAX_SAMPLES])), around=tuple(tags[:MAX_LEAVES]))


def _influx_leaves(line: InfluxLine) -> Leaves:
    values = {name: plain(value.rstrip("iu")) for name, value in line.fields.items()}
    leaves = [Leaf(name, value.strip('"') if isinstance(value, str) else value) for name, value in values.items()]
    return (*leaves, *([Leaf("time", line.stamp)] if line.stamp is not None else []))


def _sparkplug(payload: bytes) -> Document:
    """Metrics by their names; those that a birth named earlier by ``alias N``."""
    try:
        _, metrics = parse_metrics(payload)
    except InputError:
        return Document("binary", ((Leaf("bytes", len(payload)),),))
    leaves = []
    for metric in metrics[:MAX_LEAVES]:
        name = metric.name if metric.name is not None else f"alias {metric.alias}"
        leaves.append(Leaf(name, None if metric.is_null else _metric(metric.value)))
    return Document("sparkplug", (tuple(leaves),))


def _metric(value: tuple[int, int, int | memoryview] | None) -> float | None:
    """Return the number in a metric's value; a whole one without its sign, which its birth alone tells."""
    content = None if value is None else value[2]
    if isinstance(content, memoryview):
        return struct.unpack("<f" if len(content) == 4 else "<d", content)[0] if len(content) in (4, 8) else None
    return None if content is None else float(content)
