"""Whether another message is to be expected within the latency budget."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_runtime.base.system.arrivals import Arrivals

BUDGET_S = 0.005


def after(*batches: tuple[float, int]) -> Arrivals:
    """Arrivals after batches of (interval to the one before, messages)."""
    arrivals, now = Arrivals(BUDGET_S), 100.0
    for span_s, count in batches:
        now += span_s
        arrivals.note(count, now)
    return arrivals


def test_nothing_is_expected_before_anything_came() -> None:
    assert not Arrivals(BUDGET_S).expected
    assert not after((0.0, 1)).expected


@pytest.mark.slow
@given(st.floats(1e-5, 0.1), st.lists(st.integers(1, 50), min_size=40, max_size=60))
def test_the_mean_is_that_of_the_sensors_however_the_messages_are_read(interval_s: float, counts: list[int]) -> None:
    """Read one by one or fifty at a time, after a wait or without: the same rate gives the same decision."""
    if 0.9 * BUDGET_S < interval_s < 1.1 * BUDGET_S:
        return
    arrivals = after(*((interval_s * count, count) for count in counts))
    assert arrivals.expected is (interval_s < BUDGET_S)


def test_a_burst_is_noticed_within_a_dozen_messages_after_an_hour_of_rest() -> None:
    assert not after(*[(3600.0, 1)] * 20).expected
    assert after(*[(3600.0, 1)] * 20, *[(0.0001, 1)] * 12).expected


def test_the_end_of_a_burst_is_noticed_as_soon() -> None:
    burst = [(0.0001, 50)] * 100
    assert after(*burst).expected
    assert not after(*burst, *[(0.01, 1)] * 12).expected


@pytest.mark.parametrize("rate", [100, 125, 150])
def test_slow_streams_are_answered_at_once(rate: int) -> None:
    assert not after(*[(1 / rate, 1)] * 100).expected


@pytest.mark.parametrize("rate", [500, 2000, 10_000])
def test_fast_streams_share_their_turns(rate: int) -> None:
    assert after(*[(1 / rate, 1)] * 100).expected
