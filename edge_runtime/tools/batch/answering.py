"""Answering of one group of recordings, in whatever process: the same for workers of this machine and of a cluster."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO, Final

from edge_runtime.app.python_api import play_source
from edge_runtime.base.system.collector import tune_collector
from edge_runtime.base.system.durable_file import NEW
from edge_runtime.base.system.loop import Loop
from edge_runtime.base.system.malloc import tune_malloc
from edge_runtime.errors import ADVICE, EdgeError, one_line
from edge_runtime.io.recordings.labels import labels_for, read_labels
from edge_runtime.io.recordings.layout import Labelled
from edge_runtime.io.recordings.score import Score, classes_of
from edge_runtime.io.recordings.tally import Tally
from edge_runtime.io.sinks.jsonl import to_lines
from edge_runtime.io.sources.recording import RecordingSource
from edge_runtime.metrics import Metrics
from edge_runtime.model.serving.loading import LoadedVariant, Model, load_model
from edge_runtime.tools.batch.job import Group, GroupFigures, Job
from edge_runtime.types import Done, Reading

_BUFFER: Final = 1024 * 1024

Went = Callable[[int], None]
"""Told from time to time how many windows of the group were answered."""


class NotWritten(EdgeError):  # noqa: N818 - a state of the disk, not a mistake
    """The disk takes no more answers: nothing of the job can go on."""

    @classmethod
    def because(cls, path: Path, error: OSError) -> NotWritten:
        """Return one that names the file or folder, and what the system says."""
        return cls(f"{path}: cannot be written: {error.strerror or error}")


class Answerer:
    """Answers groups with a model of its own.

    Args:
        job: what is done with them.
        proven: the `proven` of `edge_runtime.model.serving.loading.load_model`.

    Raises:
        EdgeError: the model cannot be loaded, or the labels cannot be read.
    """

    def __init__(self, job: Job, *, proven: bool = False) -> None:
        tune_malloc()
        self._job = job
        self.model: Model = load_model(job.model, proven=proven)
        contract = self.model.manifest.input
        self._classes = classes_of(self.model.manifest) if job.scored else ()
        self._labels = labels_for(contract)
        if job.labels is not None:
            read_labels(job.labels, self._labels, job.played)
        tune_collector()

    def answer(self, group: Group, out: Path, went: Went | None = None) -> GroupFigures:
        """Answer a group into a file of lines, which is whole once it is there under its name.

        Args:
            group: recordings.
            out: the file.
            went: see `Went`.

        Raises:
            NotWritten: the disk takes no more.
        """
        beside = out.with_name(out.name + NEW)
        try:
            with beside.open("wb", buffering=_BUFFER) as file:
                figures = self._answer(group, _Lines(file, out), went)
                file.flush()
                os.fsync(file.fileno())
            beside.replace(out)
        except OSError as error:
            raise NotWritten.because(out.parent, error) from None
        return figures

    def _answer(self, group: Group, out: _Lines, went: Went | None) -> GroupFigures:
        broken: dict[str, str] = {}
        while group.files:
            try:
                return self._answer_all(group, out, went, broken)
            except NotWritten:
                raise
            except (EdgeError, OSError) as error:
                broken |= self._broken(group) or group.because(one_line(error, ADVICE))
            out.begin_again()
            group = group._replace(files=tuple(file for file in group.files if str(file[0]) not in broken))
        return GroupFigures.none(broken)

    def _answer_all(self, group: Group, out: _Lines, went: Went | None, broken: dict[str, str]) -> GroupFigures:
        job, model, metrics, tally, keys = self._job, self.model, Metrics(), Tally(), set[str]()
        labels = self._labels if job.labels is not None else labels_for(model.manifest.input)
        score = Score(self._classes, labels) if job.scored else None
        source = self._source(group, metrics, labels.add)
        # States of its own: a key of another group may have the same name, and is joined later.
        alone = LoadedVariant(model.manifest, model.variant, model.engine, model.max_batch)
        answered = 0
        for predictions in play_source(model, source, job.window, metrics, predictor=alone, keys=keys):
            if not predictions:
                continue
            out.write(to_lines(predictions))
            tally.add(predictions)
            if score is not None:
                for prediction in predictions:
                    score.add(prediction)
            answered += len(predictions)
            if went is not None:
                went(answered)
        return GroupFigures.of(keys, metrics, tally, score, broken)

    def _source(self, group: Group, metrics: Metrics, on_labels: Labelled | None = None) -> RecordingSource:
        layout = replace(self._job.layout, files=tuple(path for path, _ in group.files))
        contract = self.model.manifest.input
        return RecordingSource(layout, contract, metrics, on_labels=on_labels, recordings=group.files)

    def _broken(self, group: Group) -> dict[str, str]:
        """Find the recordings of a group that cannot be opened, and why."""
        broken = {}
        for one in group.files:
            with closing(Loop()) as loop, closing(self._source(group._replace(files=(one,)), Metrics())) as source:
                try:
                    source.open(loop, _not_taken)
                except (EdgeError, OSError) as error:
                    broken[str(one[0])] = one_line(error, ADVICE)
        return broken


class _Lines:
    """File of a group's answers: its errors are not those of a recording."""

    def __init__(self, file: BinaryIO, path: Path) -> None:
        self._file = file
        self._path = path

    def write(self, data: bytes) -> None:
        try:
            self._file.write(data)
        except OSError as error:
            raise NotWritten.because(self._path.parent, error) from None

    def begin_again(self) -> None:
        try:
            self._file.seek(0)
            self._file.truncate()
        except OSError as error:
            raise NotWritten.because(self._path.parent, error) from None


def _not_taken(readings: Sequence[Reading], received: float, done: Done | None) -> None:
    """Take no reading: the source is closed before it plays."""
