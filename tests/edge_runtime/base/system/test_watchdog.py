"""Noticing that a call does not come back."""

from __future__ import annotations

import queue

from edge_runtime.base.system.watchdog import Watchdog
from edge_runtime.clock import SystemClock

PATIENCE_S = 60.0


class Call:
    began = 0.0


def test_a_call_that_takes_too_long_is_told_once_and_the_next_one_again() -> None:
    """Mutation that this finds: comparing with the deadline without asking whether a call is under way at all."""
    clock, call, told = SystemClock(), Call(), queue.Queue[float]()
    watchdog = Watchdog(lambda: call.began, 0.1, told.put, clock)
    try:
        clock.sleep(0.3)
        assert told.empty(), "nothing is under way"
        for _ in range(2):
            call.began = clock.monotonic()
            assert told.get(timeout=PATIENCE_S) > 0.1
            clock.sleep(0.3)
            assert told.empty(), "once"
    finally:
        watchdog.close()
        watchdog.close()
    call.began = clock.monotonic() - 1.0
    clock.sleep(0.2)
    assert told.empty(), "closed"


def test_calls_that_come_back_in_time_are_not_told_however_long_they_go_on() -> None:
    clock, call, told = SystemClock(), Call(), queue.Queue[float]()
    watchdog = Watchdog(lambda: call.began, 5.0, told.put, clock)
    for _ in range(20):
        call.began = clock.monotonic()
        clock.sleep(0.01)
    watchdog.close()
    assert told.empty()
