from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.mlperf_tiny import read_png
from edge_runtime.base.media.resize import resize
from edge_runtime.errors import BundleError, CloudRejected
from edge_runtime.manifest.outputs import DetectionOutput
from edge_runtime.model import engines
from edge_runtime.model.engines.base import EngineOptions
from edge_runtime.model.tasks import Finding
from edge_runtime.model.tasks.boxes import overlap, paired, suppress
from edge_runtime.model.tasks.detection import Detection
from edge_runtime.types import Float32
from tests.edge_runtime.manifests import manifest

BOX = [0.25, 0.5, 0.75, 1.0]
"""Of a picture 40 wide and 20 high: pixels 10 to 30 and 10 to 20."""


def contract(**more: Any) -> DetectionOutput:
    table: dict[str, Any] = {"labels": ("cat", "dog"), "height": 20, "width": 40, "candidates": 1}
    return DetectionOutput(**table | more)


def task(files: Callable[[str], Float32] | None = None, threshold: float | None = None, **more: Any) -> Detection:
    return Detection(manifest(output=contract(**more)), contract(**more), threshold, files=files)


def one(of: Detection, numbers: Any) -> Finding:
    (found,) = of.findings(np.asarray(numbers, np.float32).reshape(1, -1))
    return found


def logit(p: float) -> float:
    return float(np.log(p / (1 - p)))


BOXES: dict[str, tuple[dict[str, Any], list[float]]] = {
    "corners": ({}, BOX),
    "corners, vertical first": ({"order": "yx"}, [0.5, 0.25, 1.0, 0.75]),
    "corners, pixels": ({"unit": "pixels"}, [10, 10, 30, 20]),
    "centre": ({"decode": "centre"}, [0.5, 0.75, 0.5, 0.5]),
    "centre, pixels": ({"decode": "centre", "unit": "pixels"}, [20, 15, 20, 10]),
    "landmarks behind": ({"box_numbers": 6}, [*BOX, 9, 9]),
    # One cell of 40 pixels, whose centre is (20, 20), clipped to (.5, 1): 5 pixels above it.
    "offsets": ({"decode": "offsets", "strides": (40,), "anchors": ((8,),)}, [0, -5, 20, 10]),
    # The prior's centre is the corner of the cell: 20 pixels to the left, and its side is 40 pixels.
    "priors at the corner": (
        {"decode": "priors", "strides": (40,), "anchors": ((40,),), "priors_at": "corner", "variances": (1.0, 1.0)},
        [0.5, 0.75, np.log(0.5), np.log(0.5)],  # higher than the picture, it is cut to its height
    ),
    # The prior is 8 pixels square: .2 by .4 of the picture; shifts are tenths of it, sizes e to fifths.
    "priors": (
        {"decode": "priors", "strides": (40,), "anchors": ((8,),)},
        [0, -0.25 / (0.1 * 0.4), np.log(0.5 / 0.2) / 0.2, np.log(0.5 / 0.4) / 0.2],
    ),
}


@pytest.mark.parametrize("name", BOXES)
def test_numbers_of_a_box_are_decoded(name: str) -> None:
    more, numbers = BOXES[name]
    found = one(task(**more), [*numbers, 0.1, 0.9])
    assert found.own["boxes"] == [{"label": "dog", "score": pytest.approx(0.9), "box": pytest.approx(BOX, abs=1e-5)}]
    assert found.label == "1 x dog"
    assert found.scores == pytest.approx([0.0, 0.9])
    assert found.confidence == pytest.approx(0.8), "both are as sure"


def test_rows_of_a_model_that_has_chosen_hold_box_score_and_label() -> None:
    of = task(candidates=3, rows="chosen", unit="pixels", iou=1.0)
    rows = [[10, 10, 30, 20, 0.9, 1], [0, 0, 20, 10, 0.7, 0], [0, 0, 20, 10, 0.8, 7]]
    boxes = one(of, rows).own["boxes"]
    assert [(box["label"], box["score"]) for box in boxes] == [("dog", pytest.approx(0.9)), ("cat", pytest.approx(0.7))]
    assert boxes[0]["box"] == pytest.approx(BOX)


def test_priors_may_come_from_a_file() -> None:
    more: dict[str, Any] = {"decode": "priors", "priors": "priors.npy"}
    of = task(lambda _: np.array([[0.5, 0.75, 0.5, 0.5]], np.float32), **more)
    assert one(of, [0, 0, 0, 0, 0.9, 0.1]).own["boxes"][0]["box"] == BOX
    with pytest.raises(BundleError, match=r"priors.npy: has the shape \(2, 4\), the manifest's output calls for"):
        task(lambda _: np.zeros((2, 4), np.float32), **more)


SCORES: dict[str, tuple[dict[str, Any], list[float]]] = {
    "probability": ({}, [0.1, 0.9]),
    "logit": ({"values": "logit"}, [logit(0.1), logit(0.9)]),
    "logits": ({"values": "logits"}, [np.log(0.1), np.log(0.9)]),
    "background": ({"background": True}, [0.3, 0.1, 0.9]),
    "objectness": ({"objectness": True}, [0.95, 0.1 / 0.95, 0.9 / 0.95]),
    "objectness, logits": ({"objectness": True, "values": "logits"}, [100.0, np.log(0.1), np.log(0.9)]),
    "joined": ({"rows": "joined"}, [0.1, 0.9]),
    "listed": ({"rows": "listed"}, [1.0, 0.9]),
}


@pytest.mark.parametrize("name", SCORES)
def test_scores_of_a_candidate_are_read(name: str) -> None:
    more, numbers = SCORES[name]
    (box,) = one(task(**more), [*BOX, *numbers]).own["boxes"]
    assert box == {"label": "dog", "score": pytest.approx(0.9, abs=1e-6), "box": BOX}


def test_a_number_of_no_label_is_no_box() -> None:
    assert one(task(rows="listed"), [*BOX, 7.0, 0.9]).own["boxes"] == []
    assert one(task(rows="listed", background=True), [*BOX, 0.0, 0.9]).own["boxes"] == []


def test_a_grid_of_yolo_is_decoded_cell_by_cell() -> None:
    """By hand: a head of 2 by 4 cells of 10 pixels; the object in cell (2, 1), its anchor 10 by 5 pixels."""
    of = task(decode="grid", candidates=0, strides=(10,), anchors=((4, 4, 10, 5),))
    head = np.full((2, 4, 2, 7), -20.0)
    head[1, 2, 1] = [logit(0.5), logit(0.25), np.log(2), np.log(2), logit(0.95), logit(0.1), logit(0.9)]
    (box,) = one(of, head).own["boxes"]
    # Centre (25, 12.5) pixels, 20 by 10 large.
    assert box["box"] == pytest.approx([15 / 40, 7.5 / 20, 35 / 40, 17.5 / 20])
    assert box["score"] == pytest.approx(0.95 * 0.9)


def test_overlapping_boxes_of_a_label_are_one_and_those_of_another_label_are_not() -> None:
    of = task(candidates=3, threshold=0.0)
    boxes = [[0, 0, 0.5, 0.5], [0, 0, 0.5, 0.4], [0.01, 0, 0.5, 0.5]]
    found = one(of, [*np.ravel(boxes), 0.9, 0, 0.8, 0, 0, 0.7])
    assert [(box["label"], round(box["score"], 3)) for box in found.own["boxes"]] == [("cat", 0.9), ("dog", 0.7)]
    assert found.label == "1 x cat, 1 x dog"
    assert one(task(candidates=3, iou=0.9), [*np.ravel(boxes), 0.9, 0, 0.8, 0, 0, 0.7]).label == "2 x cat, 1 x dog"
    assert one(task(candidates=3, most=1), [*np.ravel(boxes), 0.9, 0, 0.8, 0, 0, 0.7]).label == "1 x cat"


def test_trust_counts_boxes_just_too_faint_to_be_given() -> None:
    assert one(task(), [*BOX, 0.04, 0.0]).confidence == 1, "nothing is there, without a doubt"
    faint = one(task(), [*BOX, 0.45, 0.0])
    assert (faint.label, faint.own["boxes"]) == ("", [])
    assert faint.confidence == pytest.approx(0.1)
    assert one(task(score=0.9), [*BOX, 0.95, 0.0]).confidence == pytest.approx(0.5), "half-way from .9 to 1"


def test_numbers_beyond_any_picture_are_no_error() -> None:
    more: dict[str, Any] = {"decode": "priors", "strides": (40,), "anchors": ((8,),), "values": "logit"}
    assert one(task(**more), [1e30, -1e30, 1e30, 1e30, 1e30, -1e30]).own["boxes"] == []


def draw_boxes(n: int, seed: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """A few places, and scores that repeat."""
    rng = np.random.default_rng(seed)
    low = rng.integers(0, 6, (n, 2)) / 10
    return np.concatenate([low, low + rng.integers(1, 5, (n, 2)) / 10], axis=1), rng.integers(1, 5, n) / 5


@settings(derandomize=True, deadline=None)
@given(n=st.integers(0, 30), seed=st.integers(0, 9999), iou=st.sampled_from([0.1, 0.3, 0.7]))
def test_the_order_of_candidates_does_not_matter(n: int, seed: int, iou: float) -> None:
    boxes, scores = draw_boxes(n, seed)
    order = np.random.default_rng(seed + 1).permutation(n)
    first = suppress(boxes, scores, iou, n)
    again = order[suppress(boxes[order], scores[order], iou, n)]
    chosen = [[*boxes[i], scores[i]] for i in first]
    assert chosen == [[*boxes[i], scores[i]] for i in again]
    for place, i in enumerate(first):  # what remains overlaps nothing that remains, and what left overlaps a better one
        assert all(overlap(boxes[i], boxes[[k]])[0] <= iou for k in first[:place])
    for i in set(range(n)) - set(first):
        assert any(scores[k] >= scores[i] and overlap(boxes[k], boxes[[i]])[0] > iou for k in first)


@settings(derandomize=True, deadline=None)
@given(n=st.integers(1, 6), seed=st.integers(0, 9999))
def test_boxes_pair_both_ways(n: int, seed: int) -> None:
    one_side, _ = draw_boxes(n, seed)
    other, _ = draw_boxes(n, seed + 1)
    assert paired(one_side.tolist(), one_side.tolist()[::-1], 0.5)
    assert paired(one_side.tolist(), other.tolist(), 0.5) == paired(other.tolist(), one_side.tolist(), 0.5)
    assert not paired(one_side.tolist(), other.tolist()[1:], 0.5)


def test_the_cloud_may_answer_any_number_of_boxes() -> None:
    reply = {
        "boxes": np.array([[BOX, BOX, BOX], [BOX, BOX, BOX]], np.float32),
        "scores": np.array([[0.9, 0.8, 0], [0, 0, 0]], np.float32),
        "labels": np.array([[1, 0, -1], [-1, -1, -1]]),
    }
    first, second = task().read_reply(reply, 2, "probabilities")
    assert [box["label"] for box in first.own["boxes"]] == ["dog", "cat"]
    assert (second.label, second.own["boxes"]) == ("", [])
    for name, value, words in (
        ("labels", np.full((2, 3), 2), "label 2 where 2 are known"),
        ("labels", np.zeros((2, 2), int), "where 'labels' INT64"),
        ("scores", np.full((2, 3), 1.5, np.float32), "not 0 to 1"),
    ):
        with pytest.raises(CloudRejected, match=words):
            task().read_reply({**reply, "labels": np.zeros((2, 3), int), name: value}, 2, "probabilities")


# -- real models

FACE = [0.347, 0.222, 0.690, 0.583]
"""Where the face of the portrait is, by the models' own code."""
FACES = DetectionOutput(
    labels=("face",),
    height=240,
    width=320,
    decode="priors",
    background=True,
    strides=(8, 16, 32, 64),
    anchors=((10, 16, 24), (32, 48), (64, 96), (128, 192, 256)),
)
BLAZE = DetectionOutput(
    labels=("face",),
    height=128,
    width=128,
    decode="offsets",
    values="logit",
    box_numbers=16,
    strides=(8, 16),
    anchors=((1, 1), (1, 1, 1, 1, 1, 1)),
)
PERSONS = DetectionOutput(
    labels=("person",),
    height=128,
    width=160,
    decode="grid",
    strides=(32, 16, 8),
    anchors=((116, 90, 156, 198, 373, 326), (30, 61, 62, 45, 59, 119), (10, 13, 16, 30, 33, 23)),
)


def found_in(shared: Path, file: str, output: DetectionOutput, offset: float, scale: float) -> Finding:
    """Answer of a model to the portrait."""
    path = shared / "models" / file
    kind = "onnxruntime" if path.suffix == ".onnx" else "litert"
    picture = resize(read_png(shared / "data/images-coral/grace_hopper.png"), output.height, output.width)
    window = (picture.astype(np.float32) - np.float32(offset)) / np.float32(scale)
    engine = engines.load(kind, path.read_bytes(), EngineOptions())
    try:
        made = engine.run(np.ascontiguousarray(window.transpose(2, 0, 1) if kind == "onnxruntime" else window)[None])
        # Boxes before scores, or the coarsest grid first: the manifest's `answer` says so in a bundle.
        parts = [np.array(one).reshape(1, -1) for one in sorted(made, key=_place)]
    finally:
        engine.close()
    (found,) = Detection(manifest(output=output), output, None).findings(np.concatenate(parts, axis=1))
    return found


def _place(array: Float32) -> tuple[int, int]:
    return (0, array.size) if array.ndim == 4 else (1, -array.shape[-1])


@pytest.mark.parametrize(
    ("file", "output", "mean", "scale", "there", "least"),
    [
        ("ultra-light-face/version-slim-320_simplified.onnx", FACES, 127, 128, FACE, (0.97, 0.999)),
        ("ultra-light-face/version-slim-320_without_postprocessing.tflite", FACES, 127, 128, FACE, (0.97, 0.999)),
        ("mediapipe-face/face_detection_front.tflite", BLAZE, 127.5, 127.5, FACE, (0.85, 0.85)),
        ("mcunet/detection.tflite", PERSONS, 127.5, 127.5, [0.0, 0.12, 1.0, 1.0], (0.85, 0.0)),
    ],
)
def test_networks_of_others_find_the_face_and_the_person(
    shared: Path, file: str, output: DetectionOutput, mean: float, scale: float, there: Any, least: tuple[float, float]
) -> None:
    """None of them exactly: each makes the picture smaller in another way."""
    (box,) = found_in(shared, file, output, mean, scale).own["boxes"]
    assert overlap(np.array(there), np.array([box["box"]]))[0] > least[0]
    assert box["score"] > least[1]
