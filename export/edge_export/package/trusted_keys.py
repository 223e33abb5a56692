"""Sets of trusted keys for devices in the field: made here, signed by the old keys and the new ones, sent over the air.

A device takes a set if enough of the keys that it trusts so far have signed it, and enough of its own
(`edge_runtime.operate.update.keys`, docs/updates.md)::

    edge-export keys set --out keys-2.json --version 2 --trusted-key new.pub.pem --key old.pem --key new.pem
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from cryptography.hazmat.primitives import serialization

from edge_export.package.sign import SigningKey, envelope
from edge_runtime.errors import ConfigError
from edge_runtime.model.bundle.signature import TrustedKey
from edge_runtime.operate.update.keys import PAYLOAD_TYPE


def key_set(trust: Sequence[TrustedKey], version: int, signers: Sequence[SigningKey], *, threshold: int = 1) -> bytes:
    """Make a signed set of keys, as it is published.

    Args:
        trust: the keys that are to be trusted from now on.
        version: higher than that of every set before; that of the configuration has 0.
        signers: enough of the keys trusted so far, and enough of the new ones.
        threshold: how many of `trust` the next set will need.

    Raises:
        ConfigError: the threshold cannot be reached by these keys.
    """
    if not 1 <= threshold <= len(trust):
        raise ConfigError(f"threshold {threshold} must be 1 to the number of keys ({len(trust)})")
    signing = {signer.public.id for signer in signers}
    if sum(key.id in signing for key in trust) < threshold:
        raise ConfigError(f"{threshold} of the new keys must sign too, to show that their private halves exist")
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    keys = [key.public.public_bytes(serialization.Encoding.PEM, form).decode("ascii") for key in trust]
    payload = json.dumps(
        {"type": "trusted-keys", "version": version, "threshold": threshold, "keys": keys}, separators=(",", ":")
    ).encode()
    return envelope(PAYLOAD_TYPE, payload, signers)
