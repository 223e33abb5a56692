from __future__ import annotations

import errno
import os
import sqlite3
import threading
from pathlib import Path
from typing import Any

import pytest

from edge_runtime.clock import SimulatedClock
from edge_runtime.errors import ConfigError, StoreError, StoreInUse, StoreUnusable
from edge_runtime.store.durable.outbox import Outbox, OutboxConfig, path_checks
from edge_runtime.store.durable.outbox import schema as store_schema
from tests.edge_runtime.store.durable.outbox.outboxes import (
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
        from edge_runtime.store.durable.outbox import Outbox, OutboxConfig
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
    with pytest.raises(StoreError, match="another program's database; give the outbox a file of its own"):
        make_and_close(tmp_path, clock)
    assert (tmp_path / "outbox.db").read_bytes() == before


def test_an_older_file_is_upgraded_and_a_newer_one_refused(
    tmp_path: Path, clock: SimulatedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    with make(tmp_path, clock) as outbox:
        outbox.put(cases(1, 2))
    newer = (*store_schema.UPGRADES, ("CREATE TABLE notes (text TEXT)", "INSERT INTO notes VALUES ('v2')"))
    with monkeypatch.context() as patch:
        patch.setattr("edge_runtime.store.durable.outbox.open_db.UPGRADES", newer)
        with make(tmp_path, clock) as outbox:
            assert outbox.counts().queued == 2
            assert outbox.damage == []
    db = sqlite3.connect(tmp_path / "outbox.db")
    assert db.execute("SELECT text FROM notes").fetchall() == [("v2",)]
    db.close()
    with pytest.raises(StoreError, match="schema 3, this version knows up to 2; install the newer"):
        make(tmp_path, clock).open()


@pytest.mark.parametrize(
    ("code", "kind", "says"),
    [
        (errno.ENOSPC, StoreError, "No space left on device; check its disk"),
        (errno.EDQUOT, StoreError, "check its disk"),
        (errno.EIO, StoreError, "check its disk"),
        (errno.EROFS, StoreError, "read-only; a failing card does that"),
        (errno.ENODEV, StoreError, "check its disk"),
        (errno.EACCES, StoreUnusable, "owner and permissions"),
        (errno.EPERM, StoreUnusable, "owner and permissions"),
        (errno.ENOTDIR, StoreUnusable, "check its path"),
    ],
)
@pytest.mark.parametrize("where", ["the lock", "the folder", "the file"])
def test_a_disk_that_may_heal_is_told_apart_from_what_a_person_has_to_change(
    tmp_path: Path, clock: SimulatedClock, monkeypatch: pytest.MonkeyPatch,
    where: str, code: int, kind: type[StoreError], says: str,
) -> None:  # fmt: skip
    """Wherever the system says it. Mutation that this finds: any of the codes on the other side."""
    called = {"the lock": f"{tmp_path}/outbox.db.lock", "the folder": tmp_path, "the file": tmp_path / "outbox.db"}
    real = os.open

    def refuse(path: Any, *arguments: Any, **more: Any) -> int:
        if path == called[where]:
            raise OSError(code, os.strerror(code))
        return real(path, *arguments, **more)

    monkeypatch.setattr(os, "open", refuse)
    outbox = make(tmp_path, clock)
    with pytest.raises(StoreError, match=says) as caught:
        outbox.open()
    assert type(caught.value) is kind
    monkeypatch.undo()
    assert outbox.put(cases(1)).accepted  # and mended
    outbox.close()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_somebody_elses_file_is_not_taken_for_a_failing_disk(tmp_path: Path, clock: SimulatedClock) -> None:
    make_and_close(tmp_path, clock)
    (tmp_path / "outbox.db").chmod(0o400)
    with pytest.raises(StoreUnusable, match="owner and permissions"):
        make_and_close(tmp_path, clock)


def test_what_waiting_cannot_mend_has_an_error_of_its_own(tmp_path: Path, clock: SimulatedClock) -> None:
    with pytest.raises(StoreUnusable, match="does not exist"):
        make_and_close(tmp_path / "nowhere", clock)
    with make(tmp_path, clock), pytest.raises(StoreInUse):
        make_and_close(tmp_path, clock)
    other = tmp_path / "other"
    (other / "outbox.db").mkdir(parents=True)
    with pytest.raises(StoreUnusable, match="directory; check its path"):
        make_and_close(other, clock)


def test_a_path_at_which_no_store_can_be_is_refused_before_anything_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    for path, says in (
        (tmp_path / "nowhere" / "outbox.db", "nowhere does not exist; make it"),
        (tmp_path / "file" / "outbox.db", "file is a file and not a folder"),
        (tmp_path / "file" / "deeper" / "outbox.db", "file is a file and not a folder"),
        (tmp_path, "is a folder; name a file in it"),
        (tmp_path / ("x" * 300) / "outbox.db", "File name too long"),
    ):
        with pytest.raises(ConfigError, match=f"^outbox.path: .*{says}"):
            path_checks.check(path, "outbox.path")
    path_checks.check(tmp_path / "outbox.db", "outbox.path")
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(ConfigError, match="may not write to the folder"):
        path_checks.check(tmp_path / "outbox.db", "outbox.path")
    assert sorted(tmp_path.iterdir()) == [tmp_path / "file"]


def test_a_disk_that_does_not_answer_is_no_wrong_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor one that is read-only. Mutation that this finds: `placing.check` that takes every error for a wrong path."""

    def fail(_: Path) -> bool:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(Path, "is_dir", fail)
    path_checks.check(tmp_path / "outbox.db", "outbox.path")


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
                taken = [one.id for one in outbox.lease(50, EVERYTHING)]
                back = taken[1::7]
                assert outbox.release(back) == len(back)
                mine = [one for one in taken if one not in back]
                received.extend(mine)
                assert outbox.ack(mine) == len(mine)

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
