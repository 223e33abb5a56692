"""Sparkplug B payloads, written without the protobuf library.

(Eclipse Sparkplug 3.0, chapter 6; sparkplug_b.proto of Eclipse Tahu. `edge_runtime.io.codecs.sparkplug` reads them.)
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from edge_runtime.base.system.protobuf import block, double, uint

INT64: Final = 4
DOUBLE: Final = 10
BOOLEAN: Final = 11
STRING: Final = 12

Value = float | bool | int | str | None

REBIRTH: Final = "Node Control/Rebirth"
BD_SEQ: Final = "bdSeq"

# Fields of Payload.
_PAYLOAD_TIME, _METRICS, _SEQ = 1, 2, 3
# Fields of Payload.Metric.
_NAME, _ALIAS, _TIME, _DATATYPE, _IS_HISTORICAL, _IS_NULL, _PROPERTIES = 1, 2, 3, 4, 5, 7, 9
_LONG, _DOUBLE, _BOOLEAN, _STRING = 11, 13, 14, 15
# Fields of PropertySet and PropertyValue.
_KEYS, _VALUES, _TYPE, _STRING_VALUE = 1, 2, 1, 8


class Definition(NamedTuple):
    """Name, type and unit of a metric, which a birth states once; data name its alias alone."""

    name: str
    datatype: int
    unit: str = ""
    """Property ``engUnit``, as Ignition and others read it; empty: none."""


def birth_metric(definition: Definition, value: Value, time_ms: int, alias: int | None) -> bytes:
    """Encode a metric of a birth: name, alias, time, type, properties, and the value, or that there is none."""
    parts = [block(_NAME, _text(definition.name))]
    if alias is not None:
        parts.append(uint(_ALIAS, alias))
    parts += [uint(_TIME, time_ms), uint(_DATATYPE, definition.datatype)]
    if definition.unit:
        unit = uint(_TYPE, STRING) + block(_STRING_VALUE, _text(definition.unit))
        parts.append(block(_PROPERTIES, block(_KEYS, b"engUnit") + block(_VALUES, unit)))
    return b"".join([*parts, _value(definition.datatype, value)])


def data_metric(alias: int, datatype: int, value: Value, time_ms: int, *, historical: bool = False) -> bytes:
    """Encode a metric of a data message: alias, time and value."""
    flag = uint(_IS_HISTORICAL, 1) if historical else b""
    return uint(_ALIAS, alias) + uint(_TIME, time_ms) + flag + _value(datatype, value)


def payload(metrics: Iterable[bytes], time_ms: int, seq: int | None) -> bytes:
    """Encode a payload; `seq` is None in an NDEATH alone."""
    body = uint(_PAYLOAD_TIME, time_ms) + b"".join([block(_METRICS, metric) for metric in metrics])
    return body if seq is None else body + uint(_SEQ, seq)


def death(bd_seq: int, time_ms: int) -> bytes:
    """Encode an NDEATH: the number of the birth that it ends, and nothing else."""
    return payload([birth_metric(Definition(BD_SEQ, INT64), bd_seq, time_ms, None)], time_ms, None)


def milliseconds(seconds: float) -> int:
    """Return a time as payloads have it; none is before 1970."""
    return max(0, int(seconds * 1000 + 0.5))


def _value(datatype: int, value: Value) -> bytes:
    if value is None:
        return uint(_IS_NULL, 1)
    if datatype == DOUBLE:
        return double(_DOUBLE, float(value))
    if datatype == BOOLEAN:
        return uint(_BOOLEAN, int(bool(value)))
    if datatype == INT64:
        return uint(_LONG, int(value))
    return block(_STRING, _text(str(value)))


def _text(text: str) -> bytes:
    """Encode UTF-8; half a surrogate pair, which keys and labels may hold, has no place in it."""
    return text.encode("utf-8", "replace")
