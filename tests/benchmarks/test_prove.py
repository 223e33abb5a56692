"""Trials of a proof: what is labelled, and what tells its worth."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch", reason="the answers are kept by code that imports torch (edge-export[train])")
pytest.importorskip("sklearn", reason="the answers are kept by code that imports scikit-learn (edge-export[train])")

from benchmarks.accuracy.prove import Way, chances, draws, trial, trials


def test_labels_are_asked_in_order_of_windows_that_differ_alone() -> None:
    y = np.zeros(100, np.int64)
    old, new = y.copy(), y.copy()
    old[::2] = 1  # the new one is right wherever they differ
    found = trial(y, old, new, np.arange(100), ("old", "new"))
    assert (found.outcome, found.labels) == ("accept", 15), "the first look"
    assert found.worth == pytest.approx((50 - 15) / (100 - 15))


def test_a_change_that_is_worse_is_not_accepted_nor_is_one_of_few_windows() -> None:
    y = np.zeros(100, np.int64)
    good, bad = y.copy(), np.ones(100, np.int64)
    assert trial(y, good, bad, np.arange(100), ("a", "b")).outcome == "reject"
    few = good.copy()
    few[:3] = 1
    found = trial(y, few, good, np.arange(100), ("a", "b"))
    assert (found.outcome, found.labels, found.worth) == ("reject", 3, 0.0)


def test_each_model_is_tried_against_each_other_one_for_each_person() -> None:
    y = np.zeros(20, np.int64)
    found = list(trials(y, np.repeat(["p1", "p2"], 10), {"a": y, "b": y + 1, "c": y}))
    assert len(found) == 2 * 6 * 3


@pytest.mark.parametrize("way", ["half", "half in time"])
@pytest.mark.parametrize("n", [1, 2, 75])
def test_the_half_that_judges_is_never_labelled(way: Way, n: int) -> None:
    """Mutation: a half that judges by its own labels."""
    for order, judges in draws(n, way):
        assert judges is not None
        assert sorted([*order, *judges]) == list(range(n))
        assert abs(len(order) - len(judges)) <= 1
    if way == "half in time":
        assert {order.max() > judges.max() for order, judges in draws(75, way) if judges is not None} == {0, 1}


def test_a_change_that_helps_one_half_alone_is_judged_by_the_other() -> None:
    y = np.zeros(100, np.int64)
    old, new = y.copy(), y.copy()
    old[:50], new[50:] = 1, 1
    first = trial(y, old, new, np.arange(50), ("old", "new"), np.arange(50, 100))
    assert (first.outcome, first.worth) == ("accept", -1.0)


def test_chances_sum_to_one_and_labels_are_bounded() -> None:
    for share in (0.3, 0.5, 0.8):
        one = chances(share)
        assert one.accepted + one.rejected == pytest.approx(1.0)
        assert one.labels <= 60
