"""Cases, outboxes and disks that the tests of the outbox share."""

from __future__ import annotations

import random
import sqlite3
import subprocess
import sys
import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from edge_runtime.clock import SimulatedClock
from edge_runtime.store.durable.outbox import HardCase, Outbox, OutboxConfig
from edge_runtime.store.durable.outbox.schema import Database, connect_sqlite
from edge_runtime.store.durable.sqlite_errors import Code

EVERYTHING = 2**30
# Extended result codes (https://www.sqlite.org/rescode.html): the `sqlite3` of Python 3.10 has no names for them.
READ_FAILED = Code.IOERR | 1 << 8
WRITE_FAILED = Code.IOERR | 3 << 8
FSYNC_FAILED = Code.IOERR | 4 << 8
CORRUPT_INDEX = Code.CORRUPT | 3 << 8
ROOT = Path(__file__).parents[5]


def case(number: int, *, priority: int = 0, value: float = 0.5, size: int = 600) -> HardCase:
    """A case whose body can be told from every other's."""
    body = random.Random(number).randbytes(size)
    return HardCase(f"watch@{number}", "watch", 1_000.0 + number, 30.0, priority, value, body, b"{}")


def cases(*numbers: int) -> list[HardCase]:
    return [case(number) for number in numbers]


def ids(taken: Iterable[HardCase]) -> list[int]:
    return [int(one.id.rpartition("@")[2]) for one in taken]


def names(*numbers: int) -> list[str]:
    return [f"watch@{number}" for number in numbers]


def make(folder: Path, clock: SimulatedClock, **limits: Any) -> Outbox:
    return Outbox(OutboxConfig(path=folder / "outbox.db", **limits), clock)


def drain(outbox: Outbox) -> list[HardCase]:
    """Everything that is due, settled as delivered."""
    drained: list[HardCase] = []
    while taken := outbox.lease(64, EVERYTHING):
        assert outbox.ack(one.id for one in taken) == len(taken)
        drained += taken
    return drained


def crash_image(folder: Path, to: Path, name: str = "outbox.db") -> Path:
    """What a process killed now would leave behind."""
    to.mkdir()
    for file in folder.glob(f"{name}*"):
        (to / file.name).write_bytes(file.read_bytes())
    return to


def check_size(config: OutboxConfig) -> None:
    log = config.path.with_name(config.path.name + "-wal")
    assert config.path.stat().st_size <= config.max_bytes
    assert not log.exists() or log.stat().st_size <= config.log_limit


def without_flushing(path: Path) -> Database:
    """The same database without the waiting: these tests do not cut the power."""
    return Rewritten(connect_sqlite(path), {"PRAGMA synchronous = FULL": "PRAGMA synchronous = OFF"})


class Rewritten:
    """A connection that runs other statements than it was given."""

    def __init__(self, db: Database, instead: dict[str, str]) -> None:
        self._db = db
        self._instead = instead

    def execute(self, sql: str, parameters: Sequence[Any] = (), /) -> Any:
        return self._db.execute(self._instead.get(sql, sql), parameters)

    def executemany(self, sql: str, parameters: Iterable[Sequence[Any]], /) -> Any:
        return self._db.executemany(sql, parameters)

    def close(self) -> None:
        self._db.close()


def python(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), *arguments],
        capture_output=True, text=True, check=False, timeout=60, cwd=ROOT,
    )  # fmt: skip


class Failing:
    """A connection whose disk fails at a chosen statement, as long as `fault` is set."""

    def __init__(self, db: Database, faults: dict[str, int]) -> None:
        self._db = db
        self._faults = faults

    def _fail(self, sql: str) -> None:
        for start, code in self._faults.items():
            if sql.startswith(start):
                error = sqlite3.OperationalError("injected")
                error.sqlite_errorcode = code
                raise error

    def execute(self, sql: str, parameters: Sequence[Any] = (), /) -> Any:
        self._fail(sql)
        return self._db.execute(sql, parameters)

    def executemany(self, sql: str, parameters: Iterable[Sequence[Any]], /) -> Any:
        self._fail(sql)
        return self._db.executemany(sql, parameters)

    def close(self) -> None:
        self._db.close()


def make_and_close(folder: Path, clock: SimulatedClock) -> None:
    with make(folder, clock):
        pass
