from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator

import pytest

from edge_runtime.base.system.loop import Loop
from edge_runtime.clock import SimulatedClock


@pytest.fixture
def loop() -> Iterator[Loop]:
    loop = Loop()
    yield loop
    loop.close()


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    read, write = os.pipe()
    yield read, write
    os.close(read)
    os.close(write)


def test_a_turn_calls_readers_then_timers_then_hooks(loop: Loop, pipe: tuple[int, int]) -> None:
    calls: list[str] = []
    loop.watch(pipe[0], lambda: calls.append(f"read {os.read(pipe[0], 9)!r}"))
    loop.call_soon(lambda: calls.append("soon"))
    loop.each_iteration(lambda: calls.append("pipeline"))
    loop.each_iteration(lambda: calls.append("flush"))
    os.write(pipe[1], b"x")
    loop.iterate(0)
    assert calls == ["read b'x'", "soon", "pipeline", "flush"]


def test_work_from_other_threads_wakes_a_waiting_loop(loop: Loop) -> None:
    seen: list[str] = []

    def on_loop() -> None:
        seen.append(threading.current_thread().name)
        loop.stop()

    def elsewhere() -> None:
        time.sleep(0.05)
        loop.call_soon_threadsafe(on_loop)

    thread = threading.Thread(target=elsewhere)
    began = time.monotonic()
    thread.start()
    loop.run()
    thread.join()
    assert seen == [threading.main_thread().name]
    assert time.monotonic() - began < 5


def test_timers_fire_once_in_order_and_can_be_cancelled() -> None:
    clock = SimulatedClock()
    loop = Loop(clock=clock)
    calls: list[str] = []
    loop.call_later(2, lambda: calls.append("late"))
    loop.call_later(1, lambda: calls.append("early"))
    loop.call_later(1.5, lambda: calls.append("never")).cancel()
    loop.iterate(0)
    assert calls == []
    clock.advance(3)
    loop.iterate(0)
    loop.iterate(0)
    assert calls == ["early", "late"]
    loop.close()


def test_a_callback_that_asks_for_another_one_gets_it_next_turn(loop: Loop) -> None:
    turns: list[int] = []

    def again() -> None:
        turns.append(len(turns))
        loop.call_soon(again)

    loop.call_soon(again)
    loop.iterate(0)
    assert turns == [0]
    loop.iterate(None)  # must not wait: there is work
    assert turns == [0, 1]


def busy(clock: SimulatedClock, pipe: tuple[int, int]) -> Loop:
    """A loop with a budget of 5 ms that has just seen messages come each millisecond; it reads one byte at a time."""
    loop = Loop(linger_s=0.005, clock=clock)

    def read() -> None:
        os.read(pipe[0], 1)
        loop.arrived(1)

    loop.watch(pipe[0], read, lingers=True)
    for _ in range(40):
        os.write(pipe[1], b"x")
        clock.advance(0.001)
        loop.skip_linger()
        loop.iterate(0)
    return loop


def test_lingering_waits_once_for_more_input_unless_in_a_hurry(pipe: tuple[int, int]) -> None:
    clock = SimulatedClock()
    loop = busy(clock, pipe)
    began = clock.monotonic()
    clock.advance(1e-9)  # what comes now came after the last look
    loop.iterate(0)
    os.write(pipe[1], b"abc")
    waits = []
    for skip_linger in (False, True, False):
        before = clock.monotonic()
        if skip_linger:
            loop.skip_linger()
        loop.iterate(0)
        waits.append(round(clock.monotonic() - before, 6))
    assert waits == [0.005, 0.0, 0.005]
    assert clock.monotonic() - began == pytest.approx(0.010, abs=1e-6)
    loop.close()


def test_what_came_during_a_turn_has_begun_to_wait(pipe: tuple[int, int]) -> None:
    clock = SimulatedClock()
    loop = busy(clock, pipe)
    read_at: list[float] = []

    def work() -> None:
        loop.arrived(len(os.read(pipe[0], 9)) * 9)
        read_at.append(round(clock.monotonic(), 6))
        if len(read_at) < 4:
            os.write(pipe[1], b"x")
        clock.advance([0.003, 0.02, 0.0, 0.0][len(read_at) - 1])

    loop.watch(pipe[0], work, lingers=True)
    began = clock.monotonic()
    os.write(pipe[1], b"x")
    for _ in range(4):
        loop.iterate(0)
    # A first arrival waits; one that came in 3 ms of work waits 2 ms more; one that came in 20 ms has waited enough.
    first = read_at[0] - began
    assert first <= 0.005
    assert [round(at - read_at[0], 6) for at in read_at[1:]] == [0.005, 0.025, 0.030]
    loop.close()


@pytest.mark.parametrize(
    ("interval_s", "waits"),
    [(0.0001, True), (0.001, True), (0.002, True), (0.0049, True), (0.006, False), (0.008, False), (0.01, False)],
)
def test_the_budget_is_waited_for_only_where_another_message_will_join(
    pipe: tuple[int, int], interval_s: float, waits: bool
) -> None:
    """Messages at a fixed rate, 5 ms of budget. Mutation that this finds: a wait that is measured in wake-ups, which a
    wait itself makes fewer: at 125 a second, one that had begun would never end.
    """
    clock = SimulatedClock()
    loop = busy(clock, pipe)
    due = [clock.monotonic() + interval_s]

    def read() -> None:
        loop.arrived(len(os.read(pipe[0], 4096)))

    loop.watch(pipe[0], read, lingers=True)

    def send() -> None:
        while due[0] <= clock.monotonic() + 1e-9:
            os.write(pipe[1], b"x")
            due[0] += interval_s

    lingered = []
    real = clock.sleep

    def sleep(seconds: float) -> None:
        real(seconds)
        lingered.append(seconds)
        send()

    clock.sleep = sleep  # type: ignore[method-assign]
    for turn in range(400):
        if turn == 200:
            lingered.clear()
        clock.advance(max(0.0, due[0] - clock.monotonic()))
        send()
        loop.iterate(0)
    assert bool(lingered) is waits
    loop.close()


def test_a_reader_that_does_not_linger_is_served_at_once(pipe: tuple[int, int]) -> None:
    clock = SimulatedClock()
    loop = Loop(linger_s=0.005, clock=clock)
    loop.watch(pipe[0], lambda: os.read(pipe[0], 1))
    os.write(pipe[1], b"a")
    loop.iterate(0)
    assert clock.monotonic() == 0
    loop.close()


def test_unwatching_inside_a_callback_is_safe(loop: Loop, pipe: tuple[int, int]) -> None:
    calls: list[str] = []

    def read() -> None:
        calls.append("read")
        loop.unwatch(pipe[0])

    loop.watch(pipe[0], read)

    def write() -> None:
        calls.append("write")
        loop.watch_write(pipe[1], None)

    loop.watch_write(pipe[1], write)
    os.write(pipe[1], b"a")
    loop.iterate(0)
    loop.iterate(0)
    assert sorted(calls) == ["read", "write"]


def test_a_waiting_loop_uses_no_cpu(loop: Loop) -> None:
    loop.call_later(0.3, loop.stop)
    before = time.process_time()
    loop.run()
    assert time.process_time() - before < 0.05


def test_what_recurs_is_called_each_time_until_it_is_cancelled() -> None:
    clock = SimulatedClock()
    loop = Loop(clock=clock)
    calls: list[float] = []
    timer = loop.call_every(10.0, lambda: calls.append(clock.monotonic()))
    start = clock.monotonic()
    for _ in range(7):
        clock.advance(5.0)
        loop.iterate(0)
    timer.cancel()
    clock.advance(50.0)
    loop.iterate(0)
    loop.close()
    assert [at - start for at in calls] == [10.0, 20.0, 30.0]
