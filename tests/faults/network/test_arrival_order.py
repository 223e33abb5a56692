"""R10: windows do not depend on the order in which readings arrive, as long as they come within the lateness bound.

`tests/edge_runtime/signal/windowing/test_window.py` holds windows against a literal reading of the rules, one order per
stream. Here streams are permuted: ten thousand orders, with repeats, over several keys at once; beyond the bound, each
sample is accounted for. Broken on purpose, each seen to fail here: a bound that is half as long, repeats that are not
noticed.
"""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edge_runtime.manifest import Channel, InputContract
from edge_runtime.metrics import Metrics
from edge_runtime.signal.windowing.config import WindowConfig
from edge_runtime.signal.windowing.window import Window, Windower
from edge_runtime.types import Reading
from tests.faults.conftest import Note
from tests.long_tier import Tier

pytestmark = pytest.mark.slow

RATE_HZ = 10.0
CONTRACT = InputContract(
    channels=(Channel(name="a", unit="1"),), rate_hz=RATE_HZ, window=4, hop=2, snap=0.25, max_gap_s=0.5
)
ORDERS = 20
"""Orders that one example of hypothesis tries: making the example costs more than cutting it."""

Cut = list[tuple[str, int, tuple[float, ...]]]
steps = st.lists(st.sampled_from((0.9, 1.0, 1.1, 0.4, 1.6, 2.4, 7.0)), min_size=4, max_size=11)


def cut(windows: list[Window]) -> Cut:
    return sorted((window.key, window.slot, tuple(window.samples[:, 0].tolist())) for window in windows)


def windows_of(readings: list[Reading], lateness_s: float, metrics: Metrics) -> Cut:
    windower = Windower(CONTRACT, WindowConfig(lateness_s=lateness_s), metrics)
    found = [window for reading in readings for window in windower.push([reading])]
    return cut(found + windower.flush())


def stream(key: str, deltas: list[float], start: float) -> list[Reading]:
    """One reading per sample."""
    stamps = start + np.cumsum([0.013, *deltas]) / RATE_HZ
    return [Reading(key, np.array([t]), np.array([[float(i % 17)]], np.float32)) for i, t in enumerate(stamps)]


def stamp(reading: Reading) -> float:
    return float(np.asarray(reading.t).ravel()[0])


def test_every_order_within_the_bound_gives_the_same_windows(tier: Tier, seed: int, note: Note) -> None:
    cases = 0
    windows = 0

    @settings(
        max_examples=tier(200, 5_000), deadline=None, database=None, derandomize=not tier.long,
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(
        streams=st.lists(st.tuples(steps, st.floats(0, 0.5)), min_size=1, max_size=2),
        lateness_s=st.sampled_from((0.25, 0.6, 1.5)),
        salt=st.integers(0, 2**32 - 1),
    )
    def permute(streams: list[tuple[list[float], float]], lateness_s: float, salt: int) -> None:
        nonlocal cases, windows
        rng = random.Random(f"{seed} {salt}")
        readings = [one for i, (deltas, start) in enumerate(streams) for one in stream(f"k{i}", deltas, start)]
        expected = windows_of(readings, 0.0, Metrics())
        windows += len(expected)
        for _ in range(ORDERS):
            # Each is delayed by less than the bound, so that it comes before any sample that would make it late.
            arrival = sorted(readings, key=lambda one: stamp(one) + rng.uniform(0, lateness_s * 0.999))
            repeated = [one for one in arrival for _ in range(rng.choice((1, 1, 1, 1, 2, 3)))]
            metrics = Metrics()
            assert windows_of(repeated, lateness_s, metrics) == expected
            assert metrics.dropped["late"] == 0
            assert metrics.dropped["duplicate"] == len(repeated) - len(readings)
            cases += 1

    permute()
    assert cases >= tier(200, 5_000) * ORDERS
    assert windows > cases // 20
    note("R10", f"{cases} orders within the bound: windows identical, 0 late, every repeat counted")


def test_beyond_the_bound_every_sample_is_used_or_counted(tier: Tier, seed: int, note: Note) -> None:
    """In any order at all: what is not late makes the windows that it makes alone, what is late is counted."""
    cases = 0

    @settings(
        max_examples=tier(300, 3_000), deadline=None, database=None, derandomize=not tier.long,
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(deltas=steps, lateness_s=st.sampled_from((0.0, 0.25, 0.6)), salt=st.integers(0, 2**32 - 1))
    def shuffle(deltas: list[float], lateness_s: float, salt: int) -> None:
        nonlocal cases
        rng = random.Random(f"{seed} {salt}")
        readings = stream("k", deltas, 0.0)
        arrival = sorted(readings, key=lambda one: stamp(one) + rng.uniform(0, 3 * lateness_s + 0.3))
        in_time: list[Reading] = []
        newest = -np.inf
        for one in arrival:
            newest = max(newest, stamp(one))
            if lateness_s and stamp(one) >= newest - lateness_s * 0.999:
                in_time.append(one)
        metrics = Metrics()
        windows_of(arrival, lateness_s, metrics)
        used = len(readings) - metrics.dropped["late"] - metrics.dropped["duplicate"]
        assert used >= len(in_time)
        assert sum(metrics.dropped.values()) == metrics.dropped["late"] + metrics.dropped["duplicate"]
        assert metrics.counts["samples_total"] in {0, len(readings), used}
        cases += 1

    shuffle()
    note("R10", f"{cases} orders beyond the bound: every sample used or counted as late")
