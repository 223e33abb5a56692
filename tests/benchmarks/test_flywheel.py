"""Few labels of new people: which windows are chosen, who is judged, and what a share of the gain is."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch", reason="the networks of the measurement need torch (edge-export[train])")
pytest.importorskip("sklearn", reason="the calibration needs scikit-learn (edge-export[train])")

from edge_export.data.dataset import UNLABELLED, Dataset, Recording

from benchmarks.accuracy.field import as_cases, halves, split_people
from benchmarks.accuracy.flywheel import ALL, BASE, CHOICES, PAIRS, compared, gain_of
from benchmarks.accuracy.label_choice import Seen, by_turns, kept, least_margin, whole_stretches
from edge_runtime.manifest import Channel
from tests.edge_export.recordings import cut_windows


def seen(people: int = 3, windows: int = 100, classes: int = 4) -> Seen:
    rng = np.random.default_rng(0)
    n = people * windows
    answers = rng.dirichlet(np.ones(classes), n).astype(np.float32)
    return Seen(
        person=np.repeat([f"p{one}" for one in range(people)], windows), answers=answers,
        features=rng.normal(size=(n, 5)).astype(np.float32), known=rng.normal(size=(50, 5)).astype(np.float32),
        hard_share=0.2, share=0.1,
    )  # fmt: skip


def recorded(people: int = 4, *, marked: bool = False) -> Dataset:
    recordings = [
        Recording(
            name=f"{person}-{label}", group=f"p{person}", label=UNLABELLED if marked else label,
            values=np.arange(40, dtype=np.float32)[:, None] + 100 * label,
            marks=np.full(40, label, np.int64) if marked else None,
        )
        for person in range(people)
        for label in (0, 1)
    ]  # fmt: skip
    return Dataset(
        name="d", channels=(Channel(name="a", unit="g"),), rate_hz=50.0, classes=("x", "y"),
        recordings=tuple(recordings),
    )  # fmt: skip


@pytest.mark.parametrize("name", CHOICES)
def test_each_choice_keeps_the_budget_of_each_person(name: str) -> None:
    """Mutation: a choice by all people together, of whom one gives all windows."""
    given = seen()
    found = CHOICES[name](given, np.random.default_rng(1))
    assert len(set(found.tolist())) == len(found)
    people, counts = np.unique(given.person[found], return_counts=True)
    assert people.tolist() == ["p0", "p1", "p2"]
    assert counts.max() == 10
    assert counts.min() == 10


def test_the_library_keeps_doubtful_windows_and_audits() -> None:
    given = seen()
    trust = given.answers.max(axis=1)
    for cases, _ in kept(given):
        assert 18 <= len(cases) <= 32
        assert (np.diff(cases) > 0).all(), "in the order of time"
        assert trust[cases].mean() < trust.mean()


def test_the_least_margin_is_the_least() -> None:
    given = seen(people=1)
    found = least_margin(given, np.random.default_rng(0))
    assert given.margin[found].max() <= np.delete(given.margin, found).min()


def test_answers_take_turns_and_keep_their_own_order() -> None:
    assert by_turns(np.array([0, 0, 1, 0, 1, 2]), np.array([3, 1, 0, 4, 2, 5])).tolist() == [3, 4, 5, 1, 2, 0]


def test_whole_stretches_are_a_share_of_each_persons() -> None:
    stretch = np.repeat(np.arange(40), 3)
    person = np.repeat(["a", "b"], 60).tolist()
    found = whole_stretches(stretch, person, 0.1, np.random.default_rng(0))
    assert len(found) == 4 * 3
    assert np.unique(np.array(person)[found], return_counts=True)[1].tolist() == [6, 6]


def test_no_person_is_in_two_parts_and_no_sample_in_two_halves() -> None:
    people = split_people(recorded(), 1, 2, 0)
    parts = [set(one.groups) for one in (people.base, people.field, people.new)]
    assert [len(one) for one in parts] == [1, 2, 1]
    assert len(set.union(*parts)) == 4
    assert set(people.later.groups) == parts[1]
    samples = [
        {(one.group, float(value)) for one in half.recordings for value in one.values[:, 0]}
        for half in (people.field, people.later)
    ]
    assert not samples[0] & samples[1]
    assert len(samples[0] | samples[1]) == 2 * 80


def test_recordings_with_labels_over_time_are_halved_by_recording() -> None:
    first, second = halves(recorded(marked=True), np.random.default_rng(0))
    assert [one.name for one in first.recordings] == ["0-0", "1-0", "2-0", "3-0"]
    assert [one.name for one in second.recordings] == ["0-1", "1-1", "2-1", "3-1"]


def test_a_case_is_the_window_and_nothing_around_it() -> None:
    windows = cut_windows(recorded(1), samples=10, hop=10, context=30)
    (case,) = as_cases(windows, windows.y, np.array([2]), 0.3)
    assert case.values[:, 0].tolist() == list(range(20, 30))
    assert (case.group, case.label, case.share) == ("p0", 0, 0.3)


def test_a_share_of_the_gain_is_that_of_means_with_an_interval() -> None:
    def split(base: float, full: float, some: float) -> dict[str, dict[str, dict[str, float]]]:
        return {name: {"new": {"p": value}} for name, value in ((BASE, base), (ALL, full), ("some", some))}

    found = gain_of([split(0.5, 0.7, 0.6), split(0.4, 0.8, 0.6), split(0.5, 0.8, 0.65)], "some", "new")
    assert found.share == pytest.approx(0.5)
    assert (found.share_low, found.share_high) == pytest.approx((0.5, 0.5))
    assert found.mean == pytest.approx(0.15)
    assert found.low < 0.15 < found.high


def test_rows_are_compared_split_by_split() -> None:
    row, other = PAIRS[0]

    def split(base: float) -> dict[str, dict[str, dict[str, float]]]:
        judged = {name: {"p": base + more} for name, more in ((row, 0.1), (other, 0.0))}
        return {name: {"new": scores, "later": scores} for name, scores in judged.items()}

    (line,) = compared([split(0.3), split(0.5), split(0.8)])
    assert line == f"{row}, over {other}: new +0.100 (+0.100 to +0.100), later +0.100 (+0.100 to +0.100)"
