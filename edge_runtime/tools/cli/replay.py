"""``edge-runtime replay``: what a bundle answers to recorded files."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edge_runtime.errors import ConfigError
from edge_runtime.tools.cli import exits
from edge_runtime.tools.cli.arguments import add_bundle, add_trusted, jobs, output_file, recording, seconds
from edge_runtime.tools.cli.replay_options import add_layout, job_of

if TYPE_CHECKING:
    from collections.abc import Iterable


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


def run(options: argparse.Namespace) -> int:
    """Replay everything, then print a summary, and a score where there are labels."""
    from edge_runtime.io.recordings.reader import expand  # noqa: PLC0415 - numpy and the rest, only when needed

    job = job_of(options)
    files = expand(job.layout.files, job.layout)
    _refuse_overwriting(options.out, (options.bundle, *(path for path, _ in files)))
    if options.jobs is not None or options.ray is not None:
        from edge_runtime.tools.cli.replay_many import run_many  # noqa: PLC0415

        workers = options.jobs if options.ray is None else options.ray
        return run_many(job, files, options.out, workers, as_json=options.json)
    from edge_runtime.tools.cli.replay_one import run_one  # noqa: PLC0415

    return run_one(job, options.out, as_json=options.json)


def _refuse_overwriting(out: Path | None, inputs: Iterable[Path]) -> None:
    if out is not None and out.exists() and any(read.exists() and out.samefile(read) for read in inputs):
        raise ConfigError(f"--out {out}: is read as well; name another file")
