"""Stamps in whole seconds: samples are spread over their second, and none is lost as a duplicate."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_runtime.clock import SimulatedClock
from edge_runtime.errors import ConfigError, InputError
from edge_runtime.io.codecs import coarse_stamps
from edge_runtime.io.codecs.coarse_stamps import SpreadingCodec
from edge_runtime.io.codecs.config import load_codec
from edge_runtime.io.codecs.csv import CsvConfig
from edge_runtime.io.codecs.influx import InfluxConfig
from edge_runtime.io.codecs.json import JsonConfig
from edge_runtime.io.codecs.senml import SenmlConfig
from edge_runtime.io.sources.decoding import Decoder
from edge_runtime.manifest import Channel, InputContract
from edge_runtime.metrics import Metrics
from edge_runtime.signal.windowing.window import Windower
from edge_runtime.types import Reading

NOW = 1_700_000_000.0
CONTRACT = InputContract(channels=(Channel(name="a", unit="1"),), rate_hz=50, window=50, hop=50)


def reading(t: Any, n: int = 1, key: str = "k", **fields: Any) -> Reading:
    return Reading(key, t, np.arange(n, dtype=np.float32).reshape(n, 1), **fields)


def stamps(readings: list[Reading], period_s: float = 0.02) -> list[float]:
    found: list[float] = []
    for one in readings:
        found += [one.t + i * period_s for i in range(len(one.values))] if isinstance(one.t, float) else one.t.tolist()
    return found


class Plain:
    """A codec that gives the readings it is handed, as if they were decoded."""

    name = "plain"

    def __init__(self) -> None:
        self.readings: list[Reading] = []

    def decode(self, key: str, payload: bytes, received: float) -> list[Reading]:
        return self.readings


class Spread:
    """A spreading codec over such a one."""

    def __init__(self, step_s: float, period_s: float) -> None:
        self._plain = Plain()
        self.codec = SpreadingCodec(self._plain, step_s, period_s)

    def __call__(self, readings: list[Reading]) -> list[Reading]:
        self._plain.readings = readings
        return self.codec.decode("", b"", 0.0)


def test_fifty_messages_of_a_second_fill_a_window_of_it() -> None:
    """From the message to the window; without the setting, 98 of 100 are dropped (guide, section 3)."""
    counted = {}
    for step_s in (0.0, 1.0):
        metrics = Metrics()
        codec = load_codec(JsonConfig(time_step_s=step_s), CONTRACT.channels, rate_hz=CONTRACT.rate_hz)
        decode = Decoder(codec, metrics, SimulatedClock())
        windower = Windower(CONTRACT, metrics=metrics)
        for i in range(100):
            payload = orjson.dumps({"t": NOW + i // 50, "values": [i]})
            windows = windower.push(decode([("k", payload)], NOW))
            if i == 99 and step_s:
                assert windows[0].samples[:, 0].tolist() == list(range(50, 100))
        counted[step_s] = metrics.dropped.total()
    assert counted == {0.0: 98, 1.0: 0}


def test_a_stated_rate_is_the_distance() -> None:
    spread = Spread(1.0, 0.02)
    assert stamps(spread([reading(NOW, period_s=0.25) for _ in range(3)])) == [NOW, NOW + 0.25, NOW + 0.5]


def test_blocks_follow_each_other_within_their_second() -> None:
    spread = Spread(1.0, 0.02)
    assert stamps(spread([reading(NOW, 2), reading(NOW, 3)])) == pytest.approx([NOW + 0.02 * i for i in range(5)])


def test_a_stamp_for_each_sample_is_spread_too() -> None:
    spread = Spread(1.0, 0.25)
    assert stamps(spread([reading(np.array([NOW, NOW, NOW + 1]), 3)])) == [NOW, NOW + 0.25, NOW + 1]


@pytest.mark.parametrize("too_many", [reading(NOW, 2), reading(np.array([NOW, NOW]), 2)])
def test_a_faster_sensor_than_stated_is_refused_with_the_line_to_write(too_many: Reading) -> None:
    spread = Spread(1.0, 0.25)
    assert len(spread([reading(NOW, 3)])) == 1
    with pytest.raises(
        InputError, match=r"5 samples in one step of 1 s are more than 4 a second: set rate_hz"
    ) as error:
        spread([too_many])
    assert error.value.reason == "same_stamp"
    assert stamps(spread([reading(NOW + 1)])) == [NOW + 1]


def test_channels_and_keys_are_counted_apart() -> None:
    spread = Spread(1.0, 0.25)
    mixed = [
        reading(NOW, channels=(0,)),
        reading(NOW, channels=(1,)),
        reading(NOW, key="b"),
        reading(NOW, channels=(0,)),
    ]
    assert stamps(spread(mixed)) == [NOW, NOW, NOW, NOW + 0.25]


def test_a_million_keys_are_not_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coarse_stamps, "KEYS", 3)
    spread = Spread(1.0, 0.25)
    for i in range(100):
        spread([reading(NOW, key=str(i))])
    assert len(spread.codec._seen) == 3
    assert stamps(spread([reading(NOW, key="99")])) == [NOW + 0.25]


@given(seconds=st.lists(st.integers(0, 3), max_size=30).map(sorted), cuts=st.lists(st.integers(0, 30), max_size=5))
def test_stamps_do_not_depend_on_how_messages_arrive_together(seconds: list[int], cuts: list[int]) -> None:
    """Mutations that this finds: a count that a batch, a block or another stamp resets."""
    one_by_one = Spread(1.0, 0.01)
    expected = stamps([found for second in seconds for found in one_by_one([reading(NOW + second)])])
    together = Spread(1.0, 0.01)
    bounds = sorted({0, len(seconds), *(cut for cut in cuts if cut < len(seconds))})
    found: list[float] = []
    for begin, end in itertools.pairwise(bounds):
        if end > begin:
            block = reading(np.array([NOW + second for second in seconds[begin:end]]), end - begin)
            found += stamps(together([block]))
    assert found == expected
    assert len(set(found)) == len(found)


@pytest.mark.parametrize("step_s", [-1.0, 3601.0])
@pytest.mark.parametrize("config", [JsonConfig, CsvConfig, InfluxConfig, SenmlConfig])
def test_a_step_that_makes_no_sense_is_refused(config: Any, step_s: float) -> None:
    with pytest.raises(ValueError, match="time_step_s must be 0"):
        config(time_step_s=step_s)


@pytest.mark.parametrize(
    ("config", "payload"),
    [
        (CsvConfig(time_step_s=1.0, columns=("t", "a")), b"1700000000,5"),
        (InfluxConfig(time_step_s=1.0, time_unit="s"), b"m a=5 1700000000"),
        (SenmlConfig(time_step_s=1.0), b'[{"n":"a","v":5,"t":1700000000}]'),
    ],
)
def test_other_formats_have_coarse_stamps_too(config: Any, payload: bytes) -> None:
    codec = load_codec(config, CONTRACT.channels, rate_hz=50.0)
    assert [stamps(codec.decode("k", payload, 0.0)) for _ in range(3)] == [[NOW], [NOW + 0.02], [NOW + 0.04]]


def test_a_distance_has_to_be_known() -> None:
    with pytest.raises(ConfigError, match="time_step_s needs rate_hz"):
        load_codec(JsonConfig(time_step_s=1.0), CONTRACT.channels)
    assert load_codec(JsonConfig(time_step_s=1.0, rate_hz=9.0), CONTRACT.channels).name == "json"
