"""Commands and signed bundles: what runs, what is refused, and what is said about it."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest

from edge_runtime.cli import main
from export.sign import SigningKey, new_key, sign_bundle
from tests import models


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Keys ``release`` and ``other``; bundles ``signed.edge`` and ``unsigned.edge``."""
    folder = tmp_path_factory.mktemp("signed")
    for name in ("release", "other"):
        new_key(folder / f"{name}.pem")
    for name in ("signed", "unsigned"):
        models.tiny_bundle(folder / f"{name}.edge")
    sign_bundle(folder / "signed.edge", SigningKey(folder / "release.pem"))
    return folder


def arguments(folder: Path, *words: str) -> list[str]:
    return [str(folder / word) if word.endswith((".edge", ".pem", ".toml")) else word for word in words]


@pytest.mark.parametrize("option", ["--key", "--trusted-key"])
def test_verify_says_who_signed(made: Path, capsys: pytest.CaptureFixture[str], option: str) -> None:
    keys = (option, "other.pub.pem", option, "release.pub.pem")
    assert main(arguments(made, "verify", "signed.edge", *keys)) == 0
    assert "signed by release.pub.pem (key " in capsys.readouterr().out
    assert main(arguments(made, "verify", "signed.edge", "--json", *keys)) == 0
    report = orjson.loads(capsys.readouterr().out)
    assert report["signature"].startswith("signed by release.pub.pem")
    assert (report["ok"], report["expired"]) == (True, False)
    for name, words in (("signed", "signed (not verified yet)"), ("unsigned", "unsigned")):
        assert main(arguments(made, "verify", f"{name}.edge")) == 0
        assert words in capsys.readouterr().out


def test_verify_refuses_what_the_key_did_not_sign(made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, words in (("signed", "not trusted; trusted: other.pub.pem"), ("unsigned", "it is not signed")):
        assert main(arguments(made, "verify", f"{name}.edge", "--key", "other.pub.pem")) == 1
        out, err = capsys.readouterr()
        assert (out, err.count("\n")) == ("", 1)
        assert f"{name}.edge: " in err
        assert words in err


def test_a_private_key_in_place_of_the_public_one_is_wrong_use(made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments(made, "verify", "signed.edge", "--key", "release.pem")) == 2
    assert "holds a private key" in capsys.readouterr().err


def test_verify_refuses_an_expired_bundle(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = models.tiny_bundle(tmp_path, expires="2024-02-29")
    assert main(["verify", str(path)]) == 1
    assert "expired on 2024-02-29" in capsys.readouterr().out
