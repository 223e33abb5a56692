"""The client against real mosquitto and the embedded broker: what it promises to those who use it."""

from __future__ import annotations

import json
import logging
import os
import random
import select
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from edge_runtime.io.mqtt import batched
from edge_runtime.io.mqtt.outbound_queue import FIRST_PACKET_ID, Message
from edge_runtime.io.mqtt.packets import (
    PUBREC,
    V5,
    V311,
    decode_properties,
    encode_message_properties,
    encode_properties,
    encode_publish,
)
from edge_runtime.io.mqtt.parser import PacketParser
from edge_runtime.tools.demo.broker.broker import Broker
from tests.edge_runtime.io.mqtt.clients import (
    WAIT_S,
    Bench,
    Inbox,
    ScriptedBroker,
    messages,
    numbers,
    pull_the_plug,
    unique,
)
from tests.edge_runtime.io.mqtt.users import Wire
from tests.edge_runtime.io.mqtt.websocket_bridge import WebsocketBridge
from tests.mosquitto import Mosquitto, free_port, needs_mosquitto

protocols = pytest.mark.parametrize("protocol", ["3.1.1", "5"])
receives = pytest.mark.parametrize("receive", ["batched", "paho"])
each_qos = pytest.mark.parametrize("qos", [0, 1, 2])


@pytest.fixture(params=["embedded", pytest.param("mosquitto", marks=needs_mosquitto)], scope="module")
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    running: Any = Mosquitto() if request.param == "mosquitto" else Broker()
    with running:
        yield running.url


@protocols
@receives
@each_qos
def test_messages_come_complete_and_in_order(url: str, bench: Bench, protocol: str, receive: str, qos: int) -> None:
    inbox, topic = Inbox(), unique("order")
    broker_client = bench.connected(url, inbox, (f"{topic}/+", qos), protocol=protocol, receive=receive)
    handed_over: list[bool] = []
    broker_client.publish(messages(600, qos, f"{topic}/x".encode(), size=100), lambda: handed_over.append(True))
    bench.until(lambda: len(inbox.got) == 600 and handed_over)
    assert numbers(inbox.payloads) == list(range(600))
    assert {publish[3] for publish in inbox.got} == {qos}
    assert handed_over == [True]
    assert broker_client.version == (V5 if protocol == "5" else V311)


@each_qos
@protocols
def test_both_ways_of_receiving_give_the_same_messages(url: str, bench: Bench, protocol: str, qos: int) -> None:
    ours, theirs, topic = Inbox(), Inbox(), unique("parity")
    bench.connected(url, ours, (f"{topic}/#", qos), protocol=protocol)
    bench.connected(url, theirs, (f"{topic}/#", qos), protocol=protocol, receive="paho")
    sender = bench.connected(url, protocol=protocol)
    sizes = [0, 1, 126, 127, 128, 16_380, 16_384, 70_000]
    sent = [Message(f"{topic}/{i % 5}/ü".encode(), bytes([i]) * sizes[i % len(sizes)], b"", qos) for i in range(80)]
    sender.publish(sent)
    bench.until(lambda: len(ours.got) == len(theirs.got) == len(sent))
    assert [publish[:2] for publish in ours.got] == [(one.topic, one.payload) for one in sent]
    assert [(*publish[:2], publish[3], publish[4]) for publish in ours.got] == [
        (*publish[:2], publish[3], publish[4]) for publish in theirs.got
    ]


@protocols
@pytest.mark.parametrize(("receive", "qos"), [("batched", 1), ("batched", 2), ("paho", 1)])
def test_what_was_not_done_comes_again(url: str, bench: Bench, protocol: str, receive: str, qos: int) -> None:
    inbox, topic = Inbox(ack=False), unique("again")
    options: dict[str, Any] = {"client_id": unique("keeper"), "protocol": protocol, "receive": receive}
    broker_client = bench.connected(url, inbox, (topic, qos), **options)
    sender = bench.connected(url, protocol=protocol)
    sender.publish(messages(10, qos, topic.encode()))
    bench.until(lambda: len(inbox.got) == 10)
    pull_the_plug(broker_client)
    bench.until(lambda: not broker_client.connected)
    assert len(inbox.got) == 10
    bench.until(lambda: broker_client.connected)
    if qos == 1:
        bench.until(lambda: len(inbox.got) == 20)
        assert sorted(numbers(inbox.payloads[10:])) == list(range(10))
    else:  # known by their packet ids: not delivered twice, and acknowledged once they are safe
        bench.turns(0.1)
        assert len(inbox.got) == 10
    inbox.ack = True
    inbox.ack_all()
    bench.until(lambda: broker_client._inbound_queue.inbound_acks.unacked == 0)
    bench.turns(0.1)
    count = len(inbox.got)
    pull_the_plug(broker_client)
    bench.until(lambda: not broker_client.connected)
    bench.until(lambda: broker_client.connected)
    bench.turns(0.1)
    assert len(inbox.got) == count


@receives
def test_a_message_waits_in_the_session_while_we_are_away(url: str, bench: Bench, receive: str) -> None:
    topic, client_id = unique("away"), unique("sleeper")
    with Bench() as first:
        first.connected(url, Inbox(), (topic, 1), client_id=client_id)
    bench.connected(url).publish(messages(5, 1, topic.encode()))
    bench.turns(0.1)
    inbox = Inbox()
    bench.broker_client(url, inbox, (topic, 1), client_id=client_id, receive=receive)
    bench.until(lambda: len(inbox.got) == 5)
    assert numbers(inbox.payloads) == list(range(5))


@protocols
def test_properties_travel_with_mqtt_5_and_stay_out_of_311(url: str, bench: Bench, protocol: str) -> None:
    inbox, topic = Inbox(), unique("properties")
    broker_client = bench.connected(url, inbox, (topic, 1), protocol=protocol)
    raw = encode_message_properties(correlation_data=b"id-1", user_properties=[("route", "local")])
    broker_client.publish([Message(topic.encode(), b"{}", raw, 1)])
    bench.until(lambda: inbox.got)
    if protocol == "5":
        found = decode_properties(inbox.got[0][5], 0x30)
        assert found["correlation_data"] == b"id-1"
        assert found["user_properties"] == [("route", "local")]
    else:
        assert inbox.got[0][5] is None


@receives
def test_status_is_retained_and_the_will_says_offline(url: str, bench: Bench, receive: str) -> None:
    inbox, topic = Inbox(), unique("status")
    broker_client = bench.connected(url, status_topic=topic, receive=receive)
    bench.turns(0.05)
    bench.connected(url, inbox, (topic, 1))
    bench.until(lambda: inbox.got)
    assert json.loads(inbox.payloads[0])["status"] == "online"
    assert inbox.got[0][4] & 1, "it is retained"
    pull_the_plug(broker_client)
    bench.until(lambda: len(inbox.got) == 3)
    assert [json.loads(payload)["status"] for payload in inbox.payloads[1:]] == ["offline", "online"]
    assert json.loads(inbox.payloads[1])["reason"] == "connection lost"
    broker_client.close(1.0)
    bench.until(lambda: len(inbox.got) == 4)
    assert json.loads(inbox.payloads[3]) == {**json.loads(inbox.payloads[0]), "status": "offline", "reason": "stopped"}


@receives
def test_a_shared_subscription_gives_each_message_to_one_of_two(url: str, bench: Bench, receive: str) -> None:
    one, two, topic = Inbox(), Inbox(), unique("shared")
    for inbox in (one, two):
        bench.connected(url, inbox, (f"$share/group/{topic}/+", 1), receive=receive)
    bench.connected(url).publish(messages(200, 1, f"{topic}/x".encode()))
    bench.until(lambda: len(one.got) + len(two.got) == 200)
    bench.turns(0.05)
    assert sorted(numbers(one.payloads + two.payloads)) == list(range(200))
    assert one.got
    assert two.got


def test_two_subscribers_of_one_link_get_their_own_topics(url: str, bench: Bench) -> None:
    first, second, topic = Inbox(ack=False), Inbox(ack=False), unique("two")
    broker_client = bench.broker_client(url, first, (f"{topic}/a/+", 1))
    broker_client.subscribe([(f"$share/g/{topic}/b/#", 1)], second)
    bench.until(lambda: broker_client.connected and not broker_client._subscribing)
    for i in range(20):
        broker_client.publish(messages(1, 1, f"{topic}/{'ab'[i % 2]}/x".encode(), start=i))
    bench.until(lambda: len(first.got) + len(second.got) == 20)
    assert numbers(first.payloads) == list(range(0, 20, 2))
    assert numbers(second.payloads) == list(range(1, 20, 2))
    first.ack_all()
    bench.turns(0.05)
    assert broker_client._inbound_queue.inbound_acks.unacked > 0, (
        "messages that came together are acknowledged when both have finished"
    )
    second.ack_all()
    bench.until(lambda: broker_client._inbound_queue.inbound_acks.unacked == 0)


def test_facts_that_json_cannot_carry_are_counted_and_leave_the_status_as_it_was(url: str, bench: Bench) -> None:
    """Mutation: `BrokerClient.tell` keeps them: the next connection ends the process when it says ``online``."""
    topic, inbox = unique("status"), Inbox()
    listener = bench.connected(url, inbox, (topic, 1))
    broker_client = bench.connected(url, status_topic=topic)
    broker_client.publish_status("model", {"name": "watch/1"})
    broker_client.publish_status("governor", {"level": object()})
    pull_the_plug(broker_client)
    bench.until(lambda: not broker_client.connected)
    bench.until(lambda: broker_client.connected)
    broker_client.publish_status("outbox", {"accepting": True})
    bench.until(lambda: b"accepting" in (inbox.payloads or [b""])[-1])
    last = json.loads(inbox.payloads[-1])
    assert last["model"] == {"name": "watch/1"}
    assert "governor" not in last
    assert bench.metrics.dropped["status_internal_error"] == 1
    assert listener.connected


@protocols
@receives
def test_a_subscription_that_ends_is_ended_at_the_broker_too(
    url: str, bench: Bench, protocol: str, receive: str
) -> None:
    """Mutation: `BrokerClient.unsubscribe` tells the router alone: the broker sends on, and all of it is unexpected."""
    kept, ended, topic = Inbox(), Inbox(), unique("end")
    broker_client = bench.connected(url, kept, (f"{topic}/kept", 1), protocol=protocol, receive=receive)
    subscription = broker_client.subscribe([(f"{topic}/ended/+", 1)], ended)
    bench.until(lambda: not broker_client._subscribing)
    broker_client.publish(messages(1, 1, f"{topic}/ended/0".encode()))
    bench.until(lambda: ended.got)
    broker_client.unsubscribe(subscription)
    broker_client.unsubscribe(subscription)
    bench.until(lambda: not broker_client._unsubscribing)
    assert not broker_client._leaving
    broker_client.publish(messages(5, 1, f"{topic}/ended/0".encode()))
    broker_client.publish(messages(1, 1, f"{topic}/kept".encode()))
    bench.until(lambda: kept.got)
    assert len(ended.got) == 1
    assert bench.metrics.dropped["unexpected_topic"] == 0


@protocols
@receives
def test_a_subscription_that_ended_while_the_broker_was_away_is_ended_when_it_is_back(
    url: str, bench: Bench, protocol: str, receive: str
) -> None:
    kept, ended, topic = Inbox(), Inbox(), unique("away")
    broker_client = bench.connected(url, kept, (f"{topic}/kept", 1), protocol=protocol, receive=receive)
    subscription = broker_client.subscribe([(f"{topic}/ended/+", 1)], ended)
    bench.until(lambda: not broker_client._subscribing)
    pull_the_plug(broker_client)
    bench.until(lambda: not broker_client.connected)
    broker_client.unsubscribe(subscription)
    later = Inbox()
    broker_client.subscribe([(f"{topic}/later", 1)], later)
    bench.until(lambda: broker_client.connected and not broker_client._unsubscribing and not broker_client._subscribing)
    broker_client.publish(
        [Message(f"{topic}/{name}".encode(), b"000000", b"", 1) for name in ("ended/0", "later", "kept")]
    )
    bench.until(lambda: kept.got and later.got)
    assert ended.got == []
    assert bench.metrics.dropped["unexpected_topic"] == 0


@protocols
@receives
@pytest.mark.parametrize("known", [True, False], ids=["remembered", "met"])
def test_a_filter_that_an_earlier_run_left_in_the_session_is_ended(
    url: str, bench: Bench, protocol: str, receive: str, known: bool
) -> None:
    """Mutation: `BrokerClient._unasked` does nothing: each message of the left-over filter comes for ever."""
    topic, client = unique("left"), unique("client")
    options: dict[str, Any] = {"protocol": protocol, "receive": receive, "client_id": client}
    first = bench.connected(url, Inbox(), (f"{topic}/left/+", 1), **options)
    first.close(1.0)
    sender = bench.connected(url)
    inbox, other = Inbox(), Inbox()
    again = bench.broker_client(url, inbox, (f"{topic}/wanted", 1), **options)
    again.subscribe([(f"{topic}/other", 1)], other)
    if known:
        again.leave([f"{topic}/left/+", f"{topic}/wanted"])
    bench.until(lambda: again.connected and not again._subscribing and not again._unsubscribing)
    expected = 0 if known else 1
    if not known:
        sender.publish(messages(1, 1, f"{topic}/left/a".encode()))
        bench.until(lambda: bench.metrics.dropped["unexpected_topic"] == 1 and not again._unsubscribing)
    sender.publish(messages(3, 1, f"{topic}/left/b".encode()))
    sender.publish(messages(1, 1, f"{topic}/wanted".encode()))
    bench.until(lambda: inbox.got)
    assert bench.metrics.dropped["unexpected_topic"] == expected


@pytest.mark.parametrize("size", [200_000, 900_000])
def test_large_messages_pass_in_both_directions(url: str, bench: Bench, size: int) -> None:
    inbox, topic = Inbox(), unique("large")
    broker_client = bench.connected(url, inbox, (topic, 1))
    broker_client.publish(messages(8, 1, topic.encode(), size))
    bench.until(lambda: len(inbox.got) == 8)
    assert numbers(inbox.payloads) == list(range(8))
    assert {len(payload) for payload in inbox.payloads} == {size + 6}


def test_larger_messages_than_we_take_are_kept_by_the_broker(url: str, bench: Bench) -> None:
    inbox, topic = Inbox(), unique("too-large")
    broker_client = bench.connected(url, inbox, (topic, 1), max_packet_bytes=1000)
    bench.connected(url).publish([*messages(1, 1, topic.encode(), 5000), *messages(1, 1, topic.encode(), 10, start=1)])
    bench.until(lambda: inbox.got)
    assert numbers(inbox.payloads) == [1]
    assert broker_client.connected


@protocols
@receives
def test_a_broker_with_20_in_flight_does_not_wait_for_the_latency_budget(
    url: str, protocol: str, receive: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, client_id, count = unique("backlog"), unique("sleeper"), 900
    with Bench() as before:
        before.connected(url, Inbox(), (topic, 1), client_id=client_id, protocol=protocol)
    with Bench() as sender:
        handed_over: list[bool] = []
        backlog = messages(count, 1, topic.encode())
        sender.connected(url).publish(backlog, lambda: handed_over.append(True))
        sender.until(lambda: handed_over)
    # Waiting after each window of 20 would be 45 times. A few are spent on finding out.
    waits: list[float] = []
    with Bench(linger_s=0.005) as bench:
        sleep = bench.loop.clock.sleep

        def counted(seconds: float) -> None:
            waits.append(seconds)
            sleep(seconds)

        monkeypatch.setattr(bench.loop.clock, "sleep", counted)
        inbox = Inbox()
        bench.broker_client(url, inbox, (topic, 1), client_id=client_id, protocol=protocol, receive=receive)
        bench.until(lambda: len(inbox.got) == count)
        assert numbers(inbox.payloads) == list(range(count))
        assert len(waits) < 20


@protocols
@receives
@pytest.mark.parametrize("acknowledged", [False, True])
def test_qos_2_of_a_link_that_only_publishes_arrives_once_over_a_lost_connection(
    url: str, bench: Bench, protocol: str, receive: str, acknowledged: bool
) -> None:
    inbox, topic = Inbox(), unique("once")
    bench.connected(url, inbox, (topic, 2))
    sender = bench.connected(url, publish_qos=2, protocol=protocol, receive=receive)
    handed_over: list[bool] = []
    sender.publish(messages(10, 2, topic.encode()), lambda: handed_over.append(True))
    sender._flush_iteration()  # they are written, and nobody reads the answers
    assert sender._connection is not None
    fd = sender._connection.fileno()
    assert select.select([fd], [], [], WAIT_S)[0], "the broker has them"
    if acknowledged:
        sender._read()  # PUBREC; the connection goes before PUBREL is sent
    else:
        # All are lost: no network loses the first and brings those that follow.
        parser, lost = PacketParser(V311 if protocol == "3.1.1" else V5, 65_536), 0
        while lost < 10:
            assert select.select([fd], [], [], WAIT_S)[0]
            lost += len(parser.feed(os.read(fd, 65_536)))
    pull_the_plug(sender)
    bench.until(lambda: handed_over)
    sender.publish(messages(1, 2, topic.encode(), start=10))
    bench.until(lambda: 10 in numbers(inbox.payloads))
    assert numbers(inbox.payloads) == list(range(11))
    assert not bench.metrics.dropped


@protocols
def test_a_message_that_an_earlier_run_left_half_sent_hides_no_new_one(url: str, bench: Bench, protocol: str) -> None:
    inbox, topic, client_id = Inbox(), unique("earlier"), unique("run")
    bench.connected(url, inbox, (topic, 2))
    version = V5 if protocol == "5" else V311
    wire = Wire(int(url.rpartition(":")[2]), version)
    keep = encode_properties({"session_expiry_interval": 60}) if version == V5 else b""
    wire.connect(client_id, clean_start=False, properties=keep)
    first = random.Random(7).choice(range(FIRST_PACKET_ID, FIRST_PACKET_ID + 2048))  # as the bench's links begin
    for number, taken in enumerate([first - 3, first, first + 2]):
        wire.send(encode_publish(topic.encode(), b"%06d" % number, 2, taken, version=version))
        assert wire.next()[0] == PUBREC
    wire.close()
    sender = bench.connected(url, publish_qos=2, protocol=protocol, client_id=client_id)
    bench.until(lambda: len(inbox.payloads) == 3)
    sender.publish(messages(3, 2, topic.encode(), start=3))
    bench.until(lambda: 5 in numbers(inbox.payloads))
    assert numbers(inbox.payloads) == list(range(6)), "what it left comes first, and in its order"
    outbound_queue = sender._outbound_queue
    assert outbound_queue is not None
    bench.until(lambda: not outbound_queue.waiting)
    assert not bench.metrics.dropped


@receives
def test_nothing_is_lost_when_the_broker_restarts_in_traffic(receive: str, tmp_path: Any) -> None:
    persistent = ("persistence true", f"persistence_location {tmp_path}/", "max_queued_messages 0")
    with Mosquitto(*persistent) as mosquitto, Bench() as bench:
        inbox, topic = Inbox(), unique("restart")
        bench.connected(mosquitto.url, inbox, (topic, 1), receive=receive)
        sender = bench.connected(mosquitto.url, clean_start=False, receive=receive)
        handed_over: list[int] = []
        sent = 0
        for _ in range(3):
            for _ in range(20):
                sender.publish(messages(25, 1, topic.encode(), start=sent), lambda: handed_over.append(1))
                sent += 25
                bench.loop.iterate(0.002)
            mosquitto.restart()
        bench.until(lambda: len(handed_over) == 60 and len(set(inbox.payloads)) == sent, 20)
        assert set(numbers(inbox.payloads)) == set(range(sent))
        assert not bench.metrics.dropped


def test_a_broker_that_is_not_there_is_tried_until_it_comes(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "edge_runtime.io.mqtt")
    port = free_port()
    inbox, topic = Inbox(), unique("late")
    broker_client = bench.broker_client(f"mqtt://127.0.0.1:{port}", inbox, (topic, 1))
    handed_over: list[bool] = []
    broker_client.publish(messages(3, 1, topic.encode()), lambda: handed_over.append(True))
    bench.turns(0.5)
    assert not handed_over
    where = f"broker {broker_client.name} at 127.0.0.1:{port}"
    assert [record.getMessage() for record in caplog.records] == [
        f"{where}: cannot connect: nothing listens there; trying again until it works"
    ]
    with Mosquitto(port=port):
        bench.until(lambda: handed_over)
        assert len(inbox.got) in {0, 3}, "sent before or after the subscription was granted"
        assert len(caplog.records) == 2
        assert bench.metrics.gauges[f'connected{{broker="{broker_client.name}"}}'] == 1
        broker_client.close(1)
    assert bench.metrics.gauges[f'connected{{broker="{broker_client.name}"}}'] == 0


@needs_mosquitto
@protocols
@receives
def test_a_wrong_password_is_said_once_and_tried_again(
    bench: Bench, caplog: pytest.LogCaptureFixture, tmp_path: Any, protocol: str, receive: str
) -> None:
    caplog.set_level(logging.INFO, "edge_runtime.io.mqtt")
    (tmp_path / "users").write_text("device:" + _mosquitto_hash("Öffne dich, Сезам") + "\n")
    (tmp_path / "password").write_text("canary-secret\n")
    with Mosquitto("allow_anonymous false", f"password_file {tmp_path}/users") as mosquitto:
        broker_client = bench.broker_client(
            mosquitto.url, username="device", password_file=tmp_path / "password", protocol=protocol, receive=receive
        )
        bench.until(lambda: broker_client._attempts.failures >= 3)
        assert len(caplog.records) == 1
        assert "refuses us: " in caplog.text
        assert "not authorized" in caplog.text or "bad user name" in caplog.text
        (tmp_path / "password").write_text("Öffne dich, Сезам\n")
        bench.until(lambda: broker_client.connected)
    assert "canary-secret" not in caplog.text
    assert "canary-secret" not in repr(broker_client.config) + repr(broker_client._secrets)


def _mosquitto_hash(password: str) -> str:
    """As mosquitto_passwd writes it: PBKDF2 with SHA-512, 101 rounds."""
    import base64  # noqa: PLC0415
    import hashlib  # noqa: PLC0415

    salt = b"salt-of-12-b"
    digest = hashlib.pbkdf2_hmac("sha512", password.encode(), salt, 101)
    return f"$7$101${base64.b64encode(salt).decode()}${base64.b64encode(digest).decode()}"


def test_a_slow_broker_fills_the_queue_and_not_the_memory(bench: Bench) -> None:
    with ScriptedBroker(bench) as scripted:
        broker_client = bench.broker_client(scripted.url, queue_messages=100, protocol="3.1.1")
        scripted.welcome(subscribe=False)
        bench.until(lambda: broker_client.connected)
        handed_over: list[int] = []
        for i in range(300):
            broker_client.publish(messages(1, 0, size=100_000, start=i), lambda: handed_over.append(1))
            bench.loop.iterate(0)
        dropped = bench.metrics.dropped["publish_queue_full"]
        assert 50 < dropped < 299, "the kernel, the out-buffer and the queue took the others"
        assert broker_client._connection.transport.unsent < 2 * 2**20  # type: ignore[union-attr]
        bench.until(lambda: len(scripted.read()) == 300 - dropped)
        bench.until(lambda: len(handed_over) == 300)
        got = numbers([item[1] for item in scripted.items])
        assert got == sorted(got), "order is kept"
        assert got[-1] == 299, "the oldest were dropped"


def test_closing_hands_over_what_is_queued(url: str) -> None:
    inbox, topic = Inbox(), unique("drain")
    with Bench() as receiver:
        receiver.connected(url, inbox, (topic, 1))
        with Bench() as bench:
            broker_client = bench.connected(url)
            handed_over: list[bool] = []
            broker_client.publish(messages(500, 1, topic.encode()), lambda: handed_over.append(True))
            broker_client.close(5.0)
            assert handed_over == [True]
            broker_client.close(5.0)  # a second time does nothing
        receiver.until(lambda: len(inbox.got) == 500)
        assert not receiver.metrics.dropped


def test_pausing_leaves_messages_to_the_broker(url: str) -> None:
    topic, client_id = unique("pause"), unique("pauser")
    with Bench() as bench:
        inbox = Inbox()
        broker_client = bench.connected(url, inbox, (topic, 1), client_id=client_id)
        broker_client.pause()
        bench.connected(url).publish(messages(5, 1, topic.encode()))
        bench.turns(0.2)
        assert not inbox.got
    with Bench() as later:
        inbox = Inbox()
        later.broker_client(url, inbox, (topic, 1), client_id=client_id)
        later.until(lambda: len(inbox.got) == 5)


@protocols
def test_websockets_go_through_paho(bench: Bench, url: str, protocol: str) -> None:
    with WebsocketBridge(int(url.rsplit(":", 1)[1])) as bridge:
        inbox, topic = Inbox(), unique("websocket")
        broker_client = bench.connected(bridge.url, inbox, (topic, 1), protocol=protocol)
        broker_client.publish(messages(300, 1, topic.encode(), 1000))
        bench.until(lambda: len(inbox.got) == 300)
        assert numbers(inbox.payloads) == list(range(300))
        broker_client.close(1)


@receives
def test_small_packets_are_sent_at_once(url: str, bench: Bench, receive: str) -> None:
    broker_client = bench.connected(url, receive=receive)
    assert broker_client._connection is not None
    with socket.socket(fileno=os.dup(broker_client._connection.fileno())) as duplicate:
        assert duplicate.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_a_paho_without_the_hook_is_used_through_its_callbacks(
    url: str, bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(batched, "CAN_BATCH", False)
    inbox, topic = Inbox(), unique("future")
    broker_client = bench.connected(url, inbox, (topic, 1))
    broker_client.publish(messages(50, 1, topic.encode()))
    bench.until(lambda: len(inbox.got) == 50)
    assert "cannot be batched" in caplog.text


def test_one_turn_answers_in_one_write(url: str, bench: Bench) -> None:
    inbox, topic = Inbox(), unique("joined")
    broker_client = bench.connected(url, inbox, (topic, 1))
    bench.connected(url).publish(messages(1000, 1, topic.encode()))
    transport = broker_client._connection.transport  # type: ignore[union-attr]
    sends: list[int] = []
    real: Any = transport._sock

    class Counting:
        def __getattr__(self, name: str) -> Any:
            return getattr(real, name)

        def send(self, data: bytes) -> int:
            sends.append(len(data))
            sent: int = real.send(data)
            return sent

    transport._sock = Counting()
    bench.until(lambda: len(inbox.got) == 1000)
    bench.turns(0.02)
    assert sum(sends) == 4 * 1000
    assert len(sends) <= len(inbox.deliveries)
