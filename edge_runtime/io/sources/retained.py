"""Retained messages: values that a broker kept from before the subscription, and that are no samples of now."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final

from edge_runtime.io.mqtt.packets import RETAIN, Publish
from edge_runtime.manifest import InputContract
from edge_runtime.metrics import Metrics
from edge_runtime.types import Reading

ARRIVAL_S: Final = 1e-3
"""A stamp that lies this close to the arrival is the arrival's."""


def split(publishes: Sequence[Publish]) -> tuple[list[Publish], list[Publish]]:
    """Part live messages from retained ones, both in their order."""
    parts: tuple[list[Publish], list[Publish]] = ([], [])
    for publish in publishes:
        parts[bool(publish[4] & RETAIN)].append(publish)
    return parts


class Retained:
    """Takes retained messages by their rule.

    1. Unless they are to be held, they are counted as ``retained`` and left out.
    2. A held one is taken if it has a stamp of its own, at that time.
    3. One without is taken, as of its arrival, if the rule of all its channels is ``previous``: the last known value.
    4. Any other is counted and left out, too.

    Args:
        hold: see rule 1.
        contract: the model's contract; None: no channel's rule is ``previous``.
        metrics: counts ``retained`` drops.
    """

    def __init__(self, hold: bool, contract: InputContract | None, metrics: Metrics) -> None:
        self._hold = hold
        self._metrics = metrics
        self._period_s = 1 / contract.rate_hz if contract is not None else 0.0
        channels = contract.channels if contract is not None else ()
        default = contract.resample if contract is not None else ""
        self._previous = [(channel.resample or default) == "previous" for channel in channels]

    def decode(
        self,
        publishes: Sequence[Publish],
        wall: float,
        decode: Callable[[Sequence[Publish], float], list[Reading]],
    ) -> list[Reading]:
        """Return the readings of retained messages that count.

        Args:
            publishes: retained messages.
            wall: wall-clock seconds of their arrival.
            decode: decodes them.
        """
        if not publishes:
            return []
        readings = decode(publishes, wall) if self._hold else []
        known = [reading for reading in readings if self._is_known(reading, wall)]
        if dropped := len(publishes) if not self._hold else len(readings) - len(known):
            self._metrics.dropped["retained"] += dropped
            topic = publishes[-1][0].decode(errors="replace")[:200]
            self._metrics.examples["retained"] = f"message of {len(publishes[-1][1])} bytes on {topic!r}"
        return known

    def _is_known(self, reading: Reading, wall: float) -> bool:
        if isinstance(reading.t, float):
            last = reading.t + (len(reading.values) - 1) * (reading.period_s or self._period_s)
        else:
            last = float(reading.t[-1])
        if math.isfinite(last) and not math.isclose(last, wall, rel_tol=0.0, abs_tol=ARRIVAL_S):
            return True  # rule 2
        rules = self._previous
        return bool(rules) and all(
            rules if reading.channels is None else [rules[one] for one in reading.channels]
        )  # rule 3
