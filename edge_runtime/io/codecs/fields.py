"""Field reader: documents of any shape, read value by value.

It knows all that `DocumentConfig` can say: some of the channels, lists of several sensors, numbers as texts, words,
missing marks, packed blocks, and a bare number as the whole message. `edge_runtime.io.codecs.document` reads plain
numbers of all channels itself, in a fraction of the time, and comes here with everything else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from edge_runtime.errors import InputError
from edge_runtime.io.codecs import Notice
from edge_runtime.io.codecs.cells import Cells
from edge_runtime.io.codecs.document_config import DEFAULT_TIME, DocumentConfig
from edge_runtime.io.codecs.gather import Gather, GatherRules
from edge_runtime.io.codecs.numbers import TypedArray, check_key, matrix, numbers, stamps
from edge_runtime.io.codecs.paths import ABSENT, Find, conditions, finder, is_free, leading_condition, paths_of, spelled
from edge_runtime.types import Float64, Reading

_Field = tuple[int, str, Find]
"""Channel, path for messages, and the function that follows it."""


class _Part(NamedTuple):
    """Part of a message that is read on its own: all of it, or an element of its samples."""

    item: Any
    around: Any
    """The whole message."""
    key: str
    """From the topic, or empty."""
    owner: Any
    """Name of the field in which the part stands, where that is the key; None elsewhere."""
    time: Any
    """Stamp or stamps as they stand there; None where the part has none."""


class FieldReader:
    """Makes readings of decoded documents, value by value.

    Args:
        config: paths of values, stamps and keys.
        names: the model's channels, in order.
        rate_hz: the model's own rate; 0 where unknown.
        notice: told of messages that lack the default time field, which then count as taken on arrival; None: such a
            message is refused.

    Raises:
        ConfigError: `config` does not fit the model's channels.
    """

    def __init__(
        self,
        config: DocumentConfig,
        names: Sequence[str],
        rate_hz: float = 0.0,
        *,
        notice: Notice | None = None,
    ) -> None:
        fields = config.fields(names)
        self._config = config
        self._free, self._keyed = _by_condition(fields, names)
        self._fields = [
            (i, fields[name], finder(fields[name], ABSENT)) for i, name in enumerate(names) if name in fields
        ]
        self._order = _columns(config.order, names)
        self._width = len(config.order) or len(names)
        # Elements of a list may belong to sensors of other channels, or of none.
        self._may_lack = bool(config.samples) and (config.partial or not all(map(is_free, fields.values())))
        self._selected = conditions(config.select)
        self._by_owner = config.samples.endswith("*")
        self._samples = finder(config.samples[:-1].strip(".") or "." if self._by_owner else config.samples)
        self._time = finder(config.time)
        self._key = finder(config.key)
        self._values = finder(config.values, ABSENT)
        stated = config.stated_units(names)
        by_channel = {i: stated[name] for i, name in enumerate(names) if name in stated}
        self._cells = Cells(config.words, config.missing, by_channel, config.decimal)
        self._notice = notice
        period_s = 1 / config.rate_hz if config.rate_hz else 0.0
        self._rules = GatherRules(
            names=tuple(f"{name} (field {fields[name]!r})" if name in fields else name for name in names),
            partial=config.partial,
            notice=notice,
            max_samples=config.max_samples,
            period_s=period_s,
            arrival_period_s=period_s or (1 / rate_hz if rate_hz else 0.0),
        )

    def read(self, document: Any, key: str, received: float, *, scan: bool) -> list[Reading]:
        """Read one document.

        Args:
            document: the message as the format's library returned it.
            key: the topic's key, or empty.
            received: wall-clock seconds of arrival.
            scan: whether to look for booleans, as in `numbers.matrix`.

        Returns:
            Readings; none where `DocumentConfig.select` passes over the message, or all its values are missing.

        Raises:
            InputError: whatever is wrong with it.
        """
        gather = Gather(self._rules)
        take = self._take_fields if self._fields else self._take_values
        for part in self._parts(document, key):
            if self._selected(part.item):
                take(gather, part, scan=scan)
        return gather.readings(received)

    def _parts(self, document: Any, key: str) -> list[_Part]:
        if not self._config.samples:
            return [_Part(document, document, key, None, self._time(document))]
        items = self._items(document)
        times = self._time(document)
        if type(times) is not list or len(times) != len(items):
            times = [None] * len(items)  # one stamp for all is seen to later
        return [
            _Part(item, document, key, owner, time if own is None else own)
            for (owner, item), time, own in zip(items, times, [self._time(item) for _, item in items], strict=True)
        ]

    def _items(self, document: Any) -> list[tuple[Any, Any]]:
        """Return the elements of the samples, with the field's name where that is the key."""
        found = self._samples(document)
        by_owner: dict[Any, Any] = found if self._by_owner else {None: found}
        if type(found) is not (dict if self._by_owner else list):
            raise InputError("malformed", f"the list of samples, field {self._config.samples!r}, is missing")
        items = [(owner, item) for owner, some in by_owner.items() for item in (some if type(some) is list else [some])]
        if not items:
            raise InputError("empty", "no samples in the message")
        return items

    def _name(self, part: _Part) -> str:
        """Return the key: the topic's, the field's, or the one that stands in the part or around it."""
        if part.key:
            return part.key
        if part.owner is not None:
            return check_key(part.owner)
        found = self._key(part.item)
        return check_key(self._key(part.around) if found is None else found)

    # -- a field for each channel -------------------------------------------------------------------------------------

    def _take_fields(self, gather: Gather, part: _Part, *, scan: bool) -> None:
        found: dict[int, float] = {}
        columns: dict[int, list[Any]] = {}
        absent = 0
        candidates = self._candidates(part.item)
        for channel, path, find in candidates:
            value = find(part.item)
            try:
                if value is ABSENT:
                    absent += 1
                elif (column := self._column(value)) is not None:
                    columns[channel] = column
                elif (number := self._cells.number(value, channel, f"field {path!r}")) is not None:
                    found[channel] = number
            except InputError as error:
                gather.refuse(error)
        if absent == len(candidates):
            self._check_strange(part.item)
        elif columns:
            if found or len(set(map(len, columns.values()))) > 1:
                raise InputError("wrong_channels", "the channels' fields are not all numbers, nor equally long lists")
            self._add_columns(gather, part, columns, scan=scan)
        elif found:
            gather.add(self._name(part), self._stamp(gather, part), found)

    def _candidates(self, item: Any) -> list[_Field]:
        """Return the fields that an item may have, by the conditions that their paths begin with."""
        if not self._keyed or type(item) is not dict:
            return self._fields
        keyed = [one for find, by_text in self._keyed for one in by_text.get(spelled(find(item)), ())]
        return self._free + keyed

    def _check_strange(self, item: Any) -> None:
        """Refuse an item with none of the fields, unless it is of a list that may hold others."""
        if type(item) is not dict:
            raise InputError("malformed", "the message is not an object with fields, or too short a list")
        if not self._may_lack:
            wanted = ", ".join(repr(path) for _, path, _ in self._fields[:8])
            has = ", ".join(repr(path[:40]) for path in islice(paths_of(item), 8)) or "no fields"
            raise InputError("wrong_channels", f"the fields {wanted} are missing; the message has {has}")

    def _add_columns(self, gather: Gather, part: _Part, columns: dict[int, list[Any]], *, scan: bool) -> None:
        rows = list(map(list, zip(*columns.values(), strict=True)))
        try:
            array = matrix(rows, len(columns), self._config.max_samples, scan=scan)
        except InputError as error:
            if len(columns) == 1:
                gather.refuse(error)
            elif not self._config.partial:
                raise
            else:  # each for itself
                for channel, column in columns.items():
                    self._add_columns(gather, part, {channel: column}, scan=scan)
            return
        channels = None if len(columns) == len(self._rules.names) else tuple(columns)
        gather.add_block(self._name(part), self._stamps(gather, part, len(array)), array, channels)

    def _column(self, value: Any) -> list[Any] | None:
        """Return the values of a channel's list or block; None for a single value."""
        if type(value) is list:
            return value
        block = self._config.block
        if block is not None and type(value) in (str, bytes):
            value = block.unpack(value)
        if type(value) in (bytes, TypedArray):
            column: list[Any] = numbers(value, "a channel").tolist()
            return column
        return None

    # -- all channels in one field ------------------------------------------------------------------------------------

    def _take_values(self, gather: Gather, part: _Part, *, scan: bool) -> None:
        value, where = self._value(part.item)
        if self._width == 1 and type(value) not in (list, bytes, TypedArray):
            channel = self._order[0][1] if self._order else 0
            number = self._cells.number(value, channel, where)
            if number is not None:
                gather.add(self._name(part), self._stamp(gather, part), {channel: number})
            return
        array = matrix(value, self._width, self._config.max_samples, scan=scan)
        channels = None
        if self._order:
            array = np.ascontiguousarray(array[:, [place for place, _ in self._order]])
            if len(self._order) < len(self._rules.names):
                channels = tuple(channel for _, channel in self._order)
        gather.add_block(self._name(part), self._stamps(gather, part, len(array)), array, channels)

    def _value(self, item: Any) -> tuple[Any, str]:
        """Return the samples as they stand there, and the words for their place."""
        config = self._config
        if config.values == "." or (self._width == 1 and type(item) not in (dict, list)):
            value, where = item, "the message"
        elif type(item) is not dict:
            raise InputError("malformed", "the message is not an object with fields")
        else:
            value, where = self._values(item), f"field {config.values!r}"
            if value is ABSENT:
                raise InputError("malformed", f"{where} is missing")
        packed = config.block is not None and type(value) in (str, bytes)
        return config.block.unpack(value) if packed and config.block is not None else value, where

    # -- stamps -------------------------------------------------------------------------------------------------------

    def _stamp(self, gather: Gather, part: _Part) -> float | None:
        t = self._stamps(gather, part, 1)
        return float(t[0]) if isinstance(t, np.ndarray) else t

    def _stamps(self, gather: Gather, part: _Part, n: int) -> float | Float64 | None:
        unit = self._config.time_unit
        if part.time is not None:
            return stamps(part.time, n, unit)
        around = None if part.around is part.item else self._time(part.around)
        if around is not None:
            t = stamps(around, n, unit)
            if n > 1 or not isinstance(t, float):
                return t
            gather.begin(t)  # the first sample's; the others follow
        elif self._config.time:
            undated(self._config.time, self._notice)
        return None


def undated(field: str, notice: Notice | None) -> None:
    """Note that a message lacks its time stamp.

    Raises:
        InputError: ``no_time``; the field was named on purpose, or there is no `notice`.
    """
    if notice is None or field != DEFAULT_TIME:
        raise InputError("no_time", f"field {field!r} is missing; set time = '' to use the arrival time")
    notice(
        "undated",
        f"messages have no field {field!r} with a time, so their samples count as taken on arrival; a message that is "
        'sent again gets another time. If the sensor has a clock, name its field: time = "..." under [source.codec]; '
        'if not, time = "" there ends this warning',
    )


def _columns(order: Sequence[str], names: Sequence[str]) -> list[tuple[int, int]]:
    """Return place and channel of each ordered column, in the model's order."""
    return [(order.index(name), channel) for channel, name in enumerate(names) if name in order]


def _by_condition(
    fields: Mapping[str, str], names: Sequence[str]
) -> tuple[list[_Field], list[tuple[Find, dict[str | None, list[_Field]]]]]:
    """Sort fields by the condition that their path begins with, so that a list of many sensors is read in one pass.

    Returns:
        Fields without such a condition; and for each field that is asked, its finder and the fields by its value.
    """
    free: list[_Field] = []
    keyed: dict[str, dict[str | None, list[_Field]]] = {}
    for channel, name in enumerate(names):
        if name not in fields:
            continue
        path = fields[name]
        condition = leading_condition(path)
        if condition is None:
            free.append((channel, path, finder(path, ABSENT)))
        else:
            asked, text, rest = condition
            keyed.setdefault(asked, {}).setdefault(text, []).append((channel, path, finder(rest, ABSENT)))
    return free, [(finder(asked, ABSENT), by_text) for asked, by_text in keyed.items()]
