"""``edge-runtime init``: an application of one's own, and its service, from five questions."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from edge_runtime.errors import ConfigError
from edge_runtime.tools.cli.arguments import add_trusted, bundle_path, existing_file, factor
from edge_runtime.tools.cli.install_service import UNITS


def add(commands: Any) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "init",
        help="ask five questions, and write an application and its service",
        description=(
            "Ask for broker, topic, bundle, cloud and Home Assistant; check the application as `run --check` does; "
            "then write it, and a systemd unit for it. An option that is given is not asked for. Without a terminal "
            "the answers are lines of standard input, in that order; where they end, there is no cloud and no Home "
            "Assistant. Nothing is overwritten, and nothing is left of a run that fails or is interrupted. A password "
            "that is typed goes into a file of its own, with mode 0600."
        ),
        epilog=(
            "examples:\n"
            "  edge-runtime init\n"
            "  edge-runtime init app.toml --broker localhost --topic 'watch/+/imu' --bundle exercise-watch\n"
            "  printf '%s\\n' localhost 'watch/+/imu' exercise-watch | edge-runtime init\n"
            "  sudo edge-runtime init /etc/watch/app.toml --name watch --broker hub --topic listen --bundle watch.edge"
        ),
    )
    parser.add_argument(
        "config", type=Path, nargs="?", default=Path("app.toml"), metavar="APP.toml", help="default: %(default)s"
    )
    parser.add_argument("--broker", metavar="URL", help="host, host:port or URL, with USER@ before the host if it asks")
    parser.add_argument(
        "--topic", metavar="FILTER", help="topic of the readings; or 'listen' finds them by their traffic"
    )
    parser.add_argument("--bundle", type=bundle_path, metavar="FILE.edge", help="the model, or the name of one")
    parser.add_argument("--cloud", metavar="URL", help="server that is asked about hard cases; or 'none'")
    parser.add_argument(
        "--home-assistant",
        action=argparse.BooleanOptionalAction,
        help="show each key in Home Assistant, by this broker",
    )
    parser.add_argument("--password-file", type=existing_file, metavar="FILE", help="for the broker's user")
    parser.add_argument(
        "--cloud-model", default="", metavar="NAME", help="its name there (default: the bundle's and -teacher)"
    )
    parser.add_argument("--cloud-token-file", type=existing_file, metavar="FILE", help="bearer token for the cloud")
    add_trusted(parser)
    parser.add_argument("--seconds", type=factor, default=10.0, help="how long to listen (default: %(default)g)")
    parser.add_argument(
        "--state",
        type=Path,
        metavar="FOLDER",
        help="where it keeps its state (default: state beside it; /var/lib/NAME for one below /etc)",
    )
    parser.add_argument("--name", default="edge-runtime", help="name of the service (default: %(default)s)")
    parser.add_argument("--user", default="edge-runtime", help="who the service runs as (default: %(default)s)")
    parser.add_argument(
        "--units",
        type=Path,
        metavar="FOLDER",
        help=f"where the unit goes (default: {UNITS}, or beside it without the right)",
    )
    parser.add_argument("--no-service", action="store_true", help="write no unit")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Ask, listen, check and write."""
    from edge_runtime.tools.cli import init_questions, setting_up  # noqa: PLC0415 - numpy and the rest, only when needed

    try:
        place = setting_up.place_of(options)
        return setting_up.write(place, init_questions.answers_of(options), options)
    except EOFError:
        raise ConfigError("init: the answers ended before the questions did; nothing was written") from None
    except KeyboardInterrupt:
        print("\ninterrupted; nothing was written", file=sys.stderr)
        raise
