"""JSON documents, our own shape or a mapped one (see `edge_runtime.io.codecs.document`).

A value that is not read refuses no message. orjson parses; what it refuses is parsed again, more slowly, by the rules:

1. A byte order mark ahead, and NUL bytes behind, are left out; the mark of UTF-16 says that the text is in UTF-16.
2. ``NaN`` and ``Infinity``, and in messages of up to `MAX_WORDS` ``nan``, ``-inf``, ``ovf`` and their like, as
   ``printf`` writes them, are numbers that are not finite; ``1e999`` is infinite.
3. Lone surrogates, control characters and bytes that are not UTF-8 may stand in texts. A key with them is refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import orjson

from edge_runtime.errors import InputError
from edge_runtime.io.codecs import Notice
from edge_runtime.io.codecs.cells import MAX_TEXT
from edge_runtime.io.codecs.document import DocumentReader
from edge_runtime.io.codecs.document_config import DocumentConfig
from edge_runtime.types import Reading

MAX_WORDS = 64 * 1024
"""Size of a message that is searched for words, at 0.3 us each."""

_WORD = re.compile(r'"(?:[^"\\]+|\\.)*"?|(-?)\b(nan|inf|infinity|ovf)\b(?:\(\w*\))?', re.IGNORECASE | re.DOTALL)
"""A text, or a word for a number that is not finite."""


def parse_json(payload: bytes) -> Any:
    """Parse JSON by the rules of this module.

    Raises:
        InputError: ``empty`` or ``malformed``.
    """
    try:
        return orjson.loads(payload)
    except orjson.JSONDecodeError as error:
        return _parse_again(payload, error)


def _parse_again(payload: bytes, refused: orjson.JSONDecodeError) -> Any:
    text = as_text(payload)
    try:
        spelled = _WORD.sub(_spelled, text) if len(text) <= MAX_WORDS else text
        return json.loads(spelled, strict=False, parse_int=_integer)
    except (ValueError, RecursionError):
        raise InputError("malformed" if text.strip() else "empty", f"not JSON: {refused}") from None


def as_text(payload: bytes) -> str:
    """Return a payload as a text (rules 1 and 3); bytes that are not UTF-8 become lone surrogates."""
    if len(payload) > 2 and payload[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return payload.decode("utf-16", "replace")
    return payload.decode("utf-8-sig", "surrogateescape").rstrip("\0")


def _spelled(match: re.Match[str]) -> str:  # rule 2
    sign, word = match[1], match[2]
    return match[0] if word is None else "NaN" if word[0] in "nN" else f"{sign}Infinity"


def _integer(digits: str) -> float:
    """Return a whole number; as a float beyond 64 bits, as orjson does."""
    return int(digits) if len(digits) < 20 else float(digits)


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonConfig(DocumentConfig):
    """Settings of the JSON codec."""

    type: Literal["json"] = "json"


class JsonCodec:
    """Decodes JSON. Takes what `edge_runtime.io.codecs.document.DocumentReader` takes.

    Raises:
        ConfigError: the channel mapping does not fit the model.
    """

    name = "json"

    def __init__(
        self, config: JsonConfig, names: Sequence[str], rate_hz: float = 0.0, notice: Notice | None = None
    ) -> None:
        self._max_bytes = config.max_bytes
        self._bare = config.values == "." or "." in config.channels.values() or len(names) == 1
        self._read = DocumentReader(config, names, rate_hz, notice).read

    def decode(self, key: str, payload: bytes, received: float) -> list[Reading]:
        """See `edge_runtime.io.codecs.Codec`."""
        if len(payload) > self._max_bytes:
            raise InputError("too_large", f"{len(payload)} bytes; at most {self._max_bytes} are allowed in a message")
        try:
            document = orjson.loads(payload)
        except orjson.JSONDecodeError as error:
            try:
                document = _parse_again(payload, error)
            except InputError:
                if not (self._bare and 0 < len(payload) <= MAX_TEXT and payload[:1] not in b'{["'):
                    raise
                document = as_text(payload)  # one value as a plain text: unavailable, 21 %, ON
        # Only a text that spells them can hold booleans; without them the packer itself refuses all but numbers.
        # One letter is found ten times faster than a word, and our own field names hold neither r nor f.
        scan = (b"r" in payload and b"true" in payload) or (b"f" in payload and b"false" in payload)
        return self._read(document, key, received, scan=scan)
