from __future__ import annotations

import dataclasses
from typing import Any

import orjson
import pytest

from edge_runtime.errors import ManifestError
from edge_runtime.event_rule import EventRule
from edge_runtime.manifest import AnyOutput, MultiLabelOutput, dump, needed_schema, parse
from edge_runtime.manifest.outputs import (
    AnomalyOutput,
    DetectionOutput,
    EmbeddingOutput,
    Quantity,
    RegressionOutput,
    TextOutput,
    VectorOutput,
    files_of,
)
from tests.edge_runtime.manifests import manifest

FACES = DetectionOutput(
    labels=("face",),
    height=240,
    width=320,
    decode="priors",
    background=True,
    strides=(8, 16, 32, 64),
    anchors=((10, 16, 24), (32, 48), (64, 96), (128, 192, 256)),
)
PERSONS = DetectionOutput(
    labels=("person",),
    height=128,
    width=160,
    decode="grid",
    strides=(32, 16, 8),
    anchors=((116, 90, 156, 198, 373, 326), (30, 61, 62, 45, 59, 119), (10, 13, 16, 30, 33, 23)),
)
OUTPUTS: dict[str, tuple[AnyOutput, tuple[int, ...]]] = {
    "anomaly": (AnomalyOutput(threshold=1.5, adapt="quantile"), (1,)),
    "anomaly, from scores": (AnomalyOutput(normal="normal.npy", false_alarm_rate=0.01), (1,)),
    "detection, YOLO grids": (PERSONS, ((4 * 5 + 8 * 10 + 16 * 20) * 3 * 6,)),
    "detection, boxes and scores": (DetectionOutput(labels=("a", "b"), height=9, width=9, candidates=5), (5 * 6,)),
    "detection, joined": (
        DetectionOutput(labels=("a", "b"), height=9, width=9, candidates=5, rows="joined", objectness=True), (5, 7),
    ),
    "detection, listed": (DetectionOutput(labels=("a",), height=9, width=9, candidates=5, rows="listed"), (30,)),
    "detection, one grid": (
        DetectionOutput(labels=("a",), height=9, width=9, decode="grid", strides=(4,), anchors=((1, 2, 3, 4),)),
        (9, 12),
    ),
    "detection, priors": (FACES, (4420 * 6,)),
    "embedding": (EmbeddingOutput(size=96, rows=16, farthest=0.4), (16, 96)),
    "embedding, with examples": (EmbeddingOutput(size=8, labels=("a",), examples="examples.npy"), (8,)),
    "multi-label": (MultiLabelOutput(labels=("speech",), values="logit"), (1,)),
    "multi-label, rows": (MultiLabelOutput(labels=("a", "b"), rows=3, thresholds=(0.3, 0.6)), (3, 2)),
    "regression": (RegressionOutput(quantities=(Quantity(name="t", unit="Cel", half_width=1.5, low=-40.0),)), (1,)),
    "regression, spread": (RegressionOutput(quantities=(Quantity(name="a"), Quantity(name="b")), spread=True), (4,)),
    "detection, chosen": (DetectionOutput(labels=("a",), height=9, width=9, candidates=5, rows="chosen"), (5, 6)),
    "text": (TextOutput(characters=("a", "b", ""), rows=7, blank="last"), (7, 4)),
    "vector": (VectorOutput(shape=(128,), publish="pcm16", rate_hz=16000.0), (128,)),
}  # fmt: skip


def whole(output: AnyOutput) -> Any:
    first = manifest()
    return dataclasses.replace(first, schema_version=needed_schema(first.input, output=output), output=output)


@pytest.mark.parametrize("name", OUTPUTS)
def test_an_output_survives_the_file_and_says_its_shape(name: str) -> None:
    output, shape = OUTPUTS[name]
    assert output.shape == shape
    assert whole(output).schema_version == 2
    assert parse(dump(whole(output))) == whole(output)


def test_defaults_of_an_output_are_not_written() -> None:
    output, _ = OUTPUTS["regression"]
    assert orjson.loads(dump(whole(output)))["output"] == {
        "quantities": [{"name": "t", "unit": "Cel", "half_width": 1.5, "low": -40.0}],
        "kind": "regression",
    }


def test_files_that_an_output_needs_are_known() -> None:
    assert files_of(OUTPUTS["embedding, with examples"][0]) == {"examples": "examples.npy"}
    assert files_of(OUTPUTS["anomaly, from scores"][0]) == {"normal": "normal.npy"}
    assert not files_of(FACES)


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "anomaly without a threshold": ({"kind": "anomaly"}, "needs a threshold, or the file"),
    "anomaly, rate": ({"kind": "anomaly", "threshold": 1, "false_alarm_rate": 0}, "false_alarm_rate must be above 0"),
    "detection, anchors of pairs": (
        {"kind": "detection", "labels": ["a"], "height": 8, "width": 8, "decode": "grid", "strides": [8],
         "anchors": [[1]]}, "anchors are pairs",
    ),
    "detection, how many": ({"kind": "detection", "labels": ["a"], "height": 8, "width": 8}, "candidates is missing"),
    "detection, strides left out": (
        {"kind": "detection", "labels": ["a"], "height": 8, "width": 8, "decode": "priors"},
        "needs strides and anchors",
    ),
    "detection, too many": (
        {"kind": "detection", "labels": ["a"], "height": 8, "width": 8, "decode": "offsets", "strides": [4],
         "anchors": [[1]], "candidates": 5}, "make 4 candidates, not 5",
    ),
    "embedding, labels alone": ({"kind": "embedding", "size": 4, "labels": ["a"]}, "go together"),
    "multi-label, thresholds": (
        {"kind": "multi-label", "labels": ["a", "b", "c"], "thresholds": [0.1, 0.2]}, "one number for all labels",
    ),
    "multi-label, twice": ({"kind": "multi-label", "labels": ["a", "a"]}, "all different"),
    "regression, bounds": (
        {"kind": "regression", "quantities": [{"name": "t", "low": 2, "high": 1}]}, "low must be below high",
    ),
    "regression, names": ({"kind": "regression", "quantities": [{"name": "t"}, {"name": "t"}]}, "different names"),
    "regression, nothing": ({"kind": "regression", "quantities": []}, "one or more quantities"),
    "vector, sound": ({"kind": "vector", "shape": [128], "publish": "pcm16"}, "needs rate_hz"),
    "vector, names": ({"kind": "vector", "shape": [3], "names": ["a"]}, "names must be 3"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_an_output_that_makes_no_sense_is_refused(name: str) -> None:
    table, words = REFUSED[name]
    data = orjson.loads(dump(whole(FACES))) | {"output": table}
    with pytest.raises(ManifestError, match=f"output.*{words}"):
        parse(orjson.dumps(data))


def test_an_event_of_answers_without_labels_is_refused() -> None:
    output, _ = OUTPUTS["regression"]
    with pytest.raises(ValueError, match="event 'hot': the model's answers have no labels; take the event out"):
        dataclasses.replace(whole(output), events=(EventRule(name="hot", label="hot"),))
