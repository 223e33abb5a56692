"""Commands of ``edge-runtime`` and ``edge-export``: options, a function that takes them, and its answer.

1. ``--json`` prints the answer as one JSON document, or as a line for each where they come one by one, on standard
   output, where nothing else is then. Errors, progress and questions are on standard error.
2. Exit codes: 0 done; 1 the work failed (a bundle that does not verify, a server that cannot be reached); 2 wrong use,
   be it of the command line or of a configuration; 130 interrupted before there was anything to drain. A command that
   has more says so in its help (`edge_runtime.tools.cli.exits`).
3. Ctrl-C waits for an import under way: numpy dies of one that comes while it is loaded, onnxruntime calls it a failed
   initialisation.
"""

from __future__ import annotations

import argparse
import functools
import logging
import os
import signal
import sys
import threading
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, redirect_stdout
from dataclasses import dataclass
from types import FrameType, ModuleType
from typing import Any, Final, NoReturn, TypeVar

from edge_runtime._version import __version__
from edge_runtime.base.system.printing import LogFormatter, escaped_output, shortened
from edge_runtime.base.system.streams import JournalFormatter, open_standard_streams, writes_to_journal
from edge_runtime.errors import ConfigError, EdgeError
from edge_runtime.tools.cli.options import Renamed, add_options, build, option

_IMPORT_LOOK_S: Final = 0.05
"""How soon an interrupt that came during an import is tried again."""
_VERBOSE: Final = "log more, for looking into a problem"


@dataclass(frozen=True, kw_only=True)
class CommandOptions:
    """Options of every command."""

    json: bool = option("print JSON, for programs", default=False)
    verbose: bool = option(_VERBOSE, default=False)


@dataclass(frozen=True, slots=True)
class CommandAnswer:
    """Answer of a command (rule 1).

    Attributes:
        document: the answer for programs; an iterator is a document a line.
        lines: the answer for people.
        code: exit code.
    """

    document: object
    lines: str | Iterable[str] = ()
    code: int = 0

    def print(self, *, as_json: bool) -> int:
        """Print it to standard output; returns the exit code."""
        if not as_json:
            for line in (self.lines,) if isinstance(self.lines, str) else self.lines:
                print(line)
            return self.code
        for document in self.document if isinstance(self.document, Iterator) else (self.document,):
            print_json(document)
        return self.code


OptionsT = TypeVar("OptionsT", bound=CommandOptions)
Run = Callable[[OptionsT], "CommandAnswer | int"]
_Around = Callable[[argparse.Namespace, Callable[[], int], Callable[[EdgeError, int], int]], int]


@dataclass(frozen=True, slots=True)
class _Command:
    """Words about a command, or a family of commands."""

    name: str
    help: str
    description: str
    examples: tuple[str, ...]
    renamed: Mapping[str, str]
    run: Callable[[Any], CommandAnswer | int] | None

    def add(self, commands: Any, family: Any) -> Any:
        """Add it to the program's commands, or to those of its family; return what commands of its own are added to."""
        *above, name = self.name.split()
        place = family if above else commands
        hidden: dict[str, Any] = {"help": self.help} if self.help else {}
        text = self.description or f"{self.help[:1].upper()}{self.help[1:]}."
        parser: _Parser = place.add_parser(name, description=text, **hidden)
        program = parser.prog.split()[0]
        shown = [one[2:] if one.startswith("$ ") else f"{program} {one}" for one in self.examples]
        if shown:
            parser.epilog = f"example: {shown[0]}" if len(shown) == 1 else "\n  ".join(["examples:", *shown])
        if self.run is None:
            parser.add_argument("-v", "--verbose", action="store_true", default=argparse.SUPPRESS, help=_VERBOSE)
            return parser.add_subparsers(dest="action", required=True, metavar="ACTION", parser_class=_Parser)
        kind = typing.get_type_hints(self.run)["options"]
        add_options(parser, kind)
        for old, new in self.renamed.items():
            parser.add_argument(old, action=Renamed, nargs="?", metavar=new, help=argparse.SUPPRESS)
        parser.set_defaults(start=functools.partial(self._start, kind))
        return family

    def _start(self, kind: type[CommandOptions], found: argparse.Namespace) -> int:
        try:
            options = build(kind, found)
        except ValueError as error:
            raise ConfigError(f"{self.name}: {error}") from error
        assert self.run is not None
        answer = self.run(options)
        return answer.print(as_json=options.json) if isinstance(answer, CommandAnswer) else answer


_DECLARED: Final[dict[str, list[_Command]]] = {}
"""Commands by their module, as it is imported."""


def command(
    name: str, text: str, description: str = "", *examples: str, renamed: Mapping[str, str] | None = None
) -> Callable[[Run[OptionsT]], Run[OptionsT]]:
    """Declare a command: the decorator of the function that takes its options.

    Args:
        name: its name, after that of its `family`, if it has one.
        text: one line for the list of commands; empty hides it.
        description: some sentences; empty takes the line.
        examples: command lines without the program; after ``$`` as they are.
        renamed: new names of options by those of earlier versions.
    """

    def declared(run: Run[OptionsT]) -> Run[OptionsT]:
        made = _Command(name, text, description, examples, renamed or {}, run)
        _DECLARED.setdefault(run.__module__, []).append(made)
        return run

    return declared


def family(module: str, name: str, text: str, description: str, *examples: str) -> None:
    """Declare a command that has commands of its own, before these.

    Args:
        module: the module's ``__name__``.
        name: its name.
        text: one line for the list of commands.
        description: some sentences.
        examples: command lines without the program.
    """
    _DECLARED.setdefault(module, []).append(_Command(name, text, description, examples, {}, None))


def print_json(document: object) -> None:
    """Print a document as one line of JSON."""
    import orjson  # noqa: PLC0415 - not for --version

    print(orjson.dumps(document, default=str, option=orjson.OPT_NON_STR_KEYS).decode(), flush=True)


def aside(options: CommandOptions) -> AbstractContextManager[Any]:
    """Send what is printed for people to standard error, where standard output is for a document (rule 1)."""
    return redirect_stdout(sys.stderr) if options.json else nullcontext()


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A command line: its name, its commands, and how they are run.

    Attributes:
        name: the program.
        description: a sentence.
        example: a command line, without the program.
        commands: names of the commands, in the order of the list.
        hidden: commands that other programs start.
        load: imports the module of a command; only that of the one that is asked for is imported.
        log_level: least level of the log, without ``--verbose``.
        around: runs the work of the command line that started this process; it is given what prints an error.
    """

    name: str
    description: str
    example: str
    commands: Sequence[str]
    hidden: Sequence[str] = ()
    load: Callable[[str], ModuleType]
    log_level: int = logging.INFO
    around: _Around = lambda _options, work, _fail: work()

    def parser(self, names: Sequence[str]) -> argparse.ArgumentParser:
        """Build the parser of some of the commands."""
        made = _Parser(prog=self.name, description=self.description, epilog=f"example: {self.name} {self.example}")
        made.add_argument("--version", action="version", version=f"{self.name} {__version__}")
        made.add_argument("-v", "--verbose", action="store_true", help=_VERBOSE)
        commands = made.add_subparsers(dest="command", required=True, metavar="COMMAND", parser_class=_Parser)
        for name in names:
            family = None
            for one in _DECLARED[self.load(name).__name__]:
                family = one.add(commands, family)
        return made

    def main(self, argv: Sequence[str] | None) -> int:
        """Run one command and return its exit code."""
        open_standard_streams()
        try:
            with escaped_output(), _interrupted_between_imports():
                return self._main(list(sys.argv[1:] if argv is None else argv), own=argv is None)
        except KeyboardInterrupt:
            return 130

    def _main(self, words: list[str], *, own: bool) -> int:
        # Only the command that is asked for is imported: `inspect` needs no engine, `--version` needs nothing at all.
        wanted = next((word for word in words if not word.startswith("-")), None)
        known = (*self.commands, *self.hidden)
        options = self.parser((wanted,) if wanted in known else self.commands).parse_args(words)
        _log_to_stderr(logging.DEBUG if options.verbose else self.log_level)
        return self.around(options, lambda: self._work(options), self.fail) if own else self._work(options)

    def _work(self, options: argparse.Namespace) -> int:
        try:
            code = options.start(options)
            sys.stdout.flush()
        except ConfigError as error:
            return self.fail(error, 2)
        except EdgeError as error:
            return self.fail(error, 1)
        except BrokenPipeError:
            # The reader of our output went away (`edge-runtime inspect ... | head`): nothing is wrong, nothing left
            # to say.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0
        assert isinstance(code, int)
        return code

    def fail(self, error: EdgeError, code: int) -> int:
        """Print an error as one line; returns the exit code."""
        print(f"{self.name}: {shortened(' '.join(str(error).split()))}", file=sys.stderr)
        return code


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


def _log_to_stderr(level: int) -> None:
    handler = logging.StreamHandler(sys.stderr)
    if writes_to_journal(os.environ):  # which has the time, and the level as a priority
        handler.setFormatter(JournalFormatter("%(message)s"))
    else:
        handler.setFormatter(LogFormatter("%(asctime)s " * (level == logging.DEBUG) + "%(levelname)s %(message)s"))
    logging.basicConfig(level=level, handlers=[handler])


@contextmanager
def _interrupted_between_imports() -> Iterator[None]:
    """Let SIGINT raise KeyboardInterrupt as usual, but not inside an import (rule 3)."""
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
