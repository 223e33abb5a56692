"""The command that times a bundle: figures go into it, and a stale signature never does."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from edge_export.cli import main
from edge_export.package.sign import SigningKey, new_key, sign_bundle

from edge_runtime.model.bundle.bundle import open_bundle
from edge_runtime.model.bundle.signature import load_key
from tests import models

pytestmark = pytest.mark.skipif(not models.usable("onnxruntime"), reason="onnxruntime is not installed")


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    return models.tiny_bundle(tmp_path / "tiny.edge")


@pytest.fixture
def key(tmp_path: Path) -> Path:
    new_key(tmp_path / "release.pem")
    return tmp_path / "release.pem"


def measured(path: Path) -> dict[str, dict[str, dict[str, float]]]:
    with open_bundle(path) as opened:
        return {variant.name: variant.measured for variant in opened.manifest.variants}


@pytest.mark.slow
def test_figures_of_this_machine_go_into_another_bundle(
    bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = bundle.read_bytes()
    out = tmp_path / "with-figures.edge"
    assert main(["measure", str(bundle), "--rounds", "2", "--name", "bench", "-o", str(out)]) == 0
    said = capsys.readouterr().out
    assert "median us" in said
    assert "holds these figures as 'bench'; unsigned" in said
    assert bundle.read_bytes() == before
    figures = measured(out)
    assert figures["onnx-fp32"]["bench"]["p50_us"] > 0
    assert figures["onnx-fp32"]["bench"]["ratio"] == 1.0


@pytest.mark.slow
def test_a_signed_bundle_is_signed_again_and_not_measured_without_its_key(
    bundle: Path, key: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sign_bundle(bundle, SigningKey(key))
    before = bundle.read_bytes()
    assert main(["measure", str(bundle), "--rounds", "2"]) == 2
    captured = capsys.readouterr()
    assert "figures in it break the signature: give --key" in captured.err
    assert captured.out == ""
    new_key(tmp_path / "other.pem")
    assert main(["measure", str(bundle), "--rounds", "2", "--key", str(tmp_path / "other.pem")]) == 1
    assert bundle.read_bytes() == before
    assert main(["measure", str(bundle), "--rounds", "2", "--key", str(key), "--name", "bench"]) == 0
    assert "bench" in measured(bundle)["onnx-fp32"]
    trusted = [load_key(key.with_suffix(".pub.pem"))]
    open_bundle(bundle, trusted=trusted).close()


def test_a_bundle_that_was_changed_after_signing_is_not_signed_again(
    bundle: Path, key: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sign_bundle(bundle, SigningKey(key))
    with open_bundle(bundle) as opened:
        made = opened.file("signature.json")
    from edge_runtime.model.bundle import archive  # noqa: PLC0415

    other = models.tiny_bundle(tmp_path / "other.edge", name="other")
    with open_bundle(other) as opened:
        contents = {name: opened.file(name) for name in opened.digests}
    other.write_bytes(archive.pack({**contents, "signature.json": made}))
    assert main(["measure", str(other), "--rounds", "2", "--key", str(key)]) == 1
    assert capsys.readouterr().out == ""


@pytest.mark.slow
def test_another_machine_is_asked_over_ssh_and_a_dry_run_leaves_the_bundle_as_it_is(
    bundle: Path, key: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    program = tmp_path / "bin" / "ssh"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nfor command; do :; done\necho "$@" > {tmp_path}/called\nexec sh -c "$command"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    sign_bundle(bundle, SigningKey(key))
    before = bundle.read_bytes()
    arguments = ["measure", str(bundle), "--device", "pi@kitchen", "--python", sys.executable, "--rounds", "2"]
    assert main([*arguments, "--dry-run"]) == 0
    assert "pi@kitchen" in (tmp_path / "called").read_text()
    assert "onnx-fp32" in capsys.readouterr().out
    assert bundle.read_bytes() == before


def test_a_machine_that_cannot_be_reached_leaves_the_bundle_alone(
    bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    program = tmp_path / "ssh"
    program.write_text("#!/bin/sh\necho 'ssh: no route to host' >&2\nexit 255\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    before = bundle.read_bytes()
    assert main(["measure", str(bundle), "--device", "pi@kitchen"]) == 1
    assert "cannot reach pi@kitchen over ssh: ssh: no route to host" in capsys.readouterr().err
    assert bundle.read_bytes() == before
