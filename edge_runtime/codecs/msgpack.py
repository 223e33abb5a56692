"""MessagePack documents, shaped as the JSON ones (see `edge_runtime.codecs.document`).

Where JSON has a list of samples, a byte string (MessagePack ``bin``) of little-endian float32 may stand, interleaved
sample by sample: half the size and a tenth of the time. Parsed with ormsgpack (extra ``[codecs]``), which bounds
nesting at 1,024 and refuses keys that are not texts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from edge_runtime.codecs import Notice
from edge_runtime.codecs.document import DocumentReader
from edge_runtime.codecs.document_config import DocumentConfig
from edge_runtime.errors import ConfigError, InputError
from edge_runtime.types import Reading


@dataclass(frozen=True, slots=True, kw_only=True)
class MsgpackConfig(DocumentConfig):
    """Settings of the MessagePack codec."""

    type: Literal["msgpack"] = "msgpack"


class MsgpackCodec:
    """Decodes MessagePack. Takes what `edge_runtime.codecs.document.DocumentReader` takes.

    Raises:
        ConfigError: ormsgpack is not installed, or the channel mapping does not fit the model.
    """

    name = "msgpack"

    def __init__(
        self, config: MsgpackConfig, names: Sequence[str], rate_hz: float = 0.0, notice: Notice | None = None
    ) -> None:
        try:
            import ormsgpack  # noqa: PLC0415 - an extra that only this codec needs
        except ImportError:
            raise ConfigError('codec msgpack needs ormsgpack: pip install "edge-runtime[codecs]"') from None
        self._unpack = ormsgpack.unpackb
        self._max_bytes = config.max_bytes
        self._read = DocumentReader(config, names, rate_hz, notice).read

    def decode(self, key: str, payload: bytes, received: float) -> list[Reading]:
        """See `edge_runtime.codecs.Codec`."""
        if len(payload) > self._max_bytes:
            raise InputError("too_large", f"{len(payload)} bytes; at most {self._max_bytes} are allowed in a message")
        try:
            document = self._unpack(payload)
        except ValueError as error:  # MsgpackDecodeError is one
            raise InputError("empty" if not payload else "malformed", f"not MessagePack: {error}") from None
        return self._read(document, key, received, scan=True)
