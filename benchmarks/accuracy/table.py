"""Table of one set: peers, the networks alone, and each part around the device's network, on groups left out.

Everything but the peers is fitted without the fold that it is judged on: calibration, gate, filter, asking, fusion.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from edge_export.choose.evaluation.calibration import at_temperature, fit_temperature
from edge_export.choose.evaluation.gate import fit_gate
from edge_export.choose.surround.cross_fit import CLOUD, OutOfFold
from edge_export.choose.surround.fit import fit_surround
from edge_export.choose.surround.judge import rows
from edge_export.choose.surround.over_time import streams_of
from edge_export.choose.surround.prior import choose_calibration
from edge_export.data.dataset import Int64, Windows
from edge_export.recipe.recipe import Recipe, SurroundRecipe

from benchmarks.accuracy.scoring import (
    OverGroups,
    event_f1,
    macro_f1,
    next_group,
    over_groups,
    paired,
    tolerant_accuracy,
)

DEVICE = "device as of today"
TEACHER = "teacher, for all windows"
TODAY = "with the cloud, as of today"
PRIOR = "+ prior, where it wins"
OVER_TIME = "+ over time, where it wins"
ALL = "all: + fusion, + a share for every key"
NO_STREAM = "all: + fusion"
"""The last row where no window follows another: neither filter nor share for every key has a meaning."""
_JUDGED = {PRIOR: "device", OVER_TIME: "over time", ALL: "all", NO_STREAM: "all"}
"""Names of the rows as `choose.surround.judge` has them; where a part was left out, the row before stands."""


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


def ways(
    recipe: Recipe, given: OutOfFold, file: str, *, judged: Sequence[int], stream: bool
) -> tuple[dict[str, Int64], dict[str, npt.NDArray[np.bool_]]]:
    """Answer windows in each way, fitted to the other folds: classes, and windows asked about, by way.

    Args:
        recipe: of the networks.
        given: their answers.
        file: of the device.
        judged: folds that are answered.
        stream: whether windows follow one another.
    """
    parts = recipe.surround or SurroundRecipe()
    parts = parts if stream else SurroundRecipe(over_time=False, hold=False)
    names = (TODAY, PRIOR, OVER_TIME, ALL) if stream else (TODAY, PRIOR, NO_STREAM)
    windows, fold = given.windows, given.fold
    device, cloud = given.given[file], given.given[CLOUD]
    answered: dict[str, Int64] = {
        TEACHER: cloud.argmax(axis=1),
        DEVICE: device.argmax(axis=1),
    }
    asked: dict[str, npt.NDArray[np.bool_]] = {}
    for number in judged:
        left = fold == number
        seen = OutOfFold(
            windows=windows.at(~left), given={name: each[~left] for name, each in given.given.items()},
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
            parts, recipe.gate, seen, own[~left], remote[~left],
            hop=recipe.window.hop, metric=recipe.metric,
        )  # fmt: skip
        unseen = windows.at(left)
        order = np.flatnonzero(left)[streams_of(unseen, recipe.window.hop).order]
        before, _, _ = rows(
            None, today.spec, unseen, at_temperature(device[left], plain), remote[left], hop=recipe.window.hop
        )
        found, _, _ = rows(around.surround, today.spec, unseen, own[left], remote[left], hop=recipe.window.hop)
        by_name = {row.name: row for row in found}
        for name in names:
            row = before[1] if name == TODAY else by_name.get(_JUDGED[name]) or by_name["device"]
            answered.setdefault(name, np.full(len(fold), -1, np.int64))[order] = row.answers
            asked.setdefault(name, np.zeros(len(fold), np.bool_))[order] = row.asked
    return answered, asked


def lines(
    windows: Windows, hop: int, answered: Mapping[str, Int64], asked: Mapping[str, npt.NDArray[np.bool_]], classes: int
) -> list[Line]:
    """Score answers, way by way."""
    streams = streams_of(windows, hop)
    y, group, run = streams.y, windows.group[streams.order], streams.run
    names = np.unique(group)

    base = over_groups(answered[DEVICE][streams.order] == y, group)
    made = []
    for name, unordered in answered.items():
        answers = unordered[streams.order]
        own = over_groups(answers == y, group)
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
