"""Sensor reference: features of the training windows, and the faults that a device is to tell by them.

1. Looks are windows that do not overlap, of each group one after the other, as a device sees them.
2. Faults are chosen by what they cost: each is put into windows of groups that the model was not trained on; one that
   costs less than `LEAST_COST` of the accuracy is no alarm.
3. Each group in turn is left out and scored against the others. The threshold is the lowest one at which all of them
   together raise at most `FALSE_ALARMS` alarms a window, and at least `LEAST`.
4. The own past is measured in the same way: by how much each group's later windows differ from its first ones.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from edge_export.data.dataset import Float32, Windows
from edge_runtime import units
from edge_runtime.drift.features import Statistics, features, measure
from edge_runtime.drift.latch import CALM, LOOKS, means
from edge_runtime.drift.own_past import Distance
from edge_runtime.drift.repair import LIMIT, RepairTest
from edge_runtime.manifest import Channel, InputContract
from edge_runtime.manifest.drift import OwnPast, Repair, SensorReference
from edge_runtime.types import Float64

FALSE_ALARMS: Final = 0.005
"""Alarms a window, of people that the reference does not know."""

LEAST_COST: Final = 0.02
"""Accuracy that a fault must cost, 0 to 1."""

GROUPS: Final = 3
"""Fewest groups of which a threshold can be told."""

_KEPT: Final = 0.8
"""Share of each correlation that is kept, so that the covariance of a few windows can be inverted."""

LEAST: Final = 0.5
"""Lowest threshold of a repair: what it adds to the log-likelihood of a window, in the mean."""

_FLOOR: Final = 0.01
"""Share of a channel's deviation that is added to it."""

_BEGINNING: Final = 200
"""Most looks of a beginning."""

Cost = Callable[[Repair], float]
"""Accuracy that the fault costs which a repair undoes, 0 to 1."""


# -- faults ------------------------------------------------------------------------------------------------------------


def faults_of(channels: Sequence[Channel], triads: Sequence[Sequence[str]]) -> list[Repair]:
    """List the faults that sensors with three axes have: axes swapped or flipped, sensor turned, another unit or rate.

    Args:
        channels: of the reference.
        triads: names of x, y and z of each sensor.
    """
    names = [channel.name for channel in channels]
    unit = {channel.name: channel.unit for channel in channels}
    found: list[Repair] = []
    for triad in triads:
        for a, b in itertools.combinations(triad, 2):
            swap = {a: b, b: a}
            found.append(_moved(f"{a} and {b} swapped", names, swap))
        found += [_moved(f"{axis} flipped", names, {axis: f"-{axis}"}) for axis in triad]
        for other, factor, offset in units.conversions(unit[triad[0]]):
            if not offset and other in _COMMON:
                factors = tuple(factor if name in triad else 1.0 for name in names)
                fault = f"{', '.join(triad)} in {other} instead of {unit[triad[0]]}"
                found.append(Repair(fault=fault, cause="unit", factors=factors, unit=other))
    for turn, moves in _turns():
        swap = {}
        for triad in triads:
            for axis, (source, sign) in zip(triad, moves, strict=True):
                swap[axis] = f"{'-' if sign < 0 else ''}{triad[source]}"
        found.append(_moved(f"all axes turned, {turn}", names, swap))
    return found


_COMMON: Final = frozenset(("m/s2", "g", "mg", "deg/s", "rad/s", "T", "mT", "uT", "G", "mG"))
"""Units that sensors with three axes are read in."""


def _moved(fault: str, names: Sequence[str], swap: Mapping[str, str]) -> Repair:
    return Repair(fault=fault, cause="orientation", takes=tuple(swap.get(name, name) for name in names))


def _turns() -> Iterator[tuple[str, tuple[tuple[int, int], ...]]]:
    """Yield the 23 turns of a cube, but for none: for each axis the one it takes, and its sign."""
    for order in itertools.permutations(range(3)):
        for signs in itertools.product((1, -1), repeat=3):
            matrix = np.zeros((3, 3))
            matrix[range(3), order] = signs
            if np.linalg.det(matrix) > 0 and (order, signs) != ((0, 1, 2), (1, 1, 1)):
                text = "".join(
                    f"{'-' if sign < 0 else ''}{'xyz'[source]} " for source, sign in zip(order, signs, strict=True)
                )
                yield f"xyz to {text.strip().replace(' ', ',')}", tuple(zip(order, signs, strict=True))


def inverse(repair: Repair, names: Sequence[str]) -> Repair:
    """Return the fault that a repair undoes, as something that is done to right values.

    Args:
        repair: of the channels.
        names: of the channels.
    """
    takes, factors = list(names), [1.0] * len(names)
    for at, taken in enumerate(repair.takes or names):
        source = names.index(taken.removeprefix("-"))
        takes[source] = f"{'-' if taken.startswith('-') else ''}{names[at]}"
        factors[source] = 1 / repair.factors[at] if repair.factors else 1.0
    return replace(repair, takes=tuple(takes), factors=tuple(factors))


def inflict(x: Float32, repair: Repair, names: Sequence[str]) -> Float32:
    """Put the fault that a repair undoes into windows.

    Args:
        x: (n, channels, samples), right ones; the channels are those of the repair.
        repair: what undoes the fault.
        names: of the channels.
    """
    fault = inverse(repair, names)
    order = [names.index(name.removeprefix("-")) for name in fault.takes]
    signs = [-1.0 if name.startswith("-") else 1.0 for name in fault.takes]
    gains = np.array(signs, np.float32) * np.array(fault.factors, np.float32)
    return np.asarray(x[:, order] * gains[:, np.newaxis])


# -- what training says ------------------------------------------------------------------------------------------------


class Looks(NamedTuple):
    """Windows that a device would look at."""

    statistics: Statistics
    y: npt.NDArray[np.int64]
    group: npt.NDArray[np.str_]

    def of(self, chosen: npt.NDArray[np.bool_]) -> Looks:
        """Select some of them."""
        return Looks(Statistics(*(part[chosen] for part in self.statistics)), self.y[chosen], self.group[chosen])


def look_at(windows: Windows, contract: InputContract, columns: Sequence[int]) -> Looks:
    """Measure the windows that do not overlap, without those in which a channel rests."""
    hop = contract.hop * -(-contract.window // contract.hop)
    chosen = windows.start % hop == 0
    x = windows.x[chosen][:, columns].transpose(0, 2, 1)
    looks = Looks(measure(x), windows.y[chosen], windows.group[chosen])
    return looks.of(np.asarray((looks.statistics.deviation > 0).all(axis=1)))


def fit(looks: Looks, channels: Sequence[str], floors: Float64, repairs: Sequence[Repair] = ()) -> SensorReference:
    """Fit centres and covariance."""
    rows = features(looks.statistics, floors)
    classes = [label for label in np.unique(looks.y) if label >= 0]
    centres = np.array([rows[looks.y == label].mean(axis=0) for label in classes])
    apart = np.concatenate([rows[looks.y == label] - centre for label, centre in zip(classes, centres, strict=True)])
    spread, correlations = _covariance(apart)
    return SensorReference(
        channels=tuple(channels),
        floors=tuple(floors.tolist()),
        centres=tuple(tuple(_digits(row)) for row in centres),
        spread=spread,
        correlations=correlations,
        repairs=tuple(repairs),
        threshold=1.0,
    )


def _covariance(rows: Float64) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return deviations and shrunk correlations of rows."""
    spread = np.sqrt(np.mean(rows**2, axis=0)) + 1e-6
    scaled = rows / spread
    above = np.triu_indices(rows.shape[1], 1)
    return tuple(_digits(spread)), tuple(_digits(_KEPT * (scaled.T @ scaled / len(rows))[above]))


def _digits(values: npt.NDArray[np.floating]) -> Iterator[float]:
    return (float(f"{value:.5g}") for value in values.tolist())


def threshold_of(scores: Sequence[Float64]) -> float:
    """Return the lowest threshold at which streams of means have few alarms (rule 3).

    Args:
        scores: means of each group, in order.
    """
    allowed = FALSE_ALARMS * sum(len(one) + LOOKS - 1 for one in scores)
    found = math.nan
    for level in np.unique(np.concatenate(scores))[::-1].tolist():
        if sum(count_alarms(one, level) for one in scores) > allowed:
            break
        found = level
    return float(f"{found:.4g}")


def count_alarms(scores: Float64, threshold: float) -> int:
    """Count the alarms of one stream of means; one that goes on counts again after `CALM` looks."""
    count, held = 0, -CALM
    for at in np.flatnonzero(scores >= threshold).tolist():
        if at - held >= CALM:
            count, held = count + 1, at
    return count


# -- reference -----------------------------------------------------------------------------------------------------


def measure_sensors(
    looks: Looks, channels: Sequence[Channel], triads: Sequence[Sequence[str]], cost: Cost
) -> SensorReference | None:
    """Measure the sensor reference of a bundle; None where there is no sensor with three axes, or too little to tell.

    Args:
        looks: of all groups that may be learnt from.
        channels: of the looks.
        triads: names of the axes of each sensor.
        cost: of a fault, in accuracy.
    """
    names = [channel.name for channel in channels]
    groups = [str(name) for name in dict.fromkeys(looks.group.tolist()) if (looks.group == name).sum() > 2 * LOOKS]
    if not triads or len(groups) < GROUPS:
        return None
    # The floor is far below what a sensor does that is worn, and above what is rounded.
    floors = _FLOOR * np.sqrt(np.mean(looks.statistics.deviation**2, axis=0))
    costs = ((repair, cost(repair)) for repair in faults_of(channels, triads))
    repairs = [replace(repair, cost=round(lost, 3)) for repair, lost in costs if lost >= LEAST_COST]
    alone = [looks.of(looks.group == name) for name in groups]
    reference = fit(looks, names, floors, repairs)
    if repairs:
        others = (fit(looks.of(looks.group != name), names, floors, repairs) for name in groups)
        scores = [
            means(RepairTest(other).scores(one.statistics), LIMIT).max(axis=1)
            for other, one in zip(others, alone, strict=True)
        ]
        reference = replace(reference, threshold=max(LEAST, threshold_of(scores)))
    return replace(reference, own=own_past([features(one.statistics, floors) for one in alone], len(names)))


def own_past(rows: Sequence[Float64], channels: int) -> OwnPast | None:
    """Measure by how much the later windows of groups differ from their first ones (rule 4).

    Args:
        rows: features of each group's looks, in order.
        channels: of the sensor; their own features come first.
    """
    windows = min(_BEGINNING, int(np.median([len(one) for one in rows])) // 2)
    apart = [
        means(one[windows:, : 3 * channels]) - one[:windows, : 3 * channels].mean(axis=0)
        for one in rows
        if len(one) >= windows + LOOKS
    ]
    if len(apart) < GROUPS:
        return None
    made = [_own(np.concatenate(apart[:at] + apart[at + 1 :]), windows) for at in range(len(apart))]
    scores = [Distance(own).of(one) for own, one in zip(made, apart, strict=True)]
    return replace(_own(np.concatenate(apart), windows), threshold=threshold_of(scores))


def _own(apart: Float64, windows: int) -> OwnPast:
    spread, correlations = _covariance(apart)
    return OwnPast(windows=windows, spread=spread, correlations=correlations, threshold=1.0)
