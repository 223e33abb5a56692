"""Answers of tasks other than classification: predictions, corrections and final answers with fields of their own.

Each class is one of `edge_runtime.types` with the task's own fields behind it, so a reader that knows the fields of
before reads any answer: `label` is what a person is told in short, `confidence` the trust in it, 0 to 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

from edge_runtime.types import Correction, FinalAnswer, Prediction, SuspectPrediction


@dataclass(kw_only=True)
class _Corrected:
    upheld: bool = False
    """The cloud says what the device said; the task's page in docs/tasks.md has what that means."""


@dataclass
class FusedCorrection(_Corrected, Correction):
    """Answer to a hard case that is of both (`edge_runtime.model.tasks.fusion`): `label`, `confidence`, `scores`."""

    cloud_label: str = field(kw_only=True)
    """What the cloud itself answered; `upheld` compares this one."""
    cloud_confidence: float = field(kw_only=True)


@dataclass(kw_only=True)
class _MultiLabel:
    task: str = "multi-label"
    labels: list[str] = field(default_factory=list)
    """Labels whose probability reaches their threshold, in the bundle's order."""


@dataclass
class MultiLabelPrediction(_MultiLabel, Prediction):
    """`scores`: a probability for each label. `label`: the given labels, with commas between them."""


@dataclass
class MultiLabelCorrection(_Corrected, _MultiLabel, Correction):
    """See `MultiLabelPrediction`."""


@dataclass
class MultiLabelFinal(_MultiLabel, FinalAnswer):
    """See `MultiLabelPrediction`."""


@dataclass(kw_only=True)
class _Regression:
    task: str = "regression"
    values: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By quantity: ``value``, ``unit``, and the interval's ends ``low`` and ``high``, None where it is not known."""
    coverage: float = 0.0
    """Share of windows whose true value lies in the interval."""


@dataclass
class RegressionPrediction(_Regression, Prediction):
    """`scores`: the values. `label`: the values with their units."""


@dataclass
class RegressionCorrection(_Corrected, _Regression, Correction):
    """See `RegressionPrediction`."""


@dataclass
class RegressionFinal(_Regression, FinalAnswer):
    """See `RegressionPrediction`."""


@dataclass(kw_only=True)
class _Anomaly:
    task: str = "anomaly"
    score: float | None = None
    """The model's score; None in a correction, since scores of two models do not compare."""
    threshold: float | None = None
    """Anomalous above it; with ``adapt``, that of the key."""
    anomalous: bool = False


@dataclass
class AnomalyPrediction(_Anomaly, Prediction):
    """`scores`: one number, 0 to 1, above .5 where it is anomalous. `label`: ``normal`` or ``anomalous``."""


@dataclass
class AnomalyCorrection(_Corrected, _Anomaly, Correction):
    """See `AnomalyPrediction`."""


@dataclass
class AnomalyFinal(_Anomaly, FinalAnswer):
    """See `AnomalyPrediction`."""


@dataclass(kw_only=True)
class _Detection:
    task: str = "detection"
    boxes: list[dict[str, Any]] = field(default_factory=list)
    """Highest score first: ``label``, ``score``, and ``box``, which is left, top, right, bottom as shares of the
    picture, 0 to 1."""


@dataclass
class DetectionPrediction(_Detection, Prediction):
    """`scores`: the highest of each label's boxes. `label`: how many of which label, ``2 x face``."""


@dataclass
class DetectionCorrection(_Corrected, _Detection, Correction):
    """See `DetectionPrediction`."""


@dataclass
class DetectionFinal(_Detection, FinalAnswer):
    """See `DetectionPrediction`."""


@dataclass(kw_only=True)
class _Embedding:
    task: str = "embedding"
    distance: float | None = None
    """To the nearest example of the label; None where there is none, and in a correction."""


@dataclass
class EmbeddingPrediction(_Embedding, Prediction):
    """`scores`: nearness of each label's nearest example, 0 to 1. `label`: of the nearest, or ``unknown``."""


@dataclass
class EmbeddingCorrection(_Corrected, _Embedding, Correction):
    """See `EmbeddingPrediction`."""


@dataclass
class EmbeddingFinal(_Embedding, FinalAnswer):
    """See `EmbeddingPrediction`."""


@dataclass(kw_only=True)
class _Text:
    task: str = "text"
    text: str = ""
    """What was read; empty for nothing."""


@dataclass
class TextPrediction(_Text, Prediction):
    """`scores`: a probability for each character, none in a correction. `label`: the text."""


@dataclass
class TextCorrection(_Corrected, _Text, Correction):
    """See `TextPrediction`."""


@dataclass
class TextFinal(_Text, FinalAnswer):
    """See `TextPrediction`."""


@dataclass(kw_only=True)
class _Vector:
    task: str = "vector"
    rows: list[Any] | str = field(default_factory=list)
    """The numbers, as nested lists; the sound, int16 in base64; or nothing, by `encoding`."""
    encoding: str = "rows"
    """``rows``, ``pcm16`` or ``none``."""
    unit: str = "1"
    rate_hz: float = 0.0
    """Rows a second of a signal; 0 where it is none."""


@dataclass
class VectorPrediction(_Vector, Prediction):
    """`scores` is empty. `label`: how many rows of how many numbers."""


@dataclass
class VectorCorrection(_Corrected, _Vector, Correction):
    """Never made: the cloud is not asked."""


@dataclass
class VectorFinal(_Vector, FinalAnswer):
    """Never made: the cloud is not asked."""


class AnswerTypes(NamedTuple):
    """Classes of a task's answers."""

    prediction: type[Prediction]
    correction: type[Correction]
    final: type[FinalAnswer]


CLASSIFICATION = AnswerTypes(Prediction, Correction, FinalAnswer)
FUSED = CLASSIFICATION._replace(correction=FusedCorrection)
TYPES = {
    "multi-label": AnswerTypes(MultiLabelPrediction, MultiLabelCorrection, MultiLabelFinal),
    "regression": AnswerTypes(RegressionPrediction, RegressionCorrection, RegressionFinal),
    "anomaly": AnswerTypes(AnomalyPrediction, AnomalyCorrection, AnomalyFinal),
    "detection": AnswerTypes(DetectionPrediction, DetectionCorrection, DetectionFinal),
    "embedding": AnswerTypes(EmbeddingPrediction, EmbeddingCorrection, EmbeddingFinal),
    "text": AnswerTypes(TextPrediction, TextCorrection, TextFinal),
    "vector": AnswerTypes(VectorPrediction, VectorCorrection, VectorFinal),
}
"""By the field `task`, which answers of a classification do not have."""

_COMMON = frozenset(one.name for one in fields(Prediction))


def own_fields(answer: Prediction) -> dict[str, Any]:
    """Return the fields that the task has added to an answer, `task` among them; empty for a classification.

    Where nothing on the device answered, it is `task` alone.
    """
    own = {name: value for name, value in vars(answer).items() if name not in _COMMON}
    return {"task": own["task"]} if own and answer.variant == "none" else own


def types_of(fields_of_answer: Mapping[str, Any]) -> AnswerTypes:
    """Return the classes of an answer that was written down, by its field `task`; a fused correction has none."""
    if "cloud_label" in fields_of_answer:
        return FUSED
    return TYPES.get(str(fields_of_answer.get("task", "")), CLASSIFICATION)


def suspected(answer: Prediction, suspect: str) -> SuspectPrediction:
    """Return an answer as one that says which checks of the intake its key fails."""
    of = type(answer)
    made = _SUSPECT.get(of)
    if made is None:
        # The field comes last, and without a default: fields before it that have one are keyword-only.
        made = _SUSPECT[of] = dataclass(type(f"Suspect{of.__name__}", (SuspectPrediction, of), {}))
    return made(**vars(answer), suspect=suspect)


_SUSPECT: dict[type[Prediction], type[SuspectPrediction]] = {Prediction: SuspectPrediction}
