from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from edge_runtime.clock import SimulatedClock
from edge_runtime.errors import StoreCorrupt, StoreError
from edge_runtime.store.durable.outbox import HardCase, Outbox, OutboxConfig
from edge_runtime.store.durable.outbox import read_only_copy as snapshot
from edge_runtime.store.durable.outbox.read_only_copy import Snapshot
from tests.edge_runtime.store.durable.outbox.outboxes import EVERYTHING, case, cases, make, names


def filled(folder: Path, clock: SimulatedClock) -> Outbox:
    """Case 1 is dead, 2 waits for another try, 3 is in flight, 4 and 5 were never tried, 6 was delivered."""
    outbox = make(folder, clock, live_share=0)
    outbox.put(cases(1, 2, 3, 4, 5, 6))
    outbox.lease(6, EVERYTHING)
    outbox.move_to_dead_letters(names(1), "rejected", "the cloud said no")
    outbox.retry(names(2), 60.0, "no answer")
    outbox.release(names(4, 5))
    outbox.ack(names(6))
    return outbox


def test_a_snapshot_shows_an_open_outbox_as_it_is(tmp_path: Path, clock: SimulatedClock) -> None:
    with filled(tmp_path, clock) as outbox, Snapshot(OutboxConfig(path=tmp_path / "outbox.db")) as seen:
        found = {entry.case.id: entry for entry in seen.all()}
        assert list(found) == names(1, 2, 3, 4, 5)
        assert [entry.state for entry in found.values()] == ["dead", "waiting", "ready", "ready", "ready"]
        letter = found["watch@1"]
        assert (letter.reason, letter.detail, letter.buried) == ("rejected", "the cloud said no", clock.wall())
        assert (found["watch@2"].detail, found["watch@2"].case.attempts) == ("no answer", 1)
        assert found["watch@4"].case == case(4)
        assert [entry.case.id for entry in seen.dead()] == names(1)
        assert seen.find("watch@5") == found["watch@5"]
        assert seen.find("watch@6") is None
        counts = outbox.counts()
        assert (seen.ledger.accepted, seen.ledger.queued, seen.ledger.dead) == (6, counts.queued, 1)
        assert seen.ledger.balances()


def test_a_snapshot_needs_no_owner_and_changes_nothing(tmp_path: Path, clock: SimulatedClock) -> None:
    with filled(tmp_path, clock):
        pass
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    with Snapshot(OutboxConfig(path=tmp_path / "outbox.db")) as seen:
        assert len(list(seen.all())) == 5
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_the_copy_is_removed(tmp_path: Path, clock: SimulatedClock, monkeypatch: pytest.MonkeyPatch) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    with make(tmp_path, clock) as outbox:
        outbox.put(cases(1))
    with Snapshot(OutboxConfig(path=tmp_path / "outbox.db")):
        (folder,) = temporary.iterdir()
        assert folder.stat().st_mode & 0o077 == 0
    assert list(temporary.iterdir()) == []
    (tmp_path / "outbox.db").write_bytes(b"SQLite format 3\0" + b"x" * 8000)
    with pytest.raises(StoreCorrupt):
        Snapshot(OutboxConfig(path=tmp_path / "outbox.db"))
    assert list(temporary.iterdir()) == []


def test_a_missing_outbox_is_an_error_and_not_made(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="there is no outbox"):
        Snapshot(OutboxConfig(path=tmp_path / "outbox.db"))
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_row_is_left_out_and_counted(tmp_path: Path, clock: SimulatedClock) -> None:
    marked = HardCase("watch@2", "watch", 1.0, 1.0, 0, 0.5, b"BODY-TO-SPOIL" * 20, b"{}")
    with make(tmp_path, clock) as outbox:
        outbox.put([case(1), marked, case(3)])
    path = tmp_path / "outbox.db"
    path.write_bytes(path.read_bytes().replace(b"BODY-TO-SPOIL", b"BODY-TO-SPOIR", 1))
    with Snapshot(OutboxConfig(path=path)) as seen:
        assert [entry.case.id for entry in seen.all()] == names(1, 3)
        assert seen.damaged == 1


def after_the_first_copy(monkeypatch: pytest.MonkeyPatch, action: Callable[[], None]) -> None:
    """Let something happen between the copies of the two files, once."""
    copy = shutil.copyfile
    copied = 0

    def slow_copy(source: Path, to: Path) -> None:
        nonlocal copied
        copy(source, to)
        copied += 1
        if copied == 1:
            action()

    monkeypatch.setattr(shutil, "copyfile", slow_copy)


def assert_whole(config: OutboxConfig, expected: list[str]) -> None:
    with Snapshot(config) as seen:
        entries = list(seen.all())
        assert [entry.case.id for entry in entries] == expected
        assert seen.ledger.queued == len(expected)
        assert seen.damaged == 0


def test_a_log_that_is_begun_anew_while_it_is_copied_is_copied_again(
    tmp_path: Path, clock: SimulatedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen to fail when `_copy` does not compare generations: the new log lacks what the old one had."""
    config = OutboxConfig(path=tmp_path / "outbox.db", max_bytes=256 * 1024)
    with Outbox(config, clock) as outbox:
        outbox.put(cases(1, 2))

        def begin_anew() -> None:
            number = 3
            before = snapshot._generation(config.path)
            while snapshot._generation(config.path) == before:
                outbox.put(cases(number))
                taken = [one.id for one in outbox.lease(9, EVERYTHING)]
                outbox.ack(set(taken) - set(names(1, 2)))
                outbox.release(taken)
                number += 1

        after_the_first_copy(monkeypatch, begin_anew)
        assert_whole(config, names(1, 2))


def test_a_log_that_is_folded_in_while_it_is_copied_does_no_harm(
    tmp_path: Path, clock: SimulatedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen to fail when `_copy` takes the log first: old frames then go over newer pages."""
    config = OutboxConfig(path=tmp_path / "outbox.db")
    with Outbox(config, clock) as outbox:
        outbox.put(cases(*range(1, 30)))

        def fold_in() -> None:
            before = snapshot._generation(config.path)
            outbox.ack(one.id for one in outbox.lease(20, EVERYTHING))
            outbox.put([case(number, size=5_000) for number in range(100, 140)])
            outbox._file.run(lambda db: db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall())
            assert snapshot._generation(config.path) == before

        after_the_first_copy(monkeypatch, fold_in)
        with Snapshot(config) as seen:
            found = [entry.case.id for entry in seen.all()]
        monkeypatch.undo()
        assert len(found) == outbox.counts().queued
        assert_whole(config, found)


def test_a_log_that_is_always_begun_anew_ends_in_an_error(
    tmp_path: Path, clock: SimulatedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    with make(tmp_path, clock):
        pass
    generations = iter(range(1000))
    monkeypatch.setattr(snapshot, "_generation", lambda _path: (next(generations),))
    with pytest.raises(StoreError, match="changes faster than it can be copied"):
        Snapshot(OutboxConfig(path=tmp_path / "outbox.db"))
