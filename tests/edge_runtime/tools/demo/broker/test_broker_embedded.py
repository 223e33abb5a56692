"""What only the embedded broker has: its limits, its restart, its command; and its protocol without sockets."""

from __future__ import annotations

import logging
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_runtime.errors import ConnectionFailed
from edge_runtime.io.mqtt.packets import (
    CONNACK,
    DISCONNECT,
    PUBACK,
    V5,
    V311,
    Connect,
    Subscribe,
    SubscribeFilter,
    Will,
    decode_disconnect,
    decode_properties,
    encode_ack,
    encode_connect,
    encode_properties,
    encode_publish,
    encode_subscribe,
)
from edge_runtime.tools.demo.broker.broker import Broker, EmbeddedBrokerConfig
from edge_runtime.tools.demo.broker.protocol import BrokerProtocol, Client
from tests.edge_runtime.io.mqtt.users import WAIT_S, Wire, each_version


@pytest.fixture
def embedded(request: pytest.FixtureRequest) -> Iterator[Broker]:
    """An embedded broker of the test's own; indirect parameters are those of BrokerConfig."""
    with Broker(EmbeddedBrokerConfig(**getattr(request, "param", {}))) as running:
        yield running


def configured(**values: Any) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("embedded", [values], indirect=True)


def subscribed(port: int, version: int, client_id: str, topic_filter: bytes, qos: int, **options: Any) -> Wire:
    reader = Wire(port, version)
    reader.connect(client_id, **options)
    reader.subscribe(topic_filter, qos)
    return reader


def until(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + WAIT_S
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.005)
    return condition()


def test_it_listens_on_loopback_only_and_says_what_it_is_for(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO), Broker() as running:
        assert running.url == f"mqtt://127.0.0.1:{running.port}"
        assert running.port > 0
        with pytest.raises(ConnectionFailed, match=r"cannot listen on 127\.0\.0\.1"):
            Broker(EmbeddedBrokerConfig(port=running.port)).start()
    assert "for demo and tests only" in caplog.text
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", running.port))


def test_stopping_says_goodbye_and_starting_again_keeps_sessions_and_retained_messages(embedded: Broker) -> None:
    reader = subscribed(
        embedded.port, V5, "stays", b"kept/#", 1, properties=encode_properties({"session_expiry_interval": 60})
    )
    writer = Wire(embedded.port, V311)
    writer.connect("writer", will=Will(b"kept/will", b"not its fault"))
    writer.send(encode_publish(b"kept/a", b"x", 1, 1, retain=True))
    assert reader.next()[:2] == (b"kept/a", b"x")
    embedded.stop()
    first, body = reader.next()
    assert (first, decode_disconnect(body, V5).reason_code) == (DISCONNECT, 0x8B)
    assert reader.is_closed()
    assert writer.is_closed()
    embedded.start()
    again = Wire(embedded.port, V5)
    assert again.connect("stays", clean_start=False).session_present
    assert again.next()[:5] == (b"kept/a", b"x", 1, 1, 8)  # it was never acknowledged
    late = subscribed(embedded.port, V311, "late", b"kept/#", 0)
    assert late.next()[:2] == (b"kept/a", b"x")
    assert embedded.stats().retained == 1
    for one in (reader, writer, again, late):
        one.close()


@configured(max_inflight=2, max_queued=3)
def test_a_full_queue_drops_the_newest_and_counts_it(embedded: Broker) -> None:
    reader = subscribed(embedded.port, V311, "reader", b"q", 1)
    writer = Wire(embedded.port, V311)
    writer.connect("writer")
    for number in range(1, 11):
        writer.send(encode_publish(b"q", b"%d" % number, 1, number))
    assert [item[1] for item in (reader.next(), reader.next())] == [b"1", b"2"]
    assert until(lambda: embedded.stats().dropped_queue_full == 5)
    assert embedded.stats().undelivered == 5
    for packet_id in (1, 2, 3, 4, 5):
        reader.send(encode_ack(PUBACK, [packet_id]))
    assert [reader.next()[1] for _ in range(3)] == [b"3", b"4", b"5"]
    assert until(lambda: embedded.stats().undelivered == 0)
    reader.close()
    writer.close()


@configured(max_buffered_bytes=100_000)
def test_a_client_that_does_not_read_loses_qos_0_messages_and_not_the_broker_its_memory(embedded: Broker) -> None:
    reader = subscribed(embedded.port, V311, "reader", b"fast", 0)
    writer = Wire(embedded.port, V311)
    writer.connect("writer")
    packet = encode_publish(b"fast", bytes(50_000))
    for _ in range(400):  # 20 MB, while the sockets' own buffers hold a few
        writer.send(packet)
    assert until(lambda: embedded.stats().received == 400)
    stats = embedded.stats()
    assert stats.dropped_slow > 0
    assert stats.sent + stats.dropped_slow == 400
    for _ in range(stats.sent):
        assert len(reader.next()[1]) == 50_000
    reader.close()
    writer.close()


@configured(username="user", password="secret")
@each_version
def test_wrong_credentials_are_refused(embedded: Broker, version: int) -> None:
    refused = 0x87 if version == V5 else 5
    for username, password in ((None, None), ("user", b"wrong"), ("other", b"secret"), ("user", None)):
        wrong = Wire(embedded.port, version)
        assert wrong.connect("x", username=username, password=password).reason_code == refused
        assert wrong.is_closed()
        wrong.close()
    right = Wire(embedded.port, version)
    assert right.connect("x", username="user", password=b"secret").reason_code == 0
    right.close()
    assert "secret" not in repr(EmbeddedBrokerConfig(username="user", password="secret"))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"port": 70_000}, "port"),
        ({"max_inflight": 0}, "max_inflight"),
        ({"max_queued": -1}, "max_queued"),
        ({"max_packet_bytes": 2}, "max_packet_bytes"),
        ({"username": "u"}, "both or neither"),
    ],
)
def test_a_configuration_that_makes_no_sense_is_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        EmbeddedBrokerConfig(**values)


@configured(max_packet_bytes=1000)
def test_a_packet_over_the_limit_ends_the_connection_before_it_has_arrived(embedded: Broker) -> None:
    writer = Wire(embedded.port, V5)
    assert decode_properties(writer.connect("writer").properties, CONNACK)["maximum_packet_size"] == 1000
    writer.send(b"\x30\xe8\x07")  # 1000 bytes to come, 1003 in all
    first, body = writer.next()
    assert (first, decode_disconnect(body, V5).reason_code) == (DISCONNECT, 0x95)
    assert until(lambda: embedded.stats().malformed == 1)
    writer.close()


@configured(max_sessions=2)
def test_sessions_are_bounded(embedded: Broker) -> None:
    users = [Wire(embedded.port, V5) for _ in range(3)]
    assert [user.connect(f"u{k}").reason_code for k, user in enumerate(users)] == [0, 0, 0x97]
    users[0].close()
    assert until(lambda: embedded.stats().sessions == 1)
    late = Wire(embedded.port, V311)
    assert late.connect("late").reason_code == 0
    for user in (*users, late):
        user.close()


def test_a_session_taken_over_is_told_so(embedded: Broker) -> None:
    first, second = Wire(embedded.port, V5), Wire(embedded.port, V5)
    first.connect("twin")
    assert second.connect("twin").reason_code == 0
    kind, body = first.next()
    assert (kind, decode_disconnect(body, V5).reason_code) == (DISCONNECT, 0x8E)
    first.close()
    second.close()


def test_an_old_or_unknown_protocol_is_told_so(embedded: Broker) -> None:
    old = Wire(embedded.port, V311)
    old.send(b"\x10\x0f\x00\x06MQIsdp\x03\x02\x00\x3c\x00\x01x")
    assert old.next() == (CONNACK, b"\x00\x01")
    assert old.is_closed()
    old.close()


# The protocol without sockets.


class Desk:
    """A broker protocol with hand-driven clients."""

    def __init__(self, **values: Any) -> None:
        self.protocol = BrokerProtocol(EmbeddedBrokerConfig(**values))
        self.woken: list[Client] = []

    def connect(self, client_id: str, version: int = V311, topic_filter: bytes = b"", **options: Any) -> Client:
        client = Client(2**20, 0.0, self.woken.append)
        data = encode_connect(Connect(client_id, version=version, **options))
        if topic_filter:
            data += encode_subscribe(Subscribe(1, (SubscribeFilter(topic_filter, 1),)), version)
        self.protocol.received(client, data, 0.0)
        client.outgoing.clear()
        self.woken.clear()
        return client


def test_a_burst_is_acknowledged_in_one_piece_and_each_client_woken_once() -> None:
    desk = Desk(max_inflight=100)
    reader, writer = desk.connect("reader", topic_filter=b"#"), desk.connect("writer")
    burst = b"".join(encode_publish(b"t", b"x", 1, packet_id) for packet_id in range(1, 101))
    desk.protocol.received(writer, burst, 0.0)
    assert writer.outgoing == [encode_ack(PUBACK, range(1, 101))]
    assert len(reader.outgoing) == 100
    assert desk.woken == [reader, writer]


def test_overlapping_subscriptions_deliver_once_with_the_highest_qos() -> None:
    desk = Desk()
    reader, writer = desk.connect("reader"), desk.connect("writer")
    subscriptions = (SubscribeFilter(b"a/#", 0), SubscribeFilter(b"a/+", 1), SubscribeFilter(b"+/+", 0))
    desk.protocol.received(reader, encode_subscribe(Subscribe(1, subscriptions), V311), 0.0)
    reader.outgoing.clear()
    desk.protocol.received(writer, encode_publish(b"a/b", b"x", 2, 1), 0.0)
    assert reader.outgoing == [encode_publish(b"a/b", b"x", 1, 1)]


def test_each_acknowledgement_lets_one_waiting_message_go() -> None:
    desk = Desk(max_inflight=2)
    reader, writer = desk.connect("reader", topic_filter=b"t"), desk.connect("writer")
    desk.protocol.received(writer, encode_publish(b"t", b"", 1, 1) * 5, 0.0)
    assert len(reader.outgoing) == 2
    for packet_id, sent in ((1, 3), (1, 3), (2, 4), (3, 5), (4, 5)):
        desk.protocol.received(reader, encode_ack(PUBACK, [packet_id]), 0.0)
        assert len(reader.outgoing) == sent


@pytest.mark.slow
def test_a_packet_id_still_in_flight_is_not_given_out_again() -> None:
    desk = Desk()
    reader, writer = desk.connect("reader", topic_filter=b"t"), desk.connect("writer")
    packet = encode_publish(b"t", b"", 1, 1)
    desk.protocol.received(writer, packet, 0.0)  # id 1, never acknowledged
    for packet_id in range(2, 65_536):
        desk.protocol.received(writer, packet, 0.0)
        desk.protocol.received(reader, encode_ack(PUBACK, [packet_id]), 0.0)
    reader.outgoing.clear()
    desk.protocol.received(writer, packet, 0.0)
    assert reader.outgoing == [encode_publish(b"t", b"", 1, 2)]


@each_version
@pytest.mark.parametrize("before", [True, False], ids=["its end comes first", "the new one comes first"])
@pytest.mark.parametrize("last_words", [b"", b"\x32", b"\xe0\x00"], ids=["silence", "half a packet", "good-bye"])
def test_a_session_goes_on_however_the_old_connection_ends(version: int, last_words: bytes, *, before: bool) -> None:
    """A process that replaces itself connects again while the end of its old connection is still on the way.

    Mutations that this finds: a take-over that forgets the session; `ClientSession.attach` that lets it expire.
    """
    desk = Desk()
    properties = encode_properties({"session_expiry_interval": 60}) if version == V5 else b""
    old = desk.connect("one", version, topic_filter=b"t", clean_start=False, properties=properties)
    writer = desk.connect("writer")

    def end() -> None:
        if last_words and not old.closing:
            desk.protocol.received(old, last_words, 1.0)
        desk.protocol.lost(old, 1.0)

    desk.protocol.received(writer, encode_publish(b"t", b"first", 1, 1), 0.0)
    if before:
        end()
    desk.protocol.received(writer, encode_publish(b"t", b"second", 1, 2), 1.0)
    new = Client(2**20, 1.0, desk.woken.append)
    again = Connect("one", version=version, clean_start=False, properties=properties)
    desk.protocol.received(new, encode_connect(again), 1.0)
    if not before:
        end()
    connack, *came = new.outgoing
    assert connack[2] == 1, "the session is present"
    assert came == [
        encode_publish(b"t", b"first", 1, 1, dup=True, version=version),
        encode_publish(b"t", b"second", 1, 2, dup=not before, version=version),
    ]
    new.outgoing.clear()
    desk.protocol.sweep([], 1_000.0)
    desk.protocol.received(writer, encode_publish(b"t", b"third", 1, 3), 1_000.0)
    assert new.outgoing[-1:] == [encode_publish(b"t", b"third", 1, 3, version=version)], "nobody has taken it away"


def test_a_session_ends_when_its_expiry_interval_is_over() -> None:
    desk = Desk()
    properties = encode_properties({"session_expiry_interval": 10})
    client = desk.connect("brief", V5, topic_filter=b"x", properties=properties)
    desk.protocol.lost(client, 100.0)
    desk.protocol.sweep([], 109.9)
    assert "brief" in desk.protocol.sessions
    desk.protocol.sweep([], 110.0)
    assert "brief" not in desk.protocol.sessions


def test_a_client_that_never_says_who_it_is_is_disconnected() -> None:
    desk = Desk()
    silent = Client(1000, 0.0, desk.woken.append)
    desk.protocol.sweep([silent], 9.0)
    assert not silent.closing
    desk.protocol.sweep([silent], 10.5)
    assert silent.closing


def test_messages_for_a_shared_subscription_wait_when_all_members_are_away() -> None:
    desk = Desk()
    worker = desk.connect("worker", topic_filter=b"$share/g/t", clean_start=False)
    writer = desk.connect("writer")
    desk.protocol.lost(worker, 0.0)
    desk.protocol.received(writer, encode_publish(b"t", b"x", 1, 1), 0.0)
    worker = Client(2**20, 0.0, desk.woken.append)
    desk.protocol.received(worker, encode_connect(Connect("worker", clean_start=False)), 0.0)
    assert worker.outgoing == [b"\x20\x02\x01\x00", encode_publish(b"t", b"x", 1, 1)]


def test_what_came_before_a_malformed_packet_counts() -> None:
    desk = Desk()
    reader, writer = desk.connect("reader", topic_filter=b"t"), desk.connect("writer")
    desk.protocol.received(writer, encode_publish(b"t", b"good", 0) + b"\x36\x00", 0.0)
    assert reader.outgoing == [encode_publish(b"t", b"good", 0)]
    assert writer.closing


@given(data=st.binary(max_size=200), version=st.sampled_from([V311, V5]))
def test_no_bytes_of_a_client_raise_or_hurt_others(data: bytes, version: int) -> None:
    desk = Desk()
    reader, writer = desk.connect("reader", V5, topic_filter=b"fine"), desk.connect("writer", version)
    desk.protocol.received(writer, data, 0.0)
    desk.protocol.lost(writer, 0.0)
    other = desk.connect("other", version)
    reader.outgoing.clear()
    desk.protocol.received(other, encode_publish(b"fine", b"x", version=version), 0.0)
    assert reader.outgoing == [encode_publish(b"fine", b"x", version=V5)]


def test_the_command_serves_until_it_is_told_to_end() -> None:
    command = [sys.executable, "-m", "edge_runtime.tools.demo.broker.broker"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    url = process.stdout.readline().strip()
    user = Wire(int(url.rpartition(":")[2]), V5)
    assert user.connect("x").reason_code == 0
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=WAIT_S)
    assert process.returncode == 0
    assert "for demo and tests only" in err
    assert "clients=1" in out
    user.close()


def test_the_command_says_in_one_line_why_it_cannot_listen() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        command = [sys.executable, "-m", "edge_runtime.tools.demo.broker.broker", "--port", str(taken.getsockname()[1])]
        done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("error: cannot listen on")
    assert done.stderr.count("\n") == 1
