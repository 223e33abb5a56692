"""Order within a key, from the broker's queue to the windows: reads, sources, topics and QoS change no window."""

from __future__ import annotations

import math
from collections.abc import Sequence

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_runtime.base.system.loop import Loop
from edge_runtime.clock import SimulatedClock
from edge_runtime.io.codecs.json import JsonConfig
from edge_runtime.io.mqtt.config import BrokerConfig
from edge_runtime.io.mqtt.inbound_queue import InboundQueue
from edge_runtime.io.mqtt.packets import Publish
from edge_runtime.io.mqtt.routing import KeyOf, Receive, Router, Subscription
from edge_runtime.io.sources.mqtt import MqttSourceConfig, make_source
from edge_runtime.manifest import Channel, InputContract
from edge_runtime.metrics import Metrics
from edge_runtime.signal.windowing.config import WindowConfig
from edge_runtime.signal.windowing.join import windower_of
from edge_runtime.types import Done, Reading

CONTRACT = InputContract(
    channels=(Channel(name="ax", unit="1"), Channel(name="ay", unit="1")), rate_hz=10.0, window=10, hop=10
)
TOPICS = {"ax": "s/+/acc", "ay": "s/+/gyr"}
KEYS = ("k1", "k2", "k3")
Windows = set[tuple[str, bytes]]


def sources(form: str) -> list[MqttSourceConfig]:
    """One source with a topic for each channel, two that meet by a level, or two whose messages name the key."""
    if form == "one":
        codec = JsonConfig(channels={"ax": "x", "ay": "x"})
        return [MqttSourceConfig(broker="b", channels=TOPICS, key="{1}", codec=codec)]
    return [
        MqttSourceConfig(
            broker="b",
            topics=(topic,),
            key="payload" if form == "payload" else "{1}",
            codec=JsonConfig(channels={name: "x"}, partial=True),
        )
        for name, topic in TOPICS.items()
    ]


class Client:
    """What lies between a broker's socket and the windows."""

    def __init__(self, form: str) -> None:
        self.metrics = Metrics()
        self.windows: Windows = set()
        self.router = Router(self.metrics)
        self.queue = InboundQueue(BrokerConfig(url="mqtt://127.0.0.1"), "b", self.router, self.metrics)
        self.queue.begin(session_present=False, linger_s=0.0)
        self.windower = windower_of(CONTRACT, WindowConfig(parts=True, wait_s=1.5), self.metrics)
        loop = Loop()
        for config in sources(form):
            source = make_source(config, self, CONTRACT, self.metrics, SimulatedClock(), name="source")
            source.open(loop, self.deliver)
        loop.close()

    def subscribe(self, filters: Sequence[tuple[str, int]], receive: Receive, key_of: KeyOf | None = None) -> None:
        self.router.add(Subscription(filters, receive, key_of))

    def open(self, loop: Loop) -> None: ...

    def pause(self) -> None: ...

    def close(self, timeout_s: float) -> None: ...

    def deliver(self, readings: Sequence[Reading], received: float, done: Done | None) -> None:
        self.windows |= {(one.id, one.samples.tobytes()) for one in self.windower.push(readings, received)}
        if done is not None:
            done()

    def drain(self) -> Windows:
        while self.queue.can_release:
            self.queue.release()
        assert not self.metrics.dropped
        return self.windows


def stream(qos: Sequence[int]) -> list[Publish]:
    """Ten seconds of three devices: a block of acceleration, then the same time of rotation in two messages."""
    messages = []
    for second in range(10):
        for key in KEYS:
            for topic, per, number in (("acc", 10, second), ("gyr", 5, 2 * second), ("gyr", 5, 2 * second + 1)):
                for i in range(per * number, per * (number + 1)):
                    document = {"key": key, "t": 1.8e9 + i / 10, "x": math.sin(i)}
                    messages.append((f"s/{key}/{topic}".encode(), orjson.dumps(document)))
    return [(*one, i + 1, qos[i % len(qos)], 0, None) for i, one in enumerate(messages)]


@pytest.mark.slow
@settings(max_examples=30)
@given(
    st.sampled_from(["one", "two", "payload"]),
    st.lists(st.integers(0, 2), min_size=1, max_size=7),
    st.lists(st.tuples(st.integers(1, 200), st.booleans()), min_size=1, max_size=40),
)
def test_reads_sources_and_qos_change_no_window(form: str, qos: list[int], reads: list[tuple[int, bool]]) -> None:
    """`reads`: how many messages come together, and whether a part of the queue is handed over behind them.

    Mutations: a read handed over source by source; a fair queue that takes turns by topic; QoS 1 before waiting QoS 0.
    """
    messages = stream(qos)
    alone = Client("one")
    for message in messages:
        alone.queue.put([message])
    expected = alone.drain()
    assert len(expected) >= 9 * len(KEYS)
    client, begin = Client(form), 0
    for size, releases in [*reads, (len(messages), True)]:
        if messages[begin : begin + size]:
            client.queue.put(messages[begin : begin + size])
        if releases:
            client.queue.release()
        begin += size
    assert client.drain() == expected
