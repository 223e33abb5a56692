"""Names that a PNG picture says it shows, in a chunk of text."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence

KEYWORD = b"Names\0"


def chunks(png: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Kind and content of each chunk of a PNG picture."""
    at = 8
    while at < len(png):
        end = at + 8 + int.from_bytes(png[at : at + 4], "big")
        yield png[at + 4 : at + 8], png[at + 8 : end]
        at = end + 4


def with_names(png: bytes, names: Sequence[str]) -> bytes:
    """The picture with the names that it shows as text (a tEXt chunk before the end), in place of older ones."""
    kept = [(kind, body) for kind, body in chunks(png) if not body.startswith(KEYWORD)]
    kept.insert(-1, (b"tEXt", KEYWORD + "; ".join(names).encode("latin-1")))
    return png[:8] + b"".join(
        len(body).to_bytes(4, "big") + kind + body + zlib.crc32(kind + body).to_bytes(4, "big") for kind, body in kept
    )
