"""What may happen to a window in training: shifts, noise, masks."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from edge_export.learn.augment.corruptions import CorruptedSampler, corrupt
from edge_export.recipe.augmentation import Augmentation


def windows(count: int = 200, channels: int = 2, samples: int = 400) -> np.ndarray:
    x = np.random.default_rng(3).standard_normal((count, channels, samples)).astype(np.float32)
    return x + np.array([[0.5], [-1.0]], np.float32)[:channels]


def generator() -> np.random.Generator:
    return np.random.default_rng(7)


def test_the_default_disturbs_nothing_and_the_input_is_never_written() -> None:
    x = windows()
    before = x.copy()
    np.testing.assert_array_equal(corrupt(x, Augmentation(), generator()), x)
    everything = Augmentation(noise_db=(5, 20), equaliser_db=6, time_masks=2, band_masks=2)
    changed = corrupt(x, everything, generator())
    np.testing.assert_array_equal(x, before)
    assert changed.shape == x.shape
    assert changed.dtype == np.float32
    np.testing.assert_array_equal(changed, corrupt(x, everything, generator()))


def test_noise_has_the_stated_ratio_to_the_signal() -> None:
    x = windows() * np.array([[10.0], [0.1]], np.float32)
    added = corrupt(x, Augmentation(noise_db=(20, 20)), generator()) - x
    ratio = 20 * np.log10(x.std(axis=2) / added.std(axis=2))
    np.testing.assert_allclose(ratio.mean(axis=0), 20, atol=0.2)


def test_an_equaliser_changes_frequencies_smoothly_within_its_bounds_and_all_channels_alike() -> None:
    x = windows()
    y = corrupt(x, Augmentation(equaliser_db=6), generator())
    before, after = np.fft.rfft(x, axis=2), np.fft.rfft(y, axis=2)
    # float32 samples leave little of a bin that happens to be near nothing.
    clear = np.abs(before) > 1.0
    decibels = 20 * np.log10(np.abs(after) / np.abs(before), where=clear, out=np.zeros(clear.shape))
    assert 5 < np.abs(decibels).max() < 6.01
    both = clear.all(axis=1)
    np.testing.assert_allclose(decibels[:, 0][both], decibels[:, 1][both], atol=0.01)
    neighbours = clear[:, :, 1:] & clear[:, :, :-1]
    assert np.abs(np.diff(decibels, axis=2))[neighbours].max() < 12 / 40 + 0.01


def test_a_time_mask_puts_the_mean_in_place_of_one_run() -> None:
    x = windows()
    y = corrupt(x, Augmentation(time_masks=1, time_mask=0.25), generator())
    lengths = []
    for before, after in zip(x, y, strict=True):
        changed = np.flatnonzero((before != after).any(axis=0))
        lengths.append(len(changed))
        if len(changed):
            assert changed[-1] - changed[0] + 1 == len(changed)
            mean = np.broadcast_to(before.mean(axis=1, keepdims=True), (2, len(changed)))
            np.testing.assert_allclose(after[:, changed], mean, atol=1e-6)
    assert 90 <= max(lengths) <= 100


def test_a_band_mask_takes_one_band_out_and_leaves_the_rest_and_the_mean() -> None:
    x = windows()
    y = corrupt(x, Augmentation(band_masks=1, band_mask=0.25), generator())
    before, after = np.abs(np.fft.rfft(x, axis=2)), np.abs(np.fft.rfft(y, axis=2))
    lengths = []
    for b, a in zip(before, after, strict=True):
        gone = np.flatnonzero((a < 1e-3).all(axis=0) & (b > 1e-2).all(axis=0))
        lengths.append(len(gone))
        if len(gone):
            assert gone[-1] - gone[0] < 1.1 * len(gone) + 2
        kept = np.setdiff1d(np.flatnonzero((b > 1e-2).all(axis=0)), gone)
        np.testing.assert_allclose(a[:, kept], b[:, kept], rtol=1e-2, atol=1e-2)
    assert 44 <= max(lengths) <= 51
    np.testing.assert_allclose(y.mean(axis=2), x.mean(axis=2), atol=1e-5)


class _All:
    """A sampler that always draws the same windows."""

    def __init__(self, x: np.ndarray, y: np.ndarray) -> None:
        self._drawn = x, y

    def draw(self, count: int) -> tuple[np.ndarray, np.ndarray]:
        assert count == len(self._drawn[0])
        return self._drawn


def test_disturbances_repeat_with_their_seed_and_leave_the_labels() -> None:
    x, y = windows(20), np.arange(20) % 3
    one, two = (CorruptedSampler(_All(x, y), Augmentation(equaliser_db=3), seed=6).draw(20) for _ in range(2))
    np.testing.assert_array_equal(one[0], two[0])
    np.testing.assert_array_equal(one[1], y)
    assert not np.array_equal(one[0], x)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Augmentation(time_masks=-1), "at least 0"),
        (lambda: Augmentation(time_mask=1.5), "above 0 and up to 1"),
        (lambda: Augmentation(noise_db=(20, 5)), "the least and the greatest ratio"),
    ],
)
def test_what_makes_no_sense_is_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()
