"""``edge-runtime demo``: the main job on real recordings, with everything it needs."""

from __future__ import annotations

import argparse
import dataclasses
import logging
import sys
from pathlib import Path
from typing import Any

import orjson

from edge_runtime.errors import ConfigError
from edge_runtime.model.bundle.shipped import FOLDER
from edge_runtime.tools.cli.arguments import factor, seconds


def add(commands: Any) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "demo",
        help="the main job on real smartwatch recordings, with broker and cloud",
        description=(
            "Start an embedded broker and a server with a large model, play real smartwatch recordings from several "
            "watches at once, answer them with a small int8 model, forward the hard cases, publish the corrections, "
            "and print a summary, then end. Ctrl-C drains within 10 s."
        ),
        epilog="examples:\n  edge-runtime demo --broker mqtt://localhost:1883\n"
        "  edge-runtime demo --speed 1 --listen 127.0.0.1:9464",
    )
    parser.add_argument("--broker", default="", metavar="URL", help="use this broker instead of the embedded one")
    parser.add_argument("--speed", type=factor, default=5.0, help="times real time (default: %(default)s)")
    parser.add_argument(
        "--outage",
        type=seconds,
        nargs=2,
        default=(0.0, 0.0),
        metavar=("AFTER", "SECONDS"),
        help="stop the server for a while",
    )
    parser.add_argument("--folder", type=Path, default=FOLDER, help="the demo's files (default: the package's own)")
    parser.add_argument(
        "--state", type=Path, default=Path("out/demo"), help="folder for the outbox (default: %(default)s)"
    )
    parser.add_argument(
        "--listen",
        default="",
        metavar="ADDRESS:PORT",
        help="show the page of the running application there, for example 127.0.0.1:9464",
    )
    parser.add_argument("--json", action="store_true", help="print the figures as one JSON object, and nothing else")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Run it; exit code 1 when the counts do not balance or, at the end of the recordings, a correction is missing."""
    from edge_runtime.tools.demo.run import Demo, table  # noqa: PLC0415 - numpy and the rest, only when needed
    from edge_runtime.tools.demo.run import run as run_demo  # noqa: PLC0415

    if not (options.folder / "app.toml").exists():
        raise ConfigError(f"--folder {options.folder}: the demo's files (app.toml and what it names) are not there")
    if not options.verbose:
        logging.getLogger().setLevel(logging.WARNING)  # the view tells what the log would; a line would tear it
    demo = Demo(
        folder=options.folder,
        broker=options.broker,
        speed=options.speed,
        outage=tuple(options.outage),
        state=options.state,
        listen=options.listen,
    )
    outcome = run_demo(demo, sys.stderr if options.json else sys.stdout)
    if options.json:
        print(orjson.dumps(dataclasses.asdict(outcome)).decode())
    else:
        print("\n" + table(outcome))
    return 0 if outcome.complete else 1
