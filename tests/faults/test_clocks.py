"""R11: clocks that lie. Boards boot in 1970, time servers jump by hours, and slew while a window is being filled.

Nothing is lost, no age is negative, nothing expires early, nobody is asked in a hot loop, and the order is that of
acceptance.

Mutations that were seen to fail here: `Session.elapsed` on the wall clock (``clock.wall()``) expires cases at +1 day;
a latency that is not bounded below (``max(0.0, ...)`` in `CloudModel.correction`) is negative at -1 h.
"""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from edge_runtime.clock import SimulatedClock
from edge_runtime.manifest import Channel, InputContract
from edge_runtime.metrics import Metrics
from edge_runtime.signal.windowing.window import Windower
from edge_runtime.types import Correction, Reading
from tests.edge_runtime.cloud.clouds import FakeCloud
from tests.faults.conftest import Note
from tests.faults.oracle import missing
from tests.faults.simulation import Device, outbox_config

NOW = 1_700_000_000.0
JUMPS = {"1970": -NOW, "an hour back": -3_600.0, "a day ahead": 86_400.0, "ten years ahead": 3.2e8}
DAY_S = 86_400.0


@pytest.mark.parametrize("restart", [False, True], ids=["running", "after a reboot"])
@pytest.mark.parametrize("jump", JUMPS)
def test_a_jump_loses_nothing_and_keeps_the_order(
    memory: Path, rng: random.Random, note: Note, jump: str, restart: bool
) -> None:
    corrections: list[Correction] = []
    cloud = FakeCloud()
    config = outbox_config(memory, 2**20, max_age_s=3_600.0, live_share=0.0)
    clock = SimulatedClock(NOW)
    device = Device(config, clock, corrections.append, rng, cloud)
    cloud.down = True
    for number in range(100):
        device.submit([number])
        clock.advance(1.0)
        device.forward()
    if restart:
        device.close()
        clock = SimulatedClock(NOW + JUMPS[jump])
        device = Device(config, clock, corrections.append, rng, cloud)
    else:
        clock.jump(JUMPS[jump])
    for number in range(100, 200):
        device.submit([number])
        clock.advance(1.0)
        device.forward()
    assert device.outbox.counts().oldest_age_s >= 0
    failures = device.metrics.counts["cloud_failures_total"]
    assert 0 < failures <= 60, "asked too often, or not at all, while it was away"
    cloud.down = False
    for _ in range(180):
        clock.advance(1.0)
        while device.forward():
            pass
    counts = device.outbox.counts()
    device.close()
    assert missing(counts) == 0
    assert (counts.delivered, counts.queued, sum(counts.dropped.values())) == (200, 0, 0)
    assert sorted(int(one.id[2:]) for one in corrections) == list(range(200))
    assert all(one.latency_ms >= 0 for one in corrections)
    fresh = [int(one.id[2:]) for one in corrections if int(one.id[2:]) >= 150]
    assert fresh == sorted(fresh), "cases that were never tried go in the order of acceptance"
    note("R11", f"clock at {jump}{' after a reboot' if restart else ''}: 200 of 200 delivered, {failures} failed asks")


CONTRACT = InputContract(
    channels=(Channel(name="a", unit="1"),), rate_hz=50.0, window=50, hop=50
)  # fmt: skip


def stamped(clock: SimulatedClock, samples: int, drift: float) -> list[Reading]:
    """Readings that carry the board's own wall clock, which runs by `drift` too fast."""
    made = []
    for _ in range(samples):
        made.append(Reading("k", clock.wall(), np.ones((1, 1), np.float32)))
        clock.advance(0.02)
        clock.jump(0.02 * drift)
    return made


@pytest.mark.parametrize("drift", [-0.05, -0.0005, 0.0005, 0.05])
def test_a_clock_that_slews_while_a_window_fills_costs_no_window(drift: float, note: Note) -> None:
    """500 ppm is what a time server slews by; 5 % is what a broken quartz does."""
    clock, metrics = SimulatedClock(NOW), Metrics()
    windower = Windower(CONTRACT, None, metrics)
    windows = []
    for stretch in (0.0, drift, 0.0):
        for reading in stamped(clock, 2_000, stretch):
            windows += windower.push([reading])
    spans = clock.wall() - NOW
    assert len(windows) >= int(spans) - 3, f"{len(windows)} windows of a second in {spans:.0f} s"
    assert len({window.id for window in windows}) == len(windows)
    assert all(np.isfinite(window.samples).all() for window in windows)
    assert not +metrics.dropped, metrics.dropped
    note("R11", f"slew of {drift:+.2%} within windows: {len(windows)} windows in {spans:.0f} s, 0 samples dropped")


@pytest.mark.parametrize("jump", [-3_600.0, 3_600.0, 86_400.0, -NOW])
def test_a_clock_that_jumps_within_a_window_costs_that_window(jump: float, note: Note) -> None:
    clock, metrics = SimulatedClock(NOW), Metrics()
    windower = Windower(CONTRACT, None, metrics)
    before = windower.push(stamped(clock, 1_025, 0.0))
    clock.jump(jump)
    after = windower.push(stamped(clock, 1_025, 0.0))
    assert len(before) >= 19
    assert len(after) >= 19
    starts = [window.start for window in after]
    assert starts == sorted(starts)
    assert metrics.counts["clock_jumps_total"] == 1
    note("R11", f"jump of {jump:+,.0f} s within a window: {len(before)} + {len(after)} of 41 windows, one jump counted")
