"""Sensors that are mounted otherwise, replaced or changed, from the middle of a real stream on: for `bench_drift`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
from edge_export.choose.evaluation.sensors import faults_of, inverse

from benchmarks.intake_data import Set, Stream, at_rate
from edge_runtime.manifest.drift import Repair

_SHOWN = frozenset(
    (
        "ax and ay swapped", "ay and az swapped", "wx and wy swapped", "ax flipped", "ay flipped", "wx flipped",
        "all axes turned by 90 degrees about z", "all axes turned by 180 degrees about z",
        "all axes turned by 90 degrees about x", "all axes turned by 180 degrees about y",
    )
)  # fmt: skip
"""Of the faults that a bundle may look for; and units, all of them."""

LOOKS = 25
"""Windows within which a fault is to be found."""


class Fault(NamedTuple):
    """Something that happens to the second half of a stream."""

    name: str
    kind: str
    """``orientation`` or ``unit``, which are to be named; ``other``; ``none`` where nothing is wrong."""
    make: Callable[[str, Stream], Stream | None]
    """Second half of a person's stream, with the fault; None where this person has none."""
    repair: Repair | None = None
    """That undoes it."""


def halves(stream: Stream) -> tuple[Stream, Stream]:
    at = len(stream.t) // 2
    return Stream(stream.t[:at], stream.values[:at]), Stream(stream.t[at:], stream.values[at:])


def _faulty(fault: Repair, names: Sequence[str], _name: str, stream: Stream) -> Stream:
    order = [names.index(name.removeprefix("-")) for name in fault.takes]
    signs = [-1.0 if name.startswith("-") else 1.0 for name in fault.takes]
    return Stream(stream.t, (stream.values[:, order] * np.multiply(signs, fault.factors)).astype(np.float32))


def added(stream: Stream, column: int, factor: float = 1.0, offset: float = 0.0, noise: float = 0.0) -> Stream:
    values = stream.values.copy()
    rng = np.random.default_rng(0)
    values[:, column] = values[:, column] * factor + offset + rng.normal(0, noise, len(values))
    return Stream(stream.t, values)


def held(stream: Stream, column: int) -> Stream:
    values = stream.values.copy()
    values[:, column] = values[0, column]
    return Stream(stream.t, values)


def following(first: Stream, second: Stream, rate_hz: float) -> Stream:
    """A stream, and after its end another one."""
    t = second.t - second.t[0] + first.t[-1] + 1 / rate_hz
    return Stream(np.concatenate((first.t, t)), np.concatenate((first.values, second.values)))


def _one_class(one: Set, name: str, _stream: Stream) -> Stream | None:
    """The longest activity alone, over and over."""
    labels = one.labels[name]
    values = one.people[name].values[labels == np.bincount(labels).argmax()]
    samples = (LOOKS + 2) * one.contract.window
    values = np.tile(values, (-(-samples // len(values)), 1))[:samples]
    return Stream(np.arange(samples) / one.contract.rate_hz, values)


def _other(people: Mapping[str, Stream], name: str, _stream: Stream, *, shift: int) -> Stream | None:
    names = sorted(people)
    if not shift:
        return halves(people[name])[1] if name in people else None
    return halves(people[names[(names.index(name) + shift) % len(names)]])[1]


def faults(one: Set, other: Set | None) -> Iterator[Fault]:
    """Yield what happens to the streams of a set.

    Args:
        one: acceleration and rotation.
        other: the same people with another device.
    """
    metre = 1.0 if one.contract.channels[0].unit == "m/s2" else 1 / 9.80665
    yield Fault("no fault (control)", "none", lambda _, stream: stream)
    names = [channel.name for channel in one.contract.channels]
    for repair in faults_of(one.contract.channels, (names[:3], names[3:])):
        if repair.cause == "unit" or repair.fault in _SHOWN:
            yield Fault(repair.fault, repair.cause, partial(_faulty, inverse(repair, names), names), repair)
    rate = one.contract.rate_hz
    yield Fault("half the rate", "other", lambda _, stream: at_rate(stream, rate / 2))
    yield Fault("0.8 of the rate", "other", lambda _, stream: at_rate(stream, 0.8 * rate))
    yield Fault("ax stuck", "other", lambda _, stream: held(stream, 0))
    yield Fault("noise of 0.5 m/s2 on ax", "other", lambda _, stream: added(stream, 0, noise=0.5 * metre))
    yield Fault("ax times 1.2", "other", lambda _, stream: added(stream, 0, factor=1.2))
    yield Fault("ax plus 1 m/s2", "other", lambda _, stream: added(stream, 0, offset=metre))
    if other is not None:
        yield Fault("other device in its place", "other", partial(_other, other.people, shift=0))
    yield Fault("other person", "none", partial(_other, one.people, shift=1))
    yield Fault("one class only", "none", partial(_one_class, one))
