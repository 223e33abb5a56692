"""Share of hard windows on people left out: a threshold that stays, and one that moves.

::

    python -m benchmarks.accuracy.hold NAME=answers.npz ...     # answers as `benchmarks.accuracy.answers` keeps them
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from edge_export.choose.evaluation.calibration import at_temperature, fit_temperature, scores
from edge_export.choose.surround.cross_fit import CLOUD, OutOfFold

from benchmarks.accuracy.answers import FILES, read_answers
from benchmarks.accuracy.held_share import AUDITED, LEAST, STREAM, HeldShare, ScoredAnswers, judge_hold, judge_promise
from benchmarks.accuracy.scoring import paired
from benchmarks.report import Cell, Goal, Report
from edge_runtime.signal.drift.agreement import wilson

ASKED = (0.08, 0.1)
SHARE = 0.08
LIMITS = (0.05, 0.1)
AUDIT_SHARE = 0.05
COLUMNS = (
    "set, asked", "groups", "repeated", "stays, range", "moves, range", "off, stays", "off, moves", "near, stays",
    "near, moves", "in band", "wrong", "sent wrong, stays", "sent wrong, moves", "margin", "margin low", "beat random",
)  # fmt: skip


def calibrated(given: OutOfFold, fold: int, file: str = FILES[-1]) -> ScoredAnswers:
    """Return the network's own answers and their confidence, calibrated without a fold."""
    windows, rest = given.windows, given.fold != fold
    answers = at_temperature(given.given[file], fit_temperature(given.given[file][rest], windows.y[rest]))
    best = answers.argmax(axis=1)
    return ScoredAnswers(
        trust=scores(answers, "confidence"),
        wrong=best != windows.y,
        disputed=best != given.given[CLOUD].argmax(axis=1),
        windows=windows,
        fold=given.fold,
    )


def by_fold(given: OutOfFold) -> list[tuple[int, ScoredAnswers]]:
    """Return the answers calibrated without each fold in turn, in which that fold is judged."""
    return [(fold, calibrated(given, fold)) for fold in np.unique(given.fold).tolist()]


def row(name: str, found: Sequence[HeldShare]) -> tuple[Cell, ...]:
    """Sum up one set at one share."""
    asked = found[0].asked
    off = [[abs(one.fixed - asked) / asked for one in found], [abs(one.held - asked) / asked for one in found]]
    margin, low, _ = paired(np.array([one.margin for one in found]))
    return (
        f"{name}, {asked:.0%}",
        len(found),
        sum(one.windows < STREAM for one in found),
        _range([one.fixed for one in found]),
        _range([one.held for one in found]),
        round(float(np.mean(off[0])), 3),
        round(float(np.mean(off[1])), 3),
        sum(one <= 0.1 for one in off[0]),
        sum(one.near for one in found),
        sum(one.likely for one in found),
        round(float(np.mean([one.error for one in found])), 3),
        round(float(np.nanmean([one.fixed_error for one in found])), 3),
        round(float(np.nanmean([one.held_error for one in found])), 3),
        round(margin, 3),
        round(low, 3),
        sum(one.margin > 0 for one in found),
    )


def _range(shares: Sequence[float]) -> str:
    return f"{min(shares):.1%} to {max(shares):.1%}"


def hold(sets: Sequence[tuple[str, OutOfFold]]) -> Report:
    """Report all sets at all shares."""
    report = Report(
        title="share of hard windows by group left out: a threshold that stays, one that moves (answer.gate)",
        columns=COLUMNS,
    )
    for name, given in sets:
        folds = by_fold(given)
        for asked in ASKED:
            found = [one for fold, answers in folds for one in judge_hold(answers, asked, {fold})]
            report.rows.append(row(name, found))
            near = sum(one.near for one in found) / len(found)
            report.goals.append(Goal(f"{name}, {asked:.0%}: groups whose share is within 10 % of that", near, 1.0))
            margin = min(one.margin for one in found)
            report.goals.append(Goal(f"{name}, {asked:.0%}: margin over random, worst group", margin, 0.0))
    report.notes += [
        f"Every group is a stream; one of fewer than {STREAM:,} windows is repeated until it has these. Those of fewer",
        f"than {LEAST} are left out.",
        "off: mean over groups of |share - asked| / asked. near: groups within 10 %. in band: groups whose first time",
        "through lies in the 95 % band of as many independent windows. margin: error rate of what is sent, less that",
        "of all answers, which random forwarding sends; low: lower end of its 95 % interval over groups.",
    ]
    return report


def promise(sets: Sequence[tuple[str, OutOfFold]]) -> Report:
    """Report how many people a promise on errors is kept for, with and without audits that move the share."""
    report = Report(
        title=f"errors of trusted answers, {SHARE:.0%} hard at least, {AUDIT_SHARE:.0%} of the trusted ones audited",
        columns=(
            "set, promise",
            "groups",
            "kept without",
            "kept",
            "95 % interval",
            "hard, mean",
            "hard, most",
            "audits",
        ),
    )
    for name, given in sets:
        folds = by_fold(given)
        for limit in LIMITS:
            found = [
                one for fold, answers in folds for one in judge_promise(answers, SHARE, limit, AUDIT_SHARE, {fold})
            ]
            kept = sum(one.kept <= limit for one in found)
            low, high = wilson(kept, len(found))
            report.rows.append((
                f"{name}, {limit:.0%}",
                len(found),
                sum(one.without <= limit for one in found),
                kept,
                f"{low:.2f} to {high:.2f}",
                round(float(np.mean([one.share for one in found])), 3),
                round(max(one.share for one in found), 3),
                round(float(np.median([one.audits for one in found]))),
            ))  # fmt: skip
    report.notes += [
        f"Streams are repeated to {AUDITED:,} windows; errors are of the second half. An audit knows the cloud's",
        "answer, what is counted is the truth. Interval: Wilson's of 95 %, of the share of people for whom it is kept.",
    ]
    return report


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.accuracy.hold")
    parser.add_argument("sets", nargs="+", metavar="NAME=FILE")
    named = [given.partition("=") for given in parser.parse_args().sets]
    sets = [(name, read_answers(Path(file))) for name, _, file in named]
    for made in (hold(sets), promise(sets)):
        print(made.text(), end="\n\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
