"""Which of a bundle's variants, in which engine, is the fastest on this very machine: measured once, and remembered.

What is fastest flips from network to network and from board to board, so it is timed where it is to run: every variant
in every engine that is installed, and on every accelerator that the board's profile names, each first made to reproduce
its golden vectors, then all by turns in a child process (`edge_runtime.tuning.timing`). The figures are kept in a small
JSON file (`edge_runtime.tuning.results`), under a key made of the machine, the versions of all that computes, and the
bundle's contents: another board, an upgraded engine or a new bundle finds nothing there and is measured anew. The file
only ever chooses among what the bundle holds, what is installed and what the machine's own profile names, and what it
chooses proves itself again at load, so whoever may write it can make a device slower, and nothing worse.
"""

from __future__ import annotations

import logging
import math
import statistics
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from datetime import datetime, timezone
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

from edge_runtime.clock import Clock, SystemClock
from edge_runtime.errors import EngineError, IncompatibleError
from edge_runtime.tuning.results import Figure, Tuning, remember

if TYPE_CHECKING:
    from edge_runtime.bundle.bundle import Bundle
    from edge_runtime.bundle.sandbox import ProbeReport
    from edge_runtime.hardware import Profile
    from edge_runtime.manifest import Variant
    from edge_runtime.tuning.timing import Contender, Machine, Plan, Timing

log = logging.getLogger(__name__)

PROBE_TIMEOUT_S: Final = 60.0
"""For one variant to load and prove itself; a Raspberry Pi 3 imports an engine in about two seconds."""
COMPILE_TIMEOUT_S: Final = 600.0
"""The same on an accelerator: TensorRT compiles for minutes on a Jetson."""
_FEWEST_ROUNDS: Final = 9
"""Turns of each below which measuring is not worth its time: the interval of a ratio needs six."""
_CALLS_PER_TURN: Final = 5
"""The shortest turn: three timed calls after two that warm up (`edge_runtime.tuning.timing.race`)."""
_ROUND_TRIPS: Final = 300
"""A tenth of a second, and a median that a busy machine moves little."""


class _Candidate(NamedTuple):
    """A variant in an engine."""

    variant: Variant
    engine: str
    accelerator: str = ""
    providers: Mapping[str, Mapping[str, str]] = MappingProxyType({})
    stated: Mapping[str, Mapping[str, str]] = MappingProxyType({})
    """The same without the folder for what is compiled."""
    cache: Path | None = None
    """That folder, where it stays."""

    @property
    def name(self) -> str:
        return f"{self.variant.name} on {self.accelerator or self.engine}"


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

    Args:
        bundle: an open bundle.
        threads: numbers of threads to measure with.
        within_s: how long it may take; given up early where the first variant's time says that it will not do.
        probe_timeout_s: for one variant to load and prove itself.
        machine: this one; None looks.
        profile: whose accelerators are tried too, with the fewest threads; compiling for them may take minutes. None
            leaves them out.
        compiled: folder in which what they compile is kept for who runs the bundle; None keeps nothing.
        clock: wall and monotonic time.

    Raises:
        IncompatibleError: nothing of the bundle runs here; says why for each.
        EngineError: there is not enough time, or no child process can be started.
    """
    from edge_runtime.tuning.timing import this_machine  # noqa: PLC0415 - engines, numpy: not to look into a file

    clock = clock or SystemClock()
    machine = machine or this_machine()
    until = clock.monotonic() + within_s
    candidates, refused = _candidates(bundle)
    alive: list[_Candidate] = []
    reports: list[ProbeReport] = []
    passes = _passes(threads)
    timings: dict[tuple[str, int], list[Timing]] = {}
    with ExitStack() as stack:
        if profile is not None:
            scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="edge-runtime-tune-")))
            accelerated = _accelerated(bundle, profile, compiled, scratch, refused)
            stack.callback(_discard, accelerated, refused)
            candidates += accelerated
        for still, candidate in zip(reversed(range(len(candidates))), candidates, strict=True):
            report = _prove(bundle, candidate, probe_timeout_s, until - clock.monotonic(), clock)
            if report.ok:
                alive.append(candidate)
                reports.append(report)
            else:
                refused[candidate.name] = report.reason
            _require_time(bundle, reports, still, len(passes), until - clock.monotonic(), within_s)
        if not alive:
            raise IncompatibleError(f"no variant of {bundle.path.name} runs here ({_listed(refused)})")
        plan = _plan(reports, len(passes), until - clock.monotonic())
        contenders = [_contender(bundle, candidate) for candidate in alive]
        for count in passes:
            running = [
                contender
                for contender in contenders
                if contender.name not in refused and (count == passes[0] or not contender.providers)
            ]
            for timing in _race(running, count, plan, lambda: until - clock.monotonic(), refused):
                timings.setdefault((timing.name, count), []).append(timing)
    figures = tuple(
        _figure(candidate, count, timings[candidate.name, count])
        for count in sorted(set(passes))
        for candidate in alive
        if candidate.name not in refused and (candidate.name, count) in timings
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


def _candidates(bundle: Bundle) -> tuple[list[_Candidate], dict[str, str]]:
    from edge_runtime import engines  # noqa: PLC0415
    from edge_runtime.bundle.variants import refusals  # noqa: PLC0415

    candidates: list[_Candidate] = []
    refused: dict[str, str] = {}
    for variant in bundle.manifest.variants:
        reasons = refusals(variant)
        if reasons:
            refused[variant.name] = "; ".join(reasons)
        else:
            candidates += [_Candidate(variant, kind.name) for kind in engines.available(variant.format)]
    if not candidates:
        raise IncompatibleError(f"no variant of {bundle.path.name} runs here ({_listed(refused)})")
    return candidates, refused


def _accelerated(
    bundle: Bundle, profile: Profile, compiled: Path | None, scratch: Path, refused: dict[str, str]
) -> list[_Candidate]:
    """List the variants on the accelerators that would take them; refuse others with what is missing.

    What is compiled while one is proven is there when it is timed, and in `compiled` also when it is run.
    """
    from edge_runtime import engines  # noqa: PLC0415
    from edge_runtime.bundle.variants import refusals  # noqa: PLC0415
    from edge_runtime.tuning.compile_cache import kept  # noqa: PLC0415
    from edge_runtime.tuning.engine_choices import choices_for  # noqa: PLC0415

    found: list[_Candidate] = []
    for variant in bundle.manifest.variants:
        if refusals(variant):
            continue
        for choice in choices_for(profile, variant.format, variant.precision, variant.scheme):
            if not choice.accelerated:
                continue
            candidate = _Candidate(variant, choice.engine, choice.name, stated=choice.options(None))
            if choice.compiled:
                refused[candidate.name] = f"it runs what has been through {choice.compiled} alone"
            elif not engines.find(choice.engine).importable():
                refused[candidate.name] = f"{choice.engine} is not installed; {choice.install}"
            else:
                cache = kept(compiled, bundle, variant.name, choice) if compiled and choice.compiles else None
                if cache is None:
                    (scratch / str(len(found))).mkdir()  # one for each: libraries cannot tell variants apart
                providers = choice.options(cache or scratch / str(len(found)))
                found.append(candidate._replace(providers=providers, cache=cache))
    return found


def _discard(candidates: Sequence[_Candidate], refused: Mapping[str, str]) -> None:
    """Delete what was compiled for nothing."""
    from edge_runtime.tuning.compile_cache import discard  # noqa: PLC0415

    for candidate in candidates:
        if candidate.cache is not None and candidate.name in refused:
            discard(candidate.cache)
            with suppress(OSError):  # others are kept there
                candidate.cache.parent.rmdir()


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


def _prove(bundle: Bundle, candidate: _Candidate, timeout_s: float, left_s: float, clock: Clock) -> ProbeReport:
    from edge_runtime.bundle import sandbox  # noqa: PLC0415

    bound = max(timeout_s, COMPILE_TIMEOUT_S) if candidate.accelerator else timeout_s
    return sandbox.probe(
        bundle,
        candidate.variant.name,
        engine=candidate.engine,
        provider_options=candidate.providers,
        timeout_s=max(0.1, min(bound, left_s)),
        clock=clock,
    )


def _require_time(
    bundle: Bundle,
    reports: Sequence[ProbeReport],
    still: int,
    passes: int,
    left_s: float,
    within_s: float,
) -> None:
    if left_s == math.inf or (left_s > 0 and not reports):
        return
    advice = f"do it once by: edge-runtime tune {bundle.path}"
    if left_s <= 0:
        raise EngineError(f"{within_s:g} s are not enough to load and prove the variants that run here; {advice}")
    one = statistics.fmean(report.total_s for report in reports)
    all_of_them = len(reports) + still
    racing = passes * (max(report.total_s for report in reports) + all_of_them * _FEWEST_ROUNDS * _turn_s(reports))
    needed = still * one + racing
    if needed > left_s:
        raise EngineError(
            f"timing the {all_of_them} variants that run here would take about {within_s - left_s + needed:.0f} s, "
            f"and {within_s:g} s are allowed; {advice}"
        )


def _turn_s(reports: Sequence[ProbeReport]) -> float:
    """How long a turn of the slowest lasts, after the time that it took to answer the golden vectors."""
    from edge_runtime.tuning.timing import Plan  # noqa: PLC0415

    # Replaying gives the model each golden vector once among others, and a few once more alone: a call or more.
    return max(Plan().block_s, max(report.replay_s for report in reports) * _CALLS_PER_TURN / 2)


def _plan(reports: Sequence[ProbeReport], passes: int, left_s: float) -> Plan:
    from edge_runtime.tuning.timing import Plan  # noqa: PLC0415

    usual = Plan()
    if left_s == math.inf:
        return usual
    loading = max(report.total_s for report in reports)
    rounds = (left_s / passes - loading) / (len(reports) * _turn_s(reports))
    return Plan(rounds=max(_FEWEST_ROUNDS, min(usual.rounds, int(rounds))))


def _contender(bundle: Bundle, candidate: _Candidate) -> Contender:
    from edge_runtime.bundle.variants import arrange  # noqa: PLC0415
    from edge_runtime.tuning.timing import Contender  # noqa: PLC0415

    windows, _ = bundle.golden(candidate.variant.name)
    return Contender(
        name=candidate.name,
        engine=candidate.engine,
        model=bundle.read_variant(candidate.variant.name),
        inputs=(arrange(windows, candidate.variant),),
        providers=candidate.providers,
    )


def _race(
    contenders: Sequence[Contender], threads: int, plan: Plan, left: Callable[[], float], refused: dict[str, str]
) -> list[Timing]:
    """All by turns in one child; where one of them takes it down, each beside the first that lives alone."""
    from edge_runtime.tuning.timing.child import race_in_child  # noqa: PLC0415

    def timed(some: Sequence[Contender]) -> tuple[Timing, ...]:
        # Loading and sizing of each, and rounds in which a slow model's shortest block takes far longer than asked.
        bound = min((PROBE_TIMEOUT_S + 10 * plan.rounds * plan.block_s) * len(some), max(1.0, left()))
        return race_in_child(some, reference=some[0].name, threads=threads, plan=plan, timeout_s=bound)

    try:
        return list(timed(contenders))
    except EngineError as error:
        log.warning("not all variants can be timed together, so each is beside the first alone: %s", error)
    found: list[Timing] = []
    base: Contender | None = None
    for contender in contenders:
        try:
            if base is None:
                found += timed([contender])
                base = contender
            else:
                found.append(timed([base, contender])[1])
        except EngineError as error:
            refused[contender.name] = str(error)
    return found


def _figure(candidate: _Candidate, threads: int, timings: Sequence[Timing]) -> Figure:
    mean = statistics.fmean
    return Figure(
        variant=candidate.variant.name,
        engine=candidate.engine,
        threads=threads,
        p50_us=round(mean(timing.p50_us for timing in timings), 3),
        p95_us=round(mean(timing.p95_us for timing in timings), 3),
        cpu_us=round(mean(timing.cpu_us for timing in timings), 3),
        ratio=round(mean(timing.ratio for timing in timings), 4),
        ratio_low=round(min(timing.ratio_low for timing in timings), 4),
        ratio_high=round(max(timing.ratio_high for timing in timings), 4),
        accelerator=candidate.accelerator,
        providers={name: dict(options) for name, options in candidate.stated.items()},
    )


def _round_trip_us(bundle: Bundle, clock: Clock) -> float:
    """Measure what it costs more to ask an engine in its own process for a window, where accelerators run.

    By an engine that computes next to nothing, asked there and here by turns; the median of each.
    """
    from edge_runtime.engines import null  # noqa: PLC0415
    from edge_runtime.engines.base import EngineOptions  # noqa: PLC0415 - numpy
    from edge_runtime.engines.subprocess_engine import WorkerEngine  # noqa: PLC0415

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
    """Measure on the processor, now that nothing is remembered, and remember it.

    Accelerators are left to `edge-runtime tune`: they compile for minutes, and sensors wait for this start.

    Never an error but for a bundle that changes meanwhile: an application starts without, and the log says why.

    Args:
        bundle: an open bundle.
        path: of the file that remembers.
        max_threads: that an engine may use.
        within_s: how long it may take.
        clock: wall and monotonic time.
    """
    log.info("timing the variants of %s on this machine, for %g s at most", bundle.path.name, within_s)
    try:
        found = tune(bundle, threads=_up_to(max_threads), within_s=within_s, clock=clock)
    except (EngineError, IncompatibleError) as error:
        log.warning("variants not timed, so the bundle's own order counts: %s", error)
        return None
    for name, reason in found.refused.items():
        log.warning("refused %s: %s", name, reason)
    try:
        remember(found, bundle, path)
    except OSError as error:
        log.warning("what was measured cannot be remembered in %s: %s", path, error.strerror)
    return found


def _up_to(most: int) -> list[int]:
    """1, 2, 4, ... and `most` itself."""
    return sorted({*(2**i for i in range(most.bit_length()) if 2**i <= most), most})
