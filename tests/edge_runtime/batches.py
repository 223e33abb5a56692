"""Batches made by hand, for stages that are tested alone."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import numpy as np

from edge_runtime.signal.stage import Stage, WindowBatch
from edge_runtime.signal.windowing.window import Window
from edge_runtime.types import Event, Float32, Prediction

Marks = dict[tuple[str, int], str]


def numbers_after(
    stage: Stage, windows: Sequence[Window], numbers: Float32, suspects: Collection[tuple[str, int]] = ()
) -> Float32:
    """What the model's numbers are behind a stage."""
    batch = WindowBatch(windows, dict.fromkeys(suspects, "stuck"))
    batch.numbers = np.asarray(numbers)
    stage.run(batch)
    return batch.numbers


def marks_after(stage: Stage, windows: Sequence[Window], marks: Marks | None = None) -> Marks:
    """Which windows are suspect behind a stage; `marks` are what stages before it have found."""
    batch = WindowBatch(windows, marks)
    stage.run(batch)
    return batch.suspects


def answers_after(stage: Stage, answers: Iterable[Prediction]) -> list[Prediction | Event]:
    """What answers are behind a stage."""
    batch = WindowBatch([])
    batch.answers += answers
    stage.run(batch)
    return batch.answers
