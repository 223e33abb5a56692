"""Signatures of OpenSSF Model Signing: verified before anything else in a bundle is believed.

A signature is a Sigstore bundle (JSON) around a DSSE envelope around an in-toto statement that lists every file with
its SHA-256. It is read in that order and with suspicion: sizes, nesting, field names and base64 have one accepted form,
so that no byte of it can change unnoticed; the statement is not parsed before the ECDSA signature over its bytes holds.
Which algorithm that is follows from the trusted key alone, and never from the document.

Only the ``key`` method is understood. What the ``model-signing`` package signs with it, 1.1 and later, is accepted; a
certificate, a keyless (Sigstore) signature, another hash than SHA-256 or a list of shards is refused by name.

Sources: OpenSSF Model Signing specification 1.0, sections 4 to 8; DSSE protocol 1.0; in-toto Statement v1; Sigstore
bundle 0.3; RFC 4648 section 3.5 (base64 in its canonical form).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edge_runtime.errors import ConfigError, SignatureError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurve, EllipticCurvePublicKey
    from cryptography.hazmat.primitives.hashes import HashAlgorithm

MEDIA_TYPE = "application/vnd.dev.sigstore.bundle.v0.3+json"
PAYLOAD_TYPE = "application/vnd.in-toto+json"
STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE = "https://model_signing/signature/v1.0"

MAX_BYTES = 512 * 1024
"""Of a signature. One for 256 files whose names have 200 characters each needs 130 kB."""
_MAX_DEPTH = 16  # the format needs 5
_MAX_KEY_BYTES = 16 * 1024  # a public key in PEM has about 200 bytes

_HASHES = {"secp256r1": "SHA256", "secp384r1": "SHA384", "secp521r1": "SHA512"}
"""Hash by curve, as the specification pairs them; other curves are refused."""
_DIGEST = re.compile(r"[0-9a-f]{64}")
_ESCAPE = re.compile(r"\\.", re.DOTALL)
_STRING = re.compile(r'"[^"]*"?')
_BRACKET = re.compile(r"[\[\]{}]")


@dataclass(frozen=True, slots=True)
class TrustedKey:
    """A public key whose signatures count. Made by `load_key`."""

    name: str
    """Of its file, for people."""
    id: str
    """SHA-256 of the key in PEM, hexadecimal: the ``hint`` in the signatures that it made."""
    public: EllipticCurvePublicKey = field(repr=False, compare=False)

    def __str__(self) -> str:
        return f"{self.name} (key {self.id[:16]})"


def load_key(path: Path) -> TrustedKey:
    """Read a public key: PEM, on the curve P-256, P-384 or P-521.

    Raises:
        ConfigError: the file cannot be read or is something else, or ``cryptography`` is not installed.
    """
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_KEY_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"public key {path}: cannot be read: {error.strerror}") from error
    if b"PRIVATE KEY" in data:
        raise ConfigError(f"public key {path}: holds a private key; keep that off devices and name the public one")
    if len(data) > _MAX_KEY_BYTES or data.count(b"-----BEGIN ") != 1:
        raise ConfigError(f"public key {path}: must hold one public key in PEM (-----BEGIN PUBLIC KEY-----)")
    try:
        from cryptography import exceptions  # noqa: PLC0415 - only where signatures are verified
        from cryptography.hazmat.primitives import serialization  # noqa: PLC0415
        from cryptography.hazmat.primitives.asymmetric import ec  # noqa: PLC0415
    except ImportError as error:
        raise ConfigError('to verify signatures, run: pip install "edge-runtime[sign]"') from error
    try:
        public = serialization.load_pem_public_key(data)
    except (ValueError, exceptions.UnsupportedAlgorithm) as error:
        raise ConfigError(f"public key {path}: is not a public key in PEM, or is damaged") from error
    if not isinstance(public, ec.EllipticCurvePublicKey) or public.curve.name not in _HASHES:
        raise ConfigError(f"public key {path}: must be an elliptic-curve key on P-256, P-384 or P-521")
    return TrustedKey(path.name, key_id(public), public)


def load_keys(paths: Iterable[Path]) -> tuple[TrustedKey, ...]:
    """Read several public keys, see `load_key`."""
    return tuple(load_key(path) for path in paths)


def key_id(public: EllipticCurvePublicKey) -> str:
    """Name a key as signatures do: the SHA-256 of its PEM form, hexadecimal."""
    from cryptography.hazmat.primitives import serialization  # noqa: PLC0415 - only where signatures are verified

    form = serialization.PublicFormat.SubjectPublicKeyInfo
    return hashlib.sha256(public.public_bytes(serialization.Encoding.PEM, form)).hexdigest()


def hash_of(curve: EllipticCurve) -> HashAlgorithm:
    """Return the hash that goes with a curve.

    Raises:
        ValueError: signatures do not use this curve.
    """
    from cryptography.hazmat.primitives import hashes  # noqa: PLC0415 - only where signatures are verified

    if curve.name not in _HASHES:
        raise ValueError(f"curve {curve.name} is not P-256, P-384 or P-521")
    algorithm = getattr(hashes, _HASHES[curve.name])()
    assert isinstance(algorithm, hashes.HashAlgorithm)
    return algorithm


def pae(payload: bytes, kind: str = PAYLOAD_TYPE) -> bytes:
    """Encode the bytes that are signed: DSSE's pre-authentication encoding of payload type and payload."""
    encoded = kind.encode()
    return b"DSSEv1 %d %b %d %b" % (len(encoded), encoded, len(payload), payload)


def root_digest(digests: Iterable[str]) -> str:
    """Return one digest over the digests of files, hexadecimal both, in the order given.

    Source: OpenSSF Model Signing specification 1.0, section 6.5.1.
    """
    return hashlib.sha256(b"".join(map(bytes.fromhex, digests))).hexdigest()


def verify(data: bytes, digests: Mapping[str, str], keys: Sequence[TrustedKey]) -> TrustedKey:
    """Verify a signature over a set of files.

    Args:
        data: the signature file.
        digests: SHA-256 in lower-case hexadecimal by name, of every file there is besides the signature.
        keys: any of these may have signed.

    Returns:
        The key that did.

    Raises:
        SignatureError: the signature is malformed, not by one of the keys, or over other files than these.
    """
    payload, raw, signer = _opened(data)
    key = next((key for key in keys if key.id == signer), None)
    if key is None:
        trusted = ", ".join(map(str, keys)) or "none; name the signer's public key (docs/signing.md)"
        raise SignatureError(f"it is signed by key {signer[:16]}, which is not trusted; trusted: {trusted}")
    from cryptography import exceptions  # noqa: PLC0415 - only where signatures are verified
    from cryptography.hazmat.primitives.asymmetric import ec  # noqa: PLC0415

    try:
        key.public.verify(raw, pae(payload), ec.ECDSA(hash_of(key.public.curve)))
    except exceptions.InvalidSignature as error:
        raise SignatureError(f"its signature is not one of {key}; get the bundle again from its signer") from error
    _compare(_listed(payload), digests)
    return key


def _opened(data: bytes) -> tuple[bytes, bytes, str]:
    """Payload, signature and key id of a signature file; nothing of it is verified yet."""
    if len(data) > MAX_BYTES:
        raise SignatureError(f"its signature has {len(data)} bytes, more than the limit of {MAX_BYTES}")
    bundle = _fields(_parsed(data), "the file", ("mediaType", "verificationMaterial", "dsseEnvelope"))
    _same(bundle, "mediaType", MEDIA_TYPE)
    material = bundle["verificationMaterial"]
    if isinstance(material, dict) and {"certificate", "x509CertificateChain"} & material.keys():
        raise SignatureError("it is signed with a certificate; sign it with a key (docs/signing.md)")
    material = _fields(material, "verificationMaterial", ("publicKey",), ("tlogEntries",))
    if material.get("tlogEntries", []) != []:
        raise SignatureError("its signature has transparency log entries, which go with certificates, not with keys")
    hint = _fields(material["publicKey"], "publicKey", ("hint",))["hint"]
    if not _is_digest(hint):
        raise SignatureError("its signature does not name its key (publicKey.hint); sign it again")
    envelope = _fields(bundle["dsseEnvelope"], "dsseEnvelope", ("payload", "payloadType", "signatures"))
    _same(envelope, "payloadType", PAYLOAD_TYPE)
    signatures = envelope["signatures"]
    if not isinstance(signatures, list) or len(signatures) != 1:
        raise SignatureError("its signature file must hold exactly one signature")
    signature = _fields(signatures[0], "signatures", ("sig",), ("keyid",))
    if signature.get("keyid") not in (None, ""):
        raise SignatureError("its signature has a keyid; the key is named by publicKey.hint alone")
    return _decoded(envelope, "payload"), _decoded(signature, "sig"), hint


def _listed(payload: bytes) -> dict[str, str]:
    """Digest by name, as the signed statement has them. Fields that the specification does not know are not read."""
    statement = _object(_parsed(payload), "statement")
    _same(statement, "_type", STATEMENT_TYPE)
    _same(statement, "predicateType", PREDICATE_TYPE)
    predicate = _object(statement.get("predicate"), "predicate")
    serialization = _object(predicate.get("serialization"), "serialization")
    _same(serialization, "method", "files")
    _same(serialization, "hash_type", "sha256")
    resources = predicate.get("resources")
    if not isinstance(resources, list) or not resources:
        raise SignatureError("its signature lists no files")
    listed: dict[str, str] = {}
    for resource in resources:
        _same(_object(resource, "resources"), "algorithm", "sha256")
        name, digest = resource.get("name"), resource.get("digest")
        if not isinstance(name, str) or not _is_digest(digest):
            raise SignatureError("its signature lists a file without a name, or without a SHA-256")
        if name in listed:
            raise SignatureError(f"its signature lists {name[:80]!r} twice")
        listed[name] = digest
    subjects = statement.get("subject")
    if not isinstance(subjects, list) or len(subjects) != 1:
        raise SignatureError("its signature must have exactly one subject")
    subject = _object(_object(subjects[0], "subject").get("digest"), "digest")
    if subject.get("sha256") != root_digest(listed.values()):
        raise SignatureError("its signature contradicts itself: the subject is not the digest of the files it lists")
    return listed


def _compare(listed: Mapping[str, str], digests: Mapping[str, str]) -> None:
    if extra := sorted(digests.keys() - listed.keys()):
        raise SignatureError(f"{extra[0]} is not covered by the signature")
    if missing := sorted(listed.keys() - digests.keys()):
        raise SignatureError(f"{missing[0][:80]!r} is covered by the signature and missing")
    if changed := [name for name, digest in digests.items() if listed[name] != digest]:
        raise SignatureError(f"{changed[0]} was changed after it was signed")


# -- reading JSON and base64 in the one form that is accepted ----------------------------------------------------------


def _parsed(data: bytes) -> Any:
    """JSON without repeated keys and without numbers that are none; refused before it nests deeply."""
    try:
        text = data.decode("utf-8")
        depth = deepest = 0
        for bracket in _BRACKET.findall(_STRING.sub("", _ESCAPE.sub("", text))):
            depth += 1 if bracket in "[{" else -1
            deepest = max(deepest, depth)
        if deepest > _MAX_DEPTH:
            raise SignatureError(f"its signature nests deeper than {_MAX_DEPTH}")
        return json.loads(text, object_pairs_hook=_unique, parse_constant=_no_number)
    except ValueError as error:  # bytes that are no UTF-8, JSON that is none, numbers of thousands of digits
        raise SignatureError("its signature is not JSON, or is damaged") from error


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key is repeated")
    return found


def _no_number(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _object(value: Any, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise SignatureError(f"its signature is malformed: {what} is not an object")
    return value


def _fields(value: Any, what: str, required: tuple[str, ...], optional: tuple[str, ...] = ()) -> dict[str, Any]:
    """Check that an object has these fields and no other."""
    found = _object(value, what)
    if not set(required) <= found.keys() <= {*required, *optional}:
        raise SignatureError(f"its signature is malformed: {what} must have {', '.join(required)} and nothing else")
    return found


def _same(found: Mapping[str, Any], name: str, expected: str) -> None:
    if found.get(name) != expected:
        raise SignatureError(f"its signature is not of the kind that is accepted: {name} must be {expected}")


def _is_digest(value: Any) -> bool:
    return isinstance(value, str) and _DIGEST.fullmatch(value) is not None


def _decoded(found: Mapping[str, Any], name: str) -> bytes:
    """Base64 of the standard alphabet, padded, its spare bits zero: each value has one spelling."""
    text = found[name]
    try:
        data = base64.b64decode(text, validate=True) if isinstance(text, str) else b""
    except (ValueError, binascii.Error):
        data = b""
    if not data or base64.b64encode(data).decode() != text:
        raise SignatureError(f"its signature is malformed: {name} is not base64")
    return data
