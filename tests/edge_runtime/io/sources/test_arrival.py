"""Stamps of arrival: what came together is spaced by its rate, whatever the reads, queues and the machine's clock."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_runtime.clock import SimulatedClock
from edge_runtime.io.codecs.numbers import Arrival, ArrivalTimes, arrival
from edge_runtime.io.sources import Deliver
from edge_runtime.io.sources.arrival import ArrivalStamps, Turn
from edge_runtime.manifest import Channel, InputContract
from edge_runtime.metrics import Metrics
from edge_runtime.signal.windowing.config import WindowConfig
from edge_runtime.signal.windowing.join import windower_of
from edge_runtime.types import Done, Reading

BEGAN_S = 1_700_000_000.0


def contract(rate_hz: float = 10.0, *more: Channel) -> InputContract:
    n = max(1, int(rate_hz))
    return InputContract(channels=(Channel(name="a", unit="1"), *more), rate_hz=rate_hz, window=n, hop=n)


class Device:
    """Arrival stamps and the windows behind them; a second of samples makes a window."""

    def __init__(self, rate_hz: float = 10.0, *more: Channel, restored: Device | None = None) -> None:
        self.contract = contract(rate_hz, *more)
        self.metrics = Metrics()
        self.stamps = ArrivalStamps(self.contract)
        self.windower = windower_of(self.contract, WindowConfig(parts=bool(more)), self.metrics)
        self.windows = 0
        self.got: dict[tuple[str, tuple[int, ...] | None], list[float]] = {}
        if restored is not None:
            self.windower.restore(restored.windower.state())
            self.stamps.resume((state.name, state.newest_stamps()) for state in self.windower.state())

    def read(
        self,
        at_s: float,
        count: int = 1,
        *,
        samples: int = 1,
        keys: Sequence[str] = ("k",),
        channels: tuple[int, ...] | None = None,
        clock_off_s: float = 0.0,
    ) -> None:
        """Take messages that were read together, at monotonic second `at_s`."""
        made = partial(self.reading, at_s + clock_off_s, channels, samples)
        self.take([made(key) for _ in range(count) for key in keys], at_s)

    def reading(self, at_s: float, channels: tuple[int, ...] | None, samples: int = 1, key: str = "k") -> Reading:
        t = arrival(BEGAN_S + at_s, samples, 1 / self.contract.rate_hz)
        values = np.zeros((samples, 1 if channels is not None else len(self.contract.channels)), np.float32)
        return Reading(key, t, values, 0.0, channels)

    def take(self, readings: list[Reading], at_s: float) -> None:
        stamped = self.stamps.stamp(readings, at_s)
        for one in stamped:
            assert type(one.t) is float
            own = self.got.setdefault((one.key, one.channels), [])
            own += [one.t + i * (one.period_s or 1 / self.contract.rate_hz) for i in range(len(one.values))]
        self.windows += len(self.windower.push(stamped))

    def steady(self, from_s: float, seconds: float, rate_hz: float = 10.0, **more: float) -> None:
        for i in range(round(seconds * rate_hz)):
            self.read(from_s + i / rate_hz, **more)  # type: ignore[arg-type]

    def rises(self) -> bool:
        return all((np.diff(own) > 0).all() for own in self.got.values())


@given(
    st.lists(st.tuples(st.integers(1, 30), st.integers(1, 4)), min_size=1, max_size=40),
    st.integers(0, 2),
    st.sampled_from([1.0, 10.0, 50.0, 200.0]),
)
def test_no_reading_of_a_queue_is_lost_however_it_is_read(
    reads: list[tuple[int, int]], before_s: int, rate_hz: float
) -> None:
    """`reads`: how many messages come together, of how many samples each; some milliseconds apart."""
    device = Device(rate_hz)
    device.steady(0.0, before_s, rate_hz)
    queued = sum(count * samples for count, samples in reads)
    for i, (count, samples) in enumerate(reads):
        device.read(before_s + queued / rate_hz + 5 + i * 0.002, count, samples=samples)
    device.windows += len(device.windower.flush())
    seconds = (round(before_s * rate_hz) + queued) / rate_hz
    assert device.rises()
    assert not device.metrics.dropped
    assert device.windows >= int(seconds) - 2, "beside the windows that the silence cut"


@pytest.mark.slow
@given(st.lists(st.floats(0.0005, 0.05), min_size=200, max_size=400), st.sampled_from([0.999, 1.0, 1.001]))
def test_in_steady_flow_nothing_is_lost_whatever_the_reads(gaps: list[float], rate: float) -> None:
    device, sent, at_s = Device(200.0), 0, 1.0
    for gap in gaps:
        at_s += gap
        if due := int((at_s - 1.0) * 200 * rate) - sent:
            device.read(at_s, due)
            sent += due
    assert device.rises()
    assert not device.metrics.dropped
    assert not device.metrics.counts["gaps_total"]
    assert device.metrics.counts["samples_total"] == sent
    assert abs(device.got["k", None][-1] - BEGAN_S - at_s) < 0.1, "the stamps stay with the clock"


@pytest.mark.parametrize("restart", [True, False])
def test_a_queue_goes_on_where_its_key_was_and_ends_now(restart: bool) -> None:
    """Mutation: without rule 3 the first read is stamped now, and all that follows lies in the future."""
    device = Device()
    device.steady(0.0, 5)
    again = Device(restored=device) if restart else device
    for i in range(4):
        again.read(13.0 + i * 0.005, 20)
    assert device.windows + (again.windows if restart else 0) == 13
    assert again.got["k", None][-1] == pytest.approx(BEGAN_S + 12.9, abs=0.2)
    again.steady(13.1, 5)
    assert again.got["k", None][-1] == pytest.approx(BEGAN_S + 18.0, abs=0.2)
    assert not again.metrics.counts["gaps_total"]


def test_keys_and_parts_that_come_in_one_read_have_clocks_of_their_own() -> None:
    device = Device(10.0, Channel(name="b", unit="1"))
    keys = ["k1", "k2", "k3"]
    for i in range(100):
        device.read(1.0 + i * 0.002, 1, keys=keys, channels=(0,))
        device.read(1.0 + i * 0.002, 1, keys=keys, channels=(1,), samples=1)
    assert device.rises()
    assert not device.metrics.dropped
    assert device.windows >= 3 * 9


@pytest.mark.slow
@settings(max_examples=10)
@given(st.integers(1, 40), st.sampled_from([61.0, 300.0]), st.integers(0, 2**16))
def test_a_queue_of_channels_in_messages_of_their_own_keeps_its_windows(most: int, silence_s: float, seed: int) -> None:
    """Mutation: channels that go over the silence each by itself meet in hardly a window."""
    device, rng = Device(10.0, Channel(name="b", unit="1"), Channel(name="c", unit="1")), random.Random(seed)
    for i in range(600):
        device.read(i / 30, channels=(i % 3,))
    windows, at_s, queue = device.windows, 20 + silence_s, [(i % 3,) for i in range(1800)]
    while queue:
        count = rng.randint(1, most)
        device.take([device.reading(at_s, channels) for channels in queue[:count]], at_s)
        at_s, queue = at_s + rng.choice([0.001, 0.002, 0.01] * 5 + [0.05]), queue[count:]
    assert device.windows - windows >= 57


def test_a_part_is_spaced_by_its_own_rate() -> None:
    device = ArrivalStamps(contract(10.0, Channel(name="b", unit="1")))
    values = np.zeros((1, 1), np.float32)
    slow = [Reading("k", Arrival(BEGAN_S), values, 2.0, (1,))] * 5
    fast = [Reading("k", Arrival(BEGAN_S), values, 0.0, (0,))] * 5
    times = [one.t - BEGAN_S for one in device.stamp([*slow, *fast], 0.0)]
    assert times == pytest.approx([-8, -6, -4, -2, 0, -0.4, -0.3, -0.2, -0.1, 0], abs=1e-5)


def test_a_sensor_slower_than_the_model_is_spaced_as_it_was_heard() -> None:
    device = Device(10.0)
    device.steady(0.0, 40, 0.5)
    device.read(60.0, 10)
    assert np.diff(device.got["k", None][-10:]) == pytest.approx(2.0)


@pytest.mark.parametrize(("rate_hz", "count"), [(5.0, 1), (8.0, 1), (13.0, 1), (25.0, 1), (25.0, 2), (100.0, 1)])
def test_a_sensor_of_another_rate_than_the_model_stays_with_the_clock(rate_hz: float, count: int) -> None:
    device = Device(10.0)
    device.steady(0.0, 10, rate_hz / count, count=count)
    assert device.got["k", None][-1] == pytest.approx(BEGAN_S + 10, abs=0.25)
    device.steady(10.0, 90, rate_hz / count, count=count)
    assert device.got["k", None][-1] == pytest.approx(BEGAN_S + 100, abs=0.25)
    assert 98 <= device.windows <= 101
    assert not device.metrics.dropped


@pytest.mark.parametrize(("rate_hz", "count"), [(400.0, 1), (1000.0, 10)])
def test_a_sensor_as_fast_as_a_queue_is_told_from_one(rate_hz: float, count: int) -> None:
    device = Device(10.0)
    device.steady(0.0, 8, rate_hz / count, count=count)
    assert device.got["k", None][-1] == pytest.approx(BEGAN_S + 8, abs=0.25)


def test_a_queue_of_many_keys_that_brings_one_message_of_each_in_a_read_goes_on() -> None:
    device, keys = Device(), [f"k{i}" for i in range(20)]
    device.steady(0.0, 5, keys=keys)  # type: ignore[arg-type]
    for i in range(80):
        device.read(13.0 + i * 0.01, keys=keys)
    assert device.windows == 20 * 13
    assert device.got["k0", None][-1] == pytest.approx(BEGAN_S + 12.9, abs=0.25)
    assert not device.metrics.counts["gaps_total"]


@pytest.mark.parametrize("step_s", [3600.0, 59.0, 0.5, -0.5, -5.0, -30.0, -59.0, -70.0, -3600.0])
def test_a_step_of_the_clock_makes_nothing_late_or_a_duplicate(step_s: float) -> None:
    device = Device()
    device.steady(0.0, 50)
    device.steady(50.0, 50, clock_off_s=step_s)
    assert not device.metrics.dropped
    assert device.windows >= 98
    assert device.rises() == (step_s > -60.1)


def test_stamps_that_a_message_states_relative_to_its_arrival_keep_their_distances() -> None:
    stamps = ArrivalStamps(contract())
    times = np.array([BEGAN_S - 0.3, BEGAN_S - 0.2, BEGAN_S - 0.1, BEGAN_S]).view(ArrivalTimes)
    values = np.zeros((4, 1), np.float32)
    got = stamps.stamp([Reading("k", times, values)] * 2, 0.0)
    flat = np.concatenate([np.asarray(one.t) for one in got])
    assert all(type(one.t) is np.ndarray for one in got)
    assert np.diff(flat) == pytest.approx(0.1, abs=1e-5)
    assert flat[-1] == pytest.approx(BEGAN_S)


def test_a_channel_that_is_held_has_no_rate() -> None:
    """Mutation: without rule 7 a door that moves twice in a second shows the second move a minute later."""
    door = Channel(name="door", unit="1", resample="previous", max_age_s=86_400.0)
    stamps = ArrivalStamps(contract(1 / 60, door))
    moves = [0.0, 3600.0, 3600.1, 3600.2]
    got = [
        stamps.stamp([Reading("k", Arrival(BEGAN_S + at), np.zeros((1, 1), np.float32), 0.0, (1,))], at)[0].t
        for at in moves
    ]
    assert [t - BEGAN_S for t in got] == pytest.approx(moves, abs=0.01)


def test_keys_are_bounded() -> None:
    stamps = ArrivalStamps(contract(), max_keys=10)
    for i in range(100):
        stamps.stamp([Reading(f"k{i}", Arrival(BEGAN_S), np.zeros((1, 1), np.float32))], float(i))
    assert len(stamps._keys) == 10


def test_a_turn_hands_over_in_the_order_of_arrival_and_keeps_what_brings_stamps_at_once() -> None:
    got: list[tuple[str, float]] = []
    done: list[int] = []

    def into(name: str) -> Deliver:
        def deliver(readings: Sequence[Reading], received: float, done: Done | None) -> None:
            got.extend((name, float(one.t)) for one in readings)
            if done is not None:
                done()

        return turn.into(deliver)

    turn = Turn(ArrivalStamps(contract()), SimulatedClock())
    one, other = into("one"), into("other")
    values = np.zeros((1, 1), np.float32)
    one([Reading("k", 5.0, values)], 0.0, None)
    assert got == [("one", 5.0)], "nothing waits that has a stamp"
    for place, source in enumerate(itertools.islice(itertools.cycle((one, other)), 6)):
        source([Reading("k", Arrival(BEGAN_S), values)], 0.0, partial(done.append, place))
    assert len(got) == 1
    turn.end()
    assert [name for name, _ in got[1:]] == ["one", "other"] * 3
    assert np.diff([t for _, t in got[1:]]) == pytest.approx(0.1)
    assert done == list(range(6))
    turn.end()
    assert len(got) == 7
