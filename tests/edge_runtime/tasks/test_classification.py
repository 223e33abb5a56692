from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_runtime.errors import CloudRejected
from edge_runtime.manifest import GateSpec
from edge_runtime.tasks.classification import PROBABILITIES, Classification, Gate
from tests.edge_runtime.manifests import manifest


def rows(*probabilities: list[float]) -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
    return np.array(probabilities, np.float32)


@pytest.mark.parametrize(
    ("score", "trust"),
    [("confidence", [0.7, 0.4, 1 / 3]), ("margin", [0.5, 0.1, 0.0]), ("entropy", [0.2702, 0.0088, 0.0])],
)
def test_scores_are_what_the_papers_say(score: str, trust: list[float]) -> None:
    p = rows([0.7, 0.2, 0.1], [0.3, 0.4, 0.3], [1 / 3, 1 / 3, 1 / 3])
    decision = Gate(GateSpec(score=score, threshold=0.5)).decide(p)  # type: ignore[arg-type]
    assert decision.best[:2] == [0, 1]
    assert decision.trust == pytest.approx(trust, abs=1e-3)


def test_hard_is_strictly_below_the_threshold_and_the_operator_may_move_it() -> None:
    p = rows([0.75, 0.25], [0.5, 0.5])
    assert Gate(GateSpec(threshold=0.75)).decide(p).hard == [False, True]
    assert Gate(GateSpec(threshold=0.75), threshold=0.0).decide(p).hard == [False, False]
    assert Gate(GateSpec(threshold=0.75), threshold=1.1).decide(p).hard == [True, True]


def test_an_answer_that_is_not_a_number_is_hard() -> None:
    assert Gate(GateSpec(threshold=0.0)).decide(rows([np.nan, np.nan])).hard == [True]


@given(st.lists(st.lists(st.floats(0, 1, width=32), min_size=3, max_size=3), min_size=2, max_size=9), st.floats(0, 1))
def test_a_window_gets_the_same_verdict_alone_and_among_others(p: list[list[float]], threshold: float) -> None:
    gate = Gate(GateSpec(threshold=threshold))
    alone = [gate.decide(rows(row)) for row in p]
    assert gate.decide(rows(*p)) == tuple([one[i][0] for one in alone] for i in range(3))


def test_logits_of_the_cloud_become_probabilities() -> None:
    (found,) = Classification(manifest()).read_reply({PROBABILITIES: np.array([[0.0, np.log(3)]], "f4")}, 1, "logits")
    assert found.label == "high"
    assert found.confidence == pytest.approx(0.75)


def test_the_cloud_may_know_other_labels() -> None:
    (found,) = Classification(manifest(), labels=("a", "b", "c")).read_reply(
        {PROBABILITIES: rows([0.1, 0.2, 0.7])}, 1, "probabilities"
    )
    assert found.label == "c"
    assert found.scores == pytest.approx([0.1, 0.2, 0.7])


@pytest.mark.parametrize("values", [[2.0, -1.0], [0.5, 0.4], [0.9, 0.2]])
def test_numbers_that_are_no_probabilities_are_refused_with_the_setting_to_look_at(values: list[float]) -> None:
    with pytest.raises(CloudRejected, match="output_kind"):
        Classification(manifest()).read_reply({PROBABILITIES: rows(values)}, 1, "probabilities")


@given(st.lists(st.floats(-80, 80, width=32), min_size=2, max_size=2))
def test_a_model_agrees_with_one_that_is_less_sure_of_the_same_label(logits: list[float]) -> None:
    one = rows(logits)
    assert Classification(manifest()).agree(one, one / np.float32(2)) == [True]
