"""The command ``demo``: wrong use ends before anything starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from edge_runtime.tools.cli import main


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--broker", "localhost"), "demo: url must look like mqtt://HOST:PORT"),
        (("--listen", "9464"), "demo: listen must be ADDRESS:PORT, as in 127.0.0.1:9464; got '9464'"),
        (("--listen", "0.0.0.0:9464"), "lets others on the network look in"),
        (("--state", "file"), "demo: --state file: cannot be made: it is a file; name another folder"),
        (("--state", "file/below"), "demo: --state file/below: cannot be made: Not a directory; name another folder"),
        (("--folder", "nowhere"), "--folder nowhere: the demo's files (app.toml and what it names) are not there"),
    ],
)
def test_wrong_use_is_one_line_and_starts_nothing(
    options: tuple[str, ...],
    told: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file").touch()
    assert main(["demo", *options]) == 2
    said = capsys.readouterr()
    assert said.err.startswith("edge-runtime: ")
    assert told in said.err
    assert (said.err.count("\n"), said.out) == (1, "")
