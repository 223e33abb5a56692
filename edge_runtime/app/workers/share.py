"""Share: the part of all keys that belongs to one process; messages of other keys are dropped before they are decoded.

Every worker subscribes to all topics. A shared subscription of MQTT (``$share``) would hand each message to one of them
only, but not all messages of a key to the same one, and windows need that.

Source: J. Lamping and E. Veach, "A Fast, Minimal Memory, Consistent Hash Algorithm", 2014 (arXiv:1406.2294).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

from edge_runtime.io.sources import Deliver
from edge_runtime.metrics import Metrics
from edge_runtime.types import Done, Reading

if TYPE_CHECKING:
    from edge_runtime.base.system.loop import Loop
    from edge_runtime.io.mqtt.packets import Publish
    from edge_runtime.io.mqtt.routing import KeyOf, Receive
    from edge_runtime.io.sources.build import SourceConfig
    from edge_runtime.io.sources.mqtt import BrokerSubscriber, MqttSourceConfig

MOST: Final = 256
"""Most workers, and most machines."""

FOREIGN: Final = "foreign_messages_total"
"""Counter of messages and readings that belong to another worker or machine."""

_TOPICS: Final = 65_536
"""Topics whose owner is remembered."""


def part_of(key: str, parts: int, level: bytes) -> int:
    """Return the part that a key belongs to, from 0; with one part more, only the keys of the new part move.

    Args:
        key: a reading's key.
        parts: number of them, at least 1.
        level: parts of different levels are independent of each other.
    """
    if parts == 1:
        return 0
    number = int.from_bytes(blake2b(key.encode("utf-8", "surrogatepass"), digest_size=8, person=level).digest(), "big")
    part, candidate = 0, 0
    while candidate < parts:
        part = candidate
        number = (number * 2862933555777941757 + 1) & 0xFFFF_FFFF_FFFF_FFFF
        candidate = int((part + 1) * (2**31 / ((number >> 33) + 1)))
    return part


@dataclass(frozen=True, slots=True)
class Share:
    """Share of one worker of one machine; counted from 1, as people do."""

    worker: int = 1
    workers: int = 1
    machine: int = 1
    machines: int = 1

    @property
    def everything(self) -> bool:
        """Every key belongs to it."""
        return self.workers == self.machines == 1

    def owns(self, key: str) -> bool:
        """Return whether a key belongs to it. Two levels, so that machines may have different numbers of workers."""
        return (
            part_of(key, self.machines, b"key/machine") == self.machine - 1
            and part_of(key, self.workers, b"key/worker") == self.worker - 1
        )


def parse_machine(text: str) -> tuple[int, int]:
    """Read ``2/3``, the second of three machines; empty is the only one.

    Raises:
        ValueError: says what it must look like.
    """
    if not text:
        return 1, 1
    found = re.fullmatch(r"(\d{1,3})/(\d{1,3})", text, re.ASCII)
    if found is None or not 1 <= int(found[1]) <= int(found[2]) <= MOST:
        raise ValueError(f"machine must be like '2/3', the second of three machines (at most {MOST}), got '{text}'")
    return int(found[1]), int(found[2])


class OwnTopics:
    """Broker of a source that is handed the messages of its own keys alone.

    A key that the topic names decides before anything is decoded. A foreign message is acknowledged with those that
    arrived with it, in the order of receipt, as MQTT wants it.

    Args:
        broker: the broker's client.
        config: the source's settings.
        share: keys that are this process's own.
        metrics: counts `FOREIGN`.
    """

    def __init__(self, broker: BrokerSubscriber, config: MqttSourceConfig, share: Share, metrics: Metrics) -> None:
        from edge_runtime.io.mqtt.recent import Recent  # noqa: PLC0415 - MQTT, only where it is used
        from edge_runtime.io.sources.mqtt import key_of  # noqa: PLC0415 - as above

        key = key_of(config)
        self._broker = broker
        self._metrics = metrics
        # A topic without a key is refused by its source: by one worker, so that it is counted once.
        self._own: Recent[bytes, bool] = Recent(
            lambda topic: share.owns(topic.decode() if (found := key(topic)) is None else found), _TOPICS
        )

    def subscribe(self, filters: Sequence[tuple[str, int]], receive: Receive, key_of: KeyOf | None = None) -> object:
        """See `edge_runtime.io.mqtt.client.BrokerClient.subscribe`."""
        return self._broker.subscribe(filters, partial(self._receive, receive), key_of)

    def open(self, loop: Loop) -> None:
        """See `edge_runtime.io.mqtt.client.BrokerClient.open`."""
        self._broker.open(loop)

    def pause(self) -> None:
        """See `edge_runtime.io.mqtt.client.BrokerClient.pause`."""
        self._broker.pause()

    def close(self, timeout_s: float) -> None:
        """See `edge_runtime.io.mqtt.client.BrokerClient.close`."""
        self._broker.close(timeout_s)

    def _receive(self, receive: Receive, publishes: list[Publish], received: float, done: Done | None) -> None:
        own = self._own
        kept = [publish for publish in publishes if own[publish[0]]]
        self._metrics.counts[FOREIGN] += len(publishes) - len(kept)
        if kept:
            receive(kept, received, done)
        elif done is not None:
            done()


def by_topic(config: MqttSourceConfig) -> bool:
    """Return whether topics name the keys of a source, so that a message need not be decoded to know whose it is."""
    return config.key != "payload"


def own_readings(deliver: Deliver, config: SourceConfig | None, share: Share, metrics: Metrics) -> Deliver:
    """Return what an MQTT source delivers to whose messages name the key: it passes on the readings of own keys alone.

    Args:
        deliver: takes them.
        config: the source's settings; None: an object of the caller's own. Only an MQTT source is shared.
        share: keys that are this process's own.
        metrics: counts `FOREIGN`.
    """
    if share.everything or config is None or config.type != "mqtt" or by_topic(config):
        return deliver

    def passed(readings: Sequence[Reading], received: float, done: Done | None) -> None:
        own = [reading for reading in readings if share.owns(reading.key)]
        metrics.counts[FOREIGN] += len(readings) - len(own)
        if own:
            deliver(own, received, done)
        elif done is not None:
            done()

    return passed
