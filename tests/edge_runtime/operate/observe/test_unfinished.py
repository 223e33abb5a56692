"""Samples that make no window are explained: by key, with what keeps them from one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
import pytest

from edge_runtime.base.system.loop import Loop
from edge_runtime.clock import SimulatedClock
from edge_runtime.io.sources.mqtt import MqttSourceConfig
from edge_runtime.manifest import Channel, InputContract
from edge_runtime.metrics import Metrics
from edge_runtime.operate.observe.drops import LONGEST_S
from edge_runtime.operate.observe.silence import SilenceReporter
from edge_runtime.operate.observe.unfinished import progress
from edge_runtime.signal.windowing.config import WindowConfig
from edge_runtime.signal.windowing.join import windower_of
from edge_runtime.types import Done, Reading

CONTRACT = InputContract(channels=(Channel(name="ax", unit="g"),), rate_hz=10, window=100, hop=50)


class Application:
    """A windower that sensors feed on simulated time, and the reporter beside it."""

    def __init__(self, contract: InputContract = CONTRACT) -> None:
        self.contract = contract
        self.clock, self.metrics = SimulatedClock(), Metrics()
        self.loop = Loop(clock=self.clock)
        self.part = None if len(contract.channels) == 1 else (0,)
        self.windower = windower_of(contract, None, self.metrics, parts=self.part is not None)
        reporter = SilenceReporter(self.metrics, self.clock, 30.0)
        self._deliver = reporter.watch(MqttSourceConfig(broker="local", topics=("watch/+",)), self._push)
        reporter.start(self.loop, lambda: contract, self.windower.state)

    def _push(self, readings: Sequence[Reading], received: float, done: Done | None) -> None:
        self.windower.push(readings, received)

    def push(self, key: str, *columns: int, ahead: float = 0.0) -> None:
        """Let a key send a sample of some channels."""
        values = np.zeros((1, len(columns)), np.float32)
        self._deliver([Reading(key, self.clock.wall() + ahead, values, 0.0, columns)], self.clock.monotonic(), None)

    def run(self, seconds: float, every_s: float, *keys: str, speed: float = 1.0, ahead: float = 0.0) -> None:
        """Let each key send a sample every so often, with stamps that run at a speed."""
        for _ in range(round(seconds / every_s)):
            self.clock.advance(every_s)
            t = self.clock.wall() if speed == 1.0 else 1e6 + self.clock.monotonic() * speed
            for key in keys:
                reading = Reading(key, t + ahead, np.zeros((1, 1), np.float32), 0.0, self.part)
                self._deliver([reading], self.clock.monotonic(), None)
            self.loop.iterate(0)


@pytest.fixture
def application() -> Iterator[Application]:
    application = Application()
    yield application
    application.loop.close()


@pytest.fixture
def hourly() -> Iterator[Application]:
    """A model whose window takes 100 s."""
    application = Application(InputContract(channels=CONTRACT.channels, rate_hz=1, window=100, hop=50))
    yield application
    application.loop.close()


def test_a_sensor_that_is_too_slow_is_told_which_rate_is_needed(
    application: Application, caplog: pytest.LogCaptureFixture
) -> None:
    application.run(44, 1.0, "w1")
    assert not caplog.records, "the first patience, and the time until a window must be there"
    application.run(16, 1.0, "w1")
    (line,) = caplog.messages
    assert line == (
        "window: 60 samples in 60 s made no window: 1 of 100 samples of key w1. A key has a sample every 1 s, the model"
        " needs one every 0.1 s, and a window begins again after 0.5 s without one. Let the sensor send faster; or"
        " state rate_hz under [source.codec] if a message holds several samples"
    )


def test_samples_on_their_way_to_a_window_are_no_fault(hourly: Application, caplog: pytest.LogCaptureFixture) -> None:
    hourly.run(2000, 1.0, "a", "b")
    assert not caplog.records


def test_the_keys_nearest_to_a_window_are_named(hourly: Application, caplog: pytest.LogCaptureFixture) -> None:
    hourly.run(60, 1.0, *"abcde")
    hourly.run(200, 20.0, "f")
    (line,) = caplog.messages
    assert " made no window: 11 of 100 samples of key a, 11 of b, 11 of c, and 3 more keys. " in line


def test_stamps_in_another_unit_are_told_by_how_fast_they_run(
    application: Application, caplog: pytest.LogCaptureFixture
) -> None:
    """Mutation that this finds: the unit is told by the size of stamps, and these count from the sensor's start."""
    application.run(70, 0.02, "w1", speed=1000.0)
    (line,) = [message for message in caplog.messages if message.startswith("window: ")]
    assert 'Stamps run 1000 times as fast as this machine\'s clock: set time_unit under [source.codec], "ms" in' in line


def test_it_is_said_less_and_less_often(application: Application, caplog: pytest.LogCaptureFixture) -> None:
    application.run(4 * LONGEST_S, 20.0, "w1")
    assert 6 <= len(caplog.records) <= 12
    times = [float(message.split(" samples in ")[1].split(" s")[0]) for message in caplog.messages]
    assert times == sorted(times)
    assert all(later <= earlier + LONGEST_S + 40 for earlier, later in pairwise(times))


def test_sensors_that_fell_silent_are_left_to_the_line_about_silence(
    application: Application, caplog: pytest.LogCaptureFixture
) -> None:
    application.run(60, 1.0, "w1")
    application.run(4 * LONGEST_S, 1.0)
    lines = [message.split(":")[0] for message in caplog.messages]
    assert (lines.count("window"), lines[-1]) == (1, "source")


def test_samples_dropped_for_their_stamps_are_left_to_their_own_line(
    application: Application, caplog: pytest.LogCaptureFixture
) -> None:
    application.run(61, 1.0, "w1", speed=0.0)
    (line,) = caplog.messages
    assert line.endswith("Most of them were dropped for their stamps, which other lines explain")


@pytest.fixture
def joined() -> Iterator[Application]:
    """A model of an accelerometer and a thermometer."""
    names = ("ax", "ay", "temperature")
    channels = tuple(Channel(name=name, unit="g", resample="previous", max_age_s=20.0) for name in names)
    application = Application(InputContract(channels=channels, rate_hz=10, window=100, hop=50))
    yield application
    application.loop.close()


def test_channels_that_never_come_under_the_key_are_named(
    joined: Application, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(700):
        joined.push("attic", 0, 1)
        joined.push("cellar", 2)
        joined.run(0.1, 0.1)
    (line,) = [message for message in caplog.messages if message.startswith("window: ")]
    assert " of 100 samples of key attic, " in line
    assert "; key attic never got temperature; key cellar never got ax, ay. " in line
    assert line.endswith("compare topics, channels and key under [[source]]")


def test_a_channel_that_stopped_and_one_with_another_clock_are_named(joined: Application) -> None:
    for i in range(700):
        joined.push("k", 0)
        if i < 20:
            joined.push("k", 1)
        joined.push("k", 2, ahead=7200.0)
        joined.run(0.1, 0.1)
    text = progress(joined.windower.state(), joined.contract)
    assert "got temperature from a clock 2 h 0 min ahead of the others" in text
    assert "last got ay 68 s behind the others" in text


def test_samples_that_wait_for_late_ones_count() -> None:
    windower = windower_of(CONTRACT, WindowConfig(lateness_s=5.0))
    windower.push([Reading("w", 100.0 + i / 10, np.zeros((1, 1), np.float32)) for i in range(70)])
    assert progress(windower.state(), CONTRACT) == "70 of 100 samples of key w"
    assert progress([], CONTRACT) == "no key holds a sample"


def test_a_channel_of_which_nothing_has_come_is_named(caplog: pytest.LogCaptureFixture) -> None:
    """Where channels come in messages of their own, and one topic is wrong."""
    both = InputContract(channels=(*CONTRACT.channels, Channel(name="ay", unit="g")), rate_hz=10, window=100, hop=50)
    application = Application(both)
    application.run(200, 0.1, "w1")
    application.loop.close()
    assert "Nothing has come of channel ay: look at its topic" in caplog.text
