"""Sensor reference: features of the training windows, and the faults that a device is to tell by them.

1. Looks are windows that do not overlap, of each group one after the other, as a device sees them.
2. Faults are chosen by what they cost: each is put into windows of groups that the model was not trained on; one that
   costs less than `LEAST_COST` of the accuracy is no alarm.
3. Each group in turn is left out and scored against the others. A repair's threshold lies above the highest scores
   that it has there: their mean and a number of their deviations. The number is the same for all repairs, the lowest
   one at which all groups together raise at most `FALSE_ALARMS` alarms a window.
4. The own past is measured in the same way: by how much each group's later windows differ from its first ones.
5. What is not found in most of the groups that are left out, within `_WITHIN` looks, is not looked for: a detector that
   fires at random, so often that it has as many false alarms, finds one in ten.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from edge_export.data.dataset import Float32, Windows
from edge_runtime import units
from edge_runtime.manifest import Channel, InputContract
from edge_runtime.manifest.drift import OwnPast, Repair, SensorReference
from edge_runtime.signal.drift.features import LEAST_ROWS, Repairs, WindowStatistics, alive, features, measure
from edge_runtime.signal.drift.latch import CALM, LOOKS, means
from edge_runtime.signal.drift.own_past import Distance
from edge_runtime.signal.drift.repair import LIMIT, RepairTest
from edge_runtime.signal.drift.words import TURNED
from edge_runtime.signal.intake.triads import find_triads
from edge_runtime.types import Float64

FALSE_ALARMS: Final = 0.002
"""Alarms a window, of the groups that are left out. New groups have about twice as many, and are to have
at most 5 in 1,000 windows (`python -m benchmarks drift`)."""

LEAST_COST: Final = 0.05
"""Accuracy that a fault must cost, 0 to 1."""

GROUPS: Final = 3
"""Fewest groups of which a threshold can be told."""

_KEPT: Final = 0.8
"""Share of each correlation that is kept, so that the covariance of a few windows can be inverted."""

LEAST: Final = 2.0
"""Lowest threshold of a repair: what it adds to the log-likelihood of a window, in the mean. One window of `LOOKS` adds
1.2 at most, so that one in which something happens decides nothing."""

_APART: Final = 0.3
"""Added to the deviation of the highest scores, since that of a few groups may be small by chance."""

_FLOOR: Final = 0.01
"""Share of a channel's deviation that is added to it."""

_BEGINNING: Final = 200
"""Most looks of a beginning."""

_WITHIN: Final = 25
_LEAST_FOUND: Final = 0.5
"""Share of groups."""

_KEPT_OWN: Final = 0.5
"""As `_KEPT`, of means that overlap."""

OWN_FALSE_ALARMS: Final = 0.004
"""As `FALSE_ALARMS`, of the own past, whose alarms mark no window."""

Cost = Callable[[Repair], float]
"""Accuracy that the fault costs which a repair undoes, 0 to 1."""


# -- faults ------------------------------------------------------------------------------------------------------------


def faults_of(channels: Sequence[Channel], triads: Sequence[Sequence[str]]) -> list[Repair]:
    """List the faults that sensors with three axes have: axes swapped or flipped, sensor turned, another unit.

    Args:
        channels: the reference's channels.
        triads: names of x, y and z of each sensor.
    """
    names = [channel.name for channel in channels]
    unit = {channel.name: channel.unit for channel in channels}
    found: list[Repair] = []
    for triad in triads:
        found += _faults_of_one(triad, names, unit[triad[0]])
    for turn, moves in _turns():
        swap = {}
        for triad in triads:
            for axis, (source, sign) in zip(triad, moves, strict=True):
                swap[axis] = f"{'-' if sign < 0 else ''}{triad[source]}"
        found.append(_moved(f"{TURNED} {turn}", names, swap))
    return found


def _faults_of_one(triad: Sequence[str], names: Sequence[str], unit: str) -> Iterator[Repair]:
    """Yield the faults of one sensor beside others."""
    for a, b in itertools.combinations(triad, 2):
        yield _moved(f"{a} and {b} swapped", names, {a: b, b: a})
    for axis in triad:
        yield _moved(f"{axis} flipped", names, {axis: f"-{axis}"})
    for other, factor, offset in units.conversions(unit):
        if not offset and other in _COMMON:
            factors = tuple(factor if name in triad else 1.0 for name in names)
            fault = f"{', '.join(triad)} in {other} instead of {unit}"
            yield Repair(fault=fault, cause="unit", factors=factors, unit=other)


def _turn_words(matrix: Float64) -> str:
    """Name a turn of a cube: ``by 180 degrees about z``."""
    kept = np.flatnonzero(np.diag(matrix) == 1)
    if len(kept):
        at = int(kept[0])
        sine = matrix[(at + 2) % 3, (at + 1) % 3]
        return f"by {int(90 * sine) if sine else 180} degrees about {'xyz'[at]}"
    takes = (f"{'-' if row.sum() < 0 else ''}{'xyz'[int(np.abs(row).argmax())]}" for row in matrix)
    return f"so that x, y, z come as {', '.join(takes)}"


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
                yield _turn_words(matrix), tuple(zip(order, signs, strict=True))


def inverse(repair: Repair, names: Sequence[str]) -> Repair:
    """Return the fault that a repair undoes, as something that is done to right values.

    Args:
        repair: a repair of the channels.
        names: the channels' names.
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
        names: the channels' names.
    """
    fault = inverse(repair, names)
    order = [names.index(name.removeprefix("-")) for name in fault.takes]
    signs = [-1.0 if name.startswith("-") else 1.0 for name in fault.takes]
    gains = np.array(signs, np.float32) * np.array(fault.factors, np.float32)
    return np.asarray(x[:, order] * gains[:, np.newaxis])


# -- what training says ------------------------------------------------------------------------------------------------


class Looks(NamedTuple):
    """Windows that a device would look at."""

    statistics: WindowStatistics
    y: npt.NDArray[np.int64]
    group: npt.NDArray[np.str_]

    def of(self, chosen: npt.NDArray[np.bool_]) -> Looks:
        """Select some of them."""
        return Looks(WindowStatistics(*(part[chosen] for part in self.statistics)), self.y[chosen], self.group[chosen])


def look_at(windows: Windows, contract: InputContract, columns: Sequence[int]) -> Looks:
    """Measure the windows that do not overlap, without those in which a channel rests."""
    hop = contract.hop * -(-contract.window // contract.hop)
    chosen = windows.start % hop == 0
    x = windows.x[chosen][:, columns].transpose(0, 2, 1)
    looks = Looks(measure(x), windows.y[chosen], windows.group[chosen])
    return looks.of(alive(looks.statistics))


def fit(looks: Looks, channels: Sequence[str], floors: Float64) -> SensorReference:
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
    )


def _covariance(rows: Float64, kept: float = _KEPT) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return deviations and shrunk correlations of rows."""
    spread = np.sqrt(np.mean(rows**2, axis=0)) + 1e-6
    scaled = rows / spread
    above = np.triu_indices(rows.shape[1], 1)
    return tuple(_digits(spread)), tuple(_digits(kept * (scaled.T @ scaled / len(rows))[above]))


def _digits(values: npt.NDArray[np.floating]) -> Iterator[float]:
    return (float(f"{value:.5g}") for value in values.tolist())


def threshold_of(scores: Sequence[Float64], false_alarms: float = FALSE_ALARMS) -> float:
    """Return the lowest threshold at which streams of means have few alarms (rule 3).

    Args:
        scores: means of each group, in order.
        false_alarms: alarms a window.
    """
    allowed = false_alarms * sum(len(one) + LOOKS - 1 for one in scores)
    levels = np.unique(np.concatenate(scores))[::-1].tolist()
    found = levels[0] + 0.01 * abs(levels[0])
    for level in levels:
        if sum(count_alarms(one, level) for one in scores) > allowed:
            break
        found = level
    return float(f"{found:.4g}")


def thresholds_of(scores: Sequence[Float64]) -> Float64:
    """Return a threshold for each repair (rule 3).

    Args:
        scores: means of each group, (n, repairs).
    """
    highest = np.array([one.max(axis=0) for one in scores])
    centre, apart = highest.mean(axis=0), highest.std(axis=0) + _APART
    level = threshold_of([((one - centre) / apart).max(axis=1) for one in scores])
    return np.asarray(np.maximum(LEAST, np.round(centre + level * apart, 3)))


def count_alarms(scores: Float64, threshold: float) -> int:
    """Count the alarms of one stream of means; one that goes on counts again after `CALM` looks."""
    count, held = 0, -CALM
    for at in np.flatnonzero(scores >= threshold).tolist():
        if at - held >= CALM:
            count, held = count + 1, at
    return count


# -- reference -----------------------------------------------------------------------------------------------------


def triads_of(contract: InputContract, given: Sequence[Sequence[str]] = ()) -> list[tuple[str, ...]]:
    """Return the names of the axes of each sensor that has three.

    Args:
        contract: its channels.
        given: axes as a recipe names them; empty finds them by name and unit.
    """
    found = [tuple(contract.channels[column].name for column in triad) for triad in find_triads(contract.channels)]
    return [tuple(triad) for triad in given or found if len(triad) == len("xyz")]


def cost_of(
    answers: Callable[[Float32], Float32], windows: Windows, contract: InputContract, triads: Sequence[Sequence[str]]
) -> Cost:
    """Return what faults cost a model, on windows of groups that it was not trained on.

    Args:
        answers: the model's answers, a row of scores for each window; asked when a cost is.
        windows: windows with labels.
        contract: their channels.
        triads: see `measure_sensors`.
    """
    names = [channel.name for channel in contract.channels]
    columns = _columns(contract, triads)
    known = [names[column] for column in columns]

    def right(x: Float32) -> float:
        return float((answers(x).argmax(axis=1) == windows.y).mean())

    @functools.cache
    def whole() -> float:
        return right(windows.x)

    def cost(repair: Repair) -> float:
        x = windows.x.copy()
        x[:, columns] = inflict(x[:, columns], repair, known)
        return whole() - right(x)

    return cost


def _columns(contract: InputContract, triads: Sequence[Sequence[str]]) -> list[int]:
    names = [channel.name for channel in contract.channels]
    return sorted(names.index(name) for triad in triads for name in triad)


def measure_sensors(
    windows: Windows, contract: InputContract, triads: Sequence[Sequence[str]], cost: Cost
) -> SensorReference | None:
    """Measure the sensor reference of a bundle; None where there is no sensor with three axes, or too little to tell.

    Args:
        windows: windows of all groups that may be learnt from.
        contract: their channels.
        triads: names of the axes of each sensor.
        cost: a fault's cost, in accuracy.
    """
    if not triads or contract.window < LEAST_ROWS:
        return None
    columns = _columns(contract, triads)
    looks = look_at(windows, contract, columns)
    channels = [contract.channels[column] for column in columns]
    names = [channel.name for channel in channels]
    groups = [str(name) for name in dict.fromkeys(looks.group.tolist()) if (looks.group == name).sum() > 2 * LOOKS]
    if len(groups) < GROUPS:
        return None
    floors = _FLOOR * np.sqrt(np.mean(looks.statistics.deviation**2, axis=0))
    left_out = [
        _LeftOut(looks.of(looks.group == name), fit(looks.of(looks.group != name), names, floors)) for name in groups
    ]
    costs = ((repair, cost(repair)) for repair in faults_of(channels, triads))
    dear = [replace(repair, cost=round(lost, 3)) for repair, lost in costs if lost >= LEAST_COST]
    repairs = _worth_it(_with_thresholds(dear, left_out), left_out)
    own = own_past([features(one.looks.statistics, floors) for one in left_out], len(names))
    if not repairs and own is None:
        return None
    return replace(fit(looks, names, floors), repairs=tuple(_with_thresholds(repairs, left_out)), own=own)


class _LeftOut(NamedTuple):
    """Looks of one group, and what the others say."""

    looks: Looks
    others: SensorReference

    def means(self, repairs: Sequence[Repair], statistics: WindowStatistics) -> Float64:
        """Return the means of scores of these looks, as a device has them."""
        return means(RepairTest(replace(self.others, repairs=tuple(repairs))).scores(statistics), LIMIT)


def _with_thresholds(repairs: Sequence[Repair], left_out: Sequence[_LeftOut]) -> list[Repair]:
    """Set the thresholds of repairs (rule 3)."""
    if not repairs:
        return []
    thresholds = thresholds_of([one.means(repairs, one.looks.statistics) for one in left_out])
    return [replace(repair, threshold=one) for repair, one in zip(repairs, thresholds.tolist(), strict=True)]


def _worth_it(repairs: Sequence[Repair], left_out: Sequence[_LeftOut]) -> list[Repair]:
    """Choose the repairs whose faults are found in the groups that are left out (rule 5)."""
    kept = []
    for repair in repairs:
        fault = Repairs([inverse(repair, left_out[0].others.channels)], left_out[0].others.channels)
        found = 0
        for one in left_out:
            half = len(one.looks.y) // 2
            later = WindowStatistics(*(part[half : half + _WITHIN] for part in one.looks.statistics))
            wrong = WindowStatistics(*(part[:, 0] for part in fault.apply(later)))
            over = one.means(repairs, wrong) >= [other.threshold for other in repairs]
            found += bool(over.any())
        if found >= _LEAST_FOUND * len(left_out):
            kept.append(replace(repair, found=round(found / len(left_out), 2)))
    return kept


def own_past(rows: Sequence[Float64], channels: int) -> OwnPast | None:
    """Measure by how much the later windows of groups differ from their first ones (rule 4).

    Args:
        rows: features of each group's looks, in order.
        channels: number of the sensor's channels; their own features come first.
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
    threshold = threshold_of(scores, OWN_FALSE_ALARMS)
    # Another wearer is the smallest change that matters; a group's beginning and the later windows of the next one.
    begun = [one[:windows, : 3 * channels].mean(axis=0) for one in rows if len(one) >= windows + LOOKS]
    later = [one + first for one, first in zip(apart, begun, strict=True)]
    found = [
        bool((Distance(own).of(other[: _WITHIN - LOOKS + 1] - first) >= threshold).any())
        for own, first, other in zip(made, begun, later[1:] + later[:1], strict=True)
    ]
    if np.mean(found) < _LEAST_FOUND:
        return None
    return replace(_own(np.concatenate(apart), windows), threshold=threshold)


def _own(apart: Float64, windows: int) -> OwnPast:
    spread, correlations = _covariance(apart, _KEPT_OWN)
    return OwnPast(windows=windows, spread=spread, correlations=correlations, threshold=1.0)
