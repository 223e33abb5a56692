"""Signed bundles: whatever somebody does to one on its way, it is refused before anything in it is believed.

An attacker can make zip headers and checksums right, and the digests in the manifest too; so those mutants open where
no signature is asked for, and nothing but the signature refuses them.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from edge_export.package.sign import SigningKey, new_key

from edge_runtime import manifest
from edge_runtime.errors import BundleError, SignatureError
from edge_runtime.model import engines
from edge_runtime.model.bundle import archive, signature
from edge_runtime.model.bundle.bundle import SIGNATURE, open_bundle
from tests import models
from tests.edge_runtime.model.bundle.zipped import files_of, rewritten

SEED = 20261121


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> list[SigningKey]:
    folder = tmp_path_factory.mktemp("keys")
    for name in ("release", "next", "stranger"):
        new_key(folder / f"{name}.pem")
    return [SigningKey(folder / f"{name}.pem") for name in ("release", "next", "stranger")]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory, keys: list[SigningKey]) -> Path:
    folder = tmp_path_factory.mktemp("signed")
    return models.tiny_bundle(folder, variants=("onnx-fp32", "tflite-int8"), card="# Tiny\n", signer=keys[0])


@pytest.fixture
def untouched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither an engine nor the manifest's parser may be reached."""

    def reached(*_: Any, **__: Any) -> None:
        raise AssertionError("something was believed before the signature was verified")

    monkeypatch.setattr(engines, "load", reached)
    monkeypatch.setattr(manifest, "parse", reached)
    monkeypatch.setattr("edge_runtime.model.bundle.model_files.check", reached)
    monkeypatch.setattr("edge_runtime.model.bundle.npy.parse", reached)


def refused(path: Path, keys: list[SigningKey], kind: type[BundleError] = BundleError) -> str:
    with pytest.raises(kind) as caught:
        open_bundle(path, trusted=[key.public for key in keys])
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_any_trusted_key_will_do_so_that_keys_can_be_changed(path: Path, keys: list[SigningKey]) -> None:
    release, following, _ = keys
    with open_bundle(path, trusted=[following.public, release.public]) as bundle:
        assert bundle.signer == release.public
        assert bundle.manifest.name == "tiny"


def test_who_asks_for_no_signature_is_told_that_there_is_an_unverified_one(path: Path) -> None:
    with open_bundle(path) as bundle:
        assert bundle.signer is None
        assert bundle.signature == "signed (not verified yet)"


@pytest.mark.usefixtures("untouched")
def test_no_trusted_key_means_that_nothing_is_trusted(path: Path, tmp_path: Path, keys: list[SigningKey]) -> None:
    assert "not trusted; trusted: none" in refused(path, [], SignatureError)
    assert "which is not trusted" in refused(path, keys[1:], SignatureError)
    unsigned = tmp_path / "unsigned.edge"
    unsigned.write_bytes(archive.pack({name: data for name, data in files_of(path).items() if name != SIGNATURE}))
    for trusted in ([], keys):
        message = refused(unsigned, trusted, SignatureError)
        assert message.startswith("unsigned.edge: it is not signed")
        assert 'unsigned = "allow"' in message


CHANGES: dict[str, Callable[[dict[str, bytes], dict[str, Any]], object]] = {
    "a model": lambda f, _: f.update({"variants/onnx-fp32.onnx": models.tiny_onnx_classifier(seed=1)}),
    "golden vectors swapped": lambda f, _: f.update(
        {"golden/onnx-fp32.npy": f["golden/tflite-int8.npy"], "golden/tflite-int8.npy": f["golden/onnx-fp32.npy"]}
    ),
    "the card": lambda f, _: f.update({"card.md": b"# Tinz\n"}),
    "a file more": lambda f, m: (
        f.update({"more.txt": b"x"}),
        m["files"].append({"file": "more.txt", "size": 1, "sha256": ""}),
    ),
    "a file less": lambda f, m: (
        f.pop("card.md"),
        m.update(files=[file for file in m["files"] if file["file"] != "card.md"]),
    ),
    "a file renamed": lambda f, m: (
        f.update({"cards.md": f.pop("card.md")}),
        [file.update(file="cards.md") for file in m["files"] if file["file"] == "card.md"],
    ),
    "the version": lambda _, m: m.update(version=2),
    "the expiry": lambda _, m: m.update(expires="2099-01-01"),
    "the threshold": lambda _, m: m["gate"].update(threshold=0.0001),
    "the tolerance": lambda _, m: m["variants"][0].update(tolerance=1.0),
    "no signature": lambda f, _: f.pop(SIGNATURE),
    "an empty signature": lambda f, _: f.update({SIGNATURE: b""}),
    "a signature of braces": lambda f, _: f.update({SIGNATURE: b"{}"}),
    "a huge signature": lambda f, _: f.update({SIGNATURE: b" " * (signature.MAX_BYTES + 1)}),
}


@pytest.mark.parametrize("what", CHANGES)
def test_a_bundle_that_somebody_changed_with_care_is_refused(
    path: Path, tmp_path: Path, keys: list[SigningKey], request: pytest.FixtureRequest, what: str
) -> None:
    def change(files: dict[str, bytes], contents: dict[str, Any]) -> None:
        CHANGES[what](files, contents)

    mutant = rewritten(path, tmp_path, change, honest=True)
    if what != "a huge signature":
        open_bundle(mutant).close()  # nothing but the signature tells it from a good one
    request.getfixturevalue("untouched")
    refused(mutant, keys)


def test_the_signature_of_another_bundle_does_not_fit(
    path: Path, tmp_path: Path, keys: list[SigningKey], request: pytest.FixtureRequest
) -> None:
    """Not even of another version of the same model by the same signer: no mixing."""
    more: dict[str, Any] = {"variants": ("onnx-fp32", "tflite-int8"), "card": "# Tiny\n", "signer": keys[0]}
    other = files_of(models.tiny_bundle(tmp_path / "other.edge", version=2, **more))
    mixed = tmp_path / "mixed.edge"
    mixed.write_bytes(archive.pack({**files_of(path), SIGNATURE: other[SIGNATURE]}))
    open_bundle(mixed).close()
    request.getfixturevalue("untouched")
    assert "manifest.json was changed" in refused(mixed, keys, SignatureError)


@pytest.mark.usefixtures("untouched")
def test_every_bit_counts_in_every_file(path: Path, tmp_path: Path, keys: list[SigningKey]) -> None:
    """A bit flipped in each of 40 places of each file, in a zip file that is right."""
    print(f"seed {SEED}")
    randomly = random.Random(SEED)
    files = files_of(path)
    mutant = tmp_path / "mutant.edge"
    for name, data in files.items():
        for _ in range(40):
            changed = bytearray(data)
            changed[randomly.randrange(len(data))] ^= 1 << randomly.randrange(8)
            mutant.write_bytes(archive.pack({**files, name: bytes(changed)}))
            refused(mutant, keys, SignatureError)
        for size in (0, len(data) // 2, len(data) - 1):
            mutant.write_bytes(archive.pack({**files, name: data[:size]}))
            refused(mutant, keys, SignatureError)


@pytest.mark.usefixtures("untouched")
def test_a_bundle_cut_short_or_scrambled_is_refused(path: Path, tmp_path: Path, keys: list[SigningKey]) -> None:
    print(f"seed {SEED}")
    randomly = random.Random(SEED)
    good = path.read_bytes()
    mutant = tmp_path / "mutant.edge"
    for _ in range(500):
        data = bytearray(good)
        match randomly.randrange(4):
            case 0:
                del data[randomly.randrange(len(data)) :]
            case 1:
                data[randomly.randrange(len(data))] ^= randomly.randrange(1, 256)
            case 2:
                start = randomly.randrange(len(data))
                del data[start : start + randomly.randrange(1, 200)]
            case _:
                start = randomly.randrange(len(data))
                data[start:start] = randomly.randbytes(randomly.randrange(1, 200))
        mutant.write_bytes(data)
        refused(mutant, keys)


def test_the_same_bundle_signed_again_is_the_same_by_its_root(
    path: Path, tmp_path: Path, keys: list[SigningKey]
) -> None:
    files = files_of(path)
    with open_bundle(path) as bundle:
        digests, digest, root = bundle.digests, bundle.digest, bundle.root
    again = tmp_path / "again.edge"
    again.write_bytes(archive.pack({**files, SIGNATURE: keys[1].signature("tiny", digests)}))
    with open_bundle(again, trusted=[keys[1].public]) as bundle:
        assert (bundle.root, bundle.digests) == (root, digests)
        assert bundle.digest != digest
