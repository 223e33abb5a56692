"""DSSE envelope: a payload, its type, and any number of signatures by named keys.

Key sets and announcements travel in one. The payload is not parsed before a signature over it holds, and its type is
part of what is signed, so that a signature over one kind can never pass for another.

Source: DSSE protocol 1.0.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from edge_runtime.errors import SignatureError
from edge_runtime.model.bundle.signature import TrustedKey, hash_of, pae

MAX_SIGNATURES = 64


@dataclass(frozen=True, slots=True)
class Envelope:
    """Envelope that was read; nothing of it is verified yet.

    Attributes:
        kind: payload type.
        payload: the bytes that are signed.
        signatures: by key id.
    """

    kind: str
    payload: bytes
    signatures: dict[str, bytes]

    def signers(self, keys: Iterable[TrustedKey]) -> list[TrustedKey]:
        """Those of the keys whose signature is there and holds."""
        from cryptography import exceptions  # noqa: PLC0415 - only where signatures are verified
        from cryptography.hazmat.primitives.asymmetric import ec  # noqa: PLC0415

        message = pae(self.payload, self.kind)
        good = []
        for key in keys:
            if (made := self.signatures.get(key.id)) is None:
                continue
            try:
                key.public.verify(made, message, ec.ECDSA(hash_of(key.public.curve)))
            except exceptions.InvalidSignature:
                continue
            good.append(key)
        return good


def read(data: bytes, kind: str, max_bytes: int) -> Envelope:
    """Take an envelope apart.

    Args:
        data: JSON.
        kind: the payload type that is expected.
        max_bytes: larger ones are refused.

    Raises:
        SignatureError: it is too large, malformed, or of another type.
    """
    if len(data) > max_bytes:
        raise SignatureError(f"it has {len(data)} bytes, more than {max_bytes}")
    try:
        envelope = json.loads(data.decode("ascii"))
    except (ValueError, RecursionError) as error:
        raise SignatureError("it is not JSON") from error
    if not isinstance(envelope, dict) or envelope.keys() != {"payload", "payloadType", "signatures"}:
        raise SignatureError("it must have payload, payloadType and signatures, and nothing else")
    if envelope["payloadType"] != kind:
        raise SignatureError(f"its payloadType must be {kind}")
    signatures = envelope["signatures"]
    if not isinstance(signatures, list) or len(signatures) > MAX_SIGNATURES:
        raise SignatureError(f"its signatures must be a list of at most {MAX_SIGNATURES}")
    found: dict[str, bytes] = {}
    for one in signatures:
        if not isinstance(one, dict) or one.keys() != {"keyid", "sig"} or not isinstance(one["keyid"], str):
            raise SignatureError("each of its signatures must have keyid and sig")
        found[one["keyid"]] = _decoded(one["sig"])
    return Envelope(kind, _decoded(envelope["payload"]), found)


def _decoded(text: Any) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (ValueError, TypeError, binascii.Error) as error:
        raise SignatureError("it holds something that is not base64") from error
