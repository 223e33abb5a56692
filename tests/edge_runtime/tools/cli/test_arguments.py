"""What the commands accept."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from edge_runtime.tools.cli import arguments


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (arguments.port, "0", 0),
        (arguments.port, "65535", 65_535),
        (arguments.count, "1", 1),
        (arguments.seconds, "0", 0.0),
        (arguments.seconds, "1e-3", 0.001),
        (arguments.factor, "0.5", 0.5),
        (arguments.channel_column, "ax=accel x", ("ax", "accel x")),
        (arguments.channel_column, "ax=a=b", ("ax", "a=b")),
    ],
)
def test_good_values(kind: Callable[[str], Any], text: str, value: Any) -> None:
    assert kind(text) == value


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (arguments.port, "65536"),
        (arguments.port, "-1"),
        (arguments.port, "http"),
        (arguments.count, "0"),
        (arguments.count, "1.5"),
        (arguments.seconds, "-1"),
        (arguments.seconds, "nan"),
        (arguments.seconds, "inf"),
        (arguments.seconds, "soon"),
        (arguments.factor, "0"),
        (arguments.channel_column, "ax"),
        (arguments.channel_column, "=x"),
        (arguments.channel_column, "ax="),
    ],
)
def test_bad_values_are_named(kind: Callable[[str], Any], text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError) as caught:
        kind(text)
    assert str(caught.value).startswith(f"{text}: ")


def test_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.csv").touch()
    (tmp_path / "b[1].csv").touch()
    assert arguments.existing_file("a.csv") == Path("a.csv")
    assert arguments.recording("a.csv") == Path("a.csv")
    assert arguments.recording("*.csv") == Path("*.csv")
    assert arguments.recording("b[1].csv") == Path("b[1].csv")  # a file of that name before a pattern
    assert arguments.output_file("new.jsonl") == Path("new.jsonl")
    assert arguments.output_file("a.csv") == Path("a.csv")
    for kind, text, why in [
        (arguments.existing_file, "c.csv", "no such file"),
        (arguments.existing_file, ".", "not a file"),
        (arguments.recording, "c.csv", "no such file"),
        (arguments.recording, "*.npz", "no file fits"),
        (arguments.output_file, "missing/x.jsonl", "does not exist"),
        (arguments.output_file, ".", "not a file"),
    ]:
        with pytest.raises(argparse.ArgumentTypeError, match=why):
            kind(text)
