"""``python -m edge_runtime.tuning.timing BUNDLE [--json]``: time a bundle's variants on this machine.

What ``edge-export measure`` starts on another machine. Exit code 1 with one line on standard error when it fails.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from edge_runtime.bundle.bundle import open_bundle
from edge_runtime.errors import EdgeError
from edge_runtime.tuning.timing.measure import measure_bundle, table
from edge_runtime.tuning.timing.race import Plan


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        prog="python -m edge_runtime.tuning.timing",
        description="Time every variant of a bundle that runs on this machine, in turns, on the bundle's windows.",
    )
    parser.add_argument("bundle", type=Path, metavar="BUNDLE", help="the .edge file")
    parser.add_argument("--json", action="store_true", help="one JSON object on one line, for programs")
    parser.add_argument("--rounds", type=int, default=Plan().rounds, help="turns of each (default: %(default)s)")
    parser.add_argument(
        "--block-ms", type=float, default=Plan().block_s * 1e3, help="length of a turn (default: %(default)s)"
    )
    parser.add_argument(
        "--threads", type=int, nargs="+", metavar="N", help="threads to measure with (default: one, and all cores)"
    )
    options = parser.parse_args(argv)
    if options.threads and min(options.threads) < 1:
        parser.error("--threads must be at least 1")
    try:
        plan = Plan(rounds=options.rounds, block_s=options.block_ms / 1e3)
    except ValueError as error:
        parser.error(str(error))
    try:
        with open_bundle(options.bundle) as bundle:
            found = measure_bundle(bundle, threads=options.threads, plan=plan)
    except EdgeError as error:
        print(f"edge_runtime.tuning.timing: {' '.join(str(error).split())}", file=sys.stderr)
        return 1
    print(found.to_json() if options.json else table(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
