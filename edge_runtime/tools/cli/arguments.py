"""Types of options, checked as they are parsed, so wrong use ends with code 2 before any work; and shared options.

What reads a word raises `argparse.ArgumentTypeError` where it cannot be meant.
"""

from __future__ import annotations

import argparse
import math
import os
from functools import partial
from glob import iglob
from pathlib import Path
from typing import Annotated, Literal

from edge_runtime.model.bundle import shipped
from edge_runtime.tools.cli.options import operand, option

_WILDCARDS = frozenset("*?[")


def existing_file(text: str) -> Path:
    """Parse the path of a file that is there: a bundle, a configuration."""
    path = Path(text)
    if path.is_file():
        return path
    raise argparse.ArgumentTypeError(f"{text}: {'not a file' if path.exists() else 'no such file'}")


def app_file(text: str) -> Path:
    """Parse the path of an application's file, or of the folder that holds it as ``app.toml``."""
    path = Path(text)
    if path.is_dir() and (path / "app.toml").is_file():
        return path / "app.toml"
    return existing_file(text)


def bundle_path(text: str) -> Path:
    """Parse the path of a bundle that is there, or the name of one that comes with edge-runtime."""
    try:
        return existing_file(str(shipped.bundle_file(text)))
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def recording(text: str) -> Path:
    """Parse the path of a recording that is there, a folder, or a pattern that fits at least one file."""
    path = Path(text)
    if path.is_dir():
        return path
    if path.exists() or not _WILDCARDS & set(text):
        return existing_file(text)
    if not any(Path(found).is_file() for found in iglob(text, recursive=True)):  # noqa: PTH207 - as the reader
        raise argparse.ArgumentTypeError(f"{text}: no file fits")
    return path


def output_file(text: str) -> Path:
    """Parse the path of a file to be written, new or not, in a folder that is there."""
    path = Path(text)
    if not path.parent.is_dir():
        raise argparse.ArgumentTypeError(f"{text}: the folder {path.parent} does not exist; make it first")
    if path.exists() and not path.is_file():
        raise argparse.ArgumentTypeError(f"{text}: not a file")
    return path


def channel_column(text: str) -> tuple[str, str]:
    """``CHANNEL=COLUMN``."""
    channel, equals, column = text.partition("=")
    if not equals or not channel or not column:
        raise argparse.ArgumentTypeError(f"{text}: write CHANNEL=COLUMN, for example ax=accel_x")
    return channel, column


def port(text: str) -> int:
    """Parse a TCP port; 0 lets the system choose."""
    return _whole(text, 0, 65_535)


def count(text: str) -> int:
    """Parse a whole number from 1."""
    return _whole(text, 1, 1_000_000)


def jobs(text: str) -> int:
    """Parse a number of processes; 0 is one for each core that this process may use."""
    return _whole(text, 0, 1024) or len(os.sched_getaffinity(0))


def seconds(text: str) -> float:
    """Parse a length of time, or another number that cannot be negative."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise argparse.ArgumentTypeError(f"{text}: write a number from 0")
    return value


def factor(text: str) -> float:
    """Parse a number above 0."""
    value = seconds(text)
    if not value:
        raise argparse.ArgumentTypeError(f"{text}: must be above 0")
    return value


def scale(text: str) -> tuple[float, ...]:
    """Parse factors that are not 0, separated by commas."""
    return tuple(-factor(part[1:]) if part.startswith("-") else factor(part) for part in text.split(","))


def _whole(text: str, low: int, high: int) -> int:
    try:
        value = int(text)
    except ValueError:
        value = low - 1
    if not low <= value <= high:
        raise argparse.ArgumentTypeError(f"{text}: write a whole number from {low} to {high:,}")
    return value


ExistingFile = Annotated[Path, existing_file]
OutputFile = Annotated[Path, output_file]
AppFile = Annotated[Path, app_file]
BundlePath = Annotated[Path, bundle_path]
Recording = Annotated[Path, recording]
ChannelText = Annotated[tuple[str, str], channel_column]
Port = Annotated[int, port]
Count = Annotated[int, count]
Jobs = Annotated[int, jobs]
Seconds = Annotated[float, seconds]
Factor = Annotated[float, factor]
Scale = Annotated[tuple[float, ...], scale]


TimeUnit = Literal["s", "ms", "us", "ns", "iso8601"]

# Options of several commands; each call makes a field.
app = partial(operand, "the application: its app.toml, or the folder that holds it", "APP")
bundle = partial(
    operand, f"the .edge file, or one that comes with edge-runtime: {', '.join(shipped.SHIPPED)}", "BUNDLE"
)
recordings = partial(operand, "recordings, in the order to be played", "RECORDING")
trusted_key = partial(
    option, "refuse a bundle that none of these public keys signed; may be repeated", (), "KEY.pub.pem"
)
variant = partial(option, "variant of the bundle to run (default: the best for this machine)", "auto")
lateness = partial(option, "seconds that samples may be out of order", 0.0, "SECONDS")
wait = partial(option, "how long the application may take to answer", 10.0, "SECONDS")
key_password = partial(option, "file with the private key's password", None, "FILE")
