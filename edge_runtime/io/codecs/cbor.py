"""CBOR documents (RFC 8949), shaped as the JSON ones (see `edge_runtime.io.codecs.document`).

Where JSON has a list of samples, two compact forms may stand, interleaved sample by sample: a byte string of
little-endian float32, or a typed array (RFC 8746, tags 64 to 87: integers and floats of any width and byte order).

Parsed with cbor2 6 or newer (extra ``[codecs]``). Its many other tags make a message do things to the reader: compile a
regular expression, parse a MIME message, raise ten to a billion, share one list a million times. None is done here. A
value that is not read refuses no message:

1. Tags 0 and 1 are times; tags 2 to 5 (bignum, decimal fraction, bigfloat) numbers, as far as a double holds them.
2. Tags that only describe (55799 ahead of all, URI, base64, namespaces) are left out; any other one makes a value
   without a number. ``undefined`` is null.
3. A message may have `MAX_TAGS` tags, each of which costs a few microseconds.
4. Keys that are no texts are taken in messages of up to `MAX_ODD_BYTES`: they can be made to collide, which costs the
   square of their number.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from edge_runtime.errors import ConfigError, InputError
from edge_runtime.io.codecs import Notice
from edge_runtime.io.codecs.document import DocumentReader
from edge_runtime.io.codecs.document_config import DocumentConfig
from edge_runtime.io.codecs.numbers import MAX_ODD_BYTES, UNREAD, Moment, TypedArray, Unread, iso8601
from edge_runtime.types import Reading

MAX_DEPTH = 32
"""Containers within containers; our own shape needs three."""

_SELF_DESCRIBED = b"\xd9\xd9\xf7"
"""Tag 55799 ahead of a document."""

MAX_TAGS = 8192

# RFC 8746, table 1: the tag's low bits are f (float), s (signed), e (little-endian) and ll (width).
_TYPED_ARRAYS: dict[int, str] = {
    64: "u1", 65: ">u2", 66: ">u4", 67: ">u8", 68: "u1", 69: "<u2", 70: "<u4", 71: "<u8",
    72: "i1", 73: ">i2", 74: ">i4", 75: ">i8", 77: "<i2", 78: "<i4", 79: "<i8",
    80: ">f2", 81: ">f4", 82: ">f8", 84: "<f2", 85: "<f4", 86: "<f8",
}  # fmt: skip

# Every other tag that cbor2 gives a meaning of its own; tags unknown to it go to the tag hook.
_UNREAD_TAGS = (25, 29, 30, 35, 36, 37, 52, 54, 100, 258, 260, 261, 1004, 43000)
_PLAIN_TAGS = (21, 22, 23, 28, 32, 33, 34, 256, 55799)


@dataclass(frozen=True, slots=True, kw_only=True)
class CborConfig(DocumentConfig):
    """Settings of the CBOR codec."""

    type: Literal["cbor"] = "cbor"


def load_cbor(codec: str, *, senml: bool = False) -> Callable[[bytes], Any]:
    """Load the function that parses CBOR with all limits in place.

    It raises InputError with reason ``malformed`` or ``empty`` for whatever is not CBOR.

    Args:
        codec: name of the codec, for the message.
        senml: allow integers as labels in messages of any size, as RFC 8428 needs.

    Raises:
        ConfigError: cbor2 is not installed, or too old to be told which tags to refuse.
    """
    cbor2 = _cbor2(codec)
    meaning: dict[int, Callable[..., Any]] = {
        **dict.fromkeys(_UNREAD_TAGS, lambda _: UNREAD), **dict.fromkeys(_PLAIN_TAGS, lambda value: value),
        0: _date, 1: _seconds, 2: _bignum, 3: _negative_bignum, 4: _decimal_fraction, 5: _bigfloat,
    }  # fmt: skip
    left = 0

    def counted(make: Callable[[Any], Any]) -> Callable[..., Any]:
        def read(value: Any, _immutable: bool = False) -> Any:
            nonlocal left
            left -= 1
            if left < 0:  # rule 3
                raise InputError("too_large", f"over {MAX_TAGS} tags in a message")
            return make(value)

        return read

    hook, meaning = counted(_typed_array), {tag: counted(make) for tag, make in meaning.items()}
    broken = cbor2.CBORError
    load = partial(
        cbor2.loads, tag_hook=hook, semantic_decoders=meaning, str_errors="surrogateescape", max_depth=MAX_DEPTH,
        strict_hashable_types=not senml,
    )  # fmt: skip

    def parse(payload: bytes) -> Any:
        nonlocal left
        left = MAX_TAGS
        if payload[:3] == _SELF_DESCRIBED:
            payload = payload[3:]
        try:
            return load(payload)
        except (broken, ValueError):
            return parse_again(payload)

    def parse_again(payload: bytes) -> Any:
        try:
            return load(payload, strict_hashable_types=len(payload) > MAX_ODD_BYTES)  # rule 4
        except (broken, ValueError) as error:
            if isinstance(error.__cause__, InputError):
                raise error.__cause__ from None
            raise InputError("empty" if not payload else "malformed", f"not CBOR: {error}") from None

    return parse


def _cbor2(codec: str) -> Any:
    try:
        import cbor2  # noqa: PLC0415 - an extra that only two codecs need

        cbor2.loads(b"\x00", semantic_decoders={}, max_depth=MAX_DEPTH)
    except ImportError:
        raise ConfigError(f'codec {codec} needs cbor2: pip install "edge-runtime[codecs]"') from None
    except TypeError:
        raise ConfigError(f'codec {codec} needs cbor2 6 or newer: pip install "cbor2>=6"') from None
    return cbor2


def _date(text: Any) -> Moment | Unread:  # rule 1
    try:
        return Moment(iso8601(text))
    except InputError:
        return UNREAD


def _seconds(number: Any) -> Moment | Unread:
    return Moment(float(number)) if type(number) in (int, float) else UNREAD


def _bignum(data: Any) -> float | Unread:
    """Return a bignum as a double: as a key, a whole number without bounds could be made to collide."""
    if type(data) is not bytes:
        return UNREAD
    return float(int.from_bytes(data, "big")) if len(data) <= 127 else math.inf


def _negative_bignum(data: Any) -> float | Unread:
    number = _bignum(data)
    return number if isinstance(number, Unread) else -1 - number


def _decimal_fraction(pair: Any) -> float | Unread:
    """Mantissa times ten to the exponent, within what a double holds (RFC 8949, section 3.4.4)."""
    return _scaled(pair, lambda m, exponent: float(f"{m}e{exponent}") if type(m) is int else m * 10.0**exponent)


def _bigfloat(pair: Any) -> float | Unread:
    return _scaled(pair, math.ldexp)


def _scaled(pair: Any, scale: Callable[[float, int], float]) -> float | Unread:
    if not (isinstance(pair, list | tuple) and list(map(type, pair)) in ([int, int], [int, float])):
        return UNREAD
    exponent, mantissa = pair
    try:
        return scale(mantissa, exponent) if abs(exponent) <= 2000 else UNREAD
    except OverflowError:
        return math.copysign(math.inf, mantissa)


def _typed_array(tag: Any) -> Any:
    if tag.tag in _PLAIN_TAGS:
        return tag.value
    dtype = _TYPED_ARRAYS.get(tag.tag)
    return UNREAD if dtype is None or type(tag.value) is not bytes else TypedArray(dtype, tag.value)


class CborCodec:
    """Decodes CBOR. Takes what `edge_runtime.io.codecs.document.DocumentReader` takes.

    Raises:
        ConfigError: cbor2 is missing or too old, or the channel mapping does not fit the model.
    """

    name = "cbor"

    def __init__(
        self, config: CborConfig, names: Sequence[str], rate_hz: float = 0.0, notice: Notice | None = None
    ) -> None:
        self._parse = load_cbor(self.name)
        self._max_bytes = config.max_bytes
        self._read = DocumentReader(config, names, rate_hz, notice).read

    def decode(self, key: str, payload: bytes, received: float) -> list[Reading]:
        """See `edge_runtime.io.codecs.Codec`."""
        if len(payload) > self._max_bytes:
            raise InputError("too_large", f"{len(payload)} bytes; at most {self._max_bytes} are allowed in a message")
        return self._read(self._parse(payload), key, received, scan=True)
