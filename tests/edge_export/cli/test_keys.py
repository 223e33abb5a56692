"""Keys and signatures from the command line: nothing secret is shown, nothing is replaced."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from edge_export.cli import main

from edge_runtime.model.bundle.bundle import open_bundle
from edge_runtime.model.bundle.signature import load_key
from tests import models


def test_a_new_pair_of_keys_signs_and_is_trusted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    private, public = tmp_path / "release.pem", tmp_path / "release.pub.pem"
    assert main(["keys", "new", str(private)]) == 0
    said = capsys.readouterr().out
    assert stat.S_IMODE(private.stat().st_mode) == 0o600
    secret = private.read_text().splitlines()[1]
    assert secret not in said
    assert str(load_key(public)) in said
    bundle = models.tiny_bundle(tmp_path / "tiny.edge")
    assert main(["sign", str(bundle), "--key", str(private)]) == 0
    assert "signed by" in capsys.readouterr().out
    open_bundle(bundle, trusted=[load_key(public)]).close()


def test_both_halves_show_the_same_id_and_no_secret(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    private, public = tmp_path / "release.pem", tmp_path / "release.pub.pem"
    assert main(["keys", "new", str(private)]) == 0
    capsys.readouterr()
    ids = []
    for file in (private, public):
        assert main(["keys", "show", str(file)]) == 0
        said = capsys.readouterr().out
        ids.append(said.split()[-1])
        assert not any(line in said for line in private.read_text().splitlines()[1:-1])
    assert ids[0] == ids[1]


def test_keys_are_never_replaced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["keys", "new", str(tmp_path / "a.pem")]) == 0
    before = (tmp_path / "a.pem").read_bytes()
    assert main(["keys", "new", str(tmp_path / "a.pem")]) == 2
    assert "is there already" in capsys.readouterr().err
    assert (tmp_path / "a.pem").read_bytes() == before


def test_an_encrypted_key_needs_its_password(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    word = tmp_path / "word"
    word.write_text("correct horse\n")
    private = tmp_path / "a.pem"
    assert main(["keys", "new", str(private), "--password-file", str(word)]) == 0
    assert "ENCRYPTED" in private.read_text()
    bundle = models.tiny_bundle(tmp_path / "tiny.edge")
    assert main(["sign", str(bundle), "--key", str(private)]) == 2
    assert "is encrypted; give its password" in capsys.readouterr().err
    assert main(["keys", "show", str(private)]) == 2
    assert main(["sign", str(bundle), "--key", str(private), "--password-file", str(word)]) == 0
    assert main(["keys", "show", str(private), "--password-file", str(word)]) == 0
    word.write_text("\n")
    assert main(["sign", str(bundle), "--key", str(private), "--password-file", str(word)]) == 2
    assert "is empty; write the password into it" in capsys.readouterr().err


@pytest.mark.parametrize(
    "content", ["", "nonsense", "-----BEGIN PRIVATE KEY-----\nnonsense\n-----END PRIVATE KEY-----\n"]
)
def test_what_is_no_key_is_refused_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str
) -> None:
    (tmp_path / "a.pem").write_text(content)
    assert main(["keys", "show", str(tmp_path / "a.pem")]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "a.pem" in error


def test_signing_what_is_no_bundle_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["keys", "new", str(tmp_path / "a.pem")]) == 0
    (tmp_path / "x.edge").write_bytes(b"nothing")
    assert main(["sign", str(tmp_path / "x.edge"), "--key", str(tmp_path / "a.pem")]) == 1
    assert (tmp_path / "x.edge").read_bytes() == b"nothing"
    assert "x.edge" in capsys.readouterr().err
