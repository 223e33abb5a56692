"""Table of one set: peers, the networks alone, and each part around the device's network, on groups left out.

Everything but the peers is fitted without the fold that it is judged on: calibration, gate, filter, asking, fusion.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from edge_export.data.dataset import Int64, Windows
from edge_export.evaluation.calibration import at_temperature, fit_temperature
from edge_export.evaluation.gate import fit_gate
from edge_export.recipe.recipe import Recipe, SurroundRecipe
from edge_export.surround.cross_fit import CLOUD, OutOfFold
from edge_export.surround.fit import fit_surround
from edge_export.surround.judge import rows
from edge_export.surround.over_time import streams_of
from edge_export.surround.prior import choose_calibration

from benchmarks.accuracy.scoring import OverGroups, event_f1, macro_f1, next_group, paired, tolerant_accuracy

DEVICE = "device as of today"


@dataclass(frozen=True, kw_only=True)
class Line:
    """One row of the table.

    Attributes:
        name: of the way to answer.
        accuracy: over groups.
        macro_f1: mean over groups.
        tolerant: accuracy where, beside a change of label, either one is right.
        events: F1 of the stretches of one label, found if they begin and end within two windows.
        gain: accuracy over that of the device as of today, paired by group, with its 95 % interval.
        asked: share of windows that the cloud was asked about.
    """

    name: str
    accuracy: OverGroups
    macro_f1: float
    tolerant: float
    events: float
    gain: tuple[float, float, float]
    asked: float


def only(windows: Windows, kept: npt.NDArray[np.bool_]) -> Windows:
    """Return some windows."""
    return Windows(
        contexts=windows.contexts[kept],
        samples=windows.samples,
        y=windows.y[kept],
        group=windows.group[kept],
        recording=windows.recording[kept],
        start=windows.start[kept],
    )


def ways(recipe: Recipe, given: OutOfFold, file: str) -> tuple[dict[str, Int64], dict[str, npt.NDArray[np.bool_]]]:
    """Answer every window in each way, fitted to the other folds: classes, and windows asked about, by way."""
    windows, fold = given.windows, given.fold
    device, cloud = given.given[file], given.given[CLOUD]
    answered: dict[str, Int64] = {
        "teacher, for all windows": cloud.argmax(axis=1),
        DEVICE: device.argmax(axis=1),
    }
    asked: dict[str, npt.NDArray[np.bool_]] = {}
    for number in np.unique(fold):
        left = fold == number
        seen = OutOfFold(
            windows=only(windows, ~left), given={name: each[~left] for name, each in given.given.items()},
            fold=fold[~left],
        )  # fmt: skip
        plain = fit_temperature(device[~left], windows.y[~left])
        hot = fit_temperature(cloud[~left], windows.y[~left])
        calibration, _ = choose_calibration(
            device[~left], windows.y[~left], seen.fold, seen.windows.group, balance=recipe.balance
        )
        remote = at_temperature(cloud, hot)
        today = fit_gate(
            recipe.gate, at_temperature(device[~left], plain), remote[~left], seen.windows, metric=recipe.metric
        )
        own = calibration.apply(device)
        around = fit_surround(
            recipe.surround or SurroundRecipe(), recipe.gate, seen, own[~left], remote[~left],
            hop=recipe.window.hop, metric=recipe.metric,
        )  # fmt: skip
        unseen = only(windows, left)
        order = np.flatnonzero(left)[streams_of(unseen, recipe.window.hop).order]
        before, _, _ = rows(
            None, today.spec, unseen, at_temperature(device[left], plain), remote[left], hop=recipe.window.hop
        )
        found, _, _ = rows(around.surround, today.spec, unseen, own[left], remote[left], hop=recipe.window.hop)
        by_name = {row.name: row for row in found}
        by_name["+ prior"] = by_name["device"]
        by_name["with the cloud, as of today"] = before[1]
        for name in ("with the cloud, as of today", "+ prior", "over time", "all"):
            # A part that did not win on the other folds was left out there: what stands is the row before.
            row = by_name.get(name) or by_name["+ prior"]
            answered.setdefault(name, np.empty(len(fold), np.int64))[order] = row.answers
            asked.setdefault(name, np.zeros(len(fold), np.bool_))[order] = row.asked
    return answered, asked


def lines(
    windows: Windows, hop: int, answered: Mapping[str, Int64], asked: Mapping[str, npt.NDArray[np.bool_]], classes: int
) -> list[Line]:
    """Score answers, way by way."""
    streams = streams_of(windows, hop)
    y, group, run = streams.y, windows.group[streams.order], streams.run
    names = np.unique(group)

    def accuracies(answers: Int64) -> npt.NDArray[np.float64]:
        return np.array([float((answers == y)[group == one].mean()) for one in names])

    base = accuracies(answered[DEVICE][streams.order])
    made = []
    for name, unordered in answered.items():
        answers = unordered[streams.order]
        own = accuracies(answers)
        f1 = float(np.mean([macro_f1(answers[group == one], y[group == one], classes) for one in names]))
        share = float(asked[name].mean()) if name in asked else 0.0
        made.append(
            Line(
                name=name,
                accuracy=next_group(own),
                macro_f1=f1,
                tolerant=tolerant_accuracy(answers, y, run, reach=1),
                events=event_f1(answers, y, run, reach=2),
                gain=paired(own - base),
                asked=share,
            )
        )
    return made
