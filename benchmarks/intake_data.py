"""Recordings of real sensors as streams, and what can be wrong with them: for `benchmarks.bench_intake`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from edge_runtime import units
from edge_runtime.manifest import Channel, InputContract
from edge_runtime.signal.intake.config import Check

Float64 = npt.NDArray[np.float64]
Float32 = npt.NDArray[np.float32]

DATA = Path(os.environ.get("EDGE_SHARED", Path(__file__).resolve().parents[2] / "shared")) / "data"
RESERVED = {"3", "6", "9"}
"""People of exercise-watch that nothing is shown on."""
T0 = 1_700_000_000.0


class Stream(NamedTuple):
    """One person."""

    t: Float64
    values: Float32


class Set(NamedTuple):
    """People with one kind of sensor."""

    name: str
    contract: InputContract
    people: Mapping[str, Stream]
    labels: Mapping[str, npt.NDArray[np.int64]] = MappingProxyType({})
    """Class of each sample."""


def contract(
    rate_hz: float, window: int, acceleration: str = "m/s2", rotation: str = "rad/s", max_gap_s: float = 0.0
) -> InputContract:
    channels = [Channel(name=f"a{axis}", unit=acceleration) for axis in "xyz"]
    channels += [Channel(name=f"w{axis}", unit=rotation) for axis in "xyz"]
    return InputContract(channels=tuple(channels), rate_hz=rate_hz, window=window, hop=window // 2, max_gap_s=max_gap_s)


def joined(parts: Sequence[tuple[Float64, Float32]], period: float) -> Stream:
    """Recordings one after the other, each a period after the one before."""
    times: list[Float64] = []
    at = T0
    for t, _ in parts:
        times.append(at + t - t[0])
        at = float(times[-1][-1]) + period
    return Stream(np.concatenate(times), np.concatenate([values for _, values in parts]))


def exercise_watch() -> Set:
    with np.load(DATA / "exercise-watch-seglearn" / "watch.npz") as stored:
        x, offset, subject = stored["x"], stored["offset"], stored["subject"].astype(str)
        label = np.repeat(stored["label"].astype(np.int64), np.diff(offset))
    people, labels = {}, {}
    for person in sorted(set(subject.tolist()) - RESERVED, key=int):
        parts = [x[offset[i] : offset[i + 1]] for i in np.flatnonzero(subject == person)]
        people[person] = joined([(np.arange(len(part), dtype=np.float64) / 50, part) for part in parts], 1 / 50)
        labels[person] = np.concatenate([label[offset[i] : offset[i + 1]] for i in np.flatnonzero(subject == person)])
    return Set("exercise-watch", contract(50, 100, acceleration="g"), people, labels)


def har(kind: str, name: str) -> Set:
    people, labels = {}, {}
    for file in sorted((DATA / "har-phone-watch").glob("s*.npz")):
        with np.load(file) as stored:
            x, t, run = stored[f"{kind}_x"], stored[f"{kind}_t_ms"] / 1e3, stored[f"{kind}_execution"]
            y = stored[f"{kind}_y"].astype(np.int64)
        people[file.stem] = joined([(t[run == i], x[run == i]) for i in np.unique(run)], 1 / 100)
        labels[file.stem] = np.concatenate([y[run == i] for i in np.unique(run)])
    return Set(name, contract(100, 200, max_gap_s=0.5), people, labels)  # the phone hands over bursts


def ecg() -> Set:
    people = {}
    for file in sorted((DATA / "ecg-mitbih").glob("*.npz")):
        with np.load(file) as stored:
            values = (stored["adc"] / stored["gain"]).astype(np.float32)[:, np.newaxis]
        people[file.stem] = Stream(T0 + np.arange(len(values)) / 360, values)
    channels = (Channel(name="ecg", unit="mV"),)
    return Set("ecg", InputContract(channels=channels, rate_hz=360, window=720, hop=360), people)


def room() -> Set:
    """Two weeks of one room, a sample a minute; each against references of the other one."""
    people = {}
    for name in ("datatraining", "datatest"):
        rows = np.genfromtxt(
            DATA / "occupancy-room" / f"{name}.csv",
            delimiter=",",
            skip_header=1,
            usecols=(2, 3, 4, 5),
            dtype=np.float32,
        )
        people[name] = Stream(T0 + 60 * np.arange(len(rows), dtype=np.float64), rows)
    named = (("temperature", "Cel"), ("humidity", "%"), ("light", "lx"), ("co2", "ppm"))
    channels = tuple(Channel(name=channel, unit=unit) for channel, unit in named)
    return Set("room", InputContract(channels=channels, rate_hz=1 / 60, window=30, hop=10), people)


ACCELERATION, ROTATION = slice(0, 3), slice(3, 6)


def scaled(stream: Stream, columns: slice, given: str, wanted: str) -> Stream:
    """Values of some channels, given in one unit, in another one."""
    factor, _ = units.convert(given, wanted)
    values = stream.values.copy()
    values[:, columns] *= np.float32(factor)
    return Stream(stream.t, values)


def at_rate(stream: Stream, rate_hz: float) -> Stream:
    """The same movement, sampled at another rate."""
    t = np.arange(stream.t[0], stream.t[-1], 1 / rate_hz)
    values = np.stack([np.interp(t, stream.t, column) for column in stream.values.T], axis=1)
    return Stream(t, values.astype(np.float32))


def frozen(stream: Stream, columns: Sequence[int], after_s: float) -> Stream:
    """Channels that keep their value from some second on."""
    at = int(np.searchsorted(stream.t, stream.t[0] + after_s))
    values = stream.values.copy()
    values[at:, columns] = values[at, columns]
    return Stream(stream.t, values)


def cut_off(stream: Stream, columns: slice) -> Stream:
    """A sensor with half the range that nearly all of the movement needs."""
    values = stream.values.copy()
    end = np.quantile(np.abs(values[:, columns]), 0.99) / 2
    values[:, columns] = np.clip(values[:, columns], -end, end)
    return Stream(stream.t, values)


class Fault(NamedTuple):
    """Something wrong, of the whole stream or from a second on."""

    name: str
    reason: Check
    within_s: float
    acceleration: str
    rotation: str
    """Units that the model takes."""
    make: Callable[[Stream], Stream]
    named: str = ""
    """Words that the line has to hold."""
    after_s: float = 0.0


def faults(one: Set) -> Iterator[Fault]:
    """Yield each fault of a set with an accelerometer and a gyroscope."""
    own, rate = one.contract.channels[0].unit, one.contract.rate_hz
    for wanted, given in (("g", "m/s2"), ("g", "mg"), ("m/s2", "g"), ("m/s2", "mg")):
        make = partial(scaled, columns=ACCELERATION, given=wanted, wanted=given)
        named = f"{given} instead of {wanted}?"
        yield Fault(f"acceleration in {given} for {wanted}", "unit", 60, wanted, "rad/s", make, named)
    for wanted, given in (("rad/s", "deg/s"), ("deg/s", "rad/s")):
        make = partial(scaled, columns=ROTATION, given=wanted, wanted=given)
        named = f"{given} instead of {wanted}?"
        yield Fault(f"rotation in {given} for {wanted}", "unit", 120, own, wanted, make, named)
    for share in (0.5, 0.75, 2.0):
        make = partial(at_rate, rate_hz=share * rate)
        yield Fault(f"{share * rate:g} Hz for {rate:g}", "rate", 10, own, "rad/s", make)
    for column, channel in enumerate(one.contract.channels):
        make = partial(frozen, columns=[column], after_s=15.0)
        yield Fault(f"{channel.name} frozen", "stuck", 30, own, "rad/s", make, f"channels={channel.name} ", 15.0)
    for columns, kind in ((ACCELERATION, "acceleration"), (ROTATION, "rotation")):
        make = partial(cut_off, columns=columns)
        yield Fault(f"{kind}: half the range", "clipped", 60, own, "rad/s", make)
    make = partial(frozen, columns=range(6), after_s=15.0)
    yield Fault("all channels frozen", "stuck", 30, own, "rad/s", make, after_s=15.0)


def in_units(one: Set, acceleration: str, rotation: str) -> Set:
    """The set with a model that takes other units, and right values."""
    before = one.contract.channels
    described = contract(one.contract.rate_hz, one.contract.window, acceleration, rotation, one.contract.max_gap_s)
    people = {
        name: scaled(
            scaled(stream, ACCELERATION, before[0].unit, acceleration), ROTATION, before[3].unit, rotation
        )
        for name, stream in one.people.items()
    }  # fmt: skip
    return Set(one.name, described, people)
