"""What was written down brings a windower to where another one was, and no window is lost or becomes another one."""

from __future__ import annotations

import errno
import os
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_runtime.app.config import parse
from edge_runtime.errors import ConfigError, StoreError, StoreFull, StoreUnusable
from edge_runtime.signal.windowing.config import WindowConfig
from edge_runtime.signal.windowing.window import Window, Windower
from edge_runtime.store.durable import reading_log as reading_log_module
from edge_runtime.store.durable.reading_log_file import LogEntry, ReadingLogFile, Recovered
from edge_runtime.store.durable.reading_log_records import decode_snapshot, encode_snapshot
from tests.edge_runtime.store.durable.bench import PATIENCE_S, Bench
from tests.edge_runtime.store.durable.outbox.outboxes import crash_image
from tests.edge_runtime.store.durable.streams import contract, same, stream


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    cut=st.integers(0, 60),
    resample=st.sampled_from(["linear", "mean", "previous"]),
    hop=st.sampled_from([1, 3, 8]),
    context=st.sampled_from([0, 12]),
    lateness=st.sampled_from([0.0, 0.7]),
)
def test_a_restored_windower_goes_on_as_if_nothing_had_happened(
    seed: int, cut: int, resample: str, hop: int, context: int, lateness: float
) -> None:
    """Wherever it was interrupted. Mutation that this finds: any of its fields left out of `Windower.state`."""
    spec, config = contract(resample, hop, context), WindowConfig(lateness_s=lateness)
    readings = stream(seed, 60)
    whole = Windower(spec, config)
    before = whole.push(readings[:cut])
    interrupted = Windower(spec, config)
    same(interrupted.push(readings[:cut]), before)
    held = [(7, window) for window in before[-3:]]
    windows, states = decode_snapshot(encode_snapshot(held, interrupted.state()))
    assert [seq for seq, _ in windows] == [7] * len(held)
    same([window for _, window in windows], before[-3:])
    restored = Windower(spec, config)
    restored.restore(states)
    same(restored.push(readings[cut:]) + restored.flush(), whole.push(readings[cut:]) + whole.flush())


@pytest.fixture
def benches() -> Iterator[Callable[..., Bench]]:
    made: list[Bench] = []

    def make(*arguments: object, **more: object) -> Bench:
        made.append(Bench(*arguments, **more))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for bench in made:
        bench.close()


Make = Callable[..., Bench]


@pytest.mark.parametrize("seed", range(4))
def test_no_window_is_lost_and_none_becomes_another_over_crashes(
    benches: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Answers that were not safe are given again, with the same content; those that were are not.

    Small rows and a small bound, so that snapshots fall everywhere. Mutations that this finds: a snapshot without the
    open windows; `settled` that includes an open turn; replaying from the start of the file.
    """
    monkeypatch.setattr(reading_log_module, "_COMPACT_BYTES", 400)
    rng = np.random.default_rng(seed)
    readings = stream(seed, 300)
    expected = {window.id: window for window in Windower(contract()).push(readings)}
    answered: dict[str, Window] = {}
    unsafe: set[str] = set()
    folder, at, crashes, snapshots = tmp_path, 0, 0, 0
    bench = benches(folder)
    while at < len(readings):
        n = int(rng.integers(1, 6))
        for window in bench.turn(*readings[at : at + n]):
            assert window.id not in answered
            answered[window.id] = window
            unsafe.add(window.id)
        at += n
        if rng.random() < 0.5:
            bench.settle()
            unsafe.clear()
        if rng.random() < 0.1:
            # A settlement is written down with the next commit: what came after the last one may be repeated.
            known = set(unsafe)
            bench.wait()
            snapshots += bench.metrics.counts["reading_log_snapshots_total"]
            folder, crashes = bench.crash(tmp_path / str(at)), crashes + 1
            bench = benches(folder)
            again = {window.id: window for window in bench.recovered}
            assert known <= set(again) <= set(answered)
            for name, window in again.items():
                same([window], [answered[name]])
            unsafe = set(again)
    assert crashes > 5
    assert snapshots > crashes
    assert list(answered) == list(expected)
    for name, window in answered.items():
        same([window], [expected[name]])


def test_readings_are_acknowledged_when_they_are_on_the_disk_and_not_before(benches: Make, tmp_path: Path) -> None:
    """And one flush serves all readings of a turn, and all turns that wait. Mutation: `write` calling `done`."""

    class Slow(ReadingLogFile):
        appends = durable = 0

        def append(self, entries: Sequence[LogEntry], acked: int) -> None:
            time.sleep(0.02)  # as long as an SD card takes
            super().append(entries, acked)
            self.appends += 1
            self.durable += 2 * len(entries)

    file = Slow(tmp_path / "journal.db", 2**20)
    bench = benches(tmp_path, file)
    early: list[int] = []

    def acknowledge() -> None:
        bench.acknowledged += 1
        if bench.acknowledged > file.durable:
            early.append(bench.acknowledged)

    bench.acknowledge = acknowledge  # type: ignore[method-assign]
    for reading in stream(0, 50):
        bench.turn(reading, reading._replace(key="other"))
        bench.loop.iterate(0)
    bench.wait()
    assert bench.acknowledged == file.durable == 100
    assert not early
    assert file.appends < 25
    assert bench.metrics.counts["reading_log_iterations_total"] == 50 + 1


def test_a_clean_stop_leaves_nothing_to_replay(benches: Make, tmp_path: Path) -> None:
    first = benches(tmp_path)
    readings = stream(3, 40)
    before = first.turn(*readings[:25])
    first.settle()
    first.reading_log.stop(first.windower, PATIENCE_S)
    second = benches(tmp_path)
    assert second.recovered == []
    assert second.metrics.counts["replayed_readings_total"] == 0
    after = second.turn(*readings[25:])
    same(before + after, Windower(contract()).push(readings))


class Failing(ReadingLogFile):
    """A disk that is full for as long as the test says."""

    full = False

    def append(self, *arguments: object) -> None:
        if self.full:
            raise StoreFull("no room")
        super().append(*arguments)  # type: ignore[arg-type]

    def replace(self, *arguments: object) -> None:
        if self.full:
            raise StoreFull("no room")
        super().replace(*arguments)  # type: ignore[arg-type]


def test_a_full_disk_stops_nothing_is_said_and_heals_with_a_snapshot(
    benches: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Mutation that this finds: a commit that works after one that did not, and does not make it whole."""
    monkeypatch.setattr(reading_log_module, "_AGAIN_S", 0.0)
    file = Failing(tmp_path / "journal.db", 2**20)
    bench = benches(tmp_path, file)
    readings = stream(5, 90)
    bench.turn(*readings[:20])
    bench.wait()
    file.full = True
    for reading in readings[20:50]:
        bench.turn(reading)
    bench.wait()
    assert bench.acknowledged == 50, "the stream goes on"
    assert bench.metrics.gauges["reading_log_durable"] == 0.0
    assert bench.metrics.counts["reading_log_skipped_total"] == 30
    assert caplog.text.count("acknowledged without being written down") == 1
    file.full = False
    for reading in readings[50:60]:
        bench.turn(reading)
        bench.wait()
    assert bench.metrics.gauges["reading_log_durable"] == 1.0
    for reading in readings[60:70]:
        bench.turn(reading)
    bench.settle()
    after = benches(bench.crash(tmp_path / "after"))
    whole = Windower(contract())
    whole.push(readings[:70])
    same(after.windower.push(readings[70:]), whole.push(readings[70:]))


class Unreadable(ReadingLogFile):
    """A disk from which nothing can be read, nor written to it, for as long as the test says."""

    dead = True

    def read(self) -> Recovered:
        if self.dead:
            raise StoreError("disk I/O error")
        return super().read()

    def replace(self, *arguments: object) -> None:
        if self.dead:
            raise StoreError("disk I/O error")
        super().replace(*arguments)  # type: ignore[arg-type]


def test_a_start_on_a_failing_disk_answers_and_reads_what_was_left_before_it_writes(
    benches: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What the run before finished and did not answer safely is answered; what it had begun costs those windows.

    Mutations that this finds: a start that ends with the error; a snapshot that is written before the file is read.
    """
    monkeypatch.setattr(reading_log_module, "_AGAIN_S", 0.0)
    readings = stream(5, 90)
    first = benches(tmp_path)
    unanswered = first.turn(*readings[:40])
    assert unanswered
    folder = first.crash(tmp_path / "after")
    file = Unreadable(folder / "journal.db", 2**20)
    second = benches(folder, file)
    assert second.recovered == []
    assert second.metrics.gauges["reading_log_durable"] == 0.0
    for reading in readings[40:60]:
        second.turn(reading)
        second.wait()
    assert second.acknowledged == 20, "the stream goes on"
    assert second.metrics.counts["reading_log_skipped_total"] == 20
    assert caplog.text.count("acknowledged without being written down") == 1
    assert second.late == []
    file.dead = False
    for reading in readings[60:70]:
        second.turn(reading)
        second.wait()
    same(second.late, unanswered)
    assert second.metrics.counts["window_restarts_total"] == 2
    assert second.metrics.gauges["reading_log_durable"] == 1.0
    for reading in readings[70:80]:
        second.turn(reading)
    second.settle()
    third = benches(second.crash(tmp_path / "at last"))
    whole = Windower(contract())
    whole.push(readings[40:80])
    same(third.windower.push(readings[80:]), whole.push(readings[80:]))


def test_windows_that_were_read_late_are_kept_until_they_are_answered(
    benches: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second crash before that costs nothing either. Mutation: `_take_over` that leaves them out of `_open`."""
    monkeypatch.setattr(reading_log_module, "_AGAIN_S", 0.0)
    first = benches(tmp_path)
    unanswered = first.turn(*stream(5, 40))
    folder = first.crash(tmp_path / "after")
    file = Unreadable(folder / "journal.db", 2**20)
    second = benches(folder, file)
    file.dead = False
    until = time.monotonic() + PATIENCE_S
    while second.metrics.gauges["reading_log_durable"] == 0.0:
        assert time.monotonic() < until
        second.turn()
        second.wait()
    same(second.late, unanswered)
    third = benches(second.crash(tmp_path / "at last"))
    same(third.recovered, unanswered)


def test_a_disk_that_is_full_or_fails_is_no_reason_not_to_start_and_a_wrong_path_is(tmp_path: Path) -> None:
    """Mutation that this finds: an OSError that leaves `ReadingLogFile.read` as it is."""
    path = tmp_path / "journal.db"

    def disk(code: int) -> Callable[[Path], sqlite3.Connection]:
        def fail(_: Path) -> sqlite3.Connection:
            raise OSError(code, os.strerror(code))

        return fail

    for code, kind in (
        (errno.ENOSPC, StoreError), (errno.EIO, StoreError), (errno.EROFS, StoreError), (errno.EACCES, StoreUnusable),
    ):  # fmt: skip
        file = ReadingLogFile(path, 2**20, disk(code))
        with pytest.raises(StoreError) as caught:
            file.read()
        assert type(caught.value) is kind, code
        file.close()
    path.unlink()
    path.mkdir()
    file = ReadingLogFile(path, 2**20)
    with pytest.raises(StoreUnusable, match="directory; check its path"):
        file.read()
    file.close()


def test_crashes_one_after_the_other_do_not_lengthen_the_log(tmp_path: Path) -> None:
    """Mutation that this finds: no `fold_log` at opening. Each crash then left the log a turn longer."""
    folder = tmp_path / "first"
    folder.mkdir()
    longest = 0
    for life in range(1, 9):
        file = ReadingLogFile(folder / "journal.db", 2**24)
        assert [entry.seq for entry in file.read().entries] == list(range(1, life))
        file.append([LogEntry(life, bytes(700_000))], 0)
        longest = max(longest, (folder / "journal.db-wal").stat().st_size)
        folder = crash_image(folder, tmp_path / f"life-{life}", "journal.db")
        file.close()
    assert longest < 3 * 700_000


def test_how_much_was_settled_is_believed_only_with_its_checksum(tmp_path: Path) -> None:
    """Mutation that this finds: a checksum without it. A spoilt bit then called windows answered that were not."""
    path = tmp_path / "journal.db"
    file = ReadingLogFile(path, 2**20)
    file.read()
    file.replace("contract", LogEntry(1, b"state"))
    file.append([LogEntry(2, b"a"), LogEntry(3, b"b")], 1)
    file.close()
    with closing(sqlite3.connect(path)) as db:
        db.execute("UPDATE turns SET settled = 3 WHERE seq = 3")
        db.commit()
    file = ReadingLogFile(path, 2**20)
    left = file.read()
    file.close()
    assert ([entry.seq for entry in left.entries], left.acked, left.damaged) == ([2], 1, 1)


def test_nothing_is_written_behind_a_hole(benches: Make, tmp_path: Path) -> None:
    """Turns that were on their way when a commit failed would join samples that do not follow each other.

    Mutation that this finds: `_commit` without `SNAPSHOT_FIRST`.
    """

    class Hiccup(ReadingLogFile):
        attempts = 0

        def append(self, *arguments: object) -> None:
            self.attempts += 1
            if self.attempts <= 3:
                raise StoreError("a moment's trouble")
            super().append(*arguments)  # type: ignore[arg-type]

    file = Hiccup(tmp_path / "journal.db", 2**20)
    bench = benches(tmp_path, file)
    bench.wait()
    bench.turn(*stream(5, 5))
    until = time.monotonic() + PATIENCE_S
    while file.attempts < 3:  # the thread gives up, and the loop has not heard of it
        assert time.monotonic() < until
        time.sleep(0.001)
    for reading in stream(5, 20)[5:]:
        bench.turn(reading)
    bench.wait()
    assert bench.acknowledged == 20
    after = benches(bench.crash(tmp_path / "after"))
    assert after.metrics.counts["replayed_readings_total"] == 0


def test_what_was_written_for_other_windows_is_left_alone(
    benches: Make, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first = benches(tmp_path)
    first.turn(*stream(1, 30))
    second = benches(first.crash(tmp_path / "other"), spec=contract(hop=4))
    assert second.recovered == []
    assert len(second.windower) == 0
    assert "was written for other windows" in caplog.text


def test_a_new_contract_while_running_is_a_new_journal(benches: Make, tmp_path: Path) -> None:
    bench = benches(tmp_path)
    bench.turn(*stream(1, 30))
    other = contract(hop=8)
    bench.windower = Windower(other)
    bench.reading_log.change(other, bench.windower)
    readings = stream(2, 40)
    bench.turn(*readings[:20])
    bench.settle()
    after = benches(bench.crash(tmp_path / "after"), spec=other)
    whole = Windower(other)
    whole.push(readings[:20])
    same(after.windower.push(readings[20:]), whole.push(readings[20:]))


def test_two_processes_do_not_share_one(benches: Make, tmp_path: Path) -> None:
    benches(tmp_path)
    with pytest.raises(StoreError, match="in use by another process"):
        ReadingLogFile(tmp_path / "journal.db", 2**20).read()


@pytest.mark.parametrize("where", ["header", "row", "snapshot"])
def test_a_damaged_journal_is_said_and_never_believed(
    benches: Make, tmp_path: Path, caplog: pytest.LogCaptureFixture, where: str
) -> None:
    """It begins anew, or goes on with what stands before the damage. Mutation: no checksum on the rows."""
    first = benches(tmp_path)
    readings = stream(1, 40, arrays=False)
    for reading in readings:
        first.turn(reading)
    first.settle()
    first.wait()
    first.close()  # folds the log into the database
    path = tmp_path / "journal.db"
    if where == "header":
        path.write_bytes(bytes(64) + path.read_bytes()[64:])
    else:
        table, seq = {"row": ("turns", 20), "snapshot": ("snapshot", 2)}[where]
        with closing(sqlite3.connect(path)) as db, db:
            (body,) = db.execute(f"SELECT body FROM {table} WHERE seq = ?", (seq,)).fetchone()
            flipped = bytes([*body[:30], body[30] ^ 1, *body[31:]])
            db.execute(f"UPDATE {table} SET body = ? WHERE seq = ?", (flipped, seq))
    second = benches(tmp_path)
    assert "damaged" in caplog.text
    if where == "row":
        assert 0 < second.metrics.counts["replayed_readings_total"] < len(readings)
    else:
        assert len(second.windower) == 0
        assert (tmp_path / "journal.db.damaged").exists()
    assert second.turn(*readings)


MQTT = '[broker.b]\nurl = "mqtt://localhost"\n[[source]]\ntype = "mqtt"\nbroker = "b"\ntopics = ["x"]\n'
REST = '[model]\nbundle = "x.edge"\n[[sink]]\ntype = "stdout"\n'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (MQTT + REST, r"needs a \[reading_log\] with a path"),
        ('[[source]]\ntype = "stdin"\n[reading_log]\npath = "j.db"\n' + REST, "needs an mqtt source"),
        (MQTT + REST + '[reading_log]\npath = "j.db"\nmax_bytes = 1\n', "max_bytes must be at least"),
    ],
)
def test_a_configuration_that_cannot_keep_the_promise_is_refused(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse('durability = "reading"\n' + text, Path("app.toml"))
