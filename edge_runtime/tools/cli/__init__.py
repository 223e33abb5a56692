"""The command ``edge-runtime``. A file for each subcommand; this one parses, and turns errors into one line each.

Exit codes: 0 done; 1 the work failed (a bundle that does not verify, a server that cannot be reached); 2 wrong use, be
it of the command line or of the configuration file; 3 `run` or `replay` ended and lost what they should not have
(`edge_runtime.tools.cli.exits`); 130 interrupted before there was anything to drain.

Ctrl-C waits for an import under way: numpy dies of one that comes while it is loaded, onnxruntime calls it a failed
initialisation.
"""

from __future__ import annotations

import argparse
import importlib
import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any, NoReturn

from edge_runtime._version import __version__
from edge_runtime.base.system.printing import LogFormatter, escaped_output, shortened
from edge_runtime.base.system.streams import JournalFormatter, open_standard_streams, writes_to_journal
from edge_runtime.errors import ConfigError, EdgeError

SAFE_PATH = "-P" if sys.version_info >= (3, 11) else "-I"
"""Keeps the working directory off the path of modules. Python 3.10 can do it only together with ignoring the user's own
packages (``~/.local``) and PYTHONPATH."""

COMMANDS = (
    "run",
    "replay",
    "explain",
    "init",
    "listen",
    "record",
    "serve",
    "bench",
    "inspect",
    "verify",
    "tune",
    "events",
    "doctor",
    "outbox",
    "review",
    "update",
    "reset",
    "watch",
    "status",
    "examples",
    "install-service",
    "demo",
)
HIDDEN = ("time",)
"""Started by other programs, so not listed by ``--help``."""

LOG_LINE = "%(levelname)s %(message)s"

_IMPORT_LOOK_S = 0.05
"""How soon an interrupt that came during an import is tried again."""


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
        self.exit(2, f"{self.prog}: {shortened(' '.join(message.split()))} (see {self.prog} --help)\n")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    open_standard_streams()
    try:
        with escaped_output(), _interrupted_between_imports():
            return _main(list(sys.argv[1:] if argv is None else argv))
    except KeyboardInterrupt:
        return 130


def parser(names: Sequence[str]) -> argparse.ArgumentParser:
    """Build the parser of the command line.

    Args:
        names: the subcommands that it knows; only theirs are imported.
    """
    made = _Parser(
        prog="edge-runtime",
        description="Small int8 models on live sensor streams, with a cloud for the hard cases.",
        epilog="example: edge-runtime run app.toml",
    )
    made.add_argument("--version", action="version", version=f"edge-runtime {__version__}")
    verbose: dict[str, Any] = {"action": "store_true", "help": "log more, for looking into a problem"}
    made.add_argument("-v", "--verbose", **verbose)
    commands = made.add_subparsers(dest="command", required=True, metavar="COMMAND", parser_class=_Parser)
    for name in names:
        importlib.import_module(f"edge_runtime.tools.cli.{name.replace('-', '_')}").add(commands)
        commands.choices[name].add_argument("-v", "--verbose", default=argparse.SUPPRESS, **verbose)
    return made


def _main(arguments: list[str]) -> int:
    # Only the command that is asked for is imported: `inspect` needs no engine, `--version` needs nothing at all.
    wanted = next((word for word in arguments if not word.startswith("-")), None)
    options = parser((wanted,) if wanted in (*COMMANDS, *HIDDEN) else COMMANDS).parse_args(arguments)
    _log_to_stderr(verbose=options.verbose)
    try:
        code = options.run(options)
        sys.stdout.flush()
    except ConfigError as error:
        return _fail(error, 2)
    except EdgeError as error:
        return _fail(error, 1)
    except BrokenPipeError:
        # The reader of our output went away (`edge-runtime inspect ... | head`): nothing is wrong, nothing left to say.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    assert isinstance(code, int)
    return code


def _log_to_stderr(*, verbose: bool) -> None:
    handler = logging.StreamHandler(sys.stderr)
    if writes_to_journal(os.environ):  # which has the time, and the level as a priority
        handler.setFormatter(JournalFormatter("%(message)s"))
    else:
        handler.setFormatter(LogFormatter("%(asctime)s " * verbose + LOG_LINE))
    logging.basicConfig(level=logging.DEBUG if verbose else logging.INFO, handlers=[handler])


def _fail(error: EdgeError, code: int) -> int:
    print(f"edge-runtime: {shortened(' '.join(str(error).split()))}", file=sys.stderr)
    return code


@contextmanager
def _interrupted_between_imports() -> Iterator[None]:
    """Let SIGINT raise KeyboardInterrupt as usual, but not inside an import."""
    usual = signal.getsignal(signal.SIGINT)
    if usual is not signal.default_int_handler or threading.current_thread() is not threading.main_thread():
        yield  # ignored, as in the background of a script, or another program's own
        return

    def handle(number: int, frame: FrameType | None) -> None:
        if _importing(frame):
            again = threading.Timer(_IMPORT_LOOK_S, signal.raise_signal, (number,))
            again.daemon = True
            again.start()
        else:
            signal.default_int_handler(number, frame)

    signal.signal(signal.SIGINT, handle)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, usual)


def _importing(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False
