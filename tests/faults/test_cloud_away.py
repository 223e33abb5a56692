"""R7: the cloud is away for a day, on a simulated clock, at ten hard cases a second; then it comes back.

Nothing is lost, memory does not grow, the backlog goes much faster than it came, and what is fresh does not wait behind
it. Every push lives through a quarter of an hour; the long tier through the day and its 864,000 readings.

Mutation that was seen to fail here: no live share (`OutboxConfig.live_share` 0), with which fresh cases wait for the
backlog.
"""

from __future__ import annotations

import math
import random
import time
from pathlib import Path

from edge_runtime.base.system.retry import RECONNECT
from edge_runtime.clock import SimulatedClock
from edge_runtime.types import Correction
from tests.edge_runtime.cloud.clouds import FakeCloud
from tests.faults.conftest import Note
from tests.faults.oracle import missing
from tests.faults.resident_memory import resident
from tests.faults.simulation import Device, outbox_config
from tests.long_tier import Tier

RATE_HZ = 10
REQUESTS_A_SECOND = 20
"""Each takes 50 ms, as over a mobile link, and holds at most 16 cases."""
FLAT_BYTES = 10 * 2**20


def test_a_day_without_the_cloud_costs_nothing_but_disk(
    memory: Path, rng: random.Random, tier: Tier, note: Note
) -> None:
    away_s = tier(900, 86_400)
    cloud, clock = FakeCloud(), SimulatedClock()
    answered = bytearray(3 * away_s * RATE_HZ)  # how often, by number; made before memory is measured
    waits: list[float] = []
    back_at = math.inf  # when the first answer has come: until then the back-off runs, a minute at most

    def corrected(correction: Correction) -> None:
        nonlocal back_at
        back_at = min(back_at, clock.monotonic())
        number = int(correction.id[2:])
        answered[number] += 1
        offered = number / RATE_HZ
        if offered >= back_at:
            waits.append(clock.monotonic() - offered)

    device = Device(outbox_config(memory, 2**30), clock, corrected, rng, cloud)
    number = 0

    def second(requests: int) -> None:
        nonlocal number
        device.submit(range(number, number + RATE_HZ))
        number += RATE_HZ
        for _ in range(requests):
            clock.advance(1.0 / requests)
            device.forward()

    cloud.down = True
    before = 0
    for passed in range(away_s):
        second(1)
        if passed == away_s // 10:
            before = resident()
    backlog = device.outbox.counts().queued
    assert backlog == number == away_s * RATE_HZ
    grown_away = resident() - before

    cloud.down = False
    began, began_s = time.process_time(), clock.monotonic()
    while device.outbox.counts().queued > RATE_HZ:
        second(REQUESTS_A_SECOND)
        assert clock.monotonic() - began_s < away_s, "the backlog does not go"
    noticed_s, drained_s = back_at - began_s, clock.monotonic() - back_at
    cpu_s = time.process_time() - began
    cloud.asked.clear()
    grown = resident() - before
    for _ in range(120):  # quiet: no more arrive, and what failed before becomes due
        clock.advance(1.0)
        while device.forward():
            pass
    counts = device.outbox.counts()
    device.close()
    assert missing(counts) == 0
    assert (counts.accepted, counts.delivered, counts.queued) == (number, number, 0)
    assert all(answered[:number]), "lost"
    assert set(answered[:number]) == {1}, "asked again without a crash"
    assert max(grown_away, grown) <= FLAT_BYTES, (grown_away, grown)
    assert noticed_s <= RECONNECT.cap_s + 1.0
    assert backlog / drained_s >= 20 * RATE_HZ
    assert backlog / cpu_s >= 20 * RATE_HZ
    waits.sort()
    slow = waits[int(0.99 * len(waits))]
    assert slow <= 2.0, f"fresh cases wait {slow:.1f} s behind the backlog"
    note(
        "R7",
        f"cloud away {away_s / 60:,.0f} min (simulated), {number:,} cases: 0 lost, memory +{grown / 2**20:.1f} MiB; "
        f"noticed after {noticed_s:.0f} s, "
        f"drained in {drained_s:,.0f} s, {backlog / drained_s / RATE_HZ:.0f} x the rate of arrival (one core would do "
        f"{backlog / cpu_s:,.0f} cases/s); fresh cases wait {slow:.2f} s at p99",
    )
