"""Polyphase resampler of sound: from one sample rate to another, as samples come.

A windowed sinc (Kaiser) at the least common multiple of both rates, of which only the taps are computed that meet a
sample. With L / M = new rate / old rate in lowest terms, output k is::

    y[k] = sum over i of x[i] * h[k * M - i * L]      h symmetric, 2 * REACH * max(L, M) + 1 taps, sum L

so it lies at the very time of its stamp, k new periods behind the first sample: there is no delay in the stamps.

Measured from the taps (`tests/edge_runtime/base/media/test_resample.py`): beyond half the lower rate at most -96 dB; up
to .90 of it, at most .0002 dB from 1. 16-bit PCM itself has 98 dB. The last REACH samples of the lower rate wait for
those that follow: 4 ms at 16 kHz.

An output is one product and one sum over its own taps, never a matrix product, whose order of summation depends on its
shape. So every split of the samples into pieces gives the same bits.

Sources: Crochiere and Rabiner, Multirate Digital Signal Processing (1983), chapter 3; Kaiser's formulas for the window
as in Oppenheim and Schafer, Discrete-Time Signal Processing, 7.5.3.
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt

from edge_runtime.errors import ConfigError
from edge_runtime.types import Float32

REACH: Final = 64
"""Samples of the lower rate that the filter looks back, and ahead."""

STOP_DB: Final = 96.0
"""Attenuation beyond half the lower rate."""

LARGEST: Final = 1000
"""Largest L and M: 11,025 to 16,000 Hz takes 640 and 441."""

SLOWER: Final = 64
"""Largest old rate / new rate: the samples held for a stream grow with it."""

FASTER: Final = 16
"""Largest new rate / old rate."""

_PRODUCTS: Final = 2**15
"""Products computed together: 128 kB, which the allocator keeps at hand. Three times as many took up to ten times as
long, with fresh pages each time."""


def ratio(rate_hz: float, to_hz: float) -> Fraction:
    """Return new rate / old rate in lowest terms.

    Raises:
        ConfigError: it is no ratio of whole numbers up to `LARGEST`, or beyond `SLOWER` and `FASTER`.
    """
    found = Fraction(to_hz).limit_denominator(10**6) / Fraction(rate_hz).limit_denominator(10**6)
    if not 1 / SLOWER <= found <= FASTER:
        raise ConfigError(
            f"sound at {rate_hz:g} Hz cannot become {to_hz:g} Hz: at most {SLOWER} times fewer or {FASTER} times more "
            "samples are made; record at a rate nearer to the model's"
        )
    if max(found.numerator, found.denominator) > LARGEST:
        raise ConfigError(
            f"sound at {rate_hz:g} Hz cannot become {to_hz:g} Hz: the ratio in lowest terms, {found}, has a number "
            f"above {LARGEST}; record at a rate such as 8000, 11025, 16000, 22050, 44100 or 48000"
        )
    return found


def taps(up: int, down: int) -> npt.NDArray[np.float64]:
    """Return the filter at `up` times the old rate, the middle at ``REACH * max(up, down)``; its sum is `up`."""
    slower = max(up, down)
    reach = REACH * slower
    width = (STOP_DB - 7.95) / (14.36 * 2 * reach)  # of the transition, in cycles per tap
    edge = 0.5 / slower - width / 2  # the stop band begins at half the lower rate
    at = np.arange(-reach, reach + 1)
    shape = np.sinc(2 * edge * at) * np.kaiser(len(at), 0.1102 * (STOP_DB - 8.7))
    return np.asarray(shape * (up / shape.sum()), np.float64)


@lru_cache(maxsize=8)
def _phases(up: int, down: int) -> tuple[Float32, int]:
    """Taps by phase, (up, samples), and how many samples before and behind its own an output takes."""
    reach = REACH * max(up, down)
    beside = -(-reach // up)
    offsets = np.arange(up)[:, None] - np.arange(-beside, beside + 2)[None, :] * up
    filter_ = taps(up, down)
    inside = np.abs(offsets) <= reach
    phases = np.where(inside, filter_[np.clip(offsets + reach, 0, 2 * reach)], 0.0)
    return phases.astype(np.float32), beside


class Resampler:
    """One stream of sound at another rate. Silence is laid before its first sample.

    Args:
        rate_hz: samples a second that come.
        to_hz: samples a second that are wanted.
        channels: columns of the samples.

    Raises:
        ConfigError: see `ratio`.
    """

    def __init__(self, rate_hz: float, to_hz: float, channels: int = 1) -> None:
        exact = ratio(rate_hz, to_hz)
        self._up, self._down = exact.numerator, exact.denominator
        self._same = self._up == self._down
        self._phases, self._beside = (np.ones((1, 1), np.float32), 0) if self._same else _phases(self._up, self._down)
        self._channels = channels
        self.reset()

    def reset(self) -> None:
        """Begin with another stream."""
        self.taken = 0
        """Samples that came."""
        self.given = 0
        """Samples that were returned."""
        self._held: Float32 = np.zeros((self._beside, self._channels), np.float32)
        self._first = -self._beside  # number of the sample that `_held` begins with

    def push(self, samples: Float32) -> Float32:
        """Take samples, (n, channels); return those that they determine, (m, channels), often none."""
        self.taken += len(samples)
        if self._same:
            self.given += len(samples)
            return samples
        self._held = np.concatenate((self._held, samples))
        # Output k needs the samples up to number (k * down) // up + beside + 1.
        return self._give(-(-(self.taken - self._beside - 1) * self._up // self._down))

    def finish(self) -> Float32:
        """Return what is left, up to the last sample's period, as if silence followed; then begin with another one."""
        until = -(-self.taken * self._up // self._down)
        if not self._same:
            self._held = np.concatenate((self._held, np.zeros((self._beside + 2, self._channels), np.float32)))
        left = self._give(until) if until > self.given else np.empty((0, self._channels), np.float32)
        self.reset()
        return left

    def _give(self, until: int) -> Float32:
        """Return the outputs up to number `until`, and drop the samples that none needs any more."""
        begin = self.given
        if until <= begin:
            return np.empty((0, self._channels), np.float32)
        out = np.empty((until - begin, self._channels), np.float32)
        step = max(1, _PRODUCTS // self._phases.shape[1])
        for column in range(self._channels):
            held = np.ascontiguousarray(self._held[:, column])
            for at in range(begin, until, step):
                end = min(until, at + step)
                out[at - begin : end - begin, column] = self._outputs(held, at, end)
        self.given = until
        done = (until * self._down) // self._up - self._beside - self._first
        self._held, self._first = self._held[done:].copy(), self._first + done
        return out

    def _outputs(self, held: Float32, begin: int, end: int) -> Float32:
        """Compute the outputs `begin` to `end` of one channel."""
        places = np.arange(begin, end, dtype=np.int64) * self._down
        starts, phases = places // self._up - self._beside - self._first, places % self._up
        windows = np.lib.stride_tricks.sliding_window_view(held, self._phases.shape[1])
        if self._up == 1:
            products = windows[starts[0] : starts[-1] + 1 : self._down] * self._phases
        else:
            products = windows[starts]  # a copy, since they are picked by number
            products *= self._phases[phases]
        return np.asarray(products.sum(axis=1), np.float32)
