"""R2: power fails at every moment of the outbox's life, and what it acknowledged is there.

Mutation that must be seen: the control run here replaces ``synchronous = FULL`` by ``NORMAL``, which is the usual
advice for a write-ahead log; it loses acknowledged cases. It is run forever, since a crash test that cannot fail proves
nothing. (Tried by hand besides: ``NORMAL`` in `opening._configure` fails the first test within a second, ``OFF`` the
second.)
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import pytest

from edge_runtime.clock import SimulatedClock
from edge_runtime.store.durable.outbox import HardCase, Outbox, OutboxConfig
from edge_runtime.store.durable.outbox.schema import Connect, connect_sqlite
from tests.edge_runtime.store.durable.outbox.outboxes import Rewritten
from tests.faults.conftest import Note
from tests.faults.oracle import missing
from tests.faults.power import NAME, Disk, Image, Mode, restore
from tests.long_tier import Tier

pytestmark = pytest.mark.slow

SMALL = 256 * 1024
"""Bytes: a checkpoint every sixteen pages, so that power fails in many of them."""
EVERYTHING = 2**30


class Promised(NamedTuple):
    """What the outbox had said at some moment."""

    safe: frozenset[str]
    """Accepted, and nobody has begun to take them out."""
    gone: frozenset[str]
    """Delivered: never to be seen again."""


@dataclass
class Life:
    """Random work on an outbox, with what it promised marked in the disk's log."""

    folder: Path
    rng: random.Random
    bodies: dict[str, bytes] = field(default_factory=dict)
    safe: frozenset[str] = frozenset()
    gone: frozenset[str] = frozenset()

    def config(self) -> OutboxConfig:
        return OutboxConfig(path=self.folder / NAME, max_bytes=SMALL, live_share=0.0)

    def live(self, disk: Disk, connect: Connect, steps: int) -> None:
        """Cases come and go; now and then the outbox is closed and opened again."""
        clock = SimulatedClock()
        outbox = Outbox(self.config(), clock, connect=connect)
        for step in range(steps):
            disk.mark(Promised(self.safe, self.gone))
            match self.rng.choices(("put", "deliver", "retry", "dead letter", "state", "close"), (6, 5, 2, 1, 1, 0.3))[
                0
            ]:
                case "put":
                    group = [self._case(f"watch@{step}-{i}") for i in range(self.rng.choice((1, 1, 2, 8)))]
                    self.safe |= set(outbox.put(group).accepted)
                case "deliver":
                    ids = [case.id for case in outbox.lease(self.rng.choice((1, 4, 16)), EVERYTHING)]
                    self.safe -= set(ids)
                    disk.mark(Promised(self.safe, self.gone))
                    outbox.ack(ids)
                    self.gone |= set(ids)
                case "retry":
                    outbox.retry([case.id for case in outbox.lease(3, EVERYTHING)], 5.0, "no answer")
                case "dead letter":
                    outbox.move_to_dead_letters([case.id for case in outbox.lease(1, EVERYTHING)], "rejected", "no")
                case "state":
                    outbox.put_state("budget", self.rng.randbytes(40))
                case _:
                    outbox.close()
                    outbox = Outbox(self.config(), clock, connect=connect)
            clock.advance(1.0)
        disk.mark(Promised(self.safe, self.gone))
        outbox.close()

    def _case(self, name: str) -> HardCase:
        self.bodies[name] = self.rng.randbytes(self.rng.choice((60, 400, 400, 3000, 9000)))
        return HardCase(name, "watch", 0.0, 30.0, self.rng.randrange(2), 0.5, self.bodies[name], b"{}")


def check(image: Image, folder: Path, bodies: dict[str, bytes], connect: Connect = connect_sqlite) -> set[str]:
    """Open what the power cut left; returns what is lost, and fails for everything that is never right."""
    clock = SimulatedClock()
    config = OutboxConfig(path=folder / NAME, max_bytes=SMALL, live_share=0.0)
    with Outbox(config, clock, connect) as outbox:
        where = f"{image.mode} at {image.moment}"
        assert outbox.damage == [], where
        assert missing(outbox.counts()) == 0, where
        clock.advance(10.0)  # what waits for another try is due
        cases = outbox.lease(10_000, EVERYTHING) + [letter.case for letter in outbox.dead_letters()]
        assert outbox.counts().dropped["damaged"] == 0, where
    found = {case.id for case in cases}
    assert all(bodies.get(case.id) == case.body for case in cases), f"{where}: a body that nobody put"
    promised = image.promised or Promised(frozenset(), frozenset())
    assert not found & promised.gone, f"{where}: delivered, and back"
    return set(promised.safe - found)


MODES: tuple[Mode, ...] = ("dropped", "kept", "torn", "torn", "torn")


def test_a_power_cut_at_any_moment_loses_nothing_acknowledged(
    memory: Path, rng: random.Random, tier: Tier, note: Note
) -> None:
    wanted, tried, lives = tier(2_000, 100_000), 0, 0
    while tried < wanted:
        life = Life(memory / f"life-{lives}", rng)
        life.folder.mkdir()
        lives += 1
        with Disk() as disk:
            life.live(disk, disk.connect, 40)
            for image in itertools.islice(disk.images(MODES, rng), wanted - tried):
                restore(image.files, memory / "image")
                assert check(image, memory / "image", life.bodies) == set(), f"{image.mode} at {image.moment}"
                tried += 1
    note("R2", f"{tried:,} power cuts in {lives} lives of an outbox: 0 lost, 0 corrupt, 0 back after delivery")


def test_a_power_cut_while_it_recovers_from_a_power_cut_loses_nothing(
    memory: Path, rng: random.Random, tier: Tier, note: Note
) -> None:
    life = Life(memory / "life", rng)
    life.folder.mkdir()
    firsts = seconds = 0
    with Disk() as disk:
        life.live(disk, disk.connect, 60)
        every = max(1, len(disk.events) // tier(15, 400))
        for image in disk.images(["dropped", "torn"], rng, every):
            restore(image.files, memory / "image")
            with Disk({NAME: b""} | image.files) as again:
                check(image, memory / "image", life.bodies, again.connect)
                firsts += 1
                for second in again.images(["dropped", "torn"], rng):
                    restore(second.files, memory / "image")
                    twice = second._replace(promised=image.promised)
                    assert check(twice, memory / "image", life.bodies) == set(), f"{image.moment}, {second.moment}"
                    seconds += 1
    assert seconds > firsts
    note("R2", f"{seconds:,} more while {firsts} of them were recovered from: 0 lost, 0 corrupt")


def test_the_control_run_without_full_flushing_is_seen_to_lose(memory: Path, rng: random.Random, note: Note) -> None:
    """`synchronous = NORMAL` flushes at checkpoints only. If this finds no loss, the test above has no teeth."""
    tried = lossy = worst = 0
    instead = {"PRAGMA synchronous = FULL": "PRAGMA synchronous = NORMAL"}
    life = Life(memory / "life", rng)
    life.folder.mkdir()
    with Disk() as disk:
        connect: Callable[[Path], Rewritten] = lambda path: Rewritten(disk.connect(path), instead)  # noqa: E731 - short
        life.live(disk, connect, 60)
        for image in itertools.islice(disk.images(["dropped"], rng), 2_000):
            restore(image.files, memory / "image")
            # What was delivered may be back as well: with NORMAL nothing holds, which is what is to be seen.
            promised = image._replace(promised=Promised(image.promised.safe, frozenset()) if image.promised else None)
            lost = check(promised, memory / "image", life.bodies)
            tried += 1
            lossy += bool(lost)
            worst = max(worst, len(lost))
    note("R2", f"control with synchronous=NORMAL: {lossy} of {tried} power cuts lose acknowledged cases, up to {worst}")
    assert lossy > tried // 20
