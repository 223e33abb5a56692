"""What was dropped can be read after a full disk and a SIGKILL, and is restored by the next start."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import orjson

from tests.faults.device import Devices, needs_strace
from tests.faults.site import Site
from tests.integration.running import command, until

pytestmark = needs_strace


def listed(outbox: Path) -> dict[str, Any]:
    """As an operator reads it."""
    done = command("outbox", "list", outbox, "--json")
    assert done.code == 0, done.err
    found: dict[str, Any] = orjson.loads(done.out)
    return found


def test_drops_on_a_full_disk_are_readable_after_a_kill(tmp_path: Path, tiny_disk: Path) -> None:
    """Mutations that this finds: a file that is not allocated beforehand, one that is replaced instead of overwritten,
    and counters that begin again with each start."""
    with Devices() as devices, Site(tmp_path, disk=tiny_disk, max_bytes=64 * 2**20) as site:
        with devices.start(tmp_path) as device:
            site.subscribed(device)
            site.feed(2)
            site.cloud.stop()
            free = os.statvfs(tiny_disk)
            (tiny_disk / "rubbish").write_bytes(bytes(free.f_bavail * free.f_bsize))
            site.feed(40, at_once=20)
            hard = len(site.history.verdict().attempts)

            def accounted() -> bool:
                found = listed(site.outbox)
                return bool(found["counts"]["accepted"] + sum(found["lifetime"]["dropped"].values()) >= hard)

            until(accounted, lambda: f"{hard} {listed(site.outbox)} {device.errors()}")
            device.kill()
        before = listed(site.outbox)
        assert os.statvfs(tiny_disk).f_bavail * free.f_bsize < 4096, "the disk is not full"
        dropped = before["lifetime"]["dropped"]["outbox_error"]
        assert dropped >= 10
        assert "outbox_error" in command("outbox", "list", site.outbox).out
        (tiny_disk / "rubbish").unlink()
        with devices.start(tmp_path) as device:
            until(lambda: listed(site.outbox)["lifetime"]["starts"] == 2, device.errors)
            device.stop()
            assert device.wait() == 0, device.errors()
        assert listed(site.outbox)["lifetime"]["dropped"]["outbox_error"] >= dropped
