"""Training windows drawn at random from recordings, varied the way people and their sensors vary.

Few people give many windows but little variety, and a model that has seen five people must expect the sixth to move
faster, more weakly, on the other side, with the sensor turned on the wrist.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from edge_export.data.dataset import Dataset, Float32, Int64


@dataclass(frozen=True, slots=True, kw_only=True)
class Augmentation:
    """Largest differences of a drawn window from the recorded one. The default changes nothing.

    Attributes:
        triads: columns that form the three axes of one sensor, each turned by the same rotation.
        rotation_rad: standard deviation of the rotation about each axis.
        rates: columns that scale with the speed of a movement, such as angular velocity.
        speed: largest natural logarithm of the change of speed.
        gain: largest natural logarithm of the change of a triad's amplitude.
        noise: standard deviation, in each column's unit, of an offset per window and, independently, of white noise.
        mirror: factor per column that turns a left-hand movement into a right-hand one; empty for none.
        short_history: share of windows whose beginning is replaced by their first later sample, as at the start of
            a stream (`edge_export.data.dataset.cut_windows`).
        shortest: samples at the end that such a replacement never touches.
    """

    triads: tuple[tuple[int, int, int], ...] = ()
    rotation_rad: tuple[float, float, float] = (0.0, 0.0, 0.0)
    rates: tuple[int, ...] = ()
    speed: float = 0.0
    gain: float = 0.0
    noise: tuple[float, ...] = ()
    mirror: tuple[float, ...] = ()
    short_history: float = 0.0
    shortest: int = 1


class Sampler(Protocol):
    """Whatever training windows are drawn from."""

    def draw(self, count: int) -> tuple[Float32, Int64]:
        """Draw (count, n_channels, samples) windows and their (count,) class indices."""
        ...


class WindowSampler:
    """Draws augmented windows; every recording is equally likely, so long ones do not drown short ones.

    Args:
        dataset: recordings, each at least twice as long as a window at the highest speed, or it is slowed down.
        samples: window length.
        augmentation: what to vary.
        seed: of the sequence of draws.
    """

    def __init__(self, dataset: Dataset, *, samples: int, augmentation: Augmentation, seed: int) -> None:
        lengths = np.array([len(recording.values) for recording in dataset.recordings])
        self._values = np.concatenate([recording.values for recording in dataset.recordings])
        self._first = np.concatenate([[0], np.cumsum(lengths)[:-1]])
        self._lengths = lengths
        self._labels = np.array([recording.label for recording in dataset.recordings], np.int64)
        self._samples = samples
        self._augmentation = augmentation
        self._random = np.random.default_rng(seed)

    def draw(self, count: int) -> tuple[Float32, Int64]:
        """Draw windows.

        Args:
            count: how many.

        Returns:
            (count, n_channels, samples) float32 and (count,) class indices.
        """
        augmentation, random = self._augmentation, self._random
        which = random.integers(0, len(self._lengths), count)
        speed = np.exp(random.uniform(-augmentation.speed, augmentation.speed, count))
        # Two samples short of the recording, so that interpolation always finds a right neighbour.
        speed = np.minimum(speed, (self._lengths[which] - 2) / self._samples)
        x = self._at_speed(which, speed)
        if augmentation.rates:
            x[:, :, augmentation.rates] *= speed[:, None, None]
        for rotation in (rotations(random, count, augmentation.rotation_rad),) if augmentation.triads else ():
            for triad in augmentation.triads:
                x[:, :, triad] = x[:, :, triad] @ rotation
        if augmentation.mirror:
            factor = np.where(random.random((count, 1, 1)) < 0.5, np.array(augmentation.mirror), 1.0)
            x *= factor
        for triad in augmentation.triads:
            x[:, :, triad] *= np.exp(random.uniform(-augmentation.gain, augmentation.gain, (count, 1, 1)))
        if augmentation.noise:
            deviation = np.array(augmentation.noise)
            x += random.standard_normal((count, 1, x.shape[2])) * deviation
            x += random.standard_normal(x.shape) * deviation
        windows = np.ascontiguousarray(x.transpose(0, 2, 1), np.float32)
        if augmentation.short_history:
            self._shorten(windows)
        return windows, self._labels[which]

    def _at_speed(self, which: Int64, speed: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Windows at random places, `speed` recorded samples per sample, linearly interpolated."""
        room = self._lengths[which] - 2 - speed * (self._samples - 1)
        start = self._random.uniform(0, 1, len(which)) * room
        place = start[:, None] + speed[:, None] * np.arange(self._samples)
        left = place.astype(np.int64)
        share = (place - left)[:, :, None]
        rows = left + self._first[which][:, None]
        mixed: npt.NDArray[np.float64] = self._values[rows] * (1 - share) + self._values[rows + 1] * share
        return mixed

    def _shorten(self, windows: Float32) -> None:
        augmentation, random = self._augmentation, self._random
        short = np.flatnonzero(random.random(len(windows)) < augmentation.short_history)
        missing = random.integers(1, self._samples - augmentation.shortest + 1, len(short))
        for index, count in zip(short, missing, strict=True):
            windows[index, :, :count] = windows[index, :, count : count + 1]


def rotations(
    random: np.random.Generator, count: int, deviation_rad: tuple[float, float, float]
) -> npt.NDArray[np.float64]:
    """Random rotation matrices by Rodrigues' formula.

    Args:
        random: where chance comes from.
        count: how many.
        deviation_rad: standard deviation of the rotation about each axis.

    Returns:
        (count, 3, 3).
    """
    vector = random.standard_normal((count, 3)) * np.array(deviation_rad)
    angle = np.maximum(np.linalg.norm(vector, axis=1), 1e-9)[:, None, None]
    x, y, z = vector.T
    zero = np.zeros(count)
    cross = np.stack([zero, -z, y, z, zero, -x, -y, x, zero], 1).reshape(count, 3, 3)
    turned: npt.NDArray[np.float64] = (
        np.eye(3) + np.sin(angle) / angle * cross + (1 - np.cos(angle)) / angle**2 * (cross @ cross)
    )
    return turned
