"""R2 for the journal: power fails at every moment, and every reading that was acknowledged is there, in order.

Mutation that must be seen: the control run replaces ``synchronous = FULL`` by ``NORMAL``, and loses acknowledged turns.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from edge_runtime.store.durable.outbox.schema import Connect, connect_sqlite
from edge_runtime.store.durable.reading_log_file import LogEntry, ReadingLogFile
from tests.edge_runtime.store.durable.outbox.outboxes import Rewritten
from tests.faults.conftest import Note
from tests.faults.power import Disk, Image, Mode
from tests.faults.power import restore as restore_files
from tests.long_tier import Tier

NAME = "outbox.db"
"""As `tests.faults.test_power_loss.restore` names the file that exists."""
MAX_BYTES = 2**20


class Held(NamedTuple):
    """What the journal holds between two transactions."""

    snapshot: bytes
    entries: tuple[LogEntry, ...]


@dataclass
class Life:
    """Turns and snapshots, and what the journal held after each commit; a mark is the position of the last of them."""

    path: Path
    rng: random.Random
    held: list[Held] = field(default_factory=lambda: [Held(b"", ())])

    def live(self, disk: Disk, connect: Connect, steps: int) -> None:
        file = ReadingLogFile(self.path, MAX_BYTES, connect)
        file.read()
        disk.mark(0)
        seq = 0
        for _ in range(steps):
            now = self.held[-1]
            match self.rng.choices(("append", "snapshot", "close"), (8, 2, 0.5))[0]:
                case "append":
                    group = []
                    for _ in range(self.rng.choice((1, 1, 3))):
                        seq += 1
                        group.append(LogEntry(seq, self.rng.randbytes(self.rng.choice((60, 300, 2000)))))
                    self.held.append(Held(now.snapshot, (*now.entries, *group)))
                    file.append(group, 0)
                case "snapshot":
                    seq += 1
                    body = self.rng.randbytes(self.rng.choice((500, 5000, 20_000)))
                    self.held.append(Held(body, ()))
                    file.replace("contract", LogEntry(seq, body))
                case _:
                    file.close()
                    continue
            disk.mark(len(self.held) - 1)
        file.close()


def lost(image: Image, life: Life, folder: Path) -> bool:
    """Whether what the power cut left is neither what was promised nor that with the transaction under way."""
    restore_files(image.files, folder)
    file = ReadingLogFile(folder / NAME, MAX_BYTES, connect_sqlite)
    found = file.read()
    file.close()
    assert found.damaged == 0, f"{image.mode} at {image.moment}"
    at = image.promised or 0
    return Held(found.snapshot, tuple(found.entries)) not in life.held[at : at + 2]


MODES: tuple[Mode, ...] = ("dropped", "kept", "torn", "torn")


def test_a_power_cut_at_any_moment_loses_no_acknowledged_reading(
    memory: Path, rng: random.Random, tier: Tier, note: Note
) -> None:
    wanted, tried, lives = tier(1_000, 50_000), 0, 0
    while tried < wanted:
        life = Life(memory / f"life-{lives}" / NAME, rng)
        life.path.parent.mkdir()
        lives += 1
        with Disk() as disk:
            life.live(disk, disk.connect, 30)
            for image in disk.images(MODES, rng):
                assert not lost(image, life, memory / "image"), f"{image.mode} at {image.moment}"
                tried += 1
    note("R2", f"{tried:,} power cuts in {lives} lives of a journal: 0 lost, 0 out of order")


def test_the_control_run_without_full_flushing_is_seen_to_lose(memory: Path, rng: random.Random, note: Note) -> None:
    """If this finds no loss, the test above has no teeth."""
    instead = {"PRAGMA synchronous = FULL": "PRAGMA synchronous = NORMAL"}
    life = Life(memory / "life" / NAME, rng)
    life.path.parent.mkdir()
    with Disk() as disk:
        connect: Callable[[Path], Rewritten] = lambda path: Rewritten(disk.connect(path), instead)  # noqa: E731 - short
        life.live(disk, connect, 30)
        images = list(itertools.islice(disk.images(["dropped"], rng), 500))
        lossy = sum(lost(image, life, memory / "image") for image in images)
    assert lossy
    note("R2", f"control with synchronous=NORMAL: {lossy} of {len(images)} power cuts lose journalled readings")
