"""Interleaved benchmark: models timed alternately in one process, so that what disturbs the machine disturbs all.

How a figure is made, and why it holds on a machine that does other work too:

1. Each candidate is loaded once into the device's own engine and warmed up. A *round* gives every candidate one block
   of calls with a batch of 1, in an order that is drawn for each round; two untimed calls at the start of a block
   bring the model back into the caches. Blocks are short and rounds many: what else the machine does lasts for tens of
   milliseconds, and a round that is over before it changes compares like with like.
2. Every call is timed alone with the monotonic clock. `Timing.p50_us`, `p95_us` and `min_us` are those of all
   calls. A pre-empted call is an outlier among hundreds and does not move the median.
3. `Timing.ratio` is the median over the rounds of the candidate's median by the reference's median *of the same round*.
   A spell in which the processor is slow, hot or shared covers both. Its 95 % interval is that of a median by order
   statistics, which assumes nothing about how the noise is distributed.
4. `Timing.cpu_us` is processor time of the whole process per call, all threads, median over the rounds. It does not
   count time in which other programs had the core, and with several threads it shows what they cost.

Windows are given in turn, since a call on the very same numbers would find its branches predicted.

Source of the interval: David and Nagaraja, Order Statistics (2003), section 7.1.
"""

from __future__ import annotations

import contextlib
import gc
import math
import resource
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import cycle

import numpy as np

from edge_runtime.clock import Clock, SystemClock
from edge_runtime.errors import EngineError, InputError
from edge_runtime.model import engines
from edge_runtime.model.chain import STEP
from edge_runtime.model.engines.base import Array, EngineOptions

_LIMITS = (3, 5000)
"""Calls in a block, at least and at most."""
_SPIN_S = 0.003
"""Between blocks with several threads: worker threads of an engine spin for a while after their last call, and would
take a core from the candidate that is measured next."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedModel:
    """A model to be timed.

    Attributes:
        name: of the candidate or variant.
        engine: name of an engine in `edge_runtime.model.engines`.
        model: the file's bytes.
        inputs: one array per input of the model in the model's own layout, first axis the windows to take in turn. Of a
            chain with states the window alone: the states are those of a stream of these windows.
        providers: accelerators by name with their options, in order of preference; empty is the processor.
        batch: windows given in one call. Not for a chain with states.
    """

    name: str
    engine: str
    model: bytes = field(repr=False)
    inputs: tuple[Array, ...] = field(repr=False)
    providers: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    batch: int = 1

    def __post_init__(self) -> None:
        if not self.inputs or not len(self.inputs[0]) or len({len(array) for array in self.inputs}) != 1:
            raise ValueError(f"candidate {self.name} needs windows to be timed on, the same number for each input")


@dataclass(frozen=True, slots=True, kw_only=True)
class TimingPlan:
    """Length of a measurement.

    Attributes:
        rounds: blocks of every candidate; the interval of a ratio needs at least 6.
        block_s: about how long one block lasts, seconds.
        warm_up: untimed calls at the start of a block.
        seed: of the order within a round.
    """

    rounds: int = 61
    block_s: float = 0.005
    warm_up: int = 2
    seed: int = 0

    def __post_init__(self) -> None:
        if self.rounds < 1 or self.warm_up < 0 or not 0 < self.block_s <= 10:
            raise ValueError("rounds must be at least 1, warm_up at least 0 and block_s above 0 and at most 10")


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Figures of one candidate, in microseconds a call: per window with a batch of 1.

    Attributes:
        name: of the candidate.
        engine: library and version.
        threads: that the engine was allowed.
        p50_us: median of all calls, wall time.
        p95_us: 95th percentile of all calls, wall time.
        min_us: fastest call, wall time.
        cpu_us: processor time per call, all threads.
        ratio: to the reference with as many threads; below 1 is faster.
        ratio_low: lower end of its 95 % interval.
        ratio_high: upper end.
        rounds: number of rounds.
        calls: timed calls in all.
        load_ms: importing the engine and loading the model, in a process of its own; 0 where that was not measured.
        peak_rss_kb: largest resident memory of that process: interpreter, numpy, engine, model; 0 where not measured.
    """

    name: str
    engine: str
    threads: int
    p50_us: float
    p95_us: float
    min_us: float
    cpu_us: float
    ratio: float
    ratio_low: float
    ratio_high: float
    rounds: int
    calls: int
    load_ms: float = 0.0
    peak_rss_kb: int = 0


class _Runner:
    """A loaded candidate and its figures so far."""

    def __init__(self, candidate: TimedModel, threads: int) -> None:
        self.name = candidate.name
        self.engine = engines.load(
            candidate.engine, candidate.model, EngineOptions(threads=threads), candidate.providers
        )
        self.calls = 0
        self.walls: list[list[float]] = []
        self.cpus: list[float] = []
        rows = range(len(candidate.inputs[0]))
        self._next: Iterator[list[Array]] = cycle(
            [
                [np.take(array, range(i, i + candidate.batch), axis=0, mode="wrap") for array in candidate.inputs]
                for i in rows
            ]
        )
        stateful = [spec.name for spec in self.engine.inputs[1:2]] == [STEP]
        kept = self.engine.inputs[1:] if stateful else ()
        self._states = [np.zeros((1, *spec.shape[1:]), spec.dtype) for spec in kept]

    def warm_up(self, calls: int) -> None:
        for _ in range(calls):
            self._run(next(self._next))

    def size(self, block_s: float, clock: Clock) -> None:
        """Choose how many calls make a block, after the fastest of a few."""
        self.warm_up(_LIMITS[0])
        fastest = math.inf
        for _ in range(_LIMITS[0]):
            started = clock.monotonic()
            self._run(next(self._next))
            fastest = min(fastest, clock.monotonic() - started)
        self.calls = max(_LIMITS[0], min(_LIMITS[1], round(block_s / max(fastest, 1e-7))))

    def block(self, clock: Clock, cpu: Callable[[], float]) -> None:
        walls = []
        run, feeds, now = self.engine.run, self._next, clock.monotonic
        spent = cpu()
        for _ in range(self.calls):
            feed = (*next(feeds), *self._states)
            started = now()
            outputs = run(*feed)
            walls.append(now() - started)
            self._go_on(outputs)
        self.cpus.append((cpu() - spent) / self.calls)
        self.walls.append(walls)

    def _run(self, feed: list[Array]) -> None:
        try:
            self._go_on(self.engine.run(*feed, *self._states))
        except InputError as error:
            raise EngineError(f"{self.name} does not take the windows it is to be timed on: {error}") from error

    def _go_on(self, outputs: Sequence[Array]) -> None:
        """Keep the states that a step has left."""
        if self._states:
            self._states = [np.array(state) for state in outputs[2:]]


def process_cpu() -> float:
    """Seconds of processor time that this process has had, all threads."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def time_interleaved(
    candidates: Sequence[TimedModel],
    *,
    reference: str,
    threads: int = 1,
    plan: TimingPlan | None = None,
    clock: Clock | None = None,
    cpu: Callable[[], float] = process_cpu,
) -> tuple[Timing, ...]:
    """Time models against one another, in this process.

    Args:
        candidates: all stay loaded until the end.
        reference: name of the candidate that ratios are taken to.
        threads: threads that an engine may use for one call.
        plan: length of the benchmark.
        clock: wall time.
        cpu: processor time, seconds.

    Returns:
        One timing per candidate, in their order.

    Raises:
        ValueError: the reference is not among the candidates, or two have the same name.
        EngineError: an engine refuses a model or its windows.
    """
    plan, clock = plan or TimingPlan(), clock or SystemClock()
    names = [candidate.name for candidate in candidates]
    if reference not in names or len(set(names)) != len(names):
        raise ValueError(f"candidates need different names, one of them '{reference}'; got {', '.join(names)}")
    with ExitStack() as stack:
        runners = []
        for candidate in candidates:
            runner = _Runner(candidate, threads)
            stack.callback(runner.engine.close)
            runners.append(runner)
        stack.enter_context(_no_collection())
        for runner in runners:
            runner.size(plan.block_s, clock)
        order = np.random.default_rng(plan.seed)
        for _ in range(plan.rounds):
            for k in order.permutation(len(runners)):
                if threads > 1:
                    clock.sleep(_SPIN_S)
                runners[k].warm_up(plan.warm_up)
                runners[k].block(clock, cpu)
        base = runners[names.index(reference)]
        return tuple(_timing(runner, base, threads) for runner in runners)


def _timing(runner: _Runner, base: _Runner, threads: int) -> Timing:
    calls = np.concatenate(runner.walls) * 1e6
    # A clock too coarse for a call says 0; half a nanosecond keeps the quotient finite and equal for both.
    medians = [max(statistics.median(walls), 5e-10) for walls in runner.walls]
    ratios = [own / max(statistics.median(walls), 5e-10) for own, walls in zip(medians, base.walls, strict=True)]
    low, high = median_interval(ratios)
    return Timing(
        name=runner.name,
        engine=runner.engine.name,
        threads=threads,
        p50_us=float(np.median(calls)),
        p95_us=float(np.quantile(calls, 0.95)),
        min_us=float(calls.min()),
        cpu_us=statistics.median(runner.cpus) * 1e6,
        ratio=statistics.median(ratios),
        ratio_low=low,
        ratio_high=high,
        rounds=len(ratios),
        calls=len(calls),
    )


def median_interval(values: Sequence[float], confidence: float = 0.95) -> tuple[float, float]:
    """Find an interval that covers the median with at least this confidence, between two sorted values.

    With fewer than 6 values no such interval exists at 95 %, and the smallest and the largest are returned.

    >>> median_interval([5, 1, 4, 2, 3, 6, 8, 7])
    (1.0, 8.0)
    >>> median_interval(range(15))
    (3.0, 11.0)
    """
    ordered = sorted(map(float, values))
    n = len(ordered)
    outside, rank = 0.0, 0
    for k in range((n + 1) // 2):
        outside += 2 * math.comb(n, k) / 2**n
        if outside > 1 - confidence:
            break
        rank = k
    return ordered[rank], ordered[n - 1 - rank]


@contextlib.contextmanager
def _no_collection() -> Iterator[None]:
    """Hold back the garbage collector: its pauses belong to no candidate."""
    enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
