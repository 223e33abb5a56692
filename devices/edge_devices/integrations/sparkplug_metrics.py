"""Metrics of a Sparkplug device: which ones a bundle's answers have, and their values in an answer.

Names are the fields of our JSON, so that one page explains both; ``scores/walk`` has the label as its last part.
A label, quantity or rule is one part of a name: a ``/`` in it is written ``%2F`` (`edge_runtime.io.sinks.mqtt`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import orjson

from edge_devices.integrations.sparkplug_payload import BOOLEAN, DOUBLE, STRING, Definition, Value
from edge_runtime.io.sinks import Described
from edge_runtime.io.sinks.mqtt import encode_value
from edge_runtime.manifest.outputs import AnomalyOutput, DetectionOutput, EmbeddingOutput, RegressionOutput
from edge_runtime.types import Answer, Correction, Event, FinalAnswer, Prediction

MAX_SCORES: Final = 256
"""Classes up to which each has a metric of its own; with more, births would be larger than brokers take."""

_PREDICTION: Final = (
    Definition("id", STRING),
    Definition("label", STRING),
    Definition("confidence", DOUBLE),
    Definition("hard", BOOLEAN),
    Definition("route", STRING),
    Definition("suspect", STRING),
)
_CORRECTION: Final = (
    Definition("correction/id", STRING),
    Definition("correction/label", STRING),
    Definition("correction/confidence", DOUBLE),
    Definition("correction/reason", STRING),
)


def definitions(described: Described, *, scores: bool) -> dict[str, Definition]:
    """Return the metrics of a device, by name, in the order of births.

    Args:
        described: the answers.
        scores: whether each label has a metric.
    """
    output, labels = described.manifest.output, described.labels
    found = [*_PREDICTION]
    if scores and len(labels) <= MAX_SCORES and not isinstance(output, AnomalyOutput):
        found += [Definition(_part("scores", label), DOUBLE) for label in labels]
    if isinstance(output, RegressionOutput):
        for quantity in output.quantities:
            name, unit = _part("values", quantity.name), quantity.unit.removeprefix("1")
            found += [Definition(one, DOUBLE, unit) for one in (name, f"{name}/low", f"{name}/high")]
    elif isinstance(output, AnomalyOutput):
        found += [Definition("score", DOUBLE), Definition("threshold", DOUBLE), Definition("anomalous", BOOLEAN)]
    elif isinstance(output, DetectionOutput):
        found.append(Definition("boxes", STRING))
    elif isinstance(output, EmbeddingOutput):
        found.append(Definition("distance", DOUBLE))
    found += _CORRECTION
    return {one.name: one for one in [*found, *_of_events(described.events)]}


def _of_events(events: Sequence[str]) -> list[Definition]:
    found = []
    for event in events:
        name = _part("events", event)
        found += [Definition(f"{name}/active", BOOLEAN), Definition(f"{name}/peak", DOUBLE)]
        found += [Definition(f"{name}/{field}", STRING) for field in ("id", "label", "reason")]
    return found


def of_predictions(defined: Iterable[str]) -> dict[str, Value]:
    """Return those of the defined metrics that a prediction says something about, without a value.

    What it leaves out, as where nothing on the device answered, is null then, and not what the window before had.
    """
    return {name: None for name in defined if not name.startswith(("correction/", "events/"))}


def values(answer: Answer, labels: Sequence[str]) -> dict[str, Value]:
    """Return the values of an answer by metric, whether defined or not.

    Args:
        answer: an answer of any kind.
        labels: the labels of its scores, in their order.
    """
    if isinstance(answer, Event):
        name = _part("events", answer.event)
        of_event: dict[str, Value] = {"active": answer.kind == "start", "peak": answer.peak, "id": answer.id}
        of_event |= {"label": answer.label, "reason": answer.reason}
        return {f"{name}/{field}": value for field, value in of_event.items()}
    if isinstance(answer, Prediction):
        return _prediction(answer, labels)
    said: dict[str, Value] = {"id": answer.id, "label": answer.label, "confidence": answer.confidence}
    said["reason"] = answer.reason if isinstance(answer, FinalAnswer) else ""
    return {f"correction/{field}": value for field, value in said.items()}


def time_s(answer: Answer, now_s: float) -> float:
    """Return the time that an answer is of, seconds: the end of its window, or where an event begins or ends."""
    if isinstance(answer, Event):
        return answer.start if answer.kind == "start" or answer.end is None else answer.end
    if isinstance(answer, Prediction | Correction):
        return answer.end
    return now_s if answer.end is None else answer.end


def _prediction(answer: Prediction, labels: Sequence[str]) -> dict[str, Value]:
    found: dict[str, Value] = {
        "id": answer.id,
        "label": answer.label,
        "confidence": answer.confidence,
        "hard": answer.hard,
        "route": answer.route,
        "suspect": getattr(answer, "suspect", ""),
    }
    if len(labels) == len(answer.scores) <= MAX_SCORES:
        found |= {_part("scores", label): score for label, score in zip(labels, answer.scores, strict=True)}
    # Fields of the task (docs/tasks.md), which mean nothing where nothing on the device answered.
    own = {} if answer.variant == "none" else vars(answer)
    quantities: dict[str, dict[str, Any]] = own.get("values", {})
    for quantity, of in quantities.items():
        name = _part("values", quantity)
        found |= {name: of.get("value"), f"{name}/low": of.get("low"), f"{name}/high": of.get("high")}
    found |= {name: own[name] for name in ("score", "threshold", "anomalous", "distance") if name in own}
    if "boxes" in own:
        found["boxes"] = orjson.dumps(own["boxes"]).decode()
    return found


def _part(folder: str, name: str) -> str:
    return f"{folder}/{encode_value(name, 'key', shorten=True)}"
