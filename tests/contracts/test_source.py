"""One list of checks over every source: what `edge_runtime.io.sources.Source` promises.

A further source joins by adding a `Case` to `CASES`: how it is made and fed. Sources that only live traffic ends leave
`end` out.
"""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from edge_devices.sources.alsa import AlsaConfig, AlsaSource
from edge_devices.sources.iio import IioConfig, IioSource
from edge_devices.sources.serial import SerialConfig, SerialSource

from edge_runtime.base.system.loop import Loop
from edge_runtime.io.codecs.config import load_codec
from edge_runtime.io.sources import Source
from edge_runtime.io.sources.decoding import Decoder
from edge_runtime.io.sources.recording import RecordingConfig, RecordingSource
from edge_runtime.io.sources.stdin import StdinConfig, StdinSource
from edge_runtime.manifest import Channel, InputContract
from edge_runtime.metrics import Metrics
from edge_runtime.types import Done, Reading
from tests.edge_devices.sources.sensors import Iio, Port, recorder

CONTRACT = InputContract(channels=(Channel(name="ax", unit="g"),), rate_hz=10, window=10, hop=5)
MESSAGES = 40


def line(i: int) -> bytes:
    return b'{"key":"k","t":%d,"values":[%d]}\n' % (i, i)


@dataclass
class Made:
    """A source that will deliver readings with the values 0 to MESSAGES - 1 of the key ``k``."""

    source: Source
    metrics: Metrics
    feed: Callable[[], None]
    """Let the messages come; called once the source is open."""
    end: Callable[[], None] | None
    """Let the origin end."""
    dropped: dict[str, int] = field(default_factory=lambda: {"malformed": 1})
    """What it must have counted as left out, once all has come."""


@dataclass(frozen=True)
class Case:
    """One source."""

    name: str
    make: Callable[[Path, ExitStack], Made]


def recording(folder: Path, _stack: ExitStack) -> Made:
    path, metrics = folder / "k.jsonl", Metrics()
    path.write_bytes(b"".join(line(i) + b"{broken\n" * (i == 7) for i in range(MESSAGES)))
    source = RecordingSource(RecordingConfig(files=(path,)), CONTRACT, metrics)
    return Made(source, metrics, feed=lambda: None, end=lambda: None)


def stdin_pipe(_folder: Path, stack: ExitStack) -> Made:
    read_end, write_end = os.pipe()
    stack.callback(os.close, read_end)
    open_ends = [write_end]

    @stack.callback
    def close_the_rest() -> None:
        for fd in open_ends:
            os.close(fd)

    def feed() -> None:
        for i in range(MESSAGES):
            os.write(write_end, line(i) + b"{broken\n" * (i == 7))

    metrics = Metrics()
    decoder = Decoder(load_codec(StdinConfig().codec, CONTRACT.channels), metrics)
    source = StdinSource(StdinConfig(), decoder, fd=read_end)
    return Made(source, metrics, feed, end=lambda: os.close(open_ends.pop()))


def stdin_file(folder: Path, stack: ExitStack) -> Made:
    path, metrics = folder / "in", Metrics()
    path.write_bytes(b"".join(line(i) + b"{broken\n" * (i == 7) for i in range(MESSAGES)))
    fd = os.open(path, os.O_RDONLY)
    stack.callback(os.close, fd)
    decoder = Decoder(load_codec(StdinConfig().codec, CONTRACT.channels), metrics)
    return Made(StdinSource(StdinConfig(), decoder, fd=fd), metrics, feed=lambda: None, end=lambda: None)


def serial_port(folder: Path, stack: ExitStack) -> Made:
    pytest.importorskip("serial", reason='needs pyserial: pip install "edge-runtime[serial]"')
    port = Port(folder)
    stack.callback(port.unplug)
    metrics, config = Metrics(), SerialConfig(port=str(port.path))
    decoder = Decoder(load_codec(config.codec, CONTRACT.channels), metrics)

    def feed() -> None:
        port.send(b"".join(line(i) + b"{broken\n" * (i == 7) for i in range(MESSAGES)))

    return Made(SerialSource(config, decoder, metrics), metrics, feed, end=None)


def iio_buffer(folder: Path, stack: ExitStack) -> Made:
    iio = Iio(folder, "adc", {
        "buffer/enable": "0", "buffer/length": "2", "in_voltage0_scale": "0.5", "scan_elements/in_voltage0_en": "0",
        "scan_elements/in_voltage0_index": "0", "scan_elements/in_voltage0_type": "be:u12/16>>4",
    })  # fmt: skip
    iio.make_node()
    stack.callback(iio.close)
    config = IioConfig(device="adc", channels=("voltage0",), factor=(2.0,), key="k", sysfs=iio.sysfs, dev=iio.dev)
    metrics = Metrics()
    source = IioSource(config, CONTRACT, metrics)
    # Every record is a number: nothing can be malformed.
    return Made(
        source, metrics, lambda: iio.send(b"".join((i << 4).to_bytes(2, "big") for i in range(MESSAGES))), None, {}
    )


def iio_polled(folder: Path, stack: ExitStack) -> Made:
    """The sensor counts up whenever it is read, and holds nonsense once."""
    iio = Iio(folder, "adc", {"in_voltage0_raw": "0"})
    config = IioConfig(device="adc", channels=("voltage0",), factor=(1.0,), key="k", sysfs=iio.sysfs, rate_hz=500,
                       batch=1)  # fmt: skip
    answers = [str(i) for i in range(MESSAGES)]
    answers.insert(7, "?")
    fed: list[str] = []

    def read(_fd: int, _size: int, _offset: int) -> bytes:
        if not fed:
            raise BlockingIOError(errno.EAGAIN, "no sample yet")
        return fed.pop(0).encode()

    patch = stack.enter_context(pytest.MonkeyPatch.context())
    patch.setattr(os, "pread", read)
    metrics = Metrics()
    return Made(IioSource(config, CONTRACT, metrics), metrics, lambda: fed.extend(answers), None)


def microphone(folder: Path, stack: ExitStack) -> Made:
    go = folder / "go"
    os.mkfifo(go)
    keep = os.open(go, os.O_RDWR)
    stack.callback(os.close, keep)
    numbers = f"b''.join(i.to_bytes(2, 'little') for i in range({MESSAGES}))"
    program = recorder(folder, f"open({str(go)!r}).readline()\nsay('overrun!!! (at least 1.0 ms long)')\n"
                               f"out({numbers})\nwait()")  # fmt: skip
    metrics = Metrics()

    def feed() -> None:
        os.write(keep, b"\n")

    source = AlsaSource(AlsaConfig(program=str(program), gain=2.0**15, key="k"), CONTRACT, metrics)
    return Made(source, metrics, feed, None, {"overrun": 1})


CASES = [
    Case("recording", recording), Case("stdin-pipe", stdin_pipe), Case("stdin-file", stdin_file),
    Case("serial", serial_port), Case("iio-buffer", iio_buffer), Case("iio-polled", iio_polled),
    Case("alsa", microphone),
]  # fmt: skip


class Running:
    """A source on a loop, and what it delivered."""

    def __init__(self, case: Case, folder: Path, stack: ExitStack) -> None:
        self.made = case.make(folder, stack)
        self.source = self.made.source
        self.loop = Loop()
        self.readings: list[Reading] = []
        self.received: list[float] = []
        self.threads: set[int] = set()
        self.held: list[Done] | None = None

    def deliver(self, readings: Sequence[Reading], received: float, done: Done | None) -> None:
        assert readings, "nothing is not delivered"
        self.readings += readings
        self.received.append(received)
        self.threads.add(threading.get_ident())
        if done is not None:
            if self.held is None:
                done()
            else:
                self.held.append(done)

    def open(self) -> None:
        self.source.open(self.loop, self.deliver)

    def values(self) -> list[float]:
        return [float(value) for reading in self.readings for value in reading.values.ravel()]

    def until(self, condition: Callable[[], bool]) -> None:
        end = time.monotonic() + 30
        while not condition():
            assert time.monotonic() < end, f"it did not happen; delivered: {self.values()[:50]}"
            self.loop.iterate(0.02)


@pytest.fixture(params=CASES, ids=lambda case: case.name)
def running(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Running]:
    with ExitStack() as stack:
        made = Running(request.param, tmp_path, stack)
        stack.callback(made.loop.close)
        stack.callback(made.source.close)
        yield made


def test_readings_arrive_in_order_on_the_loop_s_thread_with_its_time_and_what_is_none_is_counted(
    running: Running,
) -> None:
    before = running.loop.clock.monotonic()
    running.open()
    running.made.feed()
    running.until(lambda: len(running.values()) == MESSAGES)
    assert running.values() == list(range(MESSAGES))
    assert {reading.key for reading in running.readings} == {"k"}
    assert all(reading.values.dtype == np.float32 for reading in running.readings)
    assert running.threads == {threading.get_ident()}
    assert running.received == sorted(running.received)
    assert before <= running.received[0] <= running.received[-1] <= running.loop.clock.monotonic()
    running.until(lambda: running.made.metrics.dropped == running.made.dropped)


def test_it_has_finished_when_its_origin_has_ended_and_not_before(running: Running) -> None:
    assert not running.source.finished
    running.open()
    running.made.feed()
    running.until(lambda: len(running.values()) == MESSAGES)
    if running.made.end is None:
        assert not running.source.finished
        return
    running.made.end()
    running.until(lambda: running.source.finished)


def test_nothing_is_delivered_once_it_pauses_and_late_reports_are_taken(running: Running) -> None:
    running.held = []
    running.open()
    running.made.feed()
    running.until(lambda: bool(running.readings))
    running.source.pause()
    count = len(running.readings)
    for done in running.held:
        done()
    for _ in range(5):
        running.loop.iterate(0.01)
    assert len(running.readings) == count


def test_closing_may_be_repeated_and_ends_all_deliveries(running: Running) -> None:
    running.open()
    running.source.close()
    running.source.close()
    running.made.feed()
    for _ in range(5):
        running.loop.iterate(0.01)
    assert running.readings == []


def test_a_source_that_was_never_opened_has_a_name_and_can_be_closed(running: Running) -> None:
    assert running.source.name
    running.source.close()
