"""States: what is published of an answer, as one JSON object; entities take their value out of it by position.

Names of labels and quantities never stand in a template: ``quantities[0]``, not by their names. No field has the name
of a method of dictionaries (``keys``, ``values``), which a template would find first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from edge_runtime.manifest import AnyOutput
from edge_runtime.operate.observe.home_assistant.names import MAX_STATE, readable
from edge_runtime.types import Correction, Prediction

MOST_VALUES: Final = 32
"""Labels, quantities and numbers of an answer that get an entity of their own."""
_MOST_BOXES: Final = 20


def state_of(answer: Prediction | Correction, output: AnyOutput) -> dict[str, Any]:
    """Build the state of a key from its last answer, or from the correction of it."""
    state: dict[str, Any] = {
        "label": label_of(answer),
        "confidence": round(100 * answer.confidence, 1) if answer.scores or answer.label else None,
        "route": answer.route,
        "id": answer.id,
        "model": answer.model,
    }
    if suspect := getattr(answer, "suspect", ""):
        state["suspect"] = suspect
    return state | _of_task(answer, output)


def label_of(answer: Prediction | Correction) -> str | None:
    """Return the label as Home Assistant can keep it; None where there is none."""
    return readable(answer.label, MAX_STATE) or None


def _of_task(answer: Any, output: AnyOutput) -> dict[str, Any]:
    fields = _FIELDS.get(output.kind)
    return {} if fields is None else fields(answer, output)


def _quantities(answer: Any, output: Any) -> dict[str, Any]:
    given = getattr(answer, "values", {})
    return {"quantities": [given.get(one.name) or _NO_VALUE for one in output.quantities[:MOST_VALUES]]}


def _given_labels(answer: Any, output: Any) -> dict[str, Any]:
    if not answer.scores and not answer.label:
        return {"on": [None] * len(output.labels[:MOST_VALUES])}
    given = set(getattr(answer, "labels", ()))
    return {"on": [label in given for label in output.labels[:MOST_VALUES]]}


def _counts(answer: Any, output: Any) -> dict[str, Any]:
    boxes: Sequence[dict[str, Any]] = getattr(answer, "boxes", ())
    counts = [sum(box["label"] == label for box in boxes) for label in output.labels[:MOST_VALUES]]
    return {"counts": counts, "boxes": list(boxes[:_MOST_BOXES])}


def _numbers(answer: Any, output: Any) -> dict[str, Any]:
    rows: Any = getattr(answer, "rows", [])
    last = rows[-1] if output.names and len(output.shape) > 1 and rows else rows
    return {"numbers": list(last[:MOST_VALUES]) if output.names and last else [None] * len(output.names)}


def _anomaly(answer: Any, _output: Any) -> dict[str, Any]:
    return {name: getattr(answer, name, None) for name in ("score", "threshold", "anomalous")}


_FIELDS: Final[Mapping[str, Callable[[Any, Any], dict[str, Any]]]] = {
    "anomaly": _anomaly,
    "detection": _counts,
    "multi-label": _given_labels,
    "regression": _quantities,
    "vector": _numbers,
}
"""By the kind of the output: fields of the state that its entities take."""

_NO_VALUE: Final = {"value": None, "low": None, "high": None}
