"""JSON documents, our own shape or a mapped one (see `edge_runtime.codecs.document`).

Parsed with orjson, which refuses what the standard library lets through: NaN, Infinity, ``1e999``, lone surrogates,
nesting deeper than 1,024.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import orjson

from edge_runtime.codecs import Notice
from edge_runtime.codecs.cells import MAX_TEXT
from edge_runtime.codecs.document import DocumentReader
from edge_runtime.codecs.document_config import DocumentConfig
from edge_runtime.errors import InputError
from edge_runtime.types import Reading


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonConfig(DocumentConfig):
    """Settings of the JSON codec."""

    type: Literal["json"] = "json"


class JsonCodec:
    """Decodes JSON. Takes what `edge_runtime.codecs.document.DocumentReader` takes.

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
        """See `edge_runtime.codecs.Codec`."""
        if len(payload) > self._max_bytes:
            raise InputError("too_large", f"{len(payload)} bytes; at most {self._max_bytes} are allowed in a message")
        try:
            document = orjson.loads(payload)
        except orjson.JSONDecodeError as error:
            if not (self._bare and 0 < len(payload) <= MAX_TEXT and payload[:1] not in b'{["'):
                raise InputError("empty" if not payload else "malformed", f"not JSON: {error}") from None
            document = payload.decode(errors="replace")  # one value as a plain text: unavailable, nan, ON
        # Only a text that spells them can hold booleans; without them the packer itself refuses all but numbers.
        # One letter is found ten times faster than a word, and our own field names hold neither r nor f.
        scan = (b"r" in payload and b"true" in payload) or (b"f" in payload and b"false" in payload)
        return self._read(document, key, received, scan=scan)
