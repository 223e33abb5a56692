"""Argument types of the commands: checked as they are parsed, so wrong use ends with code 2 before any work."""

from __future__ import annotations

import argparse
import math
import os
from glob import iglob
from pathlib import Path

from edge_runtime.model.bundle import shipped

_WILDCARDS = frozenset("*?[")


def existing_file(text: str) -> Path:
    """Parse the path of a file that is there: a bundle, a configuration.

    Raises:
        argparse.ArgumentTypeError: it is not, or it is something else.
    """
    path = Path(text)
    if path.is_file():
        return path
    raise argparse.ArgumentTypeError(f"{text}: {'not a file' if path.exists() else 'no such file'}")


def bundle_path(text: str) -> Path:
    """Parse the path of a bundle that is there, or the name of one that comes with edge-runtime.

    Raises:
        argparse.ArgumentTypeError: it is neither.
    """
    try:
        return existing_file(str(shipped.bundle_file(text)))
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def recording(text: str) -> Path:
    """Parse the path of a recording that is there, a folder, or a pattern that fits at least one file.

    Raises:
        argparse.ArgumentTypeError: nothing is.
    """
    path = Path(text)
    if path.is_dir():
        return path
    if path.exists() or not _WILDCARDS & set(text):
        return existing_file(text)
    if not any(Path(found).is_file() for found in iglob(text, recursive=True)):  # noqa: PTH207 - as the reader
        raise argparse.ArgumentTypeError(f"{text}: no file fits")
    return path


def add_bundle(parser: argparse._ActionsContainer) -> None:
    """Declare ``BUNDLE``: the file of a model, or the name of one that comes with edge-runtime."""
    parser.add_argument(
        "bundle",
        type=bundle_path,
        metavar="BUNDLE",
        help=f"the .edge file, or one that comes with edge-runtime: {', '.join(shipped.SHIPPED)}",
    )


def add_trusted(parser: argparse._ActionsContainer, *names: str) -> None:
    """Declare ``--trusted-key``, and other names for it: public keys, one of which must have signed the bundle."""
    parser.add_argument(
        *names,
        "--trusted-key",
        type=existing_file,
        action="append",
        default=[],
        dest="trusted_keys",
        metavar="KEY.pub.pem",
        help="refuse a bundle that was not signed with this key, or one of these",
    )


def output_file(text: str) -> Path:
    """Parse the path of a file to be written, new or not, in a folder that is there.

    Raises:
        argparse.ArgumentTypeError: there is no such folder, or something else stands there.
    """
    path = Path(text)
    if not path.parent.is_dir():
        raise argparse.ArgumentTypeError(f"{text}: the folder {path.parent} does not exist; make it first")
    if path.exists() and not path.is_file():
        raise argparse.ArgumentTypeError(f"{text}: not a file")
    return path


def channel_column(text: str) -> tuple[str, str]:
    """``CHANNEL=COLUMN``.

    Raises:
        argparse.ArgumentTypeError: it is not.
    """
    channel, equals, column = text.partition("=")
    if not equals or not channel or not column:
        raise argparse.ArgumentTypeError(f"{text}: write CHANNEL=COLUMN, for example ax=accel_x")
    return channel, column


def port(text: str) -> int:
    """Parse a TCP port; 0 lets the system choose.

    Raises:
        argparse.ArgumentTypeError: it is none.
    """
    return _whole(text, 0, 65_535)


def count(text: str) -> int:
    """Parse a whole number from 1.

    Raises:
        argparse.ArgumentTypeError: it is none.
    """
    return _whole(text, 1, 1_000_000)


def jobs(text: str) -> int:
    """Parse a number of processes; 0 is one for each core that this process may use.

    Raises:
        argparse.ArgumentTypeError: it is none.
    """
    return _whole(text, 0, 1024) or len(os.sched_getaffinity(0))


def seconds(text: str) -> float:
    """Parse a length of time, or another number that cannot be negative.

    Raises:
        argparse.ArgumentTypeError: it is none.
    """
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise argparse.ArgumentTypeError(f"{text}: write a number from 0")
    return value


def factor(text: str) -> float:
    """Parse a number above 0.

    Raises:
        argparse.ArgumentTypeError: it is none.
    """
    value = seconds(text)
    if not value:
        raise argparse.ArgumentTypeError(f"{text}: must be above 0")
    return value


def scale(text: str) -> tuple[float, ...]:
    """Parse factors that are not 0, separated by commas.

    Raises:
        argparse.ArgumentTypeError: one of them is 0 or no number.
    """
    return tuple(-factor(part[1:]) if part.startswith("-") else factor(part) for part in text.split(","))


def _whole(text: str, low: int, high: int) -> int:
    try:
        value = int(text)
    except ValueError:
        value = low - 1
    if not low <= value <= high:
        raise argparse.ArgumentTypeError(f"{text}: write a whole number from {low} to {high:,}")
    return value
