"""The MQTT source: keys from topics, decoding, acknowledgement when it is safe."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from edge_runtime import schema
from edge_runtime.clock import SimulatedClock
from edge_runtime.io.codecs.config import load_codec
from edge_runtime.io.codecs.json import JsonConfig
from edge_runtime.io.mqtt.client import BrokerClient
from edge_runtime.io.mqtt.outbound_queue import Message
from edge_runtime.io.sources.decoding import Decoder
from edge_runtime.io.sources.mqtt import MqttSource, MqttSourceConfig, key_of
from edge_runtime.manifest import Channel
from edge_runtime.metrics import Metrics
from edge_runtime.tools.demo.broker.broker import Broker
from edge_runtime.types import Reading
from tests.edge_runtime.io.mqtt.clients import Bench, messages, unique


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with Broker() as broker:
        yield broker.url


@pytest.fixture
def bench() -> Iterator[Bench]:
    with Bench() as running:
        yield running


def config(*topics: str, **options: Any) -> MqttSourceConfig:
    return MqttSourceConfig(broker="b", topics=topics, **options)


@pytest.mark.parametrize(
    ("topic_filter", "key", "topic", "expected"),
    [
        ("watch/+/imu", "wildcards", "watch/7/imu", "7"),
        ("site/+/+/raw", "wildcards", "site/a/b/raw", "a/b"),
        ("site/#", "wildcards", "site/a/b", "a/b"),
        ("site/#", "wildcards", "site", "site"),
        ("+/x/#", "wildcards", "a/x/b/c", "a/b/c"),
        ("plain/topic", "wildcards", "plain/topic", "plain/topic"),
        ("$share/g/watch/+/imu", "wildcards", "watch/7/imu", "7"),
        ("watch/#", "topic", "watch/ä/imu", "watch/ä/imu"),
        ("watch/#", "payload", "watch/7/imu", ""),
        ("watch/#", "{1}", "watch/7/imu", "7"),
        ("watch/#", "{-1}-{0}!", "watch/7/imu", "imu-watch!"),
        ("watch/#", "{1}", "watch", None),
        ("watch/#", "{-4}", "watch/7/imu", None),
        ("watch/+", "wildcards", "other/7", None),
        ("watch/+", "payload", "other/7", None),
    ],
)
def test_a_key_is_taken_from_the_topic(topic_filter: str, key: str, topic: str, expected: str | None) -> None:
    assert key_of(config(topic_filter, key=key))(topic.encode()) == expected


def test_the_first_filter_that_matches_gives_the_key() -> None:
    key = key_of(config("a/+/+", "a/b/#"))
    assert key(b"a/b/c") == "b/c"
    assert key(b"a/b/c/d") == "c/d"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"topics": []}, "at least one topic filter"),
        ({"topics": ["a/#/b"]}, "'a/#/b' cannot be subscribed to"),
        ({"topics": ["a"], "qos": 3}, "qos must be 0, 1 or 2"),
        ({"topics": ["a"], "topic_qos": {"a": 7}}, "qos must be 0, 1 or 2, got 7 for a"),
        ({"topics": ["a"], "topic_qos": {"b": 1}}, "names 'b', which is not among topics"),
        ({"topics": ["a"], "key": "level 1"}, "key must be"),
        ({"topics": ["a"], "key": "{x}"}, "key must be"),
        ({"topics": ["a"], "key": "{1}{"}, "key must be"),
        ({"topics": ["$share/g/a"], "share": "h"}, "without \\$share/"),
        ({"topics": ["a"], "share": "x/y"}, "plain group name"),
        ({"topics": ["a"], "share": "+"}, "cannot be subscribed to"),
    ],
)
def test_nonsense_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(schema.SchemaError, match=message):
        schema.load(MqttSourceConfig, {"type": "mqtt", "broker": "b", **settings})


def test_filters_carry_group_and_qos() -> None:
    one = config("a/+", "b/#", qos=1, topic_qos={"b/#": 2}, share="workers")
    assert one.filters() == [("$share/workers/a/+", 1), ("$share/workers/b/#", 2)]


class Pipeline:
    """Takes readings; `safe` finishes what was delivered."""

    def __init__(self) -> None:
        self.readings: list[Reading] = []
        self.owed: list[Callable[[], None]] = []

    def __call__(self, readings: Sequence[Reading], received: float, done: Callable[[], None] | None) -> None:
        self.readings += readings
        if done is not None:
            self.owed.append(done)

    def safe(self) -> None:
        owed, self.owed = self.owed, []
        for done in owed:
            done()


def open_source(
    bench: Bench, url: str, of: MqttSourceConfig, **options: Any
) -> tuple[MqttSource, Pipeline, BrokerClient]:
    broker_client = bench.broker_client(url, **options)
    codec = load_codec(JsonConfig(), [Channel(name="x", unit="m/s2")])
    source = MqttSource(of, broker_client, Decoder(codec, bench.metrics), bench.metrics)
    pipeline = Pipeline()
    source.open(bench.loop, pipeline)
    bench.until(lambda: broker_client.connected and not broker_client._subscribing)
    return source, pipeline, broker_client


def test_readings_are_acknowledged_when_the_pipeline_is_done(bench: Bench, url: str) -> None:
    root = unique("source")
    source, pipeline, broker_client = open_source(bench, url, config(f"{root}/+/imu"))
    payload = b'{"t": 12.5, "values": [[1.0], [2.0]]}'
    sender = bench.connected(url)
    sender.publish([Message(f"{root}/{i % 3}/imu".encode(), payload, b"", 1) for i in range(9)])
    bench.until(lambda: len(pipeline.readings) == 9)
    assert [reading.key for reading in pipeline.readings] == [str(i % 3) for i in range(9)]
    assert pipeline.readings[0].values.tolist() == [[1.0], [2.0]]
    bench.turns(0.05)
    assert broker_client._inbound_queue.inbound_acks.unacked == 9
    pipeline.safe()
    bench.turns(0.02)
    assert broker_client._inbound_queue.inbound_acks.unacked == 0
    assert not source.finished


def test_what_cannot_be_read_is_counted_and_acknowledged(bench: Bench, url: str) -> None:
    root = unique("poison")
    _, pipeline, broker_client = open_source(bench, url, config(f"{root}/#", key="{2}"))
    sender = bench.connected(url)
    sender.publish(
        [
            Message(f"{root}/a/1".encode(), b"not json", b"", 1),
            Message(f"{root}/a/2".encode(), b'{"t": 1, "values": [[NaN]]}', b"", 1),
            Message(f"{root}/short".encode(), b'{"t": 1, "values": [[1]]}', b"", 1),
            Message(f"{root}/a/3".encode(), b'{"t": 1, "values": [[1]]}', b"", 1),
        ]
    )
    bench.until(lambda: pipeline.readings)
    assert [reading.key for reading in pipeline.readings] == ["3"]
    pipeline.safe()
    bench.until(lambda: broker_client._inbound_queue.inbound_acks.unacked == 0)
    assert bench.metrics.dropped == {"not_a_number": 1, "not_finite": 1, "unexpected_topic": 1}
    assert bench.metrics.counts["messages_total"] == 3


def test_a_message_of_an_old_subscription_is_counted_as_unexpected(bench: Bench, url: str) -> None:
    root, client_id = unique("changed"), unique("worker")
    with Bench() as before:
        open_source(before, url, config(f"{root}/old"), client_id=client_id)
    sender = bench.connected(url)
    sender.publish(messages(3, 1, f"{root}/old".encode()))
    bench.turns(0.05)
    _, pipeline, broker_client = open_source(bench, url, config(f"{root}/new"), client_id=client_id)
    bench.until(lambda: bench.metrics.dropped["unexpected_topic"] == 3)
    bench.until(lambda: broker_client._inbound_queue.inbound_acks.unacked == 0)
    assert not pipeline.readings


def test_pausing_and_closing_are_safe_to_repeat(bench: Bench, url: str) -> None:
    source, _, broker_client = open_source(bench, url, config(unique("closing")))
    source.pause()
    source.pause()
    source.close()
    source.close()
    assert broker_client.connected, "another user, the test's bench, still holds it"
    broker_client.close(0)
    assert not broker_client.connected


def test_plain_messages_cost_the_calls_they_always_cost() -> None:
    """From the client to the codec: nothing was added for retained messages and topics of channels."""

    class Client:
        def subscribe(self, _filters: Any, receive: Any, _key_of: Any = None) -> None:
            self.receive = receive

        def open(self, _loop: Any) -> None: ...

        def pause(self) -> None: ...

        def close(self, _timeout_s: float) -> None: ...

    client, metrics = Client(), Metrics()
    codec = load_codec(JsonConfig(), [Channel(name="x", unit="m/s2")])
    source = MqttSource(
        config("a/+"), client, Decoder(codec, metrics, SimulatedClock()), metrics, clock=SimulatedClock()
    )
    source.open(None, lambda *_: None)  # type: ignore[arg-type]
    publishes = [(b"a/1", b'{"t": 12.5, "values": [[1.0], [2.0]]}', 0, 0, 0, None)] * 2
    client.receive(publishes, 0.0, None)
    seen: list[str] = []
    sys.setprofile(lambda frame, event, _: seen.append(frame.f_code.co_name) if event == "call" else None)
    try:
        client.receive(publishes, 0.0, None)
    finally:
        sys.setprofile(None)
    around = [name for name in seen[: seen.index("decode")] if not name.startswith("<")]
    assert around == ["_receive", "wall", "__call__", "monotonic", "_one_by_one"]
