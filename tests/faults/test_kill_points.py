"""R1: the device is killed at every write, flush, truncation, deletion, renaming and send of its whole path.

MQTT source, windows, model, gate, outbox, cloud client and file of answers are the real ones in a process of their own,
which strace kills at its K-th call of a kind, for K = 1, 2, ... until it survives. The next one finds what it left. The
broker holds what was not acknowledged, the cloud remembers what it was asked, and neither is ever killed.

Mutations that were seen to fail here: acknowledging when a case is offered and not when it is committed (``done()`` at
the end of `Escalator.submit`); taking a case out of the outbox before its correction is with the sinks (``_Settled``
put before ``self._publish`` in `Escalator._publish_on_loop`).
"""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass
from pathlib import Path

import pytest

from edge_runtime.clock import SimulatedClock
from edge_runtime.store.durable.config import PAGE_BYTES
from edge_runtime.store.durable.outbox import HardCase, Outbox, OutboxConfig
from tests.faults.conftest import Note
from tests.faults.device import Devices, Fault, needs_strace
from tests.faults.site import Site
from tests.long_tier import Tier

pytestmark = [needs_strace, pytest.mark.slow]

CALLS = ("write", "fdatasync", "fsync", "ftruncate", "unlink", "sendto", "sendmsg", "pwrite64")
ROUND = 8
"""Messages on their way at a time."""
A_LIFE = 1_000
"""Kills after which broker, cloud and outbox begin anew: all that they remember is looked at after each."""


@dataclass
class Campaign:
    """Kills one device after the other, all of which have the same outbox, broker and cloud."""

    site: Site
    devices: Devices
    rng: random.Random
    wanted: int
    kills: int = 0
    survived: int = 0

    def kill_at_each(self, calls: str) -> None:
        """At the first call of this kind, the second, and so on, until a device makes fewer than that."""
        for k in itertools.count(1):
            if self.kills >= self.wanted:
                return
            self.site.publish(max(0, self.rng.randrange(1, 5) - self.site.outstanding))
            with self.devices.start(self.site.folder, Fault(calls, "signal=KILL", str(k))) as device:
                code = self.site.run(device, more=max(0, ROUND - self.site.outstanding))
            where = f"killed at {calls} {k}"
            assert code == 0 or device.killed, (where, code, device.errors())
            self.site.check(where)
            if not device.killed:
                self.survived += 1
                return
            self.kills += 1

    def settle(self) -> None:
        """Quiet now: everything drains, and a fresh reading goes through."""
        self.site.publish(1)
        with self.devices.start(self.site.folder) as device:
            assert self.site.run(device) == 0, device.errors()


@pytest.mark.parametrize("half", [1, 2])
def test_killed_at_every_call_it_loses_nothing_and_goes_on(
    memory: Path, seed: int, half: int, tier: Tier, note: Note
) -> None:
    """In halves, which two cores can do at the same time: ``-k "loses_nothing_and_goes_on and 1"``."""
    rng = random.Random(f"{seed} {half}")
    wanted, kills, survived, readings, repeats = tier(50, 5_000), 0, 0, 0, 0
    with Devices() as devices:
        while kills < wanted:
            folder = memory / f"from-{kills}"
            folder.mkdir()
            with Site(folder) as site:
                campaign = Campaign(site, devices, rng, min(A_LIFE, wanted - kills))
                site.introduce(devices)
                for calls in itertools.cycle(CALLS):
                    campaign.kill_at_each(calls)
                    if campaign.kills >= campaign.wanted:
                        break
                campaign.settle()
                verdict = site.check("after the drain")
                counts, inside = site.outbox_copy()
            assert not inside
            assert counts.accepted == counts.delivered
            assert verdict.acknowledged == verdict.attempts
            assert verdict.duplicated.total() <= campaign.kills * ROUND
            kills, survived = kills + campaign.kills, survived + campaign.survived
            readings, repeats = readings + len(verdict.attempts), repeats + verdict.duplicated.total()
    note(
        "R1",
        f"{kills:,} kills of the whole path ({survived} runs survived), {readings:,} readings: 0 lost, 0 unexpected, "
        f"{repeats:,} repeats, {repeats / kills:.1f} a kill",
    )


def test_killed_at_every_call_of_a_salvage_it_loses_nothing(
    memory: Path, rng: random.Random, tier: Tier, note: Note
) -> None:
    """The outbox has lost its first page, so the device begins its life with rebuilding it.

    Mutation seen to fail: linking the damaged file to ``.damaged-N``, which is the decision to switch, before the
    rebuilt one is complete (at the beginning of `salvage.salvage`).
    """
    cases, kills = 60, 0
    with Devices() as devices, Site(memory) as site:
        stored = site.begin_with(cases)
        with Outbox(OutboxConfig(path=site.outbox, live_share=0.0), SimulatedClock()) as outbox:
            outbox.put([HardCase(f"gone@{n}", "", 0.0, 60.0, 0, 0.5, rng.randbytes(3_000), b"{}") for n in range(40)])
            outbox.ack([case.id for case in outbox.lease(40, 2**30)])
            outbox.put(stored[:55])  # in pages that were used before: the rebuilt file has others there
        with Outbox(OutboxConfig(path=site.outbox, live_share=0.0), SimulatedClock()) as outbox:
            outbox.put(stored[55:])
            left = {file: file.read_bytes() for file in memory.glob("outbox.db*")}  # as after a kill, with its log
        left[site.outbox] = rng.randbytes(PAGE_BYTES) + left[site.outbox][PAGE_BYTES:]
        for calls in ("link", "rename", "unlink", "fsync", "fdatasync", "pwrite64"):
            for k in itertools.count(1, 1 if calls != "pwrite64" else tier(50, 1)):
                site.begin_with(cases)
                for file in memory.glob("outbox.db*"):
                    file.unlink()
                for file, data in left.items():
                    file.write_bytes(data)
                with devices.start(memory, Fault(calls, "signal=KILL", str(k))) as device:
                    code = site.run(device)
                where = f"killed at {calls} {k} of a salvage"
                assert code == 0 or device.killed, (where, code, device.errors())
                site.check(where, damaged=True)
                if not device.killed:
                    break
                kills += 1
    assert kills > 20
    note("R1", f"{kills} kills while a damaged outbox is rebuilt: 0 of {cases} cases lost")
