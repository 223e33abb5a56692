"""A checkpoint becomes a teacher's file; one that cannot is refused by one line."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from edge_export.cli import main
from edge_export.learn.training.huggingface import Checkpoint

from tests.edge_export.graphs import device_net


def test_what_a_checkpoint_says_of_itself_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: dict[str, Any] = {}

    def imported(folder: Path, **how: Any) -> Checkpoint:
        asked.update(how, folder=folder)
        return Checkpoint(
            model=device_net(channels=2, samples=64, classes=2),
            architecture="TinyForAudioClassification",
            labels=("no", "yes"),
            rate_hz=8000.0,
            preparation="zero mean",
        )

    monkeypatch.setattr("edge_export.learn.training.huggingface.import_checkpoint", imported)
    out = tmp_path / "teacher.onnx"
    arguments = ["teacher", str(tmp_path), "--python", sys.executable, "--samples", "64", "--channels", "2"]
    assert main([*arguments, "-o", str(out)]) == 0
    assert asked == {"folder": tmp_path, "interpreter": Path(sys.executable), "channels": 2, "samples": 64}
    assert out.stat().st_size > 0
    said = capsys.readouterr().out
    assert "TinyForAudioClassification, made for 8000 Hz" in said
    assert "no, yes" in said


def test_a_folder_that_is_no_checkpoint_ends_with_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "teacher.onnx"
    arguments = ["teacher", str(tmp_path), "--python", sys.executable, "--samples", "64", "-o", str(out)]
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "is no checkpoint" in error
    assert not out.exists()
