"""Standard input: pipes and files, lines and lengths, and streams that misbehave."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edge_runtime import schema
from edge_runtime.base.system.loop import Loop
from edge_runtime.errors import ConfigError
from edge_runtime.io.codecs.config import load_codec
from edge_runtime.io.codecs.json import JsonConfig
from edge_runtime.io.codecs.raw import RawConfig
from edge_runtime.io.sources.decoding import Decoder
from edge_runtime.io.sources.stdin import IN_FLIGHT, StdinConfig, StdinSource
from edge_runtime.manifest import Channel
from edge_runtime.metrics import Metrics
from edge_runtime.types import Done, Reading

CHANNELS = (Channel(name="ax", unit="g"),)


def line(i: int) -> bytes:
    return b'{"key":"k","t":%d,"values":[%d]}\n' % (i, i)


def frame(payload: bytes) -> bytes:
    return len(payload).to_bytes(4, "little") + payload


class Reader:
    """A source on one end of a pipe, or on a file."""

    def __init__(self, config: StdinConfig, path: Path | None = None) -> None:
        self.metrics = Metrics()
        self.loop = Loop()
        if path is None:
            self.fd, self.writer = os.pipe()
        else:
            self.fd, self.writer = os.open(path, os.O_RDONLY), -1
        decoder = Decoder(load_codec(config.codec, CHANNELS), self.metrics)
        self.source = StdinSource(config, decoder, fd=self.fd)
        self.readings: list[Reading] = []
        self.deliveries = 0
        self.hold = False
        self.held: list[Done] = []
        self.source.open(self.loop, self.deliver)

    def deliver(self, readings: Sequence[Reading], received: float, done: Done | None) -> None:
        assert done is not None
        self.readings += readings
        self.deliveries += 1
        if self.hold:
            self.held.append(done)
        else:
            done()

    def write(self, data: bytes) -> None:
        os.write(self.writer, data)
        self.loop.iterate(0.0)

    def end(self) -> None:
        if self.writer >= 0:
            os.close(self.writer)
            self.writer = -1
        for _ in range(200):
            if self.source.finished:
                return
            self.loop.iterate(0.05)
        raise AssertionError("the source did not notice the end")

    def values(self) -> list[float]:
        return [float(value) for reading in self.readings for value in reading.values.ravel()]

    def close(self) -> None:
        self.source.close()
        self.source.close()
        self.loop.close()
        os.close(self.fd)
        if self.writer >= 0:
            os.close(self.writer)


@pytest.fixture
def readers() -> Iterator[list[Reader]]:
    made: list[Reader] = []
    yield made
    for reader in made:
        reader.close()


def start(readers: list[Reader], path: Path | None = None, **config: Any) -> Reader:
    reader = Reader(StdinConfig(**config), path)
    readers.append(reader)
    return reader


RAW = RawConfig()


def test_the_last_line_needs_no_line_end(readers: list[Reader]) -> None:
    reader = start(readers)
    reader.write(line(1) + b"\n  \n" + line(2)[:-1])
    reader.end()
    assert reader.values() == [1, 2]


def test_a_file_is_read_to_its_end(readers: list[Reader], tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(b"".join(map(line, range(20_000))))
    reader = start(readers, tmp_path / "in")
    reader.end()
    assert reader.values() == list(range(20_000))
    assert reader.deliveries > 1


def test_binary_codecs_take_lengths(readers: list[Reader]) -> None:
    reader = start(readers, codec=RAW, key="k")
    data = frame(np.float32(1).tobytes()) + frame(np.float32(2).tobytes())
    for i in range(len(data)):
        reader.write(data[i : i + 1])
    assert reader.values() == [1, 2]
    reader.end()


def test_text_may_be_framed_by_lengths_too(readers: list[Reader]) -> None:
    reader = start(readers, framing="length")
    reader.write(frame(line(1)) + frame(line(2)))
    assert reader.values() == [1, 2]


def test_binary_never_comes_in_lines() -> None:
    with pytest.raises(ValueError, match="use framing length"):
        StdinConfig(framing="lines", codec=RAW)


def test_a_giant_line_is_skipped_and_counted_once(readers: list[Reader]) -> None:
    reader = start(readers, max_bytes=100)
    reader.write(line(1) + b"x" * 90)
    for _ in range(50):
        reader.write(b"x" * 900)
    reader.write(b"x\n" + line(2) + b"y" * 150 + b"\n" + line(3))
    reader.end()
    assert reader.values() == [1, 2, 3]
    assert reader.metrics.dropped == {"too_large": 2}


def test_a_stream_cut_in_a_frame_is_counted(readers: list[Reader]) -> None:
    reader = start(readers, codec=RAW, key="k")
    reader.write(frame(np.float32(1).tobytes())[:-1])
    reader.end()
    assert reader.metrics.dropped == {"malformed": 1}


def test_a_pipeline_that_lags_lets_the_writer_wait(readers: list[Reader]) -> None:
    reader = start(readers)
    reader.hold = True
    for i in range(IN_FLIGHT + 5):
        reader.write(line(i))
    assert reader.deliveries == IN_FLIGHT
    reader.held.pop()()
    reader.loop.iterate(0.0)
    assert reader.deliveries == IN_FLIGHT + 1
    assert len(reader.values()) == IN_FLIGHT + 5


def test_a_lagging_pipeline_holds_a_file_back_too(readers: list[Reader], tmp_path: Path) -> None:
    padding = b" " * 1000 + b"\n"
    (tmp_path / "in").write_bytes(b"".join(line(i)[:-1] + padding for i in range(4000)))
    reader = start(readers, tmp_path / "in")
    reader.hold = True
    for _ in range(100):
        reader.loop.iterate(0.0)
    assert reader.deliveries == IN_FLIGHT
    while not reader.source.finished:
        for done in reader.held:
            done()
        reader.held.clear()
        reader.loop.iterate(0.0)
    assert reader.values() == list(range(4000))


def test_a_closed_standard_input_is_said_so() -> None:
    loop = Loop()
    read, write = os.pipe()
    os.close(read)
    os.close(write)
    source = StdinSource(StdinConfig(), Decoder(load_codec(JsonConfig(), CHANNELS), Metrics()), fd=read)
    with pytest.raises(ConfigError, match="closed"):
        source.open(loop, lambda *_: None)
    loop.close()


@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(cuts=st.lists(st.integers(1, 60), max_size=40), sizes=st.lists(st.integers(0, 12), min_size=1, max_size=20))
def test_messages_do_not_depend_on_how_the_stream_was_cut(cuts: list[int], sizes: list[int]) -> None:
    for config, data in (
        (StdinConfig(), b"".join(map(line, range(len(sizes))))),
        (
            StdinConfig(codec=RAW, key="k", max_bytes=40),
            b"".join(frame(np.full(size, i, np.float32).tobytes()) for i, size in enumerate(sizes)),
        ),
    ):
        results = []
        for pieces in (cuts, [len(data)]):
            reader, at = Reader(config), 0
            for size in [*pieces, len(data)]:
                if data[at : at + size]:
                    reader.write(data[at : at + size])
                at += size
            reader.end()
            results.append((reader.values(), dict(reader.metrics.dropped)))
            reader.close()
        assert results[0] == results[1]


def test_nothing_on_standard_input_is_a_stream_that_has_ended(readers: list[Reader]) -> None:
    reader = start(readers, Path(os.devnull))
    reader.end()
    assert reader.readings == []


def test_settings_come_from_a_table() -> None:
    config = schema.load(StdinConfig, {"type": "stdin", "codec": {"type": "raw", "time": "f64"}})
    assert config.codec == RawConfig(time="f64")
    assert not config.by_lines
