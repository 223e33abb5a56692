"""The container files under examples/containers: not built here, but read as a builder reads them."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from edge_runtime.cli import COMMANDS

ROOT = Path(__file__).resolve().parents[1]
FILES = sorted((ROOT / "examples" / "containers").glob("Containerfile.*"))

# Dockerfile reference, "Overview"; MAINTAINER is deprecated and not wanted.
INSTRUCTIONS = {
    "ADD", "ARG", "CMD", "COPY", "ENTRYPOINT", "ENV", "EXPOSE", "FROM", "HEALTHCHECK", "LABEL", "ONBUILD", "RUN",
    "SHELL", "STOPSIGNAL", "USER", "VOLUME", "WORKDIR",
}  # fmt: skip


@dataclass
class Read:
    """What a builder would have to say."""

    problems: list[str] = field(default_factory=list)
    images: list[str] = field(default_factory=list)
    command: list[str] = field(default_factory=list)
    user: str = "root"


def instructions(text: str) -> list[tuple[str, str]]:
    """Name and argument of each, continuation lines joined; comments are left out, also between continuations."""
    joined: list[str] = []
    open_line = False
    for line in text.splitlines():
        if line.lstrip().startswith("#") or (not line.strip() and not open_line):
            continue
        part = line.rstrip()
        continues = part.endswith("\\")
        part = part[:-1] if continues else part
        if open_line:
            joined[-1] += part
        else:
            joined.append(part)
        open_line = continues
    found = []
    for line in joined:
        name, _, argument = line.strip().partition(" ")
        found.append((name, argument.strip()))
    return found


def read(text: str, root: Path = ROOT) -> Read:
    """Everything that can be known to be wrong without building."""
    found = Read()
    say = found.problems.append
    arguments: dict[str, str] = {}
    stages: list[str] = []
    contexts = set(re.findall(r"--build-context (\w+)=", text))
    begun = False

    def filled(word: str) -> str:
        for name in re.findall(r"\$\{(\w+)\}", word):
            if name not in arguments:
                say(f"${{{name}}} is not declared")
        return re.sub(r"\$\{(\w+)\}", lambda match: arguments.get(match[1], ""), word)

    def vector(name: str, argument: str) -> list[str]:
        try:
            words = json.loads(argument)
        except ValueError:
            words = None
        if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
            say(f"{name} is no list of words, so a shell would stand between the signals and the program")
            return []
        return words

    for name, argument in instructions(text):
        if name not in INSTRUCTIONS:
            say(f"unknown instruction {name}")
            continue
        if not argument:
            say(f"{name} says nothing")
            continue
        if not begun and name not in {"ARG", "FROM"}:
            say(f"{name} before FROM")
        match name:
            case "ARG":
                key, _, value = argument.partition("=")
                arguments[key] = value
            case "FROM":
                begun = True
                found.user = "root"
                image, *rest = shlex.split(filled(argument))
                if image not in stages:
                    found.images.append(image)
                    _, colon, tag = image.rpartition("/")[2].partition(":")
                    if not colon or not tag or tag == "latest":
                        say(f"{image} has no tag of its own")
                if rest:
                    if len(rest) != 2 or rest[0].upper() != "AS":
                        say(f"FROM {argument}: what is {' '.join(rest)}?")
                    else:
                        stages.append(rest[1])
            case "COPY" | "ADD":
                words = shlex.split(filled(argument))
                flags = [word for word in words if word.startswith("--")]
                *sources, target = [word for word in words if not word.startswith("--")]
                origin = next((flag.partition("=")[2] for flag in flags if flag.startswith("--from=")), None)
                if origin is not None and origin not in {*stages, *contexts}:
                    say(f"{name} --from={origin}: no such stage or context")
                if not sources:
                    say(f"{name} {argument}: from where?")
                for source in sources if origin is None else []:
                    if not any(root.glob(source.lstrip("/"))):
                        say(f"{name}: {source} does not exist")
                if len(sources) > 1 and not target.endswith("/"):
                    say(f"{name} of several files to {target}, which must end with a slash")
            case "RUN":
                done = subprocess.run(["sh", "-n", "-c", argument], capture_output=True, text=True, check=False)
                if done.returncode:
                    say(f"RUN: {done.stderr.strip()}")
                for used in re.findall(r"\$\{(\w+)\}", argument):
                    filled(f"${{{used}}}")
            case "ENTRYPOINT" | "CMD":
                found.command += vector(name, argument)
            case "VOLUME":
                vector(name, argument)
            case "USER":
                found.user = argument
    if not begun:
        say("no FROM")
    if found.user in {"root", "0"}:
        say("it runs as root")
    return found


def test_there_is_one_for_arm64_and_one_for_jetson() -> None:
    assert [path.name for path in FILES] == ["Containerfile.arm64", "Containerfile.jetson"]


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
