from __future__ import annotations

import os
import random
import sqlite3
import struct
from pathlib import Path
from typing import Any

import pytest

from edge_runtime.clock import SimulatedClock
from edge_runtime.errors import StoreCorrupt, StoreError, StoreFull
from edge_runtime.store.durable.config import PAGE_BYTES
from edge_runtime.store.durable.outbox import Damage, HardCase, Outbox, OutboxConfig, open_db, session
from edge_runtime.store.durable.outbox.schema import Database, connect_sqlite, stored_id
from tests.edge_runtime.store.durable.outbox.outboxes import (
    CORRUPT_INDEX,
    EVERYTHING,
    Failing,
    Rewritten,
    case,
    cases,
    check_size,
    crash_image,
    drain,
    ids,
    make,
    make_and_close,
    names,
    without_flushing,
)


def damaged_files(folder: Path) -> list[Path]:
    return sorted(file for file in folder.glob("*.damaged-*") if not file.name.endswith("-wal"))


def prepared(folder: Path, clock: SimulatedClock) -> tuple[bytes, dict[str, HardCase]]:
    """A file with queued, waiting and dead cases and free pages, and what it holds."""
    folder.mkdir()
    content = {one.id: one for one in cases(*range(400))}
    with make(folder, clock) as outbox:
        outbox.put(list(content.values()))
        for one in outbox.lease(100, EVERYTHING):
            del content[one.id]
            outbox.ack([one.id])
        outbox.retry([one.id for one in outbox.lease(30, EVERYTHING)], 50, "again")
        outbox.move_to_dead_letters([one.id for one in outbox.lease(30, EVERYTHING)], "rejected", "no")
        outbox.put_state("budget", b"7")
    return (folder / "outbox.db").read_bytes(), content


def test_with_its_first_page_gone_every_case_is_carried_over(tmp_path: Path, clock: SimulatedClock) -> None:
    image, content = prepared(tmp_path / "whole", clock)
    path = tmp_path / "outbox.db"
    path.write_bytes(b"\xff" * 4096 + image[4096:])
    with make(tmp_path, clock) as outbox:
        (damage,) = outbox.damage
        assert (damage.recovered, damage.lost) == (len(content), 0)
        assert damage.set_aside == tmp_path / "outbox.db.damaged-1"
        assert damage.set_aside.read_bytes()[4096:] == image[4096:]
        assert len(list(outbox.dead_letters())) == 30
        assert outbox.get_state("budget") == b"7"
        assert outbox.lease(400, EVERYTHING)[0].attempts == 0
        clock.advance(60)
        assert {one.attempts for one in outbox.lease(400, EVERYTHING)} == {1}  # those that waited still knew it
        counts = outbox.counts()
        assert (counts.accepted, counts.delivered, counts.queued) == (400, 100, 270)
        assert counts.balances()
        assert outbox.put(cases(9_999)).accepted


@pytest.mark.slow
def test_a_wrong_bit_in_the_header_or_the_table_definitions_loses_nothing(
    tmp_path: Path, clock: SimulatedClock
) -> None:
    image, content = prepared(tmp_path / "whole", clock)
    definitions = [at for at in range(100, 4096) if image[at]]
    for at in (*range(100), *random.Random(3).sample(definitions, 40)):
        folder = tmp_path / str(at)
        folder.mkdir()
        data = bytearray(image)
        data[at] ^= 1 << at % 8
        (folder / "outbox.db").write_bytes(data)
        with Outbox(OutboxConfig(path=folder / "outbox.db"), clock, connect=without_flushing) as outbox:
            counts = outbox.counts()
            assert (counts.queued, counts.dead) == (len(content) - 30, 30), f"byte {at}"
            assert outbox.put(cases(9_999)).accepted, f"byte {at}"


def claim_gigabytes(data: bytearray, one: HardCase) -> None:
    """A sector that ends within a row reads as ones: what follows is taken for the header of a row without end."""
    at = data.index((stored_id(one.id) + one.key).encode())
    assert data[at - 13] == 13  # length of the row's header; its size and number, two bytes each, stand before it
    data[at - 17 : at] = b"\xff" * 17


def test_a_row_that_claims_gigabytes_costs_at_most_its_neighbour_too(tmp_path: Path, clock: SimulatedClock) -> None:
    """SQLite 3.40 says that there is no memory for it, and Python raises MemoryError.

    Mutation that this finds: without MemoryError in `salvage._UNREADABLE` the outbox does not open, at this start and
    every other.
    """
    with make(tmp_path, clock) as outbox:
        outbox.put(cases(*range(200)))
    file = tmp_path / "outbox.db"
    data = bytearray(file.read_bytes())
    claim_gigabytes(data, case(150))
    file.write_bytes(data)
    db = connect_sqlite(file)
    with pytest.raises((MemoryError, sqlite3.DatabaseError)):
        db.execute("SELECT body FROM cases").fetchall()
    db.close()
    with make(tmp_path, clock) as outbox:
        (damage,) = outbox.damage
        lost = {*range(200)} - {*ids(drain(outbox))}
        assert {150} <= lost <= {149, 150, 151}  # its neighbour may be found past it, from either end, or not
        assert damage.lost == len(lost)
        assert outbox.counts().balances()
    with make(tmp_path, clock) as outbox:
        assert outbox.damage == []


@pytest.mark.parametrize("enough", [True, False])
def test_memory_that_runs_out_is_damage_only_where_there_is_some_left(
    tmp_path: Path, clock: SimulatedClock, monkeypatch: pytest.MonkeyPatch, enough: bool
) -> None:
    with make(tmp_path, clock) as outbox:
        outbox.put(cases(1, 2, 3))

    class Starved(Rewritten):
        def execute(self, sql: str, parameters: Any = (), /) -> Any:
            if sql.startswith("PRAGMA integrity_check"):
                raise MemoryError
            return super().execute(sql, parameters)

    def connect(path: Path) -> Database:
        db = connect_sqlite(path)
        return db if path.name.endswith(".rebuilt") or list(tmp_path.glob("*.damaged-*")) else Starved(db, {})

    monkeypatch.setattr(session, "memory_for", lambda _: enough)
    outbox = Outbox(OutboxConfig(path=tmp_path / "outbox.db"), clock, connect=connect)
    if enough:
        outbox.open()
        assert [(damage.recovered, damage.lost) for damage in outbox.damage] == [(3, 0)]
    else:
        with pytest.raises(StoreError, match="no memory left"):
            outbox.open()
        assert not damaged_files(tmp_path)
    outbox.close()


def test_a_case_that_its_index_hides_is_found(tmp_path: Path, clock: SimulatedClock) -> None:
    """Mutation that this finds: ``quick_check`` at opening. One spoilt bit hid every case that had failed once."""
    with make(tmp_path, clock) as outbox:
        outbox.put(cases(*range(20)))
        outbox.retry([one.id for one in outbox.lease(20, EVERYTHING)], 5.3, "again")
    file = tmp_path / "outbox.db"
    db = connect_sqlite(file)
    (root,) = db.execute("SELECT rootpage FROM sqlite_master WHERE name = 'waiting_due'").fetchone()
    (due,) = db.execute("SELECT due_s FROM waiting WHERE seq = 1").fetchone()
    db.close()
    data = bytearray(file.read_bytes())
    # The entry with the smallest key is the one that was written first: at the end of the page.
    at = data.rindex(struct.pack(">d", due), (root - 1) * PAGE_BYTES, root * PAGE_BYTES)
    data[at] ^= 0x20  # another exponent: due in 10^200 years
    file.write_bytes(data)
    with make(tmp_path, clock) as outbox:
        assert [(damage.recovered, damage.lost) for damage in outbox.damage] == [(20, 0)]
        clock.advance(60)
        assert len(outbox.lease(20, EVERYTHING)) == 20


@pytest.mark.parametrize(
    "stray",
    [
        "DELETE FROM ready WHERE seq = 200",
        "DELETE FROM cases WHERE seq = 200",
        "UPDATE ready SET seq = 201, priority = 1 WHERE seq = 200",  # one case twice, another never
    ],
)
def test_rows_that_contradict_the_ledger_are_noticed_at_opening(
    tmp_path: Path, clock: SimulatedClock, stray: str
) -> None:
    _, content = prepared(tmp_path / "whole", clock)
    db = sqlite3.connect(tmp_path / "whole" / "outbox.db")
    db.execute(stray)
    db.commit()
    db.close()
    gone = int(stray.startswith("DELETE FROM cases"))
    with make(tmp_path / "whole", clock) as outbox:
        assert [(damage.recovered, damage.lost) for damage in outbox.damage] == [(len(content) - gone, gone)]
        assert outbox.counts().dropped["damaged"] == gone
        assert outbox.counts().balances()


def test_without_its_ledger_the_outbox_counts_what_it_has_and_ages_go_on(tmp_path: Path, clock: SimulatedClock) -> None:
    with make(tmp_path, clock) as outbox:
        outbox.put(cases(1))
        outbox.ack([one.id for one in outbox.lease(1, EVERYTHING)])
        clock.advance(500)
        outbox.put(cases(2, 3))
    db = sqlite3.connect(tmp_path / "outbox.db")
    db.execute("UPDATE ledger SET accepted = accepted + 1")
    db.commit()
    db.close()
    with make(tmp_path, SimulatedClock()) as outbox:
        assert [(damage.recovered, damage.lost) for damage in outbox.damage] == [(2, None)]
        counts = outbox.counts()
        assert (counts.accepted, counts.queued, counts.oldest_age_s) == (2, 2, 0.0)
        assert counts.balances()
        assert outbox.put(cases(4)).accepted
        assert ids(drain(outbox)) == [2, 3, 4]


@pytest.mark.parametrize("column", ["stored_s", "id"])
def test_a_value_of_another_type_is_damage_where_the_oldest_are_looked_for(
    tmp_path: Path, clock: SimulatedClock, column: str
) -> None:
    """Mutation that this finds: no `_expect` in `rows.oldest`. Each `lease` then ended with a TypeError."""
    with make(tmp_path, clock) as outbox:
        outbox.put(cases(*range(10)))
    db = sqlite3.connect(tmp_path / "outbox.db")
    db.execute(f"UPDATE cases SET {column} = x'00ff' WHERE seq = 3")
    db.commit()
    db.close()
    with make(tmp_path, clock) as outbox:
        clock.advance(60)
        assert ids(outbox.lease(20, EVERYTHING)) == [0, 1, *range(3, 10)]
        assert outbox.counts().dropped["damaged"] == 1
        assert outbox.counts().balances()


def test_a_queue_that_contradicts_itself_is_noticed_when_it_matters(tmp_path: Path, clock: SimulatedClock) -> None:
    with make(tmp_path, clock) as outbox:
        outbox.put(cases(*range(10)))
        # Spoilt while it is open: the number that the next case gets.
        outbox._file.run(lambda db: db.execute("UPDATE ready SET seq = 11 WHERE seq = 5"))
        assert outbox.put(cases(77)).accepted == names(77)
        assert [(damage.recovered, damage.lost) for damage in outbox.damage] == [(10, 0)]
        assert ids(drain(outbox)) == [*range(10), 77]
        assert outbox.counts().balances()


def test_the_log_is_flushed_anew_at_opening(
    tmp_path: Path, clock: SimulatedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a failed fsync the kernel takes the log for clean; only writing it again gets it to the disk."""
    with make(tmp_path, clock) as outbox:
        outbox.put(cases(1, 2, 3))
        crashed = crash_image(tmp_path, tmp_path / "after")
    log = (crashed / "outbox.db-wal").read_bytes()
    real_write, real_fsync = os.pwrite, os.fsync
    written: list[tuple[int, bytes]] = []
    flushed: list[int] = []

    def write(descriptor: int, data: bytes, at: int) -> int:
        written.append((at, data[:10_000]))
        return real_write(descriptor, data[:10_000], at)  # short, as it may be

    def fsync(descriptor: int) -> None:
        flushed.append(len(written))
        if len(flushed) == 1:
            raise OSError(5, "Input/output error")
        real_fsync(descriptor)

    monkeypatch.setattr(os, "pwrite", write)
    monkeypatch.setattr(os, "fsync", fsync)
    outbox = make(crashed, clock)
    with pytest.raises(StoreError, match="Input/output error; check its disk"):
        outbox.open()
    first, second = flushed[:2]  # once more before the connection was given up, since closing it uses the log
    assert b"".join(data for _, data in written[:first]) == log
    assert b"".join(data for _, data in written[first:second]) == log
    assert ids(drain(outbox)) == [1, 2, 3]
    outbox.close()


def test_the_files_limit_holds_even_where_the_estimate_of_pages_is_wrong(
    tmp_path: Path, clock: SimulatedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("edge_runtime.store.durable.outbox.queries.free_pages", lambda _db, _limit: 10**6)
    config = OutboxConfig(path=tmp_path / "outbox.db", max_bytes=256 * 1024)
    with Outbox(config, clock) as outbox:
        accepted: list[str] = []

        def put_for_ever() -> None:
            while True:
                accepted.extend(outbox.put([case(len(accepted), size=1_200)]).accepted)

        with pytest.raises(StoreFull):
            put_for_ever()
        check_size(config)
        assert {one.id for one in drain(outbox)} == set(accepted)
        assert outbox.put(cases(9_999)).accepted


def test_the_old_log_is_not_applied_to_the_new_file(tmp_path: Path, clock: SimulatedClock) -> None:
    """The state after a power cut between the decision to switch files and the switch."""
    (tmp_path / "old").mkdir()
    with make(tmp_path / "old", clock) as outbox:
        outbox.put(cases(*range(50)))
        crashed = crash_image(tmp_path / "old", tmp_path / "after")
    (tmp_path / "new").mkdir()
    with make(tmp_path / "new", clock) as outbox:
        outbox.put(cases(1, 2, 3))
    os.link(crashed / "outbox.db", crashed / "outbox.db.damaged-1")
    os.link(crashed / "outbox.db-wal", crashed / "outbox.db.damaged-1-wal")
    (tmp_path / "new" / "outbox.db").rename(crashed / "outbox.db.rebuilt")
    with make(crashed, clock) as outbox:
        assert outbox.damage == []
        assert ids(drain(outbox)) == [1, 2, 3]
    assert (crashed / "outbox.db.damaged-1-wal").stat().st_size > 50 * 600


def test_a_log_that_holds_everything_makes_up_for_the_database(tmp_path: Path, clock: SimulatedClock) -> None:
    with make(tmp_path, clock) as outbox:
        outbox.put(cases(*range(50)))
        crashed = crash_image(tmp_path, tmp_path / "after")
    (crashed / "outbox.db").write_bytes(b"\xff" * 4096)
    with make(crashed, clock) as outbox:
        assert [(damage.recovered, damage.lost) for damage in outbox.damage] == [(50, 0)]
        assert sorted(ids(drain(outbox))) == list(range(50))


def test_a_database_with_other_pages_is_somebody_elses_too(tmp_path: Path, clock: SimulatedClock) -> None:
    other = sqlite3.connect(tmp_path / "outbox.db")
    other.execute("PRAGMA page_size = 1024")
    other.execute("CREATE TABLE letters (text)")
    other.commit()
    other.close()
    with pytest.raises(StoreError, match="another program's database"):
        make_and_close(tmp_path, clock)
    assert damaged_files(tmp_path) == []


@pytest.mark.parametrize("content", [b"not a database at all, but a letter to a friend\n" * 300, b"SQLite format 3\0"])
def test_what_is_no_database_is_set_aside_unharmed(tmp_path: Path, clock: SimulatedClock, content: bytes) -> None:
    (tmp_path / "outbox.db").write_bytes(content)
    with make(tmp_path, clock) as outbox:
        (damage,) = outbox.damage
        assert (damage.recovered, damage.lost) == (0, None)
        assert outbox.put(cases(1)).accepted
    assert (tmp_path / "outbox.db.damaged-1").read_bytes() == content


def test_only_the_last_damaged_files_are_kept(tmp_path: Path, clock: SimulatedClock) -> None:
    for _ in range(4):
        (tmp_path / "outbox.db").write_bytes(bytes(10_000))
        make_and_close(tmp_path, clock)
    assert [file.name for file in damaged_files(tmp_path)] == ["outbox.db.damaged-3", "outbox.db.damaged-4"]


def test_damage_met_while_running_is_repaired_and_the_call_goes_on(tmp_path: Path, clock: SimulatedClock) -> None:
    faults: dict[str, int] = {}
    seen: list[Damage] = []

    def connect(path: Path) -> Database:
        # The file that is built to replace the damaged one is on healthy ground.
        return connect_sqlite(path) if path.name.endswith(".rebuilt") or seen else Failing(connect_sqlite(path), faults)

    def report(damage: Damage) -> None:
        seen.append(damage)
        faults.clear()

    with Outbox(OutboxConfig(path=tmp_path / "outbox.db"), clock, connect=connect, on_damage=report) as outbox:
        outbox.put(cases(*range(20)))
        flying = [one.id for one in outbox.lease(5, EVERYTHING)]
        outbox.retry(flying[:1], 0, "again")
        faults["INSERT OR IGNORE"] = CORRUPT_INDEX
        assert outbox.put(cases(77)).accepted == names(77)
        assert [(damage.recovered, damage.lost) for damage in seen] == [(20, 0)]
        assert outbox.counts().in_flight == 4
        assert outbox.ack(flying[1:]) == 4
        assert len(drain(outbox)) == 17
        assert outbox.counts().balances()


def test_a_salvage_without_room_is_tried_again_later(
    tmp_path: Path, clock: SimulatedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    image, content = prepared(tmp_path / "whole", clock)
    (tmp_path / "outbox.db").write_bytes(b"\0" + image[1:])

    def no_room(*_: object) -> None:
        raise OSError(28, "No space left on device")

    outbox = make(tmp_path, clock)
    with monkeypatch.context() as patch:
        patch.setattr(os, "link", no_room)
        with pytest.raises(StoreCorrupt, match=r"cannot be rebuilt yet .*No space left.*free space"):
            outbox.open()
    with pytest.raises(StoreCorrupt, match="waits to be rebuilt"):
        outbox.put(cases(1))
    clock.advance(31)
    assert outbox.counts().queued + outbox.counts().dead == len(content)
    outbox.close()


class PowerCut(BaseException):
    """Ends the process as far as the code under test can tell."""


@pytest.mark.parametrize("step", range(12))
def test_a_salvage_cut_short_at_any_step_is_completed_by_the_next_start(
    tmp_path: Path, clock: SimulatedClock, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    image, content = prepared(tmp_path / "whole", clock)
    (tmp_path / "outbox.db").write_bytes(b"\0" + image[1:])
    steps = 0

    def counted(call: Any) -> Any:
        def wrapper(*arguments: Any, **named: Any) -> Any:
            nonlocal steps
            if ".damaged" in str(arguments) or ".rebuilt" in str(arguments) or "outbox.db-wal" in str(arguments):
                steps += 1
                if steps == step + 1:
                    raise PowerCut
            return call(*arguments, **named)

        return wrapper

    first = make(tmp_path, clock)
    with monkeypatch.context() as patch:
        patch.setattr(os, "link", counted(os.link))
        for name in ("unlink", "replace", "open"):
            patch.setattr(Path, name, counted(getattr(Path, name)))
        patch.setattr("edge_runtime.store.durable.outbox.recovery.close_quietly", counted(open_db.close_quietly))
        patch.setattr("edge_runtime.store.durable.outbox.recovery.sync_folder", counted(open_db.sync_folder))
        try:
            first.open()
        except PowerCut:
            assert steps == step + 1
        else:
            assert steps <= step, "the cut did not happen"
            assert step > 4
    first.close()
    with make(tmp_path, clock) as outbox:
        counts = outbox.counts()
        assert (counts.queued + counts.dead, counts.dropped["damaged"]) == (len(content), 0)
        assert counts.balances()
        clock.advance(60)
        assert len(drain(outbox)) == 270
    assert not (tmp_path / "outbox.db.rebuilt").exists()


def test_damage_to_the_log_loses_its_end_and_keeps_the_order(tmp_path: Path, clock: SimulatedClock) -> None:
    with make(tmp_path / "", clock) as outbox:
        for number in range(60):
            outbox.put(cases(number))
        whole = crash_image(tmp_path, tmp_path / "after")
    log = (whole / "outbox.db-wal").read_bytes()
    lengths = set()
    for seed in range(30):
        rng = random.Random(seed)
        data = bytearray(log)
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        folder = tmp_path / str(seed)
        folder.mkdir()
        (folder / "outbox.db").write_bytes((whole / "outbox.db").read_bytes())
        (folder / "outbox.db-wal").write_bytes(data)
        with make(folder, clock) as outbox:
            found = ids(drain(outbox))
            assert found == list(range(len(found)))
            assert outbox.counts().balances()
            assert outbox.put(cases(99)).accepted
            lengths.add(len(found))
    assert len(lengths) > 10


@pytest.mark.slow
def test_100_damaged_files_never_stop_the_outbox_and_never_yield_a_wrong_case(
    tmp_path: Path, clock: SimulatedClock
) -> None:
    image, content = prepared(tmp_path / "whole", clock)
    set_aside = 0
    for seed in range(100):
        rng = random.Random(seed)
        data = bytearray(image)
        pages_hit = 0
        if seed % 4 == 3:
            cut = rng.randrange(len(data))
            pages_hit = (len(data) - cut) // 4096 + 1
            del data[cut:]
        else:
            for _ in range(rng.choice((1, 1, 4, 16))):
                data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
                pages_hit += 1
        folder = tmp_path / str(seed)
        folder.mkdir()
        (folder / "outbox.db").write_bytes(data)
        seen: list[Damage] = []
        config = OutboxConfig(path=folder / "outbox.db")
        with Outbox(config, clock, connect=without_flushing, on_damage=seen.append) as outbox:
            listed = [letter.case for letter in outbox.dead_letters()]
            clock.advance(60)
            found = set()
            for one in [*listed, *drain(outbox)]:  # a dead letter whose burial was damaged is queued again
                one.attempts = 0
                assert one == content[one.id], f"seed {seed}"
                found.add(one.id)
            # A page holds at most six of these cases; a damaged branch takes its leaves with it, nothing else may.
            if pages_hit <= 4 and data[:4096] == image[:4096]:
                assert len(found) >= len(content) - 6 * pages_hit, f"seed {seed}: {len(found)} of {len(content)}"
            counts = outbox.counts()
            assert counts.balances(), f"seed {seed}"
            if len(found) < len(content) and counts.accepted == 400:
                assert counts.dropped["damaged"] == len(content) - len(found), f"seed {seed}"
            assert outbox.put(cases(9_999)).accepted, f"seed {seed}"
            assert seen == outbox.damage
            assert len(damaged_files(folder)) == len(seen)
        set_aside += len(seen)
        with Outbox(config, clock, connect=without_flushing) as outbox:
            assert ids(drain(outbox)) == [9_999], f"seed {seed}"
            assert outbox.damage == [], f"seed {seed}"
    assert 20 < set_aside < 100


def test_a_case_that_was_spoilt_is_closed_as_damaged(tmp_path: Path, clock: SimulatedClock) -> None:
    """Its meta is not believed: only the id, which the index confirms. Mutation: dropping it without a closing."""
    make_and_put(tmp_path, clock)
    rewrite(tmp_path, "UPDATE cases SET body = zeroblob(600) WHERE seq = 2")
    with make(tmp_path, clock) as outbox:
        assert ids(outbox.lease(9, EVERYTHING)) == [1, 3]
        (closing,) = outbox.closings(9)
        assert (closing.id, closing.key, closing.reason, closing.meta) == ("watch@2", "watch", "damaged", b"")
        assert outbox.damage == []


def test_cases_that_are_lost_with_their_rows_are_closed_by_the_ids_in_their_index(
    tmp_path: Path, clock: SimulatedClock
) -> None:
    """Mutation that this finds: `salvage._close_lost` that closes nothing; a salvage that forgets earlier closings."""
    with make(tmp_path, clock) as outbox:
        outbox.put(cases(7))
        outbox.move_to_dead_letters([one.id for one in outbox.lease(1, EVERYTHING)], "rejected", "no")
    make_and_put(tmp_path, clock)
    rewrite(tmp_path, "UPDATE cases SET body = x'00' WHERE seq = 3", "UPDATE ledger SET accepted = 70")
    with make(tmp_path, clock) as outbox:
        assert ids(outbox.lease(9, EVERYTHING)) == [1, 3]
        assert [(one.id, one.reason) for one in outbox.closings(9)] == [("watch@7", "rejected"), ("watch@2", "damaged")]
        assert [damage.lost for damage in outbox.damage] == [None]
        assert outbox.put(cases(2)).repeated == names(2)


def make_and_put(folder: Path, clock: SimulatedClock) -> None:
    with make(folder, clock, live_share=0.0) as outbox:
        outbox.put(cases(1, 2, 3))


def rewrite(folder: Path, *statements: str) -> None:
    """Change rows behind the outbox's back, so that their checksums are wrong."""
    db = sqlite3.connect(folder / "outbox.db", isolation_level=None)
    for statement in statements:
        db.execute(statement)
    db.close()
