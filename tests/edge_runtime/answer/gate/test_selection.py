"""Selection asks the cloud by its rules, and pays only for what is sent."""

from __future__ import annotations

import pytest

from edge_runtime.answer.gate.budget import Budget
from edge_runtime.answer.gate.config import GateConfig
from edge_runtime.answer.gate.selection import Selection
from edge_runtime.clock import SimulatedClock
from edge_runtime.metrics import Metrics
from edge_runtime.types import Hard, Prediction, SuspectPrediction
from tests.edge_runtime.answer.escalations import HeldEscalation
from tests.edge_runtime.signal.windowing.empty import window


def prediction(kind: type[Prediction] = Prediction, *, hard: bool, **more: str) -> Prediction:
    return kind("k@0", "k", 0.0, 1.0, "up", 0.5, [], "local", hard, "m", "v", 1.0, **more)


def consider(
    answer: Prediction, *, share: float = 0.0, reason: str = "", history: int = 4
) -> tuple[list[Hard], Metrics]:
    metrics, escalation = Metrics(), HeldEscalation(reason=reason, short=False)
    budget = Budget(GateConfig(max_calls_per_day=1), SimulatedClock())
    selection = Selection(escalation, budget, share, None, metrics)
    selection.history = history
    hard: list[Hard] = []
    for _ in range(2):
        selection.consider(window(0), answer, 0.25, hard, None)
    return hard, metrics


def test_a_hard_answer_is_sent_once_the_budget_pays_and_promises_a_correction() -> None:
    answer = prediction(hard=True)
    hard, metrics = consider(answer)
    assert [(case.trust, case.audit) for case in hard] == [(0.25, False)]
    assert answer.route == "provisional"
    assert metrics.dropped == {"budget_calls": 1}


def test_an_audit_leaves_its_answer_as_it_is() -> None:
    answer = prediction(hard=False)
    hard, metrics = consider(answer, share=1.0)
    assert [case.audit for case in hard] == [True]
    assert (answer.route, metrics.counts["audit_total"]) == ("local", 2)


def test_a_trusted_answer_without_an_audit_is_no_drop() -> None:
    hard, metrics = consider(prediction(hard=False))
    assert (hard, dict(metrics.dropped)) == ([], {})


@pytest.mark.parametrize(
    ("answer", "reason", "history", "dropped"),
    [
        (prediction(SuspectPrediction, hard=True, suspect="stuck"), "outbox_full", 9, "suspect"),
        (prediction(hard=True), "outbox_full", 9, "outbox_full"),
        (prediction(hard=True), "", 9, "context_short"),
    ],
)
def test_the_first_rule_that_refuses_gives_the_reason_and_nothing_is_paid(
    answer: Prediction, reason: str, history: int, dropped: str
) -> None:
    hard, metrics = consider(answer, reason=reason, history=history)
    assert (hard, metrics.dropped, answer.route) == ([], {dropped: 2}, "local")
