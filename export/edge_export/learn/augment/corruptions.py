"""Corruptions of a drawn training window, besides what its neighbours `windows` and `sampling` vary.

Noise, loudness, masks: for sounds above all, and for windows that were cut elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from edge_export.data.dataset import Float32, Int64
from edge_export.learn.augment.sampler import Sampler
from edge_runtime.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class Corruption:
    """Changes that a microphone or another single sensor may make to any window. The default makes none.

    Attributes:
        shift: largest number of samples that the window moves by, either way; zeros move in.
        gain_db: largest change of loudness, either way.
        noise_db: least and greatest ratio of the window's power to that of white noise put on it; empty for no noise.
        equaliser_db: largest gain or loss at each of `equaliser_bands` frequencies, spread evenly from 0 to half the
            rate, with straight lines in decibels between them: another microphone, another room; 0 for none.
        equaliser_bands: how many frequencies.
        time_masks: number of runs of samples in a window that are set to its mean.
        time_mask: largest share of the window that such a run covers.
        band_masks: number of bands of frequencies taken out of every channel of a window.
        band_mask: largest share of the spectrum that such a band covers.

    Source: masks as in SpecAugment, Park et al. 2019 (arXiv:1904.08779), gains as in FilterAugment, Nam et al. 2022
    (arXiv:2110.03282), there on the spectrogram; here on the signal, so that they reach whatever front end stands
    before the network.
    """

    shift: int = 0
    gain_db: float = 0.0
    noise_db: tuple[float, float] | tuple[()] = ()
    equaliser_db: float = 0.0
    equaliser_bands: int = 6
    time_masks: int = 0
    time_mask: float = 0.1
    band_masks: int = 0
    band_mask: float = 0.1

    def __post_init__(self) -> None:
        if self.shift < 0 or self.gain_db < 0 or self.time_masks < 0 or self.band_masks < 0:
            raise ConfigError("corruption: shift, gain_db and numbers of masks must be at least 0")
        if self.equaliser_db < 0 or self.equaliser_bands < 2:
            raise ConfigError("corruption: equaliser_db must be at least 0, at two frequencies or more")
        if not 0 < self.time_mask <= 1 or not 0 < self.band_mask <= 1:
            raise ConfigError("corruption: masks cover a share above 0 and up to 1")
        if self.noise_db and self.noise_db[0] > self.noise_db[1]:
            raise ConfigError("corruption: noise_db is the least ratio, then the greatest")


def corrupt(x: Float32, corruption: Corruption, random: np.random.Generator) -> Float32:
    """Corrupt windows, each in its own way.

    Args:
        x: (n, n_channels, samples) in physical units; left as it is.
        corruption: how much.
        random: the source of chance.

    Returns:
        The same shape.
    """
    count, samples = len(x), x.shape[2]
    y = x.astype(np.float32, copy=True)
    if corruption.shift:
        moves = random.integers(-corruption.shift, corruption.shift, count, endpoint=True)
        for window, by in zip(y, (int(move) for move in moves), strict=True):
            window[:] = np.roll(window, by, axis=1)
            window[:, : max(by, 0)] = 0.0
            window[:, samples + min(by, 0) :] = 0.0
    if corruption.band_masks or corruption.equaliser_db:
        y = _other_spectrum(y, corruption, random)
    if corruption.noise_db:
        ratio = 10 ** (random.uniform(*corruption.noise_db, (count, 1, 1)) / 20)
        # By channel, since channels differ in unit; a silent one stays silent.
        deviation = y.std(axis=2, keepdims=True) / ratio
        y += (random.standard_normal(y.shape) * deviation).astype(np.float32)
    if corruption.gain_db:
        gain = random.uniform(-corruption.gain_db, corruption.gain_db, (count, 1, 1))
        y *= (10 ** (gain / 20)).astype(np.float32)
    for _ in range(corruption.time_masks):
        length = (random.uniform(0, corruption.time_mask, count) * samples).astype(np.int64)
        start = (random.random(count) * (samples - length + 1)).astype(np.int64)
        at = np.arange(samples)
        masked = (at >= start[:, None]) & (at < (start + length)[:, None])
        y = np.where(masked[:, None], y.mean(axis=2, keepdims=True), y)
    return y


def _other_spectrum(x: Float32, corruption: Corruption, random: np.random.Generator) -> Float32:
    spectrum = np.fft.rfft(x, axis=2)
    bins = np.arange(spectrum.shape[2])
    for _ in range(corruption.band_masks):
        width = random.uniform(0, corruption.band_mask, len(x)) * len(bins)
        # The mean stays: it is an offset of the sensor and no band.
        low = 1 + random.random(len(x)) * (len(bins) - 1 - width)
        out = (bins >= low[:, None]) & (bins < (low + width)[:, None])
        spectrum *= ~out[:, None]
    if corruption.equaliser_db:
        size = (len(x), corruption.equaliser_bands)
        decibels = random.uniform(-corruption.equaliser_db, corruption.equaliser_db, size)
        known = np.linspace(0, len(bins) - 1, corruption.equaliser_bands)
        spectrum *= np.stack([10 ** (np.interp(bins, known, one) / 20) for one in decibels])[:, None]
    changed: Float32 = np.fft.irfft(spectrum, n=x.shape[2], axis=2).astype(np.float32)
    return changed


class CorruptedSampler:
    """Sampler of corrupted windows.

    Args:
        sampler: draws the windows.
        corruption: how much.
        seed: the corruptions' seed.
    """

    def __init__(self, sampler: Sampler, corruption: Corruption, *, seed: int) -> None:
        self._sampler, self._corruption = sampler, corruption
        self._random = np.random.default_rng(seed)

    def draw(self, count: int) -> tuple[Float32, Int64]:
        """See `Sampler.draw`."""
        x, y = self._sampler.draw(count)
        return corrupt(x, self._corruption, self._random), y
