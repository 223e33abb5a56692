"""Stamps of sound count samples, and follow the clock by the rules of `edge_runtime.base.media.sound_stream`."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_runtime.base.media.sound_stream import SoundStream
from edge_runtime.types import Float32
from tests.edge_runtime.base.media.sounds import resampled

RATE = 16000
DRIFT_S = 0.5


def noise(n: int) -> Float32:
    return np.random.default_rng(n).uniform(-1, 1, (n, 1)).astype(np.float32)


def stream(rate_hz: int = RATE, settle_s: float = 2.0) -> SoundStream:
    return SoundStream(rate_hz, RATE, 1, settle_s)


def feed(one: SoundStream, lags: list[float], n: int = 1600) -> list[float]:
    """Stamps of pieces, each by its lag behind a sender without a flaw, in periods of the model from 1000 s."""
    stamps: list[float] = []
    for i, lag in enumerate(lags):
        stamps += [(t - 1000) * RATE for t, _ in one.push(noise(n), 1000 + i * n / RATE + lag, DRIFT_S)]
    return stamps


@given(jitter=st.lists(st.floats(-DRIFT_S / 2, DRIFT_S / 2), min_size=1, max_size=50))
def test_jitter_moves_nothing(jitter: list[float]) -> None:
    np.testing.assert_allclose(np.diff(feed(stream(), jitter)), 1600, atol=1e-3)


@given(
    sizes=st.lists(st.integers(1, 900), min_size=1, max_size=12),
    jitter=st.lists(st.floats(-0.2, 0.2), min_size=12, max_size=12),
    rate=st.sampled_from([8000, 16000, 44100]),
)
def test_pieces_of_any_size_make_the_sound_of_one(sizes: list[int], jitter: list[float], rate: int) -> None:
    sound, one, at = noise(sum(sizes)), stream(rate), 0
    pieces = []
    for size, late in zip(sizes, jitter, strict=False):
        pieces += one.push(sound[at : at + size], 50 + at / rate + late, DRIFT_S)
        at += size
    whole = resampled(sound, rate, RATE)
    found = np.concatenate([np.empty((0, 1), np.float32), *(values for _, values in pieces)])
    assert found.tobytes() == whole[: len(found)].tobytes()
    begins = np.cumsum([0, *(len(values) for _, values in pieces)])
    for begin, (t, _) in zip(begins, pieces, strict=False):
        assert t == pytest.approx(50 + jitter[0] + begin / RATE, abs=1e-6)


def test_a_burst_behind_a_stall_moves_nothing() -> None:
    stalled = [3.0, 2.9, 2.8, 2.7, 2.6, 0.0]  # five at once, after three seconds of nothing
    assert np.diff(feed(stream(), [0.0, *stalled, *[0.0] * 30])).tolist() == pytest.approx([1600] * 36)


def test_a_lag_that_stays_moves_the_clock_by_its_least_and_by_whole_samples() -> None:
    lags = [0.0, *(0.8 + 0.1 * (i % 2) for i in range(40))]
    steps = np.diff(feed(stream(), lags))
    moved = steps[np.abs(steps - 1600) > 0.01]
    assert moved.tolist() == pytest.approx([1600 + round(0.8 * RATE)])
    assert int(np.argmax(steps > 1601)) in (19, 20, 21), "not before two seconds, nor long after"


def test_a_sender_ahead_is_followed_too() -> None:
    steps = np.diff(feed(stream(), [0.0, *[-0.75] * 40]))
    assert min(steps) == pytest.approx(1600 - 0.75 * RATE)
    assert np.count_nonzero(np.abs(steps - 1600) > 0.01) == 1


def test_lags_of_both_signs_are_no_drift() -> None:
    assert np.diff(feed(stream(), [0.0, *[0.8, -0.8] * 30])).tolist() == pytest.approx([1600] * 60)


def test_a_long_silence_moves_the_clock_at_once() -> None:
    assert np.diff(feed(stream(), [0.0, 60.0, 60.0]))[0] == pytest.approx(1600 + 60 * RATE)


def test_a_known_loss_is_a_gap_of_that_length_and_the_filter_ends_before_it() -> None:
    one, before, after = stream(8000), noise(500), noise(400)
    pieces = one.push(before, 10.0, DRIFT_S)
    pieces += one.push(after, 10.0 + 500 / 8000 + 0.1, DRIFT_S, lost=800)
    stamps = [t for t, _ in pieces]
    first = np.concatenate([values for t, values in pieces if t < 10.1])
    assert first.tobytes() == resampled(before, 8000, RATE).tobytes()
    assert stamps[-1] == pytest.approx(10 + (500 + 800) / 8000, abs=1e-9)
    assert pieces[-1][1].tobytes() == resampled(after, 8000, RATE)[: len(pieces[-1][1])].tobytes()


def test_what_is_forgotten_goes_on_by_whole_samples() -> None:
    one = stream()
    one.push(noise(160), 10.0, DRIFT_S)
    one.forget()
    ((t, _),) = one.push(noise(160), 10.01 + 0.0001234, DRIFT_S)
    assert (t - 10) * RATE == pytest.approx(round(0.0101234 * RATE), abs=1e-4)


def test_a_time_that_is_not_known_stays_so() -> None:
    one = stream()
    assert all(math.isnan(t) for _ in range(3) for t, _ in one.push(noise(160), math.nan, DRIFT_S))
