from __future__ import annotations

import numpy as np
import pytest

from edge_export.data.dataset import Windows
from edge_export.surround.hold import STREAM, HeldShare, decide, fit_hold, judge_hold
from edge_runtime.types import Float32

PEOPLE = 12
FOLDS = 4


def answers(per_person: int, *, seed: int = 0, apart: float = 1.5) -> tuple[Float32, np.ndarray, Windows, np.ndarray]:
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
    return trust, rng.random(n) > trust, windows, (person % FOLDS).astype(np.int64)


@pytest.mark.parametrize("share", [0.08, 0.1])
def test_people_left_out_have_the_share_by_the_threshold_that_moves_and_not_by_the_one_that_stays(share: float) -> None:
    found = judge_hold(*answers(1200), share)
    assert len(found) == PEOPLE
    assert {one.stream for one in found} == {1200}
    assert sum(one.near for one in found) == PEOPLE
    off = np.mean([abs(one.held - share) for one in found]), np.mean([abs(one.fixed - share) for one in found])
    assert off[0] < off[1] / 5


def test_what_is_sent_is_wrong_more_often_than_what_a_random_choice_sends() -> None:
    for one in judge_hold(*answers(1200), 0.1):
        assert one.held_error > 1.5 * one.error
        assert one.margin == one.held_error - one.error


def test_short_streams_are_repeated_and_what_the_first_time_through_sends_is_told_apart() -> None:
    found = judge_hold(*answers(150), 0.1)
    assert {(one.windows, one.stream) for one in found} == {(150, 1050)}
    assert all(one.stream >= STREAM for one in found)
    trust, _, windows, _ = answers(150)
    of = windows.group == found[0].group
    fitted = fit_hold(trust[np.arange(len(trust)) // 150 % FOLDS != 0], 0.1)
    assert found[0].first == decide(trust[of], fitted, 0.1, found[0].group).mean()


def test_nothing_of_a_group_or_its_fold_is_in_the_fit() -> None:
    trust, wrong, windows, fold = answers(300)
    before = judge_hold(trust, wrong, windows, fold, 0.1)
    changed = trust.copy()
    changed[fold == 1] = 0.5
    after = judge_hold(changed, wrong, windows, fold, 0.1)
    assert windows.group[fold == 1][0] == before[1].group
    assert before[1].fixed != after[1].fixed, "its own answers changed"
    kept = trust.copy()
    kept[(fold == 1) & (windows.group != before[1].group)] = 0.5
    assert judge_hold(kept, wrong, windows, fold, 0.1)[1] == before[1]


def test_the_spread_is_the_distance_of_the_thresholds_for_half_and_twice_the_share() -> None:
    places = np.random.default_rng(0).normal(3.0, 2.0, 200_000)
    fitted = fit_hold((1 / (1 + np.exp(-places))).astype(np.float32), 0.1)
    assert fitted.spread == pytest.approx(2.0 * (-0.8416 + 1.6449), rel=0.02)
    assert fitted.threshold == pytest.approx(1 / (1 + np.exp(-(3.0 - 2.0 * 1.2816))), rel=0.02)
    assert fit_hold(np.full(50, 0.9, np.float32), 0.1).spread == 0.1


def test_the_band_of_a_short_stream_is_that_of_as_many_independent_windows() -> None:
    def first(share: float) -> HeldShare:
        return HeldShare(
            group="g", windows=100, stream=1000, asked=0.1, fixed=0.1, held=0.1, first=share, error=0.0,
            fixed_error=0.0, held_error=0.0,
        )  # fmt: skip

    assert [first(share).likely for share in (0.03, 0.05, 0.1, 0.16, 0.17)] == [False, True, True, True, False]
