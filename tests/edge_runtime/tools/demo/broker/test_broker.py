"""One behaviour suite over mosquitto and the embedded broker, driven by paho and by bare bytes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import pytest
from paho.mqtt.packettypes import PacketTypes

from edge_runtime.io.mqtt.packets import (
    PUBACK,
    PUBREC,
    PUBREL,
    V5,
    V311,
    Connect,
    Disconnect,
    Will,
    encode_ack,
    encode_connect,
    encode_disconnect,
    encode_pingreq,
    encode_properties,
    encode_publish,
)
from edge_runtime.tools.demo.broker.broker import Broker
from tests.edge_runtime.io.mqtt.users import Received, User, Wire, each_version, properties_for
from tests.mosquitto import Mosquitto, needs_mosquitto


class AnyBroker(Protocol):
    @property
    def port(self) -> int: ...


@pytest.fixture(params=["embedded", pytest.param("mosquitto", marks=needs_mosquitto)], scope="module")
def broker(request: pytest.FixtureRequest) -> Iterator[AnyBroker]:
    """A broker for the whole module: topics and client ids are a test's own."""
    running: Any = Mosquitto() if request.param == "mosquitto" else Broker()
    with running:
        yield running


@pytest.fixture
def join(broker: AnyBroker) -> Iterator[Callable[..., User]]:
    """Connect users that leave when the test ends."""
    users: list[User] = []

    def connect(client_id: str, version: int = V311, **options: Any) -> User:
        users.append(User(broker.port, client_id, version, **options))
        return users[-1]

    yield connect
    for user in users:
        user.leave()


@each_version
@pytest.mark.parametrize("published", [0, 1, 2])
@pytest.mark.parametrize("granted", [0, 1, 2])
def test_a_message_arrives_with_the_lower_of_both_qos(
    join: Callable[..., User], version: int, published: int, granted: int
) -> None:
    topic = f"qos/{version}/{published}/{granted}"
    reader, writer = join("reader", version), join("writer", version)
    assert [int(code.value) for code in reader.subscribe(topic, granted)] == [granted]
    for number in range(50):
        writer.publish(topic, b"%d" % number, published)
    assert reader.take(50) == [(topic, b"%d" % n, min(published, granted), False) for n in range(50)]


@pytest.mark.parametrize(("sender", "receiver"), [(V311, V5), (V5, V311)])
def test_versions_talk_to_each_other(join: Callable[..., User], sender: int, receiver: int) -> None:
    reader, writer = join("reader", receiver), join("writer", sender)
    reader.subscribe("mixed/#", 2)
    extra = properties_for(PacketTypes.PUBLISH, UserProperty=("a", "b")) if sender == V5 else None
    for qos in (0, 1, 2):
        writer.publish(f"mixed/{qos}", b"x", qos, properties=extra)
    assert sorted(reader.take(3)) == [(f"mixed/{qos}", b"x", qos, False) for qos in (0, 1, 2)]


@each_version
def test_a_retained_message_reaches_later_subscribers_until_it_is_cleared(
    join: Callable[..., User], version: int
) -> None:
    writer = join("writer", version)
    topic = f"retained/{version}/status"
    early = join("early", version)
    early.subscribe(topic, 1)
    writer.publish(topic, b"first", 1, retain=True)
    writer.publish(topic, b"last", 1, retain=True)
    assert early.take(2) == [(topic, b"first", 1, False), (topic, b"last", 1, False)]
    late = join("late", version)
    late.subscribe(f"retained/{version}/#", 1)
    assert late.next() == (topic, b"last", 1, True)
    writer.publish(topic, b"", 1, retain=True)
    assert late.next() == (topic, b"", 1, False)
    after = join("after", version)
    after.subscribe(topic, 1)
    after.nothing_more(writer, topic)


def test_retain_handling_and_retain_as_published_of_version_5(join: Callable[..., User]) -> None:
    writer, reader = join("writer", V5), join("reader", V5)
    writer.publish("handling/a", b"kept", 1, retain=True)
    reader.subscribe("handling/a", 1, retainHandling=2)
    reader.nothing_more(writer, "handling/a")
    reader.subscribe("handling/a", 1, retainHandling=1)  # not a new subscription: nothing is sent
    reader.nothing_more(writer, "handling/a")
    other = join("other", V5)
    other.subscribe("handling/a", 1, retainAsPublished=True)
    assert other.next() == ("handling/a", b"kept", 1, True)
    writer.publish("handling/a", b"new", 1, retain=True)
    assert other.next() == ("handling/a", b"new", 1, True)
    assert reader.next() == ("handling/a", b"new", 1, False)
    writer.publish("handling/a", b"", 1, retain=True)


def test_no_local_keeps_ones_own_messages_away(join: Callable[..., User]) -> None:
    user, other = join("self", V5), join("other", V5)
    user.subscribe("local/x", 1, noLocal=True)
    user.publish("local/x", b"mine", 1)
    other.publish("local/x", b"other", 1)
    assert user.next() == ("local/x", b"other", 1, False)


@each_version
def test_the_will_is_published_when_a_client_vanishes_and_not_when_it_leaves(
    join: Callable[..., User], version: int
) -> None:
    topic = f"will/{version}"
    watcher, writer = join("watcher", version), join("writer", version)
    watcher.subscribe(topic, 1)
    will = {"topic": topic, "payload": b"gone", "qos": 1, "retain": True}
    join("leaves", version, will=will).leave()
    watcher.nothing_more(writer, topic)
    join("vanishes", version, will=will).vanish()
    assert watcher.next() == (topic, b"gone", 1, False)
    late = join("late", version)
    late.subscribe(topic, 1)
    assert late.next() == (topic, b"gone", 1, True)
    writer.publish(topic, b"", 1, retain=True)


@each_version
def test_a_shared_subscription_gives_each_message_to_one_member(join: Callable[..., User], version: int) -> None:
    base = f"shared/{version}"
    members = [join(f"member-{k}", version) for k in range(2)]
    alone, writer = join("alone", version), join("writer", version)
    for member in members:
        member.subscribe(f"$share/workers/{base}/+", 1)
    alone.subscribe(f"{base}/#", 1)
    for number in range(40):
        writer.publish(f"{base}/a", b"%d" % number, 1)
    everything = alone.take(40)
    assert [payload for _, payload, _, _ in everything] == [b"%d" % n for n in range(40)]
    # In turn, unless a member is slow to acknowledge: then mosquitto gives the other one more.
    shares: list[list[Received]] = [[], []]
    give_up = time.monotonic() + 60
    while len(shares[0] + shares[1]) < 40:
        assert time.monotonic() < give_up, f"{len(shares[0])} and {len(shares[1])} of 40 arrived"
        for share, member in zip(shares, members, strict=True):
            while not member.messages.empty():
                share.append(member.next())
        time.sleep(0.01)
    assert sorted(shares[0] + shares[1]) == sorted(everything)
    assert all(shares)
    # A mere DISCONNECT is not acknowledged: mosquitto may read what is published next before it.
    members[0].unsubscribe(f"$share/workers/{base}/+")
    members[0].leave()
    for number in range(10):
        writer.publish(f"{base}/a", b"again %d" % number, 1)
    assert [payload for _, payload, _, _ in members[1].take(10)] == [b"again %d" % n for n in range(10)]


@each_version
def test_a_persistent_session_keeps_subscriptions_and_messages_while_the_client_is_away(
    join: Callable[..., User], version: int
) -> None:
    topic = f"session/{version}"
    writer = join("writer", version)
    keep: dict[str, Any] = {"clean": False}
    if version == V5:
        keep["properties"] = properties_for(PacketTypes.CONNECT, SessionExpiryInterval=60)
    reader = join(f"sleeper-{version}", version, **keep)
    assert not reader.session_present
    reader.subscribe(topic, 2)
    reader.leave()
    for number in range(30):
        writer.publish(topic, b"%d" % number, 1 + number % 2)
    writer.publish(topic, b"not kept", 0)
    reader = join(f"sleeper-{version}", version, **keep)
    assert reader.session_present
    got = reader.take(30)  # paho hands QoS 2 over at PUBREL, so the order holds within a QoS only
    assert sorted(got, key=lambda message: message[2]) == [
        (topic, b"%d" % n, qos, False) for qos in (1, 2) for n in range(qos - 1, 30, 2)
    ]
    reader.leave()
    reader = join(f"sleeper-{version}", version)
    assert not reader.session_present
    reader.leave()
    assert not join(f"sleeper-{version}", version, **keep).session_present


@each_version
def test_unsubscribing_ends_delivery(join: Callable[..., User], version: int) -> None:
    reader, writer = join("reader", version), join("writer", version)
    reader.subscribe(f"unsub/{version}/a", 1)
    reader.subscribe(f"unsub/{version}/b", 1)
    reader.unsubscribe(f"unsub/{version}/a")
    writer.publish(f"unsub/{version}/a", b"x", 1)
    reader.nothing_more(writer, f"unsub/{version}/b")


@each_version
@pytest.mark.parametrize("qos", [0, 1])
def test_a_large_payload_arrives_whole(join: Callable[..., User], version: int, qos: int) -> None:
    reader, writer = join("reader", version), join("writer", version)
    reader.subscribe(f"large/{version}", qos)
    payload = bytes(range(256)) * 12_000  # 3 MB: many recv and send calls on both sides
    for _ in range(2):
        writer.publish(f"large/{version}", payload, qos)
    assert [p == payload for _, p, _, _ in reader.take(2)] == [True, True]


def test_properties_of_version_5_are_passed_on(join: Callable[..., User]) -> None:
    reader, writer = join("reader", V5), join("writer", V5)
    reader.subscribe("props/#", 1, properties=properties_for(PacketTypes.SUBSCRIBE, SubscriptionIdentifier=300))
    sent = properties_for(
        PacketTypes.PUBLISH,
        CorrelationData=b"\x00\xff#id",
        UserProperty=[("model", "watch"), ("model", "again"), ("long", "x" * 200)],
        ContentType="application/json",
        ResponseTopic="answers/1",
        PayloadFormatIndicator=1,
    )
    for qos in (0, 1):
        writer.publish("props/a", b"{}", qos, properties=sent)
        reader.next()
        got = reader.properties.get(timeout=10)
        assert got.CorrelationData == b"\x00\xff#id"
        assert got.UserProperty == [("model", "watch"), ("model", "again"), ("long", "x" * 200)]
        assert (got.ContentType, got.ResponseTopic, got.PayloadFormatIndicator) == ("application/json", "answers/1", 1)
        assert got.SubscriptionIdentifier == [300]


def test_topic_aliases_of_a_client_are_resolved(join: Callable[..., User]) -> None:
    reader, writer = join("reader", V5), join("writer", V5)
    reader.subscribe("alias/#", 1)
    alias = properties_for(PacketTypes.PUBLISH, TopicAlias=3)
    writer.publish("alias/long/name", b"1", 1, properties=alias)
    writer.publish("", b"2", 1, properties=alias)
    writer.publish("", b"3", 0, properties=alias)
    assert [(t, p) for t, p, _, _ in reader.take(3)] == [("alias/long/name", b"%d" % n) for n in (1, 2, 3)]


@each_version
def test_a_second_connection_with_the_same_client_id_ends_the_first(join: Callable[..., User], version: int) -> None:
    first = join(f"twin-{version}", version)
    join(f"twin-{version}", version)
    first.event("disconnect")


def test_a_client_without_an_id_is_given_one(join: Callable[..., User]) -> None:
    user = join("", V5)
    assert user.code == 0
    user.subscribe("anonymous", 1)
    user.publish("anonymous", b"x", 1)
    assert user.next() == ("anonymous", b"x", 1, False)


@pytest.fixture
def wire(broker: AnyBroker) -> Iterator[Callable[[int], Wire]]:
    wires: list[Wire] = []

    def connect(version: int) -> Wire:
        wires.append(Wire(broker.port, version))
        return wires[-1]

    yield connect
    for one in wires:
        one.close()


BAD = {
    "QoS 3": b"\x36\x07\x00\x01a\x00\x01xy",
    "SUBSCRIBE without a filter": b"\x82\x02\x00\x01",
    "second CONNECT": encode_connect(Connect("again")),
    "CONNACK from a client": b"\x20\x02\x00\x00",
}


@each_version
@pytest.mark.parametrize("name", BAD)
def test_a_malformed_client_is_disconnected_without_hurting_others(
    join: Callable[..., User], wire: Callable[[int], Wire], version: int, name: str
) -> None:
    topic = f"unharmed/{version}"
    reader, writer = join("reader", version), join("writer", version)
    reader.subscribe(topic, 1)
    bad = wire(version)
    assert bad.connect("bad").reason_code == 0
    bad.send(BAD[name])
    assert bad.is_closed()
    reader.nothing_more(writer, topic)


@each_version
def test_a_client_that_does_not_begin_with_connect_is_disconnected(wire: Callable[[int], Wire], version: int) -> None:
    for data in (b"GET / HTTP/1.1\r\n\r\n", encode_pingreq() + bytes(8), encode_publish(b"a", b"x", version=version)):
        stranger = wire(version)
        stranger.send(data)
        assert stranger.is_closed()


@each_version
def test_a_qos_2_message_that_is_sent_again_is_delivered_once(
    join: Callable[..., User], wire: Callable[[int], Wire], version: int
) -> None:
    topic = b"twice/%d" % version
    reader, writer = join("reader", version), join("writer", version)
    reader.subscribe(topic.decode(), 2)
    sender = wire(version)
    sender.connect("sender")
    sender.send(encode_publish(topic, b"once", 2, 7, version=version))
    assert sender.next()[0] == PUBREC
    sender.send(encode_publish(topic, b"once", 2, 7, dup=True, version=version))
    assert sender.next()[0] == PUBREC
    sender.send(encode_ack(PUBREL, [7]))
    assert reader.next()[:2] == (topic.decode(), b"once")
    reader.nothing_more(writer, topic.decode())


@each_version
def test_unacknowledged_messages_are_sent_again_in_order_when_the_session_resumes(
    join: Callable[..., User], wire: Callable[[int], Wire], version: int
) -> None:
    topic = b"again/%d" % version
    writer = join("writer", version)
    keep: dict[str, Any] = {"clean_start": False}
    if version == V5:
        keep["properties"] = encode_properties({"session_expiry_interval": 60})
    first = wire(version)
    first.connect(f"repeat-{version}", **keep)
    first.subscribe(topic, 2)
    for number in range(4):
        writer.publish(topic.decode(), b"%d" % number, 1 + number % 2)
    sent = [first.next() for _ in range(4)]
    first.send(encode_ack(PUBREC, [sent[1][2]]))  # of message 1, which is QoS 2: what remains for it is the PUBREL
    assert first.next() == (PUBREL, sent[1][2].to_bytes(2, "big"))
    first.close()
    second = wire(version)
    assert second.connect(f"repeat-{version}", **keep).session_present
    again = [second.next() for _ in range(4)]
    publishes = [item for item in again if len(item) == 6]
    assert [(item[1], item[2], item[3], item[4]) for item in publishes] == [
        (sent[n][1], sent[n][2], sent[n][3], 8)
        for n in (0, 2, 3)  # flags 8: marked as duplicates
    ]
    assert (PUBREL, sent[1][2].to_bytes(2, "big")) in again
    second.send(encode_disconnect(Disconnect(), version))


def test_the_receive_maximum_of_the_client_is_kept(join: Callable[..., User], wire: Callable[[int], Wire]) -> None:
    writer = join("writer", V5)
    reader = wire(V5)
    reader.connect("narrow", properties=encode_properties({"receive_maximum": 3}))
    reader.subscribe(b"narrow", 1)
    for number in range(10):
        writer.publish("narrow", b"%d" % number, 1)
    seen = [reader.next() for _ in range(3)]
    reader.send(encode_pingreq())
    assert reader.next() == (0xD0, b"")  # nothing but the answer to the ping: the window is full
    while len(seen) < 10:
        reader.send(encode_ack(PUBACK, [seen[len(seen) - 3][2]]))
        seen.append(reader.next())
    assert [item[1] for item in seen] == [b"%d" % n for n in range(10)]


def test_the_maximum_packet_size_of_the_client_is_kept(join: Callable[..., User], wire: Callable[[int], Wire]) -> None:
    writer = join("writer", V5)
    reader = wire(V5)
    reader.connect("small", properties=encode_properties({"maximum_packet_size": 100}))
    reader.subscribe(b"small", 1)
    for qos in (0, 1):
        writer.publish("small", bytes(200), qos)
    writer.publish("small", b"fits", 1)
    assert reader.next()[1] == b"fits"


def test_a_silent_client_is_disconnected_after_one_and_a_half_keep_alives(
    join: Callable[..., User], wire: Callable[[int], Wire], request: pytest.FixtureRequest
) -> None:
    watcher = join("watcher")
    watcher.subscribe("silent", 1)
    silent = wire(V311)
    started = time.monotonic()
    silent.connect("silent", keep_alive_s=1, will=Will(b"silent", b"gone"))
    assert watcher.next()[1] == b"gone"
    # mosquitto counts in whole seconds.
    assert time.monotonic() - started >= (1.0 if "mosquitto" in request.node.name else 1.4)
    assert silent.is_closed()
