"""Streams whose channels come apart, and windows to compare."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np

from edge_runtime.manifest import Channel, InputContract
from edge_runtime.signal.windowing.join import JoinedWindower
from edge_runtime.signal.windowing.window import Window, Windower
from edge_runtime.types import Float64, Reading

RATE = 10.0
NAMES = "abc"
GROUPINGS = (((0,), (1,), (2,)), ((1, 0), (2,)), ((0,), (2, 1)), ((2, 0, 1),), ((0, 1, 2),))


def contract(**changes: object) -> InputContract:
    values: dict[str, object] = {
        "channels": tuple(Channel(name=name, unit="1") for name in NAMES),
        "rate_hz": RATE,
        "window": 8,
        "hop": 3,
    }
    return InputContract(**(values | changes))  # type: ignore[arg-type]


def stream(seed: int, messages: int = 50, *, jumps: bool = False) -> list[Reading]:
    """Readings of two keys with all channels: jitter, steps beside the grid, gaps, and clocks that jump."""
    rng = np.random.default_rng(seed)
    at = {"k0": 1000.0, "k1": 1000.03}
    made = []
    for _ in range(messages):
        key, n = f"k{rng.integers(2)}", int(rng.integers(1, 6))
        t = at[key] + np.arange(n) / RATE + rng.uniform(-0.04, 0.04, n)
        at[key] += n / RATE + 1.5 * (rng.random() < 0.05) + 0.13 * (rng.random() < 0.1)
        if jumps and rng.random() < 0.03:
            at[key] += rng.choice([100.0, -200.0, 5000.0])
        values = rng.normal(size=(n, len(NAMES))).astype(np.float32)
        made.append(Reading(key, float(t[0]) if rng.random() < 0.3 else np.sort(t), values))
    return made


def times_of(reading: Reading) -> Float64:
    if isinstance(reading.t, float):
        return reading.t + np.arange(len(reading.values)) / RATE
    return reading.t


def torn(readings: Sequence[Reading], rng: random.Random, delay_s: float = 0.0, n: int = 3) -> list[Reading]:
    """The same samples in messages that hold some channels, each up to `delay_s` late."""
    parts = []
    for reading in readings:
        t = times_of(reading)
        for columns in rng.choice(GROUPINGS):
            for begin in range(0, len(t), n):
                some = slice(begin, begin + n)
                part = Reading(reading.key, t[some], reading.values[some][:, list(columns)], 0.0, columns)
                parts.append((t[some][-1] + rng.uniform(0, delay_s), part))
    return [part for _, part in sorted(parts, key=lambda pair: pair[0])]


def played(windower: Windower | JoinedWindower, readings: Sequence[Reading]) -> list[Window]:
    """Windows by key, each key's in order."""
    found = [window for reading in readings for window in windower.push([reading])]
    return sorted(found + windower.flush(), key=lambda window: window.key)


def same(found: Sequence[Window], expected: Sequence[Window]) -> None:
    assert [window.id for window in found] == [window.id for window in expected]
    for one, other in zip(found, expected, strict=True):
        assert one.start == other.start
        np.testing.assert_array_equal(one.samples, other.samples)
        np.testing.assert_array_equal(one.context, other.context)
