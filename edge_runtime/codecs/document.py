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
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

from edge_runtime.codecs.numbers import (
    MAX_BYTES,
    MAX_SAMPLES,
    TimeUnit,
    TypedArray,
    arrival,
    check_key,
    matrix,
    numbers,
    stamps,
)
from edge_runtime.errors import ConfigError, InputError
from edge_runtime.types import Float64, Reading

Find = Callable[[Any], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentConfig:
    """Layout of a document. Paths are dotted (``payload.imu.ax``); digits index a list."""

    time: str = "t"
    """Field of the time stamp; empty: messages carry none, and their last sample counts as taken on arrival."""
    time_unit: TimeUnit = "s"
    """Unit of numeric stamps since 1970, or ``iso8601`` for texts (UTC unless they say otherwise)."""
    key: str = "key"
    """Field of the key; read only where the topic gives none, since a broker vouches for topics, not for payloads."""
    values: str = "values"
    """Field of the samples, unless `channels` maps them."""
    channels: dict[str, str] = field(default_factory=dict)
    """Channel name of the model to field; all channels or none."""
    samples: str = ""
    """With `channels`: field of a list of objects, one per sample; ``.`` where the message is that list."""
    rate_hz: float = 0.0
    """Samples per second within a message that has one stamp; 0: the model's own rate."""
    max_bytes: int = MAX_BYTES
    max_samples: int = MAX_SAMPLES

    def __post_init__(self) -> None:
        if self.samples and not self.channels:
            raise ValueError("samples needs channels: which field of each object is which channel")
        if not self.values or "." in (self.time, self.key, self.values):
            raise ValueError("values must name a field; '.' is for samples alone")
        if not 0 <= self.rate_hz <= 1e6:
            raise ValueError("rate_hz must be 0 (the model's rate) to 1e6")
        if self.max_bytes < 1 or self.max_samples < 1:
            raise ValueError("max_bytes and max_samples must be at least 1")


class DocumentReader:
    """Makes readings of decoded documents.

    Args:
        config: where things stand.
        names: the model's channels, in order.
        rate_hz: the model's own rate; 0 where unknown.

    Raises:
        ConfigError: `config.channels` does not name exactly the model's channels.
    """

    def __init__(self, config: DocumentConfig, names: Sequence[str], rate_hz: float = 0.0) -> None:
        self._n_channels = len(names)
        self._max_samples = config.max_samples
        self._unit = config.time_unit
        self._time_field = config.time
        self._has_time = bool(config.time)
        self._time = _finder(config.time)
        self._key = _finder(config.key)
        self._values_field = config.values
        self._values = _finder(config.values)
        self._period_s = 1 / config.rate_hz if config.rate_hz else 0.0
        self._arrival_period_s = self._period_s or (1 / rate_hz if rate_hz else 0.0)
        self._fields: list[tuple[str, Find]] = []
        self._samples: Find | None = _finder(config.samples) if config.samples else None
        self._pick: Callable[[dict[Any, Any]], Sequence[Any]] = self._pick_slowly
        self.read = self._read_own
        if config.channels:
            if set(config.channels) != set(names):
                raise ConfigError(
                    f"codec channels maps {', '.join(sorted(config.channels))}; "
                    f"the model's channels are {', '.join(names)}: map each of them",
                )
            paths = [config.channels[name] for name in names]
            self._fields = [(path, _finder(path)) for path in paths]
            if len(paths) > 1 and not any("." in path for path in paths):
                self._pick = itemgetter(*paths)  # three times as fast, and plain fields are what most messages have
            self.read = self._read_mapped

    def _read_own(self, document: Any, key: str, received: float, *, scan: bool) -> list[Reading]:
        """Read one document with this reader's own rules.

        Args:
            document: as the format's library returned it.
            key: from the topic, or empty.
            received: wall-clock seconds of arrival.
            scan: as in `numbers.matrix`.

        Raises:
            InputError: whatever is wrong with it.
        """
        if type(document) is not dict:
            raise InputError("malformed", "the message is not an object with fields")
        if not key:
            key = check_key(self._key(document))
        values = self._values(document)
        if values is None:
            raise InputError("malformed", f"field {self._values_field!r} is missing")
        array = matrix(values, self._n_channels, self._max_samples, scan=scan)
        n = len(array)
        t = self._stamp(document, n, received)
        return [Reading(key, t, array, self._period_s)]

    def _read_mapped(self, document: Any, key: str, received: float, *, scan: bool) -> list[Reading]:
        """Read as `_read_own` does, through the field mapping."""
        if self._samples is not None:
            return self._read_objects(document, key, received, scan=scan)
        if type(document) is not dict:
            raise InputError("malformed", "the message is not an object with fields")
        if not key:
            key = check_key(self._key(document))
        columns = [_as_list(column) for column in self._row(document)]
        lists = [type(column) is list for column in columns]
        if not any(lists):
            array = matrix(columns, self._n_channels, self._max_samples, scan=scan)
        elif all(lists) and len(set(map(len, columns))) == 1:
            rows = list(map(list, zip(*columns, strict=True)))
            array = matrix(rows, self._n_channels, self._max_samples, scan=scan)
        else:
            raise InputError("wrong_channels", "the channels' fields are not all numbers, nor lists of the same length")
        return [Reading(key, self._stamp(document, len(array), received), array, self._period_s)]

    def _read_objects(self, document: Any, key: str, received: float, *, scan: bool) -> list[Reading]:
        """Read one object per sample, of one key or several, with a stamp in each or one around all of them."""
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
            name = key or self._own_key(item, around)
            if (own := by_key.get(name)) is None:
                own = by_key[name] = ([], [])
            own[0].append(self._row(item))
            own[1].append(self._time(item))
        readings = []
        for name, (rows, times) in by_key.items():
            array = matrix(rows, self._n_channels, self._max_samples, scan=scan)
            n = len(rows)
            if times.count(None) == n:
                t = self._stamp(around, n, received)
            else:
                t = stamps(times if n > 1 else times[0], n, self._unit)
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
            raise InputError(
                "bad_time", f"field {self._time_field!r} is missing; set time = '' to use the arrival time"
            )
        return stamps(value, n, self._unit)


def _as_list(column: Any) -> Any:
    return numbers(column, "a channel").tolist() if type(column) in (bytes, TypedArray) else column


def _finder(path: str) -> Find:
    """Build a function that finds the value at a dotted path, or None; a field with dots in its name comes first."""
    if not path:
        return _nothing
    if path == ".":
        return _itself
    steps = path.split(".")
    if len(steps) == 1:
        return lambda document: document.get(path) if type(document) is dict else None

    def find(document: Any) -> Any:
        if type(document) is dict and path in document:
            return document[path]
        for step in steps:
            if type(document) is dict:
                document = document.get(step)
            elif type(document) is list and step.isdecimal() and len(step) <= 6 and int(step) < len(document):
                document = document[int(step)]
            else:
                return None
        return document

    return find


def _nothing(_document: Any) -> None:
    return None


def _itself(document: Any) -> Any:
    return document
