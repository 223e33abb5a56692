from __future__ import annotations

import os
import sqlite3
import threading
from pathlib import Path

import pytest

from edge_runtime.clock import SimulatedClock
from edge_runtime.errors import StoreError
from edge_runtime.store import Outbox, OutboxConfig
from edge_runtime.store import schema as store_schema
from tests.edge_runtime.store.outboxes import (
    EVERYTHING,
    cases,
    make,
    make_and_close,
    names,
    python,
    without_flushing,
)


def test_making_an_outbox_touches_no_disk(tmp_path: Path, clock: SimulatedClock) -> None:
    make(tmp_path, clock).close()
    assert list(tmp_path.iterdir()) == []


def test_the_files_are_for_their_owner_only(tmp_path: Path, clock: SimulatedClock) -> None:
    before = os.umask(0)
    try:
        with make(tmp_path, clock) as outbox:
            outbox.put(cases(1))
            files = {file.name: file.stat().st_mode & 0o777 for file in tmp_path.iterdir()}
    finally:
        os.umask(before)
    assert files == dict.fromkeys(("outbox.db", "outbox.db-wal", "outbox.db.lock"), 0o600)


def test_a_missing_folder_is_named(tmp_path: Path, clock: SimulatedClock) -> None:
    outbox = make(tmp_path / "nowhere", clock)
    with pytest.raises(StoreError, match="nowhere does not exist; create it"):
        outbox.open()
    (tmp_path / "nowhere").mkdir()
    assert outbox.put(cases(1)).accepted  # and mended
    outbox.close()


def test_a_second_owner_is_turned_away_at_once(tmp_path: Path, clock: SimulatedClock) -> None:
    other = f"""
        from pathlib import Path
        from edge_runtime.clock import SystemClock
        from edge_runtime.store import Outbox, OutboxConfig
        Outbox(OutboxConfig(path=Path({str(tmp_path / "outbox.db")!r})), SystemClock()).open()
    """
    with make(tmp_path, clock) as outbox:
        outbox.put(cases(1))
        with pytest.raises(StoreError, match="in use by another process"):
            make(tmp_path, clock).open()
        turned_away = python(other)
        assert turned_away.returncode == 1
        assert "in use by another process" in turned_away.stderr
        outbox.put(cases(2))
    assert python(other).returncode == 0


def test_a_program_that_reads_the_file_is_reported_and_not_waited_for(tmp_path: Path, clock: SimulatedClock) -> None:
    with make(tmp_path, clock) as outbox:
        outbox.put(cases(0))
    reader = sqlite3.connect(tmp_path / "outbox.db", isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT * FROM cases").fetchall()
    outbox = make(tmp_path, clock)
    with pytest.raises(StoreError, match="in use by another"):
        outbox.open()
    reader.close()
    assert outbox.put(cases(1)).accepted
    outbox.close()


def test_somebody_elses_database_is_left_alone(tmp_path: Path, clock: SimulatedClock) -> None:
    other = sqlite3.connect(tmp_path / "outbox.db")
    other.execute("CREATE TABLE letters (text)")
    other.commit()
    other.close()
    before = (tmp_path / "outbox.db").read_bytes()
    with pytest.raises(StoreError, match="somebody else's database; give the outbox a file of its own"):
        make_and_close(tmp_path, clock)
    assert (tmp_path / "outbox.db").read_bytes() == before


def test_an_older_file_is_upgraded_and_a_newer_one_refused(
    tmp_path: Path, clock: SimulatedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    with make(tmp_path, clock) as outbox:
        outbox.put(cases(1, 2))
    newer = (*store_schema.UPGRADES, ("CREATE TABLE notes (text TEXT)", "INSERT INTO notes VALUES ('v2')"))
    with monkeypatch.context() as patch:
        patch.setattr("edge_runtime.store.opening.UPGRADES", newer)
        with make(tmp_path, clock) as outbox:
            assert outbox.counts().queued == 2
            assert outbox.damage == []
    db = sqlite3.connect(tmp_path / "outbox.db")
    assert db.execute("SELECT text FROM notes").fetchall() == [("v2",)]
    db.close()
    with pytest.raises(StoreError, match="schema 2, this version knows up to 1; install the newer"):
        make(tmp_path, clock).open()


def test_a_closed_outbox_says_so(tmp_path: Path, clock: SimulatedClock) -> None:
    outbox = make(tmp_path, clock)
    outbox.open()
    outbox.close()
    outbox.close()
    with pytest.raises(StoreError, match="closed"):
        outbox.put(cases(1))


def test_putting_and_forwarding_at_the_same_time_loses_nothing(tmp_path: Path, clock: SimulatedClock) -> None:
    done = threading.Event()
    received: list[str] = []
    with Outbox(OutboxConfig(path=tmp_path / "outbox.db"), clock, connect=without_flushing) as outbox:

        def forward() -> None:
            while not done.is_set() or outbox.counts().queued:
                taken = [one.id for one in outbox.take(50, EVERYTHING)]
                back = taken[1::7]
                assert outbox.release(back) == len(back)
                mine = [one for one in taken if one not in back]
                received.extend(mine)
                assert outbox.delivered(mine) == len(mine)

        threads = [threading.Thread(target=forward) for _ in range(2)]
        for thread in threads:
            thread.start()
        for at in range(0, 3_000, 30):
            outbox.put(cases(*range(at, at + 30)))
        done.set()
        for thread in threads:
            thread.join(30)
        assert sorted(received) == sorted(names(*range(3_000)))  # each exactly once
        assert outbox.counts().balances()
