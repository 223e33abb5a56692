"""The MQTT sink: topics, properties, and when answers count as handed over."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, replace
from functools import partial
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_runtime import schema
from edge_runtime.io.mqtt.outbound_queue import Message
from edge_runtime.io.mqtt.packets import PUBLISH, decode_properties, validate_topic_name
from edge_runtime.io.sinks.mqtt import MqttSink, MqttSinkConfig
from edge_runtime.metrics import Metrics
from edge_runtime.tools.demo.broker.broker import Broker
from edge_runtime.types import Answer, Correction, Done, FinalAnswer, Prediction
from tests.edge_runtime.io.mqtt.clients import Bench, Inbox, ScriptedBroker, unique
from tests.edge_runtime.io.sinks.answers import event

PREDICTION = Prediction(
    id="0123456789abcdef",
    key="watch-7",
    start=1.0,
    end=3.0,
    label="shrug",
    confidence=0.9,
    scores=[0.9, 0.1],
    route="local",
    hard=False,
    model="exercise-watch/3",
    variant="int8",
    latency_ms=0.4,
)
CORRECTION = Correction(**{**asdict(PREDICTION), "route": "cloud", "variant": "cloud"}, supersedes="rest", late=False)


class Recorder:
    """Stands in for a client: keeps what is published."""

    version = 5

    def __init__(self) -> None:
        self.messages: list[Message] = []

    def publish(self, messages: list[Message], done: Done | None, dropped: object) -> None:
        self.messages += messages
        if done is not None:
            done()


def published(config: MqttSinkConfig, *answers: Answer, metrics: Metrics | None = None) -> list[Message]:
    recorder: Any = Recorder()
    MqttSink(config, recorder, metrics or Metrics()).send(answers, None)
    messages: list[Message] = recorder.messages
    return messages


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with Broker() as broker:
        yield broker.url


@pytest.fixture
def bench() -> Iterator[Bench]:
    with Bench() as running:
        yield running


@pytest.mark.parametrize(
    ("template", "topic"),
    [
        ("edge/{key}/prediction", b"edge/watch-7/prediction"),
        ("{model}/{variant}/{route}/{label}/{key}", b"exercise-watch/3/int8/local/shrug/watch-7"),
        ("fixed/topic", b"fixed/topic"),
    ],
)
def test_topics_are_templates(template: str, topic: bytes) -> None:
    message = published(MqttSinkConfig(broker="b", topic=template, qos=2, retain=True), PREDICTION)[0]
    assert (message.topic, message.qos, message.retain) == (topic, 2, True)
    assert orjson.loads(message.payload) == orjson.loads(PREDICTION.to_json())


def test_corrections_may_go_elsewhere() -> None:
    config = MqttSinkConfig(broker="b", topic="p/{key}", corrections_topic="c/{key}/{label}")
    assert [message.topic for message in published(config, PREDICTION, CORRECTION)] == [
        b"p/watch-7",
        b"c/watch-7/shrug",
    ]
    config = MqttSinkConfig(broker="b", topic="p/{key}")
    assert [message.topic for message in published(config, PREDICTION, CORRECTION)] == [b"p/watch-7"] * 2


def test_final_messages_go_where_the_correction_would_have_gone() -> None:
    fields = orjson.loads(PREDICTION.to_json()) | {"hard": True}
    final = FinalAnswer(**fields, final=True, reason="expired")
    config = MqttSinkConfig(broker="b", topic="p/{key}", corrections_topic="c/{key}")
    (message,) = published(config, final)
    assert message.topic == b"c/watch-7"
    assert orjson.loads(message.payload) == fields | {"final": True, "reason": "expired"}


@pytest.mark.parametrize(
    ("settings", "topic"),
    [
        ({}, b"edge/watch-7/event"),
        ({"topic": "home/{key}/{variant}/{label}"}, b"home/watch-7/event"),
        ({"topic": "answers"}, b"event"),
        ({"events_topic": "{key}/{event}/{kind}"}, b"watch-7/fall/end"),
    ],
)
def test_events_have_a_topic_of_their_own(settings: dict[str, str], topic: bytes) -> None:
    config = MqttSinkConfig(broker="b", **settings)  # type: ignore[arg-type]
    (message,) = published(config, event(1, key="watch-7", kind="end", end=3.0, reason="off"))
    assert message.topic == topic
    assert orjson.loads(message.payload)["id"] == "k@1/fall"


def test_events_alone_are_published_where_that_is_asked_for() -> None:
    config = MqttSinkConfig(broker="b", only="events")
    (message,) = published(config, PREDICTION, event(1, key="watch-7", kind="end", end=3.0, reason="off"), PREDICTION)
    assert message.topic == b"edge/watch-7/event"
    assert published(config, PREDICTION) == []
    done: list[str] = []
    recorder: Any = Recorder()
    MqttSink(config, recorder, Metrics()).send([PREDICTION], lambda: done.append("safe"))
    assert done == ["safe"]


@pytest.mark.parametrize(
    ("key", "topic"),
    [
        ("a+b#c\0d", b"p/a%2Bb%23c%00d"),
        ("", b"p/%"),
        ("%", b"p/%25"),
        ("a/b", b"p/a%2Fb"),
        ("w1/prediction/evil", b"p/w1%2Fprediction%2Fevil"),
        ("x/../../y", b"p/x%2F..%2F..%2Fy"),
        ("..", b"p/%2E%2E"),
        (".", b"p/%2E"),
        ("...", b"p/..."),
        ("Küche 3", "p/Küche 3".encode()),
        ("\x7f\u0085\ufffe\U0010ffff", b"p/%7F%C2%85%EF%BF%BE%F4%8F%BF%BF"),
        ("\ud800", b"p/%ED%A0%80"),
    ],
)
def test_a_key_is_one_level_of_a_topic(key: str, topic: bytes) -> None:
    metrics = Metrics()
    recorder: Any = Recorder()
    sink = MqttSink(MqttSinkConfig(broker="b", topic="p/{key}"), recorder, metrics)
    assert sink._topic(replace(PREDICTION, key=key)) == topic
    assert metrics.counts["topics_sanitised_total"] == (topic != b"p/" + key.encode("utf-8", "surrogatepass"))


KEYS = st.one_of(
    st.text(max_size=12),  # lone surrogates, too: no codec lets one through, and the sink does not rely on it
    st.text("%+#/.$~02B\0\x01ab", max_size=6),
)


@given(
    st.lists(KEYS, min_size=2, max_size=8, unique=True),
    st.sampled_from(["{key}", "{key}/{key}", "edge/{key}/prediction", "x{key}"]),
)
def test_different_keys_have_different_topics_of_the_template_s_own_depth(keys: list[str], template: str) -> None:
    recorder: Any = Recorder()
    sink = MqttSink(MqttSinkConfig(broker="b", topic=template), recorder, Metrics())
    topics = [sink._topic(replace(PREDICTION, key=key)) for key in keys]
    assert len(set(topics)) == len(keys)
    for topic in topics:
        assert validate_topic_name(topic) == topic
        assert topic.count(b"/") == template.count("/")
        assert not topic.startswith(b"$")


@pytest.mark.parametrize("character", ["ä", "/", "\U0010ffff"])
def test_a_key_that_is_far_too_long_is_shortened_and_still_its_own(character: str) -> None:
    recorder: Any = Recorder()
    sink = MqttSink(MqttSinkConfig(broker="b", topic="x{key}/y"), recorder, Metrics())
    keys = [character * 70_000, character * 70_001, character * 64]
    keys.append(f"{character * 64}%~" + "0" * 64)
    topics = {sink._topic(replace(PREDICTION, key=key)) for key in keys}
    assert len(topics) == len(keys)
    assert all(validate_topic_name(topic) and topic.count(b"/") == 1 for topic in topics)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"topic": ""}, "is not empty"),
        ({"topic": "a/+"}, "no wildcards"),
        ({"topic": "a" * 65_000 + "{key}"}, "at most 65,535 bytes"),
        ({"topic": "{key"}, "topic '{key'"),
        ({"topic": "{keys}"}, "knows only {key}"),
        ({"topic": "{key!r}"}, "knows only"),
        ({"topic": "$SYS/x"}, "does not begin with"),
        ({"corrections_topic": "{id}"}, "corrections_topic"),
        ({"events_topic": "{variant}"}, "events_topic.*knows only {key}, {event}"),
        ({"qos": 3}, "qos must be"),
    ],
)
def test_nonsense_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(schema.SchemaError, match=message):
        schema.load(MqttSinkConfig, {"type": "mqtt", "broker": "b", **settings})


def test_mqtt_5_carries_the_prediction_beside_the_payload() -> None:
    message = published(MqttSinkConfig(broker="b"), PREDICTION)[0]
    assert decode_properties(message.properties, PUBLISH) == {
        "correlation_data": b"0123456789abcdef",
        "user_properties": [("id", "0123456789abcdef"), ("route", "local"), ("model", "exercise-watch/3")],
    }
    assert published(MqttSinkConfig(broker="b", properties=False), PREDICTION)[0].properties == b""


@pytest.mark.parametrize("protocol", ["3.1.1", "5"])
def test_answers_arrive_as_published(bench: Bench, url: str, protocol: str) -> None:
    inbox, topic = Inbox(), unique("answers")
    bench.connected(url, inbox, (f"{topic}/+", 1))
    broker_client = bench.broker_client(url, protocol=protocol)
    sink = MqttSink(MqttSinkConfig(broker="b", topic=topic + "/{key}"), broker_client, bench.metrics)
    sink.open(bench.loop)
    handed_over: list[bool] = []
    sink.send([PREDICTION, CORRECTION], lambda: handed_over.append(True))
    bench.until(lambda: len(inbox.got) == 2 and handed_over)
    assert [orjson.loads(one)["route"] for one in inbox.payloads] == ["local", "cloud"]
    assert (inbox.got[0][5] is None) == (protocol == "3.1.1")
    sink.close(1)
    sink.close(1)


def test_answers_are_handed_over_when_the_broker_acknowledges(bench: Bench) -> None:
    with ScriptedBroker(bench) as broker:
        broker_client = bench.broker_client(broker.url, protocol="3.1.1")
        broker.welcome(subscribe=False)
        for qos in (0, 1):
            sink = MqttSink(MqttSinkConfig(broker="b", topic="t", qos=qos), broker_client, bench.metrics)
            handed_over: list[bool] = []
            sink.send([PREDICTION, PREDICTION], partial(handed_over.append, True))
            packets = broker.wait(2)
            bench.turns(0.03)
            if qos:
                assert not handed_over
                broker.send(b"".join(b"\x40\x02" + one[2].to_bytes(2, "big") for one in packets))
                bench.until(handed_over.copy)
            assert handed_over == [True]
