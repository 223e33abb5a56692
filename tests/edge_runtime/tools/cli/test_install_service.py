"""``edge-runtime install-service`` as a user runs it."""

from __future__ import annotations

from pathlib import Path

import pytest

from edge_runtime.model.serving import choice as accelerators
from edge_runtime.tools.cli import main
from edge_runtime.tools.cli.systemd_unit import MARK

APP = """
[model]
bundle = "watch.edge"
unsigned = "allow"
[[source]]
type = "stdin"
[[sink]]
type = "jsonl"
path = "answers/predictions.jsonl"
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "app.toml"
    path.write_text(APP)
    return path


@pytest.fixture
def units(tmp_path: Path) -> Path:
    folder = tmp_path / "units"
    folder.mkdir()
    return folder


def test_print_writes_nothing_and_keeps_hints_apart(
    file: Path, units: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(file.parent)
    assert main(["install-service", "app.toml", "--dry-run", "--units", str(units)]) == 0
    out, err = capsys.readouterr()
    assert out.startswith(MARK)
    assert f" run {file}\n" in out  # a service has no folder to be relative to
    assert "useradd" in err
    assert "useradd" not in out
    assert list(units.iterdir()) == []


def test_it_writes_the_unit_and_says_what_comes_next(
    file: Path, units: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["install-service", str(file), "--name", "watch", "--units", str(units), "--memory", "64M"]
    assert main([*command, "--group", "gpio", "--user", "sensor", "--cpu", "30", "--watchdog", "10"]) == 0
    text = (units / "watch.service").read_text()
    for line in ("MemoryMax=64M", "User=sensor", "SupplementaryGroups=gpio", "CPUQuota=30%", "WatchdogSec=10"):
        assert line in text.splitlines()
    assert (units / "watch.service").stat().st_mode & 0o777 == 0o644
    assert "systemctl enable --now watch" in capsys.readouterr().out
    assert main([*command, "--memory", "32M"]) == 0  # its own may be made again
    assert "MemoryMax=32M" in (units / "watch.service").read_text()


def test_somebody_elses_unit_is_left_alone(file: Path, units: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (units / "edge-runtime.service").write_text("[Service]\n")
    assert main(["install-service", str(file), "--units", str(units)]) == 2
    assert "was not made by edge-runtime" in capsys.readouterr().err
    assert (units / "edge-runtime.service").read_text() == "[Service]\n"


def test_without_the_right_it_says_how(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["install-service", str(file), "--units", str(tmp_path / "nowhere")]) == 1
    err = capsys.readouterr().err
    assert "sudo" in err
    assert "--dry-run" in err
    assert err.count("\n") == 1


def test_wrong_values_are_one_line_and_code_2(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["install-service", str(file), "--memory", "much", "--dry-run"]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)


@pytest.mark.parametrize("won", [True, False])
def test_an_accelerator_that_has_won_here_gets_its_device_nodes(
    won: bool, file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accelerators, "expected", lambda _model: {"CUDAExecutionProvider": {}} if won else {})
    assert main(["install-service", str(file), "--dry-run"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert ("DevicePolicy=auto" in lines) == won
    assert ("SupplementaryGroups=video render" in lines) == won
    assert ("PrivateDevices=yes" in lines) != won
