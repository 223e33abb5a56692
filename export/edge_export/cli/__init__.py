"""The command ``edge-export``: a file for each of its commands. `edge_runtime.tools.cli.program` runs them."""

from __future__ import annotations

import importlib
import logging
from collections.abc import Sequence

from edge_export.cli.foreign import bounded
from edge_runtime.tools.cli.program import Program

COMMANDS = (
    *("build", "auto", "teacher", "card", "pack", "stream", "quantize", "measure", "events", "report"),
    *("keys", "sign", "announce"),
)

PROGRAM = Program(
    name="edge-export",
    description="From labelled recordings to a small, proven model for edge-runtime.",
    example="build recipe.toml --data har=recordings/ -o out/",
    commands=COMMANDS,
    load=lambda name: importlib.import_module(f"edge_export.cli.{name}"),
    log_level=logging.WARNING,
    around=bounded,
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; as a process of its own also those that a file may end (`foreign`)."""
    return PROGRAM.main(argv)
