"""Recordings as a source: files played as if their sensors were live, or as fast as the pipeline takes them."""

from __future__ import annotations

import heapq
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from edge_runtime.base.system.loop import Loop, Timer
from edge_runtime.clock import Clock, SystemClock
from edge_runtime.errors import ConfigError, InputError
from edge_runtime.io.recordings.layout import Labelled, RecordingLayout, Refused
from edge_runtime.io.recordings.reader import expand, iter_readings
from edge_runtime.io.sources import Deliver
from edge_runtime.io.sources.decoding import Refusals
from edge_runtime.manifest import InputContract
from edge_runtime.metrics import Metrics
from edge_runtime.schema import Deferred
from edge_runtime.types import Reading

if TYPE_CHECKING:
    from edge_runtime.io.sources.mqtt import MqttSourceConfig
else:
    MqttSourceConfig = Deferred("edge_runtime.io.sources.mqtt:MqttSourceConfig")

log = logging.getLogger(__name__)

BATCH = 64
"""Readings delivered in one iteration, at most."""

BATCH_SAMPLES = 8192
"""Samples after which no other reading joins a delivery, so that memory stays bounded: 2 MB of 64 channels."""

IN_FLIGHT = 8
"""Deliveries that may wait for their `done`; the file is read on when one reports."""

CHUNK_S = 30.0
"""Longest span of a reading of what is played as fast as possible, where the layout says nothing. Each reading costs
some 200 us on its way, whatever it holds: of 50 Hz in readings of a second, two thirds of all CPU."""

RESTART_S = 60.0
"""Stamps that go back by more than this begin another recording, which is not waited for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordingConfig(RecordingLayout):
    """Settings of played recordings: files, layout and speed."""

    type: Literal["recording"] = "recording"
    files: tuple[Path, ...]
    """Played one after another, or side by side if `partial`; the last part of a path may hold wildcards:
    ``data/*.csv``."""
    speed: float = 0.0
    """1: real time, 10: ten times that; 0: as fast as the pipeline takes it."""
    mqtt: tuple[MqttSourceConfig, ...] = ()
    """The files hold captured MQTT messages, a line each (`edge_runtime.io.recordings.capture`), and these are the
    sources that they are for: topics, keys and codecs. `format` and layout do not count then."""

    def __post_init__(self) -> None:
        # Not super().__post_init__(): a dataclass with slots is a second class, which super() without arguments
        # does not know.
        RecordingLayout.__post_init__(self)
        if not self.files:
            raise ValueError("files must name at least one recording")
        if not 0 <= self.speed <= 1e6:
            raise ValueError("speed must be 0 (as fast as possible) to 1,000,000")


class RecordingSource:
    """Plays recordings.

    What is delivered depends on the files alone, never on timing: with speed 0, the same files give the same sequence
    of deliveries. A line or row that cannot be used is counted under its reason and left out.

    Args:
        config: the files.
        contract: channels and rate of the model.
        metrics: counts what is refused, and files of which no row was used (``recordings_unused_total``).
        clock: paces a recording that is not played as fast as possible.
        name: the source's name in messages and metrics.
        on_labels: callback, as in `edge_runtime.io.recordings.reader.iter_readings`.
        recordings: files with their keys, in place of what `RecordingConfig.files` expands to.
    """

    most_unacked = None
    """It waits without loss, for every sink."""

    def __init__(
        self,
        config: RecordingConfig,
        contract: InputContract,
        metrics: Metrics,
        clock: Clock | None = None,
        *,
        name: str = "recording",
        on_labels: Labelled | None = None,
        recordings: Sequence[tuple[Path, str]] = (),
    ) -> None:
        self.name = name
        self._on_labels = on_labels
        self._config = config
        self._recordings = list(recordings)
        self._layout: RecordingLayout = config
        if not config.chunk_s and not config.speed and not config.partial:  # parts are joined as they come
            self._layout = replace(config, chunk_s=CHUNK_S)
        self._contract = contract
        self._clock = clock or SystemClock()
        self._metrics = metrics
        self._refusals = Refusals(metrics)
        self._files: list[tuple[Path, str]] = []
        self._readings: Iterator[Reading] = iter(())
        self._next: Reading | None = None
        self._loop: Loop | None = None
        self._deliver: Deliver | None = None
        self._in_flight = 0
        self._waiting = False
        self._stopped = False
        self._timer: Timer | None = None
        self._due = 0.0
        self._newest = 0.0

    @property
    def finished(self) -> bool:
        """Every file was played to its end."""
        return self._loop is not None and self._next is None

    def open(self, loop: Loop, deliver: Deliver) -> None:
        """See `edge_runtime.io.sources.Source`.

        Raises:
            ConfigError: one of the files is missing or is no recording that fits the model; nothing is played then.
        """
        self._files = self._recordings or expand(self._config.files, self._config)
        for path, key in self._files:
            next(self._read(path, key, loop, Metrics(), _later), None)
        self._loop = loop
        self._deliver = deliver
        self._readings = self._all(loop)
        self._next = next(self._readings, None)
        self._due = self._clock.monotonic()
        self._newest = 0.0 if self._next is None else _end(self._next)
        self._schedule()

    def pause(self) -> None:
        """See `edge_runtime.io.sources.Source`."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def close(self) -> None:
        """See `edge_runtime.io.sources.Source`."""
        self.pause()
        self._readings = iter(())

    def _all(self, loop: Loop) -> Iterator[Reading]:
        files = [self._one(path, key, loop) for path, key in self._files]
        # Side by side, so that the channels of a key come at about the same time.
        return heapq.merge(*files, key=_start) if self._config.partial else chain.from_iterable(files)

    def _one(self, path: Path, key: str, loop: Loop) -> Iterator[Reading]:
        gave_none, refused = True, self._metrics.dropped.total()
        try:
            for reading in self._read(path, key, loop, self._metrics, self._refuse, self._on_labels):
                gave_none = False
                yield reading
        except ConfigError as error:  # it could be read when it was opened
            self._refuse(InputError("malformed", str(error)))
        if gave_none and (fresh := self._metrics.dropped.total() - refused):
            self._metrics.counts["recordings_unused_total"] += 1
            log.warning("recording: used no row: path=%s refused=%d", path, fresh)

    def _read(
        self,
        path: Path,
        key: str,
        loop: Loop,
        metrics: Metrics,
        refuse: Refused,
        on_labels: Labelled | None = None,
    ) -> Iterator[Reading]:
        if self._config.mqtt:
            from edge_runtime.io.sources.captured import captured_readings  # noqa: PLC0415 - and MQTT

            return captured_readings(path, self._config.mqtt, self._contract, metrics, loop, refuse)
        return iter_readings(path, self._contract, self._layout, key=key, on_refused=refuse, on_labels=on_labels)

    def _refuse(self, error: InputError) -> None:
        self._refusals(error, self.name)

    def _schedule(self) -> None:
        """Arrange for the next delivery: now, when it is due, or when one under way reports."""
        if self._stopped or self._next is None or self._loop is None:
            return
        if self._in_flight >= IN_FLIGHT:
            self._waiting = True
        else:
            self._waiting = False
            # A timer and not call_soon, so that pausing can take it back.
            self._timer = self._loop.call_later(max(0.0, self._due - self._clock.monotonic()), self._play)

    def _play(self) -> None:
        """Deliver what is due."""
        self._timer = None
        now = self._clock.monotonic()
        batch: list[Reading] = []
        samples = 0
        while self._next is not None and len(batch) < BATCH and samples < BATCH_SAMPLES and self._due <= now:
            batch.append(self._next)
            samples += len(self._next.values)
            self._advance()
        if batch and self._deliver is not None:
            self._in_flight += 1
            self._deliver(batch, now, self._done)
        self._schedule()

    def _advance(self) -> None:
        """Take the next reading, and work out when its last sample would have been taken."""
        self._next = next(self._readings, None)
        if self._next is None or not self._config.speed:
            return
        end = _end(self._next)
        if end > self._newest or end < self._newest - RESTART_S:
            self._due += max(0.0, end - self._newest) / self._config.speed
            self._newest = end

    def _done(self) -> None:
        self._in_flight -= 1
        if self._waiting:
            self._schedule()


def _start(reading: Reading) -> float:
    """Stamp of the first sample."""
    return reading.t if isinstance(reading.t, float) else float(reading.t[0])


def _end(reading: Reading) -> float:
    """Stamp of the last sample; of the first where there is one stamp alone, since all are equally late then."""
    return reading.t if isinstance(reading.t, float) else float(reading.t[-1])


def _later(_error: object) -> None:
    """Count what is wrong in a file when it is played; opening only looks at its head."""
