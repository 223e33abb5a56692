"""Arguments that say where things stand in a recording, for the commands that read recordings by a card."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from edge_runtime.tools.cli.arguments import channel_column

if TYPE_CHECKING:
    from edge_runtime.io.recordings.layout import RecordingLayout


def add_layout(parser: argparse.ArgumentParser) -> None:
    """Declare them."""
    parser.add_argument("--time-column", default="", help="column of the recording with the stamps")
    parser.add_argument("--key-column", default="", help="column of the recording with the key of each row")
    parser.add_argument(
        "--column",
        type=channel_column,
        action="append",
        default=[],
        metavar="CHANNEL=COLUMN",
        help="column of a channel in the recording; may be repeated",
    )


def layout(options: argparse.Namespace) -> RecordingLayout:
    """Make the layout that they ask for."""
    from edge_runtime.io.recordings.layout import RecordingLayout  # noqa: PLC0415 - numpy and the rest, only when needed

    return RecordingLayout(time=options.time_column, key_column=options.key_column, columns=dict(options.column))
