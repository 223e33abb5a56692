from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from edge_runtime.base.system.loop import Loop
from edge_runtime.clock import SimulatedClock
from edge_runtime.errors import StoreError, StoreUnusable
from edge_runtime.store.durable.soft_state import EVERY_S, SoftState


class Kept:
    def __init__(self) -> None:
        self.data = b"1"
        self.restored: list[bytes] = []

    def take(self) -> bytes:
        return self.data

    def restore(self, data: bytes) -> None:
        if data == b"rubbish":
            raise StoreError("it is rubbish")
        self.restored.append(data)


def test_what_a_stop_wrote_the_next_start_has(tmp_path: Path) -> None:
    path, kept = tmp_path / "s", Kept()
    with closing(Loop()) as loop:
        for data in (b"1", b"2"):
            kept.data = data
            state = SoftState(path, kept.take, kept.restore)
            state.open(loop)
            state.close()
            state.close()
            assert path.read_bytes() == data
    assert kept.restored == [b"1"]


def test_it_is_written_once_a_minute(tmp_path: Path) -> None:
    clock, kept = SimulatedClock(), Kept()
    state = SoftState(tmp_path / "s", kept.take, kept.restore)
    with closing(Loop(clock=clock)) as loop:
        state.open(loop)
        assert not (tmp_path / "s").exists()
        clock.advance(EVERY_S + 1)
        loop.iterate(0)
        kept.data = b"later"
        state.close()
    assert (tmp_path / "s").read_bytes() == b"later"


def test_a_file_that_cannot_be_read_is_begun_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path, kept = tmp_path / "s", Kept()
    path.write_bytes(b"rubbish")
    path.chmod(0o600)
    state = SoftState(path, kept.take, kept.restore)
    with closing(Loop()) as loop:
        state.open(loop)
        state.close()
    assert "is begun again, and kept as *.damaged: it is rubbish" in caplog.text
    assert path.read_bytes() == b"1"
    assert (tmp_path / "s.damaged").read_bytes() == b"rubbish"


def test_a_disk_that_fails_is_said_and_costs_nothing_else(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    kept = Kept()
    state = SoftState(tmp_path / "no folder" / "s", kept.take, kept.restore)
    with closing(Loop()) as loop:
        state.open(loop)
        state.close()
    assert "cannot be written: No such file or directory" in caplog.text


def test_a_file_that_others_may_write_is_refused(tmp_path: Path) -> None:
    path, kept = tmp_path / "s", Kept()
    path.write_bytes(b"1")
    path.chmod(0o666)
    with closing(Loop()) as loop, pytest.raises(StoreUnusable):
        SoftState(path, kept.take, kept.restore).open(loop)


def test_what_must_not_wait_is_on_the_disk_at_once(tmp_path: Path) -> None:
    kept = Kept()
    with closing(Loop(clock=SimulatedClock())) as loop:
        state = SoftState(tmp_path / "s", kept.take, kept.restore)
        state.open(loop)
        assert state.write_now()
        assert (tmp_path / "s").read_bytes() == b"1"
        (tmp_path / "s.new").mkdir()
        kept.data = b"2"
        assert not state.write_now()
        assert (tmp_path / "s").read_bytes() == b"1"
        (tmp_path / "s.new").rmdir()
        state.close()
    assert (tmp_path / "s").read_bytes() == b"2"
