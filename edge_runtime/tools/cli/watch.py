"""``edge-runtime watch``: live view of a running application in the terminal."""

from __future__ import annotations

import argparse
import os
import sys
from typing import Any

from edge_runtime.tools.cli.arguments import existing_file


def add(commands: Any) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "watch",
        help="look into a running application: keys, answers, drops, outbox",
        description="Show a running application in this terminal: each key with its last answers, rates, what was "
        "dropped and what to do about it, outbox, cloud and board. Works over ssh; needs no more than 80 columns. "
        "Keys: arrows choose, enter looks at one key and its window, w says why it got its answer, / filters, p "
        "pauses, d shows what was dropped, q leaves.",
        epilog="example: edge-runtime watch app.toml",
    )
    parser.add_argument("config", type=existing_file, metavar="APP.toml", help="of the running application")
    parser.add_argument("--no-colour", action="store_true", help="also with NO_COLOR in the environment")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Watch until the person leaves."""
    from edge_runtime.app.config import load_config  # noqa: PLC0415
    from edge_runtime.clock import SystemClock  # noqa: PLC0415
    from edge_runtime.errors import ConfigError  # noqa: PLC0415
    from edge_runtime.operate.observe.asking import Asker  # noqa: PLC0415
    from edge_runtime.operate.watch.screen import Painter  # noqa: PLC0415
    from edge_runtime.operate.watch.terminal import Watcher  # noqa: PLC0415

    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise ConfigError("watch needs a terminal; for scripts there is: edge-runtime status APP.toml --json")
    clock = SystemClock()
    colours = not options.no_colour and "NO_COLOR" not in os.environ
    Watcher(Asker(load_config(options.config).socket_file, clock), clock, Painter(colours=colours)).run()
    return 0
