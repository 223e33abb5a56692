"""Command lines made of dataclasses: the rules of the module."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import pytest

from edge_runtime.tools.cli.options import add_options, operand, option
from tests.parsing import parsed


@dataclass(frozen=True, kw_only=True)
class Group:
    """Where it lies."""

    folder: Path = option("of it", Path("here"))


@dataclass(frozen=True, kw_only=True)
class Everything:
    file: Path = operand("a file", "FILE")
    words: tuple[str, ...] = operand("some words", "WORD", ())
    group: Group
    out: Path | None = option("to write", None)
    tag: tuple[str, ...] = option("may be repeated", ())
    sizes: tuple[Annotated[int, lambda text: 2 * int(text)], ...] = option("several", (), words="+")
    pair: tuple[float, float] = option("two", (0.0, 1.0), ("A", "B"))
    fast: bool = option("a flag", default=False)
    shown: bool | None = option("yes or no", None)
    kind: Literal["a", "b"] = option("50 % of the alphabet", "a")
    needed_s: float = option("must be given", metavar="S")
    left: str = option("this", "", one_of="side")
    right: str = option("or that", "", one_of="side")
    secret: int = option(None, 7)

    def __post_init__(self) -> None:
        if self.fast and self.out is None:
            raise ValueError("--fast needs --out")


def test_what_is_not_given_is_the_default() -> None:
    made = parsed(Everything, "x", "--needed-s", 2)
    assert made == Everything(file=Path("x"), needed_s=2.0, group=Group())
    assert (made.group.folder, made.tag, made.shown, made.secret) == (Path("here"), (), None, 7)


def test_every_kind_of_field_is_read() -> None:
    words = (
        "x one two --needed-s 2 --folder there -o y --tag a --tag b --sizes 1 2 --pair 3 4 --fast --no-shown --kind b"
    )
    made = parsed(Everything, *words.split())
    assert (made.words, made.group.folder, made.out, made.tag) == (("one", "two"), Path("there"), Path("y"), ("a", "b"))
    assert (made.sizes, made.pair, made.fast, made.shown, made.kind) == ((2, 4), (3.0, 4.0), True, False, "b")


@pytest.mark.parametrize(
    "words",
    ["x", "--needed-s 2", "x --needed-s 2 --kind c", "x --needed-s 2 --left a --right b", "x --needed-s 2 --pair 1"],
)
def test_wrong_use_ends(words: str) -> None:
    with pytest.raises(SystemExit):
        parsed(Everything, *words.split())


def test_options_that_contradict_each_other_are_an_error() -> None:
    with pytest.raises(ValueError, match="--fast needs --out"):
        parsed(Everything, "x", "--needed-s", 2, "--fast")


def test_the_help_has_defaults_and_groups_and_no_hidden_option() -> None:
    parser = argparse.ArgumentParser(prog="it")
    add_options(parser, Everything)
    text = parser.format_help()
    for part in (
        "where it lies:",
        "of it (default: here)",
        "50 % of the alphabet (default: a)",
        "[--left LEFT | --right RIGHT]",
    ):
        assert part in text
    assert "secret" not in text
