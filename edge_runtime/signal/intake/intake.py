"""Intake: what the data say about the sensors that send them, said once and marked on every answer that it concerns.

A model cannot tell values in another unit, of another rate, or of a sensor that froze, from those that it was trained
on: it answers, and is sure of it. So each key is checked while it streams (`edge_runtime.signal.intake.config.CHECKS`);
while one is *suspect*, its windows are hard, and say why.

The checks are functions of the samples that a key sent and of their stamps: the same stream has the same windows
marked, live and when it is replayed.
"""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Final

from edge_runtime.clock import Clock
from edge_runtime.key_table import KeyTable
from edge_runtime.manifest import InputContract, Manifest, Reference
from edge_runtime.metrics import Metrics
from edge_runtime.signal.intake import words
from edge_runtime.signal.intake.clipped import ClippedCheck, KeyClipped, Rail
from edge_runtime.signal.intake.config import Check, IntakeConfig
from edge_runtime.signal.intake.lines import BoundedLog
from edge_runtime.signal.intake.rate import RateChange, RateCheck
from edge_runtime.signal.intake.spectrum import BandLimit, KeySpectrum, SpectrumCheck
from edge_runtime.signal.intake.stuck import KeyStuck, Stuck, StuckCheck
from edge_runtime.signal.intake.unit import KeySpan, Misfit, UnitCheck, is_sound
from edge_runtime.signal.stage import Stage, WindowBatch
from edge_runtime.signal.windowing.window import Window
from edge_runtime.types import Reading

log = logging.getLogger(__name__)

_FOUND: Final[Mapping[Check, str]] = {
    "clipped": "a channel sticks to the end of its range",
    "rate": "samples came at another rate than the model's",
    "spectrum": "sound ends lower than in training",
    "stuck": "a channel kept one value",
    "unit": "values were of another size than in training",
}

_ENDED: Final[Mapping[Check, str]] = {
    "clipped": "no channel sticks to the end of its range now",
    "rate": "samples came at the model's rate again",
    "spectrum": "sound reaches as far up as in training again",
    "stuck": "all channels changed again",
    "unit": "values were of the size of training again",
}


_RATE: Final = (
    "set the sensor to that rate; if a message has one stamp for several samples, state their rate as rate_hz under "
    "[source.codec]"
)


class _Key:
    """State of one key."""

    __slots__ = ("clipped", "due", "rates", "said", "seen", "span", "spectrum", "stuck", "suspect")

    def __init__(self) -> None:
        self.due = -math.inf
        """Slot of the next window that is looked at; those before it pass."""
        self.seen = -math.inf
        """Slot of the last window that was looked at; one before it means that the key's clock went back."""
        self.rates: deque[RateChange] = deque()
        """Changes of the rate that no window has reached."""
        self.stuck = KeyStuck()
        self.clipped = KeyClipped()
        self.span = KeySpan()
        self.spectrum = KeySpectrum()
        self.suspect: set[Check] = set()
        """Checks that the windows fail, up to the last one looked at."""
        self.said: dict[Check, frozenset[str]] = {}
        """Checks that the key fails, as the log has it, and the channels it named: a rate is known before the windows
        that it concerns."""


class Intake(Stage):
    """Checks of all keys. Bounded: `max_keys` keys are held, the one that came first leaves.

    Args:
        config: the checks that run.
        max_keys: keys held at a time.
        metrics: receives, by reason, ``suspect_keys_total{reason="rate"}``, ``suspect_windows_total{reason="rate"}``
            and the gauge ``suspect_keys{reason="rate"}``.
        clock: monotonic time, for the number of log lines.
    """

    active = True

    def __init__(self, config: IntakeConfig, max_keys: int, metrics: Metrics, clock: Clock) -> None:
        self._checks = frozenset(config.checks)
        self._max_keys = max_keys
        self._metrics = metrics
        self._lines = BoundedLog(clock, log, "intake")
        self._contract: InputContract | None = None
        self._references: tuple[Reference, ...] = ()
        self._rate: RateCheck | None = None
        self._stuck: StuckCheck | None = None
        self._clipped: ClippedCheck | None = None
        self._unit: UnitCheck | None = None
        self._spectrum: SpectrumCheck | None = None
        self._keys: KeyTable[str, _Key] = KeyTable(max_keys, self._forget)
        self._names: list[str] = []
        self._length_s = 0.0

    def use(self, manifest: Manifest) -> None:
        """Check for this model from now on; what is known of the keys is kept if it takes the same windows."""
        contract, references = manifest.input, manifest.references
        if (contract, references) == (self._contract, self._references):
            return
        for name, key in self._keys.items():
            self._forget(name, key)
        self._keys.clear()
        self._contract, self._references = contract, references
        # Pictures come when they like, and a still one is no fault.
        checks = self._checks if contract.frame is None else frozenset()
        self._rate = RateCheck(contract, references, self._max_keys) if "rate" in checks else None
        self._stuck = StuckCheck(contract, references) if "stuck" in checks else None
        clipped = ClippedCheck(contract, references)
        self._clipped = clipped if clipped.works and "clipped" in checks else None
        sized = [one for one in references if not is_sound(one, contract)]
        self._unit = UnitCheck(contract, sized) if sized and "unit" in checks else None
        spectrum = SpectrumCheck(contract, references)
        self._spectrum = spectrum if spectrum.works and "spectrum" in checks else None
        self._names = [channel.name for channel in contract.channels]
        self._length_s = (contract.window - 1) / contract.rate_hz

    def read(self, readings: Sequence[Reading]) -> None:
        """Check the stamps of readings, before they become windows."""
        rate = self._rate
        if rate is not None:
            rate.count(readings)
            if rate.changes:
                self._note_rates(rate)

    def run(self, batch: WindowBatch) -> None:
        """Mark windows that are suspect, for example ``rate`` or ``rate,stuck``."""
        marked = batch.suspects
        get = self._keys.get
        for window in batch.windows:
            key = get(window.key)
            if key is None:
                key = self._new_key(window.key)
            elif key.seen <= window.slot < key.due:
                continue
            self._check(key, window)
            if key.suspect:
                reasons = sorted(key.suspect)
                marked[window.place] = ",".join(reasons)
                for reason in reasons:
                    self._metrics.counts[f'suspect_windows_total{{reason="{reason}"}}'] += 1

    def _check(self, key: _Key, window: Window) -> None:
        slot = window.slot
        back = slot < key.seen
        end = window.start + self._length_s
        while key.rates and key.rates[0].t <= end:
            _mark(key.suspect, "rate", on=key.rates.popleft().rate_hz > 0)
        due = math.inf
        if self._stuck is not None:
            if back or slot >= key.stuck.due:
                self._note_stuck(window.key, key, self._stuck.run(key.stuck, window))
            due = key.stuck.due
        if self._clipped is not None:
            due = min(due, self._check_ends(self._clipped, key, window, back=back))
        if self._unit is not None:
            if back or slot >= key.span.due:
                self._note_units(window.key, key, self._unit.run(key.span, window))
            due = min(due, key.span.due)
        if self._spectrum is not None:
            due = min(due, self._check_spectrum(self._spectrum, key, window, back=back))
        key.seen = slot
        key.due = -math.inf if key.suspect or key.rates else due

    def _check_ends(self, clipped: ClippedCheck, key: _Key, window: Window, *, back: bool) -> float:
        if back or window.slot >= key.clipped.due:
            self._note_clipped(window.key, key, clipped.run(key.clipped, window))
        return key.clipped.due

    def suspects(self) -> dict[str, str]:
        """Return the keys whose readings are suspect now, each with the checks that it fails."""
        return {name: ",".join(sorted(key.said)) for name, key in self._keys.items() if key.said}

    def _check_spectrum(self, spectrum: SpectrumCheck, key: _Key, window: Window, *, back: bool) -> float:
        if back or window.slot >= key.spectrum.due:
            self._note_spectrum(window.key, key, spectrum.run(key.spectrum, window))
        return key.spectrum.due

    # -- keys --------------------------------------------------------------------------------------------------------

    def _new_key(self, name: str) -> _Key:
        key = self._keys[name] = _Key()
        return key

    def _forget(self, _name: str, key: _Key) -> None:
        for reason in key.said:
            self._metrics.gauges[_gauge(reason)] -= 1

    # -- what is found -----------------------------------------------------------------------------------------------

    def _note_rates(self, rate: RateCheck) -> None:
        low, high = rate.right_hz
        right = f"{low:.3g}" if low == high else f"{low:.3g}..{high:.3g}"
        for name, changes in rate.changes.items():
            key = self._keys.get(name) or self._new_key(name)
            for change in changes:
                key.rates.append(change)
                if change.rate_hz:
                    what = f"rate_hz={change.rate_hz:.3g} expected_hz={right}: {self._sparse(change.rate_hz)}{_RATE}"
                    self._begin(name, key, "rate", frozenset(("",)), what)
                else:
                    self._end(name, key, "rate")
            key.due = -math.inf
        rate.changes.clear()

    def _sparse(self, rate_hz: float) -> str:
        """Say that no window can come of a rate, where none can."""
        max_gap = math.inf if self._contract is None else self._contract.max_gap
        if rate_hz * max_gap >= 1:
            return ""
        return f"this key has a sample every {1 / rate_hz:.3g} s, the model takes no gap longer than {max_gap:.3g} s; "

    def _note_stuck(self, name: str, key: _Key, found: Stuck | None) -> None:
        _mark(key.suspect, "stuck", on=found is not None)
        if found is None:
            self._end(name, key, "stuck")
            return
        channels = [self._names[column] for column in found.columns]
        values = ",".join(f"{value:g}" for value in found.values)
        what = f"channels={','.join(channels)} values={values} seconds={found.seconds:.0f}"
        self._begin(name, key, "stuck", frozenset(channels), f"{what}: look at the sensor and its wiring")

    def _note_units(self, name: str, key: _Key, found: Sequence[Misfit] | None) -> None:
        if found is None:
            return
        frozen = key.said.get("stuck", frozenset())  # a value that froze has the size of its channel's last one
        found = [one for one in found if frozen.isdisjoint(one.channels)]
        _mark(key.suspect, "unit", on=bool(found))
        for one in found:
            self._begin(name, key, "unit", frozenset(one.channels), words.misfit(one))
        if not found:
            self._end(name, key, "unit")

    def _note_clipped(self, name: str, key: _Key, found: Sequence[Rail]) -> None:
        if not found and not key.clipped.on and "clipped" not in key.said:
            return
        # A wrist that rests is not at the end of the range: its windows are right, and the fault is not over.
        _mark(key.suspect, "clipped", on=bool(found))
        for rail in found:
            channel = self._names[rail.column]
            self._begin(name, key, "clipped", frozenset((channel,)), words.rail(channel, rail))
        if not key.clipped.on:
            self._end(name, key, "clipped")

    def _note_spectrum(self, name: str, key: _Key, found: Sequence[BandLimit] | None) -> None:
        if found is None:
            return
        _mark(key.suspect, "spectrum", on=bool(found))
        for one in found:
            self._begin(name, key, "spectrum", frozenset((one.channel,)), words.cut(one))
        if not found:
            self._end(name, key, "spectrum")

    def _begin(self, name: str, key: _Key, reason: Check, channels: frozenset[str], what: str) -> None:
        """Count and log that a key fails a check, or that it does so in further channels; once each."""
        before = key.said.get(reason, frozenset())
        if channels <= before:
            return
        key.said[reason] = before | channels
        if not before:
            self._metrics.counts[f'suspect_keys_total{{reason="{reason}"}}'] += 1
            self._metrics.gauges[_gauge(reason)] = self._metrics.gauges.get(_gauge(reason), 0.0) + 1
        self._lines.log(logging.WARNING, f"{_FOUND[reason]}: key={name} {what} (its windows are hard until this ends)")

    def _end(self, name: str, key: _Key, reason: Check) -> None:
        """Count and log that a key passes a check again."""
        if key.said.pop(reason, None) is not None:
            self._metrics.gauges[_gauge(reason)] -= 1
            self._lines.log(logging.INFO, f"{_ENDED[reason]}: key={name}")


def _mark(reasons: set[Check], reason: Check, *, on: bool) -> None:
    if on:
        reasons.add(reason)
    else:
        reasons.discard(reason)


def _gauge(reason: Check) -> str:
    return f'suspect_keys{{reason="{reason}"}}'
