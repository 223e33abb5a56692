"""The container files under examples/containers: not built here, but read as a builder reads them.

The build steps of the first are run, too: on this machine's own architecture and Python, in a folder.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from edge_runtime.base.system import toml
from edge_runtime.tools.cli import COMMANDS
from tests.containerfiles import ROOT, instructions, read
from tests.long_tier import some

FILES = sorted((ROOT / "examples" / "containers").glob("Containerfile*"))

# Dockerfile reference, "Overview"; MAINTAINER is deprecated and not wanted.


def test_there_is_one_for_both_architectures_and_one_for_jetson() -> None:
    assert [path.name for path in FILES] == ["Containerfile", "Containerfile.jetson"]
    steps = " ".join(argument for _, argument in instructions(FILES[0].read_text("utf-8")))
    assert not [word for word in ("arm64", "aarch64", "amd64", "x86_64", "--platform") if word in steps]


def copied(path: Path) -> set[str]:
    """What it takes from the checkout."""
    steps = [argument.split() for name, argument in instructions(path.read_text("utf-8")) if name == "COPY"]
    return {source for words in steps if not words[0].startswith("--from") for source in words[:-1]}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_it_copies_all_that_a_wheel_is_built_of(path: Path) -> None:
    wheel = toml.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["hatch"]["build"]["targets"]["wheel"]
    needed = ["README.md", "LICENSE", *wheel["packages"], *wheel["force-include"]]
    folders = copied(path)
    assert not [name for name in needed if not any(Path(name).is_relative_to(folder) for folder in folders)]


@pytest.mark.slow
@pytest.mark.parametrize("engine", some(["tflite", "onnx"], ["tflite"]))
def test_the_build_steps_make_what_answers(tmp_path: Path, engine: str) -> None:
    """Mutations that this finds: a folder that the wheel needs is not copied; scripts/slim deletes too much."""
    source, target = tmp_path / "src", tmp_path / "opt"
    for name in copied(FILES[0]):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (shutil.copytree if (ROOT / name).is_dir() else shutil.copyfile)(ROOT / name, source / name)
    steps = instructions(FILES[0].read_text("utf-8").split("\nFROM ")[1])
    runs = [argument for name, argument in steps if name == "RUN"]
    assert len(runs) == 2
    for command in runs:
        here = command.replace("/opt/", f"{target}/").replace("python -m venv", f"{sys.executable} -m venv")
        environment = {**os.environ, "ENGINE": engine}
        done = subprocess.run(
            ["sh", "-c", here], cwd=source, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
    program = target / "edge-runtime" / "bin" / "edge-runtime"
    recording = ROOT / "examples" / "exercise-watch" / "recordings.npz"
    out = tmp_path / "answers.jsonl"
    command_line = [str(program), "replay", "exercise-watch", str(recording), "--out", str(out)]
    done = subprocess.run(command_line, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert len(out.read_text("utf-8").splitlines()) > 900


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_builder_would_have_nothing_to_say(path: Path) -> None:
    found = read(path.read_text("utf-8"))
    assert found.problems == []
    assert found.command[0].endswith("/edge-runtime")
    assert found.command[1] in COMMANDS
    assert not any(len(line) > 130 for line in path.read_text("utf-8").splitlines())


GOOD = """
ARG BASE=image:1
FROM ${BASE} AS build
COPY README.md ./
RUN echo a \\
    # in between
    && echo b
FROM image:2
COPY --from=build /x /x
USER 990
CMD ["edge-runtime", "run"]
"""


def test_the_reader_finds_nothing_wrong_with_a_good_file() -> None:
    found = read(GOOD)
    assert found.problems == []
    assert found.images == ["image:1", "image:2"]


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("RUN echo a", "RUM echo a", "unknown instruction RUM"),
        ("image:2", "image", "no tag of its own"),
        ("image:1", "image:latest", "no tag of its own"),
        ("image:2", "host:5000/image", "no tag of its own"),
        ("README.md", "MISSING.md", "MISSING.md does not exist"),
        ("--from=build", "--from=nobody", "no such stage"),
        ("${BASE}", "${BASS}", "BASS} is not declared"),
        ("&& echo b", "&& (echo b", "RUN:"),
        ("USER 990", "USER root", "runs as root"),
        ("USER 990\n", "", "runs as root"),
        ('["edge-runtime", "run"]', "edge-runtime run", "no list of words"),
        ("ARG BASE=image:1\n", "RUN true\n", "before FROM"),
        ("AS build", "AS", "what is AS"),
        ("COPY README.md ./", "COPY README.md LICENSE x", "must end with a slash"),
        ("COPY README.md ./", "COPY", "says nothing"),
    ],
)
def test_the_reader_finds_what_is_wrong(old: str, new: str, problem: str) -> None:
    assert old in GOOD
    assert problem in " | ".join(read(GOOD.replace(old, new)).problems)
