"""``edge-runtime replay``: what a bundle answers to recorded files."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import orjson

from edge_runtime.cli import exits
from edge_runtime.cli.arguments import add_trusted, channel_column, existing_file, output_file, recording, seconds
from edge_runtime.errors import ConfigError


def add(commands: Any) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "replay",
        help="run recorded files through a bundle",
        description=(
            "Run JSONL, CSV, Parquet or NPZ recordings through a bundle, as fast as this machine can, by the very path "
            "that live readings take: same windows, same ids, same answers. Hard cases are marked, and stay local. "
            "Ctrl-C or SIGTERM stops it: what has been read is answered and written within 60 s; exit code 1. "
            + exits.HELP
        ),
        epilog="example: edge-runtime replay watch.edge day1.csv day2.csv --out predictions.jsonl",
    )
    parser.add_argument("bundle", type=existing_file, metavar="BUNDLE", help="the .edge file")
    parser.add_argument(
        "files", type=recording, nargs="+", metavar="FILE", help="recordings, in the order to be played"
    )
    parser.add_argument(
        "--out", type=output_file, help="JSONL file for the predictions, overwritten (default: standard output)"
    )
    add_trusted(parser)
    parser.add_argument(
        "--variant", default="auto", help="variant of the bundle to run (default: the best for this machine)"
    )
    parser.add_argument("--key", default="", help="key of all readings (default: as in the file, or the file's name)")
    parser.add_argument("--time-column", default="", help="column with the stamps (default: t, time, timestamp, ...)")
    parser.add_argument(
        "--column",
        type=channel_column,
        action="append",
        default=[],
        metavar="CHANNEL=COLUMN",
        help="column of a channel; may be repeated",
    )
    parser.add_argument(
        "--lateness", type=seconds, default=0.0, help="seconds that samples may be out of order (default: 0)"
    )
    parser.add_argument(
        "--json", action="store_true", help="print the figures of the run as one JSON object on standard error"
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Replay everything, then print a summary."""
    from edge_runtime.app import App  # noqa: PLC0415 - numpy and the rest, only when needed
    from edge_runtime.config import AppConfig  # noqa: PLC0415
    from edge_runtime.embedding import single_variant  # noqa: PLC0415
    from edge_runtime.sinks.jsonl import JsonlSinkConfig  # noqa: PLC0415
    from edge_runtime.sinks.stdout import StdoutSinkConfig  # noqa: PLC0415
    from edge_runtime.sources.recording import RecordingConfig  # noqa: PLC0415
    from edge_runtime.system.signals import stopped_by_signals  # noqa: PLC0415
    from edge_runtime.windowing.config import WindowConfig  # noqa: PLC0415

    if options.out is not None and options.out.exists():
        for read in (options.bundle, *options.files):
            if read.exists() and options.out.samefile(read):
                raise ConfigError(f"--out {options.out}: is read as well; name another file")
    try:
        config = AppConfig(
            model=single_variant(options.bundle, options.trusted_keys, options.variant),
            source=(
                RecordingConfig(
                    files=tuple(options.files),
                    key=options.key,
                    time=options.time_column,
                    columns=dict(options.column),
                ),
            ),
            sink=(JsonlSinkConfig(path=options.out) if options.out else StdoutSinkConfig(),),
            window=WindowConfig(lateness_s=options.lateness),
            drain_timeout_s=60.0,
        )
    except ValueError as error:
        raise ConfigError(f"replay: {error}") from error
    app = App(config)
    stopped = False

    def stop() -> None:
        nonlocal stopped
        stopped = True
        app.stop()

    if options.out is not None:
        _replace(options.out)  # not before the bundle has loaded: an earlier result is worth more than none
    with stopped_by_signals(stop):
        drained = app.run()
    snapshot = app.metrics.snapshot()
    if options.json:
        print(orjson.dumps(snapshot).decode(), file=sys.stderr)
    else:
        counts, dropped = snapshot["counts"], snapshot["dropped"]
        refused = ", ".join(f"{n} {reason}" for reason, n in sorted(dropped.items()) if n) or "nothing"
        print(
            ("stopped before the end of the recordings: " if stopped else "")
            + f"{counts.get('samples_total', 0)} samples, {counts.get('predictions_total', 0)} predictions, "
            f"{counts.get('hard_total', 0)} of them hard; dropped: {refused}",
            file=sys.stderr,
        )
    return exits.finished(drained=drained and not stopped, lost=app.drops.lost())


def _replace(path: Path) -> None:
    """Remove an earlier output: a replay is a result, not a log."""
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise ConfigError(f"--out {path}: cannot be written: {error.strerror}") from error
