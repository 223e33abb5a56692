"""Joined channels that do not fit together: silent ones, other clocks, more keys and samples than a device holds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from edge_runtime.errors import ConfigError
from edge_runtime.manifest import Channel, InputContract
from edge_runtime.metrics import Metrics
from edge_runtime.operate.observe.drops import reason_of
from edge_runtime.signal.windowing.config import WindowConfig
from edge_runtime.signal.windowing.join import JoinedWindower, windower_of
from edge_runtime.signal.windowing.window import Window, Windower
from edge_runtime.types import Float64, Reading
from tests.edge_runtime.signal.windowing.joined import RATE, contract, played, same, stream, times_of

NAMES = "abcdef"


def wide(n: int, **changes: object) -> InputContract:
    return contract(channels=tuple(Channel(name=name, unit="1") for name in NAMES[:n]), **changes)


def ticks(times: Float64, columns: list[int], *, ahead: dict[int, float] | None = None) -> list[Reading]:
    """One value a message: each channel at each time, some with a clock that is ahead."""
    ahead = ahead or {}
    return [
        Reading("k", float(t) + ahead.get(column, 0.0), np.full((1, 1), i % 17, np.float32), 0.0, (column,))
        for i, t in enumerate(times)
        for column in columns
    ]


@pytest.mark.slow
def test_a_channel_that_never_comes_refuses_windows_by_name_and_does_not_let_the_others_pile_up() -> None:
    metrics = Metrics()
    windower = JoinedWindower(wide(3), WindowConfig(wait_s=2.0), metrics)
    most = 0
    for reading in ticks(1000 + np.arange(2000) / RATE, [0, 2]):
        assert not windower.push([reading])
        most = max(most, windower._order.waiting)
    assert most <= 2 * (2.0 * RATE + 1)
    assert metrics.dropped.keys() == {"incomplete"}
    assert "no value of b" in metrics.examples["incomplete"]
    assert "topic" in reason_of("incomplete").advice


def test_a_channel_that_was_away_leaves_a_hole_and_the_windows_around_it_are_the_whole_streams() -> None:
    """The grid stays: no id is another one, and contexts end at the hole."""
    spec, metrics = wide(3, context=16), Metrics()
    times = 1000 + np.arange(400) / RATE
    readings = [one for one in ticks(times, [0, 1, 2]) if not (one.channels == (1,) and 1015 < times_of(one)[0] < 1022)]
    found = played(JoinedWindower(spec, None, metrics), readings)
    whole = {window.id: window for window in played(JoinedWindower(spec), ticks(times, [0, 1, 2]))}
    gone = [window for window in whole.values() if window.start + 0.7 > 1015 and window.start < 1022]
    assert len(found) == len(whole) - len(gone)
    assert metrics.dropped == {"incomplete": len(gone)}
    for window in found:
        np.testing.assert_array_equal(window.samples, whole[window.id].samples)
        assert np.isfinite(window.context).all()
    after = next(window for window in found if window.start > 1020)
    assert len(after.context) < 16 == len(whole[after.id].context)


def test_one_clock_that_is_two_hours_ahead_is_told_with_its_channel_and_the_others_go_on() -> None:
    metrics = Metrics()
    windower = JoinedWindower(wide(4), None, metrics)
    readings = ticks(1000 + np.arange(1000) / RATE, [0, 1, 2, 3], ahead={3: 7200.0})
    for reading in readings:
        windower.push([reading])
    assert metrics.dropped["other_clock"] > 300
    assert metrics.examples["other_clock"] == "key k: d is +7200 s from the other channels"
    assert "clock" in reason_of("other_clock").advice
    assert metrics.dropped["late"] == metrics.dropped["stamp_jump"] == metrics.counts["clock_jumps_total"] == 0
    assert windower._order.waiting < 1000


def test_most_channels_decide_which_clock_is_the_wrong_one() -> None:
    """Also where the wrong one was the first to be heard: then the key moves once."""
    metrics = Metrics()
    windower = JoinedWindower(wide(3), None, metrics)
    found = [
        w for one in ticks(1000 + np.arange(900) / RATE, [0, 1, 2], ahead={0: -7200.0}) for w in windower.push([one])
    ]
    assert metrics.counts["clock_jumps_total"] == 1
    assert "key k: a is -7200 s" in metrics.examples["other_clock"]
    assert not found
    assert "no value of a" in metrics.examples["incomplete"]


@pytest.mark.parametrize("jump", [-3600.0, 1e6, 100.0])
def test_channels_that_jump_one_after_another_lose_nothing(jump: float) -> None:
    """A board that was restarted, or away: the windows are those of messages with all channels."""
    metrics = Metrics()
    times = 1000 + np.arange(80) / RATE
    times[40:] += jump
    apart = ticks(times, [0, 1, 2, 3, 4])
    spec = wide(5)
    whole = [Reading("k", float(t), np.full((1, 5), i % 17, np.float32)) for i, t in enumerate(times)]
    same(played(JoinedWindower(spec, None, metrics), apart), played(Windower(spec), whole))
    assert metrics.counts["clock_jumps_total"] == 1
    assert not metrics.dropped


def test_a_lone_absurd_stamp_of_one_channel_is_dropped_and_the_stream_goes_on() -> None:
    metrics = Metrics()
    readings = ticks(1000 + np.arange(80) / RATE, [0, 1])
    absurd = readings[50]._replace(t=4e9)
    windower = JoinedWindower(wide(2), None, metrics)
    found = played(windower, [*readings[:50], absurd, *readings[51:]])
    assert metrics.dropped["stamp_jump"] == 1
    assert [w.id for w in found] == [w.id for w in played(JoinedWindower(wide(2)), readings)]


def test_a_channel_that_sends_once_an_hour_is_no_clock_that_jumped() -> None:
    """A door beside a thermometer: the last state holds as long as the bundle says."""
    door = Channel(name="b", unit="1", resample="previous", max_age_s=7200.0)
    spec = contract(channels=(Channel(name="a", unit="1"), door), rate_hz=0.1, window=8, hop=8)
    metrics = Metrics()
    times = 100_000 + 10.0 * np.arange(2000)
    readings = []
    for i, t in enumerate(times):
        readings.append(Reading("k", float(t), np.full((1, 1), i, np.float32), 0.0, (0,)))
        if i % 360 == 5:
            readings.append(Reading("k", float(t), np.full((1, 1), i // 360 % 2, np.float32), 0.0, (1,)))
    found = played(JoinedWindower(spec, None, metrics), readings)
    assert set(metrics.dropped) == {"incomplete"}  # before the door was heard for the first time
    assert len(found) >= 2000 // 8 - 2
    states = np.concatenate([window.samples[:, 1] for window in found])
    assert 0 < states.mean() < 1


def test_a_million_keys_are_bounded_and_what_waited_is_counted() -> None:
    """A wildcard that takes the wrong level: each message its own key. Fewer here, to be quick."""
    metrics = Metrics()
    windower = JoinedWindower(wide(2), WindowConfig(max_keys=50), metrics)
    value = np.zeros((1, 1), np.float32)
    for i in range(6_000):
        windower.push([Reading(f"k{i}", 1000.0 + i, value, 0.0, (0,))])
    assert len(windower) == 50
    assert windower._order.waiting == 50
    assert metrics.counts["keys_evicted_total"] == metrics.dropped["evicted"] == 6_000 - 50
    assert "key under" in reason_of("evicted").advice


def test_samples_that_wait_are_bounded_over_all_keys() -> None:
    """A sensor far faster than its model beside one that is silent: memory comes before patience."""
    metrics = Metrics()
    windower = JoinedWindower(wide(2), WindowConfig(max_waiting=1000), metrics)
    for i in range(200):
        block = np.zeros((500, 1), np.float32)
        windower.push([Reading(f"k{i % 7}", 1000.0 + i // 7 * 0.5, block, 0.001, (0,))])
        assert windower._order.waiting <= 1500
    assert metrics.dropped.keys() <= {"incomplete"}


def test_topics_that_never_align_are_joined_by_their_rules() -> None:
    """Stamps that lie half a period apart for ever: each channel has a value on the one grid."""
    times = 1000 + np.arange(200) / RATE
    readings = sorted(
        ticks(times, [0, 1], ahead={1: 0.05}), key=lambda one: one.t if isinstance(one.t, float) else float(one.t[0])
    )
    found = played(JoinedWindower(wide(2)), readings)
    assert len(found) >= (200 - 8) // 3 - 1
    for window in found[2:]:
        difference = window.samples[:, 0] - window.samples[:, 1]
        assert set(np.round(difference[np.abs(difference) < 2], 3)) <= {0.5}


def test_a_mask_is_told_apart_from_the_value_it_speaks_for() -> None:
    channels = (
        Channel(name="a", unit="1"),
        Channel(name="b", unit="1", missing="last"),
        Channel(name="c", unit="1", mask_of="b"),
    )
    times = 1000 + np.arange(120) / RATE
    readings = [one for one in ticks(times, [0, 1]) if not (one.channels == (1,) and times_of(one)[0] < 1004)]
    rows = np.concatenate([w.samples for w in played(JoinedWindower(contract(channels=channels, hop=8)), readings)])
    assert set(map(tuple, rows[:30, 1:].tolist())) == {(0.0, 0.0)}
    assert (rows[-40:, 2] == 1).all()
    assert (rows[-40:, 0] == rows[-40:, 1]).all()


@pytest.mark.parametrize(
    ("channel", "config", "kind"),
    [
        ({}, WindowConfig(), Windower),
        ({}, WindowConfig(parts=True), JoinedWindower),
        ({"resample": "previous"}, WindowConfig(), JoinedWindower),
        ({"max_age_s": 3.0}, WindowConfig(), JoinedWindower),
        ({"missing": "last"}, WindowConfig(), JoinedWindower),
    ],
)
def test_the_windower_is_chosen_by_the_contract_and_the_sources(
    channel: dict[str, object], config: WindowConfig, kind: type
) -> None:
    spec = contract(channels=(Channel(name="a", unit="1", **channel), Channel(name="b", unit="1")))  # type: ignore[arg-type]
    assert type(windower_of(spec, config)) is kind


def test_a_reading_of_some_channels_is_never_taken_for_all_of_them() -> None:
    """A source that was not said to bring parts. Mutation that this finds: one value written to each channel."""
    metrics = Metrics()
    windower = Windower(wide(3), None, metrics)
    found: list[Window] = []
    for reading in stream(1, 30):
        found += windower.push([reading, reading._replace(values=reading.values[:, :1], channels=(0,))])
    same(found, Windower(wide(3)).push(stream(1, 30)))
    assert metrics.dropped["wrong_channels"] > 0


@pytest.mark.parametrize("first", ["door", "thermometer"])
def test_a_state_from_before_the_start_is_held(first: str) -> None:
    """What a broker retained: the door was opened two hours ago, whichever message comes first."""
    door = Channel(name="b", unit="1", resample="previous", max_age_s=86_400.0)
    spec, metrics = contract(channels=(Channel(name="a", unit="1"), door)), Metrics()
    opened = Reading("k", 100_000.0 - 7200, np.ones((1, 1), np.float32), 0.0, (1,))
    warm = ticks(100_000 + np.arange(400) / RATE, [0])
    readings = [opened, *warm] if first == "door" else [warm[0], opened, *warm[1:]]
    found = played(JoinedWindower(spec, None, metrics), readings)
    assert len(found) >= (400 - 8) // 3
    assert all((window.samples[:, 1] == 1).all() for window in found)
    assert metrics.dropped.keys() <= {"late"}


def test_a_change_that_comes_too_late_counts_from_then_on() -> None:
    """The door's message is delayed by more than `wait_s`. Mutation: it stays open, as far as the model knows."""
    door = Channel(name="b", unit="1", resample="previous", max_age_s=86_400.0)
    spec = contract(channels=(Channel(name="a", unit="1"), door))
    warm = ticks(100_000 + np.arange(800) / RATE, [0])
    state = [Reading("k", 100_000.0 + t, np.full((1, 1), v, np.float32), 0.0, (1,)) for t, v in ((0.0, 1), (20.0, 0))]
    found = played(JoinedWindower(spec), [state[0], *warm[:500], state[1], *warm[500:]])
    states = np.concatenate([window.samples[:, 1] for window in found])
    assert states[0] == 1
    assert states[-1] == 0
    assert set(states.tolist()) == {0.0, 1.0}


def test_lines_that_would_hold_too_many_rows_are_refused_by_name() -> None:
    channels = (Channel(name="a", unit="1"), Channel(name="b", unit="1", max_age_s=86_400.0))
    spec = contract(channels=channels, rate_hz=100.0)
    with pytest.raises(ConfigError, match="channel b: 8640000 rows of each key would wait"):
        windower_of(spec)
    windower_of(contract(channels=(channels[0], replace(channels[1], resample="previous")), rate_hz=100.0))
