"""Samples of one message, put together from single values: the last step of every codec that meets values one by one.

The rules:

1. Values of a key with the same stamp make one sample. A second value of a channel at that stamp begins another sample.
2. Values without a stamp are counted: the first of each channel make the first sample, the second ones the second.
3. Samples that bring the same channels make one reading, in the order of the message.
4. Without `partial`, each sample has to bring every channel.
5. Samples without a stamp follow the message's own stamp, one period after the other, where there is one. Else they
   are dated back from the arrival: the last one was taken as the message arrived.
6. With `partial`, a value that cannot be read is left out alone, and noted; a message with no other is refused.

A codec makes one `GatherRules` when it is loaded, and for each message a `Gather`: `Gather.add` for each value or row,
`Gather.add_block` for arrays, and `Gather.readings` at the end.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from edge_runtime.errors import InputError
from edge_runtime.io.codecs import Notice
from edge_runtime.io.codecs.numbers import MAX_SAMPLES, arrival, check_stamp, matrix
from edge_runtime.types import Float32, Float64, Reading

ADVICE = "set partial = true under [source.codec] if each message brings some of the channels"


@dataclass(frozen=True, slots=True, kw_only=True)
class GatherRules:
    """Fixed part of a `Gather`: the same for all messages of a codec."""

    names: tuple[str, ...]
    """Channels of the model in order, as errors should name them."""
    partial: bool = False
    """A sample may bring some of the channels."""
    max_samples: int = MAX_SAMPLES
    """Samples that a message may bring."""
    period_s: float = 0.0
    """Seconds between samples that the configuration states; 0: the model's."""
    arrival_period_s: float = 0.0
    """Seconds between samples without a stamp; 0: unknown."""
    notice: Notice | None = None
    """Receives values that are left out by rule 6; None: they refuse their message."""


class _Slot:
    """Samples of one key and stamp."""

    __slots__ = ("counts", "rows")

    def __init__(self) -> None:
        self.rows: list[dict[int, float]] = []
        self.counts: dict[int, int] = {}


class Gather:
    """Gathers the values of one message.

    Args:
        rules: the codec's rules.
    """

    def __init__(self, rules: GatherRules) -> None:
        self._rules = rules
        self._slots: dict[tuple[str, float | None], _Slot] = {}
        self._blocks: list[tuple[str, float | Float64 | None, Float32, tuple[int, ...] | None]] = []
        self._refused: list[InputError] = []
        self._samples = 0
        self._begin: float | None = None

    def begin(self, t: float) -> None:
        """Set the stamp of the first sample that has none of its own, in seconds (rule 5)."""
        self._begin = t

    def add(self, key: str, t: float | None, values: Mapping[int, float]) -> None:
        """Take values that belong together.

        Args:
            key: the values' key.
            t: their stamp in seconds; None where there is none.
            values: number by channel, counted in the model's order; at least one.

        Raises:
            InputError: ``bad_time``, ``too_large``.
        """
        slot = self._slots.get((key, t))
        if slot is None:
            slot = self._slots[key, None if t is None else check_stamp(t)] = _Slot()
        counts = slot.counts
        row = max([counts.get(channel, 0) for channel in values])  # rules 1 and 2
        while len(slot.rows) <= row:
            self._count(1)
            slot.rows.append({})
        slot.rows[row].update(values)
        for channel in values:
            counts[channel] = row + 1

    def add_block(
        self, key: str, t: float | Float64 | None, values: Float32, channels: tuple[int, ...] | None = None
    ) -> None:
        """Take an array of samples.

        Args:
            key: the samples' key.
            t: stamp of the first, or one for each, in seconds; None where there is none.
            values: (n_samples, n_channels) float32, finite, C-contiguous.
            channels: channel of each column; None: all of the model, in its order.

        Raises:
            InputError: ``too_large``; ``wrong_channels`` by rule 4.
        """
        self._count(len(values))
        if channels is not None:
            self._check_whole(channels)
        self._blocks.append((key, t, values, channels))

    def refuse(self, error: InputError) -> None:
        """Leave out a value that cannot be read (rule 6), or else refuse the message."""
        if not self._rules.partial or self._rules.notice is None:
            raise error
        self._refused.append(error)

    def readings(self, received: float) -> list[Reading]:
        """Return the readings; none where nothing was added.

        Args:
            received: wall-clock seconds of arrival.

        Raises:
            InputError: ``wrong_channels``, ``bad_time``, ``not_finite``; that of a value by rule 6.
        """
        rules = self._rules
        for error in self._refused:
            if rules.notice is None or not (self._slots or self._blocks):
                raise error
            rules.notice("values_refused", f"a value cannot be read, the others of its message are: {error}")
        readings: list[Reading] = []
        for (key, channels), (rows, times) in self._groups().items():
            values = matrix(rows, len(channels), rules.max_samples, scan=False)
            whole = len(channels) == len(rules.names)
            readings.append(self._reading(key, _times(times), values, None if whole else channels, received))
        readings += [self._reading(key, t, values, some, received) for key, t, values, some in self._blocks]
        return readings

    def _groups(self) -> dict[tuple[str, tuple[int, ...]], tuple[list[list[float]], list[float | None]]]:
        """Sort samples by key and channels (rule 3); rows and stamps of each."""
        groups: dict[tuple[str, tuple[int, ...]], tuple[list[list[float]], list[float | None]]] = {}
        for (key, t), slot in self._slots.items():
            stamp, step_s = (self._begin, self._rules.arrival_period_s) if t is None else (t, 0.0)  # rule 5
            for place, row in enumerate(slot.rows):
                channels = tuple(sorted(row))
                group = groups.get((key, channels))
                if group is None:
                    self._check_whole(channels)
                    group = groups[key, channels] = ([], [])
                group[0].append([row[channel] for channel in channels])
                group[1].append(None if stamp is None else stamp + place * step_s)
        return groups

    def _reading(
        self, key: str, t: float | Float64 | None, values: Float32, channels: tuple[int, ...] | None, received: float
    ) -> Reading:
        if t is None:
            t = arrival(received, len(values), self._rules.arrival_period_s)  # rule 5
        return Reading(key, t, values, self._rules.period_s, channels)

    def _check_whole(self, channels: tuple[int, ...]) -> None:
        """Refuse a sample that lacks a channel (rule 4)."""
        names = self._rules.names
        if not self._rules.partial and len(channels) < len(names):
            lacking = next(name for i, name in enumerate(names) if i not in channels)
            raise InputError("wrong_channels", f"a sample lacks {lacking}; {ADVICE}")

    def _count(self, samples: int) -> None:
        self._samples += samples
        if self._samples > self._rules.max_samples:
            raise InputError(
                "too_large", f"{self._samples} samples; at most {self._rules.max_samples} are allowed in a message"
            )


def _times(times: list[float | None]) -> float | Float64 | None:
    """Return one stamp, all stamps, or None where no sample has one."""
    dated = [t for t in times if t is not None]
    if not dated:
        return None
    if len(dated) < len(times):
        raise InputError("bad_time", "some samples of the message have a stamp and others none")
    return dated[0] if len(dated) == 1 else np.array(dated, np.float64)
