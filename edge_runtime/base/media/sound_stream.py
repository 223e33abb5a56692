"""Stream of sound as it comes in pieces: at the model's rate, with stamps that count samples.

Stamps by arrival would jitter by milliseconds, which is tens of samples. So a *sample clock* counts, and is held
against the time at which each piece was taken: its stamp, if it brings one, or else its arrival.

1. The first piece is taken at its time. The next ones follow by count: a piece's first sample comes one period behind
   the last of the piece before.
2. The *lag* of a piece is its time minus its place by count. Up to `drift_s` either way it is jitter, and changes
   nothing.
3. Where all pieces of `settle_s` have a larger lag, all of one sign, the clock moves by the least of them: samples were
   lost, or the sender's clock is off. A burst behind a stalled network has a lag that falls again, and moves nothing.
4. A lag above `STALL_S` moves the clock at once.
5. A known loss moves the clock by the samples lost.
6. The clock moves by whole samples of the model's rate, so that grid points stay where they were. What comes behind a
   move is filtered as a stream of its own: no filter reaches over samples that are missing.
"""

from __future__ import annotations

import math
from typing import Final

from edge_runtime.base.media.resample import Resampler
from edge_runtime.types import Float32

STALL_S: Final = 5.0
"""Largest lag that is waited for."""

Piece = tuple[float, Float32]
"""Stamp of the first sample, seconds, and samples, (n, channels), at the model's rate."""


class SoundStream:
    """One key's sound.

    Args:
        rate_hz: samples a second that come.
        to_hz: samples a second of the model.
        channels: columns of the samples.
        settle_s: see rule 3; 0 moves the clock at once.

    Raises:
        ConfigError: the rates do not fit, see `edge_runtime.base.media.resample.ratio`.
    """

    def __init__(self, rate_hz: float, to_hz: float, channels: int, settle_s: float) -> None:
        self._resampler = Resampler(rate_hz, to_hz, channels)
        self.rate_hz = rate_hz
        self._to_hz = to_hz
        self._settle_s = settle_s
        self._origin = math.nan
        self._forgot = False
        self._offset = 0  # samples of the model's rate from the origin to the stream's first
        self._off_since = math.nan
        self._least = 0.0  # lag since then

    @property
    def next_t(self) -> float:
        """Stamp by count of the sample that comes next, seconds; NaN before the first."""
        return self._origin + self._offset / self._to_hz + self._resampler.taken / self.rate_hz

    def forget(self) -> None:
        """Move the clock to the time of the next piece: what was lost is not known."""
        self._forgot = True

    def push(self, samples: Float32, t: float, drift_s: float, *, lost: int = 0) -> list[Piece]:
        """Push a piece.

        Args:
            samples: (n, channels), at least one.
            t: time of its first sample, seconds: its stamp, or by its arrival.
            drift_s: see rule 2.
            lost: samples that are known to be missing before it.

        Returns:
            What is determined now: none, one, or two pieces where the clock has moved. Stamps that were NaN stay so.
        """
        pieces: list[Piece] = []
        if math.isnan(self._origin):  # rule 1
            self._origin, self._forgot = t, False
        elif moved := self._move(t, drift_s, lost):
            taken = self._resampler.taken / self.rate_hz
            self._rest(pieces)
            self._offset += round((taken + moved) * self._to_hz)  # rule 6
        given = self._resampler.given
        self._append(pieces, given, self._resampler.push(samples))
        return pieces

    def _move(self, t: float, drift_s: float, lost: int) -> float:
        """Return by how many seconds the clock moves."""
        if self._forgot:
            self._forgot, self._off_since = False, math.nan
            return t - self.next_t
        moved = lost / self.rate_hz  # rule 5
        lag = t - self.next_t - moved
        if not abs(lag) > drift_s:  # rule 2; nor NaN
            self._off_since = math.nan
            return moved
        if not self._off_since <= t + STALL_S or self._least * lag < 0:  # the first of its sign
            self._off_since, self._least = t, lag
        self._least = min(self._least, lag, key=abs)
        if abs(lag) <= STALL_S and t - self._off_since < self._settle_s:  # rule 3
            return moved
        moved += lag if abs(lag) > STALL_S else self._least  # rules 4 and 3
        self._off_since = math.nan
        return moved

    def _rest(self, pieces: list[Piece]) -> None:
        """Append what the stream so far still holds."""
        given = self._resampler.given
        self._append(pieces, given, self._resampler.finish())

    def _append(self, pieces: list[Piece], given: int, samples: Float32) -> None:
        if len(samples):
            pieces.append((self._origin + (self._offset + given) / self._to_hz, samples))
