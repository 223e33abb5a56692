"""The rule by which a variant is written, and the reason of each that is not."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from edge_export.choose.variants.measured import Measured, Results
from edge_runtime.errors import ConfigError

FEWER = 0.95
"""Share of the float file's bytes from which a file is smaller."""


CLEARLY = 1.01
"""Ratio that is slower where the whole interval is above it, small as it is."""

ALIKE = 1.05
"""Ratio of times up to which files of one family count as equally fast: they differ in numbers alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """Limits.

    Attributes:
        max_loss: accuracy that may be lost, in points; counts where every held-out call has a label.
        min_snr: least signal over noise of the worst output, dB; counts where labels are missing.
    """

    max_loss: float = 0.5
    min_snr: float = 25.0

    def __post_init__(self) -> None:
        if not self.max_loss >= 0 or not self.min_snr >= 0:
            raise ConfigError("--max-loss and --min-snr must not be negative")


@dataclass(frozen=True, slots=True, kw_only=True)
class FileDecision:
    """Decision on one file.

    Attributes:
        measured: its figures.
        written: whether it is written.
        reason: why not, a sentence; empty where it is.
    """

    measured: Measured
    written: bool
    reason: str = ""


def decide(results: Results, rule: Rule) -> tuple[FileDecision, ...]:
    """Apply the rule, in this order.

    1. A file that does not run is refused.
    2. One that loses more than `Rule.max_loss` points, or without labels has less than `Rule.min_snr`, is refused.
    3. One is refused whose time is above the float file's by more than the noise, or whose whole 95 % interval is by
       more than `CLEARLY`.
    4. One with more than `FEWER` of the float file's bytes is refused, unless it is faster by more than the noise.
    5. Of a family in one format, one is written: of those within `ALIKE` of the fastest's time, the one
       with the best accuracy, then the one with the most signal over noise.
    """
    reasons = {one.file.name: _refusal(one, results, rule) for one in results.files}
    for family in {(one.file.family, one.file.format) for one in results.files}:  # rule 5
        own = [one for one in results.files if (one.file.family, one.file.format) == family]
        reasons.update(_beaten([one for one in own if not reasons[one.file.name]]))
    return tuple(
        FileDecision(measured=one, written=not reasons[one.file.name], reason=reasons[one.file.name])
        for one in results.files
    )


def _beaten(family: Sequence[Measured]) -> dict[str, str]:
    """Say by which file of its family each other one is beaten."""
    quickest = min(map(_ratio, family), default=0.0) * ALIKE
    best = max((one for one in family if _ratio(one) <= quickest), key=_merit, default=None)
    if best is None:
        return {}
    others = [one for one in family if one is not best]
    why = {True: "is faster", False: "answers better"}
    return {one.file.name: f"{best.file.name} {why[_ratio(one) > quickest]}" for one in others}


def _ratio(one: Measured) -> float:
    return one.timing.ratio if one.timing is not None else math.inf


def _merit(one: Measured) -> tuple[float, float]:
    return one.accuracy or 0.0, one.db


def _refusal(one: Measured, results: Results, rule: Rule) -> str:
    if one.reason or one.timing is None:  # rule 1
        return f"does not run: {one.reason or 'it was not timed'}"
    before = results.float_file.accuracy
    if one.accuracy is not None and before is not None:  # rule 2
        lost = 100 * (before - one.accuracy)
        if lost > rule.max_loss + 1e-9:
            return f"loses {lost:.2f} points of accuracy ({rule.max_loss:g} allowed)"
    elif one.db < rule.min_snr:
        return f"{one.db:.1f} dB of signal over noise ({rule.min_snr:g} asked)"
    if one.timing.ratio > results.noise or one.timing.ratio_low > CLEARLY:  # rule 3
        return f"slower than float: {one.timing.ratio:.2f} times its time (noise up to {results.noise:.2f})"
    smaller = len(one.file.model) <= FEWER * len(results.float_file.file.model)
    if not smaller and one.timing.ratio * results.noise >= 1:  # rule 4
        return f"gains nothing: {one.timing.ratio:.2f} times the time of float, and about its bytes"
    return ""


def fastest(decisions: Sequence[FileDecision]) -> FileDecision | None:
    """Find the written file that takes the least time; None where none is written."""
    written = [each for each in decisions if each.written and each.measured.timing is not None]
    return min(written, key=lambda each: _ratio(each.measured), default=None)
