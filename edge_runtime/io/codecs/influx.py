r"""InfluxDB line protocol, as Telegraf and many gateways write it: one line per time, tags, and fields.

::

    climate,host=attic,room=north temperature=27.25,humidity=44i 1700000000000000000

Fields are channels; lines with the same time and key make one sample (`edge_runtime.io.codecs.gather`). Fields that
name no channel are left out. The stamp may be missing: then the line counts as taken on arrival. Names escape comma,
equals sign and space by a backslash, texts in double quotes escape the quote and the backslash; a text may hold line
ends. (https://docs.influxdata.com/influxdb/v2/reference/syntax/line-protocol/)
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from edge_runtime.errors import ConfigError, InputError
from edge_runtime.io.codecs import Notice
from edge_runtime.io.codecs.document_config import NamedConfig
from edge_runtime.io.codecs.gather import Gather, GatherRules
from edge_runtime.io.codecs.json import as_text
from edge_runtime.io.codecs.numbers import MAX_LINES, UNITS_PER_S, check_key, single
from edge_runtime.types import Reading

_NAME = re.compile(r"(?:[^\\,= \n]|\\[^\n])+")
_VALUE = re.compile(r'"(?:[^"\\]|\\.)*"|[^", \n]+', re.DOTALL)
_NUMBER = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,4})?)([iu]?)", re.ASCII)
_STAMP = re.compile(r" +(-?\d{1,40}) *(?:\r?\n|\Z)", re.ASCII)
_END = re.compile(r" *(?:\r?\n|\Z)")
_SKIPPED = re.compile(r"[ \r\t]*(?:#[^\n]*)?(?:\n|\Z)")
_ESCAPED = re.compile(r"\\([,= ])")
_BOOLEANS = dict.fromkeys(("t", "T", "true", "True", "TRUE"), 1.0) | dict.fromkeys(
    ("f", "F", "false", "False", "FALSE"), 0.0
)

MAX_SHOWN = 40
"""Characters of a line that an error shows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InfluxConfig(NamedConfig):
    """Settings of the line protocol codec."""

    type: Literal["influx"] = "influx"
    measurement: str = ""
    """Only lines of this measurement are read; empty: all."""
    select: dict[str, str] = field(default_factory=dict)
    """Only lines whose tags have these values are read, as ``{sensor = "bme280"}``."""
    key: str = "host"
    """Column or tag of the key; read only where the topic gives none."""
    units: dict[str, str] = field(default_factory=dict)
    """Channel name of the model to the unit in which its numbers come; they are converted to the model's."""
    time_unit: Literal["s", "ms", "us", "ns"] = "ns"
    """Unit of the stamps since 1970; the protocol calls it precision."""
    max_samples: int = MAX_LINES


class InfluxLine(NamedTuple):
    """One line, names unescaped."""

    measurement: str
    tags: Mapping[str, str]
    fields: Mapping[str, str]
    """Values as they are written."""
    stamp: int | None


class InfluxCodec:
    """Decodes line protocol.

    Args:
        config: the lines and fields that are meant.
        names: the model's channels, in order.
        rate_hz: the model's own rate, by which lines without a stamp are dated back; 0 where unknown.
        notice: callback, as in `edge_runtime.io.codecs.fields.FieldReader`.

    Raises:
        ConfigError: the mapping of channels does not fit the model.
    """

    name = "influx"

    def __init__(
        self, config: InfluxConfig, names: Sequence[str], rate_hz: float = 0.0, notice: Notice | None = None
    ) -> None:
        if unknown := sorted(set(config.channels) - set(names)):
            raise ConfigError(f"codec influx maps {', '.join(unknown)}; the model's channels are {', '.join(names)}")
        self._fields = {config.channels.get(name, name): i for i, name in enumerate(names)}
        if len(self._fields) != len(names):
            raise ConfigError("codec influx: each channel needs a field of its own")
        self._config = config
        self._per_s = UNITS_PER_S[config.time_unit]
        self._rules = GatherRules(
            names=tuple(names),
            partial=config.partial,
            notice=notice,
            max_samples=config.max_samples,
            arrival_period_s=1 / rate_hz if rate_hz else 0.0,
        )

    def decode(self, key: str, payload: bytes, received: float) -> list[Reading]:
        """See `edge_runtime.io.codecs.Codec`."""
        config = self._config
        if len(payload) > config.max_bytes:
            raise InputError("too_large", f"{len(payload)} bytes; at most {config.max_bytes} are allowed in a message")
        lines = parse_lines(as_text(payload), config.max_samples)
        if not lines:
            raise InputError("empty", "no lines in the message")
        gather = Gather(self._rules)
        for line in lines:
            if config.measurement in ("", line.measurement) and line.tags.items() >= config.select.items():
                self._take(gather, key, line)
        return gather.readings(received)

    def _take(self, gather: Gather, key: str, line: InfluxLine) -> None:
        """Take the fields of a line that are channels."""
        found: dict[int, float] = {}
        for name, at in self._fields.items():
            if name not in line.fields:
                continue
            try:
                found[at] = _number(line.fields[name], name)
            except InputError as error:
                gather.refuse(error)
        if found:
            t = None if line.stamp is None else line.stamp / self._per_s
            gather.add(key or check_key(line.tags.get(self._config.key)), t, found)


def _number(value: str, name: str) -> float:
    if value in _BOOLEANS:
        return _BOOLEANS[value]
    match = _NUMBER.fullmatch(value)
    if match is None:
        if value.lower() in ("nan", "inf", "+inf", "-inf"):
            raise InputError("not_finite", f"field {name[:MAX_SHOWN]!r} is {value}")
        raise InputError("not_a_number", f"field {name[:MAX_SHOWN]!r} is {value[:MAX_SHOWN]!r}, not a number")
    return single(match[1], f"field {name[:MAX_SHOWN]!r}")


def parse_lines(text: str, most: int) -> list[InfluxLine]:
    """Parse the lines of a message, at most `most`; empty ones and comments are left out.

    Raises:
        InputError: ``malformed``, ``too_large``.
    """
    lines: list[InfluxLine] = []
    place = _skip(text, 0)
    while place < len(text):
        if len(lines) == most:
            raise InputError("too_large", f"more than {most} lines; at most {most} are allowed in a message")
        line, place = _line(text, place)
        lines.append(line)
        place = _skip(text, place)
    return lines


def _skip(text: str, place: int) -> int:
    """Return the place after empty lines and comments."""
    while place < len(text) and (match := _SKIPPED.match(text, place)):
        place = match.end()
    return place


def _line(text: str, start: int) -> tuple[InfluxLine, int]:
    """Read one line; return it, and the place where the next one begins."""
    measurement, place = _name(text, start, start)
    tags: dict[str, str] = {}
    while text[place : place + 1] == ",":
        tag, place = _name(text, place + 1, start)
        if text[place : place + 1] != "=":
            raise _malformed(text, start)
        tags[tag], place = _name(text, place + 1, start)
    fields: dict[str, str] = {}
    separator = " "
    while text[place : place + 1] == separator:
        while separator == " " and text[place + 1 : place + 2] == " ":
            place += 1
        name, place = _name(text, place + 1, start)
        value = _VALUE.match(text, place + 1)
        if text[place : place + 1] != "=" or value is None:
            raise _malformed(text, start)
        fields[name], place = value[0], value.end()
        separator = ","
    stamp = _STAMP.match(text, place)
    end = stamp or _END.match(text, place)
    if not fields or end is None:
        raise _malformed(text, start)
    return InfluxLine(measurement, tags, fields, int(stamp[1]) if stamp else None), end.end()


def _name(text: str, place: int, start: int) -> tuple[str, int]:
    match = _NAME.match(text, place)
    if match is None:
        raise _malformed(text, start)
    return _ESCAPED.sub(r"\1", match[0]), match.end()


def _malformed(text: str, start: int) -> InputError:
    shown = text[start : start + MAX_SHOWN].splitlines()
    return InputError(
        "malformed", f"not line protocol (measurement,tag=text field=1.5 stamp): {shown[0] if shown else ''!r}"
    )
