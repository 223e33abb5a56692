"""Signing: what we sign a device verifies, byte for byte the same each time; keys are made once and never shown."""

from __future__ import annotations

import base64
import json
import stat
import subprocess
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from edge_export.cli import main
from edge_export.package.sign import SigningKey, attach, new_key, sign_bundle, statement

from edge_runtime.errors import BundleError, ConfigError, SignatureError
from edge_runtime.model.bundle import archive, signature
from edge_runtime.model.bundle.bundle import SIGNATURE, open_bundle
from edge_runtime.model.bundle.describe import describe
from edge_runtime.model.bundle.signature import load_key
from tests import models


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("keys")
    for name in ("release", "other"):
        new_key(folder / f"{name}.pem")
    return folder


@pytest.fixture(scope="module")
def key(keys: Path) -> SigningKey:
    return SigningKey(keys / "release.pem")


def test_a_bundle_packed_with_a_signer_is_what_signing_it_later_gives(tmp_path: Path, key: SigningKey) -> None:
    at_once = models.tiny_bundle(tmp_path / "a.edge", card="# A\n", signer=key)
    later = models.tiny_bundle(tmp_path / "b.edge", card="# A\n")
    with open_bundle(later) as bundle:
        root = bundle.root
        assert bundle.signature == "unsigned"
    for _ in range(2):
        sign_bundle(later, key)
        assert later.read_bytes() == at_once.read_bytes(), "deterministic, and signing twice changes nothing"
    with open_bundle(later, trusted=[key.public]) as bundle:
        assert bundle.signer == key.public
        assert bundle.signature == f"signed by release.pub.pem (key {key.public.id[:16]})"
        assert bundle.root == root == describe(bundle)["root"], "who signed does not change what a bundle is"
        assert SIGNATURE not in bundle.digests
        assert {"manifest.json", "card.md"} < bundle.digests.keys()


def test_signing_again_replaces_the_signature(tmp_path: Path, keys: Path, key: SigningKey) -> None:
    path = models.tiny_bundle(tmp_path / "a.edge", signer=key)
    other = SigningKey(keys / "other.pem")
    sign_bundle(path, other)
    open_bundle(path, trusted=[key.public, other.public]).close()
    with pytest.raises(SignatureError, match=r"a\.edge: it is signed by key .* not trusted; trusted: release"):
        open_bundle(path, trusted=[key.public])


def test_the_statement_is_that_of_the_specification(key: SigningKey) -> None:
    digests = {"variants/a.onnx": "11" * 32, "manifest.json": "22" * 32}
    document = json.loads(key.signature("tiny", digests))
    assert document["mediaType"] == "application/vnd.dev.sigstore.bundle.v0.3+json"
    assert document["verificationMaterial"]["publicKey"] == {"hint": key.public.id}
    assert document["dsseEnvelope"]["payloadType"] == "application/vnd.in-toto+json"
    said = json.loads(base64.b64decode(document["dsseEnvelope"]["payload"]))
    assert said == statement("tiny", digests)
    assert said["_type"] == "https://in-toto.io/Statement/v1"
    assert said["predicateType"] == "https://model_signing/signature/v1.0"
    assert [resource["name"] for resource in said["predicate"]["resources"]] == ["manifest.json", "variants/a.onnx"]
    assert said["subject"] == [
        {"name": "tiny", "digest": {"sha256": signature.root_digest(["22" * 32, "11" * 32])}},
    ]
    assert "signature.json" in said["predicate"]["serialization"]["ignore_paths"]


@pytest.mark.parametrize("curve", [ec.SECP256R1(), ec.SECP384R1(), ec.SECP521R1()], ids=lambda curve: str(curve.name))
def test_every_curve_of_the_specification_signs_and_verifies(tmp_path: Path, curve: ec.EllipticCurve) -> None:
    private = ec.generate_private_key(curve)
    (tmp_path / "key.pem").write_bytes(_pem(private))
    key = SigningKey(tmp_path / "key.pem")
    made = key.signature("m", {"a": "00" * 32})
    assert made == key.signature("m", {"a": "00" * 32})
    assert signature.verify(made, {"a": "00" * 32}, [key.public]) == key.public


def _pem(private: ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey) -> bytes:
    pem, pkcs8 = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    return private.private_bytes(pem, pkcs8, serialization.NoEncryption())


def test_a_signature_made_elsewhere_is_attached_if_it_holds(tmp_path: Path, keys: Path, key: SigningKey) -> None:
    path = models.tiny_bundle(tmp_path / "a.edge")
    with open_bundle(path) as bundle:
        made = key.signature("elsewhere", bundle.digests)
        short = key.signature("elsewhere", dict(list(bundle.digests.items())[1:]))
    before = path.read_bytes()
    with pytest.raises(SignatureError, match="not trusted"):
        attach(path, made, load_key(keys / "other.pub.pem"))
    with pytest.raises(SignatureError, match="not covered"):
        attach(path, short, key.public)
    assert path.read_bytes() == before
    attach(path, made, key.public)
    with open_bundle(path, trusted=[key.public]) as bundle:
        assert bundle.signer == key.public


def test_what_is_no_bundle_is_not_signed(tmp_path: Path, key: SigningKey) -> None:
    path = models.tiny_bundle(tmp_path / "a.edge")
    with open_bundle(path) as bundle:
        files = {name: bundle.file(name) for name in bundle.digests}
    path.write_bytes(archive.pack({**files, "extra.txt": b""}))
    before = path.read_bytes()
    with pytest.raises(BundleError, match="not listed"):
        sign_bundle(path, key)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


# -- keys --------------------------------------------------------------------------------------------------------------


def test_a_new_key_is_readable_by_its_owner_only_and_matches_its_public_one(tmp_path: Path) -> None:
    public = new_key(tmp_path / "mine.pem")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine.pem", "mine.pub.pem"]
    assert stat.S_IMODE((tmp_path / "mine.pem").stat().st_mode) == 0o600
    key = SigningKey(tmp_path / "mine.pem")
    assert key.public == public == load_key(tmp_path / "mine.pub.pem")
    assert repr(key) == "SigningKey('mine.pub.pem', ********)"
    assert "PRIVATE" not in (tmp_path / "mine.pub.pem").read_text()
    done = subprocess.run(
        ["openssl", "ec", "-pubin", "-in", tmp_path / "mine.pub.pem", "-noout", "-text"],
        capture_output=True,
        check=True,
    )
    assert b"prime256v1" in done.stdout


def test_no_key_is_ever_replaced(tmp_path: Path) -> None:
    for there in ("a.pem", "a.pub.pem"):
        for path in tmp_path.iterdir():
            path.unlink()
        (tmp_path / there).write_text("precious")
        with pytest.raises(ConfigError, match="is there already"):
            new_key(tmp_path / "a.pem")
        assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [(there, "precious")]
    with pytest.raises(ConfigError, match="cannot be written: No such file"):
        new_key(tmp_path / "none" / "a.pem")


def test_a_password_protects_a_key(tmp_path: Path) -> None:
    path = tmp_path / "a.pem"
    public = new_key(path, b"open sesame")
    assert b"ENCRYPTED" in path.read_bytes()
    assert SigningKey(path, b"open sesame").public == public
    for password, words in ((None, "is encrypted; give its password"), (b"wrong", "the password is wrong")):
        with pytest.raises(ConfigError, match=words):
            SigningKey(path, password)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "not a private key in PEM"),
        (b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n", "not a private key in PEM"),
        (_pem(ed25519.Ed25519PrivateKey.generate()), "must be an elliptic-curve key"),
        (_pem(ec.generate_private_key(ec.SECP256K1())), "is not P-256, P-384 or P-521"),
    ],
)
def test_what_cannot_sign_is_one_line_without_its_contents(tmp_path: Path, data: bytes, words: str) -> None:
    (tmp_path / "a.pem").write_bytes(data)
    with pytest.raises(ConfigError, match=words) as caught:
        SigningKey(tmp_path / "a.pem")
    message = str(caught.value)
    assert "\n" not in message
    for line in data.decode().splitlines():
        assert "-----" in line or line not in message


# -- the command -------------------------------------------------------------------------------------------------------


def test_the_command_makes_signs_and_attaches(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = models.tiny_bundle(tmp_path / "a.edge")
    key, public = str(tmp_path / "k.pem"), str(tmp_path / "k.pub.pem")
    assert main(["keys", "new", key]) == 0
    assert main(["sign", str(path), "--key", key]) == 0
    assert "a.edge: signed by k.pub.pem (key " in capsys.readouterr().out
    signed = path.read_bytes()
    with open_bundle(path) as bundle:
        (tmp_path / "a.sig").write_bytes(bundle.file(SIGNATURE))
    unsigned = models.tiny_bundle(tmp_path / "a.edge")
    assert main(["sign", str(unsigned), "--signature", str(tmp_path / "a.sig"), "--key", public]) == 0
    assert path.read_bytes() == signed


def test_the_command_tells_mistakes_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = models.tiny_bundle(tmp_path / "a.edge")
    (tmp_path / "empty").touch()
    (tmp_path / "password").write_text("secret\n")
    key, public, empty = (str(tmp_path / name) for name in ("k.pem", "k.pub.pem", "empty"))
    mistakes = [
        (["keys", "new", key, "--password-file", str(tmp_path / "empty")], 2, "is empty"),
        (["keys", "new", key, "--password-file", str(tmp_path / "password")], 0, ""),
        (["keys", "new", key], 2, "is there already"),
        (["sign", str(path), "--key", key], 2, "is encrypted"),
        (["sign", str(path), "--key", key, "--password-file", str(tmp_path / "password")], 0, ""),
        (["sign", str(tmp_path / "password"), "--key", key, "--password-file", str(tmp_path / "password")], 1, "zip"),
        (["sign", str(path), str(path), "--signature", empty, "--key", public], 2, "belongs to one bundle"),
        (["sign", str(path), "--signature", empty, "--key", public], 1, "is not JSON"),
    ]
    for arguments, code, words in mistakes:
        assert main(arguments) == code, arguments
        err = capsys.readouterr().err
        assert words in err
        assert err.count("\n") == (code != 0)
        assert "secret" not in err
