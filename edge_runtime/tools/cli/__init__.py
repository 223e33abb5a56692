"""The command ``edge-runtime``: a file for each of its commands. `edge_runtime.tools.cli.program` runs them."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence

from edge_runtime.tools.cli.program import Program

SAFE_PATH = "-P" if sys.version_info >= (3, 11) else "-I"
"""Keeps the working directory off the path of modules. Python 3.10 can do it only together with ignoring the user's own
packages (``~/.local``) and PYTHONPATH."""

COMMANDS = (
    *("run", "replay", "explain", "init", "listen", "record", "serve", "bench", "inspect", "verify", "tune", "events"),
    *("doctor", "outbox", "review", "update", "reset", "watch", "status", "examples", "install-service", "demo"),
)
HIDDEN = ("time",)
"""Started by other programs, so not listed by ``--help``."""

PROGRAM = Program(
    name="edge-runtime",
    description="Small int8 models on live sensor streams, with a cloud for the hard cases.",
    example="run app.toml",
    commands=COMMANDS,
    hidden=HIDDEN,
    load=lambda name: importlib.import_module(f"edge_runtime.tools.cli.{name.replace('-', '_')}"),
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    return PROGRAM.main(argv)
