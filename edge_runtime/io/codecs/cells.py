"""Single values as people and programs write them: numbers, numbers as texts, words, and marks for a missing value.

1. ``21.4``, ``"21.4"``, ``" -2e3 "`` are numbers.
2. ``"21,4"`` and ``"1,234"`` are not, since a comma may be decimal or thousands; unless the configuration says which.
3. ``null``, NaN, ``"unknown"``, ``"nan"`` and the other `MISSING` words are no sample.
4. ``"21.4 °C"`` is a number where the configuration states that unit for the channel, and ``"ON"`` where its ``words``
   say which.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from edge_runtime import units
from edge_runtime.errors import InputError
from edge_runtime.io.codecs.numbers import TypedArray, json_name, single
from edge_runtime.io.codecs.paths import spelled

MISSING = frozenset(
    ("", "-", "--", "nan", "null", "none", "nil", "n/a", "na", "unknown", "unavailable", "undefined", "missing")
)
"""Texts that stand for a missing value, in lower case."""

MAX_TEXT = 64
"""Longest text that may be a number."""

_COMMA = re.compile(r",\d+(?![\d.,])")
_NUMBER = re.compile(r"([+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d{1,4})?)\s*(.*)", re.ASCII | re.DOTALL)

Dtype = Literal["float32", "float64", "float16", "int8", "uint8", "int16", "uint16", "int32", "uint32"]
DTYPES: dict[Dtype, str] = {
    "float32": "f4", "float64": "f8", "float16": "f2",
    "int8": "i1", "uint8": "u1", "int16": "i2", "uint16": "u2", "int32": "i4", "uint32": "u4",
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockConfig:
    """Layout of numbers that are packed into a text or into bytes."""

    encoding: Literal["base64", "hex"] = "base64"
    """Encoding of texts."""
    start: int = 0
    """Bytes before the numbers, for instance a header."""
    count: int = 0
    """Numbers that count; what follows them is left out. 0: all to the end."""
    dtype: Dtype = "float32"
    byte_order: Literal["little", "big"] = "little"
    scale: float = 1.0
    """Physical value = number * scale + offset."""
    offset: float = 0.0

    def __post_init__(self) -> None:
        if not 0 < abs(self.scale) < 1e30 or abs(self.offset) >= 1e30:
            raise ValueError("scale must not be 0, and scale and offset must lie within +-1e30")
        if self.start < 0 or self.count < 0:
            raise ValueError("start and count must not be negative")

    def unpack(self, block: str | bytes) -> TypedArray:
        """Unpack a text or bytes.

        Raises:
            InputError: ``malformed``; not in the encoding, too short, or no whole number of values.
        """
        if isinstance(block, str):
            block = self._decoded(block)
        dtype = np.dtype(("<" if self.byte_order == "little" else ">") + DTYPES[self.dtype])
        wanted = self.start + self.count * dtype.itemsize
        if len(block) < wanted:
            raise InputError("malformed", f"the block of numbers has {len(block)} bytes, and needs {wanted}")
        packed = TypedArray(dtype.str, block[self.start : wanted if self.count else None])
        if self.scale == 1.0 and self.offset == 0.0:
            return packed
        with np.errstate(over="ignore", invalid="ignore"):  # what float32 cannot hold is refused by place later
            return TypedArray("<f8", (packed.array().astype("<f8") * self.scale + self.offset).tobytes())

    def _decoded(self, text: str) -> bytes:
        try:
            if self.encoding == "hex":
                return bytes.fromhex(text)
            # Some senders leave out the padding; RFC 4648 section 5 has - and _ for + and /.
            return base64.b64decode(text.translate(_URL_SAFE) + "=" * (-len(text) % 4), validate=True)
        except (binascii.Error, ValueError):
            raise InputError("malformed", f"the block of numbers is not {self.encoding}") from None


_URL_SAFE = str.maketrans("-_", "+/")


class Cells:
    """Reads single values of a document.

    Args:
        words: number of a word, as ``{ON = 1, OFF = 0}``; ``true`` and ``false`` stand for JSON's own.
        missing: further texts or numbers that stand for a missing value, as ``-127``.
        stated: unit by channel, where one is stated; it may follow the number in a text.
        decimal: mark before the fraction of a number in a text.
    """

    def __init__(
        self,
        words: Mapping[str, float] | None = None,
        missing: Collection[str] = (),
        stated: Mapping[int, str] | None = None,
        decimal: str = ".",
    ) -> None:
        self._decimal = decimal
        self._words = {word.casefold(): number for word, number in (words or {}).items()}
        self._missing = {mark.casefold() for mark in missing}
        self._stated = stated or {}

    def number(self, value: Any, channel: int, where: str) -> float | None:
        """Read a value.

        Args:
            value: the value as it stands in the document.
            channel: the value's channel.
            where: the place, for errors.

        Returns:
            The number; None for a missing value.

        Raises:
            InputError: ``not_a_number``; ``decimal_comma``; ``not_finite``, it is a number that no float32 holds.
        """
        kind = type(value)
        if (kind is float or kind is int) and not self._missing:
            return None if value != value else single(value, where)  # noqa: PLR0124 - NaN
        if value is None or value != value or type(value).__name__ == "UndefinedType":  # noqa: PLR0124 - NaN
            return None
        text = spelled(value)
        if text is None:
            raise InputError("not_a_number", f"{where} holds no number, but {json_name(type(value))}")
        if len(text) > MAX_TEXT:
            raise InputError("not_a_number", f"{where} holds a text of {len(text)} characters, which is no number")
        word = text.strip().casefold()
        if word in self._missing or (kind is str and word in MISSING):
            return None
        if word in self._words:
            return self._words[word]
        return single(value, where) if kind is float or kind is int else self._text(text, channel, where)

    def _text(self, text: str, channel: int, where: str) -> float:
        match = _NUMBER.fullmatch(text.strip().replace(self._decimal, ".", 1))
        if match is None:
            raise InputError(
                "not_a_number", f"{where} holds {text!r}, no number; words under [source.codec] may say which"
            )
        unit = match[2].strip()
        if self._decimal == "." and _COMMA.match(unit):  # rule 2
            raise InputError("decimal_comma", f"{where} holds {text!r}")
        if unit[:1].isdigit() or unit[:1] in (",", ".", "'"):
            raise InputError("not_a_number", f"{where} holds {text!r}: write numbers without marks for thousands")
        if unit and not units.same(unit, self._stated.get(channel, "")):
            raise InputError(
                "not_a_number",
                f"{where} holds {text!r}; say its unit by units under [source.codec] if that is {unit!r}",
            )
        return single(match[1], where)
