"""All of a bundle's variants, or any models, tried and timed on this machine."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from edge_runtime import schema
from edge_runtime.errors import EngineError, IncompatibleError
from edge_runtime.model.tuning.timing.child import CandidateTrial, time_in_child, trial
from edge_runtime.model.tuning.timing.interleaved import TimedModel, Timing, TimingPlan
from edge_runtime.model.tuning.timing.machine import Machine, available_cores, this_machine

if TYPE_CHECKING:
    from edge_runtime.manifest import Variant
    from edge_runtime.model.bundle.bundle import Bundle

TIMEOUT_S = 60.0
"""For a candidate to load and answer; a Raspberry Pi 3 imports an engine in about two seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """Everything measured on one machine.

    Attributes:
        machine: where.
        reference: name of the candidate that ratios are taken to.
        timings: one per candidate that ran and number of threads.
        failed: why the others could not be timed, by name.
        digest: SHA-256 of the bundle's file; empty where no bundle was measured.
    """

    machine: Machine
    reference: str
    timings: tuple[Timing, ...]
    failed: dict[str, str] = field(default_factory=dict)
    digest: str = ""

    def of(self, threads: int = 1) -> dict[str, Timing]:
        """Return timings with that many threads, by name."""
        return {timing.name: timing for timing in self.timings if timing.threads == threads}

    def microseconds(self, threads: int = 1) -> dict[str, float]:
        """Median time by name."""
        return {name: timing.p50_us for name, timing in self.of(threads).items()}

    def to_json(self) -> str:
        """One line."""
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Measurement:
        """Read what `to_json` wrote.

        Raises:
            ValueError: it is something else.
        """
        return schema.load(cls, json.loads(text))


def measure(
    candidates: Sequence[TimedModel],
    *,
    reference: str,
    threads: Sequence[int] | None = None,
    plan: TimingPlan | None = None,
    timeout_s: float = TIMEOUT_S,
) -> Measurement:
    """Try each candidate in a process of its own, then time those that ran against one another in a further one.

    Args:
        candidates: candidates of different names.
        reference: the candidate that the others are compared with.
        threads: numbers of threads to measure with; None takes one, and all cores where there are more.
        plan: length of the benchmark.
        timeout_s: longest time for one candidate to load and answer.

    Raises:
        ValueError: the reference is not among the candidates, or two have the same name.
        EngineError: the reference cannot run here, or a candidate that ran alone failed beside the others.
    """
    plan = plan or TimingPlan()
    names = [candidate.name for candidate in candidates]
    if reference not in names or len(set(names)) != len(names):
        raise ValueError(f"candidates need different names, one of them '{reference}'; got {', '.join(names)}")
    trials = {candidate.name: trial(candidate, timeout_s=timeout_s) for candidate in candidates}
    if trials[reference].reason:
        raise EngineError(f"{reference}, which the others are compared with, cannot run: {trials[reference].reason}")
    alive = [candidate for candidate in candidates if not trials[candidate.name].reason]
    timings: list[Timing] = []
    for count in threads or sorted({1, available_cores()}):
        # Loading and sizing of each, and rounds in which a slow model's shortest block may take far longer than asked.
        bound = (timeout_s + 10 * plan.rounds * plan.block_s) * len(alive)
        found = time_in_child(alive, reference=reference, threads=count, plan=plan, timeout_s=bound)
        timings += [_with_trial(timing, trials[timing.name]) for timing in found]
    return Measurement(
        machine=this_machine(),
        reference=reference,
        timings=tuple(timings),
        failed={name: found.reason for name, found in trials.items() if found.reason},
    )


def _with_trial(timing: Timing, alone: CandidateTrial) -> Timing:
    return replace(timing, load_ms=alone.load_ms, peak_rss_kb=alone.peak_rss_kb)


def measure_bundle(
    bundle: Bundle,
    *,
    threads: Sequence[int] | None = None,
    plan: TimingPlan | None = None,
    engines: Mapping[str, str] | None = None,
    timeout_s: float = TIMEOUT_S,
) -> Measurement:
    """Time every variant of a bundle that runs on this machine, on the bundle's golden windows.

    A variant whose answers are not the golden ones here is not timed: its speed is of no use.

    Args:
        bundle: an open bundle.
        threads: numbers of threads to measure with, see `measure`.
        plan: length of the benchmark.
        engines: name of the engine by variant; the best one installed for those not named.
        timeout_s: longest time for one variant to load and answer.

    Raises:
        IncompatibleError: no variant runs here; says why for each.
        EngineError: as for `measure`.
    """
    from edge_runtime.model.bundle.sandbox import probe  # noqa: PLC0415
    from edge_runtime.model.bundle.variants import (  # noqa: PLC0415 - heavy, and not always needed
        arrange,
        engine_for,
        refusals,
    )

    failed: dict[str, str] = {}
    candidates: dict[str, TimedModel] = {}
    for variant in bundle.manifest.variants:
        reasons = refusals(variant)
        if not reasons:
            engine = (engines or {}).get(variant.name) or engine_for(variant)
            report = probe(bundle, variant.name, engine=engine, timeout_s=timeout_s)
            reasons = [] if report.ok else [report.reason]
        if reasons:
            failed[variant.name] = "; ".join(reasons)
            continue
        windows, _ = bundle.golden(variant.name)
        candidates[variant.name] = TimedModel(
            name=variant.name,
            engine=engine,
            model=bundle.read_variant(variant.name),
            inputs=(arrange(windows, variant),),
        )
    if not candidates:
        why = " | ".join(f"{name}: {reason}" for name, reason in failed.items())
        raise IncompatibleError(f"no variant of {bundle.path.name} runs here ({why})")
    alive = [variant for variant in bundle.manifest.variants if variant.name in candidates]
    found = measure(
        list(candidates.values()), reference=_reference(alive), threads=threads, plan=plan, timeout_s=timeout_s
    )
    return replace(found, failed={**failed, **found.failed}, digest=bundle.digest)


def _reference(variants: Sequence[Variant]) -> str:
    """Choose the variant that nothing was done to: float ONNX, else any float, else the exporter's first choice."""

    def rank(variant: Variant) -> tuple[bool, bool]:
        return variant.precision != "fp32", variant.format != "onnx"

    return min(variants, key=rank).name


def table(measurement: Measurement) -> str:
    """Render the figures for people."""
    rows: list[tuple[Any, ...]] = [("variant", "engine", "threads", "median us", "95 % us", "cpu us", "ratio", "MB")]
    rows += [
        (
            t.name, t.engine, str(t.threads), f"{t.p50_us:.1f}", f"{t.p95_us:.1f}", f"{t.cpu_us:.1f}",
            f"{t.ratio:.2f} ({t.ratio_low:.2f} to {t.ratio_high:.2f})", f"{t.peak_rss_kb / 1024:.0f}",
        )
        for t in measurement.timings
    ]  # fmt: skip
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    lines += [f"{name}: not timed, {reason}" for name, reason in measurement.failed.items()]
    return "\n".join([measurement.machine.label, f"ratio: to {measurement.reference}", *lines])
