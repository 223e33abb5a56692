"""Operating point of an event rule: the fewest misses at a stated rate of false alarms.

1. A grid of rules is tried on every recording: smoothing, n of m, hysteresis, pause, and thresholds at the quantiles of
   the scores outside the labelled stretches.
2. The point is the rule with the fewest misses among those whose false alarms, summed over the recordings that it is
   chosen on, stay within rate x hours. Of equals it is the one with fewer false alarms, then the quickest.
3. It is reported on recordings that it was not chosen on: others, or each one in turn with the rest to choose on.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, NamedTuple

import numpy as np

from edge_runtime.answer.events.trial import NOTHING, Outcome, Trial, begins, judge, smooth_all
from edge_runtime.event_rule import EventRule

FEW: Final = 30
"""False alarms expected below which a count says too little, and its bound is printed."""

Smooth = Literal["mean", "median", "max", "exponential"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchGrid:
    """Values that are tried."""

    smooth: tuple[Smooth, ...] = ("mean",)
    smooth_windows: tuple[int, ...] = (1, 2, 3, 5)
    of: tuple[tuple[int, int], ...] = ((1, 1), (2, 2), (2, 3), (3, 5))
    off: tuple[float, ...] = (1.0, 0.75)
    """As shares of `on`."""
    refractory_s: tuple[float, ...] = (0.0,)
    thresholds: int = 32


class Point(NamedTuple):
    """A rule that was tried."""

    rule: EventRule
    outcomes: Mapping[str, Outcome]
    """By recording."""

    def on(self, recordings: Sequence[str]) -> Outcome:
        """Sum the outcomes of some recordings."""
        return sum((self.outcomes[name] for name in recordings), NOTHING)


def sweep(base: EventRule, trials: Mapping[str, Sequence[Trial]], grid: SearchGrid) -> list[Point]:
    """Try every rule of the grid.

    Args:
        base: name, label and hold of the rule.
        trials: trials of each recording, by its name.
        grid: what is tried.
    """
    points: list[Point] = []
    for kind in grid.smooth:
        for windows in grid.smooth_windows:
            smoothing = replace(base, smooth=kind, smooth_windows=windows)
            scores = {name: [smooth_all(smoothing, trial) for trial in some] for name, some in trials.items()}
            rules = _rules(smoothing, _thresholds(trials, scores, grid.thresholds), grid)
            points += [Point(rule, _outcomes(rule, trials, scores)) for rule in rules]
    return points


def _rules(smoothing: EventRule, thresholds: Sequence[float], grid: SearchGrid) -> list[EventRule]:
    return [
        replace(
            smoothing,
            on=on,
            off=None if share == 1.0 else round(on * share, 4),
            of=of,
            refractory_s=refractory_s,
        )
        for of in grid.of
        for share in grid.off
        for refractory_s in grid.refractory_s
        for on in thresholds
    ]


def _outcomes(
    rule: EventRule, trials: Mapping[str, Sequence[Trial]], scores: Mapping[str, Sequence[np.ndarray]]
) -> dict[str, Outcome]:
    return {
        name: sum(
            (judge(trial, begins(rule, trial, own)) for trial, own in zip(some, scores[name], strict=True)), NOTHING
        )
        for name, some in trials.items()
    }


def _thresholds(
    trials: Mapping[str, Sequence[Trial]], scores: Mapping[str, Sequence[np.ndarray]], n: int
) -> list[float]:
    """Choose thresholds: quantiles of the scores outside the stretches, denser towards the top."""
    pairs = [pair for name, some in trials.items() for pair in zip(some, scores[name], strict=True)]
    outside = [_outside(trial, own) for trial, own in pairs]
    pooled = np.concatenate(outside) if outside else np.zeros(0)
    if not len(pooled):
        return [0.5]
    shares = np.geomspace(0.5, 0.5 / len(pooled), n)
    cuts = np.quantile(pooled, 1 - shares)
    return sorted({min(1.0, max(1e-4, math.ceil(cut * 1e4) / 1e4)) for cut in cuts.tolist()} | {0.5})


def _outside(trial: Trial, scores: np.ndarray) -> np.ndarray:
    keep = np.ones(len(scores), bool)
    for begin, stop in trial.truth:
        keep &= (trial.answers.end <= begin) | (trial.answers.start >= stop)
    return scores[keep]


def choose(points: Sequence[Point], recordings: Sequence[str], rate: float) -> Point | None:
    """Choose the operating point by rule 2.

    Args:
        points: rules and their outcomes, from `sweep`.
        recordings: names of the recordings to choose on.
        rate: false alarms per hour.

    Returns:
        None where no rule stays within the rate.
    """

    def order(pair: tuple[Point, Outcome]) -> tuple[float, ...]:
        rule, outcome = pair[0].rule, pair[1]
        return outcome.missed, outcome.false, rule.of[1] + rule.smooth_windows, rule.refractory_s, -rule.on

    tried = [(point, point.on(recordings)) for point in points]
    allowed = [(point, outcome) for point, outcome in tried if outcome.false <= rate * outcome.hours]
    return min(allowed, key=order)[0] if allowed else None


def leave_one_out(points: Sequence[Point], recordings: Sequence[str], rate: float) -> Outcome:
    """Report by rule 3: each recording by the point that the others choose."""
    total = NOTHING
    for name in recordings:
        point = choose(points, [other for other in recordings if other != name], rate)
        # Where the others allow no rule at all, none is used: all is missed, and nothing false.
        here = points[0].outcomes[name]
        total += here._replace(missed=here.happened, false=0) if point is None else point.outcomes[name]
    return total


def front(points: Sequence[Point], recordings: Sequence[str]) -> list[tuple[Point, Outcome]]:
    """Return the points that no other beats in both misses and false alarms, by rising false alarms."""
    tried = sorted(
        ((point, point.on(recordings)) for point in points), key=lambda pair: (pair[1].false, pair[1].missed)
    )
    best: list[tuple[Point, Outcome]] = []
    for point, outcome in tried:
        if not best or outcome.missed < best[-1][1].missed:
            best.append((point, outcome))
    return best


def upper_bound(count: int, confidence: float = 0.95) -> float:
    """Return the exact upper bound of a Poisson mean, one-sided.

    The mean at which `count` or fewer are seen with probability 1 - `confidence` (Garwood 1936, Biometrika 28, 437).
    """
    low, high = float(count), 2.0 * count + 20.0
    for _ in range(100):
        middle = (low + high) / 2
        if _at_most(count, middle) > 1 - confidence:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def _at_most(count: int, mean: float) -> float:
    """Compute the probability of `count` or fewer."""
    if mean == 0:
        return 1.0
    return sum(math.exp(k * math.log(mean) - mean - math.lgamma(k + 1)) for k in range(count + 1))
