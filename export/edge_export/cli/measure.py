"""``edge-export measure``: variants timed here or on another machine, and the times written into their bundle."""

from __future__ import annotations

import argparse
from typing import Any

from edge_export.cli.sign import add_key, signing_again
from edge_runtime.tools.cli.arguments import count, existing_file, output_file, seconds


def add(commands: Any) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "measure",
        help="time a bundle's variants, here or on another machine",
        description=(
            "Time every variant of a bundle that runs on this machine, or over ssh on another one, in turns and on one "
            "thread and all; and write the figures into the bundle under the name of the machine. The other machine "
            "needs Python and edge-runtime with an engine. A signed bundle is signed again, so it needs its key."
        ),
        epilog="example: edge-export measure watch.edge --device pi@kitchen --key release.pem",
    )
    parser.add_argument("bundle", type=existing_file, metavar="BUNDLE", help="the .edge file")
    parser.add_argument(
        "--device", default="", metavar="HOST", help="as ssh takes it, for example pi@kitchen (default: this machine)"
    )
    parser.add_argument(
        "--python", default="python3", help="interpreter on the other machine that has edge-runtime (default: python3)"
    )
    parser.add_argument(
        "-o", "--out", type=output_file, metavar="OUT.edge", help="write another bundle (default: replace this one)"
    )
    parser.add_argument("--dry-run", action="store_true", help="print the figures and leave the bundle as it is")
    parser.add_argument("--name", default="", help="name of the machine in the bundle (default: the board's own)")
    parser.add_argument("--rounds", type=count, default=61, help="turns of every variant (default: 61)")
    parser.add_argument(
        "--timeout", type=seconds, default=600.0, metavar="S", help="after which the other machine is given up"
    )
    add_key(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Measure, print, and write the figures down."""
    from edge_export.choose.selection.remote import measure_on, record  # noqa: PLC0415
    from edge_runtime.model.bundle.bundle import open_bundle  # noqa: PLC0415 - numpy and the rest, only when needed
    from edge_runtime.model.tuning.timing import Plan, measure_bundle  # noqa: PLC0415
    from edge_runtime.model.tuning.timing.measure import table  # noqa: PLC0415

    signer, by = (
        (None, "") if options.dry_run else signing_again(options, "figures", ", or --dry-run to leave it as it is")
    )
    plan = Plan(rounds=options.rounds)
    if options.device:
        found = measure_on(options.device, options.bundle, python=options.python, plan=plan, timeout_s=options.timeout)
    else:
        with open_bundle(options.bundle) as bundle:
            found = measure_bundle(bundle, plan=plan)
    print(table(found))
    if options.dry_run:
        return 0
    written = record(options.bundle, found, machine=options.name, signer=signer, out=options.out)
    print(f"{written}: holds these figures as {(options.name or found.machine.label)!r}; {by}")
    return 0
