"""Sets of trusted keys for devices in the field: made here, signed by the old keys and the new ones, sent over the air.

A device takes a set if enough of the keys that it trusts so far have signed it, and enough of its own
(`edge_runtime.update.keys`, docs/updates.md)::

    python -m export.keys keys-2.json --version 2 --trust new.pub.pem --sign old.pem --sign new.pem
"""

from __future__ import annotations

import argparse
import base64
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from cryptography.hazmat.primitives import serialization

from edge_runtime.errors import ConfigError, EdgeError
from edge_runtime.signature import TrustedKey, load_keys
from edge_runtime.update.keys import PAYLOAD_TYPE, pae
from export.sign import SigningKey


def key_set(trust: Sequence[TrustedKey], version: int, signers: Sequence[SigningKey], *, threshold: int = 1) -> bytes:
    """A signed set of keys, as it is published.

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
        raise ConfigError(f"{threshold} of the new keys must sign too, to show that somebody has them")
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    keys = [key.public.public_bytes(serialization.Encoding.PEM, form).decode("ascii") for key in trust]
    payload = json.dumps(
        {"type": "trusted-keys", "version": version, "threshold": threshold, "keys": keys}, separators=(",", ":")
    ).encode()
    signatures = [{"keyid": signer.public.id, "sig": _text(signer.sign(pae(payload)))} for signer in signers]
    envelope = {"payload": _text(payload), "payloadType": PAYLOAD_TYPE, "signatures": signatures}
    return json.dumps(envelope, separators=(",", ":")).encode()


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m export.keys", description="Make a signed set of trusted keys.")
    parser.add_argument("out", type=Path, metavar="KEYS.json", help="what is written, to be published retained")
    parser.add_argument("--version", type=int, required=True, help="higher than that of the set before")
    parser.add_argument("--threshold", type=int, default=1, help="how many of these keys the next set will need")
    parser.add_argument("--trust", type=Path, action="append", required=True, metavar="KEY.pub.pem")
    parser.add_argument("--sign", type=Path, action="append", required=True, metavar="KEY.pem")
    options = parser.parse_args(arguments)
    try:
        made = key_set(
            load_keys(options.trust),
            options.version,
            [SigningKey(path) for path in options.sign],
            threshold=options.threshold,
        )
        options.out.write_bytes(made)
    except EdgeError as error:
        print(f"export.keys: {error}", file=sys.stderr)
        return 2 if isinstance(error, ConfigError) else 1
    except OSError as error:
        print(f"export.keys: {options.out}: cannot be written: {error.strerror}", file=sys.stderr)
        return 1
    print(f"{options.out}: version {options.version}, {len(options.trust)} keys, {len(options.sign)} signatures")
    return 0


if __name__ == "__main__":
    sys.exit(main())
