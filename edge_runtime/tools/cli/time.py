"""``edge-runtime time``: the hidden command that ``edge-export measure`` starts on another machine over ssh."""

from __future__ import annotations

import argparse
from typing import Any

from edge_runtime.errors import ConfigError
from edge_runtime.model.tuning.timing.interleaved import Plan
from edge_runtime.tools.cli.arguments import existing_file


def add(commands: Any) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "time",
        description="Time every variant of a bundle that runs on this machine, in turns, on the bundle's windows.",
        epilog="example: edge-runtime time watch.edge --json",
    )
    parser.add_argument("bundle", type=existing_file, metavar="BUNDLE", help="the .edge file")
    parser.add_argument("--json", action="store_true", help="one JSON object on one line, for programs")
    parser.add_argument("--rounds", type=int, default=Plan().rounds, help="turns of each (default: %(default)s)")
    parser.add_argument(
        "--block-ms", type=float, default=Plan().block_s * 1e3, help="length of a turn (default: %(default)s)"
    )
    parser.add_argument(
        "--threads", type=int, nargs="+", metavar="N", help="threads to measure with (default: one, and all cores)"
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Measure and print."""
    from edge_runtime.model.bundle.bundle import open_bundle  # noqa: PLC0415 - numpy and the rest, only when needed
    from edge_runtime.model.tuning.timing.measure import measure_bundle, table  # noqa: PLC0415

    if options.threads and min(options.threads) < 1:
        raise ConfigError("--threads must be at least 1")
    try:
        plan = Plan(rounds=options.rounds, block_s=options.block_ms / 1e3)
    except ValueError as error:
        raise ConfigError(str(error)) from error
    with open_bundle(options.bundle) as bundle:
        found = measure_bundle(bundle, threads=options.threads, plan=plan)
    print(found.to_json() if options.json else table(found))
    return 0
