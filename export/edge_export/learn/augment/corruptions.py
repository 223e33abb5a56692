"""Corruptions of a drawn training window, besides what its neighbours `windows` and `sampling` vary.

Noise, loudness, masks: for sounds above all, and for windows that were cut elsewhere.
"""

from __future__ import annotations

import numpy as np

from edge_export.data.dataset import Float32, Int64
from edge_export.learn.augment.sampler import Sampler
from edge_export.recipe.augmentation import Augmentation

EQUALISER_BANDS = 6
"""Frequencies at which a loss or gain is drawn, from 0 to half the rate."""


def corrupt(x: Float32, by: Augmentation, random: np.random.Generator) -> Float32:
    """Corrupt windows, each in its own way.

    Args:
        x: (n, n_channels, samples) in physical units; left as it is.
        by: largest changes; those of `sampling` are left to it.
        random: the source of chance.

    Returns:
        The same shape.
    """
    count, samples = len(x), x.shape[2]
    y = x.astype(np.float32, copy=True)
    if by.band_masks or by.equaliser_db:
        y = _other_spectrum(y, by, random)
    if by.noise_db:
        least, greatest = by.noise_db
        ratio = 10 ** (random.uniform(least, greatest, (count, 1, 1)) / 20)
        # By channel, since channels differ in unit; a silent one stays silent.
        deviation = y.std(axis=2, keepdims=True) / ratio
        y += (random.standard_normal(y.shape) * deviation).astype(np.float32)
    for _ in range(by.time_masks):
        length = (random.uniform(0, by.time_mask, count) * samples).astype(np.int64)
        start = (random.random(count) * (samples - length + 1)).astype(np.int64)
        at = np.arange(samples)
        masked = (at >= start[:, None]) & (at < (start + length)[:, None])
        y = np.where(masked[:, None], y.mean(axis=2, keepdims=True), y)
    return y


def _other_spectrum(x: Float32, by: Augmentation, random: np.random.Generator) -> Float32:
    spectrum = np.fft.rfft(x, axis=2)
    bins = np.arange(spectrum.shape[2])
    for _ in range(by.band_masks):
        width = random.uniform(0, by.band_mask, len(x)) * len(bins)
        # The mean stays: it is an offset of the sensor and no band.
        low = 1 + random.random(len(x)) * (len(bins) - 1 - width)
        out = (bins >= low[:, None]) & (bins < (low + width)[:, None])
        spectrum *= ~out[:, None]
    if by.equaliser_db:
        size = (len(x), EQUALISER_BANDS)
        decibels = random.uniform(-by.equaliser_db, by.equaliser_db, size)
        known = np.linspace(0, len(bins) - 1, EQUALISER_BANDS)
        spectrum *= np.stack([10 ** (np.interp(bins, known, one) / 20) for one in decibels])[:, None]
    changed: Float32 = np.fft.irfft(spectrum, n=x.shape[2], axis=2).astype(np.float32)
    return changed


class CorruptedSampler:
    """Sampler of corrupted windows.

    Args:
        sampler: draws the windows.
        by: largest changes.
        seed: the corruptions' seed.
    """

    def __init__(self, sampler: Sampler, by: Augmentation, *, seed: int) -> None:
        self._sampler, self._by = sampler, by
        self._random = np.random.default_rng(seed)

    def draw(self, count: int) -> tuple[Float32, Int64]:
        """See `Sampler.draw`."""
        x, y = self._sampler.draw(count)
        return corrupt(x, self._by, self._random), y


def corrupts(by: Augmentation) -> bool:
    """Return whether an augmentation asks for any corruption."""
    return bool(by.noise_db or by.equaliser_db or by.time_masks or by.band_masks)
