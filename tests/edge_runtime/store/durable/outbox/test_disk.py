from __future__ import annotations

import random
import subprocess
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from edge_runtime.clock import SimulatedClock
from edge_runtime.errors import StoreError, StoreFull
from edge_runtime.store.durable.outbox import Outbox, OutboxConfig
from edge_runtime.store.durable.outbox.schema import connect_sqlite
from edge_runtime.store.durable.sqlite_errors import Code
from tests.edge_runtime.store.durable.outbox.outboxes import (
    EVERYTHING,
    FSYNC_FAILED,
    ROOT,
    WRITE_FAILED,
    Failing,
    cases,
    drain,
    ids,
    make,
    names,
    python,
)


@pytest.mark.parametrize("statement", ["BEGIN", "INSERT OR IGNORE INTO cases", "UPDATE ledger", "COMMIT", "PRAGMA"])
@pytest.mark.parametrize(
    ("code", "kind", "says"),
    [
        (Code.FULL, StoreFull, "free space"),
        (WRITE_FAILED, StoreError, "check its disk"),
        (FSYNC_FAILED, StoreError, "check its disk"),
        (Code.READONLY, StoreError, "read-only"),
        (Code.CANTOPEN, StoreError, "check its disk"),
    ],
)
def test_a_disk_error_refuses_that_call_only_and_heals_by_itself(
    tmp_path: Path, clock: SimulatedClock, statement: str, code: int, kind: type[StoreError], says: str
) -> None:
    faults: dict[str, int] = {}
    config = OutboxConfig(path=tmp_path / "outbox.db")
    with Outbox(config, clock, connect=lambda path: Failing(connect_sqlite(path), faults)) as outbox:
        outbox.put(cases(1, 2))
        assert ids(outbox.lease(1, EVERYTHING)) == [1]
        faults[statement] = code
        for _ in range(2):
            with pytest.raises(kind, match=says):
                outbox.put(cases(3))
        faults.clear()
        assert outbox.put(cases(3, 4)).accepted == names(3, 4)
        assert ids(outbox.lease(9, EVERYTHING)) == [2, 3, 4]  # 1 is still in flight
        assert outbox.ack(names(1)) == 1
        counts = outbox.counts()
        assert (counts.accepted, counts.queued) == (4, 3)
        assert counts.balances()
        assert outbox.damage == []


def test_a_commit_that_failed_late_but_happened_is_recognised(tmp_path: Path, clock: SimulatedClock) -> None:
    class FailsAfterCommit(Failing):
        def execute(self, sql: str, parameters: Sequence[Any] = (), /) -> Any:
            cursor = self._db.execute(sql, parameters)
            self._fail(sql)
            return cursor

    faults: dict[str, int] = {}
    config = OutboxConfig(path=tmp_path / "outbox.db")
    with Outbox(config, clock, connect=lambda path: FailsAfterCommit(connect_sqlite(path), faults)) as outbox:
        outbox.put(cases(1, 2, 3))
        outbox.lease(3, EVERYTHING)
        faults["COMMIT"] = FSYNC_FAILED
        with pytest.raises(StoreError):
            outbox.ack(names(1))
        with pytest.raises(StoreError):
            outbox.retry(names(2), 5, "again")
        with pytest.raises(StoreError):
            outbox.put(cases(4))
        faults.clear()
        assert outbox.ack(names(1, 2)) == 0  # the first was delivered, the second waits: neither is in flight
        assert outbox.put(cases(4)).duplicates == names(4)
        assert outbox.ack(names(3)) == 1
        counts = outbox.counts()
        assert (counts.accepted, counts.delivered, counts.queued, counts.in_flight) == (4, 2, 2, 0)
        assert counts.balances()


@pytest.mark.slow
def test_a_full_disk_is_survived(tmp_path: Path) -> None:
    """A limit on file size makes real writes fail at arbitrary places; lifting it is the space coming back."""
    program = """
        import resource, signal, sys
        from pathlib import Path
        from edge_runtime.clock import SystemClock
        from edge_runtime.errors import StoreError
        from edge_runtime.store.durable.outbox import HardCase, Outbox, OutboxConfig

        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        outbox = Outbox(OutboxConfig(path=Path(sys.argv[1])), SystemClock())
        acked, failed, number = set(), 0, 0
        for limit in (None, 30_000, None, 100_000, 70_000, None, 300_000, 0, None):
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit or resource.RLIM_INFINITY, resource.RLIM_INFINITY))
            if limit == 0:
                resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
            before = failed
            for _ in range(60):
                number += 1
                try:
                    result = outbox.put([HardCase(f"k@{number}", "k", 0, 1, 0, 0.5, bytes(3000), b"{}")])
                    acked.update(result.accepted)
                except StoreError as error:
                    assert "\\n" not in str(error)
                    failed += 1
                    last = failed
            if limit is None:
                assert failed == before, "did not heal"
        assert failed > 60, failed
        outbox.close()
        with Outbox(OutboxConfig(path=Path(sys.argv[1])), SystemClock()) as outbox:
            found = {case.id for case in outbox.lease(1000, 1 << 30)}
            assert acked <= found, sorted(acked - found)
            assert outbox.counts().balances() and not outbox.damage
        print(len(acked), failed)
    """
    done = python(program, str(tmp_path / "outbox.db"))
    assert done.returncode == 0, done.stderr


_COMMITTER = """
    import sys
    from pathlib import Path
    from edge_runtime.clock import SystemClock
    from edge_runtime.store.durable.outbox import HardCase, Outbox, OutboxConfig

    number = int(sys.argv[2])
    with Outbox(OutboxConfig(path=Path(sys.argv[1]), live_share=0), SystemClock()) as outbox:
        while True:
            group = [HardCase(f"k@{number + i}", "k", 0, 1, 0, 0.5, bytes(700), b"{}") for i in range(8)]
            number += 8
            outbox.put(group)
            print("a", *(case.id for case in group), flush=True)
            gone = [case.id for case in outbox.lease(5, 1 << 30)]
            print("s", *gone, flush=True)
            outbox.ack(gone)
            print("d", *gone, flush=True)
"""


@pytest.mark.slow
def test_a_killed_process_loses_nothing_that_it_acknowledged(tmp_path: Path, clock: SimulatedClock) -> None:
    rng = random.Random(5)
    acked: set[str] = set()
    sent: set[str] = set()
    delivered: set[str] = set()
    told = {"a": acked, "s": sent, "d": delivered}
    for round_ in range(6):
        child = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(_COMMITTER), str(tmp_path / "outbox.db"), str(round_ * 10**6)],
            stdout=subprocess.PIPE, text=True, cwd=ROOT,
        )  # fmt: skip
        assert child.stdout is not None
        lines = [child.stdout.readline() for _ in range(rng.randrange(1, 120))]
        child.kill()
        lines += child.stdout.read().splitlines()
        child.stdout.close()
        child.wait(10)
        for line in lines:
            kind, *about = line.split()
            told[kind].update(about)
    with make(tmp_path, clock, live_share=0) as outbox:
        assert outbox.damage == []
        counts = outbox.counts()
        assert counts.balances()
        left = {one.id for one in drain(outbox)}
    assert len(acked) > 200
    assert acked - sent - left == set(), "lost"
    assert delivered & left == set(), "settled for good, and back again"
    assert counts.accepted - len(acked) <= 6 * 8, "more than one group a kill was committed without an acknowledgement"
