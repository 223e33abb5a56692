"""Signatures: what OpenSSF Model Signing allows is accepted, and no byte of it can change unnoticed."""

from __future__ import annotations

import base64
import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa, utils
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_runtime.errors import ConfigError, SignatureError
from edge_runtime.model.bundle import signature
from edge_runtime.model.bundle.signature import TrustedKey, load_key, load_keys, verify

OMS = Path(__file__).parent / "oms"
DIGESTS = {
    path.relative_to(OMS / "files").as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
    for path in sorted((OMS / "files").rglob("*"))
    if path.is_file()
}
KEYS = load_keys(OMS / "keys" / f"{name}.pub.pem" for name in ("p256", "p384", "p521"))
GOOD = (OMS / "valid" / "p256.json").read_bytes()

REASONS = {
    "blake2": "hash_type must be sha256",
    "certificate": "signed with a certificate",
    "empty-resources": "lists no files",
    "empty-statement": "_type must be",
    "missing-envelope": "must have mediaType, verificationMaterial, dsseEnvelope",
    "missing-predicate": "predicate is not an object",
    "missing-resource": "the subject is not the digest of the files",
    "missing-serialization": "serialization is not an object",
    "missing-verification-material": "must have mediaType, verificationMaterial, dsseEnvelope",
    "named-algorithm": "nothing else",
    "no-signature": "exactly one signature",
    "old-predicate": "predicateType must be",
    "other-key": "which is not trusted; trusted: p256.pub.pem",
    "other-key-under-a-trusted-name": "is not one of p256.pub.pem",
    "raw-bytes-for-hint": "publicKey must have hint",
    "repeated-resource": "'card.md' twice",
    "shards": "method must be files",
    "short-digest": "without a SHA-256",
    "two-signatures": "exactly one signature",
    "two-subjects": "exactly one subject",
    "wrong-media-type": "mediaType must be",
    "wrong-payload-type": "payloadType must be",
    "wrong-predicate": "predicateType must be",
    "wrong-root": "the subject is not the digest of the files",
    "wrong-statement-type": "_type must be",
}


def refusal(data: bytes, digests: dict[str, str] = DIGESTS, keys: tuple[TrustedKey, ...] = KEYS) -> str:
    with pytest.raises(SignatureError) as caught:
        verify(data, digests, keys)
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) < 400
    return message


# -- vectors made by the model-signing package -------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(path.stem for path in (OMS / "valid").iterdir()))
def test_what_the_specification_allows_is_accepted(name: str) -> None:
    curve = name if name in ("p384", "p521") else "p256"
    assert verify((OMS / "valid" / f"{name}.json").read_bytes(), DIGESTS, KEYS).name == f"{curve}.pub.pem"


def test_no_vector_is_forgotten() -> None:
    assert sorted(REASONS) == sorted(path.stem for path in (OMS / "invalid").iterdir())
    assert len(list((OMS / "valid").iterdir())) >= 9


@pytest.mark.parametrize("name", REASONS)
def test_what_it_does_not_allow_is_refused_for_its_own_reason(name: str) -> None:
    assert REASONS[name] in refusal((OMS / "invalid" / f"{name}.json").read_bytes())


# -- files -------------------------------------------------------------------------------------------------------------


def test_files_must_be_exactly_those_that_were_signed() -> None:
    assert "extra.bin is not covered" in refusal(GOOD, {**DIGESTS, "extra.bin": "0" * 64})
    # Listed among the paths that the signer ignored, which is not the device's business: nothing unsigned gets in.
    for name in (".git", ".gitignore"):
        assert "is not covered" in refusal(GOOD, {**DIGESTS, name: "0" * 64})
    ignoring = (OMS / "valid" / "ignored-paths.json").read_bytes()
    assert "notes is not covered" in refusal(ignoring, {**DIGESTS, "notes": "0" * 64})
    for name in DIGESTS:
        assert f"{name!r} is covered by the signature and missing" in refusal(
            GOOD, {other: digest for other, digest in DIGESTS.items() if other != name}
        )
        assert f"{name} was changed" in refusal(GOOD, {**DIGESTS, name: "0" * 64})
    assert "missing" in refusal(GOOD, {})


def test_files_cannot_swap_names() -> None:
    a, b, *_ = DIGESTS
    assert "was changed" in refusal(GOOD, {**DIGESTS, a: DIGESTS[b], b: DIGESTS[a]})


# -- bytes -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("flip", [0x01, 0x02, 0x20, 0x80, 0xFF])
def test_no_byte_of_a_signature_can_change(flip: int) -> None:
    for place in range(len(GOOD)):
        data = bytearray(GOOD)
        data[place] ^= flip
        refusal(bytes(data))


def test_a_signature_can_be_cut_nowhere_and_nothing_can_stand_behind_it() -> None:
    for size in range(len(GOOD)):
        refusal(GOOD[:size])
    for more in (b"x", b"{}", GOOD, b"\0"):
        refusal(GOOD + more)


def parts() -> tuple[dict[str, Any], dict[str, Any]]:
    """A good signature and its statement."""
    bundle = json.loads(GOOD)
    return bundle, json.loads(base64.b64decode(bundle["dsseEnvelope"]["payload"]))


def encoded(bundle: dict[str, Any]) -> bytes:
    return json.dumps(bundle).encode()


def test_the_statement_cannot_be_another_than_was_signed() -> None:
    """Not even the same facts in other bytes."""
    for change in ("separators", "digest"):
        bundle, statement = parts()
        if change == "digest":
            statement["predicate"]["resources"][0]["digest"] = "0" * 64
        bundle["dsseEnvelope"]["payload"] = base64.b64encode(json.dumps(statement).encode()).decode()
        assert "is not one of p256.pub.pem" in refusal(encoded(bundle))


def test_the_other_spelling_of_a_signature_is_the_only_malleability() -> None:
    """(r, n - s) verifies wherever (r, s) does, by the arithmetic of ECDSA; the files are the same all the same."""
    order = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
    bundle, _ = parts()
    signed = bundle["dsseEnvelope"]["signatures"][0]
    r, s = utils.decode_dss_signature(base64.b64decode(signed["sig"]))
    signed["sig"] = base64.b64encode(utils.encode_dss_signature(r, order - s)).decode()
    assert verify(encoded(bundle), DIGESTS, KEYS).name == "p256.pub.pem"


@pytest.mark.parametrize(
    "raw",
    [
        b"\x00",
        b"\x30\x06\x02\x01\x00\x02\x01\x00",  # r = s = 0, which a careless verifier accepts for everything
        utils.encode_dss_signature(1, 1),
        utils.encode_dss_signature(2**256, 2**256),
        utils.encode_dss_signature(2**4000, 1),
        b"\0" * 64,
        b"\x30\x80" + b"\x02\x01\x01" * 2 + b"\0\0",
    ],
)
def test_numbers_that_are_no_signature_are_refused(raw: bytes) -> None:
    bundle, _ = parts()
    bundle["dsseEnvelope"]["signatures"][0]["sig"] = base64.b64encode(raw).decode()
    assert "is not one of p256.pub.pem" in refusal(encoded(bundle))


@pytest.mark.parametrize(
    "sig", ["", "!!!!", "MEU=\n", "TUVV\n", " TUVV", "TUVV=", "TUVV====", "TUV_", "TUR=", "é", None, 1, [], True]
)
def test_base64_has_one_spelling(sig: Any) -> None:
    bundle, _ = parts()
    bundle["dsseEnvelope"]["signatures"][0]["sig"] = sig
    assert "sig is not base64" in refusal(encoded(bundle))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        b"null",
        b"[]",
        b"\xff\xfe",
        b"\xef\xbb\xbf" + GOOD,
        GOOD.decode().encode("utf-16"),
        b"[" * 300_000,
        b'{"a":' * 50_000,
        b"9" * 300_000,
        b'{"mediaType": 1e999, "verificationMaterial": NaN, "dsseEnvelope": -Infinity}',
        b'"' + b"\\" * 300_001,
        b'"' * 300_000,
        GOOD[:-1] + b',"mediaType":"x"}',
        b'{"mediaType":"x",' + GOOD[1:],
        GOOD.replace(b'"tlogEntries":[]', b'"tlogEntries":[{}]'),
        GOOD.replace(b'"keyid":""', b'"keyid":"0"'),
    ],
)
def test_what_is_not_the_one_accepted_form_is_refused(data: bytes) -> None:
    assert data != GOOD
    refusal(data)


def test_a_large_signature_is_refused_before_it_is_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    def parsed(*_: Any) -> None:
        raise AssertionError

    monkeypatch.setattr(json, "loads", parsed)
    assert "more than the limit" in refusal(b" " * (signature.MAX_BYTES + 1))
    assert "nests deeper" in refusal(b"[" * 17)


def test_nothing_is_parsed_from_a_statement_that_nobody_signed(monkeypatch: pytest.MonkeyPatch) -> None:
    def listed(*_: Any) -> None:
        raise AssertionError

    monkeypatch.setattr(signature, "_listed", listed)
    for name in ("other-key", "other-key-under-a-trusted-name"):
        refusal((OMS / "invalid" / f"{name}.json").read_bytes())


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda children: st.lists(children, max_size=3) | st.dictionaries(st.text(max_size=8), children, max_size=3),
    max_leaves=8,
)


@pytest.mark.slow
@given(data=st.binary(max_size=200) | JSON.map(lambda value: json.dumps(value).encode()))
@settings(derandomize=True, max_examples=300, deadline=None)
def test_arbitrary_bytes_are_refused_and_nothing_else_happens(data: bytes) -> None:
    refusal(data)


@pytest.mark.slow
@given(data=st.data(), value=JSON)
@settings(derandomize=True, max_examples=300, deadline=None)
def test_any_other_value_anywhere_is_refused(data: st.DataObject, value: Any) -> None:
    """Outside of the statement, whose bytes are signed; but for the two fields that may be null or absent."""
    bundle, _ = parts()
    place: Any = bundle
    while True:
        key = data.draw(st.sampled_from(sorted(place) if isinstance(place, dict) else range(len(place))))
        if not isinstance(place[key], dict | list) or not place[key] or data.draw(st.booleans()):
            break
        place = place[key]
    old = place[key]
    place[key] = value
    if value == old or (key == "keyid" and value is None):
        assert verify(encoded(bundle), DIGESTS, KEYS).name == "p256.pub.pem"
    else:
        refusal(encoded(bundle))


def _signed(private: ec.EllipticCurvePrivateKey, statement: Any) -> tuple[bytes, TrustedKey]:
    """A statement of our own choosing under a good signature: a signer that is trusted, and mad."""
    payload = json.dumps(statement).encode()
    public = private.public_key()
    key = TrustedKey("mad.pub.pem", signature.key_id(public), public)
    bundle, _ = parts()
    bundle["verificationMaterial"]["publicKey"]["hint"] = key.id
    bundle["dsseEnvelope"]["payload"] = base64.b64encode(payload).decode()
    raw = private.sign(signature.pae(payload), ec.ECDSA(hashes.SHA256()))
    bundle["dsseEnvelope"]["signatures"][0]["sig"] = base64.b64encode(raw).decode()
    return encoded(bundle), key


@pytest.mark.slow
@given(data=st.data(), value=JSON)
@settings(derandomize=True, max_examples=300, deadline=None)
def test_a_signed_statement_of_another_shape_is_refused_in_one_line(data: st.DataObject, value: Any) -> None:
    private = ec.derive_private_key(1 << 200, ec.SECP256R1())
    _, statement = parts()
    place: Any = statement
    while True:
        key = data.draw(st.sampled_from(sorted(place) if isinstance(place, dict) else range(len(place))))
        if not isinstance(place[key], dict | list) or not place[key] or data.draw(st.booleans()):
            break
        place = place[key]
    place[key] = value
    signed, trusted = _signed(private, statement)
    try:
        verify(signed, DIGESTS, [trusted])
    except SignatureError:
        refusal(signed, keys=(trusted,))
    else:  # what is informational: how the signer found the files, and the model's name
        assert statement["predicate"]["resources"] == parts()[1]["predicate"]["resources"]


# -- keys --------------------------------------------------------------------------------------------------------------


def test_any_of_several_keys_may_have_signed_and_no_other() -> None:
    p256, p384, p521 = KEYS
    assert verify(GOOD, DIGESTS, [p521, p256]).id == p256.id
    assert "trusted: p384.pub.pem" in refusal(GOOD, keys=(p384, p521))
    assert "trusted: none" in refusal(GOOD, keys=())


def test_the_hash_follows_from_the_key_and_not_from_the_document() -> None:
    """A P-384 signature made with SHA-256 is good mathematics, and not what the specification says."""
    private = ec.generate_private_key(ec.SECP384R1())
    public = private.public_key()
    bundle, _ = parts()
    payload = base64.b64decode(bundle["dsseEnvelope"]["payload"])
    key = TrustedKey("k", signature.key_id(public), public)
    bundle["verificationMaterial"]["publicKey"]["hint"] = key.id
    for hash_, accepted in ((hashes.SHA384(), True), (hashes.SHA256(), False), (hashes.SHA1(), False)):
        raw = private.sign(signature.pae(payload), ec.ECDSA(hash_))
        bundle["dsseEnvelope"]["signatures"][0]["sig"] = base64.b64encode(raw).decode()
        if accepted:
            assert verify(encoded(bundle), DIGESTS, [key]) == key
        else:
            assert "is not one of k" in refusal(encoded(bundle), keys=(key,))


def test_a_key_is_known_by_the_digest_of_its_pem() -> None:
    for path in sorted((OMS / "keys").glob("p*.pub.pem")):
        assert load_key(path).id == hashlib.sha256(path.read_bytes()).hexdigest()
        assert load_key(path).name == path.name


def _pem(public: Any) -> bytes:
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    data = public.public_bytes(serialization.Encoding.PEM, form)
    assert isinstance(data, bytes)
    return data


P256 = (OMS / "keys" / "p256.pub.pem").read_bytes()
NOT_KEYS = {
    "empty": (b"", "one public key in PEM"),
    "text": (b"ssh-rsa AAAA", "one public key in PEM"),
    "two keys": (P256 * 2, "one public key in PEM"),
    "huge": (P256 + b" " * 20_000, "one public key in PEM"),
    "damaged": (P256.replace(b"MFk", b"MFl"), "is damaged"),
    "a point off the curve": (P256.replace(P256[-50:-30], P256[-51:-31]), "is damaged"),
    "RSA": (_pem(rsa.generate_private_key(65537, 2048).public_key()), "P-256, P-384 or P-521"),
    "Ed25519": (_pem(ed25519.Ed25519PrivateKey.generate().public_key()), "P-256, P-384 or P-521"),
    "another curve": ((OMS / "keys" / "k256.pub.pem").read_bytes(), "P-256, P-384 or P-521"),
    "private": (
        ec.generate_private_key(ec.SECP256R1()).private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        ),
        "holds a private key",
    ),
}


@pytest.mark.parametrize("kind", NOT_KEYS)
def test_a_file_that_is_no_public_key_is_named_and_its_contents_are_not(tmp_path: Path, kind: str) -> None:
    data, words = NOT_KEYS[kind]
    path = tmp_path / "key.pem"
    path.write_bytes(data)
    with pytest.raises(ConfigError, match=words) as caught:
        load_key(path)
    message = str(caught.value)
    assert "\n" not in message
    assert "key.pem" in message
    for line in data.decode("ascii").splitlines():
        assert "-----" in line or line not in message


def test_a_missing_key_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.pem: cannot be read: No such file"):
        load_key(tmp_path / "nowhere.pem")


def test_without_the_library_the_message_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cryptography", None)
    with pytest.raises(ConfigError, match=r'pip install "edge-runtime\[sign\]"'):
        load_key(OMS / "keys" / "p256.pub.pem")


def test_the_library_is_not_loaded_where_nothing_is_verified() -> None:
    code = "import sys, edge_runtime.app.application; sys.exit('cryptography' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
