"""From decoded lists and byte strings to checked arrays: the rules that all codecs share.

Values become float32 and must be finite; stamps become float64 seconds and must lie in a range that a calendar has.
What goes wrong is looked at closely only after a cheap check of the whole has failed.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache, reduce
from operator import iconcat
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from edge_runtime.base.system.iso8601 import parse_time
from edge_runtime.errors import InputError
from edge_runtime.types import Float32, Float64, Reading

TimeUnit = Literal["s", "ms", "us", "ns", "iso8601"]
StampUnit = Literal["s", "ms", "us", "ns", "iso8601", "auto"]

UNITS_PER_S: dict[str, float] = {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}

EARLIEST_S = -2_208_988_800.0
"""1900-01-01 UTC: recordings may count from any start of their own, but nothing measured before the telegraph."""

LATEST_S = 253_402_300_800.0
"""10000-01-01 UTC: beyond it a stamp is in the wrong unit."""

MAX_KEY_CHARS = 256

MAX_BYTES = 256 * 1024
"""Default payload limit: parses, or is refused, in about a millisecond, and holds 10,000 samples of 6 channels."""

MAX_ODD_BYTES = 16 * 1024
"""Size of a message up to which keys that are no texts are taken."""

MAX_SAMPLES = 65_536
"""Default limit of samples in one message: 4 s of 16 kHz sound, 20 minutes of a watch."""

MAX_LINES = 8192
"""Default limit of lines in a message of text, each of which costs about 10 us; 5 s of an accelerometer at 1.6 kHz."""

MAX_FLOAT32 = float(np.finfo(np.float32).max)

_NUMBERS = frozenset((int, float))

_PLAIN = re.compile(r"\s*-?\d{1,20}(?:\.\d{0,20})?\s*", re.ASCII)
"""A stamp that is written as a text; ``2023-11-14`` and ``20231114T2213`` are none."""


@dataclass(slots=True, eq=False)
class TypedArray:
    """Numbers as a binary format packs them. No numpy array, since those compare and convert in surprising ways."""

    dtype: str
    """As numpy writes it, with the byte order."""
    data: bytes

    def array(self) -> npt.NDArray[Any]:
        """Return the numbers, in one dimension.

        Raises:
            InputError: ``malformed``; the bytes are no whole number of them.
        """
        if len(self.data) % np.dtype(self.dtype).itemsize:
            raise InputError("malformed", f"{len(self.data)} bytes are not a whole number of {self.dtype} values")
        return np.frombuffer(self.data, self.dtype)


@dataclass(slots=True, eq=False)
class Moment:
    """A time that the format itself marks as one: MessagePack's time stamp, CBOR's tags 0 and 1."""

    seconds: float
    """Since 1970."""


class Unread:
    """A standard value without a number in it: an extension type, a tag. It refuses a message only where it is read."""

    __slots__ = ()


UNREAD = Unread()


@lru_cache(maxsize=64)
def _packer(n: int, code: str) -> Callable[..., bytes]:
    # Native mode: a double too large for a float32 becomes infinite, which the check for finite values then reports.
    return struct.Struct(f"{n}{code}").pack


def _only_numbers(items: Iterable[Any], what: str) -> None:
    """Refuse true, false and whatever else the packer would take for a number."""
    strange = set(map(type, items)) - _NUMBERS
    if strange:
        raise InputError("not_a_number", f"{what} must be numbers, got {json_name(min(strange, key=str))}")


def json_name(kind: type) -> str:
    """Return what a value of a type is called in a document."""
    names = {
        bool: "true or false",
        type(None): "null",
        str: "a text",
        list: "a list",
        dict: "an object",
        bytes: "bytes",
        Moment: "a time",
        Unread: "an extension type or a tag that is no number",
    }
    return names.get(kind, kind.__name__)


def samples(flat: Float32, channels: int) -> Float32:
    """Interleaved numbers as (n_samples, channels), after a check that all are finite.

    Args:
        flat: (n_samples * channels,) float32, contiguous.
        channels: how many make a sample.

    Raises:
        InputError: ``not_finite``; names the first sample and channel.
    """
    # Searching the flags for a zero byte takes half the time of all(); a dot product would be quicker still, but wakes
    # the threads of the BLAS for long messages, and warns about honest values above 1e19.
    if 0 not in np.isfinite(flat).tobytes():
        return flat.reshape(-1, channels)
    sample, channel = divmod(int(np.argmin(np.isfinite(flat))), channels)
    raise InputError("not_finite", f"sample {sample}, channel {channel} is NaN, infinite or beyond float32")


def single(value: float | str, where: str) -> float:
    """Return one number that a float32 holds; NaN is left to the caller.

    Raises:
        InputError: ``not_finite``.
    """
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if abs(number) > MAX_FLOAT32:
        raise InputError("not_finite", f"{where} is infinite or beyond float32")
    return number


def matrix(values: Any, channels: int, max_samples: int, *, scan: bool) -> Float32:
    """Return samples from a decoded document.

    1. The first element decides: a list is one sample, and so must all others be; else all are numbers in one list.
    2. Too many samples are refused before their numbers are unpacked.
    3. Numbers are checked as a whole; each is looked at only where that failed or cannot tell a boolean from a number.

    Args:
        values: a list of samples, each a list of channel values; or one flat list, interleaved sample by sample; or a
            byte string of little-endian float32 or a typed array, interleaved.
        channels: how many there must be.
        max_samples: how many samples there may be.
        scan: look for booleans among the numbers and for byte strings among the samples; off where the format has
            none, for instance JSON whose text holds neither ``true`` nor ``false``.

    Returns:
        (n_samples, channels) float32, finite, C-contiguous, often read-only.

    Raises:
        InputError: ``malformed``, ``empty``, ``too_large``, ``wrong_channels`` or ``not_finite``.
    """
    if type(values) is not list:
        return _from_array(numbers(values, "values"), channels, max_samples)
    n = len(values)
    if not n:
        raise InputError("empty", "no samples in the message")
    if type(values[0]) is list:  # rule 1
        try:
            widths = set(map(len, values))
        except TypeError:
            raise InputError("malformed", "values mixes samples and numbers") from None
        if widths != {channels}:
            raise InputError("wrong_channels", _widths(widths, channels))
        if scan and set(map(type, values)) != {list}:
            raise InputError("malformed", "values mixes lists with something else")
        flat: list[Any] = reduce(iconcat, values, [])
    else:  # rule 1
        if n % channels:
            raise InputError("wrong_channels", f"{n} numbers do not make samples of {channels} channels")
        flat = values
        n //= channels
    if n > max_samples:  # rule 2
        raise InputError("too_large", f"{n} samples; at most {max_samples} are allowed in a message")
    try:  # rule 3
        packed = _packer(n * channels, "f")(*flat)
    except (struct.error, OverflowError):
        _only_numbers(flat, "values")
        raise InputError("not_finite", "a number is too large for float32") from None
    array = samples(np.frombuffer(packed, np.float32), channels)
    if scan and 1 in ((array == 0) | (array == 1)).tobytes():  # rule 3: only these can have been booleans
        _only_numbers(flat, "values")
    return array


def numbers(values: Any, what: str) -> npt.NDArray[Any]:
    """Read a byte string of little-endian float32, or a typed array, as an array of one dimension.

    Raises:
        InputError: ``malformed``; it is something else.
    """
    if type(values) is bytes:
        return TypedArray("<f4", values).array()
    if type(values) is TypedArray:
        return values.array()
    raise InputError("malformed", f"{what} must be a list, got {json_name(type(values))}")


def _widths(widths: set[int], channels: int) -> str:
    found = ", ".join(map(str, sorted(widths)[:3])) + (", ..." if len(widths) > 3 else "")
    return f"a sample needs {channels} values, one per channel; found {found}"


def _from_array(values: npt.NDArray[Any], channels: int, max_samples: int) -> Float32:
    """Convert a typed array or float32 bytes, interleaved sample by sample."""
    if not values.size:
        raise InputError("empty", "no samples in the message")
    if values.size % channels:
        raise InputError("wrong_channels", f"{values.size} numbers do not make samples of {channels} channels")
    if values.size > max_samples * channels:
        raise InputError(
            "too_large",
            f"{values.size // channels} samples; at most {max_samples} are allowed in a message",
        )
    if values.dtype != np.float32:
        with np.errstate(over="ignore", invalid="ignore"):  # out of range becomes infinite, and is refused below
            values = values.astype(np.float32)
    return samples(values, channels)


def check_stamp(t: float) -> float:
    """Check one stamp in seconds.

    Raises:
        InputError: ``bad_time``.
    """
    if EARLIEST_S <= t < LATEST_S:
        return t
    raise InputError("bad_time", f"time stamp {t:g} s lies outside the years 1900 to 9999; is its unit right?")


def check_stamps(t: Float64) -> Float64:
    """Stamps in seconds, at least one.

    Raises:
        InputError: ``bad_time``.
    """
    # Through the extremes: NaN spreads to both, and fails both comparisons.
    check_stamp(float(np.minimum.reduce(t)))
    check_stamp(float(np.maximum.reduce(t)))
    return t


def iso8601(text: Any) -> float:
    """Return seconds since 1970 from an ISO 8601 text; without an offset it is taken as UTC.

    Raises:
        InputError: ``bad_time``.
    """
    if not isinstance(text, str) or len(text) > 64:
        raise InputError("bad_time", "the time stamp is not an ISO 8601 text")
    try:
        return check_stamp(parse_time(text.strip()))
    except ValueError:
        raise InputError("bad_time", f"{text[:40]!r} is not an ISO 8601 date and time") from None


def stamps(value: Any, n: int, unit: StampUnit) -> float | Float64:
    """Time stamps from a decoded document.

    Args:
        value: one number (the first sample's stamp) or a list of `n`; ISO 8601 texts where the unit is ``iso8601``, and
            texts of numbers where it is another.
        n: samples in the message.
        unit: the numbers' unit; ``auto`` as `unit_of_date` finds it.

    Returns:
        Seconds: a float for one stamp, float64 (n,) for one per sample.

    Raises:
        InputError: ``bad_time``.
    """
    kind = type(value)
    if (kind is float or kind is int) and unit in UNITS_PER_S:
        return check_stamp(value / UNITS_PER_S[unit])
    if kind is not list and kind is not TypedArray:
        return _stamp(value, unit)
    if kind is TypedArray:
        value = value.array().tolist()
    if len(value) != n:
        raise InputError("bad_time", f"{len(value)} time stamps for {n} samples")
    if unit not in UNITS_PER_S or type(value[0]) in (str, Moment):
        return np.array([stamps(one, 1, unit) for one in value], np.float64)
    try:
        packed = _packer(n, "d")(*value)
    except (struct.error, OverflowError):
        raise InputError("bad_time", "time stamps must be numbers") from None
    with np.errstate(invalid="ignore"):  # a signalling NaN, which some formats can carry, is refused below
        seconds = np.frombuffer(packed, np.float64) / UNITS_PER_S[unit]
    return check_stamps(seconds)


def unit_of_date(stamp: float) -> TimeUnit | None:
    """Find the unit in which a stamp is a moment from 1973 to the year 5138; None where it may count from any start."""
    units: tuple[TimeUnit, ...] = ("s", "ms", "us", "ns")
    return next((unit for unit in units if 1e8 <= stamp / UNITS_PER_S[unit] < 1e11), None)


def _stamp(value: Any, unit: StampUnit) -> float:
    """Read one stamp that is not simply a number in a known unit."""
    if type(value) is Moment:
        return check_stamp(value.seconds)
    if type(value) is str:
        if unit == "iso8601" or (unit == "auto" and _PLAIN.fullmatch(value) is None):
            return iso8601(value)
        if _PLAIN.fullmatch(value) is None:
            hint = "; set time_unit to iso8601 for dates" if value[:4].isdecimal() else ""
            raise InputError("bad_time", f"the time stamp {value[:40]!r} is not a number{hint}")
        value = float(value)
    elif type(value) not in _NUMBERS:
        raise InputError("bad_time", f"the time stamp must be a number, a text or a list, got {json_name(type(value))}")
    elif unit == "iso8601":
        raise InputError("bad_time", "the time stamp is a number, an ISO 8601 text was expected")
    found = unit_of_date(value) if unit == "auto" else unit
    if found is None:
        raise InputError(
            "bad_time", f"time stamp {value:g} is no date from 1973 to 5138 in s, ms, us or ns: set time_unit"
        )
    return check_stamp(value / UNITS_PER_S[found])


class Arrival(float):
    """Stamp of a message without one: provisional, until `edge_runtime.io.sources.arrival` has seen its stream."""

    __slots__ = ()


class ArrivalTimes(np.ndarray[Any, np.dtype[np.float64]]):
    """Stamps that a message states relative to its arrival; provisional as `Arrival` is."""


def by_arrival(reading: Reading) -> bool:
    """Return whether the stamps of a reading are those of its arrival."""
    kind = type(reading.t)
    return kind is Arrival or kind is ArrivalTimes


def arrival(received: float, n: int, period_s: float) -> Arrival:
    """Return the first stamp of a message that carries none: its last sample was taken as the message arrived.

    Args:
        received: wall-clock seconds of arrival.
        n: samples in the message.
        period_s: seconds between samples; 0 where it is not known, and then the first sample gets the arrival time.
    """
    return Arrival(received - (n - 1) * period_s)


def check_key(key: Any) -> str:
    """Check a key that came from a payload. Whole numbers are taken as they are written.

    Raises:
        InputError: ``no_key``.
    """
    if type(key) is int:
        return str(key) if key.bit_length() <= 64 else check_key(None)
    if type(key) is str and 0 < len(key) <= MAX_KEY_CHARS and key.isprintable():
        return key
    if key is None:
        raise InputError("no_key", "neither the topic nor the payload says whose reading this is")
    raise InputError("no_key", f"the key must be a printable text of 1 to {MAX_KEY_CHARS} characters")
