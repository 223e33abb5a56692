"""Paths into decoded documents: where a value stands.

============================== ======================================================================================
path                           stands for
============================== ======================================================================================
``imu.ax``                     field ``ax`` of the object ``imu``; a field that is called ``imu.ax`` comes first
``imu.accel.0``                first element of a list; of an object, field ``0``, be it a text or a number
``[name=accel].values.x``      ``values.x`` of an object whose field ``name`` is ``accel``; of others, nothing
``sensors[id=3].value``        ``value`` of the one element of a list whose field ``id`` is ``3``
``.``                          the message itself
============================== ======================================================================================

`finder` makes the function that follows a path; codecs for other formats may use it on whatever dictionaries and lists
they parse.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from edge_runtime.errors import InputError

Find = Callable[[Any], Any]

ABSENT: Any = object()
"""Result of a path that leads nowhere, where null has to be told from it."""

_MAX_DEPTH: Final = 8
"""Levels of a document that `paths_of` goes down."""

_CONDITION = re.compile(r"\[([^\[\]=]+)=([^\[\]]*)\]")
_WHOLE = re.compile(r"-?\d{1,9}", re.ASCII)
_Step = str | tuple[Find, str]


def finder(path: str, absent: Any = None) -> Find:
    """Make the function that finds the value at a path.

    Args:
        path: a path of the module's table; empty leads nowhere.
        absent: what the function returns where the path leads nowhere.

    Raises:
        InputError: the function, not this call: several elements of a list fit a condition.
    """
    if not path:
        return lambda _document: absent
    if path == ".":
        return _itself
    if is_field(path):
        return lambda document: document.get(path, absent) if type(document) is dict else absent
    steps = _steps(path)

    def find(document: Any) -> Any:
        found = document[path] if type(document) is dict and path in document else _follow(document, steps)
        return absent if found is ABSENT else found

    return find


def _follow(document: Any, steps: Sequence[_Step]) -> Any:
    for step in steps:
        document = _field(document, step) if type(step) is str else _where(document, *step)
        if document is ABSENT:
            break
    return document


def is_field(path: str) -> bool:
    """Return whether a path is the name of a field and no more; a number may be a place in a list."""
    return "." not in path and not path.lstrip("-").isdecimal() and is_free(path)


def is_free(path: str) -> bool:
    """Return whether a path has no condition."""
    return _CONDITION.search(path) is None


def leading_condition(path: str) -> tuple[str, str, str] | None:
    """Part a path that begins with a condition into its field, the wanted value, and the rest; None for any other.

    >>> leading_condition("[name=accel].values.x"), leading_condition("ax")
    (('name', 'accel', 'values.x'), None)
    """
    match = _CONDITION.match(path)
    return None if match is None else (match[1], match[2], path[match.end() :].strip(".") or ".")


def conditions(wanted: Mapping[str, str]) -> Callable[[Any], bool]:
    """Make the function that tells whether all fields of an object have the wanted values.

    Args:
        wanted: path of a field to its value, as JSON writes it but for the quotes: ``accel``, ``3``, ``true``.
    """
    checks = [(finder(path, ABSENT), text) for path, text in wanted.items()]
    return lambda item: all(spelled(find(item)) == text for find, text in checks)


def spelled(value: Any) -> str | None:
    """Write a single value as JSON does, texts without quotes; None for anything else."""
    if type(value) is str:
        return value
    if type(value) is bool:
        return "true" if value else "false"
    return repr(value) if type(value) in (int, float) else None


def paths_of(document: Any) -> Iterator[str]:
    """Yield the paths of the values in an object, in its order, as `finder` takes them.

    A list of plain values is one value; of a list of objects or lists, the first stands for all.

    >>> list(paths_of({"Time": 1, "MPU6050": {"AccelXAxis": 0.5}, "acc": [1, 2], "sensors": [{"v": 3}]}))
    ['Time', 'MPU6050.AccelXAxis', 'acc', 'sensors.0.v']
    """
    return _paths_below(document, "", 0)


def _paths_below(value: Any, path: str, depth: int) -> Iterator[str]:
    inner: Iterator[tuple[Any, Any]] = iter(())
    if depth < _MAX_DEPTH and type(value) is dict:
        inner = iter(value.items())
    elif depth < _MAX_DEPTH and type(value) is list and value and type(value[0]) in (dict, list):
        inner = iter([(0, value[0])])
    empty = True
    for name, one in inner:
        empty = False
        yield from _paths_below(one, f"{path}.{name}" if path else str(name), depth + 1)
    if empty and path:
        yield path


def _itself(document: Any) -> Any:
    return document


def _steps(path: str) -> list[_Step]:
    steps: list[_Step] = []
    at = 0
    for match in _CONDITION.finditer(path):
        steps += _names(path[at : match.start()])
        steps.append((finder(match[1], ABSENT), match[2]))
        at = match.end()
    return [*steps, *_names(path[at:])]


def _names(text: str) -> list[str]:
    return [name for name in text.split(".") if name]


def _field(document: Any, name: str) -> Any:
    if type(document) is dict:
        found = document.get(name, ABSENT)
        return document.get(int(name), ABSENT) if found is ABSENT and _WHOLE.fullmatch(name) else found
    if type(document) is list and name.isdecimal() and len(name) <= 6 and int(name) < len(document):
        return document[int(name)]
    return ABSENT


def _where(document: Any, find: Find, text: str) -> Any:
    """Return the object, or the one element of a list, whose field has the wanted value."""
    if type(document) is not list:
        return document if spelled(find(document)) == text else ABSENT
    fitting = [item for item in document if spelled(find(item)) == text]
    if len(fitting) > 1:
        raise InputError(
            "malformed", f"{len(fitting)} elements of a list have {text!r}: read them one by one by samples"
        )
    return fitting[0] if fitting else ABSENT
