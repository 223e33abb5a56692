"""The shape of a decoded document: our own, and other people's through a field mapping.

JSON, MessagePack and CBOR differ in bytes only; what stands in the document is read here, once for all of them.

Our own shape::

    {"key": "watch-3", "t": 1700000000.0, "values": [[ax, ay, az], [ax, ay, az]]}

``t`` is the stamp of the first sample or a list with one for each; ``values`` holds one list per sample, or the same
numbers in one flat list, sample by sample (so one sample may be written flat, and so may a single channel).

Other people's shapes are mapped: `DocumentConfig.channels` names a field for each channel, and then a message is

- one object with a number per channel, that is one sample: ``{"ts": 1700000000123, "ax": 1.0, "ay": 2.0}``;
- one object with a list per channel (in binary formats also bytes or a typed array):
  ``{"ts": 1700000000123, "ax": [1.0, 1.1], "ay": [2.0, 2.1]}``;
- with `DocumentConfig.samples`, a list of objects of the first kind, which may belong to several keys.

Plain numbers of all channels are read here. What is not that, as a number in a text, and what a setting asks for beyond
that, as some of the channels, is read value by value (`edge_runtime.io.codecs.fields`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any

from edge_runtime.errors import InputError
from edge_runtime.io.codecs import Notice
from edge_runtime.io.codecs.document_config import DocumentConfig
from edge_runtime.io.codecs.fields import FieldReader, undated
from edge_runtime.io.codecs.numbers import TypedArray, arrival, check_key, matrix, numbers, stamps
from edge_runtime.io.codecs.paths import Find, finder, is_field, is_free
from edge_runtime.types import Float64, Reading


class DocumentReader:
    """Makes readings of decoded documents.

    Args:
        config: paths of values, stamps and keys.
        names: the model's channels, in order.
        rate_hz: the model's own rate; 0 where unknown.
        notice: callback, as in `edge_runtime.io.codecs.fields.FieldReader`.

    Raises:
        ConfigError: `config` does not fit the model's channels.
    """

    def __init__(
        self, config: DocumentConfig, names: Sequence[str], rate_hz: float = 0.0, notice: Notice | None = None
    ) -> None:
        fields = config.fields(names)
        self._by_value = FieldReader(config, names, rate_hz, notice=notice)
        self._notice = notice
        self._n_channels = len(names)
        self._max_samples = config.max_samples
        self._unit = config.time_unit
        self._time_field = config.time
        self._has_time = bool(config.time)
        self._time = finder(config.time)
        self._key = finder(config.key)
        self._values_field = config.values
        self._values = finder(config.values)
        self._period_s = 1 / config.rate_hz if config.rate_hz else 0.0
        self._arrival_period_s = self._period_s or (1 / rate_hz if rate_hz else 0.0)
        self._fields: list[tuple[str, Find]] = []
        self._samples: Find | None = finder(config.samples) if config.samples else None
        self._pick: Callable[[dict[Any, Any]], Sequence[Any]] = self._pick_slowly
        self.read = self._read_own
        if fields:
            paths = [fields[name] for name in names if name in fields]
            self._fields = [(path, finder(path)) for path in paths]
            if len(paths) > 1 and all(map(is_field, paths)):
                self._pick = itemgetter(*paths)  # three times as fast, and plain fields are what most messages have
            self.read = self._read_mapped
        if config.single_values or not all(map(is_free, fields.values())):
            self.read = self._by_value.read

    def _read_own(self, document: Any, key: str, received: float, *, scan: bool) -> list[Reading]:
        """Read one document with this reader's own rules.

        Args:
            document: the message as the format's library returned it.
            key: the topic's key, or empty.
            received: wall-clock seconds of arrival.
            scan: whether to look for booleans, as in `numbers.matrix`.

        Raises:
            InputError: whatever is wrong with it.
        """
        values = self._values(document)
        if values is None:
            return self._by_value.read(document, key, received, scan=scan)  # a bare number, or the reason why not
        if not key:
            key = check_key(self._key(document))
        try:
            array = matrix(values, self._n_channels, self._max_samples, scan=scan)
        except InputError as error:
            if self._n_channels > 1 or error.reason not in ("malformed", "not_a_number"):
                raise
            return self._by_value.read(document, key, received, scan=scan)  # one number that stands in no list
        return [Reading(key, self._stamp(document, len(array), received), array, self._period_s)]

    def _read_mapped(self, document: Any, key: str, received: float, *, scan: bool) -> list[Reading]:
        """Read as `_read_own` does, through the field mapping."""
        try:
            if self._samples is not None:
                return self._read_objects(document, key, received, scan=scan)
            if type(document) is dict:
                columns = [_as_list(column) for column in self._row(document)]
                lists = [type(column) is list for column in columns]
                if all(lists) and len(set(map(len, columns))) == 1:
                    columns = list(map(list, zip(*columns, strict=True)))
                array = matrix(columns, self._n_channels, self._max_samples, scan=scan)
                if not key:
                    key = check_key(self._key(document))
                return [Reading(key, self._stamp(document, len(array), received), array, self._period_s)]
        except InputError as error:
            if error.reason not in ("malformed", "not_a_number", "wrong_channels"):
                raise
        return self._by_value.read(document, key, received, scan=scan)  # texts and words, or the reason why not

    def _read_objects(self, document: Any, key: str, received: float, *, scan: bool) -> list[Reading]:
        """Read one object per sample.

        1. A sample belongs to the key that is given, else to the one it names, else to the one named around them all.
        2. The stamp around all samples counts for a key only where none of its samples has one.
        """
        assert self._samples is not None
        objects = self._samples(document) if type(document) in (dict, list) else None
        if type(objects) is not list:
            raise InputError("malformed", "the list of samples is missing")
        if not objects:
            raise InputError("empty", "no samples in the message")
        if len(objects) > self._max_samples:
            raise InputError(
                "too_large", f"{len(objects)} samples; at most {self._max_samples} are allowed in a message"
            )
        around = document if type(document) is dict else {}
        by_key: dict[str, tuple[list[list[Any]], list[Any]]] = {}
        for item in objects:
            if type(item) is not dict:
                raise InputError("malformed", "a sample is not an object with fields")
            name = key or self._own_key(item, around)  # rule 1
            if (own := by_key.get(name)) is None:
                own = by_key[name] = ([], [])
            own[0].append(self._row(item))
            own[1].append(self._time(item))
        readings = []
        for name, (rows, times) in by_key.items():
            array = matrix(rows, self._n_channels, self._max_samples, scan=scan)
            n = len(rows)
            if times.count(None) == n:  # rule 2
                t = self._stamp(around, n, received)
            else:
                t = stamps(times if n > 1 else times[0], n, self._unit)  # rule 2
            readings.append(Reading(name, t, array, self._period_s))
        return readings

    def _own_key(self, item: dict[Any, Any], around: dict[Any, Any]) -> str:
        key = self._key(item)
        return check_key(self._key(around) if key is None else key)

    def _row(self, item: dict[Any, Any]) -> list[Any]:
        try:
            row = list(self._pick(item))
        except KeyError:
            row = [None]
        if None in row:
            path = next(path for path, find in self._fields if find(item) is None)
            raise InputError("wrong_channels", f"field {path!r} is missing or null")
        return row

    def _pick_slowly(self, item: dict[Any, Any]) -> list[Any]:
        return [find(item) for _, find in self._fields]

    def _stamp(self, document: dict[Any, Any], n: int, received: float) -> float | Float64:
        if not self._has_time:
            return arrival(received, n, self._arrival_period_s)
        value = self._time(document)
        if value is None:
            undated(self._time_field, self._notice)
            return arrival(received, n, self._arrival_period_s)
        return stamps(value, n, self._unit)


def _as_list(column: Any) -> Any:
    return numbers(column, "a channel").tolist() if type(column) in (bytes, TypedArray) else column
