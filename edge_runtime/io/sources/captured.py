"""Captured MQTT messages, put through the very source that would have received them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path

from edge_runtime.base.system.loop import Loop
from edge_runtime.clock import SystemClock
from edge_runtime.errors import InputError
from edge_runtime.io.mqtt.packets import RETAIN, topic_matches
from edge_runtime.io.mqtt.routing import Receive
from edge_runtime.io.recordings.capture import Captured, iter_messages
from edge_runtime.io.recordings.layout import Refused
from edge_runtime.io.recordings.lines import is_undated
from edge_runtime.io.sources.arrival import ArrivalStamps
from edge_runtime.io.sources.mqtt import MqttSourceConfig, make_source
from edge_runtime.manifest import InputContract
from edge_runtime.metrics import Metrics
from edge_runtime.types import Done, Reading

UNDATED = "neither message nor line has a time; capture with mosquitto_sub -F '%U %t %p' or -F %j"


def captured_readings(
    path: Path,
    configs: Sequence[MqttSourceConfig],
    contract: InputContract,
    metrics: Metrics,
    loop: Loop,
    refuse: Refused,
) -> Iterator[Reading]:
    """Read a file of captured messages as the sources of an application would have.

    What a source refuses is counted as it is live.

    Args:
        path: see `edge_runtime.io.recordings.capture`.
        configs: the sources.
        contract: channels and rate of the model.
        metrics: counts messages and refusals.
        loop: the sources' own.
        refuse: called with lines that hold no message, and with messages without any stamp.

    Yields:
        Readings, in the order of the file.

    Raises:
        ConfigError: the file cannot be read, or a codec does not fit the model.
    """
    broker, clock, taken = _Broker(), _ArrivalClock(), list[Reading]()
    stamps = ArrivalStamps(contract)

    def take(readings: Sequence[Reading], received: float, done: Done | None) -> None:  # noqa: ARG001 - the protocol's
        taken.extend(readings)
        if done is not None:
            done()

    for i, config in enumerate(configs):
        make_source(config, broker, contract, metrics, clock, name=f"captured[{i}]").open(loop, take)
    for number, message in iter_messages(path, refuse):
        clock.arrived = message.received
        if not broker.receive(message):
            metrics.dropped["unexpected_topic"] += 1
        dated = [reading for reading in taken if not is_undated(reading)]
        for _ in range(len(taken) - len(dated)):
            refuse(InputError("bad_time", f"{path}: line {number}: {UNDATED}"))
        yield from stamps.stamp(dated, message.received)
        taken.clear()


class _Broker:
    """Stand-in for the client of a broker: hands captured messages to those who asked for their topics."""

    def __init__(self) -> None:
        self._asked: list[tuple[list[str], Receive]] = []

    def subscribe(self, filters: Sequence[tuple[str, int]], receive: Receive, _key_of: object = None) -> object:
        # A group that shares messages is not asked for: the file has what reached its own member.
        plain = [one.split("/", 2)[2] if one.startswith("$share/") else one for one, _ in filters]
        self._asked.append((plain, receive))
        return None

    def receive(self, message: Captured) -> bool:
        """Hand over a message to the first source that asked for it, as a client does; False if none did."""
        for filters, receive in self._asked:
            if any(topic_matches(one, message.topic) for one in filters):
                flags = RETAIN if message.retained else 0
                receive([(message.topic.encode(), message.payload, 0, 0, flags, None)], 0.0, None)
                return True
        return False

    def open(self, loop: Loop) -> None:
        """Do nothing: there is no broker."""

    def pause(self) -> None:
        """Do nothing, as `open`."""

    def close(self, timeout_s: float) -> None:
        """Do nothing, as `open`."""


class _ArrivalClock(SystemClock):
    """Clock whose wall time is that of the message that arrives; NaN where the file does not say."""

    def __init__(self) -> None:
        self.arrived = math.nan

    def wall(self) -> float:
        """See `Clock`."""
        return self.arrived
