from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_runtime.errors import BundleError, CloudRejected
from edge_runtime.manifest.outputs import EmbeddingOutput
from edge_runtime.model.tasks import Finding
from edge_runtime.model.tasks.embedding import EmbeddingTask, StoredExamples
from edge_runtime.types import Float32
from tests.edge_runtime.manifests import manifest

EXAMPLES = np.array([[0, 1, 0], [0, 1, 0.1], [1, 0, 1], [1, -1, 0.5]], np.float32)


def task(examples: Float32 | None = EXAMPLES, learnt: StoredExamples | None = None, **more: Any) -> EmbeddingTask:
    table: dict[str, Any] = {"size": 2}
    if examples is not None:
        table |= {"labels": ("east", "north"), "examples": "e.npy"}
    output = EmbeddingOutput(**table | more)
    return EmbeddingTask(manifest(output=output), output, None, lambda _: examples, learnt)  # type: ignore[arg-type,return-value]


def one(of: EmbeddingTask, *numbers: float) -> Finding:
    (found,) = of.findings(np.array([numbers], np.float32))
    return found


def test_the_nearest_example_gives_its_label() -> None:
    found = one(task(k=1), 3.0, 0.0)
    assert (found.label, found.own, found.confidence) == ("east", {"distance": 0.0}, 1.0)
    assert found.scores == pytest.approx([1.0, 0.5]), "a right angle is half as near as can be"
    assert one(task(k=1), 0.0, 0.2).label == "north"


def test_of_k_the_nearer_votes_count_more() -> None:
    examples = np.array([[0, 0, 0], [1, 3, 0], [1, 3.1, 0]], np.float32)
    assert one(task(examples, distance="l2", k=3), 1.0, 0.0).label == "north", "2 of 3 votes"
    assert one(task(examples, distance="l2", k=3), 0.1, 0.0).label == "east", "the one is near, the two are far"


def test_trust_is_the_lead_over_the_nearest_of_another_label() -> None:
    examples = np.array([[0, 0, 0], [1, 4, 0]], np.float32)
    assert one(task(examples, distance="l2", k=1), 1.0, 0.0).confidence == pytest.approx(2 / 3)
    assert one(task(examples, distance="l2", k=1), 2.0, 0.0).confidence == 0
    assert one(task(examples[:1], distance="l2", k=1), 2.0, 0.0).confidence == 1, "there is no other label"


def test_what_is_far_from_everything_is_unknown() -> None:
    found = one(task(distance="l2", farthest=1.0), 9.0, 0.0)
    assert (found.label, found.confidence) == ("unknown", 0.0)
    assert found.own["distance"] == pytest.approx(8.0, abs=0.01)


def test_a_bundle_without_examples_knows_nothing_and_learns() -> None:
    assert one(task(None), 1.0, 0.0) == Finding("unknown", 0.0, [], {"distance": None})
    learnt = StoredExamples(("door",), (0,), np.array([[1.0, 0.0]], np.float32))
    found = one(task(None, learnt), 2.0, 0.0)
    assert (found.label, found.scores) == ("door", [1.0])


def test_learnt_examples_stand_behind_those_of_the_bundle() -> None:
    learnt = StoredExamples(("door", "north"), (0, 1, 0), np.array([[-1, 0], [1, 0.01], [-1, 1]], np.float32))
    of = task(learnt=learnt, k=1)
    assert one(of, -1.0, 0.0).label == "door"
    assert one(of, 1.0, 0.01).label == "north"
    assert len(one(of, 1.0, 0.0).scores) == 3


@given(st.lists(st.floats(-9, 9, width=32), min_size=2, max_size=2).filter(lambda x: abs(x[0]) + abs(x[1]) > 0.1))
def test_an_angle_does_not_depend_on_the_length(numbers: list[float]) -> None:
    short, long = one(task(), *numbers), one(task(), *(4 * x for x in numbers))
    assert short.scores == pytest.approx(long.scores, abs=1e-6)


@pytest.mark.parametrize(
    ("examples", "words"),
    [(np.zeros((3, 2), "f4"), "shape"), (np.full((3, 3), 2, "f4"), "places"), (np.full((3, 3), 0.5, "f4"), "places")],
    ids=["shape", "no such label", "half a label"],
)
def test_examples_that_do_not_fit_are_refused(examples: Float32, words: str) -> None:
    with pytest.raises(BundleError, match=f"e.npy: .*{words}"):
        task(examples)


@pytest.mark.parametrize("label", [b"\xff", b"", "", 7])
def test_a_label_that_is_no_text_is_refused(label: object) -> None:
    with pytest.raises(CloudRejected, match="no text"):
        task().read_reply({"label": np.array([[label]], object)}, 1, "probabilities")


def test_the_cloud_may_know_a_label_that_the_device_does_not() -> None:
    (found,) = task().read_reply({"label": np.array([[b"west"]], object)}, 1, "probabilities")
    assert (found.label, found.confidence, found.scores) == ("west", 1.0, [0.0, 0.0])
