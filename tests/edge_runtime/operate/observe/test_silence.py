"""A source without readings is named, with what arrived instead."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from edge_runtime.base.system.loop import Loop
from edge_runtime.clock import SimulatedClock
from edge_runtime.io.sources.mqtt import MqttSourceConfig
from edge_runtime.io.sources.recording import RecordingConfig
from edge_runtime.manifest import Channel, InputContract
from edge_runtime.metrics import Metrics
from edge_runtime.operate.observe.drops import LONGEST_S
from edge_runtime.operate.observe.silence import SilenceReporter
from edge_runtime.types import Done, Reading

MQTT = MqttSourceConfig(broker="local", topics=("watch/+/imu",))
CONTRACT = InputContract(channels=(Channel(name="ax", unit="g"),), rate_hz=10, window=100, hop=50)
READING = Reading("w", 0.0, np.zeros((1, 3), np.float32))


class Watched:
    """A reporter on simulated time, with one MQTT source."""

    def __init__(self, after_s: float = 30.0) -> None:
        self.clock, self.metrics = SimulatedClock(), Metrics()
        self.loop = Loop(clock=self.clock)
        self.metrics.gauges['connected{broker="local"}'] = 1.0
        self.passed_on = 0
        self.reporter = SilenceReporter(self.metrics, self.clock, after_s)
        self._deliver = self.reporter.watch(MQTT, self._count)
        self.reporter.start(self.loop, lambda: CONTRACT, list)

    def _count(self, readings: Sequence[Reading], received: float, done: Done | None) -> None:
        self.passed_on += 1

    def deliver(self) -> None:
        self._deliver([READING], self.clock.monotonic(), None)

    def wait(self, seconds: float) -> None:
        """Let time pass in the steps in which the reporter looks."""
        for _ in range(int(seconds / 10)):
            self.clock.advance(10.0)
            self.loop.iterate(0)


@pytest.fixture
def watched() -> Iterator[Watched]:
    watched = Watched()
    yield watched
    watched.loop.close()


def test_a_wrong_topic_is_named_and_so_is_a_way_to_find_the_right_one(
    watched: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    watched.wait(20)
    assert not caplog.records
    watched.wait(10)
    (line,) = caplog.messages
    assert line.startswith(
        "source: no readings for 30 s from topics watch/+/imu of broker local: nothing arrived in that time."
    )
    assert "run --check APP.toml --seconds 10" in line


def test_what_arrived_and_was_refused_is_in_the_line(watched: Watched, caplog: pytest.LogCaptureFixture) -> None:
    watched.metrics.counts["messages_total"] += 60
    watched.metrics.dropped.update(malformed=57, empty=3, publish_refused=9)
    watched.metrics.examples["malformed"] = "message of 5 bytes: field 'values' is missing"
    watched.wait(30)
    (line,) = caplog.messages
    assert "what arrived was refused: malformed 57, empty 3: " in line
    assert line.endswith("the last one: message of 5 bytes: field 'values' is missing")
    assert "publish_refused" not in line


def test_a_long_silence_is_said_less_and_less_often(watched: Watched, caplog: pytest.LogCaptureFixture) -> None:
    watched.wait(4 * LONGEST_S)
    assert 8 < len(caplog.records) < 14
    assert [message.split(" for ")[1].split(" s")[0] for message in caplog.messages[:4]] == ["30", "60", "120", "240"]


def test_readings_end_it_and_the_next_silence_has_to_be_longer(
    watched: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    """Mutation that this finds: two lines an hour about a sensor that sends once an hour."""
    caplog.set_level("INFO")
    for _ in range(5):
        watched.wait(100)
        watched.deliver()
    assert watched.passed_on == 5
    warned = [record for record in caplog.records if record.levelname == "WARNING"]
    ended = [message for message in caplog.messages if "readings came again" in message]
    assert len(warned) == 2, "at 30 and 60 s of the first silence alone"
    assert ended == ["source: readings came again from topics watch/+/imu of broker local: silent_s=100"]
    watched.wait(200)
    assert len(caplog.records) == 4


def test_what_was_refused_while_readings_came_is_no_cause_of_a_later_silence(
    watched: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    watched.metrics.dropped["malformed"] += 5
    for _ in range(10):
        watched.deliver()
        watched.wait(10)
    watched.wait(30)
    (line,) = caplog.messages
    assert "nothing arrived" in line


def test_while_the_broker_is_away_the_link_says_so(watched: Watched, caplog: pytest.LogCaptureFixture) -> None:
    watched.metrics.gauges['connected{broker="local"}'] = 0.0
    watched.wait(1000)
    assert not caplog.records
    watched.metrics.gauges['connected{broker="local"}'] = 1.0
    watched.wait(20)
    assert not caplog.records
    watched.wait(10)
    assert len(caplog.records) == 1


def test_files_and_a_patience_of_zero_are_not_watched() -> None:
    clock, metrics = SimulatedClock(), Metrics()

    def deliver(readings: Sequence[Reading], received: float, done: Done | None) -> None:
        raise AssertionError

    assert SilenceReporter(metrics, clock, 0.0).watch(MQTT, deliver) is deliver
    recording = RecordingConfig(files=(Path("a.csv"),))
    assert SilenceReporter(metrics, clock, 30.0).watch(recording, deliver) is deliver
