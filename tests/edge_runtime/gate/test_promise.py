from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_runtime.gate.promise import EVIDENCE, FACTOR, LARGEST, Promise


def play(promise: Promise, error: float, audits: int, seed: int = 0) -> int:
    """Audits until the share changes for the first time; `audits` where it does not."""
    for n, wrong in enumerate((np.random.default_rng(seed).random(audits) < error).tolist(), 1):
        if promise.take(wrong=wrong):
            return n
    return audits


@pytest.mark.parametrize(("error", "audits"), [(0.1, 145), (0.2, 31)])
def test_a_broken_promise_is_found_after_about_as_many_audits_as_are_stated(error: float, audits: int) -> None:
    needed = []
    for seed in range(300):
        promise = Promise(0.05, 0.1)
        needed.append(play(promise, error, 5000, seed))
        assert promise.share == pytest.approx(0.1 * FACTOR)
    assert 0.7 * audits < np.mean(needed) < 1.4 * audits


def test_a_step_back_takes_about_as_many_audits_as_are_stated() -> None:
    needed = []
    for seed in range(100):
        promise = Promise(0.05, 0.1)
        promise.share = 0.2
        needed.append(play(promise, 0.025, 5000, seed))
        if promise.share < 0.2:
            assert promise.share == pytest.approx(0.2 / FACTOR)
    assert 0.7 * 375 < np.mean(needed) < 1.4 * 375


def test_while_the_promise_is_kept_it_is_seldom_taken_for_broken_however_often_one_looks() -> None:
    rng = np.random.default_rng(1)
    false = 0
    for _ in range(1000):
        promise = Promise(0.05, 0.1)
        for wrong in (rng.random(1000) < 0.05).tolist():
            fresh = promise.logs[0] == 0.0
            changed = promise.take(wrong=wrong)
            if changed:
                false += 1
            if changed or (not fresh and promise.logs[0] == 0.0):
                break  # the first beginning is over
    assert false / 1000 <= 1 / EVIDENCE + 3 * math.sqrt(0.05 * 0.95 / 1000)


@settings(deadline=None, max_examples=50)
@given(max_error=st.floats(0.001, 0.4), asked=st.floats(0.01, 0.5), outcomes=st.lists(st.booleans(), max_size=400))
def test_the_share_lies_between_what_was_asked_and_half_and_moves_by_one_step_at_most(
    max_error: float, asked: float, outcomes: list[bool]
) -> None:
    promise = Promise(max_error, asked)
    for wrong in outcomes:
        before = promise.share
        changed = promise.take(wrong=wrong)
        assert changed == (promise.share != before)
        assert asked <= promise.share <= LARGEST
        assert 1 / FACTOR - 1e-9 <= promise.share / before <= FACTOR + 1e-9
        assert all(abs(one) <= math.log(EVIDENCE) + 1 for one in promise.logs)


def test_a_good_past_hides_no_bad_present() -> None:
    promise = Promise(0.05, 0.1)
    play(promise, 0.05, 20_000)
    promise.share = 0.1
    assert play(promise, 0.2, 1000, seed=5) < 200
