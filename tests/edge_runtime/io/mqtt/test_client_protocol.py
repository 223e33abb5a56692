"""The client against a broker that follows a script: what it sends, byte for byte, and what it makes of nonsense."""

from __future__ import annotations

import contextlib
import logging
import socket
import struct
import threading
from collections.abc import Iterator
from functools import partial
from typing import Any

import paho.mqtt.client as paho
import pytest

from edge_runtime.io.mqtt.outbound_queue import FIRST_PACKET_ID, Message
from edge_runtime.io.mqtt.packets import (
    DISCONNECT,
    DUP,
    PINGREQ,
    PUBACK,
    PUBCOMP,
    PUBREC,
    PUBREL,
    RETAIN,
    V5,
    V311,
    Connack,
    Disconnect,
    decode_ack,
    decode_disconnect,
    decode_properties,
    encode_ack,
    encode_connack,
    encode_disconnect,
    encode_negative_ack,
    encode_properties,
    encode_publish,
)
from edge_runtime.io.sinks.mqtt import MqttSink, MqttSinkConfig
from tests.edge_runtime.io.mqtt.clients import Bench, Inbox, ScriptedBroker, messages, numbers
from tests.mosquitto import free_port

versions = pytest.mark.parametrize(("protocol", "version"), [("3.1.1", V311), ("5", V5)])


@pytest.fixture
def broker(bench: Bench) -> Iterator[ScriptedBroker]:
    with ScriptedBroker(bench) as running:
        yield running


def inbound_acks(first: int, count: int, qos: int, version: int, *, dup: bool = False, offset: int = 0) -> bytes:
    """PUBLISH packets with packet ids and payloads from `first`."""
    return b"".join(
        encode_publish(b"t", b"%06d" % i, qos, i + offset if qos else 0, False, dup, version)
        for i in range(first, first + count)
    )


def acks(broker: ScriptedBroker, count: int) -> list[tuple[int, int]]:
    """The next acknowledgements: kind and packet id."""
    return [decode_ack(item[0], item[1], broker.version)[:2] for item in broker.wait(count)]


@versions
def test_connect_says_what_the_configuration_says(
    bench: Bench, broker: ScriptedBroker, protocol: str, version: int
) -> None:
    bench.broker_client(
        broker.url,
        Inbox(),
        ("t", 1),
        protocol=protocol,
        client_id="edge-7",
        keepalive_s=17,
        receive_maximum=33,
        session_expiry_s=600,
        max_packet_bytes=5000,
        status_topic="s",
        username="me",
    )
    connect = broker.accept()
    assert (connect.version, connect.client_id, connect.keep_alive_s) == (version, "edge-7", 17)
    assert (connect.clean_start, connect.username, connect.password) == (False, "me", None)
    assert connect.will is not None
    assert (connect.will.topic, connect.will.qos, connect.will.retain) == (b"s", 1, True)
    if version == V5:
        assert decode_properties(connect.properties, 0x10) == {
            "session_expiry_interval": 600,
            "receive_maximum": 33,
            "maximum_packet_size": 5000,
        }


def test_a_session_is_kept_only_where_it_is_of_use(bench: Bench, broker: ScriptedBroker) -> None:
    bench.broker_client(broker.url, Inbox(), ("t", 0))
    assert broker.accept().clean_start
    bench.broker_clients[0].close(0)
    bench.broker_client(broker.url, Inbox(), ("t", 0), clean_start=False)
    assert not broker.accept().clean_start
    bench.broker_clients[1].close(0)
    bench.broker_client(broker.url, publish_qos=1)
    assert broker.accept().clean_start, "what repeats with QoS 1 repeats in a kept session too"


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_sink_says_with_which_qos_it_will_publish(bench: Bench, broker: ScriptedBroker, qos: int) -> None:
    broker_client = bench.broker_client(broker.url)
    sink = MqttSink(MqttSinkConfig(broker="b", qos=qos), broker_client, bench.metrics)
    sink.open(bench.loop)
    assert broker.accept().clean_start == (qos < 2)


@versions
def test_a_link_that_only_publishes_with_qos_2_keeps_its_session_and_repeats_nothing(
    bench: Bench, broker: ScriptedBroker, protocol: str, version: int
) -> None:
    broker_client = bench.broker_client(broker.url, publish_qos=2, protocol=protocol)
    handed_over: list[bool] = []
    broker_client.publish(messages(4, 2), lambda: handed_over.append(True))
    broker.welcome(subscribe=False)
    assert broker.connect is not None
    assert not broker.connect.clean_start
    if version == V5:
        assert decode_properties(broker.connect.properties, 0x10)["session_expiry_interval"] == 86_400
    ids = [one[2] for one in broker.wait(4)]
    broker.send(encode_ack(PUBREC, ids[:3]))
    assert acks(broker, 3) == [(PUBREL, packet_id) for packet_id in ids[:3]]
    broker.send(encode_ack(PUBCOMP, ids[:1]))
    bench.turns(0.05)
    broker.drop()
    broker.welcome(session_present=True, subscribe=False)
    assert broker.connect is not None
    assert not broker.connect.clean_start
    *released, published = broker.wait(3)
    assert [decode_ack(first, body, version)[:2] for first, body in released] == [(PUBREL, ids[1]), (PUBREL, ids[2])]
    assert (published[1], published[2], published[4]) == (b"000003", ids[3], DUP)
    broker.send(encode_ack(PUBCOMP, ids[1:2]) + encode_ack(PUBREC, ids[3:]))
    if version == V5:
        broker.send(encode_negative_ack(PUBCOMP, ids[2], 0x92))  # it had the first PUBREL, only its answer was lost
    else:
        broker.send(encode_ack(PUBCOMP, ids[2:3]))
    assert acks(broker, 1) == [(PUBREL, ids[3])]
    broker.send(encode_ack(PUBCOMP, ids[3:]))
    bench.until(lambda: handed_over)
    assert not bench.metrics.dropped


@versions
@pytest.mark.parametrize("qos", [1, 2])
def test_acknowledgements_keep_the_order_of_receipt(
    bench: Bench, broker: ScriptedBroker, protocol: str, version: int, qos: int
) -> None:
    inbox = Inbox(ack=False)
    bench.broker_client(broker.url, inbox, ("t", qos), protocol=protocol)
    broker.welcome()
    for part in range(3):
        broker.send(inbound_acks(1 + 10 * part, 10, qos, version))
        bench.until(partial(lambda part: len(inbox.owed) == part + 1, part))
    first, second, third = inbox.owed
    third()
    second()
    bench.turns(0.05)
    assert broker.read() == [], "later ones wait for the first"
    first()
    kind = PUBACK if qos == 1 else PUBREC
    assert acks(broker, 30) == [(kind, i) for i in range(1, 31)]
    if qos == 2:
        broker.send(encode_ack(PUBREL, [3, 1, 2]))
        assert acks(broker, 3) == [(PUBCOMP, 3), (PUBCOMP, 1), (PUBCOMP, 2)]


def test_a_qos_2_message_is_delivered_once_over_a_reconnection(bench: Bench, broker: ScriptedBroker) -> None:
    inbox = Inbox(ack=False)
    broker_client = bench.broker_client(broker.url, inbox, ("t", 2), protocol="3.1.1")
    broker.welcome()
    broker.send(inbound_acks(1, 3, 2, V311))
    bench.until(lambda: len(inbox.got) == 3)
    broker.send(inbound_acks(2, 1, 2, V311, dup=True))
    bench.turns(0.05)
    assert len(inbox.got) == 3
    broker.drop()
    broker.welcome(session_present=True, subscribe=False)
    broker.send(inbound_acks(1, 3, 2, V311, dup=True) + inbound_acks(4, 1, 2, V311))
    bench.until(lambda: len(inbox.got) == 4)
    bench.turns(0.05)
    assert broker.read() == [], "not safe yet"
    inbox.ack_all()
    assert acks(broker, 4) == [(PUBREC, i) for i in (1, 2, 3, 4)]
    assert broker_client._inbound_queue.inbound_acks.unacked == 0
    broker.send(encode_ack(PUBREL, [1, 2, 3, 4]) + inbound_acks(5, 1, 2, V311, offset=-4))
    bench.until(lambda: len(inbox.got) == 5)
    broker.drop()
    broker.welcome(session_present=False)
    broker.send(inbound_acks(5, 1, 2, V311, offset=-4))
    bench.until(lambda: len(inbox.got) == 6)  # a new session: the same packet id is another message


def test_acknowledgements_of_a_lost_connection_are_forgotten(bench: Bench, broker: ScriptedBroker) -> None:
    inbox = Inbox(ack=False)
    bench.broker_client(broker.url, inbox, ("t", 1), protocol="3.1.1")
    broker.welcome()
    broker.send(inbound_acks(1, 5, 1, V311))
    bench.until(lambda: len(inbox.got) == 5)
    broker.drop()
    broker.welcome(session_present=True, subscribe=False)
    inbox.ack_all()
    bench.turns(0.05)
    assert broker.read() == [], "an id of the old connection may name another message by now"
    broker.send(inbound_acks(1, 5, 1, V311, dup=True))
    bench.until(lambda: len(inbox.got) == 10)
    inbox.ack_all()
    assert acks(broker, 5) == [(PUBACK, i) for i in range(1, 6)]


@versions
def test_publishing_keeps_within_the_window_and_sends_again_in_order(
    bench: Bench, broker: ScriptedBroker, protocol: str, version: int
) -> None:
    broker_client = bench.broker_client(broker.url, protocol=protocol, clean_start=False)
    handed_over: list[bool] = []
    broker_client.publish(messages(50, 1), lambda: handed_over.append(True))
    limits = encode_properties({"receive_maximum": 8}) if version == V5 else b""
    window = 8 if version == V5 else 20
    broker.welcome(properties=limits, subscribe=False)
    sent = broker.wait(window)
    bench.turns(0.05)
    assert broker.read() == [], "the window is full"
    assert numbers([one[1] for one in sent]) == list(range(window))
    ids = [one[2] for one in sent]
    assert len(set(ids)) == window
    assert min(ids) >= FIRST_PACKET_ID, "below are paho's"
    broker.send(encode_ack(PUBACK, ids[:3]))
    broker.wait(3)
    broker.drop()
    broker.welcome(session_present=True, properties=limits, subscribe=False)
    again = broker.wait(window)
    assert numbers([one[1] for one in again]) == list(range(3, window + 3))
    assert [one[2] for one in again[: window - 3]] == ids[3:]
    assert {one[4] for one in again} == {DUP}
    broker.drop()
    broker.welcome(session_present=False, properties=limits, subscribe=False)
    again = broker.wait(window)
    assert numbers([one[1] for one in again]) == list(range(3, window + 3))
    assert {one[4] for one in again} == {0}, "to a new session they are new"
    while not handed_over:
        broker.send(encode_ack(PUBACK, [one[2] for one in again]))
        bench.turns(0.01)
        again = broker.read()
        broker.items = []
    assert not bench.metrics.dropped


@pytest.mark.parametrize("receive", ["batched", "paho"])
def test_a_refused_publish_is_counted_and_done(bench: Bench, broker: ScriptedBroker, receive: str) -> None:
    broker_client = bench.broker_client(broker.url, protocol="5", receive=receive)
    handed_over: list[bool] = []
    broker_client.publish(messages(2, 1), lambda: handed_over.append(True))
    broker.welcome(subscribe=False)
    first, second = [one[2] for one in broker.wait(2)]
    broker.send(encode_negative_ack(PUBACK, first, 0x97) + encode_ack(PUBACK, [second]))
    bench.until(lambda: handed_over)
    assert bench.metrics.dropped["publish_refused"] == 1


@pytest.mark.parametrize("receive", ["batched", "paho"])
def test_what_the_broker_cannot_take_is_adapted_or_counted(bench: Bench, broker: ScriptedBroker, receive: str) -> None:
    broker_client = bench.broker_client(broker.url, protocol="5", receive=receive)
    handed_over: list[bool] = []
    broker_client.publish(
        [Message(b"t", bytes(500), b"", 1), Message(b"t", b"small", b"", 2, retain=True)],
        lambda: handed_over.append(True),
    )
    limits = encode_properties({"maximum_packet_size": 200, "maximum_qos": 0, "retain_available": 0})
    broker.welcome(properties=limits, subscribe=False)
    (topic, payload, packet_id, qos, flags, _) = broker.wait(1)[0]
    assert (topic, payload, packet_id, qos, flags & RETAIN) == (b"t", b"small", 0, 0, 0)
    bench.until(lambda: handed_over)
    assert bench.metrics.dropped["publish_too_large"] == 1


@pytest.mark.parametrize("answer", ["3.1.1 code", "5 code", "closes"])
@pytest.mark.parametrize("receive", ["batched", "paho"])
def test_a_broker_without_mqtt_5_gets_311_and_that_is_remembered(
    bench: Bench, broker: ScriptedBroker, caplog: pytest.LogCaptureFixture, answer: str, receive: str
) -> None:
    caplog.set_level(logging.INFO, "edge_runtime.io.mqtt")
    broker_client = bench.broker_client(broker.url, receive=receive)
    assert broker.accept().version == V5
    if answer == "3.1.1 code":
        broker.send(encode_connack(Connack(False, 1), V311))
    elif answer == "5 code":
        broker.send(encode_connack(Connack(False, 0x84), V5))
    else:
        broker.drop()
    broker.welcome(subscribe=False)
    assert broker.version == V311
    bench.until(lambda: broker_client.connected)
    assert len(caplog.records) == 2, caplog.text
    assert "no answer to MQTT 5, trying 3.1.1" in caplog.text
    broker.drop()
    assert broker.accept().version == V311
    broker.drop()
    assert broker.accept().version == V311, "a broker that has answered once is not doubted again"


@versions
def test_malformed_bytes_end_the_connection_and_a_new_one_begins(
    bench: Bench, broker: ScriptedBroker, caplog: pytest.LogCaptureFixture, protocol: str, version: int
) -> None:
    inbox = Inbox()
    bench.broker_client(broker.url, inbox, ("t", 0), protocol=protocol)
    broker.welcome()
    broker.send(inbound_acks(1, 2, 0, version) + b"\x36\x05\x00\x01t\x00\x00")
    bench.until(lambda: len(inbox.got) == 2)  # what came before the damage is good
    if version == V5:
        first, body = broker.wait(1)[0]
        assert first == DISCONNECT
        assert decode_disconnect(body, V5).reason_code in {0x81, 0x82}
    assert "the broker sent what MQTT forbids: PUBLISH has QoS 3" in caplog.text
    broker.welcome(subscribe=True)
    broker.send(inbound_acks(3, 1, 0, version))
    bench.until(lambda: len(inbox.got) == 3)


def test_a_broker_that_ends_it_is_quoted(
    bench: Bench, broker: ScriptedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    broker_client = bench.broker_client(broker.url, protocol="5")
    broker.welcome(subscribe=False)
    said = encode_properties({"reason_string": "another one came"})
    broker.send(encode_disconnect(Disconnect(0x8E, said), V5))
    bench.until(lambda: broker_client._attempts.failures == 1)
    assert "the broker ended it: session taken over ('another one came')" in caplog.text
    assert f"another client has the client id '{broker_client.config.client_id}'" in caplog.text


@pytest.mark.parametrize("receive", ["batched", "paho"])
def test_something_that_is_no_broker_is_left_after_the_timeout(
    bench: Bench, broker: ScriptedBroker, caplog: pytest.LogCaptureFixture, receive: str
) -> None:
    broker_client = bench.broker_client(broker.url, protocol="3.1.1", connect_timeout_s=0.1, receive=receive)
    broker.accept()
    bench.until(lambda: broker_client._attempts.failures == 1)
    assert "it does not answer as an MQTT broker" in caplog.text


def test_a_message_before_the_answer_to_connect_is_refused(
    bench: Bench, broker: ScriptedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    inbox = Inbox()
    broker_client = bench.broker_client(broker.url, inbox, ("t", 0), protocol="3.1.1")
    broker.accept()
    broker.send(inbound_acks(1, 1, 0, V311))
    bench.until(lambda: broker_client._attempts.failures == 1)
    assert not inbox.got
    assert "before it answered" in caplog.text


@pytest.mark.parametrize("receive", ["batched", "paho"])
def test_a_silent_broker_is_pinged_and_then_given_up(
    bench: Bench, broker: ScriptedBroker, caplog: pytest.LogCaptureFixture, receive: str
) -> None:
    broker_client = bench.broker_client(broker.url, protocol="3.1.1", keepalive_s=1, receive=receive)
    broker.welcome(subscribe=False)
    assert broker.wait(1)[0][0] == PINGREQ
    broker.send(b"\xd0\x00")
    assert broker.wait(1)[0][0] == PINGREQ
    bench.until(lambda: broker_client._attempts.failures == 1)
    assert "keep-alive" in caplog.text


def test_subscriptions_are_made_again_only_when_the_session_is_gone(bench: Bench, broker: ScriptedBroker) -> None:
    inbox = Inbox()
    broker_client = bench.broker_client(broker.url, inbox, ("t", 1), protocol="5")
    broker.welcome(session_present=True)  # the first time in any case: the configuration may have changed
    broker.drop()
    broker.welcome(session_present=True, subscribe=False)
    bench.turns(0.05)
    assert broker.read() == []
    broker.drop()
    broker.welcome(session_present=False)
    bench.until(lambda: broker_client.connected)


def test_a_refused_subscription_is_said(bench: Bench, broker: ScriptedBroker, caplog: pytest.LogCaptureFixture) -> None:
    broker_client = bench.broker_client(broker.url, Inbox(), ("secret", 1), ("open", 1), protocol="5")
    broker.accept()
    broker.send(encode_connack(Connack(False, 0), V5))
    _, body = broker.wait(1)[0]
    broker.send(b"\x90\x05" + body[:2] + b"\x00\x87\x00")
    bench.until(lambda: not broker_client._subscribing)
    assert bench.metrics.dropped["subscription_refused"] == 1
    assert "subscription to 'secret' refused: not authorized" in caplog.text
    assert "subscription to 'open' granted with QoS 0, not 1" in caplog.text
    assert broker_client.connected


def test_a_broker_that_ignores_our_limit_is_read_no_further(bench: Bench, broker: ScriptedBroker) -> None:
    inbox = Inbox(ack=False)
    broker_client = bench.broker_client(
        broker.url, inbox, ("t", 1), protocol="3.1.1", receive_maximum=10, max_held_bytes=100_000
    )
    broker.welcome()
    bench.until(lambda: broker_client.connected)
    count = 20_000  # 20 MB, far more than the kernel's buffers and ours
    data = memoryview(b"".join(encode_publish(b"t", b"%06d" % i + bytes(1000), 1, i + 1) for i in range(count)))
    for _ in range(200):
        with contextlib.suppress(BlockingIOError):
            data = data[broker.sock.send(data) :]
        bench.loop.iterate(0)
    assert data, "the broker cannot send it all"
    assert broker_client._watched == -1, "the socket is not read"
    assert 10 <= len(inbox.got) < count
    assert broker_client._inbound_queue.held_bytes < 100_000 + 400_000, "the bound, and what one read may add"
    inbox.ack = True
    inbox.ack_all()
    broker.send(data)
    bench.until(lambda: len(inbox.got) == count)
    assert numbers(inbox.payloads) == list(range(count))
    assert broker_client._watched >= 0


@pytest.mark.parametrize("published", ["before", "meanwhile"])
def test_an_acknowledgement_behind_more_than_may_be_held_is_read(
    bench: Bench, broker: ScriptedBroker, published: str
) -> None:
    """What is held waits for answers, as those of a sink on the same link: not to read them would be a deadlock."""
    inbox = Inbox(ack=False)
    broker_client = bench.broker_client(
        broker.url, inbox, ("t", 1), protocol="3.1.1", receive_maximum=10, max_held_bytes=100_000
    )
    broker.welcome()
    bench.until(lambda: broker_client.connected)
    if published == "before":
        broker_client.publish(messages(1, 1), inbox.ack_all)
    count = 250
    broker.send(b"".join(encode_publish(b"t", b"%06d" % i + bytes(1000), 1, i + 1) for i in range(count)))
    if published == "meanwhile":
        bench.until(lambda: broker_client._watched == -1)
        broker_client.publish(messages(1, 1), inbox.ack_all)
    bench.until(lambda: broker_client._outbound_queue is not None and broker_client._outbound_queue.inflight)
    inbox.ack = True
    broker.send(encode_ack(PUBACK, [next(packet[2] for packet in broker.wait(1) if len(packet) > 2)]))
    bench.until(lambda: len(inbox.got) == count)
    assert numbers([payload[:6] for payload in inbox.payloads]) == list(range(count))


def test_a_broker_that_sends_far_too_much_before_an_acknowledgement_is_left(
    bench: Bench, broker: ScriptedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    inbox = Inbox(ack=False)
    broker_client = bench.broker_client(
        broker.url, inbox, ("t", 1), protocol="3.1.1", receive_maximum=10, max_held_bytes=20_000
    )
    broker.welcome()
    bench.until(lambda: broker_client.connected)
    broker_client.publish(messages(1, 1))
    broker.wait(1)
    data = memoryview(b"".join(encode_publish(b"t", bytes(1000), 1, i + 1) for i in range(1000)))
    with contextlib.suppress(ConnectionError):
        while broker_client.connected:
            with contextlib.suppress(BlockingIOError):
                data = data[broker.sock.send(data) :]
            bench.loop.iterate(0)
    bench.until(lambda: not broker_client.connected)
    assert "sends more at a time than receive_maximum and max_held_bytes allow" in caplog.text
    assert broker_client._inbound_queue.held_bytes == 0


@pytest.mark.parametrize("qos", [0, 1, 2])
@versions
def test_a_message_that_is_too_large_is_skipped_acknowledged_and_counted(
    bench: Bench, broker: ScriptedBroker, protocol: str, version: int, qos: int
) -> None:
    inbox = Inbox()
    bench.broker_client(broker.url, inbox, ("t", qos), protocol=protocol, max_packet_bytes=1000)
    broker.welcome()
    large = encode_publish(b"t" * 300, bytes(3_000_000), qos, 2 if qos else 0, version=version)
    data = inbound_acks(1, 1, qos, version) + large + inbound_acks(3, 1, qos, version)
    broker.send(data[:20])
    broker.send(data[20:])
    bench.until(lambda: len(inbox.got) == 2)
    assert numbers(inbox.payloads) == [1, 3]
    assert bench.metrics.dropped["too_large"] == 1
    if qos:
        kind = PUBACK if qos == 1 else PUBREC
        assert acks(broker, 3) == [(kind, 1), (kind, 2), (kind, 3)]


def test_closing_while_the_name_is_being_looked_up_leaves_nothing_behind(
    bench: Bench, broker: ScriptedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_up, go_on = threading.Event(), threading.Event()
    real = socket.create_connection

    def slow(*args: Any, **options: Any) -> socket.socket:
        looked_up.set()
        go_on.wait(5)
        return real(*args, **options)

    monkeypatch.setattr(socket, "create_connection", slow)
    broker_client = bench.broker_client(broker.url)
    bench.until(looked_up.is_set)
    threads = [one for one in threading.enumerate() if one.name == f"mqtt-connect[{broker_client.name}]"]
    assert len(threads) == 1
    broker_client.close(0)
    go_on.set()
    threads[0].join(5)
    assert not threads[0].is_alive()
    bench.turns(0.05)
    assert not broker_client.connected


def test_reconnecting_waits_longer_each_time_with_jitter(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    delays: list[float] = []
    broker_client = bench.broker_client(f"mqtt://127.0.0.1:{free_port()}")
    real = bench.loop.call_later

    def spy(seconds: float, callback: Any) -> Any:
        if callback == broker_client._connect:
            delays.append(seconds)
            return real(0.0, broker_client._connect)
        return real(seconds, callback)

    bench.loop.call_later = spy  # type: ignore[method-assign]
    bench.until(lambda: len(delays) == 40)
    assert max(delays) <= 0.1
    assert all(delay <= 0.02 * 2**i for i, delay in enumerate(delays))
    assert len({round(delay, 6) for delay in delays}) > 30, "jitter"
    assert len(caplog.records) == 1, "the same failure is said once"


def test_pausing_forgets_what_was_held_and_reads_on(bench: Bench, broker: ScriptedBroker) -> None:
    inbox = Inbox(ack=False)
    broker_client = bench.broker_client(
        broker.url, inbox, ("t", 1), protocol="3.1.1", receive_maximum=10, max_held_bytes=1000
    )
    broker.welcome()
    broker.send(inbound_acks(1, 10, 1, V311))
    bench.until(lambda: len(inbox.got) == 10)
    broker.send(inbound_acks(11, 10, 1, V311))
    bench.until(lambda: broker_client._watched == -1)
    broker_client.publish(messages(1, 1))
    broker_client.pause()
    inbox.ack_all()
    assert acks(broker, 10) == [(PUBACK, i) for i in range(1, 11)]
    packet_id = broker.wait(1)[0][2]
    handed_over: list[bool] = []
    broker_client.publish(messages(1, 0), lambda: handed_over.append(True))
    broker.send(encode_ack(PUBACK, [packet_id]))
    bench.until(
        lambda: handed_over and broker_client._outbound_queue is not None and not broker_client._outbound_queue.waiting
    )
    assert len(inbox.got) == 10


def test_a_loss_that_only_sending_meets_is_noticed_at_once(bench: Bench, broker: ScriptedBroker) -> None:
    """Its descriptor is closed by then, so no event would tell; the next timer is seconds away."""
    broker_client = bench.broker_client(broker.url, protocol="3.1.1")
    broker.welcome(subscribe=False)
    bench.until(lambda: broker_client.connected)
    linger = struct.pack("ii", 1, 0)
    broker.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)  # closing sends RST
    broker.drop()
    broker_client.publish(messages(1, 0))
    broker_client._flush_iteration()  # the loop has not looked at the socket again
    assert not broker_client.connected
    broker.welcome(subscribe=False)


@versions
@pytest.mark.parametrize("receive", ["batched", "paho"])
def test_a_control_packet_that_makes_paho_fail_ends_the_connection_and_not_the_loop(
    bench: Bench, broker: ScriptedBroker, monkeypatch: pytest.MonkeyPatch, protocol: str, version: int, receive: str
) -> None:
    """Mutation: `Connection._let_paho_read` without its `except`. How paho fails depends on its version."""

    def fail(*_: Any) -> None:
        raise struct.error("unpack requires a buffer of 2 bytes")

    broker_client = bench.broker_client(broker.url, Inbox(), ("t", 1), protocol=protocol, receive=receive)
    for _ in range(3):
        broker.welcome()
        bench.until(lambda: broker_client.connected)
        with monkeypatch.context() as patched:
            patched.setattr(paho.Client, "_packet_handle", fail)
            broker.send(b"\x90\x00")
            bench.until(lambda: not broker_client.connected)
    broker.welcome()
    bench.until(lambda: broker_client.connected)
