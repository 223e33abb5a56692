"""A card's task as the last stages of a chain and the bundle's output contract, and what its answers must look like."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from edge_export.package.card.fitting import Fitted
from edge_export.package.card.spec import Card
from edge_export.package.card.step import StepSamples
from edge_runtime.errors import ConfigError
from edge_runtime.manifest import AnyOutput, MultiLabelOutput, OutputContract
from edge_runtime.manifest.outputs import (
    AnomalyOutput,
    DetectionOutput,
    EmbeddingOutput,
    RegressionOutput,
    TextOutput,
    VectorOutput,
)
from edge_runtime.manifest.stages import Activation, Difference, ModelStage, Smooth, Stage
from edge_runtime.types import Float32

NO_CLASSES = (
    'an embedding, a reconstruction or a measured value has no classes: write type = "embedding", "anomaly" or '
    '"vector" under [task]'
)


class ManifestTask(NamedTuple):
    """A card's task, for a manifest."""

    stages: tuple[Stage, ...]
    """All of the chain, those of the task last."""
    answer: tuple[str, ...]
    output: AnyOutput


class _Track:
    """Track of the answer so far, and the chain up to it."""

    def __init__(self, fitted: Fitted, name: str) -> None:
        self.stages = list(fitted.stages)
        self.name = name
        self.shape = fitted.followed.shapes[name]
        """Of a row."""
        self.rows = fitted.followed.rows[name]
        """Of a step."""
        self._taken = set(fitted.followed.shapes)

    @property
    def numbers(self) -> int:
        """Numbers of a row."""
        return math.prod(self.shape)

    @property
    def answer(self) -> tuple[int, ...]:
        """Shape of the answer."""
        return self.shape if self.rows == 1 else (self.rows, *self.shape)

    def free(self, name: str) -> str:
        """Return a name that no stage has."""
        return f"task.{name}" if name in self._taken else name

    def add(self, stage: Stage, shape: tuple[int, ...], rows: int) -> None:
        """Put a stage behind."""
        self.stages.append(stage)
        self.name, self.shape, self.rows = stage.name, shape, rows


def complete(card: Card, fitted: Fitted) -> ManifestTask:
    """Add the stages that a task needs, and fill in of its output contract what the tracks say.

    Raises:
        ConfigError: the tracks do not make the answer; says what to change.
    """
    task, followed = card.task, fitted.followed
    if unknown := [name for name in task.of if name not in followed.shapes]:
        raise ConfigError(f"[task] of names the track {unknown[0]!r}; known here: {', '.join(followed.shapes)}")
    last = next(iter(followed.computed[-1].gives))
    if len(task.of) > 1:
        if task.smooth or task.reconstructs or task.values:
            raise ConfigError("[task] of several tracks has no smooth, reconstructs or values; name one track")
        total = sum(followed.rows[name] * math.prod(followed.shapes[name]) for name in task.of)
        output = _filled(card, (total,), fitted.step)
        _check_shape(output, (total,), card)
        return ManifestTask(tuple(fitted.stages), task.of, output)
    track = _Track(fitted, task.of[0] if task.of else last)
    if task.reconstructs:
        track.add(_difference(fitted, track.name, task.reconstructs, task.error), (1,), 1)
    _activate(card, track)
    if task.smooth is not None:
        rows = max(1, track.rows // task.smooth.hop)
        smooth = Smooth(
            name=track.free("smooth"), of=track.name, rows=task.smooth.steps, hop=task.smooth.hop, how=task.smooth.how
        )
        track.add(smooth, track.shape, rows)
    output = _filled(card, track.answer, fitted.step)
    if output.shape != track.answer:
        _split(track, output.shape)
    _check_shape(output, track.answer, card)
    return ManifestTask(tuple(track.stages), () if track.name == track.stages[-1].tracks[0] else (track.name,), output)


def _activate(card: Card, track: _Track) -> None:
    """Put the softmax or sigmoid of a classification behind its scores."""
    task, output = card.task, card.task.output
    if not isinstance(output, OutputContract) or task.values in ("", "probabilities"):
        return
    pair = task.values in ("probability", "logit")
    if pair and len(output.labels) != 2:
        raise ConfigError(f"values = {task.values!r} speaks for the second of two labels, not of {len(output.labels)}")
    if track.numbers != (1 if pair else len(output.labels)):
        raise ConfigError(_count(track.numbers, 1 if pair else len(output.labels), card))
    how: Any = {"logits": "softmax", "logit": "sigmoid", "probability": "none"}[task.values]
    stage = Activation(
        name=track.free("probabilities"), of=track.name, how=how, temperature=task.temperature, pair=pair
    )
    track.add(stage, (2,) if pair else track.shape, track.rows)


def _filled(card: Card, answer: tuple[int, ...], step: StepSamples) -> AnyOutput:
    """Fill in the fields of the output contract that the card leaves out and the answer's shape says."""
    output, given = card.task.output, card.task.given
    numbers, rows = answer[-1], math.prod(answer[:-1])
    if isinstance(output, VectorOutput):
        return _filled_vector(output, given, answer, card.signal.rate_hz / step.hop)
    if isinstance(output, EmbeddingOutput):
        size = output.size if "size" in given else numbers
        return replace(output, size=size, rows=output.rows if "rows" in given else rows * numbers // size)
    if isinstance(output, TextOutput):
        return _filled_text(output, answer)
    if isinstance(output, MultiLabelOutput) and "rows" not in given and rows > 1:
        return replace(output, rows=rows)
    if isinstance(output, DetectionOutput) and "candidates" not in given and not output.strides and not output.priors:
        each = output.box_numbers + (2 if output.rows in ("listed", "chosen") else output.columns)
        return replace(output, candidates=max(1, math.prod(answer) // each))
    return output


def _filled_vector(output: VectorOutput, given: Sequence[str], answer: tuple[int, ...], steps_hz: float) -> AnyOutput:
    shape = output.shape if "shape" in given else answer
    if output.names and "shape" not in given and answer[-1] != len(output.names):
        raise ConfigError(
            f"[task] names {len(output.names)} numbers, and a row of the answer has {answer[-1]}; correct names, or "
            "rows of the model's output"
        )
    rate_hz = output.rate_hz if "rate_hz" in given else (shape[0] if len(shape) > 1 else 1) * steps_hz
    return replace(output, shape=shape, rate_hz=rate_hz)


def _filled_text(output: TextOutput, answer: tuple[int, ...]) -> AnyOutput:
    classes, scores = len(output.characters) + 1, math.prod(answer)
    if scores % classes or (len(answer) > 1 and answer[-1] != classes):
        row = f"a row of {answer[-1]} scores" if len(answer) > 1 else f"{scores} scores"
        raise ConfigError(
            f"the answer has {row}, and [task] names {len(output.characters)} characters beside the blank; write all "
            "of them in their order, a space too if it is one"
        )
    return replace(output, rows=scores // classes)


def _split(track: _Track, wanted: tuple[int, ...]) -> None:
    """Give the last model's output the rows of an answer that it gives as one row."""
    if len(wanted) != 2 or track.rows != 1 or math.prod(wanted) != track.numbers:
        return
    for position, stage in enumerate(track.stages):
        if isinstance(stage, ModelStage) and track.name in stage.tracks:
            at = stage.tracks.index(track.name)
            outputs = list(stage.outputs)
            outputs[at] = replace(outputs[at], rows=wanted[0])
            track.stages[position] = replace(stage, outputs=tuple(outputs))
            track.rows, track.shape = wanted[0], (wanted[1],)


def _difference(fitted: Fitted, track: str, port_name: str, how: Any) -> Difference:
    for stage, node in zip(fitted.stages, fitted.followed.nodes, strict=True):
        if not isinstance(stage, ModelStage) or track not in stage.tracks:
            continue
        for port, cut in zip(stage.inputs, node.cuts, strict=True):
            if port.name != port_name:
                continue
            if np.any(port.offset) or np.any(np.asarray(port.scale) != 1):
                raise ConfigError(
                    f"[task] reconstructs {port_name!r}, whose values are scaled; leave offset and scale out at the "
                    "input, and scale the signal before it is sent"
                )
            return Difference(
                name="difference", of=track, to=cut.of, rows=port.rows,
                hop=(port.hop or port.rows) if port.rows else 0, how=how,
            )  # fmt: skip
        raise ConfigError(
            f"[task] reconstructs {port_name!r}, which is no input of stage {stage.name!r}; it has "
            f"{', '.join(port.name for port in stage.inputs)}"
        )
    raise ConfigError(f"[task] reconstructs {port_name!r}, and no model makes the track {track!r}")


def _check_shape(output: AnyOutput, answer: tuple[int, ...], card: Card) -> None:
    """Refuse an answer of other numbers than its contract has."""
    if output.shape == answer:
        return
    given = math.prod(answer)
    if isinstance(output, OutputContract | MultiLabelOutput):
        if len(answer) > 1 and answer[-1] == len(output.labels):
            raise ConfigError(
                f"a step gives {answer[0]} answers of {answer[-1]} numbers; write smooth = {{ steps = {answer[0]}, "
                f"hop = {answer[0]} }} under [task] for their mean"
            )
        raise ConfigError(_count(given, len(output.labels), card))
    if isinstance(output, RegressionOutput):
        spread = " and a spread for each" if output.spread else ""
        raise ConfigError(
            f"the answer has {given} numbers, and [task] names {len(output.quantities)} quantities{spread}; name each"
        )
    if isinstance(output, AnomalyOutput):
        raise ConfigError(
            f"the answer has {given} numbers, and an anomaly score is one; if the model imitates its input, write "
            "reconstructs = its name under [task], and smooth where a step gives several"
        )
    if isinstance(output, DetectionOutput) and output.strides:
        raise ConfigError(
            f"the answer has {given} numbers, and strides and anchors make {output.count} candidates of "
            f"{output.box_numbers} + {output.columns} numbers; correct strides, anchors, labels or background"
        )
    raise ConfigError(f"the answer has the shape {answer}, and [task] calls for {output.shape}; correct [task]")


def _count(given: int, wanted: int, card: Card) -> str:
    return (
        f"the answer has {given} numbers, and [task] calls for {wanted} as {card.task.values or 'probabilities'}; name "
        f"each of them as a label, in the order of the answer; {NO_CLASSES}"
    )


def check(answers: Float32, output: AnyOutput, *, integers: bool, name: str) -> None:
    """Refuse answers that are not what the task says.

    Args:
        answers: (n, ...) of steps that have an answer.
        output: what they are.
        integers: the file computes with integers, whose steps show in probabilities.
        name: the variant's name, for messages.

    Raises:
        ConfigError: they are no probabilities, or not finite.
    """
    if not np.isfinite(answers).all():
        raise ConfigError(f"{name}: answers a golden step with NaN or infinity")
    probabilities = isinstance(output, OutputContract) or (
        isinstance(output, MultiLabelOutput) and output.values == "probability"
    )
    if not probabilities:
        return
    slack = 1e-3 + (len(output.labels) / 256 if integers else 0.0)
    low, high = float(answers.min()), float(answers.max())
    total = float(np.abs(answers.sum(axis=-1) - 1).max()) if isinstance(output, OutputContract) else 0.0
    if low < -slack or high > 1 + slack or total > slack:
        sums, logits = (" that do not sum to 1", "logits") if isinstance(output, OutputContract) else ("", "logit")
        raise ConfigError(
            f"{name}: answers with numbers from {low:.3g} to {high:.3g}{sums}, which are no probabilities of labels. "
            f'If each is a score before the softmax or sigmoid, write values = "{logits}" under [task]; {NO_CLASSES}'
        )
