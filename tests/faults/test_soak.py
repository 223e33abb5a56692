"""R15: everything at once, drawn at random: kills, disk errors, a cloud and a broker that come and go, bad messages.

Then it is quiet, everything drains, a fresh reading goes through, and the books balance.

The mutations of R1 and R4 are what this stands against; they are made to fail there, one fault at a time.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from pathlib import Path

from tests.faults.conftest import Note
from tests.faults.device import Device, Devices, Fault, needs_strace
from tests.faults.site import Site
from tests.integration.running import until
from tests.long_tier import Tier

pytestmark = needs_strace

CALLS = ("pwrite64", "fdatasync", "write", "sendto", "recvfrom", "pread64", "openat", "ftruncate", "unlink")
ON_DISK = ("pwrite64", "fdatasync", "pread64", "ftruncate")  # not "write": the devices' own reports are read here
AT_ONCE = 30
"""Messages on their way at a time: below what the broker keeps for a device that is away."""


class Soak:
    """A device among faults, started again when it has died."""

    def __init__(self, site: Site, devices: Devices, rng: random.Random) -> None:
        self.site, self.devices, self.rng = site, devices, rng
        self.happened: Counter[str] = Counter()
        self.device = self._start()

    def _start(self) -> Device:
        return self.devices.start(self.site.folder)

    def turn(self) -> None:
        """Readings, and one fault."""
        self.revive()
        self.site.publish(self.rng.randrange(0, max(1, min(8, AT_ONCE - self.site.outstanding))))
        fault = self.rng.choice(("kill", "kill at a call", "disk", "cloud", "broker", "rubbish", "stop", "quiet"))
        self.happened[fault] += 1
        match fault:
            case "kill":
                self.pause()
                self.device.kill()
            case "kill at a call":
                with self.device.failing(Fault(self.rng.choice(CALLS), "signal=KILL", str(self.rng.randrange(1, 30)))):
                    self.pause()
            case "disk":
                what = Fault(
                    self.rng.choice(ON_DISK), f"error={self.rng.choice(('EIO', 'ENOSPC'))}",
                    f"{self.rng.randrange(1, 10)}+{self.rng.randrange(1, 6)}",
                )  # fmt: skip
                with self.device.failing(what):
                    self.pause()
            case "cloud":
                self.site.cloud.stop()
                self.pause()
                self.site.cloud.start()
            case "broker":
                self.site.restart_broker()
            case "rubbish":
                self.site.publish_rubbish(self.rng.randbytes(self.rng.randrange(1, 60)))
            case "stop":
                self.device.stop()
                self.device.wait()
            case _:
                self.pause()

    def pause(self) -> None:
        time.sleep(self.rng.uniform(0.0, 0.4))

    def revive(self) -> None:
        if not self.device.running():
            self.happened["starts"] += 1
            self.device = self._start()


def test_all_faults_at_once_and_then_quiet(memory: Path, rng: random.Random, tier: Tier, note: Note) -> None:
    seconds = tier(15, 1_800)
    with Devices() as devices, Site(memory) as site:
        site.introduce(devices)
        soak = Soak(site, devices, rng)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            soak.turn()
        soak.revive()
        (fresh,) = site.publish(1)
        until(lambda: fresh in site.history.delivered, soak.device.errors)
        until(lambda: site.history.verdict().acknowledged == site.history.verdict().attempts, soak.device.errors)
        until(site.drained, soak.device.errors)
        soak.device.stop()
        assert soak.device.wait() == 0, soak.device.errors()
        counts, inside = site.outbox_copy()
        site.read_answers()
        verdict = site.history.verdict()
        gone = verdict.attempts.keys() - site.corrected.keys() - site.refused
        refused = site.refused - site.corrected.keys()
    assert not inside
    assert not verdict.unexpected
    assert counts.accepted == counts.delivered
    assert not gone, "promised a correction, and never closed"
    happened = ", ".join(f"{count} {what}" for what, count in sorted(soak.happened.items()))
    note(
        "R15",
        f"{seconds} s of faults ({happened}), {len(verdict.attempts):,} readings: 0 lost, {len(refused)} "
        f"published as final after disk errors, {verdict.duplicated.total()} repeats; drained, "
        "and a fresh one went through",
    )
