"""A bundle written again with another rule of filling: the same models, and refused where that would be a lie."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from edge_runtime.bundle import MANIFEST, open_bundle
from edge_runtime.errors import BundleError
from export.repack import main, repack
from export.sign import SigningKey, new_key, sign_bundle
from tests.models import tiny_bundle

TEACHER = Path(__file__).resolve().parents[2] / "examples" / "exercise-watch" / "teacher.edge"


def test_only_the_rule_changes_and_the_same_bytes_come_out_again(tmp_path: Path) -> None:
    path = tiny_bundle(tmp_path / "t.edge", name="t", variants=("onnx-fp32",))
    original = path.read_bytes()
    with open_bundle(path) as bundle:
        before = bundle.digests
    assert repack(path, "first")
    once = path.read_bytes()
    assert not repack(path, "first")
    assert path.read_bytes() == once
    with open_bundle(path) as bundle:
        after = bundle.digests
        assert bundle.manifest.input.fill == "first"
    assert {name for name in before if before[name] != after[name]} == {MANIFEST}
    assert repack(path, "")
    assert path.read_bytes() == original


def test_a_damaged_bundle_is_left_as_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "t.edge"
    path.write_bytes(b"not a bundle")
    assert main([str(path), "--fill", "first"]) == 2
    assert "not a bundle" in capsys.readouterr().err
    assert path.read_bytes() == b"not a bundle"


def test_the_shipped_teacher_says_how_it_is_filled(tmp_path: Path) -> None:
    shutil.copy(TEACHER, tmp_path / "t.edge")
    assert not repack(tmp_path / "t.edge", "first")


def test_a_signed_bundle_is_not_touched(tmp_path: Path) -> None:
    """Mutation that this finds: writing it without its signature, or with one that does not hold any more."""
    path = tiny_bundle(tmp_path / "t.edge", name="t", variants=("onnx-fp32",))
    new_key(tmp_path / "key.pem")
    sign_bundle(path, SigningKey(tmp_path / "key.pem"))
    signed = path.read_bytes()
    with pytest.raises(BundleError, match="is signed"):
        repack(path, "first")
    assert path.read_bytes() == signed
