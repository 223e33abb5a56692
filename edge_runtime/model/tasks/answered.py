"""Answered windows: for those who look on, how long they took, and those that nothing on the device can answer."""

from __future__ import annotations

import itertools
import logging
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from edge_runtime.errors import EngineError
from edge_runtime.manifest import Manifest
from edge_runtime.metrics import Metrics
from edge_runtime.model.tasks import Task
from edge_runtime.model.tasks.answers import suspected
from edge_runtime.signal.windowing.window import Window
from edge_runtime.types import Prediction

log = logging.getLogger(__name__)

_received = operator.attrgetter("received")


class Answered(NamedTuple):
    """Windows of one call of the model, with their answers, for those who look on (`Pipeline.tap`)."""

    windows: Sequence[Window]
    predictions: Sequence[Prediction]
    """One for each window; not handed over yet."""
    began: float
    """Monotonic time at which the model was asked."""
    ended: float
    """Monotonic time at which it had answered, or failed."""
    cuts: Mapping[float, tuple[float, float]]
    """When the readings of an arrival were cut into windows, from and to, by `Window.received`; arrivals of the run
    before are missing. Emptied after the call."""


Tap = Callable[[Answered], None]


class Unanswered:
    """Windows that nothing on the device answers: logged once when it begins, and counted.

    Args:
        metrics: receives ``unanswered_total``.
    """

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._failing = False

    def begin(self, windows: Sequence[Window], error: EngineError) -> None:
        """Count windows; one line when it begins, not one for every batch."""
        if not self._failing:
            self._failing = True
            log.error("windows go unanswered: %s", error)
        self._metrics.counts["unanswered_total"] += len(windows)

    def end(self) -> None:
        """Note that windows are answered again."""
        self._failing = False


def without_answer(task: Task, manifest: Manifest, windows: Sequence[Window], now: float) -> list[Prediction]:
    """Make hard predictions that say so: no label, no scores, and ``none`` as the variant.

    Args:
        task: makes the answers of this bundle.
        manifest: the bundle's manifest.
        windows: one prediction each.
        now: monotonic time.
    """
    length_s = manifest.input.window / manifest.input.rate_hz
    made: list[Prediction] = []
    for window in windows:
        start = round(window.start * 1e6) / 1e6
        end = round((start + length_s) * 1e6) / 1e6
        latency_ms = round((now - window.received) * 1e3, 3)
        made.append(
            task.types.prediction(
                window.id, window.key, start, end, "", 0.0, [], "local", True, manifest.model, "none", latency_ms
            )
        )
    return made


def latencies_ms(windows: Sequence[Window], began: float, ended: float, metrics: Metrics) -> list[float]:
    """Measure milliseconds from arrival to answer of each window; windows of one arrival are counted together."""
    stages = metrics.stages
    if len(windows) == 1:
        arrived = windows[0].received
        stages["wait"].observe(began - arrived)
        stages["total"].observe(ended - arrived)
        return [round((ended - arrived) * 1e3, 3)]
    latencies: list[float] = []
    for arrived, together in itertools.groupby(map(_received, windows)):
        n = len(list(together))
        stages["wait"].observe(began - arrived, n)
        stages["total"].observe(ended - arrived, n)
        latencies += [round((ended - arrived) * 1e3, 3)] * n
    return latencies


def marked(
    windows: Sequence[Window], made: Sequence[Prediction], suspects: Mapping[tuple[str, int], str]
) -> list[Prediction]:
    """Return the answers; those of windows whose readings are suspect are hard, and say why."""
    found = list(made)
    for i, (window, answer) in enumerate(zip(windows, made, strict=True)):
        suspect = suspects.get(window.place)
        if suspect is not None:
            answer.hard = True
            found[i] = suspected(answer, suspect)
    return found
