"""Scores of the accuracy benchmark: intervals for the next group, and events."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.accuracy.scoring import event_f1, macro_f1, next_group, paired, stretches, student, tolerant_accuracy


def test_the_interval_holds_the_next_group_as_often_as_it_says() -> None:
    random = np.random.default_rng(4)
    held = 0
    for _ in range(2000):
        scores = random.normal(0.8, 0.05, 7)
        found = next_group(scores[:6])
        held += found.low <= scores[6] <= found.high
    assert held / 2000 == pytest.approx(0.95, abs=0.015)


def test_student_s_t_is_that_of_the_tables() -> None:
    assert [round(student(n), 3) for n in (1, 2, 6, 30)] == [12.706, 4.303, 2.447, 2.042]


def test_few_groups_are_told_in_words() -> None:
    assert "too few" in str(next_group(np.array([0.8, 0.9])))
    assert "next: " in str(next_group(np.linspace(0.7, 0.9, 5)))


def test_a_difference_that_all_groups_have_is_sure() -> None:
    mean, low, high = paired(np.array([0.02, 0.03, 0.025, 0.02]))
    assert 0 < low < mean < high


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=60))
def test_macro_f1_is_scikit_learn_s(pairs: list[tuple[int, int]]) -> None:
    metrics = pytest.importorskip("sklearn.metrics", reason="an oracle (edge-export[train])")
    y, answers = (np.array(column) for column in zip(*pairs, strict=True))
    assert macro_f1(answers, y, 4) == pytest.approx(metrics.f1_score(y, answers, average="macro", zero_division=0))


def test_beside_a_change_either_label_is_right() -> None:
    y = np.array([0, 0, 0, 1, 1, 1])
    run = np.zeros(6, np.int64)
    late = np.array([0, 0, 0, 0, 1, 1])
    assert tolerant_accuracy(late, y, run, reach=1) == 1.0
    assert tolerant_accuracy(np.array([0, 1, 0, 0, 1, 1]), y, run, reach=1) == pytest.approx(5 / 6)
    assert tolerant_accuracy(late, y, np.array([0, 0, 0, 1, 1, 1]), reach=1) == pytest.approx(5 / 6), (
        "no run, no change"
    )


def test_events_are_found_within_the_reach_and_one_answer_finds_one() -> None:
    y = np.array([0] * 10 + [1] * 10 + [0] * 10)
    run = np.zeros(30, np.int64)
    late = np.roll(y, 2)
    late[:2] = 0
    assert len(stretches(y, run)) == 3
    assert event_f1(late, y, run, reach=2) == 1.0
    assert event_f1(late, y, run, reach=1) < 1.0
    torn = y.copy()
    torn[15] = 2
    assert event_f1(torn, y, run, reach=2) == pytest.approx(2 * 2 / (3 + 5))
