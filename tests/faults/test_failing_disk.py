"""R4: the disk is full, or fails, for a while. The device answers every reading meanwhile, and goes on by itself after.

What could not be committed although it was tried (`EscalationConfig.commit_attempts`) is dropped and counted; nothing
else is missing, and nothing that was committed before.

Mutations that were seen to fail here: not counting what a failed commit drops (``outbox_error`` in
`Escalator._committed`) or what is refused while it fails (in `Escalator.submit`); an application that ends when its
outbox cannot be opened (`SavedBudget.open`); never trying again (`Committer.retry`).
"""

from __future__ import annotations

import itertools
import os
import random
import time
from pathlib import Path

import pytest

from edge_runtime.clock import SimulatedClock
from edge_runtime.errors import StoreFull
from edge_runtime.store.durable.outbox import Outbox, OutboxConfig
from tests.edge_runtime.store.durable.outbox.outboxes import EVERYTHING, case
from tests.faults.conftest import Note
from tests.faults.device import Device, Devices, Fault, needs_strace
from tests.faults.site import Site
from tests.integration.running import PATIENCE_S, until
from tests.long_tier import Tier

pytestmark = needs_strace

DISK_CALLS = ("pwrite64", "fdatasync", "fsync", "ftruncate", "write", "openat", "pread64")
SMALL = 256 * 1024


def end(site: Site, device: Device) -> int:
    """Let it drain and stop; returns how many cases are missing, all of which it says that it dropped.

    It may say so of more than are missing: a failing disk cannot tell whether the last attempt to commit has worked.
    """
    until(site.drained, device.errors)
    device.stop()
    assert device.wait() == 0, device.errors()
    verdict = site.history.verdict()
    assert not verdict.unexpected
    assert verdict.acknowledged == verdict.attempts
    site.read_answers()
    missing = verdict.attempts.keys() - site.corrected.keys()
    dropped = {reason: count for reason, count in device.figures()["dropped"].items() if count}
    assert set(dropped) <= {"outbox_error", "outbox_full", "outbox_busy"}, dropped
    assert len(missing) <= sum(dropped.values()), (dropped, len(missing))
    assert missing == site.refused - site.corrected.keys(), "promised a correction that cannot come"
    return len(missing)


def test_a_disk_that_fails_now_and_then_costs_nothing_that_is_not_counted(
    memory: Path, rng: random.Random, tier: Tier, note: Note
) -> None:
    faults = 0
    with Devices() as devices, Site(memory, max_bytes=SMALL) as site, devices.start(memory) as device:
        site.subscribed(device)
        for _ in range(tier(2, 60)):
            for calls in DISK_CALLS:
                for error in ("ENOSPC", "EIO"):
                    first = rng.randrange(1, 12)
                    when = rng.choice((f"{first}", f"{first}..{first + 2}", f"{first}+{rng.randrange(2, 9)}"))
                    with device.failing(Fault(calls, f"error={error}", when)):
                        site.feed(3)
                    faults += 1
        site.feed(1)
        dropped = end(site, device)
        fed = len(site.history.acknowledged)
    note(
        "R4", f"{faults} disk errors while running, {fed} readings: all answered, {dropped} dropped and counted, 0 lost"
    )


def test_a_disk_that_fails_for_long_does_not_stop_it(memory: Path, note: Note) -> None:
    """Every write of the outbox fails; the readings are answered, and once the disk is well, cases are accepted."""
    with Devices() as devices, Site(memory, max_bytes=SMALL) as site, devices.start(memory) as device:
        site.subscribed(device)
        site.feed(3)
        for error in ("ENOSPC", "EIO"):
            with device.failing(Fault("pwrite64,fdatasync,fsync", f"error={error}", "1+")):
                site.feed(4)
        took, fed = recovery(site, device)
        dropped = end(site, device)
    assert dropped == 8 + fed - 1
    note("R4", f"8 readings while every write fails: all answered, 8 dropped and counted; whole {took:.1f} s after")


@pytest.mark.parametrize(
    ("calls", "error"), [("pwrite64,ftruncate", "ENOSPC"), ("pwrite64,ftruncate,fdatasync,fsync", "EIO")]
)
def test_a_start_on_a_failing_disk_answers_and_takes_up_the_backlog_once_it_is_well(
    memory: Path, note: Note, calls: str, error: str
) -> None:
    """An earlier life has left cases in the outbox; this one cannot open it, or cannot write to it."""
    with Devices() as devices, Site(memory, max_bytes=SMALL) as site:
        with devices.start(memory) as device:
            site.subscribed(device)
            site.cloud.stop()
            site.feed(3)
            device.stop()
            assert device.wait() == 0, device.errors()
        site.cloud.start()
        assert not site.history.delivered
        with devices.start(memory, Fault(calls, f"error={error}", "1+")) as device:
            site.feed(4)
            assert device.running(), device.errors()
            device.heal()
            took, fed = recovery(site, device)
            dropped = end(site, device)
    assert dropped == 4 + fed - 1
    note(
        "R4",
        f"a start with {error}: 4 readings answered, dropped and counted, 3 of before sent; whole {took:.1f} s after",
    )


def test_a_start_on_a_full_disk_answers_and_accepts_once_there_is_room(
    tmp_path: Path, tiny_disk: Path, note: Note
) -> None:
    """Real ENOSPC, with no outbox yet."""
    with Devices() as devices, Site(tmp_path, disk=tiny_disk) as site:
        rubbish = tiny_disk / "rubbish"
        free = os.statvfs(tiny_disk)
        rubbish.write_bytes(bytes(free.f_bavail * free.f_bsize))
        with devices.start(tmp_path) as device:
            site.subscribed(device)
            site.feed(5)
            assert device.running(), device.errors()
            rubbish.unlink()
            took, fed = recovery(site, device)
            dropped = end(site, device)
    assert dropped == 5 + fed - 1
    note("R4", f"a start on a full file system: 5 readings answered, dropped and counted; whole {took:.1f} s after")


def test_a_full_disk_refuses_cases_and_never_readings(tmp_path: Path, tiny_disk: Path, note: Note) -> None:
    """Real ENOSPC, wherever it comes. The cloud is away, so the outbox grows until there is no room, twice."""
    with Devices() as devices, Site(tmp_path, disk=tiny_disk, max_bytes=64 * 2**20) as site:
        with devices.start(tmp_path) as device:
            site.subscribed(device)
            site.feed(2)
            site.cloud.stop()
            for _ in range(2):
                rubbish = tiny_disk / "rubbish"
                free = os.statvfs(tiny_disk)
                rubbish.write_bytes(bytes(max(0, free.f_bavail - 8) * free.f_bsize))
                site.feed(60, at_once=20)
                rubbish.unlink()
                accepted_again(site, device)
                site.feed(20, at_once=20)
            before = len(site.history.delivered)
            site.cloud.start()
            until(lambda: len(site.history.delivered) > before, device.errors)
            dropped = end(site, device)
            fed = len(site.history.acknowledged)
    assert dropped
    note("R4", f"1 MiB file system full twice, {fed} readings: all answered, {dropped} dropped and counted, 0 lost")


def test_an_outbox_that_fills_its_disk_alone_can_give_all_of_it_back(
    tiny_disk: Path, rng: random.Random, tier: Tier, note: Note
) -> None:
    """Deleting writes, too: cases are accepted only while there is room for that. Found on a machine that was slow."""
    lives = tier(40, 1000)
    accepted = 0
    for life in range(lives):
        config = OutboxConfig(path=tiny_disk / "outbox.db", max_bytes=64 * 2**20, max_dead_bytes=0)
        with Outbox(config, SimulatedClock()) as outbox:
            full = 0
            while full < 3:
                sizes = rng.choices((200, 1200, 4000, 20_000), k=rng.choice((1, 3, 20)))
                group = [case(accepted + i, size=size) for i, size in enumerate(sizes)]
                try:
                    accepted += len(outbox.put(group).accepted)
                except StoreFull:
                    full += 1
            if life % 2:
                drain_at_random(outbox, rng)
        with Outbox(config, SimulatedClock()) as outbox:
            drain_at_random(outbox, rng)
            assert not outbox.counts().queued
        for file in tiny_disk.iterdir():
            file.unlink()
    assert accepted > 5 * lives
    note("R4", f"1 MiB file system filled by the outbox alone, {lives} times: {accepted} cases, all given back")


def test_an_outbox_at_its_limit_refuses_cases_and_never_readings(memory: Path, note: Note) -> None:
    """The smallest outbox there is, and a cloud that is away: SQLite's page limit is never met inside a commit."""
    with Devices() as devices, Site(memory, max_bytes=SMALL) as site, devices.start(memory) as device:
        site.subscribed(device)
        site.feed(2)
        site.cloud.stop()
        site.feed(800, at_once=20)
        assert site.outbox.stat().st_size <= SMALL
        site.cloud.start()
        dropped = end(site, device)
        figures = device.figures()["dropped"]
    assert figures["outbox_full"] == dropped > 0
    note("R4", f"outbox of 256 KiB full: {dropped} of 802 cases refused and counted, all answered, 0 lost")


def drain_at_random(outbox: Outbox, rng: random.Random) -> None:
    while taken := outbox.lease(rng.choice((1, 4, 64)), EVERYTHING):
        ids = [one.id for one in taken]
        if rng.random() < 0.2:
            outbox.retry(ids, 0.0, "refused")
        elif rng.random() < 0.2:
            outbox.move_to_dead_letters(ids, "rejected", "a detail" * 40)
        else:
            outbox.ack(ids, dict.fromkeys(ids, bytes(300)))


def accepted_again(site: Site, device: Device) -> tuple[str, int]:
    """Publish readings until the case of one is not refused; returns its id, and how many it took."""
    end = time.monotonic() + PATIENCE_S
    for fed in itertools.count(1):
        assert time.monotonic() < end, device.errors()
        (latest,) = site.publish(1)
        until(lambda latest=latest: latest in site.answers_read(), device.errors)  # type: ignore[misc]
        if latest not in site.refused:
            return latest, fed
    raise AssertionError


def recovery(site: Site, device: Device) -> tuple[float, int]:
    """Seconds until a case is accepted, which has then reached the cloud; and how many readings it took."""
    began = time.monotonic()
    accepted, fed = accepted_again(site, device)
    took = time.monotonic() - began
    until(lambda: accepted in site.history.delivered, device.errors)
    return took, fed
