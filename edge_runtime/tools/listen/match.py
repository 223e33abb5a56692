"""Channels of a model matched to what was heard, by name, axis, unit and order."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from edge_runtime import units
from edge_runtime.manifest import Channel
from edge_runtime.tools.listen.fields import Field, TopicFields
from edge_runtime.tools.listen.names import Name, name_of
from edge_runtime.tools.listen.stamps import is_stamp

_TRIADS: Final = frozenset(("acceleration", "linear acceleration", "gravity", "rotation rate", "magnetic field"))
_GRAVITY: Final = (("m/s2", 9.80665), ("g", 1.0), ("mg", 1000.0))
_NEAR: Final = 0.2
"""A norm within this share of gravity is that of a sensor at rest or in everyday motion."""
_ENOUGH: Final = 2.0
"""Least score of a match by name."""
_CLOSE: Final = 0.75
"""A second candidate this close to the best is named as the other possibility."""
_HOUSEKEEPING: Final = frozenset(
    """
    battery batt bat rssi linkquality lqi snr signal seq sequence counter count cnt fcnt uptime index id version heap
    wifi port channel accuracy lat lon latitude longitude bearing heading messageid qos code status
    """.split()  # noqa: SIM905 - a text reads better than a hundred words in quotes
)
"""Words of numbers that are rarely what a model sees; they count only where a channel is called so."""


@dataclass(frozen=True, slots=True, eq=False)
class Candidate:
    """Something that a channel may be read from."""

    topic: str
    path: str
    """In the message; empty where the message is the number."""
    name: Name
    series: Sequence[float]

    @property
    def shown(self) -> str:
        """Name for people."""
        return self.path or self.topic


@dataclass(frozen=True, slots=True, eq=False)
class Match:
    """A channel and where it comes from."""

    channel: Channel
    candidate: Candidate
    score: float
    others: tuple[Candidate, ...] = ()
    """Candidates that fit nearly as well."""
    by_order: bool = False


def sensor_level(topic: str) -> tuple[int, str]:
    """Find the last level of a topic that names a sensor of three axes, as ``body/gyro`` does.

    Returns:
        Its place and the quantity; -1 and an empty text where no level names one.
    """
    levels = topic.split("/")
    for i in reversed(range(len(levels))):
        quantity = name_of(levels[i]).quantity
        if quantity in _TRIADS and len(levels[i]) > 1:
            return i, quantity
    return -1, ""


def candidates_in(seen: TopicFields) -> list[Candidate]:
    """List what channels may be read from in the messages of one topic."""
    found = []
    _, sensor = sensor_level(seen.topic)
    for one in seen.numeric():
        if is_stamp(one) or one.path in ("tag", "measurement"):
            continue
        name = _named(one, sensor)
        axes = one.kind == "numbers" and one.shortest == one.longest == 3 and name.quantity in _TRIADS and not name.axis
        if axes:
            found += [
                Candidate(seen.topic, f"{one.path}.{i}", name._replace(axis=axis), one.series[i::3])
                for i, axis in enumerate("xyz")
            ]
        else:
            found.append(Candidate(seen.topic, one.path, name, one.series))
    return found


def _named(one: Field, sensor: str) -> Name:
    """Read a field's name; x on ``body/gyro`` is the gyroscope's."""
    name = name_of(one.path)
    of_axes = bool(name.axis) or (one.kind == "numbers" and one.longest == 3)
    return name._replace(quantity=sensor) if sensor and not name.quantity and of_axes else name


def match(channels: Sequence[Channel], candidates: Sequence[Candidate]) -> list[Match]:
    """Match channels to candidates by their names; channels without one are left out.

    1. Another axis, or another known quantity, never matches.
    2. A field called as the channel counts most, then the same quantity, then shared words.
    3. A candidate serves one channel: pairs are taken in the order of their scores.
    """
    pairs: list[tuple[float, int, int]] = []
    for i, channel in enumerate(channels):
        wanted = name_of(channel.name, channel.unit)
        for j, candidate in enumerate(candidates):
            score = _score(channel.name, wanted, candidate)
            if score >= _ENOUGH:
                pairs.append((score, i, j))
    pairs.sort(key=lambda pair: (-pair[0], pair[2], pair[1]))
    taken: dict[int, tuple[float, int]] = {}
    used: set[int] = set()
    for score, i, j in pairs:  # rule 3
        if i not in taken and j not in used:
            taken[i] = (score, j)
            used.add(j)
    found = []
    for i, (score, j) in sorted(taken.items()):
        others = [candidates[k] for close, own, k in pairs if own == i and close > score - _CLOSE and k not in used]
        found.append(Match(channels[i], candidates[j], score, tuple(others[:3])))
    return _with_gravity(found)


def _with_gravity(matches: list[Match]) -> list[Match]:
    """Prefer the acceleration that has gravity, where a sender has it with and without: most models see it.

    Sensor Logger and browsers send both.
    """
    swapped: dict[str, Match] = {}
    for axes in triads(matches):
        if name_of(axes[0].channel.name, axes[0].channel.unit).quantity == "acceleration" and not gravity_unit(axes):
            swapped |= {one.channel.name: one for one in _swapped(axes)}
    return [swapped.get(one.channel.name, one) for one in matches]


def _swapped(axes: Sequence[Match]) -> Sequence[Match]:
    """Return the axes with other candidates that have gravity; as they are where there are none."""
    for others in zip(*(one.others for one in axes), strict=False):
        found = [
            replace(one, candidate=other, others=(one.candidate,)) for one, other in zip(axes, others, strict=True)
        ]
        if gravity_unit(found):
            return found
    return axes


def match_by_order(channels: Sequence[Channel], candidates: Sequence[Candidate]) -> list[Match]:
    """Match channels to as many candidates in their order, where names tell nothing; else to none."""
    plain = [one for one in candidates if not one.name.words & _HOUSEKEEPING]
    nameless = all(not one.name.quantity and not one.name.axis for one in plain)
    if len(plain) != len(channels) or not nameless:
        return []
    return [Match(channel, candidate, 0.0, by_order=True) for channel, candidate in zip(channels, plain, strict=True)]


def _score(channel: str, wanted: Name, candidate: Candidate) -> float:
    own = candidate.name
    last = candidate.path.replace("]", ".").rsplit(".", 1)[-1]
    called = channel.lower() in (last.lower(), candidate.path.lower(), *_levels(candidate))
    if not called and (
        own.axis != wanted.axis or (own.quantity and wanted.quantity and own.quantity != wanted.quantity)
    ):
        return 0.0  # rule 1
    score = 6.0 * called + 4.0 * (bool(wanted.quantity) and own.quantity == wanted.quantity)  # rule 2
    score += 2.0 * bool(wanted.axis) + 2.0 * len(own.words & wanted.words)
    score += 1.0 * (bool(own.unit) and units.canonical(own.unit) == units.canonical(wanted.unit))
    score -= 0.5 * len(wanted.words - own.words) + 0.05 * len(own.words - wanted.words)
    if own.words & _HOUSEKEEPING and not called:
        score -= 4.0
    return score


def _levels(candidate: Candidate) -> tuple[str, ...]:
    return () if candidate.path else tuple(level.lower() for level in candidate.topic.split("/"))


def triads(matches: Sequence[Match]) -> list[list[Match]]:
    """Group matches that are the three axes of one sensor, x, y and z."""
    groups: dict[tuple[str, frozenset[str]], dict[str, Match]] = {}
    for one in matches:
        wanted = name_of(one.channel.name, one.channel.unit)
        if wanted.axis and wanted.quantity in _TRIADS:
            groups.setdefault((wanted.quantity, wanted.words), {})[wanted.axis] = one
    return [[axes[axis] for axis in "xyz"] for axes in groups.values() if axes.keys() == set("xyz")]


def norms(axes: Sequence[Match]) -> list[float]:
    """Norms of the samples of three axes."""
    rows = zip(*(one.candidate.series for one in axes), strict=False)
    return [math.sqrt(sum(value * value for value in row)) for row in rows]


def gravity_unit(axes: Sequence[Match]) -> str:
    """Return the unit in which the median norm of three axes is gravity, to a fifth; empty where it is in none."""
    sizes = norms(axes)
    middle = statistics.median(sizes) if sizes else 0.0
    return next((unit for unit, size in _GRAVITY if abs(middle / size - 1) < _NEAR), "")


def is_sensor(one: Field) -> bool:
    """Return whether a field may be a sensor's: it holds numbers that are no stamps and no housekeeping."""
    return (one.numeric or one.kind == "rows") and not is_stamp(one) and not name_of(one.path).words & _HOUSEKEEPING
