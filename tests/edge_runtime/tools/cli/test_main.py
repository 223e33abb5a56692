"""The command as a whole: help, exit codes, one line for each mistake."""

from __future__ import annotations

import logging
import re
import subprocess
import sys
from pathlib import Path

import pytest

from edge_runtime import __version__
from edge_runtime.errors import BundleError, ConfigError, EdgeError
from edge_runtime.tools.cli import COMMANDS, main


def help_of(capsys: pytest.CaptureFixture[str], *command: str) -> str:
    with pytest.raises(SystemExit) as ended:
        main([*command, "--help"])
    assert ended.value.code == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("command", ["run", "replay", "serve", "demo", "bench"])
def test_what_runs_for_long_says_how_soon_it_stops(capsys: pytest.CaptureFixture[str], command: str) -> None:
    text = " ".join(help_of(capsys, command).split())
    assert re.search(r"(Ctrl-C|SIGINT).*(within (\d+ s|drain_timeout_s \(\d+ s)|at once)", text)


def test_the_overview_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    text = help_of(capsys)
    for command in COMMANDS:
        assert re.search(rf"^    {command}\s", text, re.MULTILINE)
    assert "example: edge-runtime run app.toml" in text


def test_long_examples_are_not_broken_in_two(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    assert "  edge-runtime replay watch.edge day1.csv day2.csv --out predictions.jsonl\n" in help_of(capsys, "replay")


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["frobnicate"],
        ["--frobnicate"],
        ["run", "--frobnicate"],
        ["run"],
        ["run", "missing.toml"],
        ["inspect"],
        ["inspect", "missing.edge"],
        ["verify", "missing.edge"],
        ["replay", "missing.edge", "x.csv"],
        ["serve", "missing.edge"],
        ["bench", "missing.edge"],
        ["doctor", "too", "much"],
        ["demo", "--speed", "fast"],
        ["demo", "--speed", "0"],
        ["demo", "--folder", "missing"],
    ],
)
def test_wrong_use_is_one_line_and_code_2(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    try:
        code = main(arguments)
    except SystemExit as ended:
        code = int(ended.code or 0)
    out, err = capsys.readouterr()
    assert code == 2
    assert out == ""
    assert err.count("\n") == 1
    assert err.startswith("edge-runtime")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("raised", "code"),
    [(ConfigError("a\nb"), 2), (BundleError("a\nb"), 1), (EdgeError("a\n b"), 1), (KeyboardInterrupt(), 130)],
)
def test_errors_become_one_line_and_a_code(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, raised: BaseException, code: int
) -> None:
    def fail(_options: object) -> int:
        raise raised

    monkeypatch.setattr("edge_runtime.tools.cli.doctor.examine", fail)
    assert main(["doctor"]) == code
    assert capsys.readouterr().err == ("" if code == 130 else "edge-runtime: a b\n")


@pytest.mark.parametrize("arguments", [["-v", "doctor"], ["doctor", "-v"], ["doctor"]])
def test_verbose_is_taken_before_and_after_the_command(monkeypatch: pytest.MonkeyPatch, arguments: list[str]) -> None:
    seen: list[int] = []
    monkeypatch.setattr("edge_runtime.tools.cli.program._log_to_stderr", seen.append)
    assert main(arguments) == 0
    assert seen == [logging.DEBUG if "-v" in arguments else logging.INFO]


def test_a_reader_that_leaves_is_no_error() -> None:
    code = "import sys; from edge_runtime.tools.cli import main; sys.exit(main(['run', '--print-default']))"
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait(30) == 0


def test_the_version_needs_nothing_but_itself() -> None:
    code = (
        "import sys; from edge_runtime.tools.cli import main\n"
        "try: main(['--version'])\n"
        "except SystemExit: pass\n"
        "print(sorted({'numpy', 'onnxruntime', 'paho', 'sqlite3', 'ssl'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    version, loaded = done.stdout.splitlines()
    assert version == f"edge-runtime {__version__}"
    assert loaded == "[]"
