"""State file: each part on its own, in one transaction; a disk or a file that fails costs what it held."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from edge_runtime.base.system.loop import Loop
from edge_runtime.clock import SimulatedClock
from edge_runtime.errors import StoreError
from edge_runtime.store.durable import state_file
from edge_runtime.store.durable.state_file import EVERY_S, StateFile, read_part


class Kept:
    def __init__(self, data: bytes = b"1") -> None:
        self.data = data
        self.restored: list[bytes] = []

    def save(self) -> bytes:
        return self.data

    def restore(self, data: bytes) -> None:
        if data == b"rubbish":
            raise StoreError("it is rubbish")
        self.restored.append(data)


@pytest.fixture
def clock() -> SimulatedClock:
    return SimulatedClock()


@pytest.fixture
def loop(clock: SimulatedClock) -> Iterator[Loop]:
    with closing(Loop(clock=clock)) as made:
        yield made


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "outbox.state.db"


def opened(loop: Loop, path: Path, **parts: Kept) -> StateFile:
    state = StateFile(path)
    state.open(loop)
    for name, kept in parts.items():
        state.add(name, kept.save, kept.restore)
    return state


def write(loop: Loop, path: Path, **parts: bytes) -> None:
    opened(loop, path, **{name: Kept(data) for name, data in parts.items()}).close()


def test_a_stop_writes_what_the_next_start_restores(loop: Loop, path: Path) -> None:
    write(loop, path, gate=b"g", drift=b"d")
    gate, drift, new = Kept(b"later"), Kept(), Kept()
    state = opened(loop, path, gate=gate, drift=drift, new=new)
    assert (gate.restored, drift.restored, new.restored) == ([b"g"], [b"d"], [])
    state.close()
    state.close()
    assert read_part(path, "gate") == b"later"


def test_a_part_that_a_run_does_not_know_stays(loop: Loop, path: Path) -> None:
    write(loop, path, gate=b"g", drift=b"d")
    write(loop, path, drift=b"e")
    assert (read_part(path, "gate"), read_part(path, "drift"), read_part(path, "new")) == (b"g", b"e", None)


def test_nothing_to_keep_makes_no_file(loop: Loop, path: Path) -> None:
    write(loop, path)
    assert not path.exists()


def test_it_is_written_once_a_minute(loop: Loop, path: Path, clock: SimulatedClock) -> None:
    kept = Kept()
    state = opened(loop, path, gate=kept)
    assert read_part(path, "gate") is None
    clock.advance(EVERY_S + 1)
    loop.iterate(0)
    kept.data = b"later"
    state.close()
    assert read_part(path, "gate") == b"later"


def test_a_large_part_is_written_once_and_not_twice(loop: Loop, path: Path) -> None:
    def written() -> int:
        return int(Path("/proc/self/io").read_text().split("wchar: ")[1].split()[0])

    kept = Kept()
    state = opened(loop, path, gate=kept)
    for n in range(4):  # the first two make the room
        before, kept.data = written(), bytes([n]) * 500_000
        assert state.write_now()
    assert written() - before < 600_000


def test_all_parts_of_a_write_are_there_or_none(loop: Loop, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(loop, path, gate=b"g", drift=b"d")
    gate, drift = Kept(b"g2"), Kept(b"d2")
    state = opened(loop, path, gate=gate, drift=drift)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        monkeypatch.setattr(state_file, "_WAIT_S", 0.0)
        assert not state.write_now()
    assert (read_part(path, "gate"), read_part(path, "drift")) == (b"g", b"d")
    assert state.write_now()
    assert (read_part(path, "gate"), read_part(path, "drift")) == (b"g2", b"d2")


def test_a_part_that_cannot_be_read_is_set_aside_alone(
    loop: Loop, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(loop, path, gate=b"rubbish", drift=b"d")
    drift = Kept(b"d")
    opened(loop, path, gate=Kept(b"new"), drift=drift).close()
    assert drift.restored == [b"d"]
    assert "a part begins again, and is set aside: part=gate" in caplog.text
    assert path.with_name("outbox.gate.damaged").read_bytes() == b"rubbish"
    assert read_part(path, "gate") == b"new"


def test_a_damaged_page_costs_the_part_on_it(loop: Loop, path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write(loop, path, gate=b"g" * 100_000, drift=b"d" * 100_000, epochs=b"e")
    data = bytearray(path.read_bytes())
    first = data.index(b"d" * 4000)
    data[first - 4 : first] = b"\xff" * 4  # the number of the page that follows
    path.write_bytes(data)
    gate, drift, epochs = Kept(b"G"), Kept(b"D"), Kept(b"E")
    state = opened(loop, path, gate=gate, drift=drift)  # without epochs: those that were read go to the new file
    assert ([*map(len, gate.restored)], drift.restored) == ([100_000], [])
    assert "the file is damaged, and was set aside" in caplog.text
    assert path.with_name(f"{path.name}.damaged").read_bytes() == data
    state.close()
    opened(loop, path, epochs=epochs)
    assert epochs.restored == [b"e"]
    assert read_part(path, "drift") == b"D"


@pytest.mark.parametrize("rubbish", [b"rubbish" * 1000, b"SQLite format 3\0" + bytes(4080)])
def test_a_damaged_file_costs_what_it_held(loop: Loop, path: Path, rubbish: bytes) -> None:
    path.write_bytes(rubbish)
    path.chmod(0o600)
    write(loop, path, gate=b"new")
    assert read_part(path, "gate") == b"new"
    assert path.with_name(f"{path.name}.damaged").read_bytes() == rubbish


def test_a_file_that_is_damaged_or_removed_under_way_is_written_whole_again(loop: Loop, path: Path) -> None:
    gate, drift = Kept(b"g"), Kept(b"d")
    state = opened(loop, path, gate=gate, drift=drift)
    assert state.write_now()
    path.write_bytes(b"rubbish" * 1000)
    gate.data = b"g2"
    assert state.write_now()
    assert (read_part(path, "gate"), read_part(path, "drift")) == (b"g2", b"d")
    path.unlink()
    assert state.write_now()
    assert (read_part(path, "gate"), read_part(path, "drift")) == (b"g2", b"d")


def test_a_disk_that_fails_is_logged_once_and_tried_again(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = path.parent / "folder" / path.name
    with closing(Loop()) as loop:
        state = opened(loop, path, gate=Kept())
        assert not state.write_now()
        assert not state.write_now()
        assert caplog.text.count("cannot be read or kept") == 1
        path.parent.mkdir()
        assert state.write_now()
    assert read_part(path, "gate") == b"1"


def test_a_file_that_others_may_write_costs_what_it_held(
    loop: Loop, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(loop, path, gate=b"theirs")
    path.chmod(0o666)
    gate = Kept(b"own")
    state = opened(loop, path, gate=gate)
    assert not state.write_now()
    assert gate.restored == []
    assert caplog.text.count("may be written by others") == 1
    path.chmod(0o600)
    assert read_part(path, "gate") == b"theirs"
    assert state.write_now()
    assert read_part(path, "gate") == b"own"


def test_a_database_of_another_program_is_left_alone(loop: Loop, path: Path) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE theirs (x)")
    path.chmod(0o600)
    data = path.read_bytes()
    assert not opened(loop, path, gate=Kept()).write_now()
    assert path.read_bytes() == data


def test_files_of_earlier_versions_are_replaced_once_they_are_committed(loop: Loop, path: Path) -> None:
    for name, data in (("gate", b"g"), ("drift", b"rubbish"), ("other", b"o")):
        (path.parent / f"outbox.{name}").write_bytes(data)
        (path.parent / f"outbox.{name}").chmod(0o600)
    gate = Kept(b"g")
    state = opened(loop, path, gate=gate, drift=Kept(b"new"))
    assert gate.restored == [b"g"]
    assert read_part(path, "gate") == b"g"
    assert (path.parent / "outbox.gate").exists()
    state.close()
    left = {one.name for one in path.parent.iterdir()}
    assert left == {"outbox.drift.damaged", "outbox.other", "outbox.state.db"}
    assert (read_part(path, "gate"), read_part(path, "drift")) == (b"g", b"new")


def test_a_file_that_an_earlier_version_has_written_since_counts(loop: Loop, path: Path) -> None:
    write(loop, path, gate=b"old")
    (path.parent / "outbox.gate").write_bytes(b"since")
    (path.parent / "outbox.gate").chmod(0o600)
    gate = Kept()
    opened(loop, path, gate=gate)
    assert gate.restored == [b"since"]


@pytest.mark.parametrize("erases", [True, False])
def test_what_a_person_took_out_stays_in_no_page_of_the_file(loop: Loop, path: Path, erases: bool) -> None:
    kept = Kept(b"a person's numbers " * 500)
    with closing(StateFile(path)) as state:
        state.open(loop)
        state.add("examples", kept.save, kept.restore, erases=erases)
        state.write_now()
        kept.data = b"nothing"
        state.write_now()
    assert (b"a person's numbers" in path.read_bytes()) is not erases
