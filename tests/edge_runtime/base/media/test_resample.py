"""The resampler gives the same bits however samples are split, and its filter is as steep as it says."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_runtime.base.media.resample import Resampler, ratio, taps
from edge_runtime.errors import ConfigError
from edge_runtime.types import Float32
from tests.edge_runtime.base.media.sounds import resampled

RATES = [(8000, 16000), (11025, 16000), (16000, 8000), (16000, 16000), (22050, 16000), (44100, 16000), (48000, 16000)]


def noise(n: int, channels: int = 1, seed: int = 0) -> Float32:
    return np.random.default_rng(seed).uniform(-1, 1, (n, channels)).astype(np.float32)


@given(rates=st.sampled_from(RATES), sizes=st.lists(st.integers(0, 700), max_size=8), channels=st.integers(1, 2))
def test_every_split_gives_the_same_bits(rates: tuple[int, int], sizes: list[int], channels: int) -> None:
    sound = noise(sum(sizes), channels)
    resampler, pieces, at = Resampler(*rates, channels), [], 0
    for size in sizes:
        pieces.append(resampler.push(sound[at : at + size]))
        at += size
    pieces.append(resampler.finish())
    found = np.concatenate(pieces)
    assert found.tobytes() == resampled(sound, *rates).tobytes()
    assert found.shape == (-(-len(sound) * rates[1] // rates[0]), channels)


@pytest.mark.parametrize("rates", RATES)
def test_an_output_is_the_sum_of_its_taps(rates: tuple[int, int]) -> None:
    """y[k] = sum of x[i] h[k M - i L], with the middle of h at 0: as the books have it."""
    up, down = ratio(*rates).as_integer_ratio()
    sound, filter_ = noise(200)[:, 0], taps(up, down)
    outputs = np.arange(-(-len(sound) * up // down))
    at = outputs[:, None] * down - np.arange(len(sound)) * up + len(filter_) // 2
    inside = (at >= 0) & (at < len(filter_))
    expected = (np.where(inside, filter_[np.where(inside, at, 0)], 0) * sound).sum(axis=1)
    np.testing.assert_allclose(resampled(sound[:, None], *rates)[:, 0], sound if up == down else expected, atol=1e-6)


@pytest.mark.parametrize("rates", [one for one in RATES if one[0] != one[1]])
def test_the_filter_is_as_steep_as_it_says(rates: tuple[int, int]) -> None:
    up, down = ratio(*rates).as_integer_ratio()
    size = 1 << 20
    level = np.abs(np.fft.rfft(taps(up, down), size)) / up
    share = np.arange(len(level)) / size * max(up, down) * 2  # of half the lower rate
    assert 20 * np.log10(level[share >= 1].max()) < -95.9
    assert np.abs(20 * np.log10(level[share <= 0.9])).max() < 2e-4


@pytest.mark.parametrize("rates", [one for one in RATES if one[0] != one[1]])
def test_forty_tones_are_what_a_microphone_of_the_other_rate_would_have_heard(rates: tuple[int, int]) -> None:
    rng, (rate, to) = np.random.default_rng(0), rates
    tones, phases = rng.uniform(50, 0.44 * min(rates), 40), rng.uniform(0, 6, 40)

    def heard(rate_hz: int) -> npt.NDArray[np.float64]:
        t = np.arange(rate_hz) / rate_hz
        return np.asarray(np.sin(2 * np.pi * tones[:, None] * t + phases[:, None]).sum(axis=0) / 40)

    expected = heard(to)[1000:-1000]
    error = resampled(heard(rate).astype(np.float32)[:, None], rate, to)[1000:-1000, 0] - expected
    assert 10 * np.log10((error**2).mean() / (expected**2).mean()) < -105


def test_a_tone_keeps_its_place_and_what_would_fold_is_gone() -> None:
    t = np.arange(48000) / 48000
    low, high = np.sin(2 * np.pi * 1000 * t + 0.3), np.sin(2 * np.pi * 9000 * t)
    found = resampled((low + high).astype(np.float32)[:, None], 48000, 16000)[:, 0]
    inner = slice(200, -200)
    np.testing.assert_allclose(found[inner], low[::3][inner], atol=3e-5)


def test_the_same_rate_changes_nothing() -> None:
    sound = noise(100)
    assert resampled(sound, 16000, 16000).tobytes() == sound.tobytes()


@pytest.mark.parametrize(("rate", "to", "told"), [(16001, 16000, "in lowest terms"), (2e6, 16000, "64 times fewer")])
def test_rates_without_a_common_measure_are_refused(rate: float, to: float, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        Resampler(rate, to)
