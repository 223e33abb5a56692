"""Commands that read other people's model files: bounded in memory, and ended with one line whatever a file does.

1. The work is done in a child process, forked before any library is loaded. One that a signal ends is one line.
2. It may write to as much memory as the files that are named explain (`memory_bytes`).
3. An exception that no code expects is one line, too: a parser or a library met bytes that it was not made for.
"""

from __future__ import annotations

import argparse
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from edge_runtime.base.system.subprocess_job import MEMORY_BYTES, ended, limit_memory
from edge_runtime.errors import ConfigError, EdgeError, one_line

FOREIGN = ("card", "pack", "quantize")

_TIMES = 16
"""Memory by bytes of files: a graph is copied by each pass, and recordings are widened to floats."""


def bounded(options: argparse.Namespace, work: Callable[[], int], fail: Callable[[EdgeError, int], int]) -> int:
    """Run a command, in a child process where it reads other people's files; returns its exit code.

    Args:
        options: the command line's options.
        work: does the work.
        fail: prints an error and returns the exit code that it is given.
    """
    if options.command not in FOREIGN:
        return work()
    child = os.fork()
    if not child:  # rule 1
        limit_memory(memory_bytes(options))  # rule 2
        try:
            return work()
        except Exception as error:  # noqa: BLE001 - rule 3
            reason = one_line(f"{type(error).__name__}: {error}")
            return fail(ConfigError(f"{_models(options)}: cannot be worked on, it may be damaged: {reason}"), 2)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda sent, _: os.kill(child, sent))
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code >= 0:
        return code
    if -code in (signal.SIGINT, signal.SIGTERM):
        return 128 - code
    reason = f"{options.command} ended {ended(code)}; the file is damaged, or made to do harm"
    return fail(ConfigError(f"{_models(options)}: {reason}"), 2)


def memory_bytes(options: argparse.Namespace) -> int:
    """Return the memory that a command may write to, by the files of its command line."""
    return int(MEMORY_BYTES + _TIMES * sum(map(_size, _paths(vars(options)))))


def _models(options: argparse.Namespace) -> str:
    named = getattr(options, "models", None) or [getattr(options, "model", "a stage's file")]
    return ", ".join(map(str, named))


def _paths(value: Any) -> Iterator[Path]:
    if isinstance(value, Path):
        yield value
    elif isinstance(value, dict):
        yield from _paths(list(value.values()))
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _paths(one)


def _size(path: Path) -> int:
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files if file.is_file())
