"""One list of checks over every task: what `edge_runtime.model.tasks.Task` promises."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import edge_runtime
from edge_runtime.errors import CloudRejected
from edge_runtime.manifest import MultiLabelOutput
from edge_runtime.manifest.outputs import (
    AnomalyOutput,
    DetectionOutput,
    EmbeddingOutput,
    Quantity,
    RegressionOutput,
    TextOutput,
    VectorOutput,
)
from edge_runtime.manifest.surround import Fusion, Gain, Surround, SurroundGate
from edge_runtime.model.tasks import Finding, ReplyValues, Task
from edge_runtime.model.tasks.answers import CLASSIFICATION, own_fields, suspected, types_of
from edge_runtime.model.tasks.build import build_task
from edge_runtime.signal.windowing.window import Window
from edge_runtime.types import Correction, Float32, Prediction
from tests.edge_runtime.manifests import manifest


@dataclass(frozen=True)
class Case:
    """A task, and answers of a model of its kind."""

    name: str
    task: Task
    answers: Callable[[int, int], Float32]
    """n rows by a seed."""
    replies: tuple[ReplyValues, ...] = ("probabilities",)
    """Kinds of numbers that a cloud may answer with, for which `answers` will do; none: it is not asked."""
    scores_travel: bool = True
    """The cloud's answer says as much as the device's."""
    label_says_all: bool = True
    """Two answers are the same where their labels are."""


def probabilities(n: int, seed: int) -> Float32:
    drawn = np.random.default_rng(seed).dirichlet((1.0, 1.0), n)
    return drawn.astype(np.float32)


def uniform(*shape: int, low: float = 0.0, high: float = 1.0) -> Callable[[int, int], Float32]:
    return lambda n, seed: np.random.default_rng(seed).uniform(low, high, (n, *shape)).astype(np.float32)


def files(name: str) -> Float32:
    examples = np.random.default_rng(0).uniform(size=(9, 4)).astype(np.float32)
    examples[:, 0] = np.arange(9) % 3
    normal = np.linspace(0.05, 0.95, 40, dtype=np.float32)
    return {"normal.npy": normal, "examples.npy": examples, "few.npy": examples[:2]}[name]


ROOM = RegressionOutput(
    quantities=(
        Quantity(name="t", unit="Cel", half_width=0.2, low=0.1, offset=0.0, scale=2.0),
        Quantity(name="p", unit="kW", half_width=0.1, widest=1.0),
    )
)
CASES = [
    Case("anomaly", build_task(manifest(output=AnomalyOutput(threshold=0.5), threshold=0.3)), uniform(1)),
    Case(
        "anomaly, normal scores",
        build_task(manifest(output=AnomalyOutput(normal="normal.npy", false_alarm_rate=0.3)), files=files),
        uniform(1),
    ),
    Case("classification", build_task(manifest(score="margin")), probabilities, ("probabilities", "logits")),
    Case(
        "classification, gain of asking, fused",
        build_task(
            manifest(
                surround=Surround(
                    gate=SurroundGate(
                        score="gain", threshold=0.45, gain=Gain(bias=(0.02, -0.05), confidence=0.3, margin=0.05)
                    ),
                    fusion=Fusion(device=0.7, cloud=0.4, bias=(0.1, -0.1)),
                )
            )
        ),
        probabilities,
        ("probabilities", "logits"),
    ),
    Case(
        "detection",
        build_task(manifest(output=DetectionOutput(labels=("a",), height=9, width=9, candidates=1))),
        uniform(5),
        label_says_all=False,
    ),
    Case(
        "detection, several",
        build_task(
            manifest(output=DetectionOutput(labels=("a", "b"), height=9, width=9, candidates=4), threshold=0.3)
        ),
        uniform(24),
        label_says_all=False,
    ),
    Case(
        "embedding",
        build_task(
            manifest(output=EmbeddingOutput(size=3, labels=("a", "b", "c"), examples="examples.npy"), threshold=0.5),
            files=files,
        ),
        uniform(3),
        scores_travel=False,
    ),
    Case(
        "embedding, l2",
        build_task(
            manifest(
                output=EmbeddingOutput(
                    size=3, labels=("a", "b"), examples="few.npy", distance="l2", k=1, farthest=0.6
                ),
                threshold=0.5,
            ),
            files=files,
        ),
        uniform(3),
        scores_travel=False,
    ),
    Case("multi-label", build_task(manifest(output=MultiLabelOutput(labels=("a", "b")), threshold=0.5)), uniform(2)),
    Case(
        "multi-label, logits of rows",
        build_task(manifest(output=MultiLabelOutput(labels=("a",), values="logit", rows=3), threshold=0.5)),
        uniform(3, 1, low=-3, high=3),
    ),
    Case("regression", build_task(manifest(output=ROOM)), uniform(2, high=0.3), label_says_all=False),
    Case(
        "regression, no interval",
        build_task(manifest(output=RegressionOutput(quantities=(Quantity(name="t", high=0.5),)))),
        uniform(1),
        label_says_all=False,
    ),
    Case(
        "text",
        build_task(manifest(output=TextOutput(characters=("a", "b"), rows=4), threshold=0.6)),
        uniform(4, 3),
        scores_travel=False,
    ),
    Case(
        "text, logits, the blank last",
        build_task(manifest(output=TextOutput(characters=("a", "b"), rows=4, blank="last", values="logits"))),
        uniform(4, 3, low=-3, high=3),
        scores_travel=False,
    ),
    Case(
        "vector", build_task(manifest(output=VectorOutput(shape=(3, 2)), threshold=1.1)), uniform(3, 2), (),
        label_says_all=False,
    ),
]  # fmt: skip
ASKED = [case for case in CASES if case.replies]
rows_of = st.tuples(st.integers(1, 40), st.integers(0, 2**32 - 1))


def named(case: Case) -> str:
    return case.name


@pytest.fixture(params=CASES, ids=named)
def case(request: pytest.FixtureRequest) -> Case:
    param: Case = request.param
    return param


def windows(n: int) -> list[Window]:
    blank = np.zeros((4, 2), np.float32)
    return [Window(f"k{i % 3}", 10 * i, 1000 + i / 7, blank, blank, float(i)) for i in range(n)]


def predictions(task: Task, answers: Float32, first: int = 0) -> list[Prediction]:
    of = windows(first + len(answers))[first:]
    return task.predictions(of, answers, task.decide(answers), [float(w.slot) for w in of], ("m/1", "fp32"))


def common(made: Prediction) -> dict[str, Any]:
    return {
        "id": made.id, "key": made.key, "start": made.start, "end": made.end, "route": "cloud", "hard": made.hard,
        "model": "c/1", "variant": "cloud", "latency_ms": 0.0, "supersedes": made.label, "late": False,
    }  # fmt: skip


def corrected(case: Case, mine: Float32, theirs: Float32) -> list[Correction]:
    found = case.task.read_reply(case.task.offer(theirs), len(theirs), case.replies[0])
    pairs = zip(predictions(case.task, mine), found, strict=True)
    return [case.task.correction(one, said(made), common(made)) for made, one in pairs]


def said(made: Prediction) -> Finding:
    return Finding(made.label, made.confidence, made.scores, own_fields(made))


@settings(derandomize=True, deadline=None, max_examples=40)
@given(rows=rows_of)
@pytest.mark.parametrize("case", CASES, ids=named)
def test_a_window_gets_the_same_answer_alone_and_among_others(case: Case, rows: tuple[int, int]) -> None:
    answers = case.answers(*rows)
    together = predictions(case.task, answers)
    assert together == [predictions(case.task, answers[i : i + 1], i)[0] for i in range(len(answers))]


def test_a_prediction_has_the_windows_name_and_time_and_the_decision(case: Case) -> None:
    answers = case.answers(9, 1)
    decision = case.task.decide(answers)
    made = predictions(case.task, answers)
    assert [p.id for p in made] == [window.id for window in windows(9)]
    assert [p.hard for p in made] == decision.hard
    assert not case.task.asked or {True, False} == set(decision.hard), "the case shows both"
    assert all(0 <= trust <= 1 for trust in decision.trust)
    for p, window in zip(made, windows(9), strict=True):
        assert (p.key, p.route, p.model, p.variant) == (window.key, "local", "m/1", "fp32")
        assert p.start == pytest.approx(window.start, abs=1e-6)
        assert p.end == pytest.approx(p.start + 0.4, abs=2e-6)  # four samples at 10 Hz
        assert p.latency_ms == window.slot


def test_a_line_of_json_has_the_fields_of_every_answer_first_and_the_tasks_own_behind(case: Case) -> None:
    (made,) = predictions(case.task, case.answers(1, 1))
    shown = orjson.loads(made.to_json())
    first = [field.name for field in fields(Prediction)]
    assert list(shown)[: len(first)] == first
    assert {name: shown[name] for name in list(shown)[len(first) :]} == own_fields(made)
    kind = case.name.split(",")[0]
    assert shown.get("task", "classification") == kind
    assert (types_of(shown) is CLASSIFICATION) == (kind == "classification")


def test_a_suspect_answer_keeps_all_of_its_fields(case: Case) -> None:
    (made,) = predictions(case.task, case.answers(1, 1))
    before = orjson.loads(made.to_json())
    suspect = suspected(made, "rate,stuck")
    assert isinstance(suspect, type(made))
    assert orjson.loads(suspect.to_json()) == before | {"suspect": "rate,stuck"}


def test_the_last_word_on_a_case_is_made_of_what_was_stored_of_it(case: Case) -> None:
    (made,) = predictions(case.task, case.answers(1, 1))
    own = orjson.loads(orjson.dumps(own_fields(made)))
    stated = {name: getattr(made, name) for name in ("id", "key", "start", "end", "label", "confidence", "scores")}
    final = types_of(own).final(
        **stated, route="local", hard=True, model="m/1", variant="fp32", latency_ms=0.0, final=True, reason="expired",
        **own,
    )  # fmt: skip
    assert orjson.loads(final.to_json())["reason"] == "expired"
    assert {name: vars(final)[name] for name in own} == own


def test_what_it_is_given_stays_as_it_is_and_is_not_kept(case: Case) -> None:
    answers = case.answers(5, 2)
    before = answers.copy()
    first = predictions(case.task, answers)
    as_json = [p.to_json() for p in first]
    np.testing.assert_array_equal(answers, before)
    answers[:] = 0  # the engine's buffer, used again
    assert [p.to_json() for p in first] == as_json


def test_an_answer_that_is_not_a_number_is_hard(case: Case) -> None:
    answers = case.answers(3, 3)
    answers[1] = np.nan
    decision = case.task.decide(answers)
    assert decision.hard[1]
    assert not decision.trust[1] > 0
    assert all(orjson.loads(one.to_json()) for one in predictions(case.task, answers))
    fine = [0, 2]
    assert [decision.trust[i] for i in fine] == case.task.decide(answers[fine]).trust
    assert case.task.agree(answers, answers)[::2] == [True, True]


@settings(derandomize=True, deadline=None, max_examples=40)
@given(rows=rows_of)
@pytest.mark.parametrize("case", CASES, ids=named)
def test_models_agree_with_themselves_and_with_each_other_both_ways(case: Case, rows: tuple[int, int]) -> None:
    n, seed = rows
    one, other = case.answers(n, seed), case.answers(n, seed + 1)
    assert case.task.agree(one, one) == [True] * n
    assert case.task.agree(one, other) == case.task.agree(other, one)
    if case.label_says_all:
        shown = zip(predictions(case.task, one), predictions(case.task, other), strict=True)
        assert case.task.agree(one, other) == [a.label == b.label for a, b in shown]


def test_a_server_offers_tensors_as_it_says(case: Case) -> None:
    offered = case.task.offer(case.answers(4, 4))
    assert list(offered) == [spec.name for spec in case.task.outputs]
    for spec in case.task.outputs:
        assert spec.shape[0] == -1
        assert spec.accepts(offered[spec.name].shape)
        assert len(offered[spec.name]) == 4
        assert offered[spec.name].dtype == spec.dtype


@pytest.mark.parametrize("case", ASKED, ids=named)
def test_what_a_server_offers_is_what_the_cloud_has_to_answer(case: Case) -> None:
    answers = case.answers(40, 4)
    made = predictions(case.task, answers)
    for found, mine in zip(case.task.read_reply(case.task.offer(answers), 40, case.replies[0]), made, strict=True):
        assert found.label == mine.label
        assert not case.scores_travel or found.scores == pytest.approx(mine.scores, abs=2e-6)
        assert 0 <= found.confidence <= 1


@pytest.mark.parametrize("case", ASKED, ids=named)
def test_a_reply_that_makes_no_sense_is_refused(case: Case) -> None:
    good = case.task.offer(case.answers(3, 5))
    name = case.task.outputs[0].name
    nonsense = good[name].copy()
    nonsense[1] = np.inf
    for kind in case.replies:
        assert len(case.task.read_reply(good, 3, kind)) == 3
        other = np.zeros(good[name].shape) if good[name].dtype == object else good[name].astype("S")
        for bad in (good[name][:2], good[name][:, :0], other, nonsense):
            with pytest.raises(CloudRejected, match="the cloud answered"):
                case.task.read_reply({**good, name: bad}, 3, kind)
        with pytest.raises(CloudRejected, match="the cloud answered nothing"):
            case.task.read_reply({}, 3, kind)


@pytest.mark.parametrize("case", ASKED, ids=named)
def test_the_cloud_upholds_an_answer_or_does_not(case: Case) -> None:
    one, other = case.answers(40, 6), case.answers(40, 7)
    other[0] = one[0]
    same = case.task.agree(one, other)
    assert {True, False} == set(same), "the case shows both"
    assert all(case.task.upheld(made) for made in corrected(case, one, one))
    assert [case.task.upheld(made) for made in corrected(case, one, other)] == same


@pytest.mark.parametrize("case", ASKED, ids=named)
def test_a_correction_survives_the_disk(case: Case) -> None:
    answers = case.answers(1, 6)
    (made,) = corrected(case, answers, answers)
    written = orjson.loads(made.to_json())
    assert types_of(written).correction(**written) == made


@pytest.mark.parametrize("case", ASKED, ids=named)
def test_a_case_that_nothing_on_the_device_answered_is_not_upheld(case: Case) -> None:
    answers = case.answers(1, 6)
    (found,) = case.task.read_reply(case.task.offer(answers), 1, case.replies[0])
    nothing = case.task.types.prediction("k@0", "k", 1.0, 2.0, "", 0.0, [], "local", True, "m/1", "none", 0.0)
    assert not case.task.upheld(case.task.correction(found, said(nothing), common(nothing)))
    assert types_of(own_fields(nothing)) is case.task.types


def test_no_other_room_takes_the_largest_of_several_scores() -> None:
    package = Path(edge_runtime.__file__).parent
    sources = {path.relative_to(package).as_posix(): path.read_text("utf-8") for path in package.rglob("*.py")}
    # The vote of an ensemble is a stage; bins of a filter; the likeliest fault of a sensor.
    elsewhere = {"model/chain/stages.py", "signal/frontends/mel_bank.py"}
    elsewhere |= {f"signal/drift/{name}.py" for name in ("monitor", "words")}
    assert {name for name, text in sources.items() if "argmax" in text} - elsewhere <= {
        f"model/tasks/{name}.py" for name in ("classification", "embedding", "text")
    }
