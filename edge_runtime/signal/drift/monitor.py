"""Drift of all keys: looks at windows, and keeps what is found as alarms.

1. A look is a window that overlaps none before it: every n-th of a key, by its number, so that a stream is looked at
   the same way whenever it is replayed. Windows that the intake suspects are no looks, nor are those in which a channel
   rests: what is stuck, of another rate or of another size was named there, and would be misnamed here.
2. The repair test (`edge_runtime.signal.drift.repair`) and the own past (`edge_runtime.signal.drift.own_past`) take the
   looks. A mean of their scores over a threshold is an alarm (`edge_runtime.signal.drift.latch`), one for each key and
   cause; the log has a line when it begins and one when it ends.
3. While axes or units are wrong, so are the answers: all windows of the key are suspect. A sensor that has changed may
   be answered rightly; its windows are not.
4. The beginning of a key is learnt from looks while no repair is on. Beginnings and alarms are kept over a restart.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Collection
from dataclasses import asdict
from typing import Any, Final, NamedTuple

import numpy as np
import orjson

from edge_runtime import schema
from edge_runtime.clock import Clock
from edge_runtime.errors import StoreError
from edge_runtime.key_table import KeyTable
from edge_runtime.manifest import InputContract, Manifest
from edge_runtime.manifest.drift import Cause, OwnPast, Repair, SensorReference
from edge_runtime.metrics import Metrics
from edge_runtime.signal.drift import words
from edge_runtime.signal.drift.alarm import Alarm, AlarmCause
from edge_runtime.signal.drift.by_channel import KeyDrift, key_drift
from edge_runtime.signal.drift.config import DriftConfig
from edge_runtime.signal.drift.features import WindowStatistics, alive, features, measure
from edge_runtime.signal.drift.latch import RELEASE, Latch, RecentRows
from edge_runtime.signal.drift.own_past import Beginning, Distance
from edge_runtime.signal.drift.repair import LIMIT, RepairTest
from edge_runtime.signal.intake.lines import BoundedLog
from edge_runtime.signal.stage import LearningStage, WindowBatch
from edge_runtime.signal.windowing.window import Window
from edge_runtime.types import Float64

log = logging.getLogger(__name__)

_MARKED: Final[frozenset[AlarmCause]] = frozenset(("orientation", "unit"))
"""Causes that make answers wrong (rule 3)."""

_ENDED: Final = {
    "orientation": "axes are as in training again",
    "unit": "values are in the model's unit again",
    "changed": "the sensor is as it began again",
}


class _Key:
    """State of one key."""

    __slots__ = ("alarms", "beginning", "latches", "own", "repair")

    def __init__(self) -> None:
        self.alarms: dict[AlarmCause, Alarm] = {}
        self.latches: dict[AlarmCause, Latch] = {}
        self.repair: RecentRows | None = None
        self.own: RecentRows | None = None
        self.beginning: Beginning | None = None


class Drift(LearningStage):
    """Detectors of a bundle, for all keys. All methods belong to the loop's thread.

    Args:
        config: the detectors that run.
        max_keys: keys held at a time; the one silent longest leaves first.
        metrics: receives, by cause, ``drift_alarms_total{cause="unit"}`` and the gauge ``drift_alarms{cause="unit"}``,
            and ``suspect_windows_total{reason="unit"}``.
        clock: monotonic time, for the number of log lines.

    Attributes:
        active: the bundle has something to compare with.
    """

    def __init__(self, config: DriftConfig, max_keys: int, metrics: Metrics, clock: Clock) -> None:
        self._detectors = frozenset(config.detectors)
        self._metrics = metrics
        self._lines = BoundedLog(clock, log, "drift")
        self._keys: KeyTable[str, _Key] = KeyTable(max_keys, self._forget)
        self._known: tuple[InputContract, SensorReference] | None = None
        self._judge: _Judge | None = None
        self.active = False

    @property
    def alarms(self) -> list[Alarm]:
        """All alarms that are on, the oldest first."""
        found = (alarm for key in self._keys.values() for alarm in key.alarms.values())
        return sorted(found, key=lambda alarm: (alarm.since, alarm.key))

    def use(self, manifest: Manifest) -> None:
        """Check for this bundle's faults from now on; what is known of the keys is kept if it knows the same."""
        known = None if manifest.sensors is None else (manifest.input, manifest.sensors)
        if known == self._known:
            return
        for name, key in self._keys.items():
            self._forget(name, key)
        self._keys.clear()
        self._known = known
        judge = None if known is None else _Judge(*known, self._detectors)
        self._judge = judge if judge is not None and (judge.repairs or judge.own) else None
        self.active = self._judge is not None

    def run(self, batch: WindowBatch) -> None:
        """Mark windows that are suspect, besides those that the intake suspects."""
        judge, windows, suspects = self._judge, batch.windows, batch.suspects
        if judge is None:
            return
        every = judge.every
        looks = [one for one in windows if one.slot % every == 0 and one.place not in suspects]
        statistics, looks = judge.measure(looks)
        rows = {window.place: at for at, window in enumerate(looks)}
        for window in windows:
            at = rows.get(window.place)
            if at is not None:
                self._take(judge, window, statistics, at)
            key = self._keys.get(window.key)
            if key is not None and not _MARKED.isdisjoint(key.alarms):
                self._mark(window, key, suspects)

    def of(self, name: str) -> KeyDrift | None:
        """Say how far a key is from an alarm, by channel; None where there is nothing to compare with."""
        judge, key = self._judge, self._keys.get(name) or _Key()
        if judge is None:
            return None
        scores = None if key.repair is None else key.repair.mean()
        means = None if key.own is None else key.own.mean()
        beginning = key.beginning or Beginning(len(judge.own.spread) if judge.own else 0)
        return key_drift(
            judge.reference, None if scores is None else scores / judge.thresholds, judge.repairs, judge.distance,
            None if means is None else means - beginning.mean, beginning.looks,
        )  # fmt: skip

    def _mark(self, window: Window, key: _Key, suspects: dict[tuple[str, int], str]) -> None:
        """Mark a window as suspect, besides what the intake says of it."""
        place = window.place
        before = suspects.get(place)
        reasons = set(before.split(",") if before else ())
        for cause in sorted(_MARKED.intersection(key.alarms) - reasons):
            reasons.add(cause)
            self._metrics.counts[f'suspect_windows_total{{reason="{cause}"}}'] += 1
        suspects[place] = ",".join(sorted(reasons))

    def _take(self, judge: _Judge, window: Window, statistics: _Measured, at: int) -> None:
        key = self._keys.get_or_make(window.key, _Key)
        end = window.start + judge.length_s
        if judge.repairs:
            if key.repair is None:
                key.repair = RecentRows(len(judge.repairs), LIMIT)
            means = key.repair.add(statistics.scores[at])
            if means is not None:
                self._note_repairs(judge, window.key, key, key.repair, means, end)
        if judge.own is not None and _MARKED.isdisjoint(key.alarms):
            self._note_past(judge, judge.own, window.key, key, statistics.features[at], end)

    # -- keys --------------------------------------------------------------------------------------------------------

    def _forget(self, _name: str, key: _Key) -> None:
        for cause in key.alarms:
            self._metrics.gauges[_gauge(cause)] -= 1

    def reset(self, keys: Collection[str]) -> set[str]:
        """See `Stage`: a key begins again as one that was never seen."""
        known = {name for name in keys if name in self._keys}
        for name in known:
            self._forget(name, self._keys.pop(name))
        return known

    # -- what is found -----------------------------------------------------------------------------------------------

    def _note_repairs(self, judge: _Judge, name: str, key: _Key, ring: RecentRows, means: Float64, end: float) -> None:
        scores = means / judge.thresholds
        over = np.flatnonzero(scores >= 1)
        best: Repair | None = None
        if len(over):
            # Means have a limit that several may reach; without it the one that explains most is told apart.
            best = judge.repairs[over[ring.latest()[over].argmax()]]
        for cause, columns in judge.causes.items():
            score = float(scores[columns].max())
            if best is not None and best.cause == cause:
                message = words.repair(best, judge.reference.channels, judge.units)
            else:  # another cause explains it better: this one does not begin, and goes on where it is on
                message, score = "", min(score, RELEASE)
            self._step(key, Alarm(name, cause, "repair", end, message), score)

    def _note_past(self, judge: _Judge, own: OwnPast, name: str, key: _Key, row: Float64, end: float) -> None:
        row = row[: len(own.spread)]
        if key.beginning is None:
            key.beginning = Beginning(len(own.spread))
        if key.beginning.looks < own.windows:
            key.beginning.add(row)
            return
        if key.own is None:
            key.own = RecentRows(len(own.spread))
        means = key.own.add(row)
        if means is None:
            return
        difference = means - key.beginning.mean
        score = 0.0 if judge.distance is None else float(judge.distance.of(difference)) / own.threshold
        message = words.change(difference / np.array(own.spread), judge.reference.channels) if score >= 1 else ""
        self._step(key, Alarm(name, "changed", "changed", end, message), score)

    def _step(self, key: _Key, alarm: Alarm, score: float) -> None:
        """Take a look at one cause; begin or end its alarm (rule 2)."""
        cause = alarm.cause
        latch = key.latches.setdefault(cause, Latch())
        if latch.step(score):
            key.alarms[cause] = alarm
            gauges, counts = self._metrics.gauges, self._metrics.counts
            counts[f'drift_alarms_total{{cause="{cause}"}}'] += 1
            gauges[_gauge(cause)] = gauges.get(_gauge(cause), 0.0) + 1
            hard = " (its windows are hard until this ends)" if cause in _MARKED else ""
            self._lines.log(logging.WARNING, f"key={alarm.key} cause={cause}: {alarm.message}{hard}")
        elif not latch.on and key.alarms.pop(cause, None) is not None:
            self._metrics.gauges[_gauge(cause)] -= 1
            self._lines.log(logging.INFO, f"{_ENDED[cause]}: key={alarm.key}")

    # -- over a restart ----------------------------------------------------------------------------------------------

    def save(self) -> bytes:
        """Encode beginnings and alarms of all keys."""
        keys = {
            name: {
                "beginning": None if key.beginning is None else key.beginning.plain(),
                "alarms": [asdict(alarm) for alarm in key.alarms.values()],
            }
            for name, key in sorted(self._keys.items())  # the same bytes as long as nothing changes
        }
        return orjson.dumps({"reference": self._digest(), "keys": keys})

    def restore(self, data: bytes) -> bool:
        """Go on where a run before was; False where it had another reference.

        Raises:
            StoreError: the bytes are something else.
        """
        try:
            plain = orjson.loads(data)
            if plain["reference"] != self._digest() or self._judge is None:
                return False
            self._keys.replace([(name, self._restored(self._judge, name, row)) for name, row in plain["keys"].items()])
        except (orjson.JSONDecodeError, KeyError, TypeError, ValueError, AttributeError) as error:
            raise StoreError(f"beginnings of keys cannot be read: {error}") from error
        for gauge in (_gauge(cause) for key in self._keys.values() for cause in key.alarms):
            self._metrics.gauges[gauge] = self._metrics.gauges.get(gauge, 0.0) + 1
        return True

    def _restored(self, judge: _Judge, name: str, row: Any) -> _Key:
        key = _Key()
        if row["beginning"] is not None and judge.own is not None:
            key.beginning = Beginning.of(row["beginning"], len(judge.own.spread))
        for alarm in (schema.load(Alarm, {**one, "key": name}) for one in row["alarms"]):
            key.alarms[alarm.cause] = alarm
            key.latches[alarm.cause] = latch = Latch()
            latch.on = True
        return key

    def _digest(self) -> str:
        """Name what is compared with: other features would make other beginnings."""
        return "" if self._known is None else hashlib.sha256(orjson.dumps(self._known)).hexdigest()


class _Measured(NamedTuple):
    """Looks of one iteration."""

    features: Float64
    scores: Float64
    """What each repair adds to each of them."""


class _Judge:
    """A bundle's reference, ready for looks."""

    def __init__(self, contract: InputContract, reference: SensorReference, detectors: frozenset[str]) -> None:
        names = [channel.name for channel in contract.channels]
        self.reference = reference
        self.units = {channel.name: channel.unit for channel in contract.channels}
        self.columns = [names.index(name) for name in reference.channels]
        self.every = contract.hop * -(-contract.window // contract.hop)
        self.length_s = contract.window / contract.rate_hz
        self.repairs = reference.repairs if "repair" in detectors else ()
        self.thresholds = np.array([repair.threshold for repair in self.repairs])
        self.causes: dict[Cause, list[int]] = {}
        for column, repair in enumerate(self.repairs):
            self.causes.setdefault(repair.cause, []).append(column)
        self.own = reference.own if "changed" in detectors else None
        self.distance = None if self.own is None else Distance(self.own)
        self._test = RepairTest(reference) if self.repairs else None
        self._floors = np.array(reference.floors)

    def measure(self, looks: list[Window]) -> tuple[_Measured, list[Window]]:
        """Measure the looks, and leave out those in which a channel rests (rule 1)."""
        if not looks:
            return _Measured(np.empty((0, 0)), np.empty((0, 0))), looks
        statistics = measure(np.stack([window.samples[:, self.columns] for window in looks]))
        lives = alive(statistics)
        if not lives.all():
            statistics = WindowStatistics(*(part[lives] for part in statistics))
            looks = [window for window, moves in zip(looks, lives.tolist(), strict=True) if moves]
        scores = np.empty((len(looks), 0)) if self._test is None else self._test.scores(statistics)
        return _Measured(features(statistics, self._floors), scores), looks


def _gauge(cause: AlarmCause) -> str:
    return f'drift_alarms{{cause="{cause}"}}'
