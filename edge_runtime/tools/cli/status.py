"""``edge-runtime status``: one look into a running application, for a person or as JSON."""

from __future__ import annotations

import argparse
from typing import Any

import orjson

from edge_runtime.tools.cli.arguments import existing_file, seconds


def add(commands: Any) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "status",
        help="one look into a running application",
        description="Print how a running application is: its keys, rates, drops with what to do, outbox, cloud and "
        "board. Exit code 1 if it does not run.",
        epilog="examples:\n  edge-runtime status app.toml\n  edge-runtime status app.toml --json",
    )
    parser.add_argument("config", type=existing_file, metavar="APP.toml", help="of the running application")
    parser.add_argument("--json", action="store_true", help="one JSON object (docs/observe.md has its fields)")
    parser.add_argument("--keys", type=int, default=50, help="keys that are shown, at most 200 (default: %(default)s)")
    parser.add_argument("--filter", default="", help="keys with this text in their name alone")
    parser.add_argument("--wait", type=seconds, default=5.0, help="for an answer, seconds (default: %(default)s)")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Ask once, and print."""
    from edge_runtime.app.config import load_config  # noqa: PLC0415
    from edge_runtime.clock import SystemClock  # noqa: PLC0415
    from edge_runtime.operate.observe.asking import Asker  # noqa: PLC0415
    from edge_runtime.operate.watch.screen import Painter, ViewState, draw  # noqa: PLC0415

    asker = Asker(load_config(options.config).socket_file, SystemClock(), options.wait)
    report = asker.report(options.keys, options.filter)
    if options.json:
        print(orjson.dumps(report).decode())
        return 0
    rows = len(report["keys"]) + 4 * len(report["drops"]) + 30
    paint = Painter(colours=False)
    keys = draw(report, None, ViewState(filter=options.filter), 100, rows, paint)[:-1]
    drops = draw(report, None, ViewState(page="drops"), 100, rows, paint)[:-1] if report["drops"] else []
    head = next(at for at, line in enumerate(keys) if line.startswith(("key", "no key")) or not line.strip())
    lines = [line.rstrip() for line in [*keys, *drops[head:]]]
    print("\n".join(line for line in lines if line))
    return 0
