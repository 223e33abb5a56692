"""The rate of a key, told from stamps: whatever the messages claim, and however they are split."""

from __future__ import annotations

import dataclasses
import itertools
import math
import sys
from collections.abc import Callable, Iterator
from typing import Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_runtime.manifest import InputContract, Reference
from edge_runtime.signal.intake.rate import AGREE, WITHIN, RateChange, RateCheck
from edge_runtime.types import Float64, Reading
from tests.edge_runtime.manifests import manifest

CONTRACT = dataclasses.replace(manifest().input, rate_hz=100.0, window=200, hop=100, context=0)
T0 = 1_700_000_000.3


def rows(n: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    return np.zeros((n, 2), np.float32)


def singles(times: Float64) -> Iterator[Reading]:
    return (Reading("w", float(t), rows(1)) for t in times)


def stamped(times: Float64, sizes: Iterator[int]) -> Iterator[Reading]:
    """Messages with a stamp for each sample; those of one sample have a number."""
    at = 0
    while at < len(times):
        some = times[at : at + next(sizes)]
        yield Reading("w", float(some[0]) if len(some) == 1 else some, rows(len(some)))
        at += len(some)


def steady(rate_hz: float, seconds: float, t: float = T0) -> Float64:
    return t + np.arange(round(rate_hz * seconds)) / rate_hz


def found(
    readings: Iterator[Reading], contract: InputContract = CONTRACT, rates_hz: tuple[float, float] | None = None
) -> list[RateChange]:
    reference = Reference(channels=("a",), quantiles=(0.0,) * 9, span_s=10, rates_hz=rates_hz)
    check = RateCheck(contract, [reference], max_keys=10)
    for reading in readings:
        check.count([reading])
    return list(check.changes.get("w", ()))


@pytest.mark.parametrize("rate_hz", [10.0, 26.0, 50.0, 78.0, 128.0, 200.0, 400.0])
def test_another_rate_is_told_within_ten_seconds(rate_hz: float) -> None:
    (change,) = found(singles(steady(rate_hz, 30)))
    assert change.rate_hz == pytest.approx(rate_hz, rel=0.02)
    assert T0 < change.t <= T0 + 10 - 1 / rate_hz, "and the stamp that shows it has come by then"


@pytest.mark.parametrize("rate_hz", [82.0, 100.0, 104.0, 122.0])
def test_a_rate_that_is_near_the_models_is_right(rate_hz: float) -> None:
    assert found(singles(steady(rate_hz, 60))) == []


def test_bursts_with_equal_stamps_are_counted_by_the_time_that_passes() -> None:
    """A phone hands over five samples at a time, under one stamp."""
    assert found(singles(np.repeat(steady(20, 60), 5))) == []
    (change,) = found(singles(np.repeat(steady(10, 60), 5)))
    assert change.rate_hz == pytest.approx(50, rel=0.05)


@pytest.mark.parametrize("rate_hz", [25.0, 50.0, 360.0])
@pytest.mark.parametrize("block", [10, 125])
def test_a_block_with_one_stamp_counts_for_the_time_until_the_next_one(rate_hz: float, block: int) -> None:
    """Its samples are said to be 10 ms apart, and are not."""
    starts = steady(rate_hz / block, 40)
    (change,) = found(Reading("w", float(t), rows(block)) for t in starts)
    assert change.rate_hz == pytest.approx(rate_hz, rel=0.02)


def test_blocks_that_are_longer_than_a_span_are_counted_too() -> None:
    assert found(Reading("w", float(t), rows(3000)) for t in steady(1 / 30, 300)) == []
    (change,) = found(Reading("w", float(t), rows(3000)) for t in steady(1 / 60, 300))
    assert change.rate_hz == pytest.approx(50, rel=0.02)


def test_a_silence_is_no_rate() -> None:
    bursts = np.concatenate([steady(100, 4, T0 + 60 * i) for i in range(10)])
    assert found(singles(bursts)) == []
    assert found(stamped(bursts, itertools.repeat(1000))) == []


def test_a_single_loss_is_no_rate() -> None:
    times = steady(100, 60)
    assert found(singles(times[(times < T0 + 20) | (times > T0 + 22)])) == []


def test_a_rate_that_is_put_right_is_told_once() -> None:
    wrong, right = steady(50, 20), steady(100, 30, T0 + 20)
    begun, ended = found(singles(np.concatenate([wrong, right])))
    assert begun.rate_hz == pytest.approx(50, rel=0.02)
    assert ended.rate_hz == 0
    assert T0 + 20 < ended.t <= T0 + 20 + 7.6


def test_samples_out_of_order_say_nothing() -> None:
    """Half of a key's messages come three seconds late: neither half is a rate."""
    even = [(t, t) for t in steady(50, 60)]
    odd = [(t + 3, t) for t in steady(50, 60, T0 + 0.01)]
    assert found(singles(np.array([t for _, t in sorted(even + odd)]))) == []


@pytest.mark.parametrize("size", [1, 7])
def test_messages_that_are_delivered_twice_are_no_rate(size: int) -> None:
    """As after each loss of the connection: the broker sends the last ones again, of this span or of the one before."""
    messages = list(stamped(steady(100, 60), itertools.repeat(size)))
    for end in reversed(range(125 // size, len(messages), 125 // size)):
        messages[end:end] = messages[end - 70 // size : end]
    assert found(iter(messages)) == []


def test_a_clock_that_jumps_begins_again() -> None:
    times = np.concatenate([steady(100, 20), steady(100, 20, 1000.0), steady(50, 20, T0)])
    (change,) = found(singles(times))
    assert change.t > T0


def test_a_slow_model_needs_samples_not_seconds() -> None:
    hourly = dataclasses.replace(CONTRACT, rate_hz=1 / 60, max_gap_s=0)
    assert found(singles(steady(1 / 60, 86400)), hourly) == []
    (change,) = found(singles(steady(1 / 30, 86400)), hourly)
    assert change.rate_hz == pytest.approx(1 / 30, rel=0.05)


def test_values_that_are_held_may_come_slowly_and_averaged_ones_fast() -> None:
    held = dataclasses.replace(CONTRACT, resample="previous")
    averaged = dataclasses.replace(CONTRACT, resample="mean")
    assert found(singles(steady(20, 30)), held) == []
    assert len(found(singles(steady(200, 30)), held)) == 1
    assert found(singles(steady(200, 30)), averaged) == []
    assert len(found(singles(steady(20, 30)), averaged)) == 1


@pytest.mark.parametrize("resample", ["linear", "mean", "previous"])
def test_the_rates_of_the_training_recordings_are_right(resample: Literal["linear", "mean", "previous"]) -> None:
    """Recorded at 360 and 400 Hz for a model of 100 Hz: a device of 100 Hz is the odd one."""
    described = dataclasses.replace(CONTRACT, resample=resample)
    for rate_hz, is_right in ((360.0, True), (300.0, True), (490.0, True), (100.0, False), (600.0, False)):
        assert (found(singles(steady(rate_hz, 20)), described, (360.0, 400.0)) == []) is is_right, rate_hz


def test_readings_of_some_channels_are_not_counted() -> None:
    assert found(Reading("w", float(t), rows(1)[:, :1], 0.0, (i % 2,)) for i, t in enumerate(steady(200, 30))) == []


def test_no_more_keys_are_held_than_stated() -> None:
    check = RateCheck(CONTRACT, [], max_keys=3)
    for i in range(10):
        for t in steady(50, 12):
            check.count([Reading(f"w{i}", float(t), rows(1))])
    assert set(check.changes) == {"w7", "w8", "w9"}


def calls_of(function: Callable[[], object]) -> int:
    """How many Python functions run."""
    calls = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        function()
    finally:
        sys.setprofile(before)
    return calls


def test_a_message_costs_no_call_of_a_function() -> None:
    """Ten thousand a second must not be noticed: only a new span of a key calls anything."""
    check = RateCheck(CONTRACT, [], max_keys=10)
    begin = math.ceil(T0 / check.span_s) * check.span_s
    check.count([Reading("w", begin, rows(1))])
    readings = list(singles(begin + np.arange(1, 200) / 100))
    for_one = calls_of(lambda: check.count(readings[:1]))
    assert calls_of(lambda: check.count(readings[1:])) == for_one


@pytest.mark.slow
@given(
    rates=st.lists(st.sampled_from([20.0, 50.0, 100.0, 104.0, 200.0]), min_size=1, max_size=4),
    seconds=st.floats(5, 20),
    jitter=st.floats(0, 0.4),
    seed=st.integers(0, 2**32 - 1),
    sizes=st.lists(st.integers(1, 700), min_size=1, max_size=10),
)
def test_any_split_of_the_samples_gives_the_same_changes(
    rates: list[float], seconds: float, jitter: float, seed: int, sizes: list[int]
) -> None:
    rng = np.random.default_rng(seed)
    parts, t = [], T0
    for rate_hz in rates:
        part = steady(rate_hz, seconds, t)
        parts.append(part + rng.uniform(0, jitter, len(part)) / rate_hz)
        t += seconds
    times = np.concatenate(parts)
    alone, split = found(singles(times)), found(stamped(times, itertools.cycle(sizes)))
    assert [change.t for change in split] == [change.t for change in alone]
    assert [change.rate_hz for change in split] == pytest.approx([change.rate_hz for change in alone])


@pytest.mark.slow
@given(rate_hz=st.floats(0.5, 5000), seconds=st.floats(1, 60))
def test_only_a_rate_that_is_wrong_is_told(rate_hz: float, seconds: float) -> None:
    changes = found(singles(steady(rate_hz, min(seconds, 5000 / rate_hz))))
    if 1 / WITHIN * 1.01 < rate_hz / 100 < WITHIN / 1.01:
        assert changes == []
    for change in changes:
        assert 1 / AGREE < change.rate_hz / rate_hz < AGREE
