"""Fields observed over many messages: kinds, ranges, stated units, and what tells objects in one list apart."""

from __future__ import annotations

import math
import re
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from edge_runtime.io.recordings.capture import Captured
from edge_runtime.tools.listen.csv_text import Dialect
from edge_runtime.tools.listen.documents import Format, recognise
from edge_runtime.tools.listen.sensors import discriminator_of, named
from edge_runtime.tools.listen.tree import NUMBER, Leaf

MAX_FIELDS: Final = 512
"""Fields of one topic."""
_SERIES: Final = 2000
_MEANWHILE: Final = ("text", "empty")
"""Formats of messages that a sensor sends while it has no value: ``unavailable``."""
_SOME: Final = 0.1
"""Share of messages with values from which these count."""

_COMMA: Final = re.compile(r"\s*([-+]?\d+),(\d+)\s*[^\d\s,.;]{0,8}\s*$")
"""Number with a decimal comma, and perhaps a unit."""

Kind = Literal["number", "number as text", "numbers", "rows", "text", "flag", "nothing"]


@dataclass(slots=True)
class Field:
    """One field over all samples seen."""

    path: str
    around: bool = False
    """It stands outside the list of samples."""
    count: int = 0
    kinds: Counter[Kind] = field(default_factory=Counter)
    series: list[float] = field(default_factory=list)
    """Finite numbers, in order; of lists all elements. The first ones."""
    comma: bool = False
    """Some of its numbers have a decimal comma."""
    texts: list[str] = field(default_factory=list)
    """Texts that are no numbers, in order. The first ones."""
    longest: int = 0
    """Elements of the longest list."""
    shortest: int = 0
    width: int = 0
    """Numbers in each row, of rows of the same width."""

    @property
    def kind(self) -> Kind:
        """Kind of most of its values."""
        return self.kinds.most_common(1)[0][0] if self.kinds else "nothing"

    @property
    def numeric(self) -> bool:
        """Return whether a channel may be read from it."""
        return self.kind in ("number", "number as text", "numbers")

    @property
    def low(self) -> float:
        """Smallest number seen."""
        return min(self.series, default=math.nan)

    @property
    def high(self) -> float:
        """Largest number seen."""
        return max(self.series, default=math.nan)

    @property
    def constant(self) -> bool:
        """It never changed, though it was seen several times."""
        return self.count > 2 and len(set(self.texts)) + len(set(self.series)) == 1

    def add(self, value: object) -> None:
        """Count one value."""
        self.count += 1
        if type(value) is bool:
            self.kinds["flag"] += 1
        elif isinstance(value, int | float):
            self._number("number", value)
        elif isinstance(value, str):
            if NUMBER.match(value):
                self._number("number as text", float(value))
            elif found := _COMMA.match(value):
                self.comma = True
                self._number("number as text", float(f"{found[1]}.{found[2]}"))
            else:
                self.kinds["text"] += 1
                if len(self.texts) < _SERIES:
                    self.texts.append(value)
        elif isinstance(value, list) and value:
            self._list(value)
        else:
            self.kinds["nothing"] += 1

    def _list(self, value: list[object]) -> None:
        flat = value
        if isinstance(value[0], list):
            self.kinds["rows"] += 1
            self.width = len(value[0])
            flat = [cell for row in value if isinstance(row, list) for cell in row]
        else:
            self.kinds["numbers"] += 1
        self.shortest = min(self.shortest or len(value), len(value))
        self.longest = max(self.longest, len(value))
        for number in flat[: _SERIES - len(self.series)]:
            if isinstance(number, int | float):
                self._keep(number)

    def _number(self, kind: Kind, number: float) -> None:
        self.kinds[kind] += 1
        self._keep(number)

    def _keep(self, number: float) -> None:
        """Keep a number that is finite as a float; whole ones of CBOR may have any size."""
        if len(self.series) < _SERIES and abs(number) <= sys.float_info.max:
            self.series.append(float(number))


@dataclass(slots=True)
class TopicFields:
    """Everything seen in the messages of one topic."""

    topic: str
    format: Format
    """Of most of its messages."""
    others: int
    """Messages of another format."""
    samples: str
    """Path of the list of samples; empty where a message has none."""
    fields: dict[str, Field]
    items: int
    """Samples seen; elements of lists of numbers not counted."""
    documents: int
    discriminator: str = ""
    """Field that says which sensor an object is from."""
    dialect: Dialect | None = None
    """Of CSV text."""

    def numeric(self) -> list[Field]:
        """Fields of numbers in the samples, in order of appearance."""
        return [one for one in self.fields.values() if one.numeric and not one.around]


def observe(topic: str, messages: Sequence[Captured]) -> TopicFields:
    """Look at the messages of one topic.

    Args:
        topic: its name.
        messages: some of its messages, at least one.
    """
    documents = [recognise(topic, message.payload) for message in messages]
    formats = Counter(document.format for document in documents)
    told = Counter({one: n for one, n in formats.items() if one not in _MEANWHILE and n >= _SOME * len(documents)})
    format_, count = (told or formats).most_common(1)[0]
    own = [document for document in documents if document.format == format_]
    samples, dialect = Counter((document.samples, document.dialect) for document in own).most_common(1)[0][0]
    own = [document for document in own if (document.samples, document.dialect) == (samples, dialect)]
    discriminator = discriminator_of(own)
    fields: dict[str, Field] = {}
    items = 0
    for document in own:
        items += len(document.items)
        for item in document.items:
            _count(fields, named(item, discriminator), around=False)
        _count(fields, document.around, around=True)
    return TopicFields(
        topic=topic,
        format=format_,
        others=len(documents) - count,
        samples=samples,
        fields=fields,
        items=items,
        documents=len(own),
        discriminator=discriminator,
        dialect=dialect,
    )


def _count(fields: dict[str, Field], leaves: Iterable[Leaf], *, around: bool) -> None:
    for leaf in leaves:
        one = fields.get(leaf.path)
        if one is None:
            if len(fields) >= MAX_FIELDS:
                continue
            one = fields[leaf.path] = Field(leaf.path, around)
        one.add(leaf.value)
