"""Trials of event rules on recorded answers: events missed, and false alarms per hour.

What counts, for one rule and the labelled stretches in which its event happens:

1. Stretches less than `merge_s` apart are one.
2. An event *begins in* a stretch if the time from the start of its first window to the end of the window that began it
   overlaps the stretch. Beginnings alone count: a rule that is open all the time would otherwise miss nothing.
3. A stretch is found if an event begins in it; more of them there are neither found nor false.
4. An event that begins in no stretch is a false alarm. The hours are those of the recordings outside all stretches.

`begins` gives the beginnings that `edge_runtime.answer.events.rules` gives, but looks at the scores that reach `on`
alone: a search over some thousand rules takes seconds.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from edge_runtime.answer.events.rules import smoothed
from edge_runtime.event_rule import EventRule
from edge_runtime.types import Float64

Span = tuple[float, float]
"""Start and end, seconds."""


class KeyAnswers(NamedTuple):
    """Answers to the windows of one key of a recording, in order of time."""

    start: Float64
    end: Float64
    score: Float64
    """Probability of the rule's label."""


class Trial(NamedTuple):
    """A key of a recording with its labelled stretches, ready to be tried."""

    answers: KeyAnswers
    fresh: list[int]
    """Steps that begin after a gap, the first one included; and the number of steps, as a last entry."""
    truth: list[Span]
    """Stretches, merged and in order (rule 1)."""
    hours: float
    """Of the recording outside all stretches."""


class Outcome(NamedTuple):
    """Outcome of a rule."""

    happened: int
    """Stretches."""
    missed: int
    false: int
    hours: float

    def __add__(self, other: object) -> Outcome:
        """Sum two outcomes."""
        if not isinstance(other, Outcome):
            return NotImplemented
        return Outcome(
            self.happened + other.happened,
            self.missed + other.missed,
            self.false + other.false,
            self.hours + other.hours,
        )

    @property
    def per_hour(self) -> float:
        """False alarms per hour."""
        return self.false / self.hours if self.hours else math.nan

    @property
    def miss_share(self) -> float:
        """Share of the stretches that are missed."""
        return self.missed / self.happened if self.happened else math.nan


NOTHING = Outcome(0, 0, 0, 0.0)


def prepare(answers: KeyAnswers, truth: Iterable[Span], *, gap_s: float, merge_s: float) -> Trial:
    """Make a trial of a key's answers.

    Args:
        answers: the key's answers, in order of time.
        truth: stretches in which the event happens, in any order.
        gap_s: length of a window, as in `edge_runtime.answer.events.rules.advance`.
        merge_s: see rule 1.
    """
    start, end = answers.start, answers.end
    gaps = np.rint((start[1:] - end[:-1]) * 1e6) > round(gap_s * 1e6)
    fresh = [0, *(np.flatnonzero(gaps) + 1).tolist(), len(start)]
    merged: list[Span] = []
    for begin, stop in sorted(truth):
        if merged and begin - merged[-1][1] < merge_s:
            merged[-1] = (merged[-1][0], max(merged[-1][1], stop))
        else:
            merged.append((begin, stop))
    until = np.minimum(end, np.append(start[1:], math.inf))
    covered = [(float(a), float(b)) for a, b in zip(start, until, strict=True)]
    spans = _joined(covered)
    seen = [span for span in merged if any(span[0] < b and a < span[1] for a, b in spans)]
    seconds = sum(b - a for a, b in spans) - sum(
        max(0.0, min(b, stop) - max(a, begin)) for a, b in spans for begin, stop in seen
    )
    return Trial(answers, fresh, seen, seconds / 3600)


def _joined(spans: Sequence[Span]) -> list[Span]:
    out: list[Span] = []
    for begin, stop in spans:
        if out and begin <= out[-1][1] + 1e-6:
            out[-1] = (out[-1][0], stop)
        else:
            out.append((begin, stop))
    return out


def smooth_all(rule: EventRule, trial: Trial) -> Float64:
    """Smooth the scores of all steps as the rule does."""
    out = np.empty_like(trial.answers.score)
    scores: tuple[float, ...] = ()
    fresh = set(trial.fresh)
    for i, raw in enumerate(trial.answers.score.tolist()):
        scores, out[i] = smoothed(rule, () if i in fresh else scores, raw)
    return out


def begins(rule: EventRule, trial: Trial, scores: Float64) -> list[Span]:
    """Return the beginnings of all events: start of the first window that counted, end of the one that began it.

    Args:
        rule: without `after`.
        trial: the answers.
        scores: smoothed scores of all steps, from `smooth_all`.
    """
    start, end, fresh = trial.answers.start, trial.answers.end, trial.fresh
    over = np.flatnonzero(scores >= rule.on).tolist()
    below = np.flatnonzero(scores < (rule.on if rule.off is None else rule.off)).tolist()
    needed, among = rule.of
    found: list[Span] = []
    counted: list[int] = []
    at, rested = 0, -math.inf
    while at < len(over):
        i = over[at]
        at += 1
        if _us(end[i] - rested) < _us(rule.refractory_s):
            continue
        since = fresh[bisect_right(fresh, i) - 1]
        counted = [*(one for one in counted if one > i - among and one >= since), i]
        if len(counted) < needed:
            continue
        found.append((float(start[counted[0]]), float(end[i])))
        last = _last_of(rule, i, float(start[counted[0]]), below, trial)
        rested, counted = float(end[last]), []
        at = bisect_right(over, last)
    return found


def _last_of(rule: EventRule, begun: int, since: float, below: Sequence[int], trial: Trial) -> int:
    """Find the last step of an event: rules 2 and 6 of `edge_runtime.answer.events.rules`."""
    end = trial.answers.end
    stop = trial.fresh[bisect_right(trial.fresh, begun)]
    for k in range(bisect_right(below, begun), len(below)):
        i = below[k]
        if i >= stop:
            break
        if _us(end[i - 1] - since) >= _us(rule.hold_s):
            return i - 1
    return stop - 1


def judge(trial: Trial, found: Sequence[Span]) -> Outcome:
    """Compare beginnings with the stretches: rules 2 to 4."""
    starts = [begin for begin, _ in trial.truth]
    ends = [stop for _, stop in trial.truth]
    hit: set[int] = set()
    false = 0
    for begin, stop in found:
        first, behind = bisect_right(ends, begin), bisect_left(starts, stop)
        hit.update(range(first, behind))
        false += first >= behind
    return Outcome(len(trial.truth), len(trial.truth) - len(hit), false, trial.hours)


def _us(seconds: float) -> float:
    return round(seconds * 1e6) if math.isfinite(seconds) else seconds
