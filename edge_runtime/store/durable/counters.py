"""Lifetime counters: what was counted and dropped, added up over runs, in a file that a full disk cannot refuse.

Rules:

1. The file has two slots of 4,096 bytes, allocated when it is made. They are written alternately, in place.
2. A slot is ``EDCT``, a CRC-32 of what follows, a sequence number, the length of a JSON object, and that object. The
   slot with the highest number and a right checksum counts: a write that was torn costs itself alone.
3. A thread of its own writes: within a second where a drop was counted, within ten where anything else was.
4. It is flushed once a minute and at the end. A crash of the process costs nothing more than rule 3; a power cut costs
   the last minute of counting.

In place holds for file systems that overwrite (ext4, xfs, f2fs for small writes, tmpfs). One that copies on write, such
as btrfs, may refuse on a full disk; what was written before stays readable.
"""

from __future__ import annotations

import contextlib
import logging
import os
import struct
import threading
import zlib
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import orjson

from edge_runtime.clock import Clock
from edge_runtime.metrics import Metrics
from edge_runtime.store.durable.outbox.path_checks import refuse_foreign

log = logging.getLogger(__name__)

SLOT_BYTES: Final = 4096
_HEAD: Final = struct.Struct("<4sIQI")
_MAGIC: Final = b"EDCT"
DROPS_S: Final = 1.0
"""Longest time in which a drop is written."""
_COUNTS_S: Final = 10.0
_FLUSH_S: Final = 60.0
_OTHER: Final = "other"


@dataclass(slots=True)
class CounterTotals:
    """Counters over all runs of an application."""

    since: float = 0.0
    """Wall clock of the first start, for people."""
    starts: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    dropped: Counter[str] = field(default_factory=Counter)

    def plain(self) -> dict[str, Any]:
        """As plain data, ready for JSON."""
        return {
            "since": self.since,
            "starts": self.starts,
            "counts": dict(self.counts),
            "dropped": dict(self.dropped),
        }


def read_totals(path: Path) -> CounterTotals | None:
    """Read what was written last; None where nothing is readable. Works beside a running application."""
    try:
        data = path.read_bytes()
    except OSError:
        return None
    return _newest(data)[1]


def _newest(data: bytes) -> tuple[int, CounterTotals | None]:
    """Sequence number and contents of the newest whole slot (rule 2)."""
    best, found = 0, None
    for at in (0, SLOT_BYTES):
        slot = data[at : at + SLOT_BYTES]
        if len(slot) < _HEAD.size:
            continue
        magic, crc, seq, size = _HEAD.unpack_from(slot)
        if magic != _MAGIC or seq <= best or zlib.crc32(slot[8 : _HEAD.size + size]) != crc:
            continue
        with contextlib.suppress(orjson.JSONDecodeError, KeyError, TypeError, ValueError):
            plain = orjson.loads(slot[_HEAD.size : _HEAD.size + size])
            totals = CounterTotals(
                float(plain["since"]), int(plain["starts"]), Counter(plain["counts"]), Counter(plain["dropped"])
            )
            best, found = seq, totals
    return best, found


def _slot(seq: int, totals: CounterTotals) -> bytes:
    """One slot. What does not fit is added up as ``other``, the smallest first, counts before drops."""
    counts, dropped = Counter(totals.counts), Counter(totals.dropped)
    while True:
        body = orjson.dumps(CounterTotals(totals.since, totals.starts, counts, dropped).plain())
        if _HEAD.size + len(body) <= SLOT_BYTES:
            break
        table = counts if len(counts) > 1 else dropped
        least = min((name for name in table if name != _OTHER), key=lambda name: table[name])
        table[_OTHER] += table.pop(least)
    tail = struct.pack("<QI", seq, len(body)) + body
    return (struct.pack("<4sI", _MAGIC, zlib.crc32(tail)) + tail).ljust(SLOT_BYTES, b"\0")


class LifetimeCounters:
    """Adds this run's counters to those of the runs before, and writes them down.

    Args:
        path: the file's path; its folder must exist.
        metrics: this run's metrics; only read.
        clock: wall clock, for the first start; monotonic, for when to write.
    """

    def __init__(self, path: Path, metrics: Metrics, clock: Clock) -> None:
        self._path = path
        self._metrics = metrics
        self._clock = clock
        self._before = CounterTotals()
        self._fd = -1
        self._seq = 0
        self._written: tuple[dict[str, int], dict[str, int]] = ({}, {})
        self._written_at = self._flushed_at = clock.monotonic()
        self._failing = False
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._write_forever, name="lifetime counters", daemon=True)

    def open(self) -> None:
        """Read what the runs before counted, and begin to write. A disk that fails or is full is tried again.

        Raises:
            StoreUnusable: others could have written the file.
        """
        with contextlib.suppress(OSError):
            refuse_foreign(self._path)
            self._seq, found = _newest(self._path.read_bytes())
            self._before = found or self._before
        self._before.since = self._before.since or self._clock.wall()
        self._before.starts += 1
        self._write()
        self._thread.start()

    def totals(self) -> CounterTotals:
        """All runs, this one included."""
        counts, dropped = self._now()
        before = self._before
        return CounterTotals(
            before.since, before.starts, before.counts + Counter(counts), before.dropped + Counter(dropped)
        )

    def close(self) -> None:
        """Write and flush once more. May be called twice."""
        if self._thread.is_alive():
            self._stopping.set()
            self._thread.join()
        if self._fd >= 0:
            self._write()
            self._flush()
            os.close(self._fd)
            self._fd = -1

    def _now(self) -> tuple[dict[str, int], dict[str, int]]:
        return dict(self._metrics.counts), dict(self._metrics.dropped)

    def _write_forever(self) -> None:
        while not self._stopping.wait(DROPS_S):
            counts, dropped = self._now()
            now = self._clock.monotonic()
            idle = now - self._written_at
            due = dropped != self._written[1] or (counts != self._written[0] and idle >= _COUNTS_S)  # rule 3
            if due or self._failing or self._removed():
                self._write()
            if now - self._flushed_at >= _FLUSH_S:
                self._flush()

    def _write(self) -> None:
        try:
            if self._fd >= 0 and self._removed():
                log.warning("the counters %s were removed while they were in use; they are written again", self._path)
                os.close(self._fd)
                self._fd = -1
            if self._fd < 0:
                self._fd = self._made()
            now = self._now()
            self._seq += 1
            os.pwrite(self._fd, _slot(self._seq, self.totals()), SLOT_BYTES * (self._seq % 2))
        except OSError as error:
            if not self._failing:
                log.warning("the counters cannot be written to %s: %s", self._path, error.strerror)
            self._failing = True
            return
        self._failing = False
        self._written, self._written_at = now, self._clock.monotonic()

    def _removed(self) -> bool:
        """Handle a file that was deleted or replaced."""
        try:
            return self._fd >= 0 and not os.path.samestat(self._path.stat(), os.fstat(self._fd))
        except OSError:
            return True

    def _made(self) -> int:
        """Open the file, and allocate it (rule 1).

        Raises:
            OSError: the disk is full, or fails.
        """
        fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            os.posix_fallocate(fd, 0, 2 * SLOT_BYTES)
        except OSError:
            os.close(fd)
            raise
        return fd

    def _flush(self) -> None:
        self._flushed_at = self._clock.monotonic()
        if self._fd >= 0:
            with contextlib.suppress(OSError):  # said at the next write, if it lasts
                os.fsync(self._fd)
