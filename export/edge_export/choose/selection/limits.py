"""Limits of a recipe, applied to what was measured: the candidates that ship, and why the others do not.

int8 is often slower than float, and which format, engine and scheme is fastest flips from network to network. So every
candidate is timed (`edge_export.choose.selection.timing`) and evaluated (`edge_export.metrics`), the unquantised float
model among them, and `choose` applies the recipe's limits. What loses is kept too, with the reason in a sentence, for
the report.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from edge_export.metrics import Evaluation
from edge_export.package.pack import VariantSource
from edge_export.recipe.limits import Limits
from edge_export.recipe.recipe import ANY
from edge_runtime.errors import ConfigError
from edge_runtime.model.bundle.variants import refusals
from edge_runtime.model.tuning.timing import Measurement, Timing

SLOWER = 1.02
"""A ratio above this counts as slower. Two loads of one file differ by up to 2 % on an idle machine, and a candidate
that gains in bytes should not fall by that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateMetrics:
    """Metrics of one candidate, as ``report.json`` holds them.

    Attributes:
        name: of the candidate.
        format: of its file.
        precision: of its numbers.
        scheme: of its integers.
        size: bytes on disk.
        zlib_size: bytes after ``zlib`` at level 9, what a compressed transfer or file system needs.
        timing: None where it was not timed.
        judged: None where it was not evaluated.
        on_front: no other candidate is at least as good in bytes, time and accuracy, and better in one.
        shipped: whether it ships.
        reason: why not, a sentence; empty where it ships.
    """

    name: str
    format: str
    precision: str
    scheme: str
    size: int
    zlib_size: int
    timing: Timing | None
    judged: Evaluation | None
    on_front: bool
    shipped: bool
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Candidates chosen for one target, and the reason against each other one.

    Attributes:
        shipped: best first: the fastest, then the rest in order of time; for `ANY`, the format with the fastest file
            here first, and of each format the smallest file first.
        lost: reason, a sentence, by name.
        metrics: of all candidates, in their order.
    """

    shipped: tuple[VariantSource, ...]
    lost: dict[str, str]
    metrics: tuple[CandidateMetrics, ...] = field(repr=False)


def choose(
    candidates: Sequence[VariantSource],
    measured: Measurement,
    judged: Iterable[Evaluation],
    limits: Limits,
    target: str,
) -> Choice:
    """Choose what ships for a target.

    A candidate loses by the first of these rules that applies:

    1. it is made for other architectures than the target, which may be `ANY` of them;
    2. it was not measured: it could not be timed, or its answers were not evaluated;
    3. it is worse than the reference by more than the limit;
    4. it is slower than the reference;
    5. it is larger or slower than the limits say;
    6. another one of its format that no rule above refuses is as good in bytes, time and accuracy, and better in one
       of them; for `ANY`, another one that runs wherever it does. Formats do not push each other out: a device usually
       has one engine, and which is the device's business.

    Times of another architecture refuse nothing and push nothing out: which format and precision is fastest flips from
    machine to machine, and the device will measure for itself.

    Args:
        candidates: the unquantised float model among them.
        measured: times of the candidates on one thread; the others are compared with its reference.
        judged: evaluations of the candidates, on groups not trained on.
        limits: the recipe's.
        target: architecture as `platform.machine` names it.

    Raises:
        ConfigError: the reference is missing or was not measured, a name occurs twice, or nothing is within the limits;
            the message says what each one lacks.
    """
    table = _table(candidates, measured, judged, limits, timed_there=target == measured.machine.architecture)
    reasons = {
        name: _reason(row, table[measured.reference], target, measured.failed)  # rules 1 to 5
        for name, row in table.items()
    }
    alive = [row for name, row in table.items() if not reasons[name]]
    if not alive:
        raise ConfigError(
            f"no candidate is within the limits: {'; '.join(f'{n}: {why}' for n, why in reasons.items())}"
        )
    reasons |= {row.name: _beaten(row, alive, target) for row in alive}  # rule 6
    complete = [row for row in table.values() if row.complete]
    return Choice(
        shipped=tuple(row.source for row in _in_order(alive, target) if not reasons[row.name]),
        lost={name: reason for name, reason in reasons.items() if reason},
        metrics=tuple(
            row.metrics(on_front=row.complete and not any(o.beats(row) for o in complete), reason=reasons[name])
            for name, row in table.items()
        ),
    )


def _table(
    candidates: Sequence[VariantSource],
    measured: Measurement,
    judged: Iterable[Evaluation],
    limits: Limits,
    *,
    timed_there: bool,
) -> dict[str, _Row]:
    """Set candidates beside their figures, by name in their order; the reference among them has both figures."""
    names = [candidate.name for candidate in candidates]
    reference, times = measured.reference, measured.of(1)
    scores = {evaluation.name: evaluation for evaluation in judged}
    if reference not in names or len(set(names)) != len(names):
        raise ConfigError(f"candidates need different names, one of them '{reference}'; got {', '.join(names)}")
    if reference not in times or reference not in scores:
        raise ConfigError(
            f"'{reference}' was not timed on one thread or not evaluated; the others are compared with it"
        )
    return {
        candidate.name: _Row(candidate, times.get(candidate.name), scores.get(candidate.name), limits, timed_there)
        for candidate in candidates
    }


def _beaten(row: _Row, alive: Iterable[_Row], target: str) -> str:
    """Explain which candidate of the same format is better, a sentence; empty if none is."""
    rivals = (
        rival
        for rival in alive
        if rival.source.format == row.source.format and (target != ANY or _wherever(rival.source, row.source))
    )
    better = next((rival for rival in rivals if rival.beats(row)), None)
    return f"{better.name} is {_as_good(better, row)}" if better else ""


def _in_order(rows: Sequence[_Row], target: str) -> list[_Row]:
    """Sort best first (see `Choice.shipped`)."""
    if target != ANY:
        return sorted(rows, key=_Row.order)
    fastest = {
        row.source.format: min(o.ratio_here for o in rows if o.source.format == row.source.format) for row in rows
    }
    return sorted(rows, key=lambda row: (fastest[row.source.format], row.size, row.name))


def _wherever(rival: VariantSource, source: VariantSource) -> bool:
    """Tell whether a file is made for every architecture that another one is made for."""
    return not rival.targets or (bool(source.targets) and set(source.targets) <= set(rival.targets))


@dataclass(frozen=True, slots=True)
class _Row:
    """A candidate with what is known of it."""

    source: VariantSource
    timing: Timing | None
    judged: Evaluation | None
    limits: Limits
    timed_there: bool

    @property
    def name(self) -> str:
        return self.source.name

    @property
    def size(self) -> int:
        return len(self.source.model)

    @property
    def complete(self) -> bool:
        return self.timing is not None and self.judged is not None

    @property
    def ratio(self) -> float:
        return self.ratio_here if self.timed_there else 1.0

    @property
    def ratio_here(self) -> float:
        return self.timing.ratio if self.timing else math.inf

    @property
    def drop(self) -> float:
        if self.judged is None:
            return math.inf
        return self.judged.drop if self.limits.metric == "accuracy" else self.judged.f1_drop

    def order(self) -> tuple[float, int, str]:
        return self.ratio, self.size, self.name

    def beats(self, other: _Row) -> bool:
        """At least as good in bytes, time and accuracy, and better in one; times within `SLOWER` are the same time."""
        if not self.timed_there and self.source.precision != other.source.precision:
            return False  # which of the two is faster is not known
        no_worse = self.size <= other.size and self.ratio <= other.ratio * SLOWER and self.drop <= other.drop
        return no_worse and (self.size < other.size or self.ratio * SLOWER < other.ratio or self.drop < other.drop)

    def metrics(self, *, on_front: bool, reason: str) -> CandidateMetrics:
        return CandidateMetrics(
            name=self.name,
            format=self.source.format,
            precision=self.source.precision,
            scheme=self.source.scheme,
            size=self.size,
            zlib_size=compressed_size(self.source.model),
            timing=self.timing,
            judged=self.judged,
            on_front=on_front,
            shipped=not reason,
            reason=reason,
        )


def compressed_size(model: bytes) -> int:
    """Bytes of a model file after ``zlib`` at level 9."""
    return len(zlib.compress(model, 9))


def _reason(row: _Row, reference: _Row, target: str, failed: Mapping[str, str]) -> str:
    """Explain by rules 1 to 5 of `choose` why a candidate cannot ship, in a sentence; empty if it can."""
    name = row.name
    if row.source.targets and (why := _not_for(row.source, target)):  # rule 1
        return why
    if name in failed:  # rule 2
        return f"it could not be timed: {failed[name]}"
    if row.timing is None or row.judged is None:
        return "it was not timed" if row.timing is None else "its answers were not evaluated"
    return ("" if row is reference else _worse(row, row.timing, reference)) or _over_limits(row, row.timing)


def _worse(row: _Row, timing: Timing, reference: _Row) -> str:
    """Explain by rules 3 and 4 why a candidate is worse than the reference, a sentence; empty if it is not."""
    allowed = row.limits.max_accuracy_drop
    if row.drop > allowed:  # rule 3
        word = "accuracy" if row.limits.metric == "accuracy" else "macro F1"
        lost = f"it loses {100 * row.drop:.2f} points of {word} against {reference.name}"
        return f"{lost}; {100 * allowed:.2f} are allowed"
    if row.ratio > SLOWER:  # rule 4
        return (
            f"it takes {row.ratio:.2f} times as long as {reference.name} "
            f"({timing.ratio_low:.2f} to {timing.ratio_high:.2f})"
        )
    return ""


def _over_limits(row: _Row, timing: Timing) -> str:
    """Explain by rule 5 why a candidate is too large or too slow, a sentence; empty if it is neither."""
    limits = row.limits
    if limits.max_bytes is not None and row.size > limits.max_bytes:
        return f"it has {row.size} bytes; {limits.max_bytes} are allowed"
    if limits.max_latency_ms is not None and row.timed_there and timing.p50_us > 1e3 * limits.max_latency_ms:
        return f"it takes {timing.p50_us / 1e3:.3g} ms per window; {limits.max_latency_ms:g} are allowed"
    return ""


def _not_for(source: VariantSource, target: str) -> str:
    """Explain why a device of that architecture would refuse the file for its targets; empty if it would not."""
    if target == ANY:
        return ""
    anyway = refusals(replace(source, targets=()), target)  # engines missing on this workstation
    reasons = [reason for reason in refusals(source, target) if reason not in anyway]
    return reasons[0].replace("this machine", "the target") if reasons else ""


def _as_good(better: _Row, row: _Row) -> str:
    """Name the ways in which one candidate beats another."""
    gains = []
    if better.ratio * SLOWER < row.ratio:
        gains.append(f"{row.ratio / better.ratio:.2f} times as fast")
    if better.size < row.size:
        gains.append(f"{row.size - better.size} bytes smaller")
    if better.drop < row.drop:
        gains.append(f"{100 * (row.drop - better.drop):.2f} points better")
    return f"{' and '.join(gains)}, and worse in nothing"
