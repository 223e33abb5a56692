"""Proof that a change is better, on people left out: what is accepted, what it costs in labels, and what it was worth.

::

    python -m benchmarks.accuracy.prove                # the chances of the rules, exactly
    python -m benchmarks.accuracy.prove FOLDER ...     # and trials: folders that `benchmarks.accuracy` has kept

A trial is one person's stream, two models, and an order in which windows are drawn. The models are those of the table
of docs/accuracy.md, each against each other: int8 and float, teacher, MiniRocket, forest; none has seen the person.
Windows on which the two differ are labelled in that order until the rules decide. Where the old one is the device's
own, it is the case that people have. What the change was worth is told by windows that were not labelled (`Way`):

- ``rest``: windows of the whole stream are labelled, and the others judge. Where all windows that differ were labelled,
  the others say that the change was worth nothing.
- ``half``: a half of the stream, drawn at random, is labelled, and the other one judges.
- ``half in time``: the first half is labelled, and the second one judges; and the other way round.
- ``rest, unshuffled``: as ``rest``, but labelled in the order of time. The runtime does not do that.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import comb
from pathlib import Path
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt
from edge_export.data.dataset import Int64

from benchmarks.report import Goal, Report
from edge_runtime.operate.update.prove import Outcome, Said, looks, verdict

Names = npt.NDArray[np.str_]
Way = Literal["rest", "half", "half in time", "rest, unshuffled"]
SHARES = (0.2, 0.3, 0.4, 0.45, 0.5, 0.55, 0.6, 0.7, 0.8, 0.9)
"""Of the labels that tell two models apart: those for the new one."""
MOST = 60
DRAWS = 3
WORTH = 0.01
"""Accuracy: a change that is worth less is neither helpful nor worse."""
_MEANINGS: dict[tuple[bool, bool], Said] = {(True, False): "for", (False, True): "against", (False, False): "neither"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Chances:
    """Chances of a change to be accepted or rejected in the end, and what it costs."""

    accepted: float
    rejected: float
    labels: float
    """Expected number."""


def chances(share: float, most: int = MOST) -> Chances:
    """Walk through all counts of labels that the rules let happen, from look to look.

    Args:
        share: chance that a label that tells the models apart is for the new one.
        most: labels at most.
    """
    going: dict[tuple[int, ...], float] = {(): 1.0}  # labels for the new one, at each look
    ended: dict[Outcome, float] = {"accept": 0.0, "reject": 0.0}
    labels, before = 0.0, 0
    for n in looks(most):
        labels += (n - before) * sum(going.values())
        reached: dict[tuple[int, ...], float] = {}
        for so_far, weight in going.items():
            for more in range(n - before + 1):
                wins = (*so_far, (so_far[-1] if so_far else 0) + more)
                chance = comb(n - before, more) * share**more * (1 - share) ** (n - before - more)
                outcome = verdict(_labels(wins, looks(most)), most).outcome
                if outcome == "go on":
                    reached[wins] = weight * chance
                else:
                    ended[outcome] += weight * chance
        going, before = _merged(reached), n
    return Chances(accepted=ended["accept"], rejected=ended["reject"], labels=labels)


def _labels(wins: Sequence[int], ends: Sequence[int]) -> list[Said]:
    """Write out labels by their numbers for the new one at each look."""
    said: list[Said] = []
    for n, all_wins in zip(ends, wins, strict=False):
        more = all_wins - said.count("for")
        said.extend("for" for _ in range(more))
        said.extend("against" for _ in range(n - len(said)))
    return said


def _merged(reached: dict[tuple[int, ...], float]) -> dict[tuple[int, ...], float]:
    """Join walks that are at the same place: only that matters from here on."""
    paths: dict[int, tuple[int, ...]] = {}
    found: dict[tuple[int, ...], float] = {}
    for path, weight in reached.items():
        kept = paths.setdefault(path[-1], path)
        found[kept] = found.get(kept, 0.0) + weight
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One proof, and what the change was worth."""

    old: str
    new: str
    outcome: Outcome
    labels: int
    worth: float
    """Accuracy of the new model less that of the old one, on windows that were not labelled."""


def trial(y: Int64, old: Int64, new: Int64, order: Int64, names: tuple[str, str], judges: Int64 | None = None) -> Trial:
    """Label windows in an order until the rules decide.

    Args:
        y: (n,) labels of one person's windows.
        old: (n,) answers.
        new: (n,) answers.
        order: of the windows, those on which both agree among them.
        names: of old and new.
        judges: windows that tell what the change was worth; None: all that were not labelled.
    """
    differing = order[old[order] != new[order]]
    said: list[Said] = [_MEANINGS[bool(new[at] == y[at]), bool(old[at] == y[at])] for at in differing.tolist()]
    n = next((n for n in looks(MOST) if verdict(said[:n], MOST).outcome != "go on"), len(said))
    outcome, asked = verdict(said[:n], MOST, is_last=n >= len(said)).outcome, differing[:n]
    rest = np.setdiff1d(np.arange(len(y)), asked) if judges is None else judges
    worth = float((new[rest] == y[rest]).mean() - (old[rest] == y[rest]).mean()) if len(rest) else 0.0
    return Trial(old=names[0], new=names[1], outcome=outcome, labels=len(asked), worth=worth)


def draws(n: int, way: Way) -> Iterator[tuple[Int64, Int64 | None]]:
    """Give orders of labelling a stream of n windows, each with the windows that judge (see `trial`)."""
    if way == "rest, unshuffled":
        yield np.arange(n), None
        return
    for draw in range(DRAWS):
        rng = np.random.default_rng(draw)
        if way == "half in time":
            halves = np.arange(n // 2), np.arange(n // 2, n)
            for labelled, judging in (halves, halves[::-1]):
                yield rng.permutation(labelled), judging
            continue
        order = rng.permutation(n)
        yield (order, None) if way == "rest" else (order[: n // 2], order[n // 2 :])


def trials(y: Int64, group: Names, answers: Mapping[str, Int64], way: Way = "rest") -> Iterator[Trial]:
    """Try each model against each other one, for each person and draw."""
    for person in np.unique(group):
        own = np.flatnonzero(group == person)
        orders = list(draws(len(own), way))
        for old, new in itertools.permutations(answers, 2):
            for order, judges in orders:
                yield trial(y[own], answers[old][own], answers[new][own], order, (old, new), judges)


def models_of(folder: Path) -> tuple[Int64, Names, dict[str, Int64]]:
    """Read labels, people and the answers of all models that `benchmarks.accuracy` has kept of a set."""
    from edge_export.choose.surround.cross_fit import CLOUD  # noqa: PLC0415 - PyTorch, only where there are trials

    from benchmarks.accuracy.answers import FILES, read_answers  # noqa: PLC0415

    given = read_answers(folder / "answers.npz")
    answers = {"device": given.given[FILES[-1]], "float": given.given[FILES[0]], "teacher": given.given[CLOUD]}
    found: dict[str, Int64] = {name: rows.argmax(axis=1) for name, rows in answers.items()}
    found |= {path.stem: np.load(path) for path in sorted(folder.glob("*.npy"))}
    return given.windows.y, given.windows.group, found


def row(name: str, found: Sequence[Trial]) -> tuple[str | float, ...]:
    """Sum up the trials of one set."""
    worse = [one for one in found if one.worth <= -WORTH]
    helpful = [one for one in found if one.worth >= WORTH]
    accepted = [one for one in found if one.outcome == "accept"]
    return (
        name,
        len(found),
        len(worse),
        sum(one.outcome == "accept" for one in worse),
        len(helpful),
        sum(one.outcome == "accept" for one in helpful),
        sum(one.outcome == "go on" for one in helpful),
        float(np.median([one.labels for one in accepted])) if accepted else 0.0,
        max(one.labels for one in found),
        round(100 * float(np.mean([one.worth for one in accepted])), 1) if accepted else 0.0,
    )


def goals_of(way: Way, found: Sequence[Trial]) -> list[Goal]:
    """Compare what was found with what the proof is for."""
    worse, helpful = ([one for one in found if sign * one.worth >= WORTH] for sign in (-1, 1))
    harmful = sum(one.outcome == "accept" for one in worse)
    decided = [one.outcome == "accept" for one in helpful if one.outcome != "go on"]
    return [
        Goal(f"{way}: changes accepted that are worse by a point or more", harmful, 0, at_most=True),
        Goal(f"{way}: share of helpful changes accepted", sum(decided) / len(helpful), 0.5),
        Goal(f"{way}: the same, where enough windows differ to decide", sum(decided) / len(decided), 0.5),
        Goal(f"{way}: labels of one proof", max(one.labels for one in found), MOST, at_most=True),
    ]


def main() -> int:
    """Print the chances, and the trials where there are answers."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.accuracy.prove", description=__doc__)
    parser.add_argument("folders", nargs="*", type=Path, metavar="FOLDER", help="as --cache of benchmarks.accuracy")
    options = parser.parse_args()
    rules = Report("Chances of a proof", ("labels for the new model", "accepted", "rejected", "labels, mean"))
    for share in SHARES:
        one = chances(share)
        rules.rows.append((f"{share:.0%}", f"{one.accepted:.1%}", f"{one.rejected:.1%}", round(one.labels)))
    print(rules.text())
    if not options.folders:
        return 0
    columns = (
        "set, old model", "trials", "worse", "accepted of these", "helpful", "accepted of these", "too few differ",
        "labels, median", "labels, most", "worth, points",
    )  # fmt: skip
    report = Report("Trials of a proof on people left out", columns)
    ways: dict[Way, list[Trial]] = {way: [] for way in get_args(Way)}
    for folder in options.folders:
        models = models_of(folder)
        for way in ways:
            found = list(trials(*models, way))
            ways[way] += found
            if way == "half":
                report.rows.append(row(f"{folder.name}, any, half", found))
    for way, everything in ways.items():
        report.rows.append(row(f"all, any, {way}", everything))
        report.rows.append(row(f"all, device, {way}", [one for one in everything if one.old == "device"]))
        if way != "rest, unshuffled":
            report.goals += goals_of(way, everything)
    print(f"\n{report.text()}")
    return 0


if __name__ == "__main__":
    main()
