"""Options of a replay, and the settings that they make."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edge_runtime.errors import ConfigError
from edge_runtime.tools.cli.arguments import channel_column, existing_file, factor, scale

if TYPE_CHECKING:
    from edge_runtime.io.sources.recording import RecordingConfig
    from edge_runtime.tools.batch.job import Job

_LAYOUT = {
    "format": "format", "key": "key", "key_column": "key_column", "time_column": "time", "time_unit": "time_unit",
    "values": "values", "boundaries": "boundaries", "rate": "rate_hz", "separator": "delimiter",
    "scale": "scale",
}  # fmt: skip
"""Field of `edge_runtime.io.recordings.layout.RecordingLayout` by option."""
_TABLES = (".csv", ".tsv", ".parquet", ".jsonl", ".ndjson")
"""What tells the file of labels from a column, where there is no such file."""


def add_layout(group: argparse._ArgumentGroup) -> None:
    """Declare the options that say how files are laid out; `layout_of` reads them."""
    group.add_argument(
        "--source",
        type=existing_file,
        metavar="APP.toml",
        help="read the files as the [[source]] of this application does: codec, key, units and all; captured messages "
        "as its mqtt sources do. Options below count more",
    )
    group.add_argument(
        "--format",
        choices=("lines", "csv", "parquet", "npz", "wav", "pictures"),
        help="format (default: by the file's suffix)",
    )
    group.add_argument("--key", help="key of all readings (default: as in the file, or the file's name)")
    group.add_argument("--key-column", metavar="COLUMN", help="column with the key of each row (default: key)")
    group.add_argument("--time-column", metavar="COLUMN", help="column with the stamps (default: t, time, ...)")
    group.add_argument(
        "--time-unit", choices=("s", "ms", "us", "ns", "iso8601"), help="unit of the stamps (default: by the column)"
    )
    group.add_argument("--rate", type=factor, metavar="HZ", help="samples per second of files without stamps")
    group.add_argument(
        "--column",
        type=channel_column,
        action="append",
        default=[],
        metavar="CHANNEL=COLUMN",
        help="column of a channel; may be repeated",
    )
    group.add_argument(
        "--partial",
        action="store_true",
        help="a file or row may bring some of the channels; the others come in other files or rows of the same key",
    )
    group.add_argument(
        "--unit",
        type=channel_column,
        action="append",
        default=[],
        metavar="CHANNEL=UNIT",
        help="unit in which a channel's numbers come, where no column's name states it; converted to the model's",
    )
    group.add_argument(
        "--scale",
        type=scale,
        metavar="FACTOR[,...]",
        help="physical value = number * FACTOR: one for all channels, or one for each",
    )
    group.add_argument("--separator", metavar="CHARACTER", help="between the cells of a CSV file (default: found)")
    group.add_argument("--values", metavar="ARRAY", help="array of an NPZ with the samples (default: x)")
    group.add_argument(
        "--boundaries", metavar="ARRAY", help="array of an NPZ with the first row of each recording (default: offset)"
    )


def layout_of(options: argparse.Namespace) -> RecordingConfig:
    """Return the layout: that of the application's source, with what the options say otherwise.

    Raises:
        ConfigError: it contradicts itself, or the application has no source that files can stand for.
    """
    from dataclasses import replace  # noqa: PLC0415 - numpy and the rest, only when needed

    from edge_runtime.io.sources.recording import RecordingConfig  # noqa: PLC0415

    told: dict[str, Any] = {
        field: value for option, field in _LAYOUT.items() if (value := getattr(options, option)) is not None
    }
    if options.column:
        told["columns"] = dict(options.column)
    if options.partial:
        told["partial"] = True
    if options.unit:
        told["units"] = dict(options.unit)
    if options.labels and not Path(options.labels).is_file():
        if Path(options.labels).suffix.lower() in _TABLES:
            raise ConfigError(f"--labels {options.labels}: no such file")
        told["label"] = options.labels
    files = tuple(options.files)
    try:
        if options.source is None:
            return RecordingConfig(files=files, **told)
        config = _named(options.source, files)
        if config.mqtt and told:
            raise ConfigError(
                f"replay: {', '.join(told)}: not for captured messages, which are read as {options.source} says"
            )
        return replace(config, **told)
    except ValueError as error:
        raise ConfigError(f"replay: {error}") from error


def _named(path: Path, files: tuple[Path, ...]) -> RecordingConfig:
    from edge_runtime.app.config import load_sources  # noqa: PLC0415 - as in `layout_of`
    from edge_runtime.io.sources.build import as_recording  # noqa: PLC0415

    sources = load_sources(path)
    try:
        return as_recording(sources, files)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None


def job_of(options: argparse.Namespace) -> Job:
    """Return the settings of `replay`: the same for one process and for many.

    Raises:
        ConfigError: they contradict each other, or name a file that is not there.
    """
    from edge_runtime.app.python_api import single_variant, window_for  # noqa: PLC0415
    from edge_runtime.io.recordings.labels import Played  # noqa: PLC0415
    from edge_runtime.io.recordings.reader import expand  # noqa: PLC0415
    from edge_runtime.tools.batch.job import Job  # noqa: PLC0415 - as in `layout_of`

    layout = layout_of(options)
    try:
        model = single_variant(options.bundle, options.trusted_keys, options.variant)
        window = window_for(layout, options.lateness)
    except ValueError as error:
        raise ConfigError(f"replay: {error}") from error
    if not options.labels or layout.label == options.labels:
        return Job(model=model, layout=layout, window=window)
    played = Played(tuple((path, layout.key or key) for path, key in expand(layout.files, layout)))
    return Job(model=model, layout=layout, window=window, labels=Path(options.labels), played=played)
