"""Golden windows of a model that has no training data here: from a recording, or seeded within the card's ranges."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from edge_export.card.spec import Card, layout_of
from edge_export.data.dataset import Float32, spread
from edge_runtime.errors import ConfigError, InputError
from edge_runtime.io.recordings.layout import RecordingLayout
from edge_runtime.io.recordings.reader import iter_readings
from edge_runtime.signal.windowing.batch import with_context
from edge_runtime.signal.windowing.join import windower_of

WINDOWS = 8


def recorded_windows(card: Card, files: Sequence[Path], layout: RecordingLayout | None = None) -> Float32:
    """Windows of recordings, cut as the device cuts them, spread over all that there are.

    Args:
        card: what a window is.
        files: JSONL, CSV, Parquet or NPZ, as ``edge-runtime replay`` plays them.
        layout: where things stand in them.

    Returns:
        (at most `WINDOWS`, channels, samples), in physical units.

    Raises:
        ConfigError: a file cannot be used, or there is not one window in them; or values lie outside the card's ranges.
    """
    contract = card.input.contract()
    found = [window for file in files for window in windows_of(card, file, layout)]
    if not found:
        raise ConfigError(
            f"{', '.join(map(str, files))}: not one window of {contract.window} samples at {contract.rate_hz:g} Hz "
            "without a gap; give a longer recording, or look at the rate and max_gap_s"
        )
    windows = np.stack([found[i] for i in spread(len(found), WINDOWS).tolist()])
    _check_units(card, windows)
    return windows


def windows_of(card: Card, file: Path, layout: RecordingLayout | None = None) -> list[Float32]:
    """Cut one recording as the device cuts it.

    Args:
        card: what a window is.
        file: the recording.
        layout: where things stand in it.

    Returns:
        All windows in order, each (channels, samples) in physical units.

    Raises:
        ConfigError: the file cannot be used.
    """
    contract = card.input.contract()
    windower, found = windower_of(contract), list[Float32]()
    try:
        for reading in iter_readings(file, contract, layout):
            found += [with_context(window, contract.window) for window in windower.push([reading])]
    except InputError as error:
        raise ConfigError(f"{file}: {error}") from error
    return found + [with_context(window, contract.window) for window in windower.flush()]


def given_to_model(card: Card, windows: Float32, shape: Sequence[int], file: str) -> Float32:
    """Bring windows to what the model's own file takes: scaled, and in the order of its axes.

    Args:
        card: says both.
        windows: (n, channels, samples) in physical units.
        shape: of the model's input; -1 for an open size.
        file: named in errors.

    Returns:
        (n, 1, *sizes of the input behind its batch).

    Raises:
        ConfigError: the shape does not fit the card.
    """
    layout = layout_of(shape[1:], card.input, file)
    offset = np.array([[channel.offset] for channel in card.input.channels], np.float32)
    scale = np.array([[channel.scale] for channel in card.input.channels], np.float32)
    own = (windows - offset) * scale
    own = own if layout == "NCW" else own.transpose(0, 2, 1)
    return np.ascontiguousarray(own.reshape(len(own), 1, *_sizes(shape[1:], own)), np.float32)


def _sizes(shape: Sequence[int], windows: Float32) -> list[int]:
    """Sizes of an input, those that it leaves open by what the windows have."""
    if -1 not in shape:
        return list(shape)
    return list(windows.shape[1:]) if len(shape) != 1 else [windows[0].size]


def _check_units(card: Card, windows: Float32) -> None:
    """Refuse a recording in another unit than the card's, which shows in its range."""
    for index, channel in enumerate(card.input.channels):
        if channel.low is None or channel.high is None:
            continue
        low, high = float(windows[:, index].min()), float(windows[:, index].max())
        room = channel.high - channel.low
        if low < channel.low - room or high > channel.high + room:
            raise ConfigError(
                f"channel {channel.name!r} reaches from {low:g} to {high:g} in the recording; the card says "
                f"{channel.low:g} to {channel.high:g} {channel.unit}: is it in another unit?"
            )


def seeded_windows(card: Card) -> Float32:
    """Windows from a fixed seed, within each channel's range: still, at both ends, noise, slow and fast movement.

    Returns:
        (`WINDOWS`, channels, samples), in physical units.

    Raises:
        ConfigError: a channel has no range.
    """
    for channel in card.input.channels:
        if channel.low is None or channel.high is None:
            raise ConfigError(
                f"golden vectors need windows: give --recording FILE, or low and high of channel {channel.name!r}"
            )
    samples, channels = card.input.window, len(card.input.channels)
    random = np.random.default_rng(20)
    phase = random.uniform(0, 2 * np.pi, (2, channels, 1))
    time = np.arange(samples) / samples
    shares = [
        np.full((channels, samples), 0.5),
        np.zeros((channels, samples)),
        np.ones((channels, samples)),
        random.uniform(0, 1, (channels, samples)),
        np.clip(random.normal(0.5, 0.15, (channels, samples)), 0, 1),
        0.5 + 0.5 * np.sin(2 * np.pi * time + phase[0]),
        0.5 + 0.5 * np.sin(2 * np.pi * 7 * time + phase[1]),
        _walk(random.normal(0, 1, (channels, samples))),
    ]
    low = np.array([[channel.low] for channel in card.input.channels], np.float64)
    high = np.array([[channel.high] for channel in card.input.channels], np.float64)
    return np.stack([low + share * (high - low) for share in shares]).astype(np.float32)


def _walk(steps: np.ndarray) -> np.ndarray:
    """Walk at random from the lower end of the range to the upper one."""
    walk = np.cumsum(steps, axis=1)
    low, high = walk.min(axis=1, keepdims=True), walk.max(axis=1, keepdims=True)
    return np.asarray((walk - low) / np.maximum(high - low, 1e-12))
