from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from edge_export.choose.surround.hold import decide, fit_hold
from edge_export.data.dataset import Windows

from benchmarks.accuracy.held_share import STREAM, HeldShare, ScoredAnswers, judge_hold, judge_promise

PEOPLE = 12
FOLDS = 4


def answers(per_person: int, *, seed: int = 0, apart: float = 1.5) -> ScoredAnswers:
    """Scores of people who differ, wrong as often as they say."""
    rng = np.random.default_rng(seed)
    middles = 4.0 + apart * rng.standard_normal(PEOPLE)
    places = np.repeat(middles, per_person) + 2.0 * rng.standard_normal(PEOPLE * per_person)
    trust = (1 / (1 + np.exp(-places))).astype(np.float32)
    n = len(trust)
    person = np.repeat(np.arange(PEOPLE), per_person)
    windows = Windows(
        contexts=np.zeros((n, 1, 1), np.float32),
        samples=1,
        y=np.zeros(n, np.int64),
        group=np.array([f"p{i:02}" for i in person]),
        recording=person.astype(np.int64),
        start=np.tile(np.arange(per_person), PEOPLE).astype(np.int64),
    )
    wrong = rng.random(n) > trust
    return ScoredAnswers(
        trust=trust, wrong=wrong, disputed=wrong, windows=windows, fold=(person % FOLDS).astype(np.int64)
    )


@pytest.mark.parametrize("share", [0.08, 0.1])
def test_people_left_out_have_the_share_by_the_threshold_that_moves_and_not_by_the_one_that_stays(share: float) -> None:
    found = judge_hold(answers(1200), share)
    assert len(found) == PEOPLE
    assert {one.stream for one in found} == {1200}
    assert sum(one.near for one in found) == PEOPLE
    off = np.mean([abs(one.held - share) for one in found]), np.mean([abs(one.fixed - share) for one in found])
    assert off[0] < off[1] / 5


def test_what_is_sent_is_wrong_more_often_than_what_a_random_choice_sends() -> None:
    for one in judge_hold(answers(1200), 0.1):
        assert one.held_error > 1.5 * one.error
        assert one.margin == one.held_error - one.error


def test_short_streams_are_repeated_and_what_the_first_time_through_sends_is_told_apart() -> None:
    found = judge_hold(answers(150), 0.1)
    assert {(one.windows, one.stream) for one in found} == {(150, 1050)}
    assert all(one.stream >= STREAM for one in found)
    given = answers(150)
    fitted = fit_hold(given.trust[given.fold != 0], 0.1)
    of = given.windows.group == found[0].group
    assert found[0].first == decide(given.trust[of], fitted, 0.1, found[0].group).mean()


def test_nothing_of_a_group_or_its_fold_is_in_the_fit() -> None:
    given = answers(300)
    before = judge_hold(given, 0.1)[1]
    for others, same in ((given.windows.group != before.group, True), (given.windows.group == before.group, False)):
        trust = given.trust.copy()
        trust[(given.fold == 1) & others] = 0.5
        assert (judge_hold(replace(given, trust=trust), 0.1)[1] == before) is same


def test_the_groups_of_some_folds_are_judged_as_among_all() -> None:
    given = answers(300)
    every = judge_hold(given, 0.1)
    assert [one for fold in range(FOLDS) for one in judge_hold(given, 0.1, {fold})] == sorted(
        every, key=lambda one: int(one.group[1:]) % FOLDS
    )


@pytest.mark.slow
def test_audits_keep_a_promise_for_people_for_whom_the_share_alone_does_not() -> None:
    limit = 0.05
    found = judge_promise(answers(1200), 0.08, limit, 0.1)
    assert len(found) == PEOPLE
    broken = [one for one in found if one.without > 1.3 * limit]
    assert broken
    for one in broken:
        assert one.kept < one.without
        assert one.kept <= 1.1 * limit
        assert one.share > 0.08
    assert all(one.share < 0.1 for one in found if one.without < 0.5 * limit)


def test_the_band_of_a_short_stream_is_that_of_as_many_independent_windows() -> None:
    def first(share: float) -> HeldShare:
        return HeldShare(
            group="g", windows=100, stream=1000, asked=0.1, fixed=0.1, held=0.1, first=share, error=0.0,
            fixed_error=0.0, held_error=0.0,
        )  # fmt: skip

    assert [first(share).likely for share in (0.03, 0.05, 0.1, 0.16, 0.17)] == [False, True, True, True, False]


def test_a_group_of_a_few_windows_is_no_stream() -> None:
    assert judge_hold(answers(99), 0.1) == []
    assert len(judge_hold(answers(100), 0.1)) == PEOPLE
