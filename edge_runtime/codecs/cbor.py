"""CBOR documents (RFC 8949), shaped as the JSON ones (see `edge_runtime.codecs.document`).

Where JSON has a list of samples, two compact forms may stand, interleaved sample by sample: a byte string of
little-endian float32, or a typed array (RFC 8746, tags 64 to 87: integers and floats of any width and byte order).

Parsed with cbor2 6 or newer (extra ``[codecs]``). Its many other tags make a message do things to the reader: compile a
regular expression, parse a MIME message, raise ten to a billion, share one list a million times. All are refused here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from edge_runtime.codecs import Notice
from edge_runtime.codecs.document import DocumentReader
from edge_runtime.codecs.document_config import DocumentConfig
from edge_runtime.codecs.numbers import TypedArray
from edge_runtime.errors import ConfigError, InputError
from edge_runtime.types import Reading

MAX_DEPTH = 32
"""Containers within containers; our own shape needs three."""

DECIMAL_FRACTION = 4

# RFC 8746, table 1: the tag's low bits are f (float), s (signed), e (little-endian) and ll (width).
_TYPED_ARRAYS: dict[int, str] = {
    64: "u1", 65: ">u2", 66: ">u4", 67: ">u8", 68: "u1", 69: "<u2", 70: "<u4", 71: "<u8",
    72: "i1", 73: ">i2", 74: ">i4", 75: ">i8", 77: "<i2", 78: "<i4", 79: "<i8",
    80: ">f2", 81: ">f4", 82: ">f8", 84: "<f2", 85: "<f4", 86: "<f8",
}  # fmt: skip

# Every tag that cbor2 gives a meaning of its own; tags unknown to it go to the tag hook.
_MEANINGFUL_TAGS = (0, 1, 2, 3, 4, 5, 25, 28, 29, 30, 35, 36, 37, 52, 54, 100, 256, 258, 260, 261, 1004, 43000)


@dataclass(frozen=True, slots=True, kw_only=True)
class CborConfig(DocumentConfig):
    """Settings of the CBOR codec."""

    type: Literal["cbor"] = "cbor"


def load_cbor(codec: str, *, senml: bool = False) -> Callable[[bytes], Any]:
    """Load the function that parses CBOR with all limits in place.

    It raises InputError with reason ``malformed`` or ``empty`` for whatever is not a plain document.

    Args:
        codec: who asks, for the message.
        senml: allow what RFC 8428 needs and plain documents do not: integers as labels, and decimal fractions.

    Raises:
        ConfigError: cbor2 is not installed, or too old to be told which tags to refuse.
    """
    try:
        import cbor2  # noqa: PLC0415 - an extra that only two codecs need
    except ImportError:
        raise ConfigError(f'codec {codec} needs cbor2: pip install "edge-runtime[codecs]"') from None
    meaning: dict[int, Callable[..., Any]] = dict.fromkeys(_MEANINGFUL_TAGS, _refuse)
    if senml:
        meaning[DECIMAL_FRACTION] = _decimal_fraction
    loads, broken = cbor2.loads, cbor2.CBORError
    try:
        loads(b"\x00", semantic_decoders=meaning, max_depth=MAX_DEPTH)
    except TypeError:
        raise ConfigError(f'codec {codec} needs cbor2 6 or newer: pip install "cbor2>=6"') from None

    def parse(payload: bytes) -> Any:
        try:
            return loads(
                payload,
                tag_hook=_typed_array,
                semantic_decoders=meaning,
                max_depth=MAX_DEPTH,
                strict_hashable_types=not senml,
            )
        except (broken, ValueError) as error:
            cause = error.__cause__ if isinstance(error.__cause__, InputError) else error
            raise InputError("empty" if not payload else "malformed", f"not plain CBOR: {cause}") from None

    return parse


def _refuse(_value: Any, _immutable: bool = False) -> Any:
    raise InputError("malformed", "a tag that sensor data has no use for")


def _decimal_fraction(pair: Any, _immutable: bool = False) -> float:
    """Mantissa times ten to the exponent, within what a double holds (RFC 8949, section 3.4.4)."""
    if isinstance(pair, list | tuple) and len(pair) == 2:
        exponent, mantissa = pair
        if type(exponent) is int and type(mantissa) is int and abs(exponent) <= 400 and abs(mantissa) < 2**64:
            return float(f"{mantissa}e{exponent}")
    raise InputError("malformed", "a decimal fraction that is not two modest integers")


def _typed_array(tag: Any, _immutable: bool = False) -> TypedArray:
    dtype = _TYPED_ARRAYS.get(tag.tag)
    if dtype is None or type(tag.value) is not bytes:
        raise InputError("malformed", f"tag {tag.tag} is neither a typed array nor plain data")
    return TypedArray(dtype, tag.value)


class CborCodec:
    """Decodes CBOR. Takes what `edge_runtime.codecs.document.DocumentReader` takes.

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
        """See `edge_runtime.codecs.Codec`."""
        if len(payload) > self._max_bytes:
            raise InputError("too_large", f"{len(payload)} bytes; at most {self._max_bytes} are allowed in a message")
        return self._read(self._parse(payload), key, received, scan=True)
