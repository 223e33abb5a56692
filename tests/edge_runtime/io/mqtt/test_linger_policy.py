"""When the latency budget is waited for, on simulated traffic."""

from __future__ import annotations

import random

import pytest

from edge_runtime.io.mqtt.linger_policy import LingerPolicy

BUDGET_S = 0.005


def waits(window: int, rate_hz: float, seconds: float = 2.0, known: int = 1000) -> tuple[int, int]:
    """How often the budget was waited for, and how many messages got through, for a broker and its sensors."""
    rng = random.Random(3)
    linger_policy = LingerPolicy(BUDGET_S, known)
    now = waited = passed = 0.0
    backlog = 0.0
    skip_linger = False
    while now < seconds:
        backlog += 1  # what wakes the loop up
        step = max(1 / rate_hz, 0.0003 if skip_linger else BUDGET_S)
        waited += not skip_linger
        now += step
        more = rate_hz * step - 1
        backlog += max(0.0, rng.gauss(more, more**0.5)) if more > 0 else 0
        count = int(min(window, backlog))
        backlog -= count
        passed += count
        skip_linger = linger_policy.received(count, count, now)  # all acknowledged at the end of each turn
    return int(waited), int(passed)


@pytest.mark.parametrize("window", [10, 20, 32, 100])
def test_a_window_that_limits_is_found_out(window: int) -> None:
    rate = 3 * window / BUDGET_S
    waited, passed = waits(window, rate)
    assert waited < 20
    assert passed > 0.9 * 2.0 * rate


def test_a_wide_window_leaves_the_budget_alone() -> None:
    waited, passed = waits(10_000, 10_000)
    assert waited > 0.95 * 2.0 / BUDGET_S
    assert passed > 0.9 * 20_000


def test_a_rate_far_below_the_window_leaves_the_budget_alone() -> None:
    waited, _ = waits(20, 500)
    assert waited > 0.95 * 2.0 / BUDGET_S


def test_when_the_flood_is_over_the_budget_is_waited_for_again() -> None:
    linger_policy = LingerPolicy(BUDGET_S, 1000)
    for i in range(10):
        linger_policy.received(20, 20, i * BUDGET_S)
    assert linger_policy.received(20, 20, 0.051)
    quiet = [linger_policy.received(1, 1, 1.0 + i * 0.01) for i in range(10)]
    assert quiet[1:] == [False] * 9


def test_our_own_receive_maximum_needs_no_finding_out() -> None:
    linger_policy = LingerPolicy(BUDGET_S, 8)
    assert linger_policy.received(8, 8, 0.0)
    assert linger_policy.full(8)
    assert not linger_policy.full(3)


def test_without_a_budget_there_is_nothing_to_hurry() -> None:
    assert not LingerPolicy(0.0, 8).received(8, 8, 0.0)
