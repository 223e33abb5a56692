"""Random windows: what may change changes, and nothing else."""

from __future__ import annotations

import numpy as np
import pytest
from edge_export.augment.windows import Augmentation, WindowSampler
from edge_export.data.dataset import Channel, Dataset, Recording
from hypothesis import given, settings
from hypothesis import strategies as st


def dataset(values: list[np.ndarray], rate: float = 50.0) -> Dataset:
    return Dataset(
        name="made-up",
        channels=tuple(Channel(name=name, unit="1") for name in ("ax", "ay", "az", "wx", "wy", "wz")),
        rate_hz=rate,
        classes=("a", "b"),
        recordings=tuple(
            Recording(name=str(i), group=str(i), label=i % 2, values=v.astype(np.float32)) for i, v in enumerate(values)
        ),
    )


def noise(length: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((length, 6))


TRIADS = ((0, 1, 2), (3, 4, 5))


@given(seed=st.integers(0, 10_000))
@settings(max_examples=20, deadline=None)
def test_without_augmentation_a_window_lies_on_the_recorded_line(seed: int) -> None:
    ramp = np.arange(200)[:, None] * np.ones(6)
    x, y = WindowSampler(dataset([ramp]), samples=50, augmentation=Augmentation(), seed=seed).draw(8)
    assert x.shape == (8, 6, 50)
    assert x.dtype == np.float32
    assert y.tolist() == [0] * 8
    np.testing.assert_allclose(np.diff(x, axis=2), 1.0, atol=1e-3)
    assert x.min() >= 0
    assert x.max() <= 199


def test_speed_changes_rates_with_it() -> None:
    ramp = np.ones((400, 6))
    sampler = WindowSampler(dataset([ramp]), samples=50, augmentation=Augmentation(speed=0.5, rates=(3, 4, 5)), seed=3)
    x, _ = sampler.draw(200)
    assert (x[:, :3] == 1).all()
    speeds = x[:, 3, 0]
    assert speeds.min() == pytest.approx(np.exp(-0.5), abs=0.03)
    assert speeds.max() == pytest.approx(np.exp(0.5), abs=0.03)


def test_a_rotation_keeps_lengths_and_turns_both_triads_alike() -> None:
    values = np.tile(noise(1), (200, 1))
    values[:, 3:] = values[:, :3]
    augmentation = Augmentation(triads=TRIADS, rotation_rad=(0.5, 0.5, 0.5))
    x, _ = WindowSampler(dataset([values]), samples=50, augmentation=augmentation, seed=5).draw(50)
    np.testing.assert_allclose(np.linalg.norm(x[:, :3, 0], axis=1), np.linalg.norm(values[0, :3]), rtol=1e-5)
    np.testing.assert_allclose(x[:, :3], x[:, 3:], rtol=1e-5)
    assert np.ptp(x[:, 0, 0]) > 0.1


def test_about_half_of_the_windows_are_mirrored() -> None:
    augmentation = Augmentation(mirror=(-1.0, 1.0, 1.0, 1.0, -1.0, -1.0))
    x, _ = WindowSampler(dataset([np.ones((200, 6))]), samples=50, augmentation=augmentation, seed=5).draw(400)
    assert set(np.unique(x[:, 0])) == {-1.0, 1.0}
    assert 150 < (x[:, 0, 0] < 0).sum() < 250
    np.testing.assert_array_equal(x[:, 0], x[:, 4])
    assert (x[:, 1] == 1).all()


def test_short_histories_repeat_their_first_sample_and_spare_the_window() -> None:
    augmentation = Augmentation(short_history=1.0, shortest=20)
    x, _ = WindowSampler(dataset([noise(300)]), samples=60, augmentation=augmentation, seed=5).draw(100)
    changed = np.abs(np.diff(x, axis=2)).max(axis=1) > 0
    first = changed.argmax(axis=1)
    assert first.min() >= 1
    assert first.max() == 40
    for row, begin in zip(changed, first, strict=True):
        assert row[begin:].all()


def test_the_same_seed_draws_the_same_and_recordings_are_equally_likely() -> None:
    data = dataset([noise(2000, 1), noise(120, 2)])
    augmentation = Augmentation(triads=TRIADS, rotation_rad=(0.1, 0.1, 0.1), speed=0.2, gain=0.2, noise=(0.1,) * 6)
    draws = [WindowSampler(data, samples=50, augmentation=augmentation, seed=9).draw(300) for _ in range(2)]
    np.testing.assert_array_equal(draws[0][0], draws[1][0])
    assert 100 < draws[0][1].sum() < 200


def test_a_recording_barely_longer_than_a_window_is_slowed_down_not_overrun() -> None:
    sampler = WindowSampler(dataset([noise(54)]), samples=50, augmentation=Augmentation(speed=1.0), seed=1)
    x, _ = sampler.draw(300)
    assert np.isfinite(x).all()
