from __future__ import annotations

import itertools

import numpy as np
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_runtime.answer.gate.audit import audited
from edge_runtime.answer.gate.budget import Budget
from edge_runtime.answer.gate.config import GateConfig
from edge_runtime.clock import SimulatedClock


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


DAY_S = 86_400.0
STEP = st.one_of(
    st.tuples(st.just("spend"), st.integers(1, 40)),
    st.tuples(st.just("wait"), st.integers(1, 30 * 3600)),
    st.tuples(st.just("stop"), st.integers(0, 30 * 3600)),
    st.tuples(st.just("kill"), st.integers(0, 30 * 3600)),
    st.tuples(st.just("reboot"), st.integers(0, 30 * 3600)),
    st.tuples(st.just("jump"), st.integers(-400 * 86_400, 400 * 86_400)),
)


class Life:
    """A budget over restarts, and when in real time it paid."""

    def __init__(self, config: GateConfig, window_bytes: int = 1) -> None:
        self.config, self.window_bytes = config, window_bytes
        self.now = 0.0
        """Real time."""
        self.clock = SimulatedClock()
        self.budget = Budget(config, self.clock, window_bytes)
        self.paid: list[tuple[float, int]] = []
        self.saved = self.budget.state(), 0

    def spend(self, size: int) -> bool:
        if self.budget.spend(size) is not None:
            return False
        self.paid.append((self.now, size))
        return True

    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.clock.advance(seconds)

    def save(self) -> None:
        self.saved = orjson.loads(orjson.dumps(self.budget.state())), len(self.paid)

    def restart(self, away: float, *, reboot: bool) -> None:
        if reboot:
            self.clock = SimulatedClock(self.clock.wall())
            self.now += away
        else:
            self.wait(away)
        state, paid = self.saved
        self.budget = Budget(self.config, self.clock, self.window_bytes)
        self.budget.restore(state, same_boot=not reboot, unsaved=len(self.paid) - paid)
        self.save()

    def most(self) -> int:
        """What any 24 hours saw at most, in bytes."""
        return max((sum(size for t, size in self.paid if at <= t < at + DAY_S) for at, _ in self.paid), default=0)


@settings(max_examples=150, deadline=None)
@given(limit=st.integers(1, 100), steps=st.lists(STEP, max_size=40), size=st.sampled_from([1, 7]))
def test_no_24_hours_see_more_than_allowed_whatever_stops_and_jumps(
    limit: int, steps: list[tuple[str, int]], size: int
) -> None:
    config = GateConfig(max_calls_per_day=limit) if size == 1 else GateConfig(max_bytes_per_day=limit)
    life = Life(config, size)
    assert all(life.spend(size) for _ in range(limit // size)), "all at once are granted"
    assert not life.spend(size)
    for what, amount in steps:
        if what == "spend":
            for _ in range(amount):
                life.spend(size)
        elif what == "wait":
            life.wait(amount)
        elif what == "jump":
            life.clock.jump(amount)
        else:
            if what == "stop":
                life.save()
            life.restart(amount, reboot=what == "reboot")
    assert life.most() <= limit
    life.wait(DAY_S + 3600)
    assert sum(life.spend(size) for _ in range(limit + 1)) == limit // size, "a day and an hour later all are free"


def test_a_steady_need_gets_what_is_allowed() -> None:
    life = Life(GateConfig(max_calls_per_day=96))
    for _ in range(5 * 24 * 60):
        life.wait(60)
        life.spend(1)
    assert life.most() == 96
    assert len(life.paid) >= 4 * 96


def test_the_refusal_names_the_bound_what_was_used_and_when_there_is_room() -> None:
    clock = SimulatedClock()
    budget = Budget(GateConfig(max_calls_per_day=5000, max_bytes_per_day=2_000_000), clock)
    clock.advance(1800)
    assert [budget.spend(100) for _ in range(5001)] == [None] * 5000 + ["calls"]
    clock.advance(3600)
    assert budget.describe("calls", 100) == (
        "5,000 of 5,000 were used within 24 hours, and there is room again in 23 h 30 min"
    )
    assert budget.describe("bytes", 3_000_000) == (
        "500,000 of 2,000,000 were used within 24 hours, and one of 3,000,000 never fits"
    )
    assert budget.describe("share", 100) == ""
    clock.advance(23.5 * 3600)
    assert budget.spend(100) is None


def test_a_refused_window_costs_nothing_of_the_other_bounds() -> None:
    clock = SimulatedClock()
    budget = Budget(GateConfig(max_calls_per_day=2, max_bytes_per_day=400), clock)
    assert budget.spend(1000) == "bytes"
    assert [budget.spend(10) for _ in range(3)] == [None, None, "calls"]


@pytest.mark.parametrize("wall", [0.0, 1.7e9, 4e9])
def test_the_level_of_an_earlier_version_is_read_on_the_safe_side(wall: float) -> None:
    """It let through at most the allowance less its level within 24 hours, whatever the wall clock says since."""
    budget = Budget(GateConfig(max_calls_per_day=96, max_bytes_per_day=9600), SimulatedClock(wall))
    budget.restore({"wall": 1.7e9, "calls": 3.5, "bytes": 400.0}, same_boot=False, unsaved=0)
    assert [budget.spend(1) for _ in range(4)] == [None] * 3 + ["calls"]
    assert budget.describe("bytes", 1000).startswith("9,203 of 9,600")


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
