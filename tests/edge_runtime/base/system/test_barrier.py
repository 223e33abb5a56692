"""The fault barrier: counts, logs once for each cause, and lets everything else go on."""

from __future__ import annotations

import logging

import pytest

from edge_runtime.base.system.barrier import Barrier, GuardedLoop
from edge_runtime.base.system.loop import Loop
from edge_runtime.metrics import Metrics


def fail() -> None:
    raise ZeroDivisionError("two\nlines")


def test_an_exception_is_counted_each_time_and_logged_once_for_each_cause(caplog: pytest.LogCaptureFixture) -> None:
    """Mutation: `caught` forgets no cause: a flood of messages floods the log."""
    metrics = Metrics()
    barrier = Barrier("update", metrics)
    with caplog.at_level(logging.DEBUG):
        assert [barrier.call(fail) for _ in range(3)] == [False] * 3
        assert not barrier.call(lambda: next(iter(())))
    assert metrics.counts["side_channel_errors_total"] == 4
    assert metrics.dropped["update_internal_error"] == 4
    errors = [record.message for record in caplog.records if record.levelno == logging.ERROR]
    assert len(errors) == 2
    assert all("\n" not in line and line.startswith("update: unexpected error") for line in errors)
    tracebacks = [record for record in caplog.records if record.exc_info]
    assert {record.levelno for record in tracebacks} == {logging.DEBUG}


def test_what_ends_well_is_not_counted() -> None:
    metrics = Metrics()
    assert Barrier("update", metrics).call(lambda: None)
    assert not metrics.counts


def test_an_interrupt_passes() -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Barrier("update", Metrics()).call(interrupt)


def test_what_is_scheduled_on_a_guarded_loop_cannot_end_the_loop() -> None:
    loop, metrics = Loop(), Metrics()
    guarded = GuardedLoop(loop, Barrier("update", metrics))
    guarded.call_soon(fail)
    guarded.call_soon_threadsafe(fail)
    guarded.call_later(0.0, fail)
    guarded.call_later(0.0, fail).cancel()
    called: list[int] = []
    loop.call_later(0.0, lambda: called.append(1))
    while not called:
        loop.iterate(1.0)
    loop.close()
    assert metrics.counts["side_channel_errors_total"] == 3
