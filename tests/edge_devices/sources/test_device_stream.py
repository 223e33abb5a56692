"""What every source over a device shares, on a device that is a named pipe."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from edge_devices.sources.device_stream import DeviceStream
from edge_devices.sources.reopening import Unreachable

from edge_runtime.errors import ConfigError
from edge_runtime.metrics import Metrics
from edge_runtime.types import Reading
from tests.edge_devices.sources.sensors import Listener

MOST = 2


class Bytes(DeviceStream):
    """Each byte is a sample."""

    END = "nobody writes any more"

    def __init__(self, path: Path, metrics: Metrics) -> None:
        super().__init__("bytes", "the pipe", metrics, None, in_flight=MOST, rng=random.Random(0))
        self.path = path
        self.mistake = False
        self.took: list[bytes] = []

    def _connect(self) -> None:
        if self.mistake:
            raise ConfigError("the pipe may not be read")
        try:
            fd = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK)
        except FileNotFoundError as error:
            raise Unreachable("the pipe is not there") from error
        self._follow(fd, 8)

    def _disconnect(self) -> None:
        fd = self._fd
        if fd >= 0:
            self._unfollow()
            os.close(fd)

    def _take(self, data: bytes) -> None:
        self.took.append(data)
        if not self._behind:
            values = np.frombuffer(data, np.uint8).astype(np.float32).reshape(-1, 1)
            self._hand_over_samples([Reading("k", 0.0, values)], len(data))

    def hold(self) -> None:
        self._hold()

    def resume(self) -> None:
        self._resume()


class Piped(Listener):
    """The source, and the end of the pipe that plays the device."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "pipe"
        self.metrics = Metrics()
        self.bytes = Bytes(self.path, self.metrics)
        self.writer = -1
        super().__init__(self.bytes)

    def plug(self) -> None:
        os.mkfifo(self.path)
        self.writer = os.open(self.path, os.O_RDWR | os.O_NONBLOCK)

    def unplug(self) -> None:
        self.path.unlink()
        os.close(self.writer)
        self.writer = -1

    def send(self, data: bytes) -> None:
        os.write(self.writer, data)

    def turns(self) -> None:
        for _ in range(5):
            self.loop.iterate(0.01)


@pytest.fixture
def piped(tmp_path: Path) -> Iterator[Piped]:
    one = Piped(tmp_path)
    yield one
    one.close()
    if one.writer >= 0:
        os.close(one.writer)


def test_a_device_is_read_lost_and_opened_again_and_each_is_said_once(
    piped: Piped, caplog: pytest.LogCaptureFixture
) -> None:
    piped.open()
    assert caplog.text.count("trying again until it works: reason=the pipe is not there") == 1
    piped.plug()
    piped.until(lambda: piped.bytes._fd >= 0)
    piped.send(b"\1\2")
    piped.until(lambda: piped.values() == [1, 2])
    piped.unplug()
    piped.until(lambda: "the pipe is gone (nobody writes any more)" in caplog.text)
    piped.plug()
    piped.until(lambda: piped.metrics.counts["source_reopens_total"] == 1)
    piped.send(b"\3")
    piped.until(lambda: piped.values() == [1, 2, 3])
    assert piped.metrics.counts["messages_total"] == 2
    assert piped.metrics.counts["message_bytes_total"] == 3
    assert not piped.bytes.finished


def test_no_more_than_its_share_is_read_at_a_time(piped: Piped) -> None:
    piped.plug()
    piped.open()
    piped.send(bytes(range(20)))
    piped.until(lambda: len(piped.values()) == 20)
    assert [len(data) for data in piped.bytes.took] == [8, 8, 4]


def test_an_error_while_reading_is_a_loss_with_its_reason(
    piped: Piped, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    piped.plug()
    piped.open()
    real, errors = os.read, [BlockingIOError(), OSError(5, "Input/output error")]

    def failing(fd: int, size: int) -> bytes:
        if fd == piped.bytes._fd and errors:
            raise errors.pop(0)
        return real(fd, size)

    monkeypatch.setattr(os, "read", failing)
    piped.send(b"\1")
    piped.until(lambda: "the pipe is gone (Input/output error)" in caplog.text)
    piped.until(lambda: piped.values() == [1])


def test_the_source_knows_when_the_pipeline_is_behind(piped: Piped) -> None:
    piped.held = []
    piped.plug()
    piped.open()
    for i in range(MOST + 1):
        piped.send(bytes([i]))
        piped.until(lambda i=i: len(piped.bytes.took) == i + 1)  # type: ignore[misc]
    assert piped.values() == [0, 1]
    piped.held[0]()
    piped.send(b"\7")
    piped.until(lambda: piped.values() == [0, 1, 7])


def test_what_is_held_stays_in_the_device(piped: Piped) -> None:
    piped.plug()
    piped.open()
    piped.bytes.hold()
    piped.send(b"\1")
    piped.turns()
    assert piped.values() == []
    piped.bytes.resume()
    piped.until(lambda: piped.values() == [1])


def test_a_mistake_stops_the_start_and_a_pause_the_attempts(piped: Piped) -> None:
    piped.bytes.mistake = True
    with pytest.raises(ConfigError, match="may not be read"):
        piped.open()
    piped.bytes.mistake = False
    piped.open()
    piped.bytes.pause()
    piped.plug()
    piped.turns()
    assert piped.bytes._fd < 0
