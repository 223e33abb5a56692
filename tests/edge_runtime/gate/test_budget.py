from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_runtime.clock import SimulatedClock
from edge_runtime.gate.audit import audited
from edge_runtime.gate.budget import DAY_S, Budget
from edge_runtime.gate.config import GateConfig


def test_without_bounds_everything_may_be_sent() -> None:
    budget = Budget(GateConfig(), SimulatedClock())
    assert all(budget.spend(10**9) is None for _ in range(10_000))


@settings(max_examples=50, deadline=None)
@given(
    share=st.sampled_from([0.01, 0.1, 0.25]),
    bursts=st.lists(st.tuples(st.integers(1, 400), st.floats(0, 1)), min_size=5, max_size=40),
)
def test_the_share_is_kept_over_any_long_stretch(share: float, bursts: list[tuple[int, float]]) -> None:
    budget = Budget(GateConfig(max_share=share), SimulatedClock())
    sent: list[bool] = []
    for windows, hard in bursts:
        for i in range(windows):
            budget.seen(1)
            sent.append(i < hard * windows and budget.spend(100) is None)
    total = np.concatenate(([0], np.cumsum(sent)))
    for begin, end in itertools.combinations(range(0, len(sent) + 1, 97), 2):
        # The burst of 50 windows' share (at least one window), and the share of what passed.
        assert total[end] - total[begin] <= max(1.0, share * 50) + share * (end - begin) + 1e-6


def test_no_24_hours_see_more_calls_than_allowed_and_all_are_usable() -> None:
    clock = SimulatedClock()
    budget = Budget(GateConfig(max_calls_per_day=96), clock)
    sent: list[float] = []
    for _ in range(3 * 24 * 60):
        clock.advance(60)
        if budget.spend(1) is None:
            sent.append(clock.monotonic())
    busiest = max(sum(t <= s < t + DAY_S for s in sent) for t in sent)
    assert busiest <= 96
    assert len(sent) >= 3 * 92


def test_bytes_are_bounded_and_the_refusal_names_the_bound() -> None:
    budget = Budget(GateConfig(max_bytes_per_day=24_000), SimulatedClock())
    assert [budget.spend(400) for _ in range(3)] == [None, None, "bytes"]


def test_an_allowance_for_few_windows_still_pays_for_one_at_a_time() -> None:
    clock = SimulatedClock()
    budget = Budget(GateConfig(max_bytes_per_day=20_000), clock, window_bytes=7_200)
    assert [budget.spend(7_200), budget.spend(7_200)] == [None, "bytes"]
    clock.advance(DAY_S)
    assert budget.spend(7_200) is None


def test_a_refused_window_costs_nothing_of_the_other_bounds() -> None:
    clock = SimulatedClock()
    budget = Budget(GateConfig(max_calls_per_day=48, max_bytes_per_day=24 * 400), clock)
    assert budget.spend(1000) == "bytes"
    assert [budget.spend(10) for _ in range(3)] == [None, None, "calls"]


@pytest.mark.parametrize(("away", "again"), [(0.0, 0), (-3600.0, 0), (DAY_S, 4), (40 * 365 * DAY_S, 4)])
def test_a_restart_does_not_refill_the_budget_and_a_jumping_clock_at_most_fills_it(away: float, again: int) -> None:
    before = SimulatedClock()
    config = GateConfig(max_calls_per_day=96)
    first = Budget(config, before)
    assert sum(first.spend(1) is None for _ in range(96)) == 4
    second = Budget(config, SimulatedClock(wall=before.wall() + away))
    second.restore(first.state())
    assert sum(second.spend(1) is None for _ in range(96)) == again


def test_audits_are_the_stated_share_and_the_same_on_every_run() -> None:
    ids = [f"watch-{i % 7}@{i}" for i in range(20_000)]
    chosen = [id_ for id_ in ids if audited(id_, 0.05)]
    assert 0.04 < len(chosen) / len(ids) < 0.06
    assert chosen == [id_ for id_ in ids if audited(id_, 0.05)]
    assert not any(audited(id_, 0.0) for id_ in ids)
    assert all(audited(id_, 1.0) for id_ in ids)


@pytest.mark.parametrize("bad", [{"max_share": 1.5}, {"audit_share": -0.1}, {"max_calls_per_day": -1}])
def test_bounds_that_make_no_sense_are_refused(bad: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(bad))):
        GateConfig(**bad)  # type: ignore[arg-type]
