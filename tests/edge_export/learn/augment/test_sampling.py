"""Windows for training: from the places that bear a label, on the grid of the device, varied no further than told."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from edge_export.data.dataset import UNLABELLED, Dataset, Recording
from edge_export.data.labels import label_windows
from edge_export.learn.augment import sampling
from edge_export.learn.augment.sampling import PlaceSampler, on_grid
from edge_export.recipe.augmentation import Augmentation

from edge_runtime import manifest
from edge_runtime.errors import ConfigError
from edge_runtime.manifest import Channel


def contract(window: int = 32, context: int = 0, rate_hz: float = 50.0) -> manifest.InputContract:
    channels = tuple(manifest.Channel(name=name, unit="g") for name in ("a", "b", "c"))
    return manifest.InputContract(channels=channels, rate_hz=rate_hz, window=window, hop=16, context=context)


def ramps(marks: np.ndarray | None = None, samples: int = 320) -> Dataset:
    """Channel a counts samples, so a window says where it was cut."""
    values = np.stack([np.arange(samples), np.ones(samples), np.zeros(samples)], 1).astype(np.float32)
    recordings = [
        Recording(name=f"r{label}", group="g", label=label, values=values + np.float32(1000 * label))
        for label in (0, 1)
    ]
    if marks is not None:
        recordings = [Recording(name="r", group="g", label=UNLABELLED, values=values, marks=marks)]
    return Dataset(
        name="ramps",
        channels=tuple(Channel(name=name, unit="g") for name in ("a", "b", "c")),
        rate_hz=50.0,
        classes=("low", "high"),
        recordings=tuple(recordings),
    )


def test_without_variation_a_window_is_a_stretch_of_its_recording() -> None:
    x, y = PlaceSampler(ramps(), contract(), seed=1).draw(200)
    assert x.shape == (200, 3, 32)
    np.testing.assert_allclose(np.diff(x[:, 0], axis=1), 1, atol=1e-3)
    assert ((x[:, 0, 0] >= 1000) == (y == 1)).all()


def test_history_before_the_start_repeats_the_first_sample() -> None:
    x, y = PlaceSampler(ramps(), contract(context=128), seed=1).draw(300)
    assert x.shape[2] == 128
    first = x[:, 0, 0] - 1000 * y
    assert first.min() >= 0
    early = np.flatnonzero(x[:, 0, -32] - 1000 * y < 90)
    assert len(early)
    assert all(x[i, 0, 0] == x[i, 0, 1] for i in early)


def test_a_window_bears_the_label_of_its_middle() -> None:
    marks = np.repeat([0, 1, UNLABELLED, 0], 80)
    x, y = PlaceSampler(ramps(marks), contract(), seed=2, balance="classes").draw(500)
    middle = x[:, 0, 16]
    assert (marks[np.rint(middle).astype(int)] == y).all()
    assert 0.4 < (y == 1).mean() < 0.6


def test_places_agree_with_the_windows_that_the_device_cuts() -> None:
    marks = np.repeat([0, 1], 160)
    data = ramps(marks)
    for rule in ("centre", "end", "majority"):
        by_device = label_windows(data, contract(), rule=rule)
        sampler = PlaceSampler(data, contract(), rule=rule, seed=3)
        x, y = sampler.draw(3000)
        drawn = {round(float(first)): int(label) for first, label in zip(x[:, 0, 0], y, strict=True)}
        for first, label in zip(by_device.x[:, 0, 0].tolist(), by_device.y.tolist(), strict=True):
            assert drawn.get(int(first), label) == label


def test_gaps_are_not_bridged() -> None:
    data = ramps()
    t = np.concatenate([np.arange(160), np.arange(160) + 999]) / 50
    recording = Recording(name="r", group="g", label=0, values=data.recordings[0].values, t=t)
    stretches = on_grid(recording, 50.0, contract())
    assert len(stretches) == 2
    assert all((np.diff(values[:, 0]) == 1).all() for values, _ in stretches)


def test_the_same_seed_draws_the_same() -> None:
    variation = Augmentation(
        speed=0.3, gain=0.2, noise=(0.1, 0.1, 0.1), triads=(("a", "b", "c"),), rotation_deg=17, shift=0.1
    )
    draws = [PlaceSampler(ramps(), contract(), variation=variation, seed=5).draw(20)[0] for _ in range(2)]
    np.testing.assert_array_equal(draws[0], draws[1])


def test_rotation_keeps_lengths_and_dropout_silences_whole_channels() -> None:
    plain = PlaceSampler(ramps(), contract(), seed=6).draw(50)[0]
    rotated = Augmentation(triads=(("a", "b", "c"),), rotation_deg=29)
    turned = PlaceSampler(ramps(), contract(), variation=rotated, seed=6).draw(50)[0]
    np.testing.assert_allclose(np.linalg.norm(turned, axis=1), np.linalg.norm(plain, axis=1), rtol=1e-4)
    dropped = PlaceSampler(ramps(), contract(), variation=Augmentation(channel_dropout=0.5), seed=6).draw(200)[0]
    silent = (dropped[:, 1] == 0).all(axis=1)
    assert 0.35 < silent.mean() < 0.65
    assert (silent | (dropped[:, 1] != 0).all(axis=1)).all()


def test_a_shift_moves_silence_in() -> None:
    x = PlaceSampler(ramps(), contract(), variation=Augmentation(shift=0.5), seed=8).draw(100)[0]
    zeros = (x[:, 1] == 0).sum(axis=1)
    assert 0 < zeros.max() <= 16


def test_a_window_alone_is_drawn_as_often_as_one_of_a_stream() -> None:
    """Mutation: by its places, of which it has one, and a stream sixteen for each window."""
    stream = ramps().recordings[0]  # 289 places, of some 18 windows
    alone = replace(stream, values=stream.values[:32] + np.float32(5000))
    other = ramps().recordings[1]
    data = replace(ramps(), recordings=(stream, alone, other))
    x, y = PlaceSampler(data, contract(), seed=1).draw(6000)
    drawn = (x[:, 0, 0] > 4000)[y == 0].mean()
    assert drawn == pytest.approx(16 / (289 + 16), rel=0.25)


def test_a_stated_share_is_drawn_whatever_the_number_of_windows() -> None:
    stream, other = ramps().recordings
    alone = replace(stream, values=stream.values[:32] + np.float32(5000), share=0.4)
    data = replace(ramps(), recordings=(stream, alone, other))
    x, y = PlaceSampler(data, contract(), seed=1, balance="none").draw(3000)
    assert (x[:, 0, 0] > 4000).mean() == pytest.approx(0.4, abs=0.03)
    assert 0 < (y == 1).mean() < 0.6


def test_a_class_without_a_place_is_named() -> None:
    with pytest.raises(ConfigError, match="class 'high' has no place where a window fits"):
        PlaceSampler(ramps(np.zeros(320, np.int64)), contract())


def test_another_tempo_moves_events_and_leaves_the_pitch(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tone in one channel, a count in another: the count says how fast the recording is gone through."""
    monkeypatch.setattr(sampling, "GRAIN", 64)
    t = np.arange(1200)
    values = np.stack([np.sin(2 * np.pi * t / 8), t.astype(np.float64), np.zeros(1200)], 1).astype(np.float32)
    dataset = replace(ramps(), recordings=tuple(replace(r, values=values) for r in ramps().recordings))
    x, _ = PlaceSampler(dataset, contract(512), variation=Augmentation(tempo=0.4), seed=3).draw(60)
    # Away from the ends, where a faster window has nothing left to play.
    inner = np.arange(128, 384)
    slopes = np.array([np.polyfit(inner, counted[inner], 1)[0] for counted in x[:, 1]])
    assert 0.66 < slopes.min() < 0.8
    assert 1.25 < slopes.max() < 1.51
    peaks = np.abs(np.fft.rfft(x[:, 0, inner] * np.hanning(256))).argmax(axis=1)
    np.testing.assert_allclose(peaks, 256 / 8, atol=2)


def test_tempo_and_speed_together_are_both_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "GRAIN", 64)
    t = np.arange(1200)
    values = np.stack([np.sin(2 * np.pi * t / 16), t.astype(np.float64), np.zeros(1200)], 1).astype(np.float32)
    dataset = replace(ramps(), recordings=tuple(replace(r, values=values) for r in ramps().recordings))
    plain, both = (
        PlaceSampler(dataset, contract(512), variation=Augmentation(speed=0.3, tempo=tempo), seed=3).draw(60)[0]
        for tempo in (0.0, 1e-9)
    )
    np.testing.assert_allclose(both, plain, atol=2e-3)


def test_about_half_of_the_windows_are_mirrored() -> None:
    x, _ = PlaceSampler(ramps(), contract(), seed=6, variation=Augmentation(mirror=(1.0, -1.0, 1.0))).draw(400)
    turned = x[:, 1, 0] < 0
    assert 140 < turned.sum() < 260
    assert ((x[:, 1] < 0) == turned[:, None]).all()
    assert (x[:, 0] >= 0).all()


def test_a_clip_as_long_as_a_window_keeps_its_end() -> None:
    for samples in (29, 32, 100):
        sampler = PlaceSampler(ramps(samples=samples), contract(window=samples), seed=1)
        x, _ = sampler.draw(8)
        assert x.shape[2] == samples
        assert (np.diff(x[:, 0]) == 1).all()
