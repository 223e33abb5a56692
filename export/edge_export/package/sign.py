"""Signature of a bundle, by which a device knows who made it (OpenSSF Model Signing 1.0, method ``key``).

The signature covers every file of the bundle but itself, by name and SHA-256. It is a file like any other, so an
unpacked bundle verifies with the ``model-signing`` package too; and a signature which that package made over the
unpacked files (with a key on a PKCS#11 token, say) is put into the bundle by `attach`. ECDSA takes its nonce from key
and message (RFC 6979): the same files and key give the same bytes, and no bad random number can give the key away.

Sources: OpenSSF Model Signing specification 1.0, sections 5 and 6; DSSE protocol 1.0; RFC 6979.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cryptography import exceptions
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from edge_export.package.put_in_place import put_in_place
from edge_runtime.errors import ConfigError
from edge_runtime.model.bundle import archive, signature
from edge_runtime.model.bundle.bundle import SIGNATURE, open_bundle
from edge_runtime.model.bundle.signature import TrustedKey

IGNORED = (".git", ".gitattributes", ".github", ".gitignore", SIGNATURE)
"""Not signed, and written down as such: what the specification excludes (6.2), and the signature itself."""


class SigningKey:
    """A private key. Its representation shows nothing of it.

    Args:
        path: PEM, on the curve P-256, P-384 or P-521; `new_key` makes one.
        password: an encrypted file's password.

    Attributes:
        public: what devices are given, to be compared with and verified by.

    Raises:
        ConfigError: the file cannot be read or is no such key, or the password is missing or wrong.
    """

    def __init__(self, path: Path, password: bytes | None = None) -> None:
        try:
            private = serialization.load_pem_private_key(path.read_bytes(), password)
        except OSError as error:
            raise ConfigError(f"private key {path}: cannot be read: {error.strerror}") from error
        except TypeError as error:  # a password is missing, or superfluous
            asked = "is encrypted; give its password" if password is None else "is not encrypted; give no password"
            raise ConfigError(f"private key {path}: {asked}") from error
        except (ValueError, exceptions.UnsupportedAlgorithm) as error:
            raise ConfigError(f"private key {path}: is not a private key in PEM, or the password is wrong") from error
        if not isinstance(private, ec.EllipticCurvePrivateKey):
            raise ConfigError(f"private key {path}: must be an elliptic-curve key on P-256, P-384 or P-521")
        public = private.public_key()
        try:
            self._algorithm = ec.ECDSA(signature.hash_of(private.curve), deterministic_signing=True)
        except ValueError as error:
            raise ConfigError(f"private key {path}: {error}") from error
        except exceptions.UnsupportedAlgorithm as error:
            raise ConfigError(
                "to sign, cryptography must bring OpenSSL 3.2 or newer: pip install -U cryptography"
            ) from error
        self._private = private
        self.public = TrustedKey(path.with_suffix(".pub.pem").name, signature.key_id(public), public)

    def __repr__(self) -> str:
        return f"SigningKey({self.public.name!r}, ********)"

    def sign(self, data: bytes) -> bytes:
        """Make a plain ECDSA signature, DER."""
        return self._private.sign(data, self._algorithm)

    def signature(self, name: str, digests: Mapping[str, str]) -> bytes:
        """Make a signature file.

        Args:
            name: the model's name, for people.
            digests: SHA-256 of every file, hexadecimal, by name.
        """
        payload = _json(statement(name, digests))
        raw = self.sign(signature.pae(payload))
        return _json(
            {
                "mediaType": signature.MEDIA_TYPE,
                "verificationMaterial": {"publicKey": {"hint": self.public.id}, "tlogEntries": []},
                "dsseEnvelope": {
                    "payload": base64.b64encode(payload).decode(),
                    "payloadType": signature.PAYLOAD_TYPE,
                    "signatures": [{"sig": base64.b64encode(raw).decode(), "keyid": ""}],
                },
            }
        )


def envelope(kind: str, payload: bytes, signers: Sequence[SigningKey]) -> bytes:
    """Make a DSSE envelope with a signature by each of the keys, as `edge_runtime.operate.update.envelope` reads it.

    Args:
        kind: payload type; part of what is signed.
        payload: what is signed.
        signers: one or more.
    """

    def text(data: bytes) -> str:
        return base64.b64encode(data).decode("ascii")

    message = signature.pae(payload, kind)
    signatures = [{"keyid": signer.public.id, "sig": text(signer.sign(message))} for signer in signers]
    return _json({"payload": text(payload), "payloadType": kind, "signatures": signatures})


def statement(name: str, digests: Mapping[str, str]) -> dict[str, Any]:
    """Make the in-toto statement about a set of files: what is signed.

    Args:
        name: the model's name, for people.
        digests: SHA-256 of every file, hexadecimal, by name.
    """
    listed = sorted(digests.items())
    return {
        "_type": signature.STATEMENT_TYPE,
        "subject": [{"name": name, "digest": {"sha256": signature.root_digest(digest for _, digest in listed)}}],
        "predicateType": signature.PREDICATE_TYPE,
        "predicate": {
            "serialization": {
                "method": "files",
                "hash_type": "sha256",
                "allow_symlinks": False,
                "ignore_paths": list(IGNORED),
            },
            "resources": [{"name": file, "algorithm": "sha256", "digest": digest} for file, digest in listed],
        },
    }


def _json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def new_key(path: Path, password: bytes | None = None) -> TrustedKey:
    """Make a key pair on P-256: the private key at `path`, readable by its owner only, the public one beside it.

    Args:
        path: the private key's file, for example ``release.pem``; the public key becomes ``release.pub.pem``.
        password: encrypts the private key.

    Raises:
        ConfigError: one of the files is there already, or cannot be written; no key is ever replaced.
    """
    public_path = path.with_suffix(".pub.pem")
    private = ec.generate_private_key(ec.SECP256R1())
    pem, pkcs8 = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    protection = serialization.BestAvailableEncryption(password) if password else serialization.NoEncryption()
    public = private.public_key().public_bytes(pem, serialization.PublicFormat.SubjectPublicKeyInfo)
    if public_path.exists():
        raise ConfigError(f"{public_path}: is there already; choose another name")
    for place, data, mode in (
        (path, private.private_bytes(pem, pkcs8, protection), 0o600),
        (public_path, public, 0o644),
    ):
        try:
            with open(os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:  # noqa: PTH123 - of a descriptor
                file.write(data)
        except FileExistsError as error:
            raise ConfigError(f"{place}: is there already; choose another name") from error
        except OSError as error:
            raise ConfigError(f"{place}: cannot be written: {error.strerror}") from error
    return signature.load_key(public_path)


def sign_bundle(path: Path, key: SigningKey) -> None:
    """Sign a bundle in place; a signature that it has is replaced. Signing twice changes nothing.

    Raises:
        BundleError: it is not a whole bundle, or cannot be written.
    """
    with open_bundle(path) as bundle:
        files = {name: bundle.file(name) for name in bundle.digests}
        made = key.signature(bundle.manifest.name, bundle.digests)
    put_in_place(path, archive.pack({**files, SIGNATURE: made}), [key.public])


def attach(path: Path, made: bytes, key: TrustedKey) -> None:
    """Put a signature that was made elsewhere over the unpacked files into their bundle.

    Args:
        path: the bundle, signed or not; rewritten only if the signature holds.
        made: the signature file.
        key: the public key to which the private one belongs that made it.

    Raises:
        BundleError: the bundle is not whole or cannot be written, or the signature does not hold.
    """
    with open_bundle(path) as bundle:
        signature.verify(made, bundle.digests, [key])
        files = {name: bundle.file(name) for name in bundle.digests}
    put_in_place(path, archive.pack({**files, SIGNATURE: made}), [key])
