"""The command ``edge-export``. A file for each subcommand; this one parses, and turns errors into one line each.

Exit codes as those of ``edge-runtime``: 0 done; 1 the work failed; 2 wrong use of the command line or a recipe that
cannot be followed; 130 interrupted.

Imports everything; nothing imports it.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence

from edge_export.cli.foreign import FOREIGN, foreign
from edge_runtime._version import __version__
from edge_runtime.base.system.printing import escaped_output, shortened
from edge_runtime.base.system.streams import open_standard_streams
from edge_runtime.errors import ConfigError, EdgeError

COMMANDS = (
    "build",
    "auto",
    "teacher",
    "card",
    "pack",
    "stream",
    "quantize",
    "measure",
    "events",
    "report",
    "keys",
    "sign",
    "announce",
)


def parser() -> argparse.ArgumentParser:
    """Build the parser of the command line."""
    made = argparse.ArgumentParser(
        prog="edge-export",
        description="From labelled recordings to a small, proven model for edge-runtime.",
        epilog="example: edge-export build recipe.toml --data har=recordings/ -o out/",
    )
    made.add_argument("--version", action="version", version=f"edge-export {__version__}")
    commands = made.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name in COMMANDS:
        importlib.import_module(f"edge_export.cli.{name}").add(commands)
    return made


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; as a process of its own also those that a file may end (`foreign`)."""
    open_standard_streams()
    with escaped_output():
        return _main(argv)


def _main(argv: Sequence[str] | None) -> int:
    options = parser().parse_args(argv)
    if argv is None and options.command in FOREIGN:
        return foreign(options, _run, _fail)
    return _run(options)


def _run(options: argparse.Namespace) -> int:
    try:
        code = options.run(options)
    except ConfigError as error:
        return _fail(error, 2)
    except EdgeError as error:
        return _fail(error, 1)
    except KeyboardInterrupt:
        return 130
    assert isinstance(code, int)
    return code


def _fail(error: EdgeError, code: int) -> int:
    print(f"edge-export: {shortened(' '.join(str(error).split()))}", file=sys.stderr)
    return code
