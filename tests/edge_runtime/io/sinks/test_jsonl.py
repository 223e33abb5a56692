"""Lines in a file: whole ones only, through full disks, rotations and restarts."""

from __future__ import annotations

import dataclasses
import errno
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_runtime.base.system.loop import Loop
from edge_runtime.clock import SimulatedClock
from edge_runtime.errors import ConfigError
from edge_runtime.io.sinks import jsonl
from edge_runtime.io.sinks.jsonl import JsonlSink, JsonlSinkConfig
from edge_runtime.metrics import Metrics
from tests.edge_runtime.io.sinks.answers import correction, ids, prediction
from tests.edge_runtime.io.sinks.disk import Disk

LINE = len(prediction(0).to_json()) + 1


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    made = Disk()
    monkeypatch.setattr(jsonl, "os", made)
    return made


@pytest.fixture
def loop() -> Iterator[Loop]:
    made = Loop()
    yield made
    made.close()


class Fixture:
    def __init__(self, loop: Loop, path: Path, **config: Any) -> None:
        self.metrics = Metrics()
        self.path = path
        self.done: list[int] = []
        self.sink = JsonlSink(JsonlSinkConfig(path=path, **config), self.metrics)
        self.sink.open(loop)
        self.loop = loop

    def send(self, *numbers: int) -> None:
        self.sink.send([prediction(i) for i in numbers], lambda: self.done.extend(numbers))

    def ids(self) -> list[int]:
        return [int(name.removeprefix("k@")) for name in ids(self.path.read_bytes())]


@pytest.fixture
def file(loop: Loop, tmp_path: Path) -> Iterator[Fixture]:
    made = Fixture(loop, tmp_path / "out.jsonl")
    yield made
    made.sink.close(1.0)


def test_answers_are_there_when_they_are_reported_a_line_each(file: Fixture) -> None:
    file.send(1, 2)
    file.sink.send([correction(1), prediction(3, key="é\n\u2028")], lambda: file.done.append(-1))
    assert file.done == [1, 2, -1]
    sent = (prediction(1), prediction(2), correction(1), prediction(3, key="é\n\u2028"))
    assert file.path.read_bytes() == b"".join(answer.to_json() + b"\n" for answer in sent)
    assert [orjson.loads(line)["key"] for line in file.path.read_bytes().splitlines()] == ["k", "k", "k", "é\n\u2028"]


@pytest.mark.parametrize("mode", [0o600, 0o640])
def test_a_file_is_made_for_its_owner_alone_unless_the_configuration_widens_it(
    loop: Loop, tmp_path: Path, mode: int
) -> None:
    """Files that begin when the one before is full, too; one that exists keeps the permissions that it has."""
    path = tmp_path / "answers.jsonl"
    config = JsonlSinkConfig(path=path, max_bytes=1, keep=1)
    sink = JsonlSink(config if mode == 0o600 else dataclasses.replace(config, mode=mode), Metrics())
    sink.open(loop)
    for i in range(3):
        sink.send([prediction(i)], None)
    assert {file.stat().st_mode & 0o777 for file in (path, tmp_path / "answers.jsonl.1")} == {mode}
    sink.close(1.0)
    path.chmod(0o644)
    sink = JsonlSink(JsonlSinkConfig(path=path), Metrics())
    sink.open(loop)
    sink.close(1.0)
    assert path.stat().st_mode & 0o777 == 0o644
    for wrong in (0o400, 0o1600, -1):
        with pytest.raises(ValueError, match="mode must be"):
            JsonlSinkConfig(path=path, mode=wrong)


def test_a_restart_appends(file: Fixture, loop: Loop) -> None:
    file.send(1)
    file.sink.close(1.0)
    again = Fixture(loop, file.path)
    again.send(2)
    again.sink.close(1.0)
    assert file.ids() == [1, 2]


def test_half_a_line_from_a_crash_stays_alone(loop: Loop, tmp_path: Path) -> None:
    (tmp_path / "out.jsonl").write_bytes(b'{"id": "k@0", "key"')
    file = Fixture(loop, tmp_path / "out.jsonl")
    file.send(1)
    file.sink.close(1.0)
    assert file.path.read_bytes() == b'{"id": "k@0", "key"\n' + prediction(1).to_json() + b"\n"


def test_a_full_disk_holds_answers_back_and_leaves_whole_lines(file: Fixture, disk: Disk) -> None:
    file.send(1)
    disk.room = LINE // 2
    file.send(2)
    file.send(3)
    assert file.done == [1]
    assert file.ids() == [1]
    disk.room = None
    file.send(4)
    assert file.done == [1, 2, 3, 4]
    assert file.ids() == [1, 2, 3, 4]
    assert file.metrics.counts["jsonl_errors_total"] == 2
    assert not file.metrics.dropped


def test_space_that_returns_is_noticed_without_new_answers(
    file: Fixture, disk: Disk, loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jsonl, "RETRY_S", 0.01)
    disk.room = 0
    file.send(1)
    loop.iterate(0.05)
    disk.room = None
    for _ in range(20):
        loop.iterate(0.05)
        if file.done:
            break
    assert file.done == [1]
    assert file.ids() == [1]


def test_what_memory_does_not_hold_is_dropped_counted_and_reported(loop: Loop, tmp_path: Path, disk: Disk) -> None:
    file = Fixture(loop, tmp_path / "out.jsonl", max_pending_bytes=3 * LINE + 10)
    disk.room = 0
    for i in range(10):
        file.send(i)
    assert file.done == [0, 1, 2, 3, 4, 5, 6]
    assert file.metrics.dropped == {"jsonl_full": 7}
    disk.room = None
    file.sink.close(1.0)
    assert file.ids() == [7, 8, 9]


def test_a_torn_line_that_cannot_be_taken_back_is_ended(file: Fixture, disk: Disk) -> None:
    disk.room, disk.can_truncate = 10, False
    file.send(1)
    disk.room = None
    file.send(2)
    first, *rest = file.path.read_bytes().split(b"\n", 1)
    assert first == prediction(1).to_json()[:10]
    assert ids(rest[0]) == ["k@1", "k@2"]


def test_what_is_left_at_the_end_is_counted_and_not_reported(loop: Loop, tmp_path: Path, disk: Disk) -> None:
    file = Fixture(loop, tmp_path / "out.jsonl")
    disk.room = 0
    file.send(1, 2)
    file.sink.close(0.0)
    file.sink.close(0.0)
    assert file.done == []
    assert file.metrics.dropped == {"jsonl_closed": 2}


def test_a_large_file_is_put_aside(loop: Loop, tmp_path: Path) -> None:
    file = Fixture(loop, tmp_path / "out.jsonl", max_bytes=2 * LINE, keep=2)
    for i in range(7):
        file.send(i)
    file.sink.close(1.0)
    assert file.ids() == [6]
    assert ids((tmp_path / "out.jsonl.1").read_bytes()) == ["k@4", "k@5"]
    assert ids((tmp_path / "out.jsonl.2").read_bytes()) == ["k@2", "k@3"]
    assert not (tmp_path / "out.jsonl.3").exists()


def test_keeping_none_starts_over(loop: Loop, tmp_path: Path) -> None:
    file = Fixture(loop, tmp_path / "out.jsonl", max_bytes=LINE, keep=0)
    for i in range(3):
        file.send(i)
    file.sink.close(1.0)
    assert file.ids() == [2]
    assert [path.name for path in tmp_path.iterdir()] == ["out.jsonl"]


def test_a_rotation_that_fails_goes_on_with_the_old_file(
    loop: Loop, tmp_path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise OSError(errno.EACCES, "no")

    file = Fixture(loop, tmp_path / "out.jsonl", max_bytes=LINE)
    monkeypatch.setattr(disk, "replace", fail, raising=False)
    file.send(1)
    file.send(2)
    file.sink.close(1.0)
    assert file.ids() == [1, 2]
    assert file.done == [1, 2]


@pytest.mark.parametrize("fsync", ["never", "batch"])
@pytest.mark.parametrize("what", ["moved", "removed", "folder"])
def test_a_file_that_others_moved_is_made_afresh(fsync: Any, what: str, tmp_path: Path) -> None:
    folder = tmp_path / "answers"
    folder.mkdir()
    clock = SimulatedClock()
    loop = Loop(clock=clock)
    file = Fixture(loop, folder / "out.jsonl", fsync=fsync)
    for i in range(10):
        clock.advance(1.0)
        file.send(i)
        if i == 4 and what == "moved":
            file.path.rename(folder / "out.jsonl.1")
        elif i == 4 and what == "removed":
            file.path.unlink()
        elif i == 4:
            folder.rename(tmp_path / "before")
            folder.mkdir()
    assert file.ids() == [5, 6, 7, 8, 9]
    file.sink.reopen()
    file.path.unlink()
    file.send(10)
    assert file.ids() == [10]
    file.sink.close(1.0)
    loop.close()
    assert file.done == list(range(11))
    assert not file.metrics.dropped


def test_a_failing_sync_is_counted_as_loss(loop: Loop, tmp_path: Path, disk: Disk) -> None:
    file = Fixture(loop, tmp_path / "out.jsonl", fsync="batch")
    disk.sync_error = OSError(errno.EIO, "input/output error")
    file.send(1, 2)
    file.sink.close(1.0)
    assert file.done == [1, 2]
    assert file.metrics.dropped == {"jsonl_sync_failed": 2}


def test_closing_waits_for_the_sync_and_reports(loop: Loop, tmp_path: Path) -> None:
    file = Fixture(loop, tmp_path / "out.jsonl", fsync="batch", max_bytes=2 * LINE)
    for i in range(9):
        file.send(i)
    file.sink.close(5.0)
    assert file.done == list(range(9))


@pytest.mark.parametrize("kind", ["missing folder", "folder", "pipe"])
def test_what_cannot_be_a_file_is_said_so(kind: str, loop: Loop, tmp_path: Path) -> None:
    path = tmp_path / "x"
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path = tmp_path / "no" / "x"
    with pytest.raises(ConfigError, match="cannot write"):
        JsonlSink(JsonlSinkConfig(path=path), Metrics()).open(loop)


@pytest.mark.parametrize("failure_reason", [errno.ENOSPC, errno.EROFS, errno.EIO])
@pytest.mark.parametrize("fsync", ["never", "batch"])
def test_a_disk_in_trouble_at_the_start_holds_answers_back_until_it_is_well(
    loop: Loop, tmp_path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch, failure_reason: int, fsync: str
) -> None:
    """Broken once by refusing to start, as before: a power cut on a full card ended the application for good."""
    monkeypatch.setattr(jsonl, "RETRY_S", 0.01)
    disk.open_error = failure_reason
    file = Fixture(loop, tmp_path / "out.jsonl", fsync=fsync)
    file.send(1)
    file.send(2)
    loop.iterate(0.05)
    assert not file.path.exists()
    assert not file.done
    disk.open_error = 0
    for _ in range(200):
        loop.iterate(0.05)
        if len(file.done) == 2:
            break
    assert file.done == [1, 2]
    file.send(3)
    file.sink.close(5.0)
    assert file.ids() == [1, 2, 3]
    assert not file.metrics.dropped


def test_a_disk_in_trouble_from_the_start_to_the_end_loses_nothing_silently(
    loop: Loop, tmp_path: Path, disk: Disk
) -> None:
    disk.open_error = errno.EROFS
    file = Fixture(loop, tmp_path / "out.jsonl", max_pending_bytes=2 * LINE)
    for i in range(5):
        file.send(i)
    file.sink.close(1.0)
    file.sink.close(1.0)
    assert file.done == [0, 1, 2]
    assert file.metrics.dropped == {"jsonl_full": 3, "jsonl_closed": 2}


@pytest.mark.parametrize("wrong", [{"max_bytes": -1}, {"keep": -1}, {"max_pending_bytes": -1}])
def test_settings_that_make_no_sense_are_refused(wrong: Any) -> None:
    with pytest.raises(ValueError, match="at least 0"):
        JsonlSinkConfig(path=Path("x"), **wrong)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.lists(st.one_of(st.none(), st.integers(0, 3 * LINE)), max_size=12))
def test_whatever_the_disk_does_every_answer_is_whole_and_once_or_counted(rooms: list[int | None]) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        disk = Disk()
        patch.setattr(jsonl, "os", disk)
        loop = Loop()
        file = Fixture(loop, Path(folder) / "out.jsonl", max_pending_bytes=2 * LINE)
        for i, room in enumerate(rooms):
            disk.room = room
            file.send(i)
        disk.room = None
        file.sink.close(1.0)
        loop.close()
        written = file.ids()
        assert written == sorted(set(written))
        assert len(written) + file.metrics.dropped["jsonl_full"] == len(rooms)
        assert sorted(file.done) == list(range(len(rooms)))
