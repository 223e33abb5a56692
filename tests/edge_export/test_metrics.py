"""Shares and their intervals: right where the answer is known, honest where groups differ."""

from __future__ import annotations

import numpy as np
import pytest
from edge_export.metrics import evaluate, paired

from edge_runtime.errors import ConfigError
from edge_runtime.signal.drift.agreement import wilson


def answers(chosen: list[int] | np.ndarray, classes: int = 3) -> np.ndarray:
    """(n, classes) probabilities that name these classes."""
    return np.where(np.arange(classes) == np.asarray(chosen)[:, None], 0.9, 0.1).astype(np.float32)


def test_shares_are_those_counted_by_hand() -> None:
    labels = np.array([0, 0, 0, 0, 1, 1, 2, 2])
    mine = [0, 0, 0, 1, 1, 1, 2, 0]
    theirs = [0, 0, 0, 0, 1, 1, 2, 0]
    reference, candidate = evaluate({"onnx-fp32": answers(theirs), "int8": answers(mine)}, labels)
    assert (candidate.name, candidate.windows, candidate.groups) == ("int8", 8, 8)
    assert candidate.accuracy == 6 / 8
    assert reference.accuracy == 7 / 8
    assert candidate.drop == pytest.approx(1 / 8)
    assert candidate.flips == 1 / 8
    assert candidate.macro_f1 == pytest.approx((6 / 8 + 4 / 5 + 2 / 3) / 3)
    assert candidate.f1_drop == pytest.approx(reference.macro_f1 - candidate.macro_f1)
    assert (reference.drop, reference.drop_low, reference.drop_high, reference.flips) == (0, 0, 0, 0)


def test_macro_f1_is_scikit_learns() -> None:
    metrics = pytest.importorskip("sklearn.metrics", reason="scikit-learn is not installed")
    random = np.random.default_rng(4)
    labels, chosen = random.integers(0, 4, 60), random.integers(0, 5, 60)
    (found,) = evaluate({"onnx-fp32": answers(chosen, 6)}, labels)
    assert found.macro_f1 == pytest.approx(metrics.f1_score(labels, chosen, average="macro"))


def test_people_who_differ_make_the_interval_wide() -> None:
    """Half of the people are always right, half never: 400 windows say no more than 10 people do."""
    labels = np.zeros(400, np.int64)
    people = np.repeat(np.arange(10), 40)
    chosen = np.where(people % 2 == 0, 0, 1)
    (by_person,) = evaluate({"onnx-fp32": answers(chosen)}, labels, people)
    (by_window,) = evaluate({"onnx-fp32": answers(chosen)}, labels)
    assert by_person.accuracy == by_window.accuracy == 0.5
    assert by_window.high - by_window.low < 0.11
    assert by_person.high - by_person.low > 0.5
    assert by_person.groups == 10


def test_what_is_hard_for_both_cancels_in_the_drop() -> None:
    random = np.random.default_rng(6)
    people = np.repeat(np.arange(12), 50)
    labels = np.zeros(600, np.int64)
    right = random.random(600) < np.repeat(random.random(12), 50)
    theirs = np.where(right, 0, 1)
    mine = theirs.copy()
    mine[::50] = 2  # one window of each person
    reference, candidate = evaluate({"onnx-fp32": answers(theirs), "int8": answers(mine)}, labels, people)
    assert candidate.high - candidate.low > 0.2
    assert candidate.drop_high - candidate.drop_low < 0.02
    assert candidate.drop_low <= candidate.drop == reference.accuracy - candidate.accuracy <= candidate.drop_high


def test_one_group_alone_falls_back_to_the_count_of_windows() -> None:
    (found,) = evaluate({"onnx-fp32": answers([0] * 90 + [1] * 10)}, np.zeros(100, np.int64), ["one"] * 100)
    assert (found.low, found.high) == wilson(90, 100)


def test_nothing_is_ever_certain() -> None:
    (found,) = evaluate({"onnx-fp32": answers([0, 1, 2] * 20)}, np.array([0, 1, 2] * 20), np.arange(60) // 6)
    assert found.accuracy == found.high == 1
    assert found.low < 0.95


def test_the_interval_holds_the_truth_as_often_as_it_says() -> None:
    """20 people whose own shares of right answers vary around 0.8."""
    hits = 0
    for seed in range(120):
        random = np.random.default_rng(seed)
        own = random.beta(8, 2, 20)
        right = random.random((20, 30)) < own[:, None]
        found = evaluate(
            {"onnx-fp32": answers(np.where(right, 0, 1).ravel(), 2)},
            np.zeros(600, np.int64),
            np.repeat(np.arange(20), 30),
            resamples=400,
        )[0]
        hits += found.low <= 0.8 <= found.high
    assert hits / 120 > 0.88


def test_a_paired_gain_is_that_of_the_same_windows_and_its_interval_goes_by_groups() -> None:
    """What is hard for both cancels: a gain that every group has alike is certain, however few windows are right."""
    labels = np.zeros(400, np.int64)
    groups = np.repeat(np.arange(4), 100)
    before = np.where(np.arange(400) % 10 < np.repeat([2, 4, 6, 8], 100), 0, 1)
    after = np.where(np.arange(400) % 10 == 9, 0, before)
    found = paired(before, after, labels, groups)
    assert found.score == pytest.approx(0.6)
    assert found.groups == 4
    assert [found.gain, found.low, found.high] == pytest.approx([0.1] * 3)
    assert (found.groups_gained, found.groups_lost) == (4, 0)
    one = paired(before, np.where(groups == 0, after, before), labels, groups)
    assert one.low == 0 < one.gain < one.high
    assert (one.groups_gained, one.groups_lost) == (1, 0)


def test_a_paired_gain_of_macro_f1_counts_each_label_the_same() -> None:
    labels = np.array([0] * 90 + [1] * 10)
    before, after = np.zeros(100, np.int64), np.where(np.arange(100) >= 95, 1, 0)
    groups = np.arange(100) % 5
    found = paired(before, after, labels, groups, metric="macro_f1")
    assert found.gain > 3 * paired(before, after, labels, groups).gain


def test_the_same_arguments_give_the_same_figures() -> None:
    random = np.random.default_rng(8)
    labels, chosen = random.integers(0, 3, 50), random.integers(0, 3, 50)
    one, other = (evaluate({"onnx-fp32": answers(chosen)}, labels, np.arange(50) % 5) for _ in range(2))
    assert one == other


@pytest.mark.parametrize(
    ("probabilities", "labels", "groups", "what"),
    [
        ({"int8": answers([0])}, [0], None, "'onnx-fp32' is not among int8"),
        ({}, [0], None, "not among none"),
        ({"onnx-fp32": answers([0])[:0]}, [], None, "no windows"),
        ({"onnx-fp32": answers([0, 1])}, [0], None, "shape"),
        ({"onnx-fp32": answers([0]), "int8": answers([0], 4)}, [0], None, "int8 answers with shape"),
        ({"onnx-fp32": answers([0]) * np.nan}, [0], None, "NaN"),
        ({"onnx-fp32": answers([0])}, [3], None, "labels run from 3"),
        ({"onnx-fp32": answers([0])}, [-1], None, "labels run from -1"),
        ({"onnx-fp32": answers([0, 1])}, [0, 1], ["a"], "one group per window"),
    ],
)
def test_what_does_not_fit_is_said(
    probabilities: dict[str, np.ndarray], labels: list[int], groups: list[str] | None, what: str
) -> None:
    with pytest.raises(ConfigError, match=what):
        evaluate(probabilities, np.array(labels, np.int64), groups)
