"""Both sides of a broker: a sensor that publishes numbered readings, and a device that answers each of them."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

from edge_runtime.base.system.loop import Loop
from edge_runtime.base.system.retry import Retry
from edge_runtime.io.mqtt.client import BrokerClient
from edge_runtime.io.mqtt.config import BrokerConfig
from edge_runtime.io.mqtt.outbound_queue import Message
from edge_runtime.io.mqtt.packets import Publish
from edge_runtime.metrics import Metrics
from edge_runtime.types import Done
from tests.edge_runtime.io.mqtt.clients import Inbox
from tests.faults.oracle import History


def turn(loop: Loop, seconds: float) -> None:
    """Let the loop run for a while."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        loop.iterate(0.002)


def until(loop: Loop, condition: Callable[[], object], what: Callable[[], object] = str, seconds: float = 60.0) -> None:
    """Let the loop run until something is so."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"it did not come about: {what()}"
        loop.iterate(0.005)


class Sensor:
    """Publishes numbered readings, and reads the answers, on another broker if told to; on the loop of the device."""

    def __init__(self, url: str, loop: Loop, *, answers_url: str = "", retry: Retry | None = None) -> None:
        self.answers = Inbox()
        self.broker_client = BrokerClient(BrokerConfig(url=url, client_id="sensor"), "sensor", Metrics(), retry=retry)
        self.reader = self.broker_client
        if answers_url:
            config = BrokerConfig(url=answers_url, client_id="reader")
            self.reader = BrokerClient(config, "reader", Metrics(), retry=retry)
            self.reader.open(loop)
        self.reader.subscribe([("answers/#", 1)], self.answers)
        self.broker_client.open(loop, publish_qos=1)
        self.sent = 0

    @property
    def connected(self) -> bool:
        """To both brokers, and the subscription is granted."""
        return self.broker_client.connected and self.reader.connected and not self.reader._subscribing

    def close(self) -> None:
        for broker_client in {self.broker_client, self.reader}:
            broker_client.close(0.5)

    def publish(self, count: int) -> None:
        for _ in range(count):
            self.broker_client.publish([Message(b"readings/x", b"%d" % self.sent, b"", 1)])
            self.sent += 1


class Answering:
    """A device as the pipeline is one: a reading is acknowledged when the broker has its answer, and answered once."""

    def __init__(self, broker_client: BrokerClient, history: History) -> None:
        self._broker_client = broker_client
        self._history = history
        self._waiting: dict[bytes, list[Done]] = {}
        self._safe: set[bytes] = set()
        self.seen: set[bytes] = set()

    @property
    def unanswered(self) -> list[bytes]:
        """Readings whose answers are under way."""
        return sorted(self._waiting)

    def take(self, publishes: list[Publish], _received: float, done: Done | None) -> None:
        """As a source does; `done` when all of these are safe."""
        payloads = {payload for _, payload, *_ in publishes}
        self.seen |= payloads
        left = payloads - self._safe

        def one_is_safe(payload: bytes) -> None:
            left.discard(payload)
            if not left and done is not None:
                done()

        if not left and done is not None:
            done()
        for payload in list(left):
            waiting = self._waiting.setdefault(payload, [])
            waiting.append(partial(one_is_safe, payload))
            if len(waiting) == 1:
                self._history.attempt(payload.decode(), payload)
                self._broker_client.publish([Message(b"answers/x", payload, b"", 1)], partial(self._saved, payload))

    def _saved(self, payload: bytes) -> None:
        self._safe.add(payload)
        self._history.acknowledge(payload.decode())
        for done in self._waiting.pop(payload):
            done()
