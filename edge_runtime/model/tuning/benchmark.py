"""Benchmark of a bundle's backends on this machine: which variant, in which engine, is the fastest here.

The answer flips between networks and boards, so it is measured where the bundle is to run: every variant in every
engine that is installed, and on every accelerator of the board's profile. Each must reproduce its golden vectors first;
then all are timed interleaved in a child process (`edge_runtime.model.tuning.timing`). A small JSON file keeps the
figures (`edge_runtime.model.tuning.results`), under a key made of the machine, the versions of all that computes, and
the bundle's
contents: another board, an upgraded engine or a new bundle finds nothing there and is measured again. The file only
ever chooses among what the bundle holds, what is installed and what the machine's own profile names, and what it
chooses proves itself again at load. So a user who may write the file can make a device slower, and nothing worse.
"""

from __future__ import annotations

import logging
import math
import statistics
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Final

from edge_runtime.base.system.progress import Progress
from edge_runtime.clock import Clock, SystemClock
from edge_runtime.errors import EngineError, IncompatibleError
from edge_runtime.model.tuning.results import Figure, Tuning, save_tuning

if TYPE_CHECKING:
    from edge_runtime.base.hardware import Profile
    from edge_runtime.model.bundle.bundle import Bundle
    from edge_runtime.model.bundle.sandbox import ProbeReport
    from edge_runtime.model.tuning.backends import BackendSpec
    from edge_runtime.model.tuning.timing import Machine, TimedModel, Timing, TimingPlan

log = logging.getLogger(__name__)

PROBE_TIMEOUT_S: Final = 60.0
"""For one variant to load and prove itself; a Raspberry Pi 3 imports an engine in about two seconds."""
COMPILE_TIMEOUT_S: Final = 600.0
"""The same on an accelerator: TensorRT compiles for minutes on a Jetson."""
_FEWEST_ROUNDS: Final = 9
"""Rounds below which measuring is not worth its time: the interval of a ratio needs six."""
_CALLS_PER_BLOCK: Final = 5
"""The shortest block: three timed calls after two that warm up (`edge_runtime.model.tuning.timing.interleaved`)."""
_ROUND_TRIPS: Final = 300
"""A tenth of a second, and a median that a busy machine moves little."""


class _TimeLimit:
    """Time that measuring may take, from now on."""

    def __init__(self, within_s: float, clock: Clock) -> None:
        self.within_s = within_s
        self.clock = clock
        self._until = clock.monotonic() + within_s

    @property
    def left_s(self) -> float:
        return self._until - self.clock.monotonic()


def tune(
    bundle: Bundle,
    *,
    threads: Sequence[int] = (1,),
    within_s: float = math.inf,
    probe_timeout_s: float = PROBE_TIMEOUT_S,
    machine: Machine | None = None,
    profile: Profile | None = None,
    compiled: Path | None = None,
    clock: Clock | None = None,
) -> Tuning:
    """Prove and time every variant of a bundle in every engine installed, and on accelerators.

    1. Each backend is proven alone, in a child process: those on the processor first, in the bundle's order.
    2. After each proof the time for the rest is estimated; measuring ends where the time left is less.
    3. The proven ones are timed together, in an interleaved benchmark for each number of threads (`_passes`).
    4. What an accelerator compiled for a backend that is refused is deleted.
    5. On the processor and with the fewest threads, the batch that costs the least is found (`tuning.batches`), where
       time is not short and answers need no states.

    Args:
        bundle: an open bundle.
        threads: numbers of threads to measure with.
        within_s: seconds that it may take; see rule 2.
        probe_timeout_s: longest time for one variant to load and prove itself.
        machine: this one; None looks.
        profile: its accelerators are tried too, with the fewest threads; compiling for them may take minutes. None
            leaves them out.
        compiled: folder in which what they compile is kept for applications that run the bundle; None keeps nothing.
        clock: wall and monotonic time.

    Raises:
        IncompatibleError: nothing of the bundle runs here; says why for each.
        EngineError: there is not enough time, or no child process can be started.
    """
    # Engines and numpy: not to look into a file.
    from edge_runtime.model.tuning.backends import discard_refused, on_accelerators, on_processor  # noqa: PLC0415
    from edge_runtime.model.tuning.timing import this_machine  # noqa: PLC0415

    clock = clock or SystemClock()
    machine = machine or this_machine()
    limit = _TimeLimit(within_s, clock)
    passes = _passes(threads)
    refused: dict[str, str] = {}
    backends = on_processor(bundle, refused)
    if not backends:
        raise IncompatibleError(f"no variant of {bundle.path.name} runs here ({_listed(refused)})")
    with ExitStack() as stack:
        if profile is not None:
            scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="edge-runtime-tune-")))
            accelerated = on_accelerators(bundle, profile, compiled, scratch, refused)
            stack.callback(discard_refused, accelerated, refused)  # rule 4
            backends += accelerated
        reports = _prove_all(bundle, backends, len(passes), probe_timeout_s, limit, refused)
        proven = [backend for backend in backends if backend.name in reports]
        timings = _time_all(
            bundle, proven, passes, _plan([*reports.values()], len(passes), limit.left_s), limit, refused
        )
        most = _batches(bundle, proven, passes[0], limit, refused)
    figures = tuple(
        _figure(backend, count, timings[backend.name, count], most.get(backend.name, 0) if count == passes[0] else 0)
        for count in sorted(set(passes))
        for backend in proven
        if backend.name not in refused and (backend.name, count) in timings
    )
    if not figures:
        raise IncompatibleError(f"no variant of {bundle.path.name} could be timed here ({_listed(refused)})")
    return Tuning(
        model=bundle.manifest.model,
        machine=machine.label,
        versions=machine.versions,
        measured=datetime.fromtimestamp(clock.wall(), timezone.utc).date().isoformat(),
        figures=figures,
        refused=refused,
        round_trip_us=_round_trip_us(bundle, clock) if any(figure.accelerator for figure in figures) else 0.0,
    )


def _listed(refused: Mapping[str, str]) -> str:
    return " | ".join(f"{name}: {reason}" for name, reason in refused.items())


def _passes(threads: Sequence[int]) -> list[int]:
    """Numbers of threads, in the order in which they are measured.

    Each number needs a process of its own. Going there and back again gives a machine that warms up, or whose other
    work ends meanwhile, no say in which of them is faster: each number lies in the middle of the time, on the average.
    """
    counts = sorted(set(threads))
    if not counts or counts[0] < 1:
        raise ValueError("threads must be one or more numbers from 1")
    return [*counts, *reversed(counts[:-1])]


def _prove_all(
    bundle: Bundle,
    backends: Sequence[BackendSpec],
    passes: int,
    timeout_s: float,
    limit: _TimeLimit,
    refused: dict[str, str],
) -> dict[str, ProbeReport]:
    """Prove each backend alone; return the reports of those that passed, by name. The others go into `refused`.

    Raises:
        IncompatibleError: none passed.
        EngineError: there is not enough time for the rest.
    """
    reports: dict[str, ProbeReport] = {}
    with Progress("variants proven", len(backends)) as progress:
        for done, backend in enumerate(backends, 1):
            report = _prove(bundle, backend, timeout_s, limit)  # rule 1
            if report.ok:
                reports[backend.name] = report
            else:
                refused[backend.name] = report.reason
            _require_time(bundle, [*reports.values()], len(backends) - done, passes, limit)  # rule 2
            progress.advance(detail=backend.name)
    if not reports:
        raise IncompatibleError(f"no variant of {bundle.path.name} runs here ({_listed(refused)})")
    return reports


def _time_all(
    bundle: Bundle,
    proven: Sequence[BackendSpec],
    passes: Sequence[int],
    plan: TimingPlan,
    limit: _TimeLimit,
    refused: dict[str, str],
) -> dict[tuple[str, int], list[Timing]]:
    """Time the proven backends in every pass (rule 3); accelerators only with the fewest threads.

    Returns:
        Timings by the name of the backend and the number of threads; one for each pass with that number.
    """
    timings: dict[tuple[str, int], list[Timing]] = {}
    candidates = [_candidate(bundle, backend) for backend in proven]
    with Progress("passes of timing", len(passes)) as progress:
        for count in passes:
            running = [
                candidate
                for candidate in candidates
                if candidate.name not in refused and (count == passes[0] or not candidate.providers)
            ]
            for timing in _time_together(running, count, plan, limit, refused):
                timings.setdefault((timing.name, count), []).append(timing)
            progress.advance(detail=f"{count} threads")
    return timings


def _batches(
    bundle: Bundle, proven: Sequence[BackendSpec], threads: int, limit: _TimeLimit, refused: Mapping[str, str]
) -> dict[str, int]:
    """Find the batch that costs each backend the least (rule 5), by its name."""
    from edge_runtime.model.tuning.batches import cheapest  # noqa: PLC0415 - numpy: not to look into a file
    from edge_runtime.model.tuning.timing.child import time_in_child  # noqa: PLC0415

    if limit.left_s != math.inf or bundle.manifest.stages:
        return {}

    def timed(some: Sequence[TimedModel], plan: TimingPlan) -> Sequence[Timing]:
        return time_in_child(
            some, reference=some[0].name, threads=threads, plan=plan, timeout_s=PROBE_TIMEOUT_S * len(some)
        )

    wanted = [backend for backend in proven if backend.name not in refused and not backend.accelerator]
    found = {}
    with Progress("batches timed", len(wanted)) as progress:
        for backend in wanted:
            found[backend.name] = cheapest(_candidate(bundle, backend), timed)
            progress.advance(detail=backend.name)
    return found


def _prove(bundle: Bundle, backend: BackendSpec, timeout_s: float, limit: _TimeLimit) -> ProbeReport:
    from edge_runtime.model.bundle import sandbox  # noqa: PLC0415

    bound = max(timeout_s, COMPILE_TIMEOUT_S) if backend.accelerator else timeout_s
    return sandbox.probe(
        bundle,
        backend.variant.name,
        engine=backend.engine,
        provider_options=backend.providers,
        timeout_s=max(0.1, min(bound, limit.left_s)),
        clock=limit.clock,
    )


def _require_time(
    bundle: Bundle, reports: Sequence[ProbeReport], unproven: int, passes: int, limit: _TimeLimit
) -> None:
    """Estimate what is left to do, from the reports so far; see rule 2 of `tune`.

    Raises:
        EngineError: it takes longer than there is time.
    """
    left_s, within_s = limit.left_s, limit.within_s
    if left_s == math.inf or (left_s > 0 and not reports):
        return
    advice = f"do it once by: edge-runtime tune {bundle.path}"
    if left_s <= 0:
        raise EngineError(f"{within_s:g} s are not enough to load and prove the variants that run here; {advice}")
    proving = unproven * statistics.fmean(report.total_s for report in reports)
    count = len(reports) + unproven
    timing = passes * (max(report.total_s for report in reports) + count * _FEWEST_ROUNDS * _block_s(reports))
    if proving + timing > left_s:
        raise EngineError(
            f"timing the {count} variants that run here would take about {within_s - left_s + proving + timing:.0f} s, "
            f"and {within_s:g} s are allowed; {advice}"
        )


def _block_s(reports: Sequence[ProbeReport]) -> float:
    """Estimate seconds of the slowest backend's block, after the time that it took to answer the golden vectors."""
    from edge_runtime.model.tuning.timing import TimingPlan  # noqa: PLC0415

    # Replaying gives the model each golden vector once among others, and a few once more alone: a call or more.
    return max(TimingPlan().block_s, max(report.replay_s for report in reports) * _CALLS_PER_BLOCK / 2)


def _plan(reports: Sequence[ProbeReport], passes: int, left_s: float) -> TimingPlan:
    from edge_runtime.model.tuning.timing import TimingPlan  # noqa: PLC0415

    usual = TimingPlan()
    if left_s == math.inf:
        return usual
    loading = max(report.total_s for report in reports)
    rounds = (left_s / passes - loading) / (len(reports) * _block_s(reports))
    return TimingPlan(rounds=max(_FEWEST_ROUNDS, min(usual.rounds, int(rounds))))


def _candidate(bundle: Bundle, backend: BackendSpec) -> TimedModel:
    from edge_runtime.model.bundle.variants import arrange  # noqa: PLC0415
    from edge_runtime.model.tuning.timing import TimedModel  # noqa: PLC0415

    windows, _ = bundle.golden(backend.variant.name)
    return TimedModel(
        name=backend.name,
        engine=backend.engine,
        model=bundle.read_variant(backend.variant.name),
        inputs=(arrange(windows, backend.variant),),
        providers=backend.providers,
    )


def _time_together(
    candidates: Sequence[TimedModel], threads: int, plan: TimingPlan, limit: _TimeLimit, refused: dict[str, str]
) -> list[Timing]:
    """Time candidates interleaved in one child; where one ends it, time each beside the first that runs alone."""
    from edge_runtime.model.tuning.timing.child import time_in_child  # noqa: PLC0415

    def timed(some: Sequence[TimedModel]) -> tuple[Timing, ...]:
        # Loading and sizing of each, and rounds in which a slow model's shortest block takes far longer than asked.
        bound = min((PROBE_TIMEOUT_S + 10 * plan.rounds * plan.block_s) * len(some), max(1.0, limit.left_s))
        return time_in_child(some, reference=some[0].name, threads=threads, plan=plan, timeout_s=bound)

    try:
        return list(timed(candidates))
    except EngineError as error:
        log.warning("tuning: not all variants could be timed together, each is timed beside the first: %s", error)
    found: list[Timing] = []
    base: TimedModel | None = None
    for candidate in candidates:
        try:
            if base is None:
                found += timed([candidate])
                base = candidate
            else:
                found.append(timed([base, candidate])[1])
        except EngineError as error:
            refused[candidate.name] = str(error)
    return found


def _figure(backend: BackendSpec, threads: int, timings: Sequence[Timing], batch: int) -> Figure:
    mean = statistics.fmean
    return Figure(
        variant=backend.variant.name,
        engine=backend.engine,
        threads=threads,
        p50_us=round(mean(timing.p50_us for timing in timings), 3),
        p95_us=round(mean(timing.p95_us for timing in timings), 3),
        cpu_us=round(mean(timing.cpu_us for timing in timings), 3),
        ratio=round(mean(timing.ratio for timing in timings), 4),
        ratio_low=round(min(timing.ratio_low for timing in timings), 4),
        ratio_high=round(max(timing.ratio_high for timing in timings), 4),
        accelerator=backend.accelerator,
        providers={name: dict(options) for name, options in backend.stated.items()},
        batch=batch,
    )


def _round_trip_us(bundle: Bundle, clock: Clock) -> float:
    """Measure what a window costs more, in microseconds, where its engine runs in a process of its own.

    An engine that computes next to nothing is asked there and here alternately; the median of each counts.
    """
    from edge_runtime.model.engines import null  # noqa: PLC0415
    from edge_runtime.model.engines.base import EngineOptions  # noqa: PLC0415 - numpy
    from edge_runtime.model.engines.subprocess_engine import WorkerEngine  # noqa: PLC0415

    windows, answers = bundle.golden(bundle.manifest.variants[0].name)
    window, options = windows[:1], EngineOptions()
    model = null.describe(window.shape[1:], answers.shape[1])
    here = null.load(model, options, {})
    there = WorkerEngine("null", model, options, deadline_s=PROBE_TIMEOUT_S, load_timeout_s=PROBE_TIMEOUT_S)
    took: list[float] = []
    took_apart: list[float] = []
    try:
        for _ in range(_ROUND_TRIPS):
            for engine, times in ((here, took), (there, took_apart)):
                started = clock.monotonic()
                engine.run(window)
                times.append(clock.monotonic() - started)
    finally:
        there.close()
    return round(max(0.0, statistics.median(took_apart) - statistics.median(took)) * 1e6, 3)


# -- at the start of an application ----------------------------------------------------------------------------------


def tune_at_start(
    bundle: Bundle, path: Path, *, max_threads: int, within_s: float, clock: Clock | None = None
) -> Tuning | None:
    """Measure on the processor, where no figures were saved, and save them.

    Accelerators are left to `edge-runtime tune`: they compile for minutes, and sensors wait for this start.

    Never an error but for a bundle that changes meanwhile: an application starts without, and the log says why.

    Args:
        bundle: an open bundle.
        path: file that keeps the figures.
        max_threads: threads that an engine may use.
        within_s: seconds that it may take.
        clock: wall and monotonic time.
    """
    log.info("tuning: started: bundle=%s within_s=%g", bundle.path.name, within_s)
    try:
        found = tune(bundle, threads=_up_to(max_threads), within_s=within_s, clock=clock)
    except (EngineError, IncompatibleError) as error:
        log.warning("tuning: not measured, so the bundle's own order counts: %s", error)
        return None
    for name, reason in found.refused.items():
        log.warning("tuning: refused: backend=%s: %s", name, reason)
    try:
        save_tuning(found, bundle, path)
    except OSError as error:
        log.warning("tuning: figures not saved: path=%s: %s", path, error.strerror)
    return found


def _up_to(most: int) -> list[int]:
    """1, 2, 4, ... and `most` itself."""
    return sorted({*(2**i for i in range(most.bit_length()) if 2**i <= most), most})
