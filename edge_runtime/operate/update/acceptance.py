"""Has a new model proved itself? Pure rules over what was counted; they know neither threads nor files."""

from __future__ import annotations

from dataclasses import dataclass

from edge_runtime.operate.update.shadow import ShadowTally

_EARLY = 50
"""Compared windows after which too little agreement ends a run before its time."""
_TIMED = 5
"""Times of both models without which nothing is said of their ratio, neither for nor against."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """Conditions that a run must meet (see `UpdateConfig`)."""

    seconds: float
    windows: int
    comparable: bool
    """There is another model to compare with."""
    min_agreement: float
    max_slowdown: float
    max_errors: int
    stall_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Elapsed:
    """Times of a run so far."""

    seconds: float
    """Since it began."""
    silent_s: float
    """For how long readings came and no answer did."""


def fault(rules: Rules, tally: ShadowTally, elapsed: Elapsed) -> str | None:
    """Explain why the run has failed, one line, or None as long as it has not."""
    if tally.errors > rules.max_errors:
        return f"it failed on {tally.errors} of {tally.errors + tally.answered} windows: {tally.error}"
    if elapsed.silent_s > rules.stall_s:
        return f"readings came for {elapsed.silent_s:.0f} s and it gave no answer"
    full = tally.compared >= max(1, rules.windows)
    if tally.compared >= _EARLY or full:
        if tally.agreement < rules.min_agreement:
            return (
                f"it agrees with the old one on {tally.agreement:.1%} of {tally.compared} windows, "
                f"the limit is {rules.min_agreement:.1%}"
            )
        if tally.timings >= _TIMED and tally.slowdown > rules.max_slowdown:
            return f"it takes {tally.slowdown:.1f} times as long as the old one, the limit is {rules.max_slowdown:g}"
    return None


def passed(rules: Rules, tally: ShadowTally, elapsed: Elapsed) -> bool:
    """Return whether time, windows and times of both models are full. Ask `fault` first."""
    seen = tally.compared if rules.comparable else tally.answered
    timed = tally.timings >= _TIMED or not rules.comparable
    return elapsed.seconds >= rules.seconds and seen >= rules.windows and timed
