"""Explanation of an answer by occlusion: which channels and spans of a window moved it, asked of the engine itself.

Definition. Let *y(x)* be the model's answer to the window *x*, and *x without P* the same window with the part *P*
replaced by each channel's reference value. The *effect* of *P* is

1. for labels: *y(x)* of the most probable label of *x*, minus the same number of *y(x without P)*. Above 0: the part
   speaks for the label. Below 0: it speaks against it.
2. for other answers: the Euclidean distance of *y(x)* and *y(x without P)*.

Parts are a span of one channel (a cell), a whole channel, and a span of all channels; spans are equal shares of the
window. A channel's reference value is the median over the training data where the bundle states it for the channel
alone (`Manifest.references`), else the channel's mean over this window; a value that always stays the same has no
effect by the second. Effects of parts do not add up to that of the whole: a model may need two parts together.

Source: occlusion sensitivity, Zeiler and Fergus 2014 (arXiv:1311.2901), section 4.2.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from edge_runtime.clock import Clock
from edge_runtime.errors import ConfigError, EngineError, InputError
from edge_runtime.manifest import REFERENCE_LEVELS, Manifest, MultiLabelOutput, OutputContract
from edge_runtime.metrics import Metrics
from edge_runtime.model.serving.loading import Answers, Predictor
from edge_runtime.model.tasks.build import build_task
from edge_runtime.signal.windowing.window import Window
from edge_runtime.types import Float32, Float64

SPANS = 10
"""Spans of a window, where nothing else is said."""
_SAME = 1e-3
"""Largest difference of the answer explained and the answer given that rounding accounts for."""
_MEDIAN = REFERENCE_LEVELS.index(0.5)
_SHADES = " ░▒▓█"

Ask = Callable[[Sequence[Window]], Answers]


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Effects of the parts of a window.

    Attributes:
        label: whose probability is looked at; empty for answers without labels.
        score: that probability; 0.0 without labels.
        bounds: first sample of each span, and the window's length.
        names: of the channels.
        cells: (channels, spans).
        channels: of whole channels.
        spans: of all channels in a span.
    """

    label: str
    score: float
    bounds: tuple[int, ...]
    names: tuple[str, ...]
    cells: Float64 = field(repr=False)
    channels: Float64
    spans: Float64

    def plain(self) -> dict[str, Any]:
        """Return it as plain values, effects to four decimals."""
        return {
            "label": self.label,
            "score": round(self.score, 4),
            "bounds": list(self.bounds),
            "channels": {name: round(float(one), 4) for name, one in zip(self.names, self.channels, strict=True)},
            "spans": [round(float(one), 4) for one in self.spans],
            "cells": {
                name: [round(float(one), 4) for one in row] for name, row in zip(self.names, self.cells, strict=True)
            },
        }

    def text(self, rate_hz: float) -> str:
        """Draw it: a line for each channel, a column for each span; ``-`` speaks against the label."""
        most = max(float(np.abs(self.cells).max()), float(np.abs(self.spans).max()), 1e-12)
        width = max(map(len, (*self.names, "all")))
        ends = "0 s " + f"{self.bounds[-1] / rate_hz:.3g} s".rjust(2 * len(self.spans) - 4)
        lines = [f"{'':{width}}  effect  {ends}"]
        rows = [*zip(self.names, self.channels, self.cells, strict=True), ("all", None, self.spans)]
        for name, whole, cells in rows:
            drawn = "".join(2 * _shade(float(one) / most) for one in cells)
            number = "" if whole is None else f"{whole:+.2f}"
            lines.append(f"{name:{width}}  {number:>6}  {drawn}".rstrip())
        return "\n".join(lines)


def explain(
    manifest: Manifest,
    ask: Ask,
    window: Window,
    *,
    spans: int = SPANS,
    max_batch: int = 32,
    given: Float32 | None = None,
) -> Explanation:
    """Explain the answer to a window.

    Args:
        manifest: the manifest of the bundle that answers.
        ask: its model, for at most `max_batch` windows. One with states begins again for each key.
        window: a window of the contract.
        spans: parts of its length, at most its samples.
        max_batch: windows in one call.
        given: the answer that is to be explained, where there was one.

    Raises:
        EngineError: there is no answer, or it is another one than was given: it depends on earlier windows.
        InputError: the engine will not have these values.
    """
    samples = np.asarray(window.samples)
    n, channels = samples.shape
    spans = min(spans, n)
    bounds = tuple(round(at) for at in np.linspace(0, n, spans + 1).tolist())
    along = [slice(begin, end) for begin, end in itertools.pairwise(bounds)]
    across = [slice(column, column + 1) for column in range(channels)]
    parts = [(rows, columns) for columns in across for rows in along]
    parts += [(slice(0, n), columns) for columns in across]
    parts += [(rows, slice(0, channels)) for rows in along]
    values = _reference(manifest, samples)
    occluded = _occluded(window, parts, values)
    rows = _rows(ask, occluded, len(parts) + 1, max_batch, manifest)
    if given is not None and not np.abs(rows[0] - given).max() <= _SAME:
        raise EngineError(
            f"{manifest.model}: the answer to {window.id} depends on earlier windows; it has no explanation"
        )
    label, score, effects = _effects(manifest, rows)
    cells = effects[: channels * spans].reshape(channels, spans)
    rest = effects[channels * spans :]
    return Explanation(
        label=label,
        score=score,
        bounds=bounds,
        names=tuple(channel.name for channel in manifest.input.channels),
        cells=cells,
        channels=rest[:channels],
        spans=rest[channels:],
    )


def explain_alone(model: Predictor, window: Window) -> dict[str, Any]:
    """Explain the answer of a model to a window, as plain data.

    Raises:
        EngineError: nothing on the device answers, or its answers depend on earlier windows.
        InputError: the engine will not have these values.
    """
    manifest = model.manifest
    if model.states is not None:
        raise EngineError(
            f"{manifest.model}: answers of a model with states depend on earlier windows and cannot be explained"
        )
    return explain(manifest, model.predict, window, max_batch=model.max_batch).plain()


class Explainer:
    """Explains hard cases while they are made, within a share of the time.

    Args:
        share: share of the time since it was made; a case that would come on top of it is not explained.
        model: the one that is asked first.
        clock: monotonic time.
        metrics: receives ``explanations_total`` and ``explanations_skipped_total``.

    Raises:
        ConfigError: the model has states, so its answers may depend on earlier windows.
    """

    def __init__(self, share: float, model: Predictor, clock: Clock, metrics: Metrics) -> None:
        if model.states is not None:
            raise ConfigError(
                f"escalation.explain: {model.manifest.model} keeps states, so its answers depend on earlier windows; "
                "leave explain out"
            )
        self._share = share
        self._clock = clock
        self._metrics = metrics
        self._began = clock.monotonic()
        self._spent_s = 0.0

    def explain(self, model: Predictor, window: Window) -> dict[str, Any] | None:
        """Explain the answer to a window on the loop's thread; None where time or the engine do not allow it."""
        began = self._clock.monotonic()
        late = self._spent_s > self._share * (began - self._began)
        if late or model.states is not None:
            self._metrics.counts["explanations_skipped_total"] += 1
            return None
        try:
            found = explain_alone(model, window)
        except (EngineError, InputError):  # the answer itself is given; what failed is replaced by the fallback chain
            self._metrics.counts["explanations_skipped_total"] += 1
            return None
        finally:
            self._spent_s += self._clock.monotonic() - began
        self._metrics.counts["explanations_total"] += 1
        return found


def _effects(manifest: Manifest, rows: Float32) -> tuple[str, float, Float64]:
    wide = rows.astype(np.float64)
    output = manifest.output
    if isinstance(output, OutputContract | MultiLabelOutput):  # rule 1
        best = build_task(manifest).decide(rows[:1]).best[0]
        return output.labels[best], float(wide[0, best]), wide[0, best] - wide[1:, best]
    flat = wide.reshape(len(wide), -1)
    return "", 0.0, np.asarray(np.sqrt(np.square(flat[1:] - flat[0]).sum(axis=1)))  # rule 2


def _reference(manifest: Manifest, samples: Float32) -> Float32:
    values = samples.mean(axis=0, dtype=np.float64)
    for column, channel in enumerate(manifest.input.channels):
        for reference in manifest.references:
            if reference.channels == (channel.name,):
                values[column] = reference.quantiles[_MEDIAN]
    return np.asarray(values, np.float32)


def _occluded(window: Window, parts: Sequence[tuple[slice, slice]], values: Float32) -> Iterator[Window]:
    """Yield the window, and it without each part; each of a key of its own."""
    yield window._replace(key="0")
    for number, (rows, columns) in enumerate(parts, start=1):
        samples = window.samples.copy()
        samples[rows, columns] = values[columns]
        yield window._replace(key=str(number), samples=samples, context=samples)


def _rows(ask: Ask, windows: Iterator[Window], count: int, max_batch: int, manifest: Manifest) -> Float32:
    found = []
    for at in range(0, count, max_batch):
        batch = [next(windows) for _ in range(min(max_batch, count - at))]
        rows, answered = ask(batch)
        if len(answered) < len(batch):
            raise EngineError(
                f"{manifest.model} answers no window alone: its chain needs earlier ones; it has no explanation"
            )
        found.append(np.array(rows))
    return np.concatenate(found)


def _shade(share: float) -> str:
    if share < -0.1:
        return "-"
    return _SHADES[min(len(_SHADES) - 1, max(0, round(share * (len(_SHADES) - 1))))]
