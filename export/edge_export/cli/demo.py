"""``edge-export demo``: the hidden command that makes the files of examples/exercise-watch again."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from edge_runtime.errors import ConfigError


def add(commands: Any) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "demo",
        description="Train, quantise and pack the models of the shoulder-exercise demo.",
        epilog="example: edge-export demo seglearn-1.2.5-py3-none-any.whl -o examples/exercise-watch",
    )
    parser.add_argument("data", type=Path, metavar="SEGLEARN", help="seglearn wheel, or a folder with its data")
    parser.add_argument("-o", "--out", type=Path, required=True, help="folder to write into; made if missing")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Read the recordings, and build."""
    from edge_export.data.readers.seglearn import load_watch  # noqa: PLC0415 - numpy and torch, only when needed
    from edge_export.demo.build import DEMO_PEOPLE, PLAN, TRAINING_PEOPLE, build  # noqa: PLC0415

    dataset = load_watch(options.data)
    try:
        options.out.mkdir(parents=True, exist_ok=True)
        build(dataset, PLAN, training=TRAINING_PEOPLE, demo=DEMO_PEOPLE, out=options.out)
    except OSError as error:
        raise ConfigError(f"{options.out}: cannot be written: {error}") from error
    return 0
