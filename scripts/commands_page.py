"""Page of every command and its options, docs/commands.md, from the parsers of both command lines.

python -m scripts.commands_page            prints it
python -m scripts.commands_page --write    writes it; a test holds the page against the code
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from pathlib import Path

import edge_export.cli

import edge_runtime.tools.cli
from edge_runtime.tools.cli.exits import HELP
from scripts.generated_page import print_or_write

PAGE = Path(__file__).resolve().parents[1] / "docs" / "commands.md"
_EXITS = HELP.removeprefix("Exit codes: ").removesuffix(".").split("; ")
_INTRODUCTION = """# Commands

`edge-runtime` runs on a device, `edge-export` on a workstation. `--help` after any command says the same as this page,
and `-v` after a command of `edge-runtime` logs more. This page is written by `python -m scripts.commands_page --write`.

What `run`, `replay` and `explain` end with; other commands end with 0, 1 or 2:

| exit code | meaning |
|---|---|
"""


def page() -> str:
    """Return the page."""
    codes = [code.partition(" ") for code in _EXITS]
    parts = [_INTRODUCTION + "".join(f"| {number} | {meaning} |\n" for number, _, meaning in codes)]
    for parser in (edge_runtime.tools.cli.parser(edge_runtime.tools.cli.COMMANDS), edge_export.cli.parser()):
        for command in _commands(parser):
            parts += _described(command, 2)
    return "\n".join(parts)


def _described(parser: argparse.ArgumentParser, level: int) -> Iterator[str]:
    """Lines about a command, then about those below it."""
    yield f"{'#' * level} {parser.prog}\n"
    yield f"{_sentence(parser.description or '')}\n"
    examples = [line.strip() for line in re.split(r"\n|examples?:", parser.epilog or "") if line.strip()]
    if examples:
        yield "\n".join(["```sh", *examples, "```", ""])
    rows = [_row(parser, action) for action in parser._actions if _is_shown(action)]  # noqa: SLF001 - no other way
    if rows:
        yield "\n".join(["| argument | meaning |", "|---|---|", *rows, ""])
    for command in _commands(parser):
        yield from _described(command, level + 1)


def _commands(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    for action in parser._actions:  # noqa: SLF001
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            yield from dict.fromkeys(action.choices.values())


def _is_shown(action: argparse.Action) -> bool:
    skipped = isinstance(action, argparse._HelpAction | argparse._SubParsersAction)  # noqa: SLF001
    return not skipped and action.help != argparse.SUPPRESS and "--verbose" not in action.option_strings


def _row(parser: argparse.ArgumentParser, action: argparse.Action) -> str:
    value = "" if action.nargs == 0 else _value(action)
    names = ", ".join(action.option_strings)
    argument = f"{names} {value}".strip()
    known = {"default": action.default, "prog": parser.prog}
    meaning = (action.help or "the .edge file") % known
    return f"| `{argument}` | {meaning[:1].upper() + meaning[1:]} |".replace("COLUMN|FILE", "COLUMN or FILE")


def _value(action: argparse.Action) -> str:
    if isinstance(action.metavar, tuple):
        return " ".join(action.metavar)
    if action.choices is not None:
        return " or ".join(map(str, action.choices))
    name = action.metavar or action.dest.upper().replace("_", "-")
    return {"?": f"[{name}]", "*": f"[{name}...]", "+": f"{name}..."}.get(str(action.nargs), name)


def _sentence(description: str) -> str:
    """Text without the exit codes that stand at the top of the page."""
    return " ".join(description.replace(HELP, "").split())


if __name__ == "__main__":
    print_or_write(PAGE, page())
