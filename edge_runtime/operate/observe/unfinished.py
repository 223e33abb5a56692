"""Reporter of samples that make no window: how many each key has, and what keeps it from more."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Final, NamedTuple

from edge_runtime.manifest import InputContract
from edge_runtime.metrics import Metrics
from edge_runtime.operate.observe.drops import LONGEST_S
from edge_runtime.operate.observe.lacking import lacking
from edge_runtime.signal.windowing.window import KeyState

log = logging.getLogger(__name__)

SHOWN: Final = 3
"""Keys that a line names."""

_UNITS: Final = ((1e3, '"ms" in place of "s", or "us" in place of "ms"'), (1e6, '"us" in place of "s"'),
                 (1e9, '"ns" in place of "s"'), (1e-3, '"s" in place of "ms", or "ms" in place of "us"'),
                 (1e-6, '"s" in place of "us"'))  # fmt: skip
"""How much faster than this machine's clock stamps run, and the right ``time_unit``."""


PARTED: Final = (
    "All channels of a key must come, under the same key and with clocks that agree: compare topics, channels and key "
    "under [[source]]"
)


class _Figures(NamedTuple):
    """Counters at one moment."""

    at: float
    """Monotonic seconds."""
    samples: int
    windows: int
    gaps: int
    mistimed: int
    """Samples dropped as late, with a stamp twice, or out of all time."""


class UnfinishedWindows:
    """Watches for samples that make no window.

    1. It is logged when samples have come, and no window, for the first patience and the time until a window must be
       there; again each time that has doubled, at the latest after `LONGEST_S`.
    2. A window ends it. Without samples since the last line, nothing is said: then the sources are silent.
    3. The line names the keys that are nearest to a window, and the cause, as far as counters and stamps show it. To
       see how fast stamps run, it looks at them twice.

    Args:
        metrics: counts of samples, windows, gaps and drops.
        after_s: the first patience, seconds.
        now: monotonic seconds.
    """

    def __init__(self, metrics: Metrics, after_s: float, now: float) -> None:
        self._metrics = metrics
        self._after_s = after_s
        self._newest_at = 0.0
        self._begin(self._figures(now))

    def _begin(self, figures: _Figures) -> None:
        """Wait for the next window from now on."""
        self._began = figures
        self._warned_s = 0.0
        self._warned_samples = 0
        self._newest: Mapping[str, float] = {}

    def line(self, now: float, contract: InputContract, states: Callable[[], Sequence[KeyState]]) -> str:
        """Return the line that is due, or nothing.

        Args:
            now: monotonic seconds.
            contract: what a window is.
            states: what is held for each key; asked only if something is due.
        """
        figures = self._figures(now)
        if figures.windows != self._began.windows or figures.samples == self._began.samples:  # rule 2
            self._begin(figures)
            return ""
        waited_s = now - self._began.at
        patience_s = self._after_s + (contract.window + contract.hop) / contract.rate_hz
        due_s = max(patience_s, min(2 * self._warned_s, self._warned_s + LONGEST_S))  # rule 1
        if waited_s < due_s or figures.samples == self._warned_samples:
            return ""
        found = states()
        newest = {state.name: state.newest for state in found}
        if not self._newest:
            self._newest, self._newest_at = newest, now
            return ""
        speed = _speed(self._newest, newest, now - self._newest_at)
        self._warned_s, self._warned_samples, self._newest = waited_s, figures.samples, {}
        cause = _unheard(found, contract) or (PARTED if any(lacking(state, contract) for state in found) else "")
        cause = cause or _cause(contract, self._began, figures, speed, len(found))
        samples = figures.samples - self._began.samples
        return f"window: {samples} samples in {waited_s:.0f} s made no window: {progress(found, contract)}. {cause}"

    def _figures(self, now: float) -> _Figures:
        counts, dropped = self._metrics.counts, self._metrics.dropped
        mistimed = sum(dropped[reason] for reason in ("late", "duplicate", "same_stamp", "stamp_jump"))
        return _Figures(now, counts["samples_total"], counts["windows_total"], counts["gaps_total"], mistimed)


def progress(states: Sequence[KeyState], contract: InputContract) -> str:
    """Name the keys that are nearest to a window: ``14 of 100 samples of key w1, 3 of w2, and 5 more keys``.

    Of keys whose channels come in messages of their own, it names the channels that they lack.
    """
    nearest = sorted(states, key=lambda state: (-_samples(state), state.name))
    if not nearest:
        return "no key holds a sample"
    names = [f"{_samples(state)} of {state.name}" for state in nearest[:SHOWN]]
    names[0] = f"{_samples(nearest[0])} of {contract.window} samples of key {nearest[0].name}"
    more = len(nearest) - SHOWN
    if more > 0:
        names.append(f"and {more} more key{'s' * (more > 1)}")
    lacks = [text for state in nearest[:SHOWN] if (text := lacking(state, contract))]
    return "; ".join([", ".join(names), *lacks])


def _samples(state: KeyState) -> int:
    """Count the samples that a key has of each channel for its next window, those that wait for others among them."""
    streams = [(part.filled, part.pending) for part in state.parts]
    if not streams:
        streams = [(0 if state.segment is None else state.segment.filled, state.pending)]
    begun = 0 if state.segment is None else state.segment.next_window
    return min(max(0, filled - begun) + sum(len(times) for times, _ in pending) for filled, pending in streams)


def _unheard(states: Sequence[KeyState], contract: InputContract) -> str:
    """Name the channels of which no key has a sample, where channels come in messages of their own."""
    silent = [
        {column for part in state.parts if part.newest == -math.inf and not part.apart for column in part.columns}
        for state in states
    ]
    columns = set.intersection(*silent) if silent else set()
    names = ", ".join(contract.channels[column].name for column in sorted(columns))
    return names and f"Nothing has come of channel {names}: look at its topic, and at its sensor"


def _speed(before: Mapping[str, float], now: Mapping[str, float], seconds: float) -> float:
    """Seconds that stamps go on in a second, the median of the keys that sent any; 0 where none did."""
    speeds = [(now[key] - at) / seconds for key, at in before.items() if now.get(key, at) > at]
    return median(speeds) if speeds else 0.0


def _cause(contract: InputContract, began: _Figures, now: _Figures, speed: float, keys: int) -> str:
    """Explain why there is no window yet, with what to do."""
    samples, period_s = now.samples - began.samples, 1 / contract.rate_hz
    for factor, units in _UNITS:
        if 0.5 < speed / factor < 2:
            fast = f"Stamps run {factor:g} times as fast as this machine's clock"
            return f"{fast}: set time_unit under [source.codec], {units}"
    if 2 * (now.mistimed - began.mistimed) > samples:
        return "Most of them were dropped for their stamps, which other lines explain"
    if 2 * (now.gaps - began.gaps) > samples:
        step_s = (now.at - began.at) * max(1, keys) / samples
        return (
            f"A key has a sample every {step_s:.2g} s, the model needs one every {period_s:.2g} s, and a window begins "
            f"again after {contract.max_gap:.2g} s without one. Let the sensor send faster; or state rate_hz under "
            "[source.codec] if a message holds several samples"
        )
    return f"A window takes {contract.window * period_s:g} s of samples at {contract.rate_hz:g} Hz, without a gap"
