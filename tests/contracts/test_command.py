"""Every command of both programs explains itself, names an option as all others do, and prints JSON."""

from __future__ import annotations

import argparse
import json
import shlex
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
from edge_export.cli import PROGRAM

from edge_runtime.tools import cli
from edge_runtime.tools.cli.options import Renamed
from edge_runtime.tools.cli.program import Program
from tests.models import tiny_bundle, tiny_onnx_classifier

PROGRAMS = (cli.PROGRAM, PROGRAM)
OTHER_MEANING = frozenset(
    ("key", "label", "labels", "format", "group", "name", "rate", "recording", "window", "unit", "source", "channels")
)
"""Options that mean something else to commands of another kind: a key of readings, and a key that signs."""


def leaves(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    below = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    if not below:
        yield parser
    for action in below:
        for command in dict.fromkeys(action.choices.values()):
            yield from leaves(command)


def shown(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    return [action for action in parser._actions if action.help != argparse.SUPPRESS and action.dest != "help"]


COMMANDS = [command for program in PROGRAMS for command in leaves(program.parser(program.commands))]
HEADS = [(program, name) for program in PROGRAMS for name in program.commands]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.prog)
def test_a_command_says_what_it_and_each_of_its_options_does(command: argparse.ArgumentParser) -> None:
    assert command.description
    assert len(command.description) > 25
    assert [action for action in shown(command) if len(action.help or "") < 5] == []


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.prog)
def test_a_command_prints_json_and_logs_more(command: argparse.ArgumentParser) -> None:
    flags = {name: action for action in command._actions for name in action.option_strings}
    assert flags["--json"].nargs == flags["-v"].nargs == 0


@pytest.mark.parametrize(("program", "name"), HEADS, ids=lambda one: getattr(one, "name", one))
def test_examples_of_a_command_parse(
    program: Program, name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SystemExit):
        program.main([name, "--help"])
    lines = [line.strip().removeprefix("example: ") for line in capsys.readouterr().out.splitlines()]
    examples = [line for line in lines if f"{program.name} {name}" in line and not line.startswith("usage")]
    assert examples
    monkeypatch.setattr(Path, "is_file", lambda _self: True)
    monkeypatch.setattr(Path, "is_dir", lambda self: "." not in self.name or self == Path())
    monkeypatch.setattr(Path, "exists", lambda _self: True)
    for example in examples:
        words = shlex.split(example.partition(f"{program.name} ")[2].partition(" > ")[0].rstrip("\\"))
        if not example.endswith("\\"):
            program.parser(program.commands).parse_args(words)


def test_the_same_option_has_the_same_value_everywhere() -> None:
    """Mutation that this finds: one command reads seconds where the others read a file."""
    kinds = defaultdict(set)
    for command in COMMANDS:
        for action in shown(command):
            for name in action.option_strings:
                kinds[name].add((action.type, action.nargs == 0, tuple(action.choices or ())))
    several = {name for name, found in kinds.items() if len(found) > 1}
    assert {name.lstrip("-") for name in several} - OTHER_MEANING <= {
        "python",
        "out",
        "o",
        "state",
        "threads",
        "rounds",
        "trusted-key",
    }


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.prog)
def test_a_name_of_an_earlier_version_is_refused_with_the_new_one(
    command: argparse.ArgumentParser, capsys: pytest.CaptureFixture[str]
) -> None:
    old = [action for action in command._actions if isinstance(action, Renamed)]
    for action in old:
        (name,) = action.option_strings
        for words in ([name], [name, "value"]):
            with pytest.raises(SystemExit) as ended:
                command.parse_args(words)
            assert ended.value.code == 2
            assert f"{name} is now {action.metavar}" in capsys.readouterr().err
        now = str(action.metavar).split()[0]
        assert not now.startswith("-") or now in command._option_string_actions


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("cheap")
    tiny_bundle(made / "tiny.edge", variants=("onnx-fp32",))
    rows = "".join(f"{i / 50},{i % 7},{i % 5},{i % 3}\n" for i in range(200))
    (made / "day.csv").write_text("t,c0,c1,c2\n" + rows)
    (made / "app.toml").write_text(
        '[model]\nbundle = "tiny.edge"\nunsigned = "allow"\n[outbox]\npath = "outbox.db"\n[cloud]\n'
        'url = "http://127.0.0.1:1"\nmodel = "big"\n[[source]]\ntype = "stdin"\n[[sink]]\ntype = "stdout"\n'
    )
    (made / "heard.txt").write_text("".join(f'{i / 50} hall/imu {{"x": {i % 7}}}\n' for i in range(200)))
    (made / "rules.toml").write_text('[[events]]\nname = "step"\nlabel = "walk"\n')
    (made / "net.onnx").write_bytes(tiny_onnx_classifier())
    return made


CHEAP = {
    "edge-runtime": [
        "doctor",
        "inspect tiny.edge",
        "verify tiny.edge",
        "tune tiny.edge --forget",
        "replay tiny.edge day.csv",
        "replay tiny.edge day.csv --out out.jsonl",
        "explain tiny.edge day.csv --worst 1 --spans 2",
        "run --print-default",
        "run --check .",
        "install-service app.toml --dry-run",
        "serve tiny.edge --allow-unsigned --print-kserve s3://bucket",
        "listen heard.txt",
    ],
    "edge-export": [
        "keys new release.pem",
        "keys show release.pem",
        "keys set --out keys.json --version 1 --trusted-key release.pub.pem --key release.pem",
        "events tiny.edge --rules rules.toml -o ruled.edge",
        "measure tiny.edge --rounds 2 --dry-run",
        "sign ruled.edge --key release.pem",
        "announce ruled.edge --key release.pem --url https://example.org/ruled.edge --out announce.json",
        "card net.onnx",
    ],
}


@pytest.mark.parametrize(
    ("program", "line"), [(one, line) for one in PROGRAMS for line in CHEAP[one.name]], ids=lambda one: str(one)[:40]
)
def test_json_is_all_that_standard_output_holds(
    program: Program, line: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    code = program.main([*line.split(), "--json"])
    out, err = capfd.readouterr()
    assert code in (0, 1), err
    assert [json.loads(one) for one in out.splitlines()], err
