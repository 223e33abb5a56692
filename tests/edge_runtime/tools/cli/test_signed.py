"""Commands and signed bundles: what runs, what is refused, and what is said about it."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest
from edge_export.package.sign import SigningKey, new_key, sign_bundle

from edge_runtime.clock import SimulatedClock
from edge_runtime.errors import BundleError, SignatureError
from edge_runtime.model import engines
from edge_runtime.model.bundle import sandbox
from edge_runtime.model.serving.config import ModelConfig
from edge_runtime.model.serving.loading import load_model
from edge_runtime.tools.cli import main
from tests import models
from tests.integration.running import Process, answers, streams, write_recording

APP = """
[model]
bundle = "{bundle}.edge"
{trust}
[[source]]
type = "recording"
files = ["recording.jsonl"]
[[sink]]
type = "jsonl"
path = "answers.jsonl"
"""
TRUSTED = 'trusted_keys = ["other.pub.pem", "release.pub.pem"]'
ALLOWED = 'unsigned = "allow"'
STRANGER = 'trusted_keys = ["other.pub.pem"]'


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


@pytest.mark.slow
def test_verify_says_who_signed(made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keys = ("--trusted-key", "other.pub.pem", "--trusted-key", "release.pub.pem")
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
        assert main(arguments(made, "verify", f"{name}.edge", "--trusted-key", "other.pub.pem")) == 1
        out, err = capsys.readouterr()
        assert (out, err.count("\n")) == ("", 1)
        assert f"{name}.edge: " in err
        assert words in err


def test_a_private_key_in_place_of_the_public_one_is_wrong_use(made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments(made, "verify", "signed.edge", "--trusted-key", "release.pem")) == 2
    assert "holds a private key" in capsys.readouterr().err


def test_verify_refuses_an_expired_bundle(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = models.tiny_bundle(tmp_path, expires="2024-02-29")
    assert main(["verify", str(path)]) == 1
    assert "expired on 2024-02-29" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize(
    ("bundle", "trust", "signature"),
    [
        ("signed", TRUSTED, "signed by release.pub.pem"),
        ("unsigned", ALLOWED, "unsigned"),
        ("signed", ALLOWED, "signed (not verified yet)"),
    ],
)
def test_run_runs_what_is_trusted(
    made: Path, capsys: pytest.CaptureFixture[str], bundle: str, trust: str, signature: str
) -> None:
    write_recording(made / "recording.jsonl", streams(1, 100))
    (made / "app.toml").write_text(APP.format(bundle=bundle, trust=trust))
    assert main(arguments(made, "run", "--check", "--json", "app.toml")) == 0
    assert orjson.loads(capsys.readouterr().out)["signature"].startswith(signature)
    assert main(arguments(made, "run", "app.toml")) == 0
    assert answers(made / "answers.jsonl")
    (made / "answers.jsonl").unlink()


@pytest.mark.parametrize(
    ("bundle", "trust", "words"),
    [
        ("unsigned", "", "unsigned.edge: it is not signed; sign it (docs/signing.md), or allow"),
        ("unsigned", TRUSTED, "unsigned.edge: it is not signed"),
        ("signed", "", "which is not trusted; trusted: none; name the signer's public key"),
        ("signed", STRANGER, "which is not trusted; trusted: other.pub.pem"),
    ],
)
@pytest.mark.parametrize("check", [True, False])
def test_run_refuses_everything_else_before_a_model_library_is_touched(
    made: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    bundle: str,
    trust: str,
    words: str,
    check: bool,
) -> None:
    def reached(*_: object, **__: object) -> None:
        raise AssertionError

    for place, name in ((engines, "load"), (sandbox, "probe")):
        monkeypatch.setattr(place, name, reached)
    monkeypatch.setattr("edge_runtime.model.serving.loading.probe", reached)
    write_recording(made / "recording.jsonl", streams(1, 100))
    (made / "app.toml").write_text(APP.format(bundle=bundle, trust=trust))
    assert main(arguments(made, "run", *["--check"][:check], "app.toml")) == 1
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert words in err
    assert not (made / "answers.jsonl").exists()


def test_a_trusted_key_that_is_not_there_is_wrong_use(made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (made / "app.toml").write_text(APP.format(bundle="signed", trust='trusted_keys = ["none.pem"]'))
    assert main(arguments(made, "run", "--check", "app.toml")) == 2
    assert "none.pem: cannot be read: No such file" in capsys.readouterr().err


def test_an_expired_bundle_does_not_start_however_well_it_is_signed(tmp_path: Path, made: Path) -> None:
    key = SigningKey(made / "release.pem")
    path = models.tiny_bundle(tmp_path, expires="2024-02-29", signer=key)
    config = ModelConfig(bundle=path, trusted_keys=(made / "release.pub.pem",))
    with pytest.raises(BundleError, match="expired on 2024-02-29"):
        load_model(config, SimulatedClock(wall=1.8e9))
    load_model(config, SimulatedClock(wall=1.7e9)).close()


@pytest.mark.slow
def test_serve_must_be_told_whose_bundles_may_run(
    made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, words in (("signed", "trusted: none"), ("unsigned", "--allow-unsigned")):
        assert main(arguments(made, "serve", f"{name}.edge", "--port", "0")) == 1
        assert words in capsys.readouterr().err
    with pytest.raises(SystemExit) as both:
        main(arguments(made, "serve", "signed.edge", "--allow-unsigned", "--trusted-key", "release.pub.pem"))
    assert both.value.code == 2
    for more in (["--trusted-key", "release.pub.pem"], ["--allow-unsigned"]):
        with Process(tmp_path, *arguments(made, "serve", "signed.edge", "--port", "0", *more)) as process:
            process.says("serving tiny")


@pytest.mark.slow
def test_replay_runs_what_it_is_given_and_with_a_key_only_what_that_signed(
    made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recording, out = write_recording(tmp_path / "recording.jsonl", streams(1, 100)), tmp_path / "out.jsonl"
    for name, keys, code in (
        ("unsigned", [], 0),
        ("signed", [], 0),
        ("signed", ["--trusted-key", "release.pub.pem"], 0),
        ("signed", ["--trusted-key", "other.pub.pem"], 1),
        ("unsigned", ["--trusted-key", "release.pub.pem"], 1),
    ):
        words = arguments(made, "replay", f"{name}.edge", *keys)
        assert main([*words, str(recording), "--out", str(out)]) == code, capsys.readouterr().err


def test_a_signature_is_verified_again_at_each_start(made: Path, tmp_path: Path) -> None:
    path = tmp_path / "a.edge"
    path.write_bytes((made / "signed.edge").read_bytes())
    config = ModelConfig(bundle=path, trusted_keys=(made / "release.pub.pem",))
    load_model(config).close()
    path.write_bytes((made / "unsigned.edge").read_bytes())
    with pytest.raises(SignatureError, match="not signed"):
        load_model(config)
