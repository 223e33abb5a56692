"""The ``model-signing`` package verifies what we sign, and we verify what it signs."""

from __future__ import annotations

import subprocess
import zipfile
from pathlib import Path

import pytest
from edge_export.package.sign import SigningKey, attach, new_key

from edge_runtime.errors import SignatureError
from edge_runtime.model.bundle.bundle import SIGNATURE, open_bundle
from tests import models
from tests.conformance.conftest import need


@pytest.fixture
def command() -> Path:
    """Its command line."""
    return need("model-signing").with_name("model_signing")


@pytest.fixture
def key(tmp_path: Path) -> SigningKey:
    new_key(tmp_path / "release.pem")
    return SigningKey(tmp_path / "release.pem")


def verified(command: Path, folder: Path, public: Path) -> bool:
    """What it says of an unpacked bundle."""
    done = subprocess.run(
        [command, "verify", "key", folder, "--signature", folder / SIGNATURE, "--public_key", public],
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert ("Verification succeeded" in done.stdout) == (done.returncode == 0), done.stdout + done.stderr
    return done.returncode == 0


def unpacked(path: Path, to: Path) -> Path:
    with zipfile.ZipFile(path) as file:
        file.extractall(to)
    return to


def test_it_verifies_what_we_sign(command: Path, key: SigningKey, tmp_path: Path) -> None:
    path = models.tiny_bundle(tmp_path, variants=models.VARIANTS, card="# Tiny\n", signer=key)
    folder, public = unpacked(path, tmp_path / "unpacked"), tmp_path / "release.pub.pem"
    assert verified(command, folder, public)
    (folder / "more.txt").touch()
    assert not verified(command, folder, public)
    (folder / "more.txt").unlink()
    (folder / "card.md").write_text("# Tinz\n")
    assert not verified(command, folder, public)


def test_it_verifies_names_whose_order_is_disputed(command: Path, key: SigningKey, tmp_path: Path) -> None:
    """The specification sorts names by characters, the package by parts of the path."""
    more = {"golden-notes.txt": b"1", "golden.txt": b"2"}
    path = models.tiny_bundle(tmp_path, files=more, signer=key)
    assert verified(command, unpacked(path, tmp_path / "unpacked"), tmp_path / "release.pub.pem")


def test_we_verify_what_it_signs(command: Path, key: SigningKey, tmp_path: Path) -> None:
    more = {"golden-notes.txt": b"1", "golden.txt": b"2"}
    path = models.tiny_bundle(tmp_path, variants=models.VARIANTS, files=more)
    folder, made = unpacked(path, tmp_path / "unpacked"), tmp_path / "tiny.sig"
    arguments: list[str | Path] = [
        "sign",
        "key",
        folder,
        "--signature",
        made,
        "--private_key",
        tmp_path / "release.pem",
    ]
    subprocess.run([command, *arguments], check=True, capture_output=True, timeout=120)
    attach(path, made.read_bytes(), key.public)
    with open_bundle(path, trusted=[key.public]) as bundle:
        assert bundle.signer == key.public
    other = models.tiny_bundle(tmp_path / "other.edge", seed=1)
    with pytest.raises(SignatureError):
        attach(other, made.read_bytes(), key.public)
