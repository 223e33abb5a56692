"""Which of a bundle's variants, in which engine, is the fastest on this very machine: measured once, and remembered.

What is fastest flips from network to network and from board to board, so it is timed where it is to run: every variant
in every engine that is installed, each first made to reproduce its golden vectors, then all by turns in a child
process (`edge_runtime.timing`). The figures are kept in a small JSON file, under a key made of the machine, the
versions of all that computes, and the bundle's contents: another board, an upgraded engine or a new bundle finds
nothing there and is measured anew. The file only ever chooses among what the bundle holds and what proves itself again
at load, so whoever may write it can make a device slower, and nothing worse.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import os
import statistics
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from edge_runtime import schema
from edge_runtime.clock import Clock, SystemClock
from edge_runtime.errors import EngineError, IncompatibleError

if TYPE_CHECKING:
    from edge_runtime.bundle import Bundle
    from edge_runtime.manifest import Variant
    from edge_runtime.probe import ProbeReport
    from edge_runtime.timing import Contender, Machine, Plan, Timing

log = logging.getLogger(__name__)

SUFFIX: Final = ".tuned.json"
"""What the file beside a bundle adds to the bundle's name."""

EQUAL: Final = 1.05
"""Times within 5 % of each other count as the same: then the exporter's order of preference decides, not the noise."""
WORTH_A_CORE: Final = 0.8
"""Further threads are taken where they save at least a fifth of the time; each of them costs a core's power."""

PROBE_TIMEOUT_S: Final = 60.0
"""For one variant to load and prove itself; a Raspberry Pi 3 imports an engine in about two seconds."""
_VERSION: Final = 1
_MAX_BYTES: Final = 256 * 1024
_MAX_RECORDS: Final = 16
"""Machines, versions and bundles that one file remembers; the one measured longest ago leaves first."""
_FEWEST_ROUNDS: Final = 9
"""Turns of each below which measuring is not worth its time: the interval of a ratio needs six."""
_CALLS_PER_TURN: Final = 5
"""The shortest turn: three timed calls after two that warm up (`edge_runtime.timing.race`)."""


class Setting(NamedTuple):
    """How to run a bundle."""

    variant: str
    engine: str
    """Name in `edge_runtime.engines`."""
    threads: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One variant in one engine, timed with a batch of 1.

    Attributes:
        variant: name in the bundle.
        engine: name in `edge_runtime.engines`.
        threads: that the engine was allowed.
        p50_us: median wall time of a window.
        p95_us: 95th percentile of it.
        cpu_us: processor time of a window, all threads.
        ratio: to the variant that would run if nothing had been measured, with as many threads; below 1 is faster.
        ratio_low: lower end of its 95 % interval.
        ratio_high: upper end.
    """

    variant: str
    engine: str
    threads: int
    p50_us: float
    p95_us: float
    cpu_us: float
    ratio: float
    ratio_low: float
    ratio_high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    """Everything measured of one bundle on one machine.

    Attributes:
        model: name and version of the bundle.
        machine: label of the machine.
        versions: of all that computes.
        measured: date, as far as this machine knew it.
        figures: of what ran, in the bundle's order.
        refused: why the others did not, by ``variant on engine``.
    """

    model: str
    machine: str
    versions: dict[str, str]
    measured: str
    figures: tuple[Figure, ...]
    refused: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.figures:
            raise ValueError("no figures")
        if any(not 0 < figure.p50_us < math.inf or figure.threads < 1 for figure in self.figures):
            raise ValueError("times and threads must be positive")

    def choose(self, max_threads: int = 1) -> Figure:
        """The fastest, as `EQUAL` and `WORTH_A_CORE` define it, with at most that many threads.

        Where nothing was measured with so few, the fewest that were.
        """
        counts = sorted({figure.threads for figure in self.figures})
        best: Figure | None = None
        for count in [n for n in counts if n <= max_threads] or counts[:1]:
            group = [figure for figure in self.figures if figure.threads == count]
            least = min(figure.ratio for figure in group)
            fastest = next(figure for figure in group if figure.ratio <= least * EQUAL)
            if best is None or fastest.p50_us <= best.p50_us * WORTH_A_CORE:
                best = fastest
        assert best is not None
        return best

    def setting(self, max_threads: int = 1) -> Setting:
        """How to run the bundle; see `choose`."""
        chosen = self.choose(max_threads)
        return Setting(chosen.variant, chosen.engine, min(chosen.threads, max(1, max_threads)))


# -- measuring -------------------------------------------------------------------------------------------------------


class _Candidate(NamedTuple):
    """A variant in an engine."""

    variant: Variant
    engine: str

    @property
    def name(self) -> str:
        return f"{self.variant.name} on {self.engine}"


def tune(
    bundle: Bundle,
    *,
    threads: Sequence[int] = (1,),
    within_s: float = math.inf,
    probe_timeout_s: float = PROBE_TIMEOUT_S,
    machine: Machine | None = None,
    clock: Clock | None = None,
) -> Tuning:
    """Prove and time every variant of a bundle in every engine installed.

    Args:
        bundle: an open bundle.
        threads: numbers of threads to measure with.
        within_s: how long it may take; given up early where the first variant's time says that it will not do.
        probe_timeout_s: for one variant to load and prove itself.
        machine: this one; None looks.
        clock: wall and monotonic time.

    Raises:
        IncompatibleError: nothing of the bundle runs here; says why for each.
        EngineError: there is not enough time, or no child process can be started.
    """
    from edge_runtime.timing import this_machine  # noqa: PLC0415 - engines, numpy: not to look into a file

    clock = clock or SystemClock()
    machine = machine or this_machine()
    until = clock.monotonic() + within_s
    candidates, refused = _candidates(bundle)
    alive: list[_Candidate] = []
    reports: list[ProbeReport] = []
    passes = _passes(threads)
    for still, candidate in zip(reversed(range(len(candidates))), candidates, strict=True):
        report = _prove(bundle, candidate, min(probe_timeout_s, until - clock.monotonic()), clock)
        if report.ok:
            alive.append(candidate)
            reports.append(report)
        else:
            refused[candidate.name] = report.reason
        _require_time(bundle, reports, still, len(passes), until - clock.monotonic(), within_s)
    if not alive:
        why = " | ".join(f"{name}: {reason}" for name, reason in refused.items())
        raise IncompatibleError(f"no variant of {bundle.path.name} runs here ({why})")
    plan = _plan(reports, len(passes), until - clock.monotonic())
    contenders = [_contender(bundle, candidate) for candidate in alive]
    timings: dict[tuple[str, int], list[Timing]] = {}
    for count in passes:
        running = [contender for contender in contenders if contender.name not in refused]
        for timing in _race(running, count, plan, lambda: until - clock.monotonic(), refused):
            timings.setdefault((timing.name, count), []).append(timing)
    figures = tuple(
        _figure(candidate, count, timings[candidate.name, count])
        for count in sorted(set(passes))
        for candidate in alive
        if candidate.name not in refused and (candidate.name, count) in timings
    )
    if not figures:
        why = " | ".join(f"{name}: {reason}" for name, reason in refused.items())
        raise IncompatibleError(f"no variant of {bundle.path.name} could be timed here ({why})")
    return Tuning(
        model=bundle.manifest.model,
        machine=machine.label,
        versions=machine.versions,
        measured=datetime.fromtimestamp(clock.wall(), UTC).date().isoformat(),
        figures=figures,
        refused=refused,
    )


def _candidates(bundle: Bundle) -> tuple[list[_Candidate], dict[str, str]]:
    from edge_runtime import engines  # noqa: PLC0415
    from edge_runtime.bundle import refusals  # noqa: PLC0415

    candidates: list[_Candidate] = []
    refused: dict[str, str] = {}
    for variant in bundle.manifest.variants:
        reasons = refusals(variant)
        if reasons:
            refused[variant.name] = "; ".join(reasons)
        else:
            candidates += [_Candidate(variant, kind.name) for kind in engines.available(variant.format)]
    if not candidates:
        why = " | ".join(f"{name}: {reason}" for name, reason in refused.items())
        raise IncompatibleError(f"no variant of {bundle.path.name} runs here ({why})")
    return candidates, refused


def _passes(threads: Sequence[int]) -> list[int]:
    """Numbers of threads, in the order in which they are measured.

    Each number needs a process of its own. Going there and back again gives a machine that warms up, or whose other
    work ends meanwhile, no say in which of them is faster.
    """
    counts = sorted(set(threads))
    if not counts or counts[0] < 1:
        raise ValueError("threads must be one or more numbers from 1")
    return counts if len(counts) == 1 else [*counts, *reversed(counts)]


def _prove(bundle: Bundle, candidate: _Candidate, timeout_s: float, clock: Clock) -> ProbeReport:
    from edge_runtime.probe import probe  # noqa: PLC0415

    name, engine = candidate.variant.name, candidate.engine
    return probe(bundle, name, engine=engine, timeout_s=max(0.1, timeout_s), clock=clock)


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
    from edge_runtime.timing import Plan  # noqa: PLC0415

    # Replaying gives the model each golden vector once among others, and a few once more alone: a call or more.
    return max(Plan().block_s, max(report.replay_s for report in reports) * _CALLS_PER_TURN / 2)


def _plan(reports: Sequence[ProbeReport], passes: int, left_s: float) -> Plan:
    from edge_runtime.timing import Plan  # noqa: PLC0415

    usual = Plan()
    if left_s == math.inf:
        return usual
    loading = max(report.total_s for report in reports)
    rounds = (left_s / passes - loading) / (len(reports) * _turn_s(reports))
    return Plan(rounds=max(_FEWEST_ROUNDS, min(usual.rounds, int(rounds))))


def _contender(bundle: Bundle, candidate: _Candidate) -> Contender:
    from edge_runtime.bundle import arrange  # noqa: PLC0415
    from edge_runtime.timing import Contender  # noqa: PLC0415

    windows, _ = bundle.golden(candidate.variant.name)
    return Contender(
        name=candidate.name,
        engine=candidate.engine,
        model=bundle.read_variant(candidate.variant.name),
        inputs=(arrange(windows, candidate.variant),),
    )


def _race(
    contenders: Sequence[Contender], threads: int, plan: Plan, left: Callable[[], float], refused: dict[str, str]
) -> list[Timing]:
    """All by turns in one child; where one of them takes it down, each beside the first that lives alone."""
    from edge_runtime.timing.child import race_in_child  # noqa: PLC0415

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
    )


# -- remembering -----------------------------------------------------------------------------------------------------


def file_for(bundle: Path) -> Path:
    """Where the figures of a bundle are kept unless somebody says otherwise: beside it."""
    return bundle.with_name(bundle.name + SUFFIX)


def key_of(bundle: Bundle, machine: Machine) -> str:
    """What figures are valid for: this machine, these versions, this bundle's contents, whoever signed them.

    The kernel's release and the memory are left out: they change, and the order of the variants does not.
    """
    parts = {
        "root": bundle.root,
        "architecture": machine.architecture,
        "processor": machine.processor,
        "cores": machine.cores,
        "flags": machine.flags,
        "versions": machine.versions,
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:32]


def recall(bundle: Bundle, path: Path, machine: Machine | None = None) -> Tuning | None:
    """What was measured of this bundle on this machine with these versions; None where there is nothing.

    A file that cannot be read or understood is nothing, and is said to be so in a line of the log.
    """
    records = _read(path)
    if not records:
        return None
    from edge_runtime.timing import this_machine  # noqa: PLC0415

    record = records.get(key_of(bundle, machine or this_machine()))
    if record is None:
        log.warning(
            "%s holds nothing measured on this machine with these versions and this bundle; measure again by: "
            "edge-runtime tune %s",
            *(path, bundle.path),
        )
        return None
    try:
        tuning = schema.load(Tuning, record)
    except schema.SchemaError as error:
        log.warning("%s is damaged and ignored (%s: %s)", path, error.dotted(), error)
        return None
    names = {variant.name for variant in bundle.manifest.variants}
    if any(figure.variant not in names for figure in tuning.figures):
        log.warning("%s is damaged and ignored (it names variants that %s has not)", path, bundle.path.name)
        return None
    return tuning


def remember(tuning: Tuning, bundle: Bundle, path: Path, machine: Machine | None = None) -> None:
    """Write it down, all or nothing, beside what the file holds for other machines and bundles.

    Raises:
        OSError: it cannot be written: a read-only disk, a full one, a folder that is not there.
    """
    from edge_runtime.timing import this_machine  # noqa: PLC0415

    records = _read(path) or {}
    key = key_of(bundle, machine or this_machine())
    records.pop(key, None)
    records[key] = asdict(tuning)
    for old in list(records)[:-_MAX_RECORDS]:
        del records[old]
    _write(path, records)


def forget(bundle: Bundle, path: Path, machine: Machine | None = None) -> bool:
    """Strike out what `recall` would find; a file with nothing left in it goes.

    Returns:
        Whether there was anything.

    Raises:
        OSError: the file cannot be changed.
    """
    from edge_runtime.timing import this_machine  # noqa: PLC0415

    records = _read(path)
    if records is None:  # damaged: it tells nobody anything
        path.unlink()
        return True
    found = records.pop(key_of(bundle, machine or this_machine()), None) is not None
    if not records:
        path.unlink(missing_ok=True)
    elif found:
        _write(path, records)
    return found


def _read(path: Path) -> dict[str, Any] | None:
    """The records by key, none where there is no file; None and a line in the log where there is no sense in it."""
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_BYTES + 1)
        if len(data) > _MAX_BYTES:
            why = f"larger than {_MAX_BYTES:,} bytes"
        else:
            document = json.loads(data)
            records = document.get("records") if isinstance(document, dict) else None
            if isinstance(records, dict) and document.get("version") == _VERSION:
                return records
            why = "not a file that tune wrote"
    except FileNotFoundError:
        return {}
    except OSError as error:
        why = error.strerror or type(error).__name__
    except (ValueError, RecursionError):
        why = "not JSON"
    log.warning("%s is damaged and ignored (%s)", path, why)
    return None


def _write(path: Path, records: Mapping[str, Any]) -> None:
    text = json.dumps({"version": _VERSION, "records": records}, indent=1)
    descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).chmod(0o644)  # holds no secret, and the service may be another user than who measured
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


# -- at the start of an application ----------------------------------------------------------------------------------


def tuned(
    bundle: Bundle, path: Path, *, max_threads: int = 1, within_s: float = 0.0, clock: Clock | None = None
) -> Setting | None:
    """How this machine runs a bundle best: as remembered, or measured now where there is time for it.

    Never an error: an application starts without, and a line in the log says why.

    Args:
        bundle: an open bundle.
        path: of the file that remembers.
        max_threads: that an engine may use.
        within_s: how long measuring may take where nothing is remembered; 0 does not measure.
        clock: wall and monotonic time.
    """
    found = recall(bundle, path)
    if found is None and within_s > 0:
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
    if found is None:
        return None
    chosen = found.choose(max_threads)
    log.info(
        "variant %s on %s: %.1f us a window when measured on this machine on %s",
        *(chosen.variant, chosen.engine, chosen.p50_us, found.measured),
    )
    return found.setting(max_threads)


def _up_to(most: int) -> list[int]:
    """1, 2, 4, ... and `most` itself."""
    return sorted({*(2**i for i in range(most.bit_length()) if 2**i <= most), most})
