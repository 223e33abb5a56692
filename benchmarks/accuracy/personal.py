"""Personalisation on people left out: a map of the answers, fitted to a few labels of one person.

::

    python -m benchmarks.accuracy.personal FOLDER ...     # folders that `benchmarks.accuracy` has kept

Calibration and filter are fitted to the other folds. Of a person, some windows are drawn at random and labelled, by the
person or by the cloud; the map is fitted to them, and judged on all others of the person, with and without the filter
over time behind it. *Bias*: a number for each label, added to the log-probabilities. *Matrix*: a linear map of them,
the last layer that one can reach without the network's inside. Both are pulled towards no change.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from edge_export.choose.evaluation.calibration import at_temperature, fit_temperature
from edge_export.choose.surround.cross_fit import CLOUD, OutOfFold
from edge_export.choose.surround.log_linear import Float64, fit_log_linear, softmax
from edge_export.choose.surround.over_time import filtered, fit_over_time, streams_of
from edge_export.data.dataset import Float32, Int64
from edge_export.recipe.recipe import load

from benchmarks.accuracy.answers import FILES, read_answers
from benchmarks.accuracy.scoring import paired
from benchmarks.accuracy.sets import SETS
from benchmarks.report import Cell, Report

LABELS = (10, 20, 40)
DRAWS = 4
RIDGE = {"bias": 1.0, "matrix": 20.0}
"""Windows: strength of the pull. Of 1, 5 and 20, the best on exercise-watch: a figure in favour of the idea."""
HURT = 0.005
"""Accuracy."""


def terms_of(answers: Float32, way: str) -> Float64:
    """Return (n, classes, m) terms of each class's logit; see the module."""
    logs = np.log(np.maximum(answers, 1e-6)).astype(np.float64)
    logs -= logs.mean(axis=1, keepdims=True)
    n, classes = logs.shape
    bias = np.broadcast_to(np.eye(classes), (n, classes, classes))
    if way == "bias":
        return np.concatenate([logs[:, :, None], bias], axis=2)
    rows: Float64 = np.einsum("kj,nl->nkjl", np.eye(classes), logs).reshape(n, classes, classes * classes)
    return np.concatenate([rows, bias], axis=2)


def adapted(answers: Float32, labelled: Int64, labels: Int64, way: str) -> Float32:
    """Fit a map to some windows, and apply it to all.

    Args:
        answers: (n, classes) calibrated probabilities.
        labelled: places of the windows with a label.
        labels: theirs.
        way: of `RIDGE`.
    """
    classes = answers.shape[1]
    terms = terms_of(answers, way)
    first = np.ones(1) if way == "bias" else np.eye(classes).ravel()
    start = np.concatenate([first, np.zeros(classes)])
    ridge = np.full(len(start), RIDGE[way])
    weights = fit_log_linear(terms[labelled], np.eye(classes)[labels], start=start, ridge=ridge)
    found: Float32 = softmax(terms @ weights).astype(np.float32)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Gain:
    """Accuracy of the map less that without it, on the windows of one person without a label."""

    way: str
    labels: int
    by: str
    alone: float
    over_time: float


def gains(given: OutOfFold, hop: int) -> Iterator[Gain]:
    """Measure every way for every person and draw."""
    windows, device, cloud = given.windows, given.given[FILES[-1]], given.given[CLOUD].argmax(axis=1)
    for number in np.unique(given.fold):
        rest = given.fold != number
        calibrated = at_temperature(device, fit_temperature(device[rest], windows.y[rest]))
        seen = streams_of(windows.at(rest), hop)
        spec = fit_over_time(seen, calibrated[rest][seen.order])
        for person in np.unique(windows.group[~rest]):
            own = windows.group == person
            streams = streams_of(windows.at(own), hop)
            y, answers, theirs = streams.y, calibrated[own][streams.order], cloud[own][streams.order]
            before = (answers.argmax(axis=1) == y, filtered(spec, streams, answers).argmax(axis=1) == y)
            for draw in range(DRAWS):
                order = np.random.default_rng(draw).permutation(len(y))
                for labels in LABELS:
                    labelled, kept = order[:labels], order[labels:]
                    if len(kept) < labels:
                        continue
                    for by, said in (("person", y), ("cloud", theirs)):
                        for way in RIDGE:
                            new = adapted(answers, labelled, said[labelled], way)
                            after = (new.argmax(axis=1) == y, filtered(spec, streams, new).argmax(axis=1) == y)
                            alone, over_time = (
                                float(later[kept].mean() - sooner[kept].mean())
                                for later, sooner in zip(after, before, strict=True)
                            )
                            yield Gain(way=way, labels=labels, by=by, alone=alone, over_time=over_time)


def table(name: str, given: OutOfFold, hop: int) -> Iterator[tuple[Cell, ...]]:
    """Yield a row for each way: means over people of the means over draws, their interval, the worst person."""
    found = list(gains(given, hop))
    for by in ("person", "cloud"):
        for way in RIDGE:
            for labels in LABELS:
                chosen = [one for one in found if (one.by, one.way, one.labels) == (by, way, labels)]
                if not chosen:
                    continue
                cells: list[Cell] = []
                for values in ([one.alone for one in chosen], [one.over_time for one in chosen]):
                    people = np.array(values).reshape(-1, DRAWS).mean(axis=1)
                    mean, low, high = paired(people)
                    cells += [
                        f"{mean:+.3f} ({low:+.3f} to {high:+.3f})", f"{people.min():+.3f}",
                        f"{int((people < -HURT).sum())} of {len(people)}",
                    ]  # fmt: skip
                yield (f"{name}, {way}, {labels} of {by}", *cells)


def main() -> int:
    """Print a row for each set and way."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.accuracy.personal", description=__doc__)
    parser.add_argument("folders", nargs="+", type=Path, metavar="FOLDER", help="as --cache of benchmarks.accuracy")
    options = parser.parse_args()
    columns = ("set, map, labels", "alone", "worst", "hurt", "with the filter", "worst ", "hurt ")
    report = Report("A map of the answers for each person", columns)
    for folder in options.folders:
        hop = load(SETS[folder.name].recipe).window.hop
        report.rows += table(folder.name, read_answers(folder / "answers.npz"), hop)
    print(report.text())
    return 0


if __name__ == "__main__":
    main()
