"""The command ``explain`` where there is nothing to explain."""

from __future__ import annotations

from pathlib import Path

import pytest

from edge_runtime.tools.cli import main
from tests.models import tiny_bundle


@pytest.mark.parametrize("rows", ["0.0,1,2,3\n0.02,1,2,3\n", "not,a,number,here\n"])
def test_no_window_is_said_and_is_no_success(rows: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bundle = tiny_bundle(tmp_path / "tiny.edge", variants=("onnx-fp32",))
    (tmp_path / "short.csv").write_text("t,c0,c1,c2\n" + rows)
    assert main(["explain", str(bundle), str(tmp_path / "short.csv")]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert "no window: nothing to explain; `edge-runtime replay` says what the recordings lack" in said.err
