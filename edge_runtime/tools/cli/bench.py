"""``edge-runtime bench``: what the runtime costs on this machine."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from edge_runtime.errors import ConfigError
from edge_runtime.tools.cli.arguments import add_bundle


def add(commands: Any) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "bench",
        help="the runtime's overhead on this machine",
        description=(
            "Measure, in turns and on one core, the bare engine call, a loop written by hand (paho, numpy, one run per "
            "window, publish) and this runtime, with the bundle's own model, over a connection on this machine. Prints "
            "what was measured, then ends; Ctrl-C ends it at once."
        ),
        epilog="example: edge-runtime bench examples/exercise-watch/watch.edge --plot bench.svg",
    )
    add_bundle(parser)
    parser.add_argument(
        "--variant", default="auto", help="variant of the bundle to run (default: the best for this machine)"
    )
    parser.add_argument("--rounds", type=int, default=9, help="rounds of turns (default: %(default)s)")
    parser.add_argument("--messages", type=int, default=1024, help="messages in each turn (default: %(default)s)")
    parser.add_argument("--plot", type=Path, metavar="FILE.svg", help="write a plot")
    parser.add_argument("--json", action="store_true", help="one JSON object, for programs")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Measure and print; exit code 1 when the two programs' answers differ."""
    from edge_runtime.tools.bench import BenchConfig, bench  # noqa: PLC0415 - numpy and the rest, only when needed

    try:
        config = BenchConfig(
            bundle=options.bundle, variant=options.variant, rounds=options.rounds, messages=options.messages
        )
    except ValueError as error:
        raise ConfigError(f"bench: {error}") from error
    result = bench(config)
    print(result.to_json().decode() if options.json else result.text())
    if options.plot is not None:
        try:
            options.plot.write_text(result.svg(), "utf-8")
        except OSError as error:
            raise ConfigError(f"--plot {options.plot}: cannot be written: {error.strerror}") from error
    return 1 if result.labels_differ else 0
