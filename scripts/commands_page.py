"""Page of every command and its options, docs/commands.md, from the parsers of both command lines.

python -m scripts.commands_page            prints it
python -m scripts.commands_page --write    writes it; a test holds the page against the code

An option that means the same for `SHARED` commands or more is explained once, on top.
"""

from __future__ import annotations

import argparse
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import edge_export.cli

import edge_runtime.tools.cli
from edge_runtime.tools.cli.exits import HELP
from scripts.generated_page import print_or_write

PAGE: Final = Path(__file__).resolve().parents[1] / "docs" / "commands.md"
SHARED: Final = 3
_INTRODUCTION: Final = """# Commands

`edge-runtime` runs on a device, `edge-export` on a workstation. `--help` after any command says the same.
This page is written by `python -m scripts.commands_page --write`. With `--json` standard output holds JSON and nothing
else: one document, or one a line where answers come one by one; errors, questions and progress are on standard error.

What `run`, `replay` and `explain` end with; other commands end with 0, 1 or 2:

| exit code | meaning |
|---|---|
"""
_SHARED: Final = """
Options that mean the same for every command which has them:

| argument | meaning |
|---|---|
"""


def page() -> str:
    """Return the page."""
    codes = [code.partition(" ") for code in HELP.removeprefix("Exit codes: ").removesuffix(".").split("; ")]
    programs = (edge_runtime.tools.cli.PROGRAM, edge_export.cli.PROGRAM)
    commands = [command for one in programs for command in _commands(one.parser(one.commands))]
    counts = Counter(row for command in commands for row in _all_rows(command))
    shared = [row for row, count in counts.items() if count >= SHARED]
    parts = [_INTRODUCTION + "".join(f"| {number} | {meaning} |\n" for number, _, meaning in codes)]
    parts.append(_SHARED.lstrip() + "".join(f"{row}\n" for row in shared))
    for command in commands:
        parts += _described(command, 2, shared)
    return "\n".join(parts)


def _described(parser: argparse.ArgumentParser, level: int, shared: list[str]) -> Iterator[str]:
    """Lines about a command, then about those below it."""
    yield f"{'#' * level} {parser.prog}\n"
    yield f"{_sentence(parser.description or '')}\n"
    examples = [line.strip() for line in re.split(r"\n|examples?:", parser.epilog or "") if line.strip()]
    if examples and level == 2:
        yield "\n".join(["```sh", *examples, "```", ""])
    rows = _rows(parser)
    own = [row for row in rows if row not in shared]
    if own:
        yield "\n".join(["| argument | meaning |", "|---|---|", *own, ""])
    names = [name for row in rows if row in shared and (name := _name(row)) not in ("`--json`", "`-v`")]
    if names:
        yield f"Also {', '.join(names)}.\n"
    for command in _commands(parser):
        yield from _described(command, level + 1, shared)


def _name(row: str) -> str:
    """Return the name of an argument, of its row."""
    return f"`{row.removeprefix('| `').split('` |')[0].split(' ')[0].rstrip(',')}`"


def _commands(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    for action in parser._actions:  # noqa: SLF001 - no other way
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            yield from dict.fromkeys(action.choices.values())


def _all_rows(parser: argparse.ArgumentParser) -> Iterator[str]:
    yield from _rows(parser)
    for command in _commands(parser):
        yield from _all_rows(command)


def _rows(parser: argparse.ArgumentParser) -> list[str]:
    """Rows of a command's arguments; a family of commands has none of its own."""
    if any(True for _ in _commands(parser)):
        return []
    return [_row(parser, action) for action in parser._actions if _is_shown(action)]  # noqa: SLF001


def _is_shown(action: argparse.Action) -> bool:
    return not isinstance(action, argparse._HelpAction) and action.help != argparse.SUPPRESS  # noqa: SLF001


def _row(parser: argparse.ArgumentParser, action: argparse.Action) -> str:
    value = "" if action.nargs == 0 else _value(action)
    argument = f"{', '.join(action.option_strings)} {value}".strip()
    meaning = (action.help or "the .edge file") % {"default": action.default, "prog": parser.prog}
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
