"""The command that makes variants: what it prints and writes, and what it refuses in one line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from edge_export.cli import main

from tests.edge_export.choose.variants import models
from tests.edge_export.graphs import device_net, windows


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "net.onnx"
    onnx.save(device_net(), str(path))
    return path


@pytest.mark.slow
def test_the_table_the_reasons_and_the_files_are_printed(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, out = models.recordings(tmp_path / "data", files=3, calls=6), tmp_path / "small"
    assert main(["quantize", str(model), "--recording", str(data), "-o", str(out), "--min-snr", "10"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("file ")
    assert "not made: int4-weights: no product with" in said
    assert said.rstrip().endswith("quantize-report.md")
    for path in out.glob("net-*.onnx"):
        assert str(path) in said


CARD = """
name = "net"
origin = { name = "Net", source = "made here", licence = "none" }
signal = { rate_hz = 20.0, channels = ["x (m/s2)", "y (m/s2)", "z (m/s2)"] }

[[stages]]
inputs = [{ rows = 40, scale = [2.0, 1.0, 1.0] }]

[task]
type = "classification"
labels = ["a", "b", "c", "d"]
"""


@pytest.mark.slow
def test_recordings_are_cut_as_the_card_says_and_a_class_folder_gives_labels(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "card.toml").write_text(CARD)
    for kind in ("a", "b"):
        folder = tmp_path / "data" / kind
        folder.mkdir(parents=True)
        for i in range(3):
            x = windows(1, 3, 200, seed=i)[0].T
            lines = [f"{n / 20},{','.join(f'{v:.5f}' for v in row)}" for n, row in enumerate(x)]
            (folder / f"{i}.csv").write_text("\n".join(["t,x,y,z", *lines]) + "\n")
    command = ["quantize", str(model), "--card", str(tmp_path / "card.toml"), "--recording", str(tmp_path / "data")]
    assert main([*command, "--time-column", "t", "-o", str(tmp_path / "out")]) == 0
    assert "accuracy %" in capsys.readouterr().out
    page = (tmp_path / "out" / "quantize-report.md").read_text()
    assert "points of accuracy lost on 10 labelled calls" in page
    assert "split by file: 4 calibrate, 2 are held out" in page


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--constant", "sr"], "'sr' is not INPUT=VALUE"),
        (["--constant", "sr=fast"], "'sr=fast' is not INPUT=VALUE"),
        (["--min-snr", "-3"], "--min-snr"),
        (["--seconds", "0"], "must be above 0"),
    ],
)
def test_arguments_that_mean_nothing_are_refused(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    with pytest.raises(SystemExit):
        main(["quantize", str(model), "--recording", str(tmp_path), "-o", str(tmp_path), *arguments])
    assert message in capsys.readouterr().err


def test_data_that_does_not_fit_is_one_line(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.save(tmp_path / "a.npy", np.zeros((4, 2, 40), np.float32))
    code = main(["quantize", str(model), "--recording", str(tmp_path / "a.npy"), "-o", str(tmp_path / "out")])
    assert code == 2
    assert "input 'window' takes an array of (n, 3, 40)" in capsys.readouterr().err
