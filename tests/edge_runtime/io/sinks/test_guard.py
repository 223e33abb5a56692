"""Guard of a sink: what it holds back, for how long, and what it says of it."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_runtime.base.system.loop import Loop
from edge_runtime.clock import SimulatedClock
from edge_runtime.io.sinks.guard import PATIENCE_S, Bounds, SinkGuard, SinkPolicy, bounds_of
from edge_runtime.io.sinks.memory import MemorySink
from edge_runtime.metrics import Metrics
from tests.edge_runtime.io.sinks.answers import prediction


class Timers:
    """The part of a loop that a guard uses, with nothing to close."""

    def __init__(self, clock: SimulatedClock) -> None:
        self.clock = clock
        self._due: list[tuple[float, Callable[[], None]]] = []

    def call_later(self, seconds: float, callback: Callable[[], None]) -> None:
        self._due.append((self.clock.monotonic() + seconds, callback))

    def iterate(self) -> None:
        ready = [one for one in self._due if one[0] <= self.clock.monotonic()]
        self._due = [one for one in self._due if one not in ready]
        for _, callback in ready:
            callback()


class Guarded:
    """A sink that holds everything until it is released, behind a guard, on simulated time."""

    def __init__(self, bounds: Bounds) -> None:
        self.clock = SimulatedClock()
        self.loop = Timers(self.clock)
        self.metrics = Metrics()
        self.sink = MemorySink(hold=True, name="sink[0]")
        self.changes = 0
        counted = self.metrics.of_sink("sink[0]")
        self.guard = SinkGuard(self.sink, bounds, counted, self.clock, self._changed)
        self.guard.open(cast("Loop", self.loop))
        self.sent = self.acked = 0

    def _changed(self) -> None:
        self.changes += 1

    def send(self, count: int = 1) -> None:
        def done() -> None:
            self.acked += 1

        for _ in range(count):
            self.guard.send([prediction(self.sent)], done)
            self.sent += 1

    def wait(self, seconds: float) -> None:
        """Let time pass, with a look of the loop each quarter of a second."""
        for _ in range(round(seconds * 4)):
            self.clock.advance(0.25)
            self.loop.iterate()


def test_a_sink_that_is_not_required_holds_nothing_back_and_still_gets_everything() -> None:
    one = Guarded(Bounds(required=False, patience_s=5.0))
    one.send(10)
    assert one.acked == 10
    assert len(one.sink.answers) == 10
    assert one.guard.status()["waiting"] == 10


def test_a_required_sink_holds_back_for_its_patience_and_then_nothing_waits(caplog: pytest.LogCaptureFixture) -> None:
    one = Guarded(Bounds(required=True, patience_s=5.0))
    with caplog.at_level(logging.WARNING):
        one.send(3)
        one.wait(4)
        assert one.acked == 0
        one.wait(3)
        assert one.acked == 3
        one.send(4)
        assert one.acked == 7, "nothing waits while it is stalled"
        assert one.guard.status()["stalled_s"] > 5
        one.sink.release()
        one.wait(2)
        assert one.guard.status() | {"dropped": {}} == {
            "name": "sink[0]", "required": True, "waiting": 0, "stalled_s": 0.0, "blocks": False, "dropped": {},
        }  # fmt: skip
        one.send()
        assert one.acked == 7, "it is waited for again"
    assert [record.message.split(":")[1] for record in caplog.records] == [" took no answers", " took answers again"]
    assert one.changes == 2


def test_half_of_what_a_source_has_on_its_way_is_released_before_the_patience_ends() -> None:
    one = Guarded(Bounds(required=True, patience_s=60.0, most_held=10))
    one.send(9)
    one.wait(4)
    assert one.acked == 0
    one.send()
    one.wait(2)
    assert one.acked == 10


def test_a_wait_for_ever_is_said_and_names_the_sink() -> None:
    one = Guarded(Bounds(required=True, patience_s=math.inf))
    one.send(2000)
    one.wait(100)
    assert one.acked == 0
    assert one.guard.blocks
    one.sink.release()
    assert one.acked == 2000
    one.wait(2)
    assert not one.guard.blocks


def test_what_a_sink_drops_is_counted_under_its_name_and_among_all() -> None:
    metrics = Metrics()
    first, second = metrics.of_sink("sink[0]"), metrics.of_sink("sink[1]")
    first.dropped["jsonl_full"] += 2
    second.dropped["jsonl_full"] += 3
    assert (metrics.dropped["jsonl_full"], dict(first.dropped)) == (5, {"jsonl_full": 2})
    assert metrics.counts['sink_dropped_total{sink="sink[1]",reason="jsonl_full"}'] == 3


POLICIES = st.lists(
    st.builds(
        SinkPolicy,
        required=st.sampled_from((None, True, False)),
        patience_s=st.sampled_from((None, 0.0, 7.0, "forever")),
    ),
    min_size=1,
    max_size=4,
)


@given(POLICIES, st.lists(st.none() | st.integers(1, 1000), min_size=1, max_size=3))
def test_the_acknowledgement_waits_for_those_that_say_so_else_for_the_first(
    policies: list[SinkPolicy], limits: list[int | None]
) -> None:
    bounds = bounds_of(policies, limits)
    lossy = [limit for limit in limits if limit is not None]
    if not lossy:
        assert all(bound.required for bound in bounds)
    elif any(policy.required for policy in policies):
        assert [bound.required for bound in bounds] == [policy.required is True for policy in policies]
    else:
        firsts = [i for i, policy in enumerate(policies) if policy.required is None][:1]
        assert [i for i, bound in enumerate(bounds) if bound.required] == firsts
    for bound, policy in zip(bounds, policies, strict=True):
        if policy.patience_s is None:
            assert bound.patience_s == (PATIENCE_S if lossy and len(policies) > 1 else math.inf)
        if bound.patience_s < math.inf and lossy:
            assert bound.most_held <= max(1, min(lossy) // 2)


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from(("send", "wait", "release")), st.integers(1, 30)), max_size=30))
def test_whatever_happens_each_reading_is_acknowledged_once_and_within_the_bound(steps: list[tuple[str, int]]) -> None:
    one = Guarded(Bounds(required=True, patience_s=5.0, most_held=500))
    for what, count in steps:
        if what == "send":
            one.send(count)
        elif what == "wait":
            one.wait(count / 4)
        else:
            one.sink.release()
        assert one.acked <= one.sent
    one.wait(7)
    assert one.acked == one.sent == len(one.sink.answers)


@pytest.mark.parametrize("patience_s", [-1.0, math.nan])
def test_a_patience_below_0_is_refused(patience_s: float) -> None:
    with pytest.raises(ValueError, match="patience_s must be at least 0"):
        SinkPolicy(patience_s=cast("Any", patience_s))
