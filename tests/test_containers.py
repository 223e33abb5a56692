"""The container files under examples/containers: not built here, but read as a builder reads them."""

from __future__ import annotations

from pathlib import Path

import pytest

from edge_runtime.cli import COMMANDS
from tests.containerfiles import ROOT, read

FILES = sorted((ROOT / "examples" / "containers").glob("Containerfile.*"))

# Dockerfile reference, "Overview"; MAINTAINER is deprecated and not wanted.


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
