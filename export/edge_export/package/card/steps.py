"""Golden steps of a card: a piece of a recording, or one made within the ranges of the channels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from edge_export.data.dataset import Float32, spread
from edge_export.data.references import quantiles
from edge_export.package.card.spec import Card
from edge_export.package.card.targets import MeasuredRecordings
from edge_runtime.errors import ConfigError, InputError
from edge_runtime.io.recordings.layout import RecordingLayout
from edge_runtime.io.recordings.reader import iter_readings
from edge_runtime.io.recordings.wav import open_wav
from edge_runtime.manifest import InputContract, Reference
from edge_runtime.signal.intake.spectrum import LOWEST_HZ, NEAR, SPAN_S, measure_tops
from edge_runtime.signal.windowing.batch import with_context
from edge_runtime.signal.windowing.join import windower_of
from edge_runtime.signal.windowing.window import Window

STEPS = 8
"""Steps with an answer, at least, where the bytes allow them."""
MOST_BYTES = 2_000_000
"""Of golden inputs: a bundle is sent over the air."""


def needed(warm_up: int, contract: InputContract) -> int:
    """Return how many steps a chain is tried on: those that fill it, and some with an answer."""
    size = 4 * contract.window * len(contract.channels)
    return max(warm_up + 1, min(warm_up + STEPS, MOST_BYTES // size), 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Data:
    """Recordings.

    Attributes:
        recordings: for golden steps; none: they are made within the channels' ranges.
        normal: of normal data, whose scores set the threshold of an anomaly.
        measured: of a regression, with true values, which set its intervals.
        layout: where things stand in them.
    """

    recordings: Sequence[Path] = ()
    normal: Sequence[Path] = ()
    measured: MeasuredRecordings = field(default_factory=MeasuredRecordings)
    layout: RecordingLayout | None = None


def golden(card: Card, contract: InputContract, data: Data, steps: int, *, stream: bool) -> Float32:
    """Cut golden steps out of recordings, as the device cuts them; without any, make them.

    Args:
        card: the card.
        contract: what a step is.
        data: the recordings.
        steps: how many.
        stream: they must follow each other; the liveliest piece is taken. Else they are spread over all that there are.

    Returns:
        (at most `steps`, channels, samples).

    Raises:
        ConfigError: a file cannot be used, holds no step without a gap, or lies outside the card's ranges; or a channel
            has no range.
    """
    if not data.recordings:
        return _made(card, contract, steps)
    found = [window for file in data.recordings for window in windows_of(contract, file, data.layout)]
    if not found:
        raise ConfigError(
            f"{', '.join(map(str, data.recordings))}: not one step of {contract.window} samples at "
            f"{contract.rate_hz:g} Hz without a gap; give a longer recording, or look at the rate"
        )
    chosen = _liveliest(found, contract, steps) if stream else [found[i] for i in spread(len(found), steps).tolist()]
    windows = np.stack([with_context(window, contract.window) for window in chosen])
    _check_ranges(card, windows)
    return windows


def resampled(contract: InputContract, data: Data) -> tuple[str, ...]:
    """Return a line for each sound file of another rate than the card's: the card may state a rate not trained at.

    Raises:
        ConfigError: a file is no sound.
    """
    notes = []
    for file in data.recordings:
        if file.suffix.lower() != ".wav":
            continue
        with open_wav(file) as (header, _):
            if header.rate_hz != contract.rate_hz:
                notes.append(
                    f"{file} has {header.rate_hz:g} samples a second, resampled to the card's {contract.rate_hz:g}; "
                    "if the model was trained at another rate than the card's, correct signal"
                )
    return tuple(notes)


def sound_references(contract: InputContract, data: Data) -> tuple[tuple[Reference, ...], tuple[str, ...]]:
    """Measure how far up the sound of recordings reaches, and say so where it ends below half the card's rate.

    Returns:
        References of the channels in full scale; none where the signal is no sound, or shorter than a span.

    Raises:
        ConfigError: a file cannot be used.
    """
    if contract.rate_hz < LOWEST_HZ or contract.frame is not None:
        return (), ()
    found = [window for file in data.recordings for window in windows_of(contract, file, data.layout)]
    tops = measure_tops(((window.slot, window.samples) for window in found), contract)
    references, notes = [], []
    for column, channel in enumerate(contract.channels):
        if channel.unit != "1" or (top_hz := tops.get(channel.name)) is None:
            continue
        rows = np.concatenate([window.samples[-contract.hop :, column] for window in found])
        references.append(
            Reference(channels=(channel.name,), quantiles=quantiles(rows[:, None]), span_s=SPAN_S, top_hz=top_hz)
        )
        if top_hz < NEAR * contract.rate_hz / 2:
            notes.append(
                f"{channel.name} ends at about {top_hz:.0f} Hz in the recordings, and the card's rate has room for "
                f"{contract.rate_hz / 2:g}: if they were recorded at {2 * top_hz:.0f} samples a second and converted, "
                "give some at the model's rate, or correct signal"
            )
    return tuple(references), tuple(notes)


def windows_of(contract: InputContract, file: Path, layout: RecordingLayout | None, key: str = "") -> Iterator[Window]:
    """Cut a recording as the device cuts it.

    Raises:
        ConfigError: the file cannot be used.
    """
    windower = windower_of(contract)
    try:
        for reading in iter_readings(file, contract, layout, key=key):
            yield from windower.push([reading])
    except InputError as error:
        raise ConfigError(f"{file}: {error}") from error
    yield from windower.flush()


def _liveliest(found: Sequence[Window], contract: InputContract, steps: int) -> Sequence[Window]:
    """Return consecutive steps of one key whose values move most."""
    breaks = [
        i for i in range(1, len(found))
        if found[i].key != found[i - 1].key or found[i].slot != found[i - 1].slot + contract.hop
    ]  # fmt: skip
    moved = np.array([np.asarray(window.samples, np.float64).std(axis=0).sum() for window in found])
    best, most = (0, min(steps, len(found))), -1.0
    for begin, end in zip([0, *breaks], [*breaks, len(found)], strict=True):
        length = min(steps, end - begin)
        sums = np.convolve(moved[begin:end], np.ones(length), "valid")
        at = int(sums.argmax())
        if (length, sums[at]) > (best[1] - best[0] if most >= 0 else 0, most):
            best, most = (begin + at, begin + at + length), float(sums[at])
    return found[best[0] : best[1]]


def _check_ranges(card: Card, windows: Float32) -> None:
    for index, channel in enumerate(card.signal.channels):
        if channel.low is None or channel.high is None:
            continue
        low, high = float(windows[:, index].min()), float(windows[:, index].max())
        room = channel.high - channel.low
        if low < channel.low - 0.01 * room or high > channel.high + 0.01 * room:
            raise ConfigError(
                f"channel {channel.name!r} reaches from {low:g} to {high:g} in the recording, and the card says "
                f"{channel.low:g} to {channel.high:g} {channel.unit}; give it in that unit, or correct low and high"
            )


def _made(card: Card, contract: InputContract, steps: int) -> Float32:
    """Make golden steps from a fixed seed: silence, slow and fast movement, noise, both ends of the range."""
    for channel in card.signal.channels:
        if channel.low is None or channel.high is None:
            raise ConfigError(
                f"golden vectors need steps: give --recording FILE, or low and high of channel {channel.name!r}"
            )
    random = np.random.default_rng(20)
    channels, samples = len(card.signal.channels), steps * contract.window
    time = np.arange(samples) / contract.window
    phase = random.uniform(0, 2 * np.pi, (2, channels, 1))
    turn = (np.arange(samples) // contract.window) % 4
    shapes = [
        0.5 + 0.45 * np.sin(2 * np.pi * time / 3 + phase[0]),
        np.clip(random.normal(0.5, 0.15, (channels, samples)), 0, 1),
        0.5 + 0.4 * np.sin(2 * np.pi * 7 * time + phase[1]),
        random.uniform(0, 1, (channels, samples)),
    ]
    shares = np.choose(turn, [np.broadcast_to(one, (channels, samples)) for one in shapes])
    low = np.array([[channel.low] for channel in card.signal.channels], np.float64)
    high = np.array([[channel.high] for channel in card.signal.channels], np.float64)
    stream = (low + shares * (high - low)).astype(np.float32)
    return np.ascontiguousarray(stream.reshape(channels, steps, contract.window).transpose(1, 0, 2))
