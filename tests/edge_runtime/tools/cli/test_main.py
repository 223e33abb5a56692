"""The command as a whole: help, exit codes, one line for each mistake."""

from __future__ import annotations

import argparse
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


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself_with_an_example(capsys: pytest.CaptureFixture[str], command: str) -> None:
    text = help_of(capsys, command)
    usage, _, rest = text.partition("\n\n")
    assert usage.startswith(f"usage: edge-runtime {command}")
    assert len(rest.split("options:")[0]) > 60, "no description"
    examples = [
        line for line in text.splitlines() if f"edge-runtime {command}" in line and not line.startswith("usage")
    ]
    assert examples
    assert "example" in text
    assert "-v, --verbose" in text


@pytest.mark.parametrize("command", ["run", "replay", "serve", "demo", "bench"])
def test_what_runs_for_long_says_how_soon_it_stops(capsys: pytest.CaptureFixture[str], command: str) -> None:
    text = " ".join(help_of(capsys, command).split())
    assert re.search(r"(Ctrl-C|SIGINT).*(within (\d+ s|drain_timeout_s \(\d+ s)|at once)", text)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_says_what_it_does(capsys: pytest.CaptureFixture[str], command: str) -> None:
    text = help_of(capsys, command)
    section = text.split("options:")[1].split("\n\n")[0]
    lines = [line for line in section.splitlines() if line.strip()]
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        if line.lstrip().startswith("-"):
            explained = "  " in line.strip() or following.startswith(" " * 20)
            assert explained, f"{command}: {line}"


@pytest.mark.parametrize("command", COMMANDS)
def test_examples_parse(capsys: pytest.CaptureFixture[str], command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every example is accepted by the parser: no option in it was renamed since."""
    text = help_of(capsys, command)
    lines = [line.strip().removeprefix("example:").strip() for line in text.splitlines()]
    examples = [line for line in lines if line.startswith(f"edge-runtime {command}")]
    monkeypatch.setattr(Path, "is_file", lambda _self: True)
    monkeypatch.setattr(Path, "is_dir", lambda _self: True)
    monkeypatch.setattr(f"edge_runtime.tools.cli.{command.replace('-', '_')}.run", lambda _options: 0)
    for example in examples:
        assert main(example.split(" > ")[0].split()[1:]) == 0, example


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

    monkeypatch.setattr("edge_runtime.tools.cli.doctor.run", fail)
    assert main(["doctor"]) == code
    assert capsys.readouterr().err == ("" if code == 130 else "edge-runtime: a b\n")


@pytest.mark.parametrize("arguments", [["-v", "doctor"], ["doctor", "-v"], ["doctor"]])
def test_verbose_is_taken_before_and_after_the_command(monkeypatch: pytest.MonkeyPatch, arguments: list[str]) -> None:
    seen: list[bool] = []

    def run(options: argparse.Namespace) -> int:
        seen.append(options.verbose)
        return 0

    monkeypatch.setattr("edge_runtime.tools.cli.doctor.run", run)
    assert main(arguments) == 0
    assert seen == ["-v" in arguments]


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
