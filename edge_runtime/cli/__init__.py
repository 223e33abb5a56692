"""The command ``edge-runtime``. A file for each subcommand; this one parses, and turns errors into one line each.

Exit codes: 0 done; 1 the work failed (a bundle that does not verify, a server that cannot be reached); 2 wrong use, be
it of the command line or of the configuration file; 130 interrupted before there was anything to drain.
"""

from __future__ import annotations

import argparse
import importlib
import logging
import os
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from edge_runtime._version import __version__
from edge_runtime.errors import ConfigError, EdgeError

COMMANDS = ("run", "replay", "serve", "bench", "inspect", "verify", "doctor", "demo")


class _Formatter(argparse.HelpFormatter):
    """Wraps prose, and leaves examples as they are: a command that is broken in two cannot be copied."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        if text.startswith("example"):
            return "\n".join(indent + line for line in text.splitlines())
        return super()._fill_text(text, width, indent)


class _Parser(argparse.ArgumentParser):
    """An argument parser whose errors are one line that ends with where help is found."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options, formatter_class=_Formatter)

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {' '.join(message.split())} (see {self.prog} --help)\n")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    parser = _Parser(
        prog="edge-runtime",
        description="Small int8 models on live sensor streams, with a cloud for the hard cases.",
        epilog="example: edge-runtime run app.toml",
    )
    parser.add_argument("--version", action="version", version=f"edge-runtime {__version__}")
    verbose: dict[str, Any] = {"action": "store_true", "help": "log more, for looking into a problem"}
    parser.add_argument("-v", "--verbose", **verbose)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND", parser_class=_Parser)
    # Only the command that is asked for is imported: `inspect` needs no engine, `--version` needs nothing at all.
    wanted = next((word for word in arguments if not word.startswith("-")), None)
    for name in COMMANDS if wanted not in COMMANDS else (wanted,):
        importlib.import_module(f"edge_runtime.cli.{name}").add(commands)
        commands.choices[name].add_argument("-v", "--verbose", default=argparse.SUPPRESS, **verbose)
    options = parser.parse_args(arguments)
    logging.basicConfig(
        level=logging.DEBUG if options.verbose else logging.INFO,
        format="%(asctime)s %(levelname)s %(message)s" if options.verbose else "%(levelname)s %(message)s",
        stream=sys.stderr,
    )
    try:
        code = options.run(options)
        sys.stdout.flush()
    except ConfigError as error:
        return _fail(error, 2)
    except EdgeError as error:
        return _fail(error, 1)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader of our output went away (`edge-runtime inspect ... | head`): nothing is wrong, nothing left to say.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    assert isinstance(code, int)
    return code


def _fail(error: EdgeError, code: int) -> int:
    print(f"edge-runtime: {' '.join(str(error).split())}", file=sys.stderr)
    return code
