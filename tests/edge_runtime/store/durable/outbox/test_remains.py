"""What stays on the disk, and who may put something there: readings are somebody's, and a store is its owner's."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from edge_runtime.clock import SystemClock
from edge_runtime.errors import StoreError, StoreUnusable
from edge_runtime.store.durable.outbox import HardCase, Outbox, OutboxConfig
from edge_runtime.store.durable.reading_log_file import LogEntry, ReadingLogFile
from edge_runtime.store.durable.reading_log_records import encode_readings
from edge_runtime.types import Reading

CASES = 60


def marker(i: int) -> bytes:
    """Bytes that nothing else writes, as a row of readings has them."""
    return np.random.default_rng(i).bytes(64)


def case(i: int) -> HardCase:
    return HardCase(f"k@{i}", "k", 0.0, 60.0, 0, 0.5, marker(i) * 120, b"{}")


def remains(folder: Path) -> list[int]:
    """Markers that are readable anywhere in the folder."""
    raw = b"".join(path.read_bytes() for path in sorted(folder.iterdir()))
    return [i for i in range(CASES) if marker(i) in raw]


def test_a_delivered_case_is_not_readable_in_any_file_after_an_orderly_stop(tmp_path: Path) -> None:
    """Mutation that this finds: ``secure_delete`` off, as it was (a delivered body stays in the free pages)."""
    with Outbox(OutboxConfig(path=tmp_path / "outbox.db"), SystemClock()) as outbox:
        outbox.put([case(i) for i in range(CASES)])
        assert remains(tmp_path) == list(range(CASES)), "the search finds nothing at all"
        taken = outbox.lease(50, 2**30)
        outbox.ack([one.id for one in taken[:40]])
        outbox.move_to_dead_letters([one.id for one in taken[40:]], "rejected", "")
        outbox.discard([one.id for one in taken[40:45]])
    delivered = {int(one.id[2:]) for one in taken[:45]}
    assert sorted(remains(tmp_path)) == sorted(set(range(CASES)) - delivered), "what waits, and nothing else"


def test_readings_of_finished_windows_are_not_readable_in_the_journal_after_an_orderly_stop(tmp_path: Path) -> None:
    def row(i: int) -> bytes:
        values = np.frombuffer(marker(i) * 30, "<f4").reshape(-1, 2)
        return encode_readings([Reading("k", 0.0, values)])

    file = ReadingLogFile(tmp_path / "journal.db", 2**22)
    file.read()
    for i in range(0, CASES, 10):
        file.append([LogEntry(j + 1, row(j)) for j in range(i, i + 10)], 0)
    assert remains(tmp_path) == list(range(CASES))
    file.replace("contract", LogEntry(CASES + 1, row(CASES - 1)))
    file.append([LogEntry(CASES + 2, b"later")], 0)
    file.close()
    assert remains(tmp_path) == [CASES - 1]
    again = ReadingLogFile(tmp_path / "journal.db", 2**22)
    left = again.read()
    again.close()
    assert (left.contract, left.snapshot, [turn.body for turn in left.entries]) == (
        "contract",
        row(CASES - 1),
        [b"later"],
    )


@pytest.mark.parametrize("suffix", ["", "-wal", ".lock"])
@pytest.mark.parametrize("mode", [0o666, 0o620, 0o602])
@pytest.mark.parametrize("store", ["outbox", "journal"])
def test_a_file_that_others_may_write_is_refused_with_what_to_do(
    tmp_path: Path, suffix: str, mode: int, store: str
) -> None:
    """Whoever made it, it may say what they like."""
    path = tmp_path / f"{store}.db"
    planted = tmp_path / f"{store}.db{suffix}"
    planted.write_bytes(b"")
    planted.chmod(mode)
    with pytest.raises(StoreUnusable, match=r"may be written by others .*chmod 600"):
        use(store, path)
    planted.chmod(0o600)
    use(store, path)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
@pytest.mark.parametrize("store", ["outbox", "journal"])
def test_a_file_of_another_user_is_refused_with_what_to_do(tmp_path: Path, store: str) -> None:
    path = tmp_path / f"{store}.db"
    use(store, path)
    os.chown(path, 65534, 65534)
    with pytest.raises(StoreUnusable, match=r"belongs to user 65534, and this is user 0; remove it, or .*chown"):
        use(store, path)
    os.chown(path, 0, 0)
    use(store, path)


def use(store: str, path: Path) -> None:
    if store == "outbox":
        with Outbox(OutboxConfig(path=path), SystemClock()) as outbox:
            outbox.put([case(1)])
        return
    file = ReadingLogFile(path, 2**20)
    try:
        file.read()
    finally:
        file.close()


def test_a_folder_that_is_deleted_under_an_outbox_is_said_and_the_counters_go_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Mutation that this finds: going on with a file that has no name any more, and is gone at the next start."""
    folder = tmp_path / "state"
    folder.mkdir()
    with Outbox(OutboxConfig(path=folder / "outbox.db"), SystemClock()) as outbox:
        outbox.put([case(i) for i in range(7)])
        outbox.ack([one.id for one in outbox.lease(2, 2**20)])
        shutil.rmtree(folder)
        with pytest.raises(StoreUnusable, match="does not exist; create it"):
            outbox.put([case(8)])
        assert caplog.text.count("removed while it was in use: 5 hard cases and 0 dead letters are lost") == 1
        folder.mkdir()
        outbox.put([case(9)])
        counts = outbox.counts()
    assert (counts.accepted, counts.delivered, counts.queued, counts.dropped["damaged"]) == (8, 2, 1, 5)
    assert counts.balances()
    with Outbox(OutboxConfig(path=folder / "outbox.db"), SystemClock()) as outbox:
        assert [one.id for one in outbox.lease(9, 2**20)] == ["k@9"]


def test_a_journal_that_is_deleted_while_it_is_written_begins_again_with_a_snapshot(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = ReadingLogFile(tmp_path / "journal.db", 2**20)
    file.read()
    file.append([LogEntry(1, b"one")], 0)
    for path in tmp_path.iterdir():
        path.unlink()
    with pytest.raises(StoreError, match="a snapshot comes first"):
        file.append([LogEntry(2, b"two")], 0)
    assert caplog.text.count("removed while it was in use") == 1
    file.replace("contract", LogEntry(3, b"state"))
    file.append([LogEntry(4, b"four")], 0)
    file.close()
    file = ReadingLogFile(tmp_path / "journal.db", 2**20)
    left = file.read()
    file.close()
    assert (left.contract, left.snapshot, left.entries) == ("contract", b"state", [LogEntry(4, b"four")])


def test_another_outbox_that_is_put_in_its_place_is_taken_as_it_is(tmp_path: Path) -> None:
    """Restored from a copy, say: what is counted in it is not mixed with what was counted before."""
    with Outbox(OutboxConfig(path=tmp_path / "copy.db"), SystemClock()) as outbox:
        outbox.put([case(1), case(2)])
    with Outbox(OutboxConfig(path=tmp_path / "outbox.db"), SystemClock()) as outbox:
        outbox.put([case(i) for i in range(7)])
        (tmp_path / "outbox.db-wal").unlink()
        (tmp_path / "copy.db").replace(tmp_path / "outbox.db")
        counts = outbox.counts()
        assert (counts.accepted, counts.queued, counts.dropped["damaged"]) == (2, 2, 0)
        assert [one.id for one in outbox.lease(9, 2**20)] == ["k@1", "k@2"]
