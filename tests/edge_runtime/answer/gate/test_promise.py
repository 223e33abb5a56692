from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_runtime.answer.gate.promise import AIM, GAIN, LARGEST, Promise


def play(promise: Promise, error: float, audits: int, seed: int = 0) -> list[float]:
    """The share after each audit."""
    shares = []
    for wrong in (np.random.default_rng(seed).random(audits) < error).tolist():
        promise.audit(wrong=wrong)
        shares.append(promise.share)
    return shares


@pytest.mark.slow
def test_twice_the_errors_double_the_share_after_about_as_many_audits_as_are_stated() -> None:
    needed = [next(n for n, one in enumerate(play(Promise(0.05, 0.08), 0.1, 5000, seed), 1) if one >= 0.16)
              for seed in range(200)]  # fmt: skip
    assert 0.7 * 115 < np.mean(needed) < 1.3 * 115


def test_a_promise_that_is_kept_with_room_costs_little() -> None:
    assert np.mean(play(Promise(0.05, 0.08), 0.02, 20_000)) < 1.1 * 0.08


@settings(deadline=None, max_examples=100)
@given(
    max_error=st.floats(0.01, 0.5),
    asked=st.floats(0.01, 0.3),
    parts=st.lists(st.tuples(st.integers(1, 300), st.floats(0, 1)), max_size=6),
)
def test_of_any_audits_not_more_are_wrong_than_is_stated_unless_the_share_is_at_its_largest(
    max_error: float, asked: float, parts: list[tuple[int, float]]
) -> None:
    promise = Promise(max_error, asked)
    rng = np.random.default_rng(0)
    wrong = 0
    outcomes = [bool(one) for n, error in parts for one in rng.random(n) < error]
    for n, one in enumerate(outcomes, 1):
        before = promise.share
        promise.audit(wrong=one)
        wrong += one
        assert asked <= promise.share <= LARGEST
        assert abs(math.log(promise.share / before)) <= GAIN + 1e-9
        if promise.share == LARGEST:
            return
        assert wrong <= AIM * max_error * n + math.log(LARGEST / asked) / GAIN + 1e-6


@pytest.mark.parametrize(("left", "taken"), [(0.0, 0.1), (0.2, 0.2), (0.9, LARGEST)])
def test_what_a_run_before_left_is_taken_within_the_bounds(left: float, taken: float) -> None:
    promise = Promise(0.05, 0.1)
    promise.restore(left)
    assert promise.share == taken
