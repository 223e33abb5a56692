"""``edge-runtime replay``: what a bundle answers to recorded files."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from edge_runtime.cli import exits
from edge_runtime.cli.arguments import (
    add_bundle,
    add_trusted,
    channel_column,
    existing_file,
    factor,
    jobs,
    output_file,
    recording,
    scale,
    seconds,
)
from edge_runtime.errors import ConfigError

if TYPE_CHECKING:
    from edge_runtime.config import AppConfig
    from edge_runtime.manifest import Manifest
    from edge_runtime.recordings.labels import Labels
    from edge_runtime.sources.recording import RecordingConfig

_LAYOUT = {
    "format": "format", "key": "key", "key_column": "key_column", "time_column": "time", "time_unit": "time_unit",
    "values": "values", "boundaries": "boundaries", "rate": "rate_hz", "separator": "delimiter",
    "scale": "scale",
}  # fmt: skip
"""Field of `edge_runtime.recordings.layout.RecordingLayout` by option."""


def add(commands: Any) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "replay",
        help="run recorded files through a bundle",
        description=(
            "Run recordings through a bundle, as fast as this machine can, by the very path that live readings take: "
            "same windows, same ids, same answers. Files are CSV, Parquet, NPZ, WAV, lines of messages (JSON and "
            "others), pictures, folders of them, or captured MQTT messages (--source; docs/recordings.md). Hard "
            "cases are marked, and stay local. "
            "Ctrl-C or SIGTERM stops it: what has been read is answered and written within 60 s; exit code 1. "
            + exits.HELP
        ),
        epilog=(
            "examples:\n"
            "  edge-runtime replay watch.edge day1.csv day2.csv --out predictions.jsonl\n"
            "  edge-runtime replay watch.edge day1.csv --labels activity --out predictions.jsonl\n"
            "  edge-runtime replay watch.edge captured.txt --source app.toml\n"
            "  edge-runtime replay watch.edge recordings/ --jobs 0 --out predictions.parquet"
        ),
    )
    add_bundle(parser)
    parser.add_argument(
        "files", type=recording, nargs="+", metavar="FILE", help="recordings, in the order to be played"
    )
    parser.add_argument(
        "--out",
        type=output_file,
        help="JSONL file for the predictions, overwritten (default: standard output); with --jobs also .parquet",
    )
    many = parser.add_mutually_exclusive_group()
    many.add_argument(
        "--jobs",
        type=jobs,
        metavar="N",
        help="answer the files on N processes, each with the model; 0: one for each core. A broken file is named and "
        "left out; the same command goes on after an interrupt (docs/batch.md)",
    )
    many.add_argument(
        "--ray", metavar="ADDRESS", help="the same on a Ray cluster, as auto or HOST:PORT; local starts one here"
    )
    add_trusted(parser)
    parser.add_argument(
        "--variant", default="auto", help="variant of the bundle to run (default: the best for this machine)"
    )
    parser.add_argument(
        "--labels",
        metavar="COLUMN|FILE",
        help="score the answers: a column, field or array with the class of each sample; or a CSV or JSONL file with "
        "label and any of start, end, key, file, or with id and label",
    )
    parser.add_argument(
        "--lateness", type=seconds, default=0.0, help="seconds that samples may be out of order (default: 0)"
    )
    parser.add_argument(
        "--json", action="store_true", help="print the figures of the run as one JSON object on standard error"
    )
    add_layout(parser.add_argument_group("layout of the files"))
    parser.set_defaults(run=run)


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


def run(options: argparse.Namespace) -> int:
    """Replay everything, then print a summary, and a score where there are labels."""
    from edge_runtime.app import App  # noqa: PLC0415 - numpy and the rest, only when needed
    from edge_runtime.metrics import Metrics  # noqa: PLC0415
    from edge_runtime.model.loading import load_model  # noqa: PLC0415
    from edge_runtime.observe.unfinished import progress  # noqa: PLC0415
    from edge_runtime.recordings.score import Score, classes_of  # noqa: PLC0415
    from edge_runtime.recordings.tally import Tally, summary  # noqa: PLC0415
    from edge_runtime.sources.recording import RecordingSource  # noqa: PLC0415
    from edge_runtime.system.signals import stopped_by_signals  # noqa: PLC0415

    layout = layout_of(options)
    _refuse_overwriting(options, layout)
    if options.jobs is not None or options.ray is not None:
        from edge_runtime.cli.replay_many import run_many  # noqa: PLC0415

        return run_many(options, layout, _label_table(options, layout))
    config = _application(options, layout)
    model, metrics = load_model(config.model), Metrics()
    labels = _labels(options, layout, model.manifest)
    score, tally = Score(classes_of(model.manifest) if options.labels else (), labels), Tally()
    source = RecordingSource(layout, model.manifest.input, metrics, on_labels=labels.add)
    sinks = (tally, score) if options.labels else (tally,)
    app = App(config, model=model, metrics=metrics, sources=(source,), sinks=sinks)
    stopped = False

    def stop() -> None:
        nonlocal stopped
        stopped = True
        app.stop()

    if options.out is not None:
        _replace(options.out)  # not before the bundle has loaded: an earlier result is worth more than none
    with stopped_by_signals(stop):
        drained = app.run()
    figures = metrics.snapshot()
    if options.json:
        scored = {"score": score.plain()} if options.labels else {}
        print(orjson.dumps(figures | {"labels": dict(tally.labels)} | scored).decode(), file=sys.stderr)
    else:
        print(summary(figures, stopped=stopped), file=sys.stderr)
        if figures["counts"].get("samples_total") and not figures["counts"].get("windows_total"):
            print(f"no window: {progress(app.pipeline.key_states(), model.manifest.input)}", file=sys.stderr)
        print(tally.text(), file=sys.stderr)
        if options.labels:
            print(score.text(), file=sys.stderr)
    return exits.finished(drained=drained and not stopped, lost=app.drops.lost())


def _refuse_overwriting(options: argparse.Namespace, layout: RecordingConfig) -> None:
    from edge_runtime.recordings.reader import expand  # noqa: PLC0415 - as in `run`

    if options.out is not None and options.out.exists():
        for read in (options.bundle, *(path for path, _ in expand(options.files, layout))):
            if read.exists() and options.out.samefile(read):
                raise ConfigError(f"--out {options.out}: is read as well; name another file")


def _application(options: argparse.Namespace, layout: RecordingConfig) -> AppConfig:
    """Return the application around the source."""
    from edge_runtime.config import AppConfig  # noqa: PLC0415 - as in `run`
    from edge_runtime.embedding import single_variant  # noqa: PLC0415
    from edge_runtime.sinks.jsonl import JsonlSinkConfig  # noqa: PLC0415
    from edge_runtime.sinks.stdout import StdoutSinkConfig  # noqa: PLC0415
    from edge_runtime.sources.build import brings_parts  # noqa: PLC0415
    from edge_runtime.windowing.config import WindowConfig  # noqa: PLC0415

    try:
        return AppConfig(
            model=single_variant(options.bundle, options.trusted_keys, options.variant),
            sink=(JsonlSinkConfig(path=options.out) if options.out else StdoutSinkConfig(),),
            window=WindowConfig(lateness_s=options.lateness, parts=brings_parts(layout)),
            drain_timeout_s=60.0,
            silence_s=0.0,
        )
    except ValueError as error:
        raise ConfigError(f"replay: {error}") from error


def layout_of(options: argparse.Namespace) -> RecordingConfig:
    """Return the layout: that of the application's source, with what the options say otherwise."""
    from dataclasses import replace  # noqa: PLC0415 - as in `run`

    from edge_runtime.config import load_sources  # noqa: PLC0415
    from edge_runtime.sources.build import as_recording  # noqa: PLC0415
    from edge_runtime.sources.recording import RecordingConfig  # noqa: PLC0415

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
        told["label"] = options.labels
    files = tuple(options.files)
    try:
        if options.source is None:
            return RecordingConfig(files=files, **told)
        config = as_recording(load_sources(options.source), files)
        if config.mqtt and told:
            raise ConfigError(
                f"replay: {', '.join(told)}: not for captured messages, which are read as {options.source} says"
            )
        return replace(config, **told)
    except ValueError as error:
        raise ConfigError(f"replay: {error}") from error


def _labels(options: argparse.Namespace, layout: RecordingConfig, manifest: Manifest) -> Labels:
    """Read the labels of a file; those of a column come with the samples."""
    from edge_runtime.recordings.labels import labels_for, names_of, read_labels  # noqa: PLC0415 - as in `run`
    from edge_runtime.recordings.reader import expand  # noqa: PLC0415

    labels = labels_for(manifest.input)
    if (table := _label_table(options, layout)) is not None:
        read_labels(table, labels, names_of(expand(layout.files, layout), layout.key))
    return labels


def _label_table(options: argparse.Namespace, layout: RecordingConfig) -> Path | None:
    """Return the file of labels; None where there are none, or they come with the samples."""
    return Path(options.labels) if options.labels and layout.label != options.labels else None


def _replace(path: Path) -> None:
    """Remove an earlier output: a replay is a result, not a log."""
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise ConfigError(f"--out {path}: cannot be written: {error.strerror}") from error
