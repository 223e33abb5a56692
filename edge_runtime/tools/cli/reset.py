"""``edge-runtime reset``: let states of keys begin again, in a running application."""

from __future__ import annotations

import argparse
from typing import Any

from edge_runtime.tools.cli.arguments import existing_file, seconds


def add(commands: Any) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "reset",
        help="let the states of keys begin again in a running application",
        description="Have a running application forget what its model remembers of some keys, and how their sensors "
        "began (docs/drift.md). The application needs [outbox] or [reading_log], and the same user.",
        epilog="example: edge-runtime reset app.toml kitchen",
    )
    parser.add_argument("config", type=existing_file, metavar="APP.toml", help="of the running application")
    parser.add_argument("keys", nargs="+", metavar="KEY", help="a key, or several")
    parser.add_argument("--wait", type=seconds, default=10.0, help="for an answer, seconds (default: %(default)s)")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Ask, and print what was done."""
    from edge_runtime.app.config import load_config  # noqa: PLC0415
    from edge_runtime.clock import SystemClock  # noqa: PLC0415
    from edge_runtime.errors import ConfigError  # noqa: PLC0415
    from edge_runtime.model.serving import resets  # noqa: PLC0415
    from edge_runtime.operate.observe.asking import Asker  # noqa: PLC0415

    config = load_config(options.config)
    path = config.state_file
    if path is None:
        raise ConfigError(f"{options.config} names no file for state; add [reading_log] with a path")
    if len(options.keys) > resets.MAX_KEYS:
        raise ConfigError(f"at most {resets.MAX_KEYS} keys at a time")
    if config.workers > 1:  # each key is with one of them, which their parent knows
        asker = Asker(config.socket_file, SystemClock(), options.wait)
        done = int(asker.ask("/api/reset", {"keys": options.keys})["done"])
    else:
        done = resets.ask(path, options.keys, SystemClock(), options.wait)
    print(f"reset {done} of {len(options.keys)} keys; the others had nothing to forget")
    return 0
