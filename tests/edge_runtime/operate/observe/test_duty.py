"""The share of a core that observers get, over a thread and a clock that the test moves."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_runtime.operate.observe.duty import BURST_S, Duty


class Thread:
    """A thread whose work and rests a test adds up."""

    def __init__(self) -> None:
        self.now = self.cpu = 0.0

    def monotonic(self) -> float:
        return self.now

    def wall(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def work(self, seconds: float) -> None:
        self.now += seconds
        self.cpu += seconds


@pytest.mark.slow
@given(st.lists(st.floats(0.0001, 0.02), min_size=200, max_size=200))
def test_a_thread_that_always_has_work_uses_its_share_and_no_more(pieces: list[float]) -> None:
    thread = Thread()
    duty = Duty(thread, 0.05, lambda: thread.cpu)
    duty.rest()
    for piece in pieces:
        thread.work(piece)
        duty.rest()
    owed_at_most = 0.02 + 0.25
    assert thread.cpu <= BURST_S + 0.05 * thread.now + owed_at_most


def test_a_thread_that_seldom_works_never_rests() -> None:
    thread = Thread()
    duty = Duty(thread, 0.05, lambda: thread.cpu)
    for _ in range(100):
        duty.rest()
        thread.work(0.004)
        thread.now += 0.1
    assert thread.now == pytest.approx(100 * 0.104)


def test_what_is_owed_after_a_long_piece_is_owed_still() -> None:
    thread = Thread()
    duty = Duty(thread, 0.05, lambda: thread.cpu)
    duty.rest()
    thread.work(1.0)
    before = thread.now
    for _ in range(200):
        duty.rest()
    assert thread.now - before == pytest.approx((1.0 - BURST_S) / 0.05 - 1.0, rel=0.01)
