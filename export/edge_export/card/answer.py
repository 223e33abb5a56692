"""A card's task as the last stages of a chain and the bundle's output contract, and what its answers must look like."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from edge_export.card.any_spec import AnyCard
from edge_export.card.fitting import Fitted
from edge_runtime.chain import WINDOW
from edge_runtime.errors import ConfigError
from edge_runtime.manifest import AnyOutput, MultiLabelOutput, OutputContract
from edge_runtime.manifest.stages import Activation, Difference, ModelStage, Smooth, Stage
from edge_runtime.types import Float32

NO_CLASSES = (
    'an embedding, a reconstruction or a measured value has no classes: write type = "embedding", "anomaly" or "vector" '
    "under [task]"
)


class Task(NamedTuple):
    """A card's task, for a manifest."""

    stages: tuple[Stage, ...]
    """All of the chain, those of the task last."""
    answer: tuple[str, ...]
    output: AnyOutput


def complete(card: AnyCard, fitted: Fitted) -> Task:
    """Add the stages that a task needs, and check that the answer has the numbers that it takes.

    Raises:
        ConfigError: the tracks do not make the answer; says what to change.
    """
    stages = list(fitted.stages)
    task, output = card.task, card.task.output
    shapes, rows = dict(fitted.followed.shapes), dict(fitted.followed.rows)
    last = next(iter(fitted.followed.computed[-1].gives))
    if unknown := [track for track in task.of if track not in shapes]:
        raise ConfigError(f"[task] of names the track {unknown[0]!r}; known here: {', '.join(shapes)}")
    if len(task.of) > 1:
        if task.smooth or task.reconstructs or task.values:
            raise ConfigError("[task] of several tracks has no smooth, reconstructs or values; name one track")
        return Task(tuple(stages), task.of, output)
    track = task.of[0] if task.of else last

    def add(stage: Stage, shape: tuple[int, ...]) -> None:
        nonlocal track
        stages.append(stage)
        (track,) = stage.tracks
        shapes[track], rows[track] = shape, rows.get(track, 1)

    if task.reconstructs:
        add(_difference(fitted, track, task.reconstructs, task.error), (1,))
    pair = isinstance(output, OutputContract) and task.values in ("probability", "logit")
    how = "softmax" if task.values == "logits" and isinstance(output, OutputContract) else (
        "sigmoid" if task.values in ("logit", "logits") else "none"
    )  # fmt: skip
    if how != "none" or pair:
        _check_count(1 if pair else len(output.labels), shapes[track], rows[track], card)
        name = "probabilities" if "probabilities" not in shapes else "task.probabilities"
        add(Activation(name=name, of=track, how=how, temperature=task.temperature, pair=pair), (2,) if pair else shapes[track])  # type: ignore[arg-type] # fmt: skip
    if task.smooth is not None:
        name = "smooth" if "smooth" not in shapes else "task.smooth"
        add(
            Smooth(name=name, of=track, rows=task.smooth.steps, hop=task.smooth.hop, how=task.smooth.how),
            shapes[track],
        )
    if isinstance(output, OutputContract | MultiLabelOutput):
        _check_count(len(output.labels), shapes[track], 1 if task.smooth else rows[track], card)
    chosen = () if track == stages[-1].tracks[0] else (track,)
    return Task(tuple(stages), chosen, output)


def _difference(fitted: Fitted, track: str, port_name: str, how: str) -> Difference:
    for stage in fitted.stages:
        if not isinstance(stage, ModelStage) or track not in stage.tracks:
            continue
        for position, port in enumerate(stage.inputs):
            if port.name != port_name:
                continue
            if np.any(port.offset) or np.any(np.asarray(port.scale) != 1):
                raise ConfigError(
                    f"[task] reconstructs {port_name!r}, whose values are scaled; write offset and scale at the model's "
                    "output, so that both are in one unit, and leave them out at the input"
                )
            node = fitted.followed.nodes[fitted.stages.index(stage)]
            taken = node.cuts[position]
            return Difference(
                name="difference", of=track, to=taken.of if taken.of != WINDOW else WINDOW,
                rows=port.rows, hop=(port.hop or port.rows) if port.rows else 0, how=how,  # type: ignore[arg-type]
            )  # fmt: skip
        raise ConfigError(
            f"[task] reconstructs {port_name!r}, which is no input of stage {stage.name!r}; it has "
            f"{', '.join(port.name for port in stage.inputs)}"
        )
    raise ConfigError(f"[task] reconstructs {port_name!r}, and no model makes the track {track!r}")


def _check_count(wanted: int, shape: Sequence[int], rows: int, card: AnyCard) -> None:
    given = math.prod(shape)
    if rows > 1:
        raise ConfigError(
            f"a step gives {rows} answers of {given} numbers; write smooth = {{ steps = {rows}, hop = {rows} }} under "
            "[task] for their mean"
        )
    if given != wanted:
        raise ConfigError(
            f"the answer has {given} numbers, and [task] names {wanted} as {card.task.values or 'probabilities'}; name "
            f"each of them as a label, in the order of the answer; {NO_CLASSES}"
        )


def check(answers: Float32, card: AnyCard, *, integers: bool, name: str) -> None:
    """Refuse answers that are not what the task says.

    Args:
        answers: (n, ...) of steps that have an answer.
        card: the card.
        integers: the file computes with integers, whose steps show in probabilities.
        name: of the variant, for messages.

    Raises:
        ConfigError: they are no probabilities, or not finite.
    """
    if not np.isfinite(answers).all():
        raise ConfigError(f"{name}: answers a golden window with NaN or infinity")
    output = card.task.output
    if not isinstance(output, OutputContract | MultiLabelOutput):
        return
    labels = len(output.labels)
    slack = 1e-3 + (labels / 256 if integers else 0.0)
    low, high = float(answers.min()), float(answers.max())
    total = float(np.abs(answers.sum(axis=-1) - 1).max()) if isinstance(output, OutputContract) else 0.0
    if low < -slack or high > 1 + slack or total > slack:
        sums = " that do not sum to 1" if isinstance(output, OutputContract) else ""
        raise ConfigError(
            f"{name}: answers with numbers from {low:.3g} to {high:.3g}{sums}, which are no probabilities of labels. If "
            f'each is a score before the softmax or sigmoid, write values = "logits" under [task]; {NO_CLASSES}'
        )
