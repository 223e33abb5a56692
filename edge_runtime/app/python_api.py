"""Functions for a Python program that needs a model and no application: open a bundle, answer recorded files."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence
from contextlib import closing
from itertools import chain
from pathlib import Path
from typing import Any

from edge_runtime.answer.pipeline import Pipeline, Stages
from edge_runtime.base.system.loop import Loop
from edge_runtime.clock import SystemClock
from edge_runtime.errors import ConfigError
from edge_runtime.io.recordings.layout import Labelled
from edge_runtime.io.sinks.memory import MemorySink
from edge_runtime.io.sources.build import brings_parts
from edge_runtime.io.sources.recording import RecordingConfig, RecordingSource
from edge_runtime.metrics import Metrics
from edge_runtime.model.bundle.shipped import bundle_file
from edge_runtime.model.serving.config import ModelConfig
from edge_runtime.model.serving.explain import SPANS, Explanation, explain
from edge_runtime.model.serving.loading import Answers, LoadedVariant, Model, Predictor, load_model
from edge_runtime.signal.drift.config import DriftConfig
from edge_runtime.signal.drift.monitor import Drift
from edge_runtime.signal.intake.config import IntakeConfig
from edge_runtime.signal.intake.intake import Intake
from edge_runtime.signal.windowing.config import WindowConfig
from edge_runtime.signal.windowing.join import windower_of
from edge_runtime.signal.windowing.window import Window
from edge_runtime.types import Done, Float32, Prediction, Reading

AnyPath = str | os.PathLike[str]


def single_variant(bundle: AnyPath, trusted_keys: Sequence[AnyPath] = (), variant: str = "auto") -> ModelConfig:
    """Return settings for one variant of a bundle that was named by hand; an error says why it cannot answer.

    Without `trusted_keys`, an unsigned bundle is allowed: naming the file says what is to run.
    """
    try:
        path = bundle_file(bundle)
    except ValueError as error:
        raise ConfigError(str(error)) from None
    return ModelConfig(
        bundle=path,
        trusted_keys=tuple(map(Path, trusted_keys)),
        unsigned="refuse" if trusted_keys else "allow",
        variant=variant,
        failover="off",
    )


def open_model(bundle: AnyPath, *, trusted_keys: Sequence[AnyPath] = (), variant: str = "auto") -> Model:
    """Verify a bundle, try it in a child process, and load it.

    Args:
        bundle: the .edge file, or the name of one that comes with edge-runtime: ``exercise-watch``.
        trusted_keys: public keys (PEM), one of which must have signed the bundle. None: no signature is asked for.
        variant: name of one of the bundle's variants; ``auto`` takes the fastest that was measured on this machine
            (``edge-runtime tune``), or else the first that runs here.

    Returns:
        The model; a context manager that frees it.

    Raises:
        ConfigError: there is no such file, key or variant.
        BundleError: the bundle is damaged, has expired, or is not signed with any of the keys.
        EngineError: nothing of it runs here.
    """
    return load_model(single_variant(bundle, trusted_keys, variant))


def replay(
    model: Model,
    *files: AnyPath,
    lateness_s: float = 0.0,
    metrics: Metrics | None = None,
    **layout: Any,
) -> Iterator[Prediction]:
    """Answer recorded files as ``edge-runtime replay`` does: same windows, same ids, same answers.

    The files are read in pieces while the predictions are taken, so memory stays bounded. The model stays open.

    Args:
        model: a model from `open_model`.
        files: CSV, Parquet, NPZ, WAV or lines of messages, in the order to be played; the last part of a path may hold
            wildcards.
        lateness_s: seconds that samples may be out of order.
        metrics: counts what was read, and under `Metrics.dropped` what could not be used.
        layout: fields of `edge_runtime.io.sources.recording.RecordingConfig`, for example ``time="ts"``,
            ``columns={"ax": "accel_x"}`` or ``key_column="who"``.

    Yields:
        One prediction for each window. Hard ones are marked, and stay ``local``.

    Raises:
        ConfigError: a file is missing or is no recording that fits the model; before the first prediction.
        TypeError: `layout` names a field that there is not.
    """
    try:
        recording = RecordingConfig(files=tuple(map(Path, files)), **layout)
        window = window_for(recording, lateness_s)
    except ValueError as error:
        raise ConfigError(f"replay: {error}") from error
    yield from play(model, recording, window, metrics or Metrics())


def window_for(recording: RecordingConfig, lateness_s: float) -> WindowConfig:
    """Return run-time bounds of windows out of recordings; `lateness_s` as in `replay`."""
    return WindowConfig(lateness_s=lateness_s, parts=brings_parts(recording))


def explained(
    model: Model,
    recording: RecordingConfig,
    ids: Collection[str],
    worst: int,
    *,
    spans: int = SPANS,
    lateness_s: float = 0.0,
) -> list[tuple[Prediction, Explanation]]:
    """Answer recorded files, and explain some of the answers (`edge_runtime.model.serving.explain`).

    Args:
        model: a model from `open_model`.
        recording: files and layout.
        ids: ids of the predictions to explain; empty takes the `worst`.
        worst: number of those with the least confidence, least first.
        spans: parts of a window's length.
        lateness_s: seconds that samples may be out of order.

    Raises:
        EngineError: an answer depends on earlier windows.
    """
    seen = _Seen(model)
    chosen: list[tuple[Prediction, Window, Float32]] = []
    window = window_for(recording, lateness_s)
    for prediction in play(model, recording, window, Metrics(), predictor=seen):
        asked = seen.rows.pop(prediction.id)
        if not ids:
            chosen.append((prediction, *asked))
            chosen.sort(key=lambda one: one[0].confidence)
            del chosen[worst:]
        elif prediction.id in ids:
            chosen.append((prediction, *asked))
    found = []
    for prediction, one, row in chosen:
        # A store of its own for each: keys begin again, and the stream's own states stay as they are.
        alone = LoadedVariant(model.manifest, model.variant, model.engine, model.max_batch)
        reason = explain(model.manifest, alone.predict, one, spans=spans, max_batch=model.max_batch, given=row)
        found.append((prediction, reason))
    return found


def vectors(
    model: Model, recording: RecordingConfig, *, lateness_s: float = 0.0
) -> Iterator[tuple[Prediction, Float32]]:
    """Answer recorded files, and give the model's numbers with each answer.

    Args:
        model: a model from `open_model`.
        recording: files and layout.
        lateness_s: seconds that samples may be out of order.
    """
    seen = _Seen(model)
    window = window_for(recording, lateness_s)
    for prediction in play(model, recording, window, Metrics(), predictor=seen):
        yield prediction, seen.rows.pop(prediction.id)[1]


class _Seen:
    """A predictor that remembers windows and answers until they are taken."""

    def __init__(self, model: Model) -> None:
        self.max_batch = model.max_batch
        self.manifest = model.manifest
        self.variant = model.variant
        self.states = model.states
        self.rows: dict[str, tuple[Window, Float32]] = {}
        self._model = model

    def predict(self, windows: Sequence[Window]) -> Answers:
        """See `Predictor`."""
        answers = self._model.predict(windows)
        self.rows.update((one.id, (one, row.copy())) for one, row in zip(answers.windows, answers.rows, strict=True))
        return answers


def play(
    model: Model,
    recording: RecordingConfig,
    window: WindowConfig,
    metrics: Metrics,
    *,
    on_labels: Labelled | None = None,
    predictor: Predictor | None = None,
) -> Iterator[Prediction]:
    """Answer recorded files, as `replay`.

    Args:
        model: a model from `open_model`.
        recording: files and layout.
        window: run-time bounds.
        metrics: counts what was read.
        on_labels: called with the labels of samples, where the layout names a column of them.
        predictor: asked in the model's place.
    """
    source = RecordingSource(recording, model.manifest.input, metrics, on_labels=on_labels)
    return chain.from_iterable(play_source(model, source, window, metrics, predictor=predictor))


def play_source(
    model: Model,
    source: RecordingSource,
    window: WindowConfig,
    metrics: Metrics,
    *,
    predictor: Predictor | None = None,
    keys: set[str] | None = None,
) -> Iterator[list[Prediction]]:
    """Answer what a source plays, as `play`; the predictions come in lists, as they are made.

    Args:
        model: a model from `open_model`.
        source: not open yet; closed at the end.
        window: run-time bounds.
        metrics: counts what was read.
        predictor: asked in the model's place.
        keys: receives all keys that something was read of.
    """
    clock, contract, asked = SystemClock(), model.manifest.input, predictor or model
    if asked.states is not None:
        asked.states.bound(window.max_keys, metrics)
    answered = MemorySink()
    pipeline = Pipeline(
        model=asked,
        windower=windower_of(contract, window, metrics),
        stages=Stages(
            intake=Intake(IntakeConfig(), window.max_keys, metrics, clock),
            drift=Drift(DriftConfig(), window.max_keys, metrics, clock),
            task=model.task(),
        ),
        sinks=[answered],
        metrics=metrics,
        clock=clock,
    )

    def deliver(readings: Sequence[Reading], received: float, done: Done | None) -> None:
        if keys is not None:
            keys.update(reading.key for reading in readings)
        pipeline.deliver(readings, received, done)

    with closing(Loop(clock=clock)) as loop, closing(source):
        loop.each_iteration(pipeline.flush_iteration)
        source.open(loop, deliver)
        while not source.finished:
            loop.iterate(None)
            yield _taken(answered)
        pipeline.flush()
        yield _taken(answered)


def _taken(sink: MemorySink) -> list[Prediction]:
    """Predictions alone: without a cloud, there is nothing else but events."""
    answers, sink.answers = sink.answers, []
    return [answer for answer in answers if isinstance(answer, Prediction)]
