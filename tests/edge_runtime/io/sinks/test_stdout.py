"""Standard output: slow readers, readers that go away, and files."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from edge_runtime.base.system.loop import Loop
from edge_runtime.io.sinks.stdout import StdoutSink, StdoutSinkConfig
from edge_runtime.metrics import Metrics
from tests.edge_runtime.io.sinks.answers import ids, prediction


class Pipe:
    """A sink that writes to a pipe nobody need read."""

    def __init__(self, max_pending_bytes: int = 2**20) -> None:
        self.loop = Loop()
        self.metrics = Metrics()
        self.read_end, self.write_end = os.pipe()
        self.sink = StdoutSink(StdoutSinkConfig(max_pending_bytes=max_pending_bytes), self.metrics, fd=self.write_end)
        self.done: list[int] = []
        self.sink.open(self.loop)

    def send(self, *numbers: int) -> None:
        self.sink.send([prediction(i) for i in numbers], lambda: self.done.extend(numbers))

    def read(self) -> bytes:
        os.set_blocking(self.read_end, False)
        data = b""
        while True:
            try:
                piece = os.read(self.read_end, 65536)
            except BlockingIOError:
                self.loop.iterate(0.0)
                try:
                    piece = os.read(self.read_end, 65536)
                except BlockingIOError:
                    return data
            if not piece:
                return data
            data += piece
            self.loop.iterate(0.0)

    def hang_up(self) -> None:
        os.close(self.read_end)
        self.read_end = -1

    def close(self) -> None:
        self.sink.close(0.0)
        self.sink.close(0.0)
        self.loop.close()
        os.close(self.write_end)
        if self.read_end >= 0:
            os.close(self.read_end)


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    made = Pipe()
    yield made
    made.close()


def test_lines_go_out_at_once(pipe: Pipe) -> None:
    pipe.send(1, 2)
    assert pipe.done == [1, 2]
    assert ids(pipe.read()) == ["k@1", "k@2"]


def test_a_reader_that_does_not_read_does_not_block_the_loop(pipe: Pipe) -> None:
    for i in range(2000):  # far more than a pipe holds
        pipe.send(i)
    pipe.loop.iterate(0.0)
    assert 0 < len(pipe.done) < 2000
    assert os.get_blocking(pipe.write_end), "other programs write to it, too"
    assert ids(pipe.read()) == [f"k@{i}" for i in range(2000)]
    assert pipe.done == list(range(2000))
    assert not pipe.metrics.dropped


def test_a_reader_that_goes_away_is_no_error(pipe: Pipe, caplog: pytest.LogCaptureFixture) -> None:
    pipe.send(1)
    pipe.hang_up()
    pipe.send(2)
    pipe.send(3)
    assert pipe.done == [1, 2, 3]
    assert pipe.metrics.dropped == {"stdout_closed": 2}
    assert len(caplog.records) == 1


def test_a_reader_that_goes_away_while_lines_wait(pipe: Pipe) -> None:
    for i in range(2000):
        pipe.send(i)
    pipe.hang_up()
    for _ in range(3):
        pipe.loop.iterate(0.0)
    assert pipe.done == list(range(2000))
    assert pipe.metrics.dropped["stdout_closed"] > 0


def test_closing_writes_what_the_reader_takes_in_time(pipe: Pipe) -> None:
    for i in range(2000):
        pipe.send(i)
    pipe.sink.close(0.05)
    written = len(ids(pipe.read().rpartition(b"\n")[0]))
    assert pipe.metrics.dropped["stdout_closed"] == 2000 - written
    assert len(pipe.done) == written


@pytest.mark.parametrize("where", ["file", "null"])
def test_files_take_everything_at_once(where: str, tmp_path: Path) -> None:
    path = tmp_path / "out" if where == "file" else Path(os.devnull)
    loop, fd = Loop(), os.open(path, os.O_WRONLY | os.O_CREAT)
    sink = StdoutSink(StdoutSinkConfig(), Metrics(), fd=fd)
    sink.open(loop)
    done: list[int] = []
    for i in range(1000):
        sink.send([prediction(i)], lambda i=i: done.append(i))  # type: ignore[misc]
    assert done == list(range(1000))
    sink.close(1.0)
    os.close(fd)
    loop.close()
    if where == "file":
        assert len(ids(path.read_bytes())) == 1000


def test_a_closed_standard_output_swallows_answers() -> None:
    loop = Loop()
    fd = os.open(os.devnull, os.O_WRONLY)
    os.close(fd)
    metrics = Metrics()
    sink = StdoutSink(StdoutSinkConfig(), metrics, fd=fd)
    sink.open(loop)
    sink.send([prediction()], None)
    sink.close(0.0)
    loop.close()
    assert metrics.dropped == {"stdout_closed": 1}


def test_what_memory_does_not_hold_is_dropped_counted_and_reported() -> None:
    pipe = Pipe(max_pending_bytes=10_000)
    for i in range(2000):
        pipe.send(i)
    dropped = pipe.metrics.dropped["stdout_full"]
    assert dropped > 0
    lines = ids(pipe.read())
    assert len(lines) + dropped == 2000
    assert len(pipe.done) == 2000
    pipe.close()


def test_settings_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        StdoutSinkConfig(max_pending_bytes=0)
