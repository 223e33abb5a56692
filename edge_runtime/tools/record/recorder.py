"""Recorder: sources on one side, a CSV file on the other, nothing in between but the label of the moment."""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from edge_runtime.base.system.loop import Loop
from edge_runtime.clock import Clock
from edge_runtime.errors import ConfigError, InputError
from edge_runtime.io.mqtt.client import BrokerClient
from edge_runtime.io.recordings.writer import RecordingWriter
from edge_runtime.io.sources import Source
from edge_runtime.io.sources.arrival import ArrivalStamps, Turn
from edge_runtime.io.sources.build import build_source
from edge_runtime.io.sources.decoding import Refusals
from edge_runtime.metrics import Metrics
from edge_runtime.signal.windowing.config import WindowConfig
from edge_runtime.signal.windowing.join import windower_of
from edge_runtime.signal.windowing.ordering import stamps
from edge_runtime.tools.record.labels import CurrentLabel
from edge_runtime.tools.record.plan import RecordingPlan
from edge_runtime.types import Done, Float32, Float64, Reading

SYNC_S: Final = 1.0
"""How often rows are brought onto the disk; a power cut costs what came in this time."""

AGREES_S: Final = 5.0
"""Largest difference between a sensor's clock and this machine's, delay included, at which its stamps are believed."""
_KEYS: Final = 10_000
"""Keys that are counted, and whose delay is known."""


@dataclass(slots=True)
class Recorded:
    """Contents of a recording, in figures."""

    samples: Counter[str] = field(default_factory=Counter)
    """By label."""
    keys: set[str] = field(default_factory=set)
    paused: int = 0
    """Samples that came while paused, and were left out."""
    failure: str = ""
    """Why it ended early; empty where it did not."""


class Recorder:
    """Writes what sources deliver, until it is stopped.

    1. A row gets the label of the moment at which it was taken: that of its stamp, where the sensor's clock agrees with
       this machine's to `AGREES_S`; else its stamp is moved by the least delay that was seen of its key.
    2. Messages that bring some of the channels are joined on a grid of the contract's rate, by the windower's rules: a
       row is a window of one sample.
    3. A message is acknowledged when its rows are on the disk.
    4. A message that cannot become rows is counted as refused, and ends nothing.

    Args:
        plan: sources, brokers and channels.
        writer: the file's writer.
        labels: the label of the moment.
        person: the person whose movements they are; empty: the key's.
        metrics: counts what is refused.
        clock: wall and monotonic time, that of `labels`.

    Raises:
        ConfigError: a source or codec cannot be made; or channels come in parts and no rate is known.
    """

    def __init__(
        self,
        plan: RecordingPlan,
        writer: RecordingWriter,
        labels: CurrentLabel,
        *,
        person: str = "",
        metrics: Metrics | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.metrics = metrics or Metrics()
        self.recorded = Recorded()
        self.loop = Loop(clock=clock)
        self._plan = plan
        self._writer = writer
        self._labels = labels
        self._person = person
        self._waiting: list[Done] = []
        self._delays: dict[str, float] = {}
        self._refuse = Refusals(self.metrics)
        if plan.parts and not plan.rate_known:
            raise ConfigError("channels come in messages of their own: say --rate HZ, at which they become rows")
        rows = dataclasses.replace(plan.contract, window=1, hop=1, context=0)
        self._join = windower_of(rows, WindowConfig(), self.metrics, parts=True) if plan.parts else None
        clients = {name: BrokerClient(one, name, self.metrics) for name, one in plan.brokers.items()}
        self._sources: list[Source] = [
            build_source(
                source,
                name=f"source[{i}]",
                contract=plan.contract,
                broker_clients=clients,
                metrics=self.metrics,
                clock=self.loop.clock,
            )
            for i, source in enumerate(plan.sources)
        ]

    def run(self, progress: Callable[[Recorded], None] = lambda _: None) -> Recorded:
        """Record until `stop`, the end of every source, or a failing disk. What came before is on the disk then.

        Args:
            progress: called each second.
        """
        loop = self.loop
        turn = Turn(ArrivalStamps(self._plan.contract), loop.clock)
        loop.each_iteration(turn.end)
        loop.each_iteration(self._stop_when_finished)
        loop.call_every(SYNC_S, lambda: self._tick(progress))
        try:
            for source in self._sources:
                source.open(loop, turn.into(self._deliver))
            loop.run()
        finally:
            for source in self._sources:
                source.pause()
            turn.end()
            self._end()
            for source in self._sources:
                source.close()
        return self.recorded

    def close(self) -> None:
        """Free the loop, after everybody who watches something on it."""
        self.loop.close()

    def stop(self) -> None:
        """End `run`; from the loop's thread or a signal handler."""
        self.loop.stop()

    def _deliver(self, readings: Sequence[Reading], received: float, done: Done | None) -> None:
        if done is not None:
            self._waiting.append(done)
        now, period_s = self.loop.clock.wall(), 1 / self._plan.contract.rate_hz
        usable = []
        for reading in readings:
            try:
                t = self._stamps(reading, period_s)
            except InputError as error:  # rule 4
                self._refuse(error, f"message for key {reading.key[:64]!r}")
                continue
            usable.append(reading)
            delay = now - float(t[-1])
            if len(self._delays) < _KEYS or reading.key in self._delays:
                self._delays[reading.key] = min(delay, self._delays.get(reading.key, delay))
            if self._join is None:
                self._write(reading.key, t, reading.values)
        for window in self._join.push(usable, received) if self._join is not None else ():
            self._write(window.key, np.array([window.start]), window.samples)

    def _stamps(self, reading: Reading, period_s: float) -> Float64:
        """Return one stamp for each sample.

        Raises:
            InputError: a message has several samples and one stamp, and nothing says how far they are apart.
        """
        n = len(reading.values)
        if n > 1 and isinstance(reading.t, float) and not reading.period_s and not self._plan.rate_known:
            raise InputError("bad_time", f"{n} samples and one stamp: say --rate HZ, the sensor's samples per second")
        return stamps(reading, period_s)

    def _write(self, key: str, t: Float64, values: Float32) -> None:
        """Write rows, those of one label together (rule 1)."""
        delay = self._delays.get(key, 0.0)
        names = self._labels.at(t if abs(delay) <= AGREES_S else t + delay)
        bounds = [0, *(i for i in range(1, len(names)) if names[i] != names[i - 1]), len(names)]
        for begin, end in itertools.pairwise(bounds):
            self._write_labelled(key, t[begin:end], values[begin:end], names[begin])

    def _write_labelled(self, key: str, t: Float64, values: Float32, label: str) -> None:
        recorded = self.recorded
        if recorded.failure:
            return
        if not label and self._labels.names:
            recorded.paused += len(t)
            return
        try:
            self._writer.write(key, t, values, person=self._person, label=label)
        except OSError as error:
            self._fail(error)
            return
        recorded.samples[label] += len(t)
        if len(recorded.keys) < _KEYS:
            recorded.keys.add(key)

    def _tick(self, progress: Callable[[Recorded], None]) -> None:
        self._sync()
        progress(self.recorded)

    def _sync(self) -> None:
        """Bring the rows onto the disk, then acknowledge their messages (rule 3)."""
        if self.recorded.failure:
            return
        try:
            self._writer.sync()
        except OSError as error:
            self._fail(error)
            return
        waiting, self._waiting = self._waiting, []
        for done in waiting:
            done()

    def _fail(self, error: OSError) -> None:
        self.recorded.failure = f"{self._writer.path}: cannot be written on: {error.strerror or error}"
        self.loop.stop()

    def _stop_when_finished(self) -> None:
        if all(source.finished for source in self._sources):
            self.loop.stop()

    def _end(self) -> None:
        if self._join is not None:
            for window in self._join.flush():
                self._write(window.key, np.array([window.start]), window.samples)
        self._sync()
        try:
            self._writer.close()
        except OSError as error:
            self._fail(error)
