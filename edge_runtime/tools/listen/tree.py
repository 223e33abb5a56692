"""Values of a decoded document by their paths, as codecs take them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import islice
from typing import Any, Final, NamedTuple

from edge_runtime.errors import InputError
from edge_runtime.io.codecs.numbers import TypedArray, numbers

MAX_LEAVES: Final = 512
"""Values of one message, or of one sample in it, that are looked at."""
MAX_NUMBERS: Final = 65_536
"""Numbers of one list."""
MAX_SAMPLES: Final = 64
"""Samples of one message that are looked at."""
MAX_DEPTH: Final = 12
MAX_TEXT: Final = 64
_SHORT: Final = 16
"""Elements of a list that may be fields of their own."""
NUMBER: Final = re.compile(r"\s*[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?\s*$")
_NAME_END: Final = re.compile(r"(?:(.*)[-:._/])?([^-:._/]+)$", re.DOTALL)
"""Device and channel in the name of a SenML record."""
_SENML_LABELS: Final = {-2: "bn", 0: "n", 2: "v"}


class Leaf(NamedTuple):
    """A value in a document."""

    path: str
    """Dotted, as `edge_runtime.io.codecs.paths` says; in a list of samples, from the sample on."""
    value: Any
    """A number, text, truth value or None; or a list of numbers, or of rows of numbers."""


Leaves = tuple[Leaf, ...]


def leaves_of(value: Any) -> Leaves:
    """Flatten a decoded document; at most `MAX_LEAVES` values, in the document's order."""
    return tuple(islice(_below(value, "", 0), MAX_LEAVES))


def is_samples(value: Any) -> bool:
    """Return whether a value is a list of objects."""
    return type(value) is list and bool(value) and all(type(item) is dict for item in value[:8])


def samples_of(values: list[Any]) -> tuple[Leaves, ...]:
    """Flatten objects of a list, `MAX_SAMPLES` of them from all over a long one."""
    step = -(-len(values) // MAX_SAMPLES)
    return tuple(leaves_of(item) for item in values[:: max(1, step)] if type(item) is dict)


def is_number(value: Any) -> bool:
    """Return whether a value is a number; true and false are none."""
    return type(value) is float or type(value) is int


def plain(text: str) -> float | str:
    """Return the number that a text is, or the beginning of the text."""
    return float(text) if NUMBER.match(text) else text.strip()[:MAX_TEXT]


def _below(value: Any, path: str, depth: int) -> Iterator[Leaf]:
    """Yield the values below a path."""
    if depth > MAX_DEPTH:
        return
    if type(value) is dict:
        for name, inner in value.items():
            if type(name) is str and len(name) <= 128:
                yield from _below(inner, f"{path}.{name}" if path else name, depth + 1)
    elif type(value) is list:
        yield from _in_list(value, path, depth)
    elif type(value) is str:
        yield Leaf(path, value[:MAX_TEXT])
    elif type(value) in (bytes, TypedArray):
        with suppress(InputError):  # as the codecs read them
            yield Leaf(path, numbers(value, "a field")[:MAX_NUMBERS].tolist())
    elif value is None or type(value) is bool or is_number(value):
        yield Leaf(path, value)


def _in_list(value: list[Any], path: str, depth: int) -> Iterator[Leaf]:
    """Yield a list of numbers or of rows as a whole; of other lists, the elements."""
    if (value and all(map(is_number, value))) or _are_rows(value):
        yield Leaf(path, value[:MAX_NUMBERS])
    else:
        for i, item in enumerate(value[:_SHORT]):
            yield from _below(item, f"{path}.{i}" if path else str(i), depth + 1)


def _are_rows(value: list[Any]) -> bool:
    """Return whether a list holds rows of as many numbers each."""
    if not value or not all(type(item) is list for item in value) or len(set(map(len, value))) != 1:
        return False
    return bool(value[0]) and all(is_number(cell) for item in value[:MAX_SAMPLES] for cell in item)


def senml_leaves(records: Iterable[Any]) -> Leaves:
    """Values of a SenML pack by the ends of their names, with each one's device as ``bn``; none where it is no pack."""
    leaves: list[Leaf] = []
    base = ""
    for record in islice(records, MAX_LEAVES):
        named = _senml_fields(record)
        if not named.keys() & {"n", "bn"}:
            return ()
        base = named["bn"] if type(named.get("bn")) is str else base
        if (parts := _NAME_END.match(base + str(named.get("n", "")))) is not None:
            value = named.get("v")
            leaves += [Leaf("bn", parts[1] or ""), Leaf(parts[2], value if is_number(value) else None)]
    return tuple(leaves) if any(is_number(leaf.value) for leaf in leaves) else ()


def _senml_fields(record: Any) -> dict[Any, Any]:
    """Fields of a record by their labels in JSON, also of one in CBOR."""
    if type(record) is not dict:
        return {}
    return {_SENML_LABELS.get(label, label) if type(label) is int else label: value for label, value in record.items()}
