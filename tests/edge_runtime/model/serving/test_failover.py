"""Who answers when an engine fails, with backends that fail as the test says."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_runtime.base.system.loop import Loop
from edge_runtime.base.system.retry import Retry
from edge_runtime.clock import SimulatedClock
from edge_runtime.errors import BundleError, EngineError, InputError
from edge_runtime.manifest import Variant
from edge_runtime.metrics import Metrics
from edge_runtime.model.serving.backend import Backend, BackendState
from edge_runtime.model.serving.failover import STABLE_S, ChainCare, FallbackChain
from edge_runtime.model.serving.loading import Answers
from edge_runtime.signal.windowing.window import Window
from tests.edge_runtime.manifests import manifest

WINDOWS = [Window("k", i, 0.0, np.zeros((4, 2), "f4"), np.zeros((4, 2), "f4"), 0.0) for i in range(3)]
NAMES = ("first", "second", "third")
WAITS = Retry(base_s=4.0, cap_s=60.0)


@dataclass
class FakeRung:
    """Answers with its position in every row; fails as the lists say."""

    variant: Variant
    position: int
    troubles: Troubles
    max_batch: int = 32
    closed: int = 0
    states: None = None

    @property
    def manifest(self) -> Any:
        return manifest()

    def predict(self, windows: Sequence[Window]) -> Answers:
        assert not self.closed, "a closed backend was asked"
        if error := self.troubles.run.get(self.position):
            raise error
        return Answers(np.full((len(windows), 2), self.position, "f4"), windows)

    def check(self) -> None:
        if error := self.troubles.check.get(self.position):
            raise error

    def close(self) -> None:
        self.closed += 1
        if error := self.troubles.close.get(self.position):
            raise error


@dataclass
class Troubles:
    """What is wrong with which backend, and everything that was loaded."""

    load: dict[int, Exception] = field(default_factory=dict)
    run: dict[int, Exception] = field(default_factory=dict)
    check: dict[int, Exception] = field(default_factory=dict)
    close: dict[int, Exception] = field(default_factory=dict)
    loaded: list[FakeRung] = field(default_factory=list)
    threads: list[str] = field(default_factory=list)
    gate: threading.Event = field(default_factory=threading.Event)
    """Loading waits for it."""

    def __post_init__(self) -> None:
        self.gate.set()


class Bench:
    """A fallback chain of three backends, each lighter than the one before."""

    def __init__(self, loop: bool = True, costs: Sequence[float] = (3.0, 2.0, 1.0), **more: Any) -> None:
        self.clock, self.metrics, self.troubles = SimulatedClock(), Metrics(), Troubles()
        self.said: list[dict[str, Any]] = []
        (variant,) = manifest().variants
        self.backends = [
            Backend(name=name, variant=replace(variant, name=name, size=100), cost=cost)
            for name, cost in zip(NAMES, costs, strict=True)
        ]
        for position, error in more.pop("load", {}).items():
            self.troubles.load[position] = error
        self.fallback_chain = FallbackChain(
            manifest(), [BackendState(one) for one in self.backends], self.load, clock=self.clock, metrics=self.metrics,
            care=ChainCare(retry=WAITS, rng=random.Random(1), **more),
        )  # fmt: skip
        self.loop = Loop(clock=self.clock)
        if loop:
            self.fallback_chain.open(self.loop, lambda status: self.said.append(dict(status)))

    def load(self, backend: Backend) -> FakeRung:
        self.troubles.threads.append(threading.current_thread().name)
        assert self.troubles.gate.wait(10), "the test has not opened the gate"
        position = NAMES.index(backend.name)
        if error := self.troubles.load.get(position):
            raise error
        made = FakeRung(backend.variant, position, self.troubles)
        self.troubles.loaded.append(made)
        return made

    def answer(self) -> int:
        """Which backend answers, all windows of it."""
        rows = self.fallback_chain.predict(WINDOWS).rows
        assert rows.shape == (len(WINDOWS), 2)
        assert (rows == rows[0, 0]).all()
        answered = int(rows[0, 0])
        assert self.fallback_chain.variant.name == NAMES[answered]
        assert self.fallback_chain.current == answered == self.metrics.gauges["model_fallback_level"]
        return answered

    def turn_until(self, condition: Callable[[], bool]) -> None:
        """Let the loop turn, and the threads that load come to an end."""
        until = time.monotonic() + 60
        while not condition():
            assert time.monotonic() < until
            self.loop.iterate(0.0)
            time.sleep(0.001)

    def quiet(self) -> bool:
        return not any(thread.name.startswith("prepare") for thread in threading.enumerate())

    def wait(self, seconds: float) -> None:
        """Let time pass, and what it brings happen."""
        self.clock.advance(seconds)
        self.loop.iterate(0.0)
        self.turn_until(self.quiet)
        self.loop.iterate(0.0)

    def failovers(self, how: str) -> int:
        return self.metrics.counts[f'failovers_total{{how="{how}"}}']

    def close(self) -> None:
        self.troubles.gate.set()
        self.fallback_chain.close()
        self.loop.close()


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.close()


FAILURES = {
    "raised": EngineError("the accelerator went away"),
    "hung": EngineError("no answer within 2 s", how="hung"),
    "died": EngineError("it ended of SIGSEGV", how="died"),
    "wrong": BundleError("does not reproduce its golden vectors"),
}


@pytest.mark.parametrize("how", FAILURES)
def test_the_same_windows_are_answered_by_the_next_rung(
    bench: Bench, caplog: pytest.LogCaptureFixture, how: str
) -> None:
    """Loudly: a line in the log, a count, a gauge and the status.

    Mutation that this finds: `predict` raising the first error instead of going round again.
    """
    assert bench.answer() == 0
    bench.troubles.run[0] = FAILURES[how]
    assert bench.answer() == 1
    assert bench.failovers(how) == 1
    assert "first failed" in caplog.text
    assert str(FAILURES[how]) in caplog.text
    assert bench.said[-1] | {"failed": None} == {"backend": "second", "position": 1, "of": 3, "failed": None}
    assert bench.said[-1]["failed"] == {"first": f"{how}: {FAILURES[how]}"}
    assert bench.troubles.loaded[0].closed == 1


def test_whatever_a_vendors_library_raises_is_a_failure(bench: Bench) -> None:
    bench.troubles.run[0] = ZeroDivisionError("in somebody's binding")
    bench.troubles.close[0] = OSError("nor does it close")
    assert bench.answer() == 1
    assert bench.said[-1]["failed"] == {"first": "raised: ZeroDivisionError: in somebody's binding"}


def test_windows_that_no_engine_would_have_are_not_the_engines_fault(bench: Bench) -> None:
    bench.troubles.run[0] = InputError("not_finite", "infinite")
    with pytest.raises(InputError):
        bench.answer()
    assert bench.fallback_chain.current == 0
    assert not bench.said[-1]["failed"]


def test_when_none_is_left_it_says_so_and_tries_nothing_on_the_way_of_the_windows(bench: Bench) -> None:
    """Mutation that this finds: loading a backend that has failed for every batch that comes."""
    bench.troubles.run |= dict.fromkeys(range(3), EngineError("no"))
    for _ in range(5):
        with pytest.raises(EngineError, match=r"first: raised: no \| second: raised: no \| third: raised: no"):
            bench.fallback_chain.predict(WINDOWS)
    assert len(bench.troubles.loaded) == 3
    assert bench.metrics.gauges["model_fallback_level"] == 3
    assert bench.said[-1]["backend"] == "none"


def test_a_failed_rung_answers_again_once_it_has_proven_itself(bench: Bench) -> None:
    """Loaded anew, on a thread of its own, after its back-off.

    Mutation that this finds: `_prepared` without `_select`.
    """
    bench.troubles.run[0] = EngineError("no")
    assert bench.answer() == 1
    del bench.troubles.run[0]
    assert bench.answer() == 1  # it may not yet
    bench.wait(WAITS.base_s)
    assert bench.answer() == 0
    assert bench.troubles.threads[-1] == "prepare first"
    assert bench.troubles.threads[:-1] == ["MainThread"] * 2
    assert not bench.said[-1]["failed"]


def test_a_rung_that_still_fails_its_proof_is_asked_less_and_less_often(bench: Bench) -> None:
    bench.troubles.run[0] = bench.troubles.load[0] = EngineError("no")
    bench.answer()
    tries = []
    for _ in range(60):
        bench.wait(10.0)
        tries.append(len(bench.troubles.threads))
        assert bench.answer() == 1
    first, last = tries[9] - 2, tries[-1] - tries[49]
    assert first > 0
    assert last <= first  # full jitter, and a cap of a minute
    assert tries[-1] - 2 <= 60
    assert bench.failovers("raised") == tries[-1] - 2 + 1


def test_one_that_proves_itself_and_fails_in_use_backs_off_all_the_same(bench: Bench) -> None:
    """Mutation that this finds: forgetting the failures when the golden vectors pass."""
    failures = []
    bench.troubles.run[0] = EngineError("only under load")
    for second in range(1, 400):
        bench.wait(1.0)
        bench.answer()
        failures.append((second, bench.failovers("raised")))
    assert failures[-1][1] < 40  # each second it would be 400
    assert failures[-1][1] > 3


def test_one_that_has_answered_for_long_begins_its_back_off_anew(bench: Bench) -> None:
    place = bench.fallback_chain._states[0]
    for _ in range(3):
        bench.troubles.run[0] = EngineError("no")
        assert bench.answer() == 1
        del bench.troubles.run[0]
        bench.wait(WAITS.cap_s)
        assert bench.answer() == 0
    assert place.failures == 3
    bench.wait(STABLE_S)
    bench.troubles.run[0] = EngineError("no")
    assert bench.answer() == 1
    assert place.failures == 1


def test_other_answers_on_the_golden_vectors_are_found_while_it_runs(bench: Bench) -> None:
    """Mutation that this finds: `open` without `_check_regularly`."""
    assert bench.answer() == 0
    bench.troubles.check[0] = BundleError("differs by 0.3")
    assert bench.answer() == 0
    bench.wait(60.0)
    assert bench.answer() == 1
    assert bench.failovers("wrong") == 1


def test_it_may_begin_below_a_rung_that_does_not_load() -> None:
    bench = Bench(load={0: EngineError("no such device")})
    assert bench.answer() == 1
    assert bench.said[0]["failed"] == {"first": "raised: no such device"}
    bench.troubles.load.clear()
    bench.wait(WAITS.base_s)
    assert bench.answer() == 0
    bench.close()


def test_nothing_begins_if_nothing_loads() -> None:
    with pytest.raises(EngineError, match=r"nothing of bench/3 works here \(first: raised: no \| second"):
        Bench(load=dict.fromkeys(range(3), EngineError("no")))


# -- the governor ------------------------------------------------------------------------------------------------------


def test_a_step_down_does_not_wait_for_the_lighter_rung(bench: Bench) -> None:
    """Mutation that this finds: `_select` loading what it lacks here and now."""
    bench.troubles.gate.clear()
    assert bench.fallback_chain.step_down("82 °C")
    assert bench.answer() == 0
    bench.troubles.gate.set()
    bench.turn_until(lambda: bench.fallback_chain.current == 1)
    assert bench.answer() == 1
    assert bench.said[-1]["limit"] == "82 °C"
    assert bench.fallback_chain.limit == 1
    assert bench.fallback_chain.step_up()
    assert bench.answer() == 0  # still loaded
    assert "limit" not in bench.said[-1]
    assert not bench.fallback_chain.step_up()


def test_only_a_lighter_rung_is_a_step_down() -> None:
    bench = Bench(costs=(2.0, 2.0, 1.0))
    assert bench.fallback_chain.step_down("hot")
    bench.turn_until(lambda: bench.fallback_chain.current == 2)
    assert not bench.fallback_chain.step_down("hot")
    assert bench.fallback_chain.limit == 2
    bench.close()


def test_the_limit_gives_way_when_nothing_below_it_works(bench: Bench) -> None:
    assert bench.fallback_chain.step_down("hot")
    bench.turn_until(lambda: bench.fallback_chain.current == 1)
    bench.troubles.run[1] = bench.troubles.run[2] = EngineError("no")
    assert bench.answer() == 0


# -- memory and life ---------------------------------------------------------------------------------------------------


def test_rungs_that_do_not_answer_are_let_go_when_they_take_too_much_memory() -> None:
    bench = Bench(keep_bytes=250)
    bench.troubles.run[0] = bench.troubles.run[1] = EngineError("no")
    assert bench.answer() == 2
    bench.troubles.run.clear()
    bench.wait(WAITS.cap_s)
    assert bench.answer() == 0
    assert sum(not one.closed for one in bench.troubles.loaded) == 2
    bench.close()


@pytest.mark.parametrize("loading", [False, True])
def test_closing_frees_every_rung_once(bench: Bench, loading: bool) -> None:
    bench.troubles.run[0] = EngineError("no")
    bench.answer()
    if loading:
        bench.troubles.gate.clear()
        bench.clock.advance(WAITS.base_s)
        bench.loop.iterate(0.0)
    bench.fallback_chain.close()
    bench.troubles.gate.set()
    bench.turn_until(bench.quiet)
    bench.loop.iterate(0.0)
    bench.fallback_chain.close()
    assert [one.closed for one in bench.troubles.loaded] == [1] * len(bench.troubles.loaded)
    assert len(bench.troubles.loaded) == 2 + loading


def test_without_a_loop_it_fails_over_and_steps_down_at_once() -> None:
    bench = Bench(loop=False)
    assert bench.fallback_chain.step_down("hot")
    assert bench.answer() == 1
    bench.troubles.run[1] = EngineError("no")
    assert bench.answer() == 2
    bench.close()


EVENTS = st.lists(
    st.tuples(st.sampled_from(["break", "mend", "down", "up", "wait", "check"]), st.integers(0, 2)), max_size=30
)


@settings(max_examples=40, deadline=None)
@given(EVENTS)
def test_whatever_happens_the_best_rung_that_works_and_may_answers(events: list[tuple[str, int]]) -> None:
    """After every event all windows are answered, by a backend that works, or all are broken and it says so."""
    bench = Bench()
    try:
        for what, position in events:
            match what:
                case "break":
                    bench.troubles.run[position] = bench.troubles.load[position] = EngineError("no")
                case "mend":
                    bench.troubles.run.pop(position, None)
                    bench.troubles.load.pop(position, None)
                case "down":
                    bench.fallback_chain.step_down("hot")
                case "up":
                    bench.fallback_chain.step_up()
                case "wait":
                    bench.wait(WAITS.cap_s)
                case "check":
                    bench.fallback_chain.check()
            if len(bench.troubles.run) < 3 and bench.fallback_chain.backend is not None:
                try:
                    assert bench.answer() not in bench.troubles.run
                except EngineError:  # the working ones wait for their back-off
                    assert bench.fallback_chain.current == 3
        bench.troubles.run.clear()
        bench.troubles.load.clear()
        for _ in range(2):
            bench.wait(WAITS.cap_s)
        assert bench.answer() == bench.fallback_chain.limit
    finally:
        bench.close()
