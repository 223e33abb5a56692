"""One list of checks over every task: what `edge_runtime.tasks.Task` promises."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import edge_runtime
from edge_runtime.errors import CloudRejected
from edge_runtime.tasks import ReplyValues, Task
from edge_runtime.tasks.build import build_task
from edge_runtime.types import Correction, Float32, Prediction
from edge_runtime.windowing.window import Window
from tests.edge_runtime.manifests import manifest


@dataclass(frozen=True)
class Case:
    """A task, and answers of a model of its kind."""

    name: str
    task: Task
    answers: Callable[[int, int], Float32]
    """n rows by a seed."""
    replies: tuple[ReplyValues, ...]
    """Kinds of numbers that a cloud may answer with, for which `answers` will do."""


def probabilities(n: int, seed: int) -> Float32:
    drawn = np.random.default_rng(seed).dirichlet((1.0, 1.0), n)
    return drawn.astype(np.float32)


CASES = [Case("classification", build_task(manifest(score="margin")), probabilities, ("probabilities", "logits"))]
rows_of = st.tuples(st.integers(1, 40), st.integers(0, 2**32 - 1))


@pytest.fixture(params=CASES, ids=lambda case: case.name)
def case(request: pytest.FixtureRequest) -> Case:
    param: Case = request.param
    return param


def windows(n: int) -> list[Window]:
    blank = np.zeros((4, 2), np.float32)
    return [Window(f"k{i % 3}", 10 * i, 1000 + i / 7, blank, blank, float(i)) for i in range(n)]


def predictions(task: Task, answers: Float32, first: int = 0) -> list[Prediction]:
    of = windows(first + len(answers))[first:]
    return task.predictions(of, answers, task.decide(answers), [float(w.slot) for w in of], ("m/1", "fp32"))


def correction(made: Prediction, label: str) -> Correction:
    return Correction(
        made.id, made.key, made.start, made.end, label, made.confidence, made.scores, "cloud", made.hard, "c/1",
        "cloud", 0.0, supersedes=made.label, late=False,
    )  # fmt: skip


@settings(derandomize=True, deadline=None)
@given(rows=rows_of)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
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
    assert {True, False} == set(decision.hard), "the case shows both"
    assert all(0 <= trust <= 1 for trust in decision.trust)
    for p, window in zip(made, windows(9), strict=True):
        assert (p.key, p.route, p.model, p.variant) == (window.key, "local", "m/1", "fp32")
        assert p.start == pytest.approx(window.start, abs=1e-6)
        assert p.end == pytest.approx(p.start + 0.4, abs=2e-6)  # four samples at 10 Hz
        assert p.latency_ms == window.slot


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
    assert case.task.decide(answers).hard[1]


@settings(derandomize=True, deadline=None)
@given(rows=rows_of)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_models_agree_with_themselves_and_with_each_other_both_ways(case: Case, rows: tuple[int, int]) -> None:
    n, seed = rows
    one, other = case.answers(n, seed), case.answers(n, seed + 1)
    assert case.task.agree(one, one) == [True] * n
    assert case.task.agree(one, other) == case.task.agree(other, one)
    shown = zip(predictions(case.task, one), predictions(case.task, other), strict=True)
    assert case.task.agree(one, other) == [a.label == b.label for a, b in shown]


def test_the_output_that_a_server_offers_is_what_the_cloud_has_to_answer(case: Case) -> None:
    answers = case.answers(4, 4)
    batch, *shape = case.task.output.shape
    assert (batch, *answers.shape[1:]) == (-1, *shape)
    found = case.task.read_reply(answers, 4, case.replies[0])
    made = predictions(case.task, answers)
    assert [(f.label, f.confidence, f.scores) for f in found] == [(p.label, p.confidence, p.scores) for p in made]


def test_a_reply_that_makes_no_sense_is_refused(case: Case) -> None:
    good = case.answers(3, 5)
    nonsense = good.copy()
    nonsense[1] = np.inf
    for kind in case.replies:
        assert len(case.task.read_reply(good, 3, kind)) == 3
        for bad in (None, good[:2], good[:, :1], good.astype("S"), nonsense):
            with pytest.raises(CloudRejected, match="the cloud answered"):
                case.task.read_reply(bad, 3, kind)


def test_the_cloud_upholds_an_answer_or_does_not(case: Case) -> None:
    (made,) = predictions(case.task, case.answers(1, 6))
    assert case.task.upheld(correction(made, made.label))
    assert not case.task.upheld(correction(replace(made), f"not {made.label}"))


def test_no_other_room_takes_the_largest_of_several_scores() -> None:
    package = Path(edge_runtime.__file__).parent
    sources = {path.relative_to(package).as_posix(): path.read_text("utf-8") for path in package.rglob("*.py")}
    elsewhere = {"chain/stages.py", "frontends/mel_bank.py"}  # the vote of an ensemble is a stage; bins of a filter
    assert {name for name, text in sources.items() if "argmax" in text} - elsewhere == {"tasks/classification.py"}
