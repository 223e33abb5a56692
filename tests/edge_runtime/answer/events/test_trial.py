"""Trials of rules on recorded answers: the same beginnings as live, and what counts as missed and false."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given

from edge_runtime.answer.events.operating_point import (
    Point,
    SearchGrid,
    choose,
    front,
    leave_one_out,
    sweep,
    upper_bound,
)
from edge_runtime.answer.events.trial import KeyAnswers, Outcome, Trial, begins, judge, prepare, smooth_all
from edge_runtime.event_rule import EventRule
from tests.edge_runtime.answer.events import reference
from tests.edge_runtime.answer.events.streams import EPOCH, JUMP_MS, LENGTH_MS, levels, rules, windows

RULE = EventRule(name="e", label="high")


def trial(*highs: float, step: float = 1.0, truth: tuple[tuple[float, float], ...] = (), merge_s: float = 0.0) -> Trial:
    """Windows of one second."""
    start = np.arange(len(highs), dtype=np.float64) * step
    return prepare(KeyAnswers(start, start + 1.0, np.array(highs)), truth, gap_s=1.0, merge_s=merge_s)


@given(rules(most=1), levels().map(lambda steps: [(max(200, step), high) for step, high in steps]))
def test_beginnings_are_those_of_the_rules(of: list[EventRule], steps: list[tuple[int, float]]) -> None:
    rule = replace(of[0], after="", within_s=0.0)
    wins = windows([rule], steps)
    expected = [
        (one.start, one.began + LENGTH_MS)
        for one in reference.messages([rule], wins, LENGTH_MS, JUMP_MS)
        if one.kind == "start"
    ]
    start = np.array([round((EPOCH + win.ms / 1000) * 1e6) / 1e6 for win in wins])
    end = np.array([round((EPOCH + (win.ms + LENGTH_MS) / 1000) * 1e6) / 1e6 for win in wins])
    tried = prepare(KeyAnswers(start, end, np.array([win.scores[0] for win in wins])), (), gap_s=0.4, merge_s=0.0)
    found = begins(rule, tried, smooth_all(rule, tried))
    assert [(round((a - EPOCH) * 1000), round((b - EPOCH) * 1000)) for a, b in found] == expected


def test_hours_are_those_outside_the_stretches_without_gaps() -> None:
    start = np.array([0.0, 0.5, 1.0, 10.0, 10.5])
    tried = prepare(
        KeyAnswers(start, start + 1.0, np.zeros(5)), [(1.5, 3.0), (20.0, 30.0), (-5.0, 0.25)], gap_s=1.0, merge_s=0.0
    )
    assert tried.hours * 3600 == pytest.approx(2.0 - 0.5 - 0.25 + 1.5)
    assert tried.truth == [(-5.0, 0.25), (1.5, 3.0)]  # what was not recorded cannot be missed


def test_stretches_closer_than_stated_are_one() -> None:
    assert trial(*[0.0] * 10, truth=((5.0, 6.0), (1.0, 2.0), (2.5, 3.0)), merge_s=1.0).truth == [(1.0, 3.0), (5.0, 6.0)]


def test_only_beginnings_find_and_only_outside_they_are_false() -> None:
    tried = trial(*[0.0] * 20, truth=((2.0, 4.0), (10.0, 11.0), (15.0, 16.0)))
    found = [(1.5, 2.5), (3.0, 4.5), (6.0, 7.0), (11.0, 12.0), (13.0, 15.5)]
    assert judge(tried, found) == Outcome(3, 1, 2, tried.hours)
    always_open = begins(replace(RULE, on=0.1), trial(*[0.9] * 20), np.full(20, 0.9))
    assert always_open == [(0.0, 1.0)]


def random_trials(seed: int, n: int) -> dict[str, list[Trial]]:
    rng = np.random.default_rng(seed)
    made = {}
    for i in range(n):
        score = rng.beta(1, 6, 2000)
        truth = [(float(at), at + 3.0) for at in range(50, 2000, 200)]
        for begin, _ in truth:
            score[int(begin) : int(begin) + 3] = rng.beta(4, 2, 3)
        made[f"r{i}"] = [trial(*score, truth=tuple(truth))]
    return made


@pytest.mark.slow
def test_the_chosen_rule_keeps_the_rate_where_it_was_chosen_and_misses_least() -> None:
    trials = random_trials(1, 4)
    points = sweep(RULE, trials, SearchGrid(thresholds=16))
    names = list(trials)
    for rate in (1.0, 10.0, 60.0):
        best = choose(points, names, rate)
        assert best is not None
        outcome = best.on(names)
        assert outcome.false <= rate * outcome.hours
        others = [point.on(names) for point in points]
        assert outcome.missed == min(one.missed for one in others if one.false <= rate * one.hours)
    rising = [outcome for _, outcome in front(points, names)]
    assert [one.false for one in rising] == sorted({one.false for one in rising})
    assert [one.missed for one in rising] == sorted({one.missed for one in rising}, reverse=True)


def test_leaving_one_out_never_chooses_on_what_it_reports() -> None:
    def point(on: float, **outcomes: tuple[int, int]) -> Point:
        return Point(replace(RULE, on=on), {name: Outcome(10, *pair, 1.0) for name, pair in outcomes.items()})

    points = [point(0.9, a=(5, 0), b=(5, 0)), point(0.5, a=(0, 0), b=(0, 20))]
    # Chosen on b alone, 0.5 gives too many; chosen on a alone, it is the best, and bad on b.
    assert leave_one_out(points, ["a", "b"], 1.0) == Outcome(20, 5, 20, 2.0)
    assert choose(points, ["a", "b"], 1.0) == points[0]
    assert choose([points[1]], ["b"], 1.0) is None


@pytest.mark.parametrize(("count", "bound"), [(0, 2.995732), (1, 4.743865), (5, 10.513035), (30, 40.690508)])
def test_poisson_bounds_are_those_of_the_tables(count: int, bound: float) -> None:
    """Half of the 0.95 quantile of chi-squared with 2 (n + 1) degrees of freedom."""
    assert upper_bound(count) == pytest.approx(bound, abs=1e-5)
