"""Make the vectors of this folder anew, with the ``model-signing`` package: see README.md.

The private keys are made here and forgotten; running this changes every file.
"""

from __future__ import annotations

import base64
import copy
import datetime as dt
import json
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from model_signing import hashing, signing

HERE = Path(__file__).resolve().parent
FILES = {
    "card.md": b"# A card\n",
    "empty.bin": b"",
    "variants/net.onnx": bytes(range(256)),
    # The package sorts by parts of a path, the specification by characters: these two come in a different order.
    "variants.txt": b"net\n",
}
CURVES = {"p256": ec.SECP256R1(), "p384": ec.SECP384R1(), "p521": ec.SECP521R1(), "k256": ec.SECP256K1()}
HASHES = {"p256": hashes.SHA256(), "p384": hashes.SHA384(), "p521": hashes.SHA512()}
Change = Callable[[dict[str, Any]], object]


def private_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def public_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)


def read(path: Path) -> dict[str, Any]:
    found = json.loads(path.read_text())
    assert isinstance(found, dict)
    return found


def signed(folder: Path, key: Path, config: hashing.Config | None = None) -> dict[str, Any]:
    """What the package writes for a folder."""
    signer = signing.Config().use_elliptic_key_signer(private_key=key)
    signer.set_hashing_config(config or hashing.Config().set_ignored_paths(paths=["signature.json"]))
    out = key.with_suffix(".out")
    signer.sign(folder, out)
    return read(out)


def resigned(bundle: dict[str, Any], key: ec.EllipticCurvePrivateKey, change: Change) -> dict[str, Any]:
    """The bundle with its statement changed and signed again: only what the statement says can be wrong with it."""
    found = copy.deepcopy(bundle)
    envelope = found["dsseEnvelope"]
    statement = json.loads(base64.b64decode(envelope["payload"]))
    change(statement)
    payload = json.dumps(statement).encode()
    kind = envelope["payloadType"]
    encoded = f"DSSEv1 {len(kind)} {kind} {len(payload)} ".encode() + payload
    envelope["payload"] = base64.b64encode(payload).decode()
    envelope["signatures"][0]["sig"] = base64.b64encode(key.sign(encoded, ec.ECDSA(hashes.SHA256()))).decode()
    return found


def unknown_fields(statement: dict[str, Any]) -> None:
    statement["predicate"]["more"] = 1.5
    statement["predicate"]["resources"][0]["uri"] = "x"


def changed(bundle: dict[str, Any], change: Change) -> dict[str, Any]:
    found = copy.deepcopy(bundle)
    change(found)
    return found


def with_certificate(folder: Path, key: ec.EllipticCurvePrivateKey, place: Path) -> dict[str, Any]:
    """Signed by the package's other method."""
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "tests")])
    day = dt.datetime(2026, 1, 1, tzinfo=dt.timezone.utc)
    usage = {name: name == "digital_signature" for name in (
        "digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement",
        "key_cert_sign", "crl_sign", "encipher_only", "decipher_only",
    )}  # fmt: skip
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(day)
        .not_valid_after(day + dt.timedelta(days=36500))
        .add_extension(x509.KeyUsage(**usage), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CODE_SIGNING]), critical=False)
        .sign(key, hashes.SHA256())
    )
    chain = place / "certificate.pem"
    chain.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    signer = signing.Config().use_certificate_signer(
        private_key=place / "p256.pem", signing_certificate=chain, certificate_chain=[chain]
    )
    signer.sign(folder, place / "certificate.out")
    return read(place / "certificate.out")


def main() -> None:
    for name in ("files", "keys", "valid", "invalid"):
        shutil.rmtree(HERE / name, ignore_errors=True)
        (HERE / name).mkdir()
    folder = HERE / "files"
    for name, data in FILES.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(data)
    keys = {name: ec.generate_private_key(curve) for name, curve in CURVES.items()}
    for name, key in keys.items():
        (HERE / "keys" / f"{name}.pub.pem").write_bytes(public_pem(key))
    with tempfile.TemporaryDirectory() as temporary:
        place = Path(temporary)
        for name, key in keys.items():
            (place / f"{name}.pem").write_bytes(private_pem(key))
        make(folder, place, keys["p256"])


def make(folder: Path, place: Path, key: ec.EllipticCurvePrivateKey) -> None:
    """All vectors; `place` holds the private keys."""
    ignore, blake2, shards, links = (hashing.Config() for _ in range(4))
    ignore.set_ignored_paths(paths=["signature.json", "notes"])
    blake2.use_file_serialization(hashing_algorithm="blake2")
    shards.use_shard_serialization(shard_size=64)
    links.use_file_serialization(allow_symlinks=True)
    links.set_allow_symlinks(True)
    good = signed(folder, place / "p256.pem")
    valid = {name: signed(folder, place / f"{name}.pem") for name in HASHES}
    valid["ignored-paths"] = signed(folder, place / "p256.pem", ignore)
    valid["links-allowed"] = signed(folder, place / "p256.pem", links)
    # The specification: unknown fields of a statement are not read, a keyid may be absent or null, log entries too.
    valid["unknown-fields"] = resigned(good, key, unknown_fields)
    valid["no-keyid"] = changed(good, lambda b: b["dsseEnvelope"]["signatures"][0].pop("keyid"))
    valid["null-keyid"] = changed(good, lambda b: b["dsseEnvelope"]["signatures"][0].update(keyid=None))
    valid["no-log-entries"] = changed(good, lambda b: b["verificationMaterial"].pop("tlogEntries"))
    other = ec.generate_private_key(ec.SECP256R1())
    (place / "other.pem").write_bytes(private_pem(other))
    strange = signed(folder, place / "other.pem")
    raw_bytes = {"rawBytes": base64.b64encode(public_pem(key)).decode(), "keyDetails": "PKIX_ECDSA_P256_SHA_256"}
    hint = good["verificationMaterial"]["publicKey"]["hint"]
    invalid = {
        "other-key": strange,
        "other-key-under-a-trusted-name": changed(
            strange, lambda b: b["verificationMaterial"]["publicKey"].update(hint=hint)
        ),
        "certificate": with_certificate(folder, key, place),
        "blake2": signed(folder, place / "p256.pem", blake2),
        "shards": signed(folder, place / "p256.pem", shards),
        "missing-envelope": changed(good, lambda b: b.pop("dsseEnvelope")),
        "missing-verification-material": changed(good, lambda b: b.pop("verificationMaterial")),
        "no-signature": changed(good, lambda b: b["dsseEnvelope"].update(signatures=[])),
        "two-signatures": changed(good, lambda b: b["dsseEnvelope"].update(
            signatures=b["dsseEnvelope"]["signatures"] * 2)),
        "wrong-media-type": changed(good, lambda b: b.update(mediaType="application/json")),
        "wrong-payload-type": changed(good, lambda b: b["dsseEnvelope"].update(payloadType="application/json")),
        "raw-bytes-for-hint": changed(good, lambda b: b["verificationMaterial"].update(publicKey=raw_bytes)),
        "named-algorithm": changed(good, lambda b: b["dsseEnvelope"]["signatures"][0].update(alg="none")),
        "wrong-statement-type": resigned(good, key, lambda s: s.update(_type="https://in-toto.io/Statement/v0.1")),
        "wrong-predicate": resigned(good, key, lambda s: s.update(predicateType="https://slsa.dev/provenance/v1")),
        "old-predicate": resigned(good, key, lambda s: s.update(predicateType="https://model_signing/Digests/v0.1")),
        "missing-predicate": resigned(good, key, lambda s: s.pop("predicate")),
        "missing-serialization": resigned(good, key, lambda s: s["predicate"].pop("serialization")),
        "empty-resources": resigned(good, key, lambda s: s["predicate"].update(resources=[])),
        "repeated-resource": resigned(good, key, lambda s: s["predicate"]["resources"].append(
            s["predicate"]["resources"][0])),
        "missing-resource": resigned(good, key, lambda s: s["predicate"]["resources"].pop()),
        "short-digest": resigned(good, key, lambda s: s["predicate"]["resources"][0].update(digest="00")),
        "wrong-root": resigned(good, key, lambda s: s["subject"][0]["digest"].update(sha256="0" * 64)),
        "two-subjects": resigned(good, key, lambda s: s["subject"].append(s["subject"][0])),
        "empty-statement": resigned(good, key, lambda s: s.clear()),
    }  # fmt: skip
    for kind, vectors in (("valid", valid), ("invalid", invalid)):
        for name, bundle in vectors.items():
            text = json.dumps(bundle, separators=(",", ":"))
            (HERE / kind / f"{name}.json").write_text(text)


if __name__ == "__main__":
    main()
