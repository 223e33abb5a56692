"""Training windows drawn at random places of recordings on the model's own grid, class by class, and varied.

Recordings pass through `edge_runtime.signal.windowing.window` first, so a window drawn for training has the resampling,
the gaps and the grid that a device would give it. A class is drawn as often as the balance says, whatever its share of
the recordings.

A stretch has a place at every sample, so a long stream has a hop's worth of places for each window that a device would
cut from it. A stretch of one window alone, as people label them, has one place; it counts as a hop's worth all the
same, or a reviewed window would weigh a fiftieth of a recorded one. Recordings may state the share of the draws that
they take together (`edge_export.data.dataset.Recording.share`); it holds before classes are balanced.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
import numpy.typing as npt

from edge_export.data.dataset import UNLABELLED, Dataset, Float32, Int64, Recording
from edge_export.data.labels import Rule, cut, stamps
from edge_export.recipe.augmentation import Augmentation
from edge_runtime.errors import ConfigError
from edge_runtime.manifest import InputContract

_BLOCK = 16
"""Samples of the pieces that recordings are put on the grid by; what is left at the end of a segment is not used,
unless the segment would then be shorter than a window."""

GRAIN = 128
"""Samples from one grain of another tempo to the next; each fades in and out over two of them."""


class PlaceSampler:
    """Draws labelled windows, each with the history before it.

    Args:
        dataset: recordings of the groups to train on.
        contract: what a window is.
        rule: the sample that names a window, see `edge_export.data.labels`.
        variation: largest changes; those of `corruptions` are left to it.
        balance: ``classes`` draws every class as often, ``none`` as often as it occurs, ``root`` in between (by the
            square root of its share).
        seed: the seed of the sequence of draws.

    Raises:
        ConfigError: a class has no place where a window fits.
    """

    def __init__(
        self,
        dataset: Dataset,
        contract: InputContract,
        *,
        rule: Rule = "centre",
        variation: Augmentation | None = None,
        balance: Literal["classes", "root", "none"] = "root",
        seed: int = 0,
    ) -> None:
        self._samples = contract.window
        self._history = contract.history
        self._variation = variation or Augmentation()
        self._channels = contract.channels
        self._random = np.random.default_rng(seed)
        pieces: list[Float32] = []
        owners: list[Int64] = []
        places: list[Int64] = []
        labels: list[Int64] = []
        bounds: list[Int64] = []
        counted: list[npt.NDArray[np.float64]] = []
        stated: list[npt.NDArray[np.float64]] = []
        rows = 0
        for number, recording in enumerate(dataset.recordings):
            for values, marks in on_grid(recording, dataset.rate_hz, contract):
                starts = np.arange(len(values) - self._samples + 1)
                pieces.append(values)
                places.append(rows + starts)
                owners.append(np.full(len(starts), number))
                labels.append(_labels(marks, self._samples, rule))
                bounds.append(np.tile((rows, rows + len(values) - 1), (len(starts), 1)))
                counted.append(np.full(len(starts), max(1.0, contract.hop / len(starts))))
                stated.append(np.full(len(starts), recording.share))
                rows += len(values)
        all_labels = np.concatenate(labels) if labels else np.zeros(0, np.int64)
        self._values = np.concatenate(pieces) if pieces else np.zeros((0, len(dataset.channels)), np.float32)
        self._starts = np.concatenate(places) if places else np.zeros(0, np.int64)
        self._owners = np.concatenate(owners) if owners else np.zeros(0, np.int64)
        self._bounds = np.concatenate(bounds) if bounds else np.zeros((0, 2), np.int64)
        self._of_class = [np.flatnonzero(all_labels == label) for label in range(len(dataset.classes))]
        all_weights = _shared(np.concatenate(counted), np.concatenate(stated)) if counted else np.zeros(0)
        self._up_to = [np.cumsum(all_weights[of_class]) for of_class in self._of_class]
        power = {"classes": 0.0, "root": 0.5, "none": 1.0}[balance]
        weights = _totals(self._up_to, dataset.classes) ** power
        self._share = weights / weights.sum()

    def draw(self, count: int) -> tuple[Float32, Int64]:
        """Draw windows.

        Args:
            count: how many.

        Returns:
            (count, n_channels, history) float32, the window being its end, and (count,) class indices. What lies
            before the start of a segment repeats its first sample, as on the device.
        """
        x, y, _ = self.draw_known(count)
        return x, y

    def draw_known(self, count: int) -> tuple[Float32, Int64, Int64]:
        """Draw the same, and say which recording of the data set each window is of, (count,)."""
        variation, random = self._variation, self._random
        y = random.choice(len(self._share), count, p=self._share).astype(np.int64)
        chance = random.random(count)
        chosen = np.array([self._place(label, at) for label, at in zip(y.tolist(), chance.tolist(), strict=True)])
        speed = np.exp(random.uniform(-variation.speed, variation.speed, count)) if variation.speed else np.ones(count)
        x = self._in_grains(chosen, speed) if variation.tempo else self._gather(chosen, speed)
        if variation.rates:
            x[:, :, self._columns(variation.rates)] *= speed[:, None, None]
        if variation.triads and variation.rotation_deg:
            rotation = rotations(random, count, (float(np.deg2rad(variation.rotation_deg)),) * 3)
            for triad in map(self._columns, variation.triads):
                x[:, :, triad] = x[:, :, triad] @ rotation
        if variation.mirror:
            x *= np.where(random.random((count, 1, 1)) < 0.5, np.array(variation.mirror), 1.0)
        if variation.gain:
            x *= np.exp(random.uniform(-variation.gain, variation.gain, (count, 1, 1)))
        if variation.noise:
            deviation = np.array(variation.noise)
            x += random.standard_normal((count, 1, x.shape[2])) * deviation
            x += random.standard_normal(x.shape) * deviation
        if variation.channel_dropout:
            x *= random.random((count, 1, x.shape[2])) >= variation.channel_dropout
        if variation.shift:
            self._shift(x)
        return np.ascontiguousarray(x.transpose(0, 2, 1), np.float32), y, self._owners[chosen]

    def _columns(self, names: Sequence[str]) -> list[int]:
        """Return the columns of channels."""
        known = [channel.name for channel in self._channels]
        return list(map(known.index, names))

    def _place(self, label: int, at: float) -> int:
        """Return the place of a class at a share of the sum of its weights."""
        up_to = self._up_to[label]
        return int(self._of_class[label][np.searchsorted(up_to, at * up_to[-1], side="right")])

    def _gather(self, chosen: Int64, speed: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Windows with their history, stretched in time about the window's middle."""
        return self._interpolated(chosen, speed, speed[:, None] * self._offset())

    def _in_grains(self, chosen: Int64, speed: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Gather the same in grains whose middles are stretched by another factor than what is in them.

        Source: overlap and add without synchronisation, Roucos and Wilgus 1985, "High quality time-scale modification
        for speech", ICASSP; whose synchronised grains keep voices smooth, which features of short frames do not need.
        """
        variation = self._variation
        tempo = speed * np.exp(self._random.uniform(-variation.tempo, variation.tempo, len(chosen)))
        offset = self._offset()
        first = np.floor(offset / GRAIN) * GRAIN

        def grains(middle: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
            weight = 0.5 + 0.5 * np.cos(np.pi * (offset - middle) / GRAIN)
            place = tempo[:, None] * middle + speed[:, None] * (offset - middle)
            faded: npt.NDArray[np.float64] = self._interpolated(chosen, speed, place) * weight[:, None]
            return faded

        return grains(first) + grains(first + GRAIN)

    def _offset(self) -> npt.NDArray[np.float64]:
        """Count samples from the window's middle, (history,)."""
        return np.arange(self._history, dtype=np.float64) - (self._history - (self._samples + 1) / 2)

    def _interpolated(
        self, chosen: Int64, speed: npt.NDArray[np.float64], offset: npt.NDArray[np.float64]
    ) -> npt.NDArray[np.float64]:
        """Interpolate samples at offsets from the middles of windows, (n, history, n_channels), linearly."""
        place = self._starts[chosen][:, None] + (self._samples - 1) / 2 + offset
        place = np.clip(place, self._bounds[chosen, :1], self._bounds[chosen, 1:])
        if (speed == 1.0).all() and self._samples % 2 and not self._variation.tempo:
            exact: npt.NDArray[np.float64] = self._values[place.astype(np.int64)].astype(np.float64)
            return exact
        left = np.minimum(np.floor(place + 1e-9).astype(np.int64), self._bounds[chosen, 1:])
        right = np.minimum(left + 1, self._bounds[chosen, 1:])
        share = np.clip(place - left, 0.0, 1.0)[:, :, None]
        mixed: npt.NDArray[np.float64] = self._values[left] * (1 - share) + self._values[right] * share
        return mixed

    def _shift(self, x: npt.NDArray[np.float64]) -> None:
        most = int(self._variation.shift * self._samples)
        for row, by in zip(x, self._random.integers(-most, most + 1, len(x)).tolist(), strict=True):
            row[:] = np.roll(row, by, axis=0)
            row[:by] = 0.0 if by > 0 else row[:by]
            if by < 0:
                row[by:] = 0.0


def _totals(up_to: Sequence[npt.NDArray[np.float64]], classes: Sequence[str]) -> npt.NDArray[np.float64]:
    """Return the sum of each class's weights, the last of its sums so far; refuse a class without a place."""
    for name, sums in zip(classes, up_to, strict=True):
        if not len(sums):
            raise ConfigError(f"class {name!r} has no place where a window fits")
    return np.array([sums[-1] for sums in up_to])


def _shared(weights: npt.NDArray[np.float64], shares: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Scale the weights of places that state a share, so that they have it of the sum of all."""
    stated = shares > 0
    if not stated.any() or stated.all():
        return weights
    share = shares.max()
    scale = share / (1 - share) * weights[~stated].sum() / weights[stated].sum()
    return np.where(stated, weights * scale, weights)


def on_grid(recording: Recording, rate_hz: float, contract: InputContract) -> list[tuple[Float32, Int64]]:
    """Bring a recording to the model's grid, cut at its gaps.

    Args:
        recording: a recording, with or without stamps of its own.
        rate_hz: samples per second of recordings without.
        contract: rate, resampling and gaps.

    Returns:
        Values (n, n_channels) and labels (n,) of each stretch that is at least a window long.
    """
    # A clip of a window's length must not lose its end.
    whole = math.gcd(_BLOCK, contract.window)
    return _stretches(recording, rate_hz, contract, _BLOCK) or _stretches(recording, rate_hz, contract, whole)


def _stretches(recording: Recording, rate_hz: float, contract: InputContract, size: int) -> list[tuple[Float32, Int64]]:
    """Bring a recording to the grid in pieces of `size` samples."""
    t = stamps(recording, rate_hz)
    blocks = cut(replace(contract, window=size, hop=size, context=0), recording, t)
    stretches: list[tuple[Float32, Int64]] = []
    begin = 0
    for index in range(1, len(blocks) + 1):
        if index < len(blocks) and blocks[index].slot == blocks[index - 1].slot + size:
            continue
        values = np.concatenate([block.samples for block in blocks[begin:index]])
        if len(values) >= contract.window:
            stretches.append((values, _marks(recording, t, blocks[begin].start, len(values), contract.rate_hz)))
        begin = index
    return stretches


def _marks(recording: Recording, t: npt.NDArray[np.float64], first: float, samples: int, rate_hz: float) -> Int64:
    """Labels of grid points: those of the recorded samples nearest in time."""
    if recording.marks is None:
        return np.full(samples, recording.label, np.int64)
    at = first + np.arange(samples) / rate_hz
    right = np.clip(np.searchsorted(t, at), 1, max(1, len(t) - 1))
    right = np.minimum(right, len(t) - 1)
    left = np.maximum(right - 1, 0)
    nearest = np.where(at - t[left] <= t[right] - at, left, right)
    marks: Int64 = recording.marks[nearest]
    return marks


def _labels(marks: Int64, samples: int, rule: Rule) -> Int64:
    """Label of the window that starts at each grid point."""
    count = len(marks) - samples + 1
    if rule == "end":
        return marks[samples - 1 :]
    if rule == "centre":
        return marks[samples // 2 : samples // 2 + count]
    most = np.full(count, UNLABELLED, np.int64)
    best = np.zeros(count, np.int64)
    for label in range(int(marks.max(initial=-1)) + 1):
        total = np.concatenate(([0], np.cumsum(marks == label)))
        own = total[samples:] - total[:-samples]
        most[own > best] = label
        best = np.maximum(best, own)
    return most


def rotations(
    random: np.random.Generator, count: int, deviation_rad: tuple[float, float, float]
) -> npt.NDArray[np.float64]:
    """Random rotation matrices by Rodrigues' formula.

    Args:
        random: the source of chance.
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
