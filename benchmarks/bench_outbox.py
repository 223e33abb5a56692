"""Durable cases a second through the outbox, in and out, beside what the disk alone can do.

Run: ``python -m benchmarks.bench_outbox [--folder DIR]``. Variants take turns; least, median and most of the rounds are
printed. Every case has a body of 1,200 random bytes. ``disk alone`` appends and flushes the same bytes to a
plain file, so it is the ceiling for the flushes of that moment: compare rows with it and with each other, not with
another day's.

- ``put`` is `Outbox.put`: accepted, durable on return. ``drain`` is `Outbox.lease` and `Outbox.ack`, 64 at a time.
- ``steady`` puts 32 and delivers 32 in turn, as a healthy link does; the rate counts cases that went all the way.
- ``written`` is bytes that reached the disk for each byte of body, in and out again: what a flash card wears by.
- ``NORMAL`` is SQLite's usual setting for a write-ahead log. It loses accepted cases at a power cut; it is here to show
  what durability costs, and the outbox has no option for it.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.report import spread
from edge_runtime.clock import SystemClock
from edge_runtime.store.durable.outbox import HardCase, Outbox, OutboxConfig
from edge_runtime.store.durable.outbox.schema import Database, connect_sqlite

BODY_BYTES = 1_200
TAKE = 64
ANY_BYTES = 2**30


class Rewritten:
    """A connection that runs other pragmas than it was given, to measure the ones that were chosen."""

    def __init__(self, db: Database, instead: dict[str, str]) -> None:
        self._db = db
        self._instead = instead

    def execute(self, sql: str, parameters: Sequence[Any] = (), /) -> Any:
        return self._db.execute(self._instead.get(sql, sql), parameters)

    def executemany(self, sql: str, parameters: Iterable[Sequence[Any]], /) -> Any:
        return self._db.executemany(sql, parameters)

    def close(self) -> None:
        self._db.close()


@dataclass
class Variant:
    name: str
    group: int
    instead: dict[str, str] = field(default_factory=dict)
    steady: bool = False
    put: list[float] = field(default_factory=list)
    """Cases a second, one figure a round."""
    put_cpu_us: list[float] = field(default_factory=list)
    drain: list[float] = field(default_factory=list)
    written: list[float] = field(default_factory=list)
    """Bytes that reached the disk for each byte of body, in and out."""


def variants(*, pragmas: bool) -> list[Variant]:
    chosen = [
        Variant("FULL, single commits", 1),
        Variant("FULL, groups of 8", 8),
        Variant("FULL, groups of 32", 32),
        Variant("FULL, groups of 256", 256),
        Variant("NORMAL, groups of 32", 32, {"PRAGMA synchronous = FULL": "PRAGMA synchronous = NORMAL"}),
        Variant("FULL, steady, groups of 32", 32, steady=True),
    ]
    if pragmas:
        chosen += [
            Variant("log 250 pages", 32, {"PRAGMA wal_autocheckpoint = 1000": "PRAGMA wal_autocheckpoint = 250"}),
            Variant("log 4000 pages", 32, {"PRAGMA wal_autocheckpoint = 1000": "PRAGMA wal_autocheckpoint = 4000"}),
            Variant("secure_delete off", 32, {"PRAGMA secure_delete = ON": "PRAGMA secure_delete = OFF"}),
            Variant("shared log index", 32, {"PRAGMA locking_mode = EXCLUSIVE": "PRAGMA locking_mode = NORMAL"}),
            Variant("memory map", 32, {"PRAGMA mmap_size = 0": "PRAGMA mmap_size = 268435456"}),
        ]
    return chosen


def make_cases(count: int, seed: int) -> list[HardCase]:
    rng = random.Random(seed)
    return [
        HardCase(
            f"watch-{n % 16}@{n // 16}", f"watch-{n % 16}", 1.7e9, 30.0, n % 2, 0.5, rng.randbytes(BODY_BYTES), b"{}"
        )
        for n in range(count)
    ]


def run(variant: Variant, folder: Path, cases: list[HardCase]) -> None:
    config = OutboxConfig(path=folder / "outbox.db", live_share=0)
    with Outbox(config, SystemClock(), connect=lambda p: Rewritten(connect_sqlite(p), variant.instead)) as outbox:
        began, cpu, written = time.perf_counter(), time.process_time(), bytes_written()
        for at in range(0, len(cases), variant.group):
            outbox.put(cases[at : at + variant.group])
            if variant.steady:
                outbox.ack([case.id for case in outbox.lease(variant.group, ANY_BYTES)])
        variant.put.append(len(cases) / (time.perf_counter() - began))
        variant.put_cpu_us.append((time.process_time() - cpu) / len(cases) * 1e6)
        if not variant.steady:
            began = time.perf_counter()
            while taken := outbox.lease(TAKE, ANY_BYTES):
                outbox.ack([case.id for case in taken])
            variant.drain.append(len(cases) / (time.perf_counter() - began))
        variant.written.append((bytes_written() - written) / len(cases) / BODY_BYTES)
        counts = outbox.counts()
        if counts.delivered != len(cases) or not counts.balances():
            raise SystemExit(f"{variant.name}: {counts}")


def bytes_written() -> int:
    """Read the bytes that this process has sent to block devices; 0 on a file system in memory."""
    for line in Path("/proc/self/io").read_text().splitlines():
        if line.startswith("write_bytes:"):
            return int(line.split()[1])
    return 0


def disk_alone(folder: Path, cases: list[HardCase], group: int) -> float:
    """Cases a second when their bodies are appended to a file and flushed in groups, and nothing else is done."""
    descriptor = os.open(folder / "plain", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        began = time.perf_counter()
        for at in range(0, len(cases), group):
            os.write(descriptor, b"".join(case.body for case in cases[at : at + group]))
            os.fdatasync(descriptor)
        return len(cases) / (time.perf_counter() - began)
    finally:
        os.close(descriptor)


def in_new_folder(beside: Path, work: Callable[[Path], Any]) -> Any:
    folder = Path(tempfile.mkdtemp(dir=beside))
    try:
        return work(folder)
    finally:
        shutil.rmtree(folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()), help="on the disk to measure")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--cases", type=int, default=20_000, help="in a round")
    parser.add_argument("--pragmas", action="store_true", help="also measure the settings that were not chosen")
    parser.add_argument("--json", action="store_true", help="print JSON")
    arguments = parser.parse_args()
    table = variants(pragmas=arguments.pragmas)
    cases = make_cases(arguments.cases, seed=3)
    ceilings: dict[int, list[float]] = {1: [], 32: []}
    for _ in range(arguments.rounds):
        for group, rates in ceilings.items():
            some = cases[: max(500, len(cases) * group // 256)]
            rates.append(in_new_folder(arguments.folder, partial(disk_alone, cases=some, group=group)))
        for variant in table:
            some = cases[: max(500, len(cases) // 16)] if variant.group == 1 else cases
            in_new_folder(arguments.folder, partial(run, variant, cases=some))
    rows = [
        (v.name, spread(v.put), spread(v.put_cpu_us, 1), spread(v.drain) if v.drain else "", spread(v.written, 2))
        for v in table
    ]
    rows += [(f"disk alone, groups of {group}", spread(rates), "", "", "") for group, rates in ceilings.items()]
    rate = {v.name: v.put for v in table}
    ratios = {
        "groups of 32 over single commits": _over(rate["FULL, groups of 32"], rate["FULL, single commits"]),
        "FULL over NORMAL, groups of 32": _over(rate["FULL, groups of 32"], rate["NORMAL, groups of 32"]),
        "groups of 32 over the disk alone": _over(rate["FULL, groups of 32"], ceilings[32]),
    }
    columns = ("variant", "put/s", "CPU us", "drain/s", "written")
    if arguments.json:
        plain = [dict(zip(columns, row, strict=True)) for row in rows]
        print(json.dumps({"rows": plain, "ratios": {name: spread(own, 2) for name, own in ratios.items()}}, indent=2))
        return
    print(f"least / median / most of {arguments.rounds} rounds")
    for row in (columns, *rows):
        print(f"{row[0]:<30}" + "".join(f"{cell:>{w}}" for cell, w in zip(row[1:], (28, 24, 28, 24), strict=True)))
    for name, own in ratios.items():
        print(f"{name}: {spread(own, 2)} x")


def _over(some: Sequence[float], others: Sequence[float]) -> list[float]:
    """Ratios within each round."""
    return [one / other for one, other in zip(some, others, strict=True)]


if __name__ == "__main__":
    main()
