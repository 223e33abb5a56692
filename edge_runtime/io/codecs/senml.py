"""SenML packs (RFC 8428), JSON and CBOR: one record per number, put together again into samples.

A record's resolved name is base name plus name. Its end says which channel it is, what stands before says whose::

    [{"bn": "urn:dev:mac:0024befffe804ff1:", "bt": 1700000000, "n": "ax", "u": "m/s2", "v": 0.1},
     {"n": "ay", "v": 0.2}, {"n": "ax", "t": 0.02, "v": 0.3}, {"n": "ay", "t": 0.02, "v": 0.4}]

gives key ``urn:dev:mac:0024befffe804ff1`` two samples of the channels ``ax`` and ``ay``. The rules:

1. Base fields hold for all records that follow. Fields whose label ends with an underscore, and versions above 10, are
   refused as section 4.4 demands.
2. Records that name no channel of the model are left out.
3. Values are converted from the unit that a record states to the model's; those without a unit are taken as they are.
   Sums without a value are left out, and a value of a partial sample that cannot be read costs itself alone.
4. Records with the same resolved time make one sample; a channel appears in it once, or not at all in a partial one.
5. A time below 2**28 is relative to the arrival (section 4.5.3).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from edge_runtime import units
from edge_runtime.errors import ConfigError, InputError
from edge_runtime.io.codecs import Notice
from edge_runtime.io.codecs.cbor import load_cbor
from edge_runtime.io.codecs.document_config import NamedConfig
from edge_runtime.io.codecs.gather import Gather, GatherRules
from edge_runtime.io.codecs.json import parse_json
from edge_runtime.io.codecs.numbers import (
    Arrival,
    ArrivalTimes,
    check_key,
    check_stamp,
    matrix,
    single,
)
from edge_runtime.manifest import Channel
from edge_runtime.types import Reading

VERSION = 10
"""Of the format, as RFC 8428 defines it."""

RELATIVE_BELOW_S = 2.0**28

_SEPARATORS = "-:._/"


class _Labels(NamedTuple):
    """Labels of the fields (RFC 8428, tables 1 and 4)."""

    bver: str | int
    bn: str | int
    bt: str | int
    bu: str | int
    bv: str | int
    n: str | int
    u: str | int
    v: str | int
    vs: str | int
    vb: str | int
    s: str | int
    t: str | int
    vd: str | int


_JSON = _Labels("bver", "bn", "bt", "bu", "bv", "n", "u", "v", "vs", "vb", "s", "t", "vd")
_CBOR = _Labels(-1, -2, -3, -4, -5, 0, 1, 2, 3, 4, 5, 6, 8)

# What a pack gathers: for each key, for each time, a value per channel.
_Samples = dict[str, dict[float, list[Any]]]

# Where the values of a name go: the samples of its key, the channel, and the unit that is right for it.
_Place = tuple[dict[float, list[Any]], int, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class SenmlConfig(NamedConfig):
    """Settings of the SenML codec."""

    type: Literal["senml"] = "senml"
    encoding: Literal["json", "cbor"] = "json"
    check_units: bool = True
    """Convert records to the unit of the model's channel, and refuse a unit that does not convert; a record without a
    unit passes. False: take numbers as they are."""


class SenmlCodec:
    """Decodes SenML.

    Args:
        config: how packs are read.
        channels: the model's channels, in order.
        notice: told of values of a partial sample that cannot be read; None: they refuse the message.

    Raises:
        ConfigError: cbor2 is needed and missing, or the channel mapping does not fit the model.
    """

    name = "senml"

    def __init__(self, config: SenmlConfig, channels: Sequence[Channel], notice: Notice | None = None) -> None:
        names = [channel.name for channel in channels]
        if unknown := sorted(set(config.channels) - set(names)):
            raise ConfigError(f"codec senml maps {', '.join(unknown)}; the model's channels are {', '.join(names)}")
        endings = [config.channels.get(name, name) for name in names]
        if len(set(endings)) != len(endings) or not all(endings):
            raise ConfigError(f"codec senml: each channel needs a name ending of its own; got {', '.join(endings)}")
        self._endings = sorted(((ending, i) for i, ending in enumerate(endings)), key=lambda pair: -len(pair[0]))
        self._units = [channel.unit if config.check_units else "" for channel in channels]
        self._rules = GatherRules(names=tuple(names), partial=config.partial, max_samples=config.max_samples)
        self._names = names
        self._notice = notice if config.partial else None
        self._max_bytes = config.max_bytes
        self._max_samples = config.max_samples
        self._labels = _JSON if config.encoding == "json" else _CBOR
        self._parse: Callable[[bytes], Any] = (
            parse_json if config.encoding == "json" else load_cbor(self.name, senml=True)
        )

    def decode(self, key: str, payload: bytes, received: float) -> list[Reading]:
        """See `edge_runtime.io.codecs.Codec`."""
        if len(payload) > self._max_bytes:
            raise InputError("too_large", f"{len(payload)} bytes; at most {self._max_bytes} are allowed in a message")
        pack = self._parse(payload)
        if type(pack) is not list:
            raise InputError("malformed", "a SenML pack is a list of records")
        if not pack:
            raise InputError("empty", "no records in the pack")
        if len(pack) > self._max_samples * len(self._names):
            raise InputError("too_large", f"{len(pack)} records; {self._max_samples} samples are allowed in a message")
        samples, relative = self._gather(pack, received)
        if not samples:
            raise InputError("wrong_channels", f"no record names a channel of {', '.join(self._names[:8])}")
        if key:
            if len(samples) > 1:
                raise InputError("no_key", "the pack holds several devices, the topic names one; take keys from packs")
            samples = {key: next(iter(samples.values()))}
        readings = [one for name, by_time in samples.items() for one in self._readings(check_key(name), by_time)]
        if not relative:
            return readings
        return [
            one._replace(t=Arrival(one.t) if isinstance(one.t, float) else one.t.view(ArrivalTimes)) for one in readings
        ]

    def _gather(self, pack: list[Any], received: float) -> tuple[_Samples, bool]:
        """Gather all values of the pack, by key, time and channel, and say whether all times are relative."""
        labels = self._labels
        name_label, time_label = labels.n, labels.t
        plain = {name_label, time_label, labels.v, labels.u}
        base_name, base_unit, base_time, base_value = "", None, 0.0, 0.0
        has_base_value = False
        n_channels = len(self._names)
        samples: _Samples = {}
        places: dict[Any, _Place | None] = {}  # for the current base name
        refused: list[InputError] = []
        for record in pack:
            if type(record) is not dict:
                raise InputError("malformed", "a SenML record is not an object with fields")
            if not plain.issuperset(record):  # rule 1
                self._check_fields(record)
                base_time = _number(record.get(labels.bt, base_time), "bad_time", "base time")
                base_value = _number(record.get(labels.bv, base_value), "malformed", "base value")
                base_unit = record.get(labels.bu, base_unit)
                has_base_value = has_base_value or labels.bv in record
                if labels.bn in record:
                    base_name = record[labels.bn]
                    places.clear()
            name = record.get(name_label, "")
            try:
                place = places[name]
            except (KeyError, TypeError):  # unseen, or not even hashable
                place = places[name] = self._place(base_name, name, samples)
            if place is None:  # rule 2
                continue
            by_time, channel, _ = place
            base = (base_value if has_base_value else None), base_unit
            value = self._value_or_refusal(record, place, base, refused)
            if value is None:  # rule 3
                continue
            time = record.get(time_label, 0)
            kind = type(time)
            if kind is not float and kind is not int:
                raise InputError("bad_time", "a SenML time is not a number")
            t = base_time + time
            row = by_time.get(t)  # rule 4
            if row is None:
                check_stamp(received + t if t < RELATIVE_BELOW_S else t)  # rule 5
                by_time[t] = row = [None] * n_channels
            elif row[channel] is not None:  # rule 4
                raise InputError("malformed", f"two values for channel {self._names[channel]} at the same time")
            row[channel] = value
        self._tell(refused, samples)
        return _dated(samples, received)

    def _check_fields(self, record: Mapping[Any, Any]) -> None:
        """Check the version, and refuse fields that must be understood."""
        version = record.get(self._labels.bver, VERSION)
        if type(version) is not int or not 0 < version <= VERSION:
            raise InputError("malformed", f"SenML version {str(version)[:20]} is not known here")
        for label in record:
            if type(label) is str and label.endswith("_"):
                raise InputError("malformed", f"SenML field {label[:40]!r} must be understood, and is not")

    def _place(self, base: Any, name: Any, samples: _Samples) -> _Place | None:
        """Return where the values of a name belong; None if it is no channel."""
        if type(base) is not str or type(name) is not str:
            raise InputError("malformed", "a SenML name is not a text")
        full = base + name
        for ending, channel in self._endings:
            before = full[: -len(ending)]
            if full.endswith(ending) and (not before or name == ending or before[-1] in _SEPARATORS):
                return samples.setdefault(before.rstrip(_SEPARATORS), {}), channel, self._units[channel]
        return None

    def _tell(self, refused: Sequence[InputError], samples: _Samples) -> None:
        """Tell of values that were left out, or refuse the message where no other value is in it."""
        for one in refused:
            if self._notice is None or not any(samples.values()):
                raise one
            self._notice("values_refused", f"a value cannot be read, the others of its message are: {one}")

    def _value_or_refusal(
        self, record: Mapping[Any, Any], place: _Place, base: tuple[float | None, Any], refused: list[InputError]
    ) -> float | None:
        """Return the value of a record; of a partial sample, one that cannot be read is left out."""
        try:
            return self._value(record, place, base)
        except InputError as error:
            if self._notice is None:
                raise
            refused.append(error)
            return None

    def _value(self, record: Mapping[Any, Any], place: _Place, base: tuple[float | None, Any]) -> float | None:
        """Return the value of a record in the channel's unit; None where it has none, or NaN in a partial sample."""
        labels = self._labels
        _, channel, wanted = place
        value = record.get(labels.v)
        if value is None and (value := self._absent(record, has_base_value=base[0] is not None)) is None:
            return None
        if type(value) is not float and type(value) is not int:
            raise InputError("not_a_number", "a SenML value is not a number")
        value += base[0] or 0
        unit = record.get(labels.u, base[1])
        if unit is not None and unit != wanted and wanted:
            value = self._convert(value, unit, channel)
        if self._notice is None:
            return value
        value = single(value, f"channel {self._names[channel]}")
        return None if math.isnan(value) else value

    def _absent(self, record: Mapping[Any, Any], *, has_base_value: bool) -> int | None:
        """Return the value of a record without ``v``: none beside a sum, zero on a base value (section 4.5.2)."""
        labels = self._labels
        if labels.v in record or labels.vs in record or labels.vb in record or labels.vd in record:
            raise InputError("not_a_number", "a channel's SenML value is a text, a boolean, data or null, not a number")
        if labels.s in record:
            return None
        if not has_base_value:
            raise InputError("malformed", "a SenML record has neither a value nor a sum")
        return 0

    def _convert(self, value: float, unit: Any, channel: int) -> float:
        try:
            factor, offset = units.convert(unit if type(unit) is str else repr(unit)[:40], self._units[channel])
        except units.UnitError as error:
            raise InputError("wrong_unit", f"channel {self._names[channel]}: {error}") from None
        return value * factor + offset

    def _readings(self, key: str, by_time: dict[float, list[Any]]) -> list[Reading]:
        times = sorted(by_time)
        rows = [by_time[t] for t in times]
        if any(None in row for row in rows):
            gather = Gather(self._rules)
            for t, row in zip(times, rows, strict=True):
                gather.add(key, t, {channel: value for channel, value in enumerate(row) if value is not None})
            return gather.readings(times[-1])
        values = matrix(rows, len(self._names), self._max_samples, scan=False)
        return [Reading(key, times[0] if len(times) == 1 else np.array(times, np.float64), values, 0.0)]


def _dated(samples: _Samples, received: float) -> tuple[_Samples, bool]:
    """Return samples with whole stamps, and whether all were relative to the arrival."""
    relative = all(t < RELATIVE_BELOW_S for by_time in samples.values() for t in by_time)
    return {
        key: {received + t if t < RELATIVE_BELOW_S else float(t): row for t, row in by_time.items()}
        for key, by_time in samples.items()
        if by_time
    }, relative


def _number(value: Any, reason: str, what: str) -> float:
    if type(value) is float or type(value) is int:
        return value
    raise InputError(reason, f"the SenML {what} is not a number")
