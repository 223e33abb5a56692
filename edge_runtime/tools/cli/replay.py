"""``edge-runtime replay``: what a bundle answers to recorded files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from edge_runtime.errors import ConfigError
from edge_runtime.tools.cli import arguments, exits
from edge_runtime.tools.cli.arguments import BundlePath, ExistingFile, Jobs, OutputFile, Recording, Seconds
from edge_runtime.tools.cli.layout import Layout
from edge_runtime.tools.cli.options import option
from edge_runtime.tools.cli.program import CommandOptions, command

if TYPE_CHECKING:
    from collections.abc import Iterable

    from edge_runtime.tools.batch.job import Job


_TABLES = (".csv", ".tsv", ".parquet", ".jsonl", ".ndjson")
"""What tells the file of labels from a column, where there is no such file."""


@dataclass(frozen=True, kw_only=True)
class ReplayOptions(CommandOptions):
    bundle: BundlePath = arguments.bundle()
    recordings: tuple[Recording, ...] = arguments.recordings()
    out: OutputFile | None = option(
        "file for the predictions, JSONL (default: standard output); with --jobs also .parquet", None, "FILE"
    )
    jobs: Jobs | None = option(
        "processes that answer the files, each with the model; 0: one for each core (docs/batch.md)",
        None,
        "N",
        one_of="many",
    )
    ray: str | None = option("the same on a Ray cluster: auto, HOST:PORT, or local", None, "ADDRESS", one_of="many")
    trusted_key: tuple[ExistingFile, ...] = arguments.trusted_key()
    variant: str = arguments.variant()
    labels: str | None = option(
        "score the answers by a column, or by a file with label and any of start, end, key, file, id",
        None,
        "COLUMN|FILE",
    )
    lateness: Seconds = arguments.lateness()
    layout: Layout


@command(
    "replay",
    "run recorded files through a bundle",
    "Run recordings through a bundle, as fast as this machine can, by the very path that live readings "
    "take: same windows, same ids, same answers. Files are CSV, Parquet, NPZ, WAV, lines of messages (JSON and "
    "others), pictures, folders of them, or captured MQTT messages (--source; docs/recordings.md). Hard "
    "cases are marked, and stay local. With --json, the figures of the run are the last line of standard output. "
    "Ctrl-C or SIGTERM stops it: what has been read is answered and written within 60 s; exit code 1. " + exits.HELP,
    "replay watch.edge day1.csv day2.csv --out predictions.jsonl",
    "replay watch.edge day1.csv --labels activity --out predictions.jsonl",
    "replay watch.edge captured.txt --source app.toml",
    "replay watch.edge recordings/ --jobs 0 --out predictions.parquet",
)
def run(options: ReplayOptions) -> int:
    """Replay everything, then print a summary, and a score where there are labels."""
    from edge_runtime.io.recordings.reader import expand  # noqa: PLC0415 - numpy and the rest, only when needed

    job = job_of(options)
    files = expand(job.layout.files, job.layout)
    _refuse_overwriting(options.out, (options.bundle, *(path for path, _ in files)))
    workers = options.jobs if options.ray is None else options.ray
    if workers is not None:
        from edge_runtime.tools.cli.replay_many import run_many  # noqa: PLC0415

        return run_many(job, files, options.out, workers, as_json=options.json)
    from edge_runtime.tools.cli.replay_one import run_one  # noqa: PLC0415

    return run_one(job, options.out, as_json=options.json)


def job_of(options: ReplayOptions) -> Job:
    """Return the settings of `replay`: the same for one process and for many.

    Raises:
        ConfigError: they contradict each other, or name a file that is not there.
    """
    from edge_runtime.app.python_api import single_variant, window_for  # noqa: PLC0415
    from edge_runtime.io.recordings.labels import Played  # noqa: PLC0415
    from edge_runtime.io.recordings.reader import expand  # noqa: PLC0415
    from edge_runtime.tools.batch.job import Job  # noqa: PLC0415 - as in `run`

    table = options.labels is not None and Path(options.labels).is_file()
    if options.labels and not table and Path(options.labels).suffix.lower() in _TABLES:
        raise ConfigError(f"--labels {options.labels}: no such file")
    layout = options.layout.of(options.recordings, None if table else options.labels)
    try:
        model = single_variant(options.bundle, options.trusted_key, options.variant)
        window = window_for(layout, options.lateness)
    except ValueError as error:
        raise ConfigError(f"replay: {error}") from error
    if options.labels is None or not table:
        return Job(model=model, layout=layout, window=window)
    played = Played(tuple((path, layout.key or key) for path, key in expand(layout.files, layout)))
    return Job(model=model, layout=layout, window=window, labels=Path(options.labels), played=played)


def _refuse_overwriting(out: Path | None, inputs: Iterable[Path]) -> None:
    if out is not None and out.exists() and any(read.exists() and out.samefile(read) for read in inputs):
        raise ConfigError(f"--out {out}: is read as well; name another file")
