"""``edge-runtime replay --jobs`` and ``--ray``: many recordings at once."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from edge_runtime.base.system.progress import Progress
from edge_runtime.base.system.signals import stopped_by_signals
from edge_runtime.errors import ConfigError
from edge_runtime.io.recordings.labels import labels_for
from edge_runtime.io.recordings.score import Score, classes_of
from edge_runtime.io.recordings.tally import summary
from edge_runtime.model.bundle.bundle import open_bundle
from edge_runtime.operate.observe.drops import DropReporter
from edge_runtime.schema import Packaged
from edge_runtime.tools.batch.batch import run
from edge_runtime.tools.batch.job import Job, Totals
from edge_runtime.tools.batch.workers import Workers
from edge_runtime.tools.cli import exits
from edge_runtime.tools.cli.program import print_json

if TYPE_CHECKING:
    from edge_runtime.tools.batch.batch import Pool

_RAY: Final = Packaged(
    "edge_devices.integrations.ray_cluster:RayWorkers", 'pip install "edge-runtime[ray]" edge-devices'
)
_SHOWN_BROKEN: Final = 20


def run_many(job: Job, files: list[tuple[Path, str]], out: Path | None, workers: int | str, *, as_json: bool) -> int:
    """Answer everything, then print a summary, and a score where there are labels.

    Args:
        job: what is done with every file.
        files: paths with their keys.
        out: file of the answers.
        workers: number of processes of this machine, or the address of a Ray cluster.
        as_json: print the figures as one JSON object.
    """
    if out is None:
        raise ConfigError("replay: --jobs and --ray need --out FILE, where an interrupted run goes on from")
    with open_bundle(job.model.bundle, trusted=None) as bundle:  # the processes that answer look at the signature
        manifest = bundle.manifest
        score = Score(classes_of(manifest), labels_for(manifest.input)) if job.scored else None
    totals, stopped = Totals(score), False

    def stop() -> None:
        nonlocal stopped
        stopped = True

    size = sum(path.stat().st_size for path, _ in files if path.exists())
    reporter = DropReporter(totals.metrics)
    with stopped_by_signals(stop), ExitStack() as stack:
        progress = stack.enter_context(Progress("bytes", size))
        pool: Pool
        if isinstance(workers, str):
            try:
                cluster: Any = _RAY.load()
            except ValueError as error:
                raise ConfigError(f"--ray {error}") from None
            pool = stack.enter_context(cluster(job, workers, stopped=lambda: stopped))
        else:
            pool = stack.enter_context(
                Workers(
                    job,
                    workers,
                    stopped=lambda: stopped,
                    news=lambda windows: progress.advance(0, f"{windows:,} windows of the files under way"),
                )
            )
        whole = run(job, files, out, pool, totals, progress=progress)
    if as_json:
        print_json(totals.plain())
    else:
        _print(totals, len(files), stopped=not whole, out=out)
    reporter.report(0.0, last=True)
    if totals.broken:
        return exits.FAILED
    return exits.finished(drained=whole, lost=reporter.lost())


def _print(totals: Totals, files: int, *, stopped: bool, out: Path) -> None:
    lines = [summary(totals.metrics.snapshot(), stopped=stopped), totals.tally.text()]
    if totals.score is not None:
        lines.append(totals.score.text())
    if totals.broken:
        lines.append(f"{len(totals.broken)} of {files} recordings gave no answers:")
        lines += [
            f"  {path}: {why.removeprefix(f'{path}: ')}" for path, why in list(totals.broken.items())[:_SHOWN_BROKEN]
        ]
        if len(totals.broken) > _SHOWN_BROKEN:
            lines.append(f"  and {len(totals.broken) - _SHOWN_BROKEN} more, which --json has")
    if stopped:
        lines.append(f"what is done stays in {out}.parts; the same command goes on from there")
    print("\n".join(lines), file=sys.stderr)
