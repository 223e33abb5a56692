"""``edge-export events``: rules in a bundle, which devices then follow."""

from __future__ import annotations

from pathlib import Path

import pytest
from edge_export.cli import main
from edge_export.package.sign import new_key

from edge_runtime.event_rule import EventRule
from edge_runtime.model.bundle.bundle import open_bundle
from edge_runtime.model.bundle.signature import load_keys
from edge_runtime.tools.cli import main as edge_runtime
from tests.integration.running import answers, streams, write_recording
from tests.models import tiny_bundle

RULES = """
[gate]
max_share = 0.5  # not for events
[[events]]
name = "step"
label = "walk"
on = 0.34
[[events]]
name = "rest-after"
label = "rest"
on = 0.001
after = "step"
within_s = 3.0
"""


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    new_key(tmp_path / "k.pem")
    (tmp_path / "rules.toml").write_text(RULES)
    return tiny_bundle(tmp_path / "tiny.edge", hop=8)


def put(bundle: Path, *more: str) -> int:
    return main(["events", str(bundle), "--rules", str(bundle.parent / "rules.toml"), *more])


def test_a_device_follows_the_rules_of_its_bundle(bundle: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = bundle.parent
    assert put(bundle, "-o", str(folder / "with.edge"), "--key", str(folder / "k.pem")) == 0
    assert "event rules: step, rest-after; signed by k.pub.pem" in capsys.readouterr().out
    with open_bundle(folder / "with.edge", trusted=load_keys([folder / "k.pub.pem"])) as opened:
        assert opened.manifest.events[0] == EventRule(name="step", label="walk", on=0.34)
        assert opened.manifest.schema_version == 2
    recording = write_recording(folder / "r.jsonl", streams(1, 600))
    assert edge_runtime(["replay", str(folder / "with.edge"), str(recording), "--out", str(folder / "out.jsonl")]) == 0
    assert {line["event"] for line in answers(folder / "out.jsonl") if "event" in line} == {"step", "rest-after"}
    with open_bundle(bundle) as opened:
        assert opened.manifest.events == ()


def test_without_rules_the_bundle_is_what_it_was(bundle: Path) -> None:
    before = bundle.read_bytes()
    assert put(bundle) == 0
    assert bundle.read_bytes() != before
    (bundle.parent / "rules.toml").write_text("# a lamp\n")
    assert put(bundle) == 0
    assert bundle.read_bytes() == before


def test_what_does_not_fit_is_refused_and_the_bundle_stays(bundle: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = bundle.parent
    key = ["--key", str(folder / "k.pem")]
    assert main(["sign", str(bundle), *key]) == 0
    before = bundle.read_bytes()
    assert put(bundle) == 2
    assert "is signed, and event rules in it break the signature: give --key KEY.pem" in capsys.readouterr().err
    (folder / "rules.toml").write_text('[[events]]\nname = "x"\nlabel = "jump"\n')
    assert put(bundle, *key) == 2
    assert "rules.toml: event 'x': the model has no label 'jump'" in capsys.readouterr().err
    (folder / "rules.toml").write_text('[[events]]\nname = "x"\nlabel = "walk"\non = 3.0\n')
    assert put(bundle, *key) == 2
    assert "rules.toml:1: events[0]: event 'x': on must be above 0 and at most 1" in capsys.readouterr().err
    new_key(folder / "other.pem")
    (folder / "rules.toml").write_text(RULES)
    assert put(bundle, "--key", str(folder / "other.pem")) == 1
    assert bundle.read_bytes() == before
