"""Spectrum check: how far up the sound of a key reaches, beside that of the training data.

Sound that was recorded at a lower rate and converted fits its header, its clock and its level, and has nothing above
half the rate that it came from: a telephone's microphone at 16 kHz, or a sound card that converts on its own. A model
that was trained on the whole band is sure of its answers all the same.

1. A *span* of `SPAN_S` has `FRAMES` frames. Their mean power in `BANDS` bands of equal width, up to half the rate, is
   looked at; silence to the last bit says nothing.
2. The sound *ends* at a band if all bands above it have `EMPTY` times less power than the two below it. What has no end
   reaches half the rate. Sound that fades slowly, a single tone, and rumble have none: there is no step.
3. The check fails if it ends below `NEAR` of where the training data do. Then each span is looked at, else one in
   1 + `REST`.

What was played back or counted at a wrong rate has no such end, so it is not noticed here:
`edge_runtime.signal.intake.rate` and the PCM codec count samples against the clock. Measured: docs/sound.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np

from edge_runtime.manifest import InputContract, Reference
from edge_runtime.signal.windowing.window import Window
from edge_runtime.types import Float32, Float64

SPAN_S: Final = 10.0
FRAMES: Final = 32

REST: Final = 4
"""Spans of rest: a microphone that is exchanged is noticed within 60 s."""

BANDS: Final = 32
LOWEST_BAND: Final = 5
"""Below a sixth of the band, hum and rumble end steeply on their own."""
HIGHEST_BAND: Final = 26
"""Above, filters of right recordings begin to close."""

EMPTY: Final = 10**2.5
"""25 dB. Of right recordings the steepest 10 s have 24 dB; of 100 converted ones, 96 and more have 25 dB."""

NEAR: Final = 0.8

LOWEST_HZ: Final = 4000.0
"""Rates from which on samples are taken for sound or vibration, whose band matters."""

_SIZES: Final = (512, 256)
"""Samples of a frame; the first that a window holds."""


class BandLimit(NamedTuple):
    """Channel whose sound ends below that of the training data."""

    channel: str
    ends_hz: float
    usual_hz: float


class KeySpectrum:
    """State of one key: the power of the current span."""

    __slots__ = ("due", "power", "taken")

    def __init__(self) -> None:
        self.due: float = -math.inf
        """Slot from which windows are looked at."""
        self.power: Float64 | None = None
        """(`BANDS`, channels): sum over `taken` frames; None before the first."""
        self.taken = 0


class TopMeter:
    """Measures how far up sound reaches, span by span.

    Args:
        contract: channels and windows.
        columns: channels that are measured.
    """

    def __init__(self, contract: InputContract, columns: Sequence[int]) -> None:
        self._columns = list(columns)
        self._half_hz = contract.rate_hz / 2
        size = next((size for size in _SIZES if size <= contract.window), 0)
        self.works = bool(size) and contract.rate_hz >= LOWEST_HZ and contract.frame is None
        """False where windows are too short, too slow, or pictures."""
        self._size = size
        self._shape = np.hanning(size).astype(np.float32)[:, None]
        self.span = round(SPAN_S * contract.rate_hz)
        """Samples of a span."""
        self._stride = self.span // FRAMES
        self._window, self._hop = contract.window, contract.hop

    def measure(self, key: KeySpectrum, slot: int, samples: Float32) -> list[float] | None:
        """Measure a window of a key, in order.

        Returns:
            Where each channel's sound ends, Hz, if the window completes a span; 0 where it is silent. Else None.
        """
        if key.power is None:
            key.power, key.taken = np.zeros((BANDS, len(self._columns))), 0
        # Frames by the number of their last sample, so that it does not matter how windows overlap.
        end = ((slot + self._window - self._hop) // self._stride + 1) * self._stride
        while end <= slot + self._window:
            at = max(end - slot, self._size)
            key.power += self._bands(samples[at - self._size : at, self._columns])
            key.taken += 1
            end += self._stride
        key.due = end - self._window
        if key.taken < FRAMES:
            return None
        tops = [_top(power) * self._half_hz for power in key.power.T]
        key.power = None
        return tops

    def _bands(self, frame: Float32) -> Float64:
        spectrum = np.fft.rfft(frame * self._shape, axis=0)[1:]
        power: Float64 = spectrum.real**2 + spectrum.imag**2
        return np.asarray(power.reshape(BANDS, -1, power.shape[1]).mean(axis=1), np.float64)


def _top(power: Float64) -> float:
    """Return where sound ends, as a share of the band (rule 2); 1 where it has no end, 0 for silence."""
    if not power.any():
        return 0.0
    ends, steepest = float(BANDS), EMPTY
    for band in range(LOWEST_BAND, HIGHEST_BAND + 1):
        below, above = float(power[band - 2 : band].mean()), float(power[band + 1 :].max())
        step = below / above if above else math.inf if below else 0.0
        if step > steepest:
            ends, steepest = band + 0.5, step
    return ends / BANDS


def measure_tops(windows: Iterable[tuple[int, Float32]], contract: InputContract) -> dict[str, float]:
    """Measure how far up the sound of recordings reaches: where the lowest of 20 spans ends.

    Args:
        windows: slot and samples (window, channels), recording by recording.
        contract: their channels and rate.

    Returns:
        Hz by channel, those with sound; empty where windows are no sound.
    """
    columns = [i for i, channel in enumerate(contract.channels) if not channel.mask_of]
    meter = TopMeter(contract, columns)
    spans = list(_spans(meter, windows, contract.hop)) if meter.works else []
    known = {
        contract.channels[column].name: [top for top in tops if top]
        for column, tops in zip(columns, zip(*spans, strict=True), strict=False)
    }
    return {name: float(np.quantile(tops, 0.05, method="lower")) for name, tops in known.items() if tops}


def _spans(meter: TopMeter, windows: Iterable[tuple[int, Float32]], hop: int) -> Iterator[list[float]]:
    key, seen = KeySpectrum(), -1
    for slot, samples in windows:
        if slot >= key.due or slot != seen + hop:  # another recording begins at a slot of its own
            tops = meter.measure(key, slot, samples)
            if tops is not None:
                yield tops
        seen = slot


class SpectrumCheck:
    """References of a bundle that say how far up sound reaches.

    Args:
        contract: channels and windows.
        references: the training data's references.
    """

    def __init__(self, contract: InputContract, references: Sequence[Reference]) -> None:
        names = [channel.name for channel in contract.channels]
        self._usual = [(one.channels[0], one.top_hz) for one in references if one.top_hz is not None]
        self._meter = TopMeter(contract, [names.index(name) for name, _ in self._usual])
        self.works = bool(self._usual) and self._meter.works

    def run(self, key: KeySpectrum, window: Window) -> tuple[BandLimit, ...] | None:
        """Check a window of a key, in order; return what ends too low if it completes a span, else None."""
        tops = self._meter.measure(key, window.slot, window.samples)
        if tops is None or not any(tops):
            return None
        cuts = tuple(
            BandLimit(name, top, usual)
            for (name, usual), top in zip(self._usual, tops, strict=True)
            if 0 < top < NEAR * usual
        )
        if not cuts:
            key.due = window.slot + REST * self._meter.span  # rule 3
        return cuts
