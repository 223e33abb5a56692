"""Coarse stamps: samples whose clock counts in steps, for example in whole seconds, spread over their step.

A sensor that sends 50 samples a second with stamps in whole seconds gives 50 samples one stamp, and all but the first
would be late or count as duplicates. The rules:

1. The i-th sample of a key and its channels with the same stamp, counted from 0 in the order of arrival, is i sample
   periods younger than the stamp.
2. A message whose samples would leave their step that way is refused as ``duplicate``: the sensor is faster than its
   stated rate.
3. Another stamp, newer or older, begins with 0 again.
4. Stamps of an arrival pass as they are: they have no steps (`edge_runtime.io.sources.arrival`).

Stamps are then a pure function of what arrived, in its order: a recording gives the same windows again. A message that
the broker delivers twice counts twice; after a restart within a step, its first samples are counted again.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from edge_runtime.errors import ConfigError, InputError
from edge_runtime.io.codecs import Codec
from edge_runtime.io.codecs.numbers import by_arrival
from edge_runtime.key_table import KeyTable
from edge_runtime.types import Reading

KEYS: Final = 10_000
"""Keys and channels remembered; past it, the ones silent for longest begin with 0 again."""

_ROUNDING: Final = 1e-6
"""Share of a period by which a sum of periods may miss the step."""


class SpreadingCodec:
    """A codec whose samples are spread over the steps of their stamps.

    Args:
        codec: decodes.
        step_s: step in which the sensor's clock counts, seconds.
        period_s: seconds between samples, unless the reading says otherwise.

    Raises:
        ConfigError: neither says how far apart samples are.
    """

    def __init__(self, codec: Codec, step_s: float, period_s: float) -> None:
        if not period_s:
            raise ConfigError(f"codec {codec.name}: time_step_s needs rate_hz, the samples a second")
        self.name = codec.name
        self._codec = codec
        self._step_s = step_s
        self._period_s = period_s
        self._seen: KeyTable[tuple[str, tuple[int, ...] | None], tuple[float, int]] = KeyTable(KEYS)

    def decode(self, key: str, payload: bytes, received: float) -> list[Reading]:
        """See `edge_runtime.io.codecs.Codec`; reason ``same_stamp`` besides."""
        readings = self._codec.decode(key, payload, received)
        return [reading if by_arrival(reading) else self._spread(reading) for reading in readings]  # rule 4

    def _spread(self, reading: Reading) -> Reading:
        n, period_s = len(reading.values), reading.period_s or self._period_s
        if isinstance(reading.t, float):
            begin = self._count(reading, reading.t, n)
            self._check(begin + n, period_s)
            return reading._replace(t=reading.t + begin * period_s)
        places = np.array([self._count(reading, float(t), 1) for t in reading.t])
        self._check(int(places.max()) + 1, period_s)
        return reading._replace(t=reading.t + places * period_s)

    def _check(self, samples: int, period_s: float) -> None:
        """Refuse samples that leave their step (rule 2)."""
        if samples > max(1, int(self._step_s / period_s + 1 - _ROUNDING)):
            raise InputError(
                "same_stamp",
                f"{samples} samples in one step of {self._step_s:g} s are more than {1 / period_s:g} a second: "
                "set rate_hz under [source.codec] to the sensor's rate",
            )

    def _count(self, reading: Reading, t: float, n: int) -> int:
        """Count samples of a stamp; return how many it had before."""
        stream = (reading.key, reading.channels)
        stamp, before = self._seen.get(stream, (t, 0))
        before = before if stamp == t else 0  # rule 3
        self._seen[stream] = (t, before + n)
        return before
