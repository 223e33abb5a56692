"""``edge-runtime replay`` in this process: one application, which plays all recordings as one stream."""

from __future__ import annotations

import sys
from pathlib import Path

from edge_runtime.app.application import App
from edge_runtime.app.config import AppConfig
from edge_runtime.base.system.signals import stopped_by_signals
from edge_runtime.errors import ConfigError
from edge_runtime.io.recordings.labels import Labels, labels_for, read_labels
from edge_runtime.io.recordings.score import Score, classes_of
from edge_runtime.io.recordings.tally import Tally, summary
from edge_runtime.io.sinks.jsonl import JsonlSinkConfig
from edge_runtime.io.sinks.stdout import StdoutSinkConfig
from edge_runtime.io.sources.recording import RecordingSource
from edge_runtime.manifest import InputContract
from edge_runtime.metrics import Metrics
from edge_runtime.model.serving.loading import load_model
from edge_runtime.operate.observe.unfinished import progress
from edge_runtime.tools.batch.job import Job
from edge_runtime.tools.cli import exits
from edge_runtime.tools.cli.program import print_json


def run_one(job: Job, out: Path | None, *, as_json: bool) -> int:
    """Answer everything, then print a summary, and a score where there are labels.

    Args:
        job: what is done with every file.
        out: file of the answers; None prints them.
        as_json: print the figures as one JSON object.
    """
    config = _application(job, out)
    model, metrics = load_model(job.model), Metrics()
    labels = _labels(job, model.manifest.input)
    score = Score(classes_of(model.manifest), labels) if job.scored else None
    tally = Tally()
    source = RecordingSource(job.layout, model.manifest.input, metrics, on_labels=labels.add)
    sinks = (tally,) if score is None else (tally, score)
    app = App(config, model=model, metrics=metrics, sources=(source,), sinks=sinks)
    stopped = False

    def stop() -> None:
        nonlocal stopped
        stopped = True
        app.stop()

    if out is not None:
        _replace(out)  # not before the bundle has loaded: an earlier result is worth more than none
    with stopped_by_signals(stop):
        drained = app.run()
    if as_json:
        scored = {} if score is None else {"score": score.plain()}
        print_json(metrics.snapshot() | {"labels": dict(tally.labels)} | scored)
    else:
        _print(app, tally, score, stopped=stopped)
    return exits.finished(drained=drained and not stopped, lost=app.drops.lost())


def _labels(job: Job, contract: InputContract) -> Labels:
    """Read the labels of a table; those of a column come with the samples."""
    labels = labels_for(contract)
    if job.labels is not None:
        read_labels(job.labels, labels, job.played)
    return labels


def _print(app: App, tally: Tally, score: Score | None, *, stopped: bool) -> None:
    figures = app.metrics.snapshot()
    lines = [summary(figures, stopped=stopped)]
    if figures["counts"].get("samples_total") and not figures["counts"].get("windows_total"):
        contract, states = app.model.manifest.input, app.pipeline.key_states()
        lines.append(f"no window: {progress(states, contract)}")
        if 2 * figures["counts"].get("gaps_total", 0) > figures["counts"]["samples_total"]:
            lines[-1] += f"; a window takes no gap longer than {contract.max_gap:.3g} s, and nearly each sample has one"
    lines.append(tally.text())
    if score is not None:
        lines.append(score.text())
    print("\n".join(lines), file=sys.stderr)


def _application(job: Job, out: Path | None) -> AppConfig:
    """Return the application around the source."""
    return AppConfig(
        model=job.model,
        sink=(JsonlSinkConfig(path=out) if out else StdoutSinkConfig(),),
        window=job.window,
        drain_timeout_s=60.0,
        silence_s=0.0,
    )


def _replace(path: Path) -> None:
    """Remove an earlier output: a replay is a result, not a log."""
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise ConfigError(f"--out {path}: cannot be written: {error.strerror}") from error
