"""Sparkplug B payloads (NBIRTH, NDATA, DBIRTH, DDATA), read without the protobuf library.

A metric is a channel. A birth gives each metric its name, an alias and a data type; the data messages that follow may
name the alias alone. So this codec has a memory, of births only: without it, a message would say "3 is 0.5".
Aliases belong to one edge node or device, therefore to one key::

    topics = ["spBv1.0/plant/DBIRTH/+/+", "spBv1.0/plant/DDATA/+/+"]
    key = "{1}/{3}/{4}"

Rules:

1. A metric with a name binds its alias, data type and unit (property ``engUnit``), whatever message it comes in.
2. Metrics with the same time make one sample. A metric without a time has its payload's, or else the arrival's.
3. A metric that is null is missing, with `SparkplugConfig.partial` also one that is NaN. One that is historical is a
   sample like any other, at its own time.
4. A whole number needs its data type, by which the sign is told; a data message takes it from the birth.
   A unit that the birth gave is converted to the model's; where `SparkplugConfig.units` states one, that holds.
5. A data message of a key whose birth was not seen is refused as ``no_birth``; the edge node sends births when a host
   writes true to its metric ``Node Control/Rebirth``.

(https://sparkplug.eclipse.org/specification/, chapter 6; sparkplug_b.proto of Eclipse Tahu.)
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from edge_runtime import units
from edge_runtime.base.system import protobuf
from edge_runtime.errors import ConfigError, InputError
from edge_runtime.io.codecs import Notice
from edge_runtime.io.codecs.gather import Gather, GatherRules
from edge_runtime.io.codecs.numbers import MAX_BYTES, MAX_SAMPLES, check_key, single
from edge_runtime.key_table import KeyTable
from edge_runtime.manifest import Channel
from edge_runtime.types import Reading

# Fields of Payload.
_PAYLOAD_TIME, _METRICS = 1, 2
# Fields of Payload.Metric.
_NAME, _ALIAS, _TIME, _DATATYPE, _IS_NULL, _PROPERTIES = 1, 2, 3, 4, 7, 9
_INT, _LONG, _FLOAT, _DOUBLE, _BOOLEAN = 10, 11, 12, 13, 14
_FLOATS = {(_FLOAT, protobuf.FIXED32): "<f", (_DOUBLE, protobuf.FIXED64): "<d"}
_OTHER_VALUES = {15: "a text", 16: "bytes or an array", 17: "a data set", 18: "a template", 19: "an extension"}

_SIGNED_BITS = {1: 8, 2: 16, 3: 32, 4: 64}
"""Data types Int8 to Int64: bits of the number, which may come with its sign extended."""
_UNSIGNED = (5, 6, 7, 8)

_UNIT = b"engUnit"
"""Property that names a metric's unit; not in the specification, but what Ignition and others write."""
_STRING = 8
"""Field of a PropertyValue."""

MAX_METRICS = 4096
"""In one payload; a larger birth comes of no device that this runs on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkplugConfig:
    """Settings of the Sparkplug B codec."""

    type: Literal["sparkplug"] = "sparkplug"
    channels: dict[str, str] = field(default_factory=dict)
    """Channel name of the model to its name in the message; channels left out are called as in the model."""
    partial: bool = False
    """A sample may lack channels; other messages or sources bring them."""
    units: dict[str, str] = field(default_factory=dict)
    """Channel name of the model to the unit in which its numbers come; without, as births say."""
    max_keys: int = 4096
    """Edge nodes and devices whose births are remembered; past it, the one silent for longest is forgotten."""
    max_bytes: int = MAX_BYTES
    max_samples: int = MAX_SAMPLES

    def __post_init__(self) -> None:
        if self.max_bytes < 1 or self.max_samples < 1 or self.max_keys < 1:
            raise ValueError("max_bytes, max_samples and max_keys must be at least 1")


class Metric(NamedTuple):
    """A metric as it came; None where a field is missing."""

    name: str | None
    alias: int | None
    time_ms: int | None
    datatype: int | None
    is_null: bool
    properties: memoryview | None
    value: tuple[int, int, int | memoryview] | None
    """Field number, wire type and content."""


class _Birth:
    """Memory of one key; of its metrics, those that are channels."""

    __slots__ = ("aliases", "datatypes", "has_aliases", "scales")

    def __init__(self) -> None:
        self.has_aliases = False
        self.aliases: dict[int, int] = {}
        """Alias to channel."""
        self.datatypes: dict[int, int] = {}
        """Channel to data type."""
        self.scales: dict[int, tuple[float, float]] = {}
        """Channel to factor and offset of its unit."""


class SparkplugCodec:
    """Decodes Sparkplug B.

    Args:
        config: the metrics that are meant.
        channels: the model's channels, in order.
        notice: callback, as in `edge_runtime.io.codecs.fields.FieldReader`.

    Raises:
        ConfigError: the mapping of channels does not fit the model.
    """

    name = "sparkplug"

    def __init__(self, config: SparkplugConfig, channels: Sequence[Channel], notice: Notice | None = None) -> None:
        names = tuple(channel.name for channel in channels)
        if unknown := sorted(set(config.channels) - set(names)):
            raise ConfigError(f"codec sparkplug maps {', '.join(unknown)}; the model's channels are {', '.join(names)}")
        self._metrics = {config.channels.get(name, name): i for i, name in enumerate(names)}
        if len(self._metrics) != len(names):
            raise ConfigError("codec sparkplug: each channel needs a metric of its own")
        self._names = names
        # What the configuration states is converted around this codec, and says more than a birth.
        self._units = [None if channel.name in config.units else channel.unit for channel in channels]
        self._max_bytes = config.max_bytes
        self._rules = GatherRules(names=names, partial=config.partial, max_samples=config.max_samples, notice=notice)
        self._births: KeyTable[str, _Birth] = KeyTable(config.max_keys)

    def decode(self, key: str, payload: bytes, received: float) -> list[Reading]:
        """See `edge_runtime.io.codecs.Codec`; reason ``no_birth`` besides."""
        if len(payload) > self._max_bytes:
            raise InputError("too_large", f"{len(payload)} bytes; at most {self._max_bytes} are allowed in a message")
        key = check_key(key or None)
        payload_ms, metrics = parse_metrics(payload)
        if not metrics:
            raise InputError("empty", "no metrics in the message")
        gather = Gather(self._rules)
        for metric in metrics:
            self._take(gather, key, metric, payload_ms if metric.time_ms is None else metric.time_ms)  # rule 2
        return gather.readings(received)

    def _take(self, gather: Gather, key: str, metric: Metric, time_ms: int | None) -> None:
        """Take the number of a metric, if it has one and is a channel's (rule 3)."""
        birth = self._birth(key, metric)
        channel = self._channel(metric, birth)
        if channel is None or metric.value is None or metric.is_null:
            return
        try:
            number = self._number(channel, metric.value, metric.datatype, birth)
        except InputError as error:
            gather.refuse(error)
            return
        if not (self._rules.partial and math.isnan(number)):
            gather.add(key, None if time_ms is None else time_ms / 1e3, {channel: number})

    def _birth(self, key: str, metric: Metric) -> _Birth | None:
        """Return what births of the key said, this metric included (rule 1); None if there was none."""
        birth = self._births.touch(key)
        if metric.name is not None and (metric.alias is not None or metric.datatype):
            birth = self._births.get_or_make(key, _Birth)
            self._bind(birth, metric.name, metric)
        return birth

    def _bind(self, birth: _Birth, name: str, metric: Metric) -> None:
        """Remember what a birth says of a metric; an alias that went to another metric is forgotten."""
        channel = self._metrics.get(name)
        if metric.alias is not None:
            birth.has_aliases = True
            birth.aliases.pop(metric.alias, None)
        if channel is None:
            return
        if metric.alias is not None:
            birth.aliases = {alias: bound for alias, bound in birth.aliases.items() if bound != channel}
            birth.aliases[metric.alias] = channel
        if metric.datatype:
            birth.datatypes[channel] = metric.datatype
        if metric.properties is not None:
            birth.scales[channel] = self._scale(channel, metric.properties)

    def _scale(self, channel: int, properties: memoryview) -> tuple[float, float]:
        """Return factor and offset from the unit among a metric's properties to the model's; rule 4."""
        wanted, given = self._units[channel], _unit(properties)
        if not given or not wanted:
            return 1.0, 0.0
        try:
            return units.convert(given, wanted)
        except units.UnitError as error:
            name = self._names[channel]
            raise InputError(
                "wrong_unit",
                f"channel {name!r} comes in {given[:20]!r}, the model wants {wanted!r}: {error}; "
                f"if the birth is wrong, write {units.line([(name, wanted)])} under [source.codec]",
            ) from None

    def _channel(self, metric: Metric, birth: _Birth | None) -> int | None:
        """Return the channel of a metric; None if it is none."""
        if metric.name is not None:
            return self._metrics.get(metric.name)
        if metric.alias is None:
            raise InputError("malformed", "a metric has neither a name nor an alias")
        if birth is None or not birth.has_aliases:  # rule 5
            raise InputError("no_birth", f"alias {metric.alias} has no name: the birth of this key was not seen")
        return birth.aliases.get(metric.alias)

    def _number(
        self, channel: int, value: tuple[int, int, int | memoryview], datatype: int | None, birth: _Birth | None
    ) -> float:
        """Return the number in a value, in the model's unit; rule 4."""
        known = birth.datatypes.get(channel) if birth else None
        number = _plain_number(f"the metric of channel {self._names[channel]!r}", value, datatype or known)
        factor, offset = (1.0, 0.0) if birth is None else birth.scales.get(channel, (1.0, 0.0))
        return single(number * factor + offset, f"the metric of channel {self._names[channel]!r}")


def _plain_number(where: str, value: tuple[int, int, int | memoryview], datatype: int | None) -> float:
    number, wire, content = value
    if (code := _FLOATS.get((number, wire))) and isinstance(content, memoryview):
        return float(struct.unpack(code, content)[0])
    if number in (_INT, _LONG) and isinstance(content, int):
        if datatype in _UNSIGNED:
            return float(content)
        if datatype in _SIGNED_BITS:
            bits = _SIGNED_BITS[datatype]
            content &= (1 << bits) - 1
            return float(content - (1 << bits) if content >> (bits - 1) else content)
        raise InputError("no_birth", f"{where} is a whole number without a data type, which only births bring")
    if number == _BOOLEAN and isinstance(content, int):
        return float(content != 0)
    raise InputError("not_a_number", f"{where} holds {_OTHER_VALUES.get(number, 'damaged bytes')}, not a number")


def parse_metrics(payload: bytes) -> tuple[int | None, list[Metric]]:
    """Parse a payload.

    Returns:
        Its time in milliseconds since 1970, if it has one, and its metrics.

    Raises:
        InputError: ``malformed`` or ``too_large``.
    """
    time_ms: int | None = None
    metrics: list[Metric] = []
    try:
        for number, _, value in protobuf.fields(memoryview(payload)):
            if number == _PAYLOAD_TIME and isinstance(value, int):
                time_ms = value
            elif number == _METRICS and isinstance(value, memoryview):
                if len(metrics) == MAX_METRICS:
                    raise InputError("too_large", f"more than {MAX_METRICS} metrics in a message")
                metrics.append(_metric(value))
    except ValueError as error:
        raise InputError("malformed", f"not a Sparkplug B payload: {error}") from None
    return time_ms, metrics


def _metric(view: memoryview) -> Metric:
    name, numbers, properties, content = None, dict[int, int](), None, None
    for number, wire, value in protobuf.fields(view):
        if number == _NAME and isinstance(value, memoryview):
            name = str(value, "utf-8", "surrogateescape")
        elif number in (_ALIAS, _TIME, _DATATYPE, _IS_NULL) and isinstance(value, int):
            numbers[number] = value
        elif number == _PROPERTIES and isinstance(value, memoryview):
            properties = value
        elif _INT <= number <= max(_OTHER_VALUES):
            content = (number, wire, value)
    get = numbers.get
    return Metric(name, get(_ALIAS), get(_TIME), get(_DATATYPE), bool(get(_IS_NULL)), properties, content)


def _unit(properties: memoryview) -> str:
    """Return the property ``engUnit`` of a PropertySet; empty where there is none."""
    keys: list[bytes] = []
    values: list[memoryview] = []
    try:
        for number, _, value in protobuf.fields(properties):
            if isinstance(value, memoryview) and number == 1:
                keys.append(bytes(value))
            elif isinstance(value, memoryview):
                values.append(value)
        if _UNIT not in keys or len(keys) != len(values):
            return ""
        texts = [value for number, _, value in protobuf.fields(values[keys.index(_UNIT)]) if number == _STRING]
        return str(texts[0], "utf-8", "replace") if texts and isinstance(texts[0], memoryview) else ""
    except ValueError as error:
        raise InputError("malformed", f"not a Sparkplug B payload: {error}") from None
