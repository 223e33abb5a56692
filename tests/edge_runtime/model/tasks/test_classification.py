from __future__ import annotations

import numpy as np
import orjson
import pytest

from edge_runtime.errors import CloudRejected
from edge_runtime.manifest import GateSpec
from edge_runtime.manifest.surround import Fusion, Gain, Surround, SurroundGate
from edge_runtime.model.tasks import Finding
from edge_runtime.model.tasks.answers import FusedCorrection
from edge_runtime.model.tasks.classification import PROBABILITIES, Classification, Gate
from edge_runtime.operate.observe.live import agrees
from edge_runtime.types import Correction
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


COMMON = {
    "id": "k@1", "key": "k", "start": 1.0, "end": 2.0, "route": "cloud", "hard": True, "model": "c/1",
    "variant": "cloud", "latency_ms": 0.0, "supersedes": "low", "late": False,
}  # fmt: skip
BOTH = Fusion(device=0.5, cloud=0.5)
LOW = Finding("low", 0.8, [0.8, 0.2])
HIGH = Finding("high", 0.6, [0.4, 0.6])


def fusing(fusion: Fusion | None, labels: tuple[str, ...] = ()) -> Classification:
    return Classification(manifest(surround=Surround(gate=SurroundGate(), fusion=fusion)), labels=labels)


def test_a_correction_is_of_both_and_says_what_the_cloud_answered() -> None:
    task = fusing(BOTH)
    fused = task.correction(HIGH, LOW, COMMON)
    assert isinstance(fused, FusedCorrection)
    assert (fused.label, fused.cloud_label, fused.cloud_confidence, fused.supersedes) == ("low", "high", 0.6, "low")
    assert fused.confidence == fused.scores[0] == pytest.approx(0.6202, abs=1e-4)
    assert sum(fused.scores) == pytest.approx(1)


def test_the_cloud_upholds_by_its_own_word_and_not_by_what_came_of_both() -> None:
    task = fusing(BOTH)
    kept, agreed = task.correction(HIGH, LOW, COMMON), task.correction(Finding("low", 0.9, [0.9, 0.1]), LOW, COMMON)
    assert kept.label == agreed.label == "low"
    assert [task.upheld(kept), task.upheld(agreed)] == [False, True]
    assert [agrees(kept), agrees(agreed)] == [False, True]


def test_the_clouds_order_of_labels_is_put_into_the_bundles() -> None:
    turned = fusing(BOTH, labels=("high", "low")).correction(Finding("high", 0.6, [0.6, 0.4]), LOW, COMMON)
    assert turned == fusing(BOTH).correction(HIGH, LOW, COMMON)


@pytest.mark.parametrize(
    ("task", "mine"),
    [
        (fusing(None), LOW),
        (Classification(manifest()), LOW),
        (fusing(BOTH), Finding("", 0.0, [])),
        (fusing(BOTH), Finding("low", 0.0, [None, 0.2])),  # type: ignore[list-item]  # not a number, as JSON has it
        (fusing(BOTH, labels=("low", "high", "other")), LOW),
        (fusing(BOTH, labels=("a", "b")), LOW),
    ],
    ids=["no fusion", "no surround", "no answer", "not a number", "more labels", "other labels"],
)
def test_the_clouds_answer_stands_alone_and_has_the_fields_of_before(task: Classification, mine: Finding) -> None:
    correction = task.correction(HIGH, mine, COMMON)
    assert correction == Correction(label="high", confidence=0.6, scores=[0.4, 0.6], **COMMON)  # type: ignore[arg-type]
    assert "cloud_label" not in orjson.loads(correction.to_json())


GAIN = Gain(bias=(0.1, -0.6, 0.0), confidence=0.5, margin=0.25)


def test_the_trust_is_half_of_one_minus_the_expected_gain_of_asking() -> None:
    p = rows([0.7, 0.2, 0.1], [0.3, 0.4, 0.3])
    gain = np.array([0.1, -0.6]) + 0.5 * np.array([0.3, 0.6]) + 0.25 * np.array([0.5, 0.9])
    decision = Gate(SurroundGate(score="gain", threshold=0.4, gain=GAIN)).decide(p)
    assert decision.best == [0, 1]
    assert decision.trust == pytest.approx(0.5 - gain / 2, abs=1e-4)
    assert decision.hard == [True, False]


def test_a_gain_beyond_what_can_be_is_taken_for_all_there_is() -> None:
    p = rows([0.6, 0.4], [0.4, 0.6])
    gate = Gate(SurroundGate(score="gain", threshold=0.5, gain=Gain(bias=(-3.0, 3.0))))
    assert gate.decide(p) == ([0, 1], [1.0, 0.0], [False, True])
    assert gate.decide(p[1:]) == ([1], [0.0], [True])


def test_the_gate_of_what_surrounds_the_network_takes_its_own_gates_place_and_the_operators_threshold() -> None:
    surround = Surround(gate=SurroundGate(score="margin", threshold=0.3))
    p = rows([0.7, 0.3])  # below the network's own .8, and led by .4
    assert Classification(manifest()).decide(p).hard == [True]
    assert Classification(manifest(surround=surround)).decide(p).hard == [False]
    assert Classification(manifest(surround=surround), threshold=0.5).decide(p).hard == [True]
