"""``edge-export report``: the metrics of a build as a page for people, written again."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import orjson

from edge_runtime.errors import ConfigError
from edge_runtime.tools.cli.arguments import existing_file


def add(commands: Any) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "report",
        help="write the HTML report of a build again",
        description="Write report.html from the figures of a build; the same figures give the same bytes.",
        epilog="example: edge-export report out/report.json",
    )
    parser.add_argument("figures", type=existing_file, metavar="REPORT.json", help="what edge-export build wrote")
    parser.add_argument("-o", "--out", type=Path, metavar="FOLDER", help="folder to write into (default: beside it)")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Write the page, and say where it is."""
    from edge_export.report import write_report  # noqa: PLC0415 - only when it is asked for

    try:
        figures = orjson.loads(options.figures.read_bytes())
    except OSError as error:
        raise ConfigError(f"{options.figures}: cannot be read: {error.strerror}") from error
    except orjson.JSONDecodeError as error:
        raise ConfigError(f"{options.figures}: not JSON: {error}") from error
    if not isinstance(figures, dict):
        raise ConfigError(f"{options.figures}: not a report of edge-export build")
    try:
        print(write_report(figures, options.out or options.figures.parent))
    except ConfigError as error:
        raise ConfigError(f"{options.figures}: {error}") from error
    return 0
