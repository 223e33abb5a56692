"""Trial of a proposed table: the captured messages go through the very source and codec that `run` would use."""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from edge_runtime import schema
from edge_runtime.base.system.loop import Loop
from edge_runtime.clock import SimulatedClock
from edge_runtime.errors import ConfigError, InputError, one_line
from edge_runtime.io.mqtt.packets import RETAIN, Publish
from edge_runtime.io.recordings.capture import Captured
from edge_runtime.io.sources.arrival import ArrivalStamps, Turn
from edge_runtime.io.sources.build import SourceConfig, brings_parts, build_source
from edge_runtime.io.sources.decoding import Refusals
from edge_runtime.manifest import InputContract
from edge_runtime.metrics import Metrics
from edge_runtime.signal.windowing.config import WindowConfig
from edge_runtime.signal.windowing.join import windower_of
from edge_runtime.tools.listen.capture import Capture
from edge_runtime.types import Done, Reading

if TYPE_CHECKING:
    from edge_runtime.io.mqtt.client import BrokerClient
    from edge_runtime.io.mqtt.routing import Receive

logger = logging.getLogger(__name__)

START_S = 1_700_000_000.0
"""Arrival of the first message, where the capture has no times of arrival."""


@dataclass(slots=True)
class DraftTrial:
    """Outcome: samples, keys, windows and refusals."""

    messages: int = 0
    """Captured messages on topics that the table asks for."""
    samples: int = 0
    keys: dict[str, int] = field(default_factory=dict)
    """Samples by key."""
    windows: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    """By reason."""
    example: str = ""
    """The last refusal, in words."""
    problem: str = ""
    """Why the table is not accepted at all."""


class _Replay:
    """Stands for a broker's client: takes the subscription, and hands over captured messages."""

    def __init__(self) -> None:
        self.receive: Receive | None = None

    def subscribe(self, _filters: Sequence[tuple[str, int]], receive: Receive, _key_of: object = None) -> None:
        self.receive = receive

    def open(self, _loop: Loop) -> None:
        """Nothing to connect to."""

    def close(self, _timeout_s: float) -> None:
        """Nothing to close."""


def try_table(data: Sequence[Mapping[str, Any]], capture: Capture, contract: InputContract) -> DraftTrial:
    """Run the captured messages through sources, codecs and windower.

    Args:
        data: the ``[[source]]`` tables as a TOML reader gives them.
        capture: the messages.
        contract: the model's contract.
    """
    try:
        sources = schema.load(_Sources, {"source": data}).source
    except schema.SchemaError as error:
        return DraftTrial(problem=str(error))
    return try_sources(sources, capture, contract)


def try_sources(configs: Sequence[SourceConfig], capture: Capture, contract: InputContract) -> DraftTrial:
    """Run the captured messages as `try_table` does, through sources that are configured."""
    try:
        run = _Run(configs, contract)
    except ConfigError as error:
        return DraftTrial(problem=str(error))
    for message in capture.messages():
        run.deliver(message)
    return run.finish()


class _Run:
    """Sources without a broker, and the windower behind them.

    Raises:
        ConfigError: a source does not fit the contract.
    """

    def __init__(self, configs: Sequence[SourceConfig], contract: InputContract) -> None:
        self._trial = DraftTrial()
        self._metrics = Metrics()
        self._refuse = Refusals(self._metrics)
        self._clock = SimulatedClock(START_S)
        parts = any(map(brings_parts, configs))
        self._windower = windower_of(contract, WindowConfig(), self._metrics, parts=parts)
        self._turn = Turn(ArrivalStamps(contract), self._clock)
        self._receivers: list[Receive] = []
        loop = Loop()
        try:
            for config in configs:
                replay = _Replay()
                source = build_source(
                    config,
                    name="source",
                    contract=contract,
                    broker_clients={str(getattr(config, "broker", "")): cast("BrokerClient", replay)},
                    metrics=self._metrics,
                    clock=self._clock,
                    live=False,
                )
                source.open(loop, self._turn.into(self._deliver))
                if replay.receive is not None:
                    self._receivers.append(replay.receive)
        finally:
            loop.close()

    def _deliver(self, readings: Sequence[Reading], received: float, done: Done | None) -> None:
        trial = self._trial
        for reading in readings:
            trial.keys[reading.key] = trial.keys.get(reading.key, 0) + len(reading.values)
        trial.windows += len(self._windower.push(readings, received))
        if done is not None:
            done()

    def deliver(self, message: Captured) -> None:
        """Hand one message over, at the time at which it arrived."""
        if not math.isnan(message.received):
            passed = message.received - self._clock.wall()
            (self._clock.advance if passed > 0 else self._clock.jump)(passed)
        publish: Publish = (message.topic.encode(), message.payload, 0, 0, RETAIN * message.retained, None)
        for receive in self._receivers:
            try:
                receive([publish], self._clock.monotonic(), None)
            except Exception as error:  # no message ends a command
                logger.debug("listen: trying a message failed", exc_info=True)
                self._refuse(InputError("internal_error", f"{one_line(repr(error))}; please report it"))
        self._turn.end()

    def finish(self) -> DraftTrial:
        """Return what came of it."""
        trial, metrics = self._trial, self._metrics
        trial.windows += len(self._windower.flush())
        trial.messages = metrics.counts["messages_total"]
        trial.samples = sum(trial.keys.values())
        trial.refused = Counter(
            {reason: n for reason, n in metrics.dropped.items() if n and reason != "unexpected_topic"}
        )
        trial.example = next(iter(metrics.examples.values()), "")
        return trial


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sources:
    """Sources in a table, for the loader to choose their classes."""

    source: tuple[SourceConfig, ...]
