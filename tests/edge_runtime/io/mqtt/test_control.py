"""Encoding and decoding of single packets and their properties."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties as PahoProperties

from edge_runtime.io.mqtt import packets
from edge_runtime.io.mqtt.packets import (
    AUTH,
    CONNACK,
    CONNECT,
    DISCONNECT,
    PINGREQ,
    PINGRESP,
    PUBACK,
    PUBCOMP,
    PUBLISH,
    PUBREC,
    PUBREL,
    SUBACK,
    SUBSCRIBE,
    UNSUBACK,
    UNSUBSCRIBE,
    V5,
    V311,
    Connack,
    Connect,
    Disconnect,
    MalformedPacket,
    PacketParser,
    Properties,
    Suback,
    Subscribe,
    SubscribeFilter,
    Unsuback,
    Unsubscribe,
    Will,
    decode_ack,
    decode_connack,
    decode_connect,
    decode_disconnect,
    decode_properties,
    decode_suback,
    decode_subscribe,
    decode_unsuback,
    decode_unsubscribe,
    encode_ack,
    encode_connack,
    encode_connect,
    encode_disconnect,
    encode_message_properties,
    encode_negative_ack,
    encode_pingreq,
    encode_pingresp,
    encode_properties,
    encode_publish,
    encode_suback,
    encode_subscribe,
    encode_unsuback,
    encode_unsubscribe,
    encode_variable,
)
from tests.edge_runtime.io.mqtt.users import each_version

fuzz = partial(settings, deadline=None, derandomize=True)


def one_packet(data: bytes, version: int | None) -> tuple[int, bytes]:
    (item,) = PacketParser(version).feed(data)
    assert len(item) == 2
    return item


texts = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=40)
names = st.text("abcåß/ ", min_size=1, max_size=30).map(str.encode)
pairs = st.lists(st.tuples(texts, texts), min_size=1, max_size=3)
octets = st.binary(max_size=40)
byte_flag, two, four = st.integers(0, 1), st.integers(1, 65_535), st.integers(1, 2**32 - 1)

message_properties = st.fixed_dictionaries(
    {},
    optional={
        "payload_format_indicator": byte_flag,
        "message_expiry_interval": four,
        "content_type": texts,
        "response_topic": texts,
        "correlation_data": octets,
        "user_properties": pairs,
    },
)
publish_properties = st.builds(
    lambda common, own: {**common, **own},
    message_properties,
    st.fixed_dictionaries(
        {}, optional={"topic_alias": two, "subscription_identifiers": st.lists(st.integers(1, 268_435_455), min_size=1)}
    ),
)
connack_properties = st.fixed_dictionaries(
    {},
    optional={
        "session_expiry_interval": four,
        "assigned_client_identifier": texts,
        "server_keep_alive": two,
        "authentication_method": texts,
        "authentication_data": octets,
        "response_information": texts,
        "server_reference": texts,
        "reason_string": texts,
        "receive_maximum": two,
        "topic_alias_maximum": two,
        "maximum_qos": byte_flag,
        "retain_available": byte_flag,
        "user_properties": pairs,
        "maximum_packet_size": four,
        "wildcard_subscription_available": byte_flag,
        "subscription_identifier_available": byte_flag,
        "shared_subscription_available": byte_flag,
    },
)
connect_properties = st.fixed_dictionaries(
    {},
    optional={
        "request_problem_information": byte_flag,
        "request_response_information": byte_flag,
        "receive_maximum": two,
    },
)
will_properties = st.builds(
    lambda common, own: {**common, **own},
    message_properties,
    st.fixed_dictionaries({}, optional={"will_delay_interval": four}),
)


@fuzz(max_examples=60)
@given(
    case=st.one_of(
        st.tuples(st.just(PUBLISH), publish_properties),
        st.tuples(st.just(CONNACK), connack_properties),
        st.tuples(st.just(CONNECT), connect_properties),
        st.tuples(st.just(0), will_properties),
    )
)
def test_properties_survive_a_round_trip(case: tuple[int, Properties]) -> None:
    packet, properties = case
    assert decode_properties(encode_properties(properties), packet) == properties


@fuzz(max_examples=60)
@given(properties=publish_properties)
def test_paho_reads_our_properties(properties: dict[str, Any]) -> None:
    raw = encode_properties(properties)  # type: ignore[arg-type]
    theirs = PahoProperties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
    theirs.unpack(encode_variable(len(raw)) + raw)  # type: ignore[no-untyped-call]
    found = theirs.json()  # type: ignore[no-untyped-call]
    names_of_paho = {
        "payload_format_indicator": "PayloadFormatIndicator",
        "message_expiry_interval": "MessageExpiryInterval",
        "content_type": "ContentType",
        "response_topic": "ResponseTopic",
        "correlation_data": "CorrelationData",
        "user_properties": "UserProperty",
        "topic_alias": "TopicAlias",
        "subscription_identifiers": "SubscriptionIdentifier",
    }
    assert {names_of_paho[name] for name in properties} == found.keys()
    for name, value in properties.items():
        assert getattr(theirs, names_of_paho[name]) == value


@pytest.mark.parametrize(
    ("packet", "raw", "message"),
    [
        (PUBLISH, b"\x7f", "0x7f"),
        (CONNECT, b"\x23\x00\x01", "0x23 does not belong"),
        (PUBLISH, b"\x02\x00\x00", "message_expiry_interval is cut short"),
        (PUBLISH, b"\x01\x02", "payload_format_indicator is 2"),
        (PUBLISH, b"\x01\x00\x01\x00", "there twice"),
        (PUBLISH, b"\x09\x00\x05ab", "correlation_data is cut short"),
        (PUBLISH, b"\x26\x00\x01a", "user property value is cut short"),
        (PUBLISH, b"\x26\x00\x01\xff\x00\x00", "user property name is not valid UTF-8"),
        (PUBLISH, b"\x03\x00\x01\x00", "NUL"),
        (PUBLISH, b"\x0b\x00", "subscription_identifiers is 0"),
        (PUBLISH, b"\x0b\x80\x80\x80\x80\x01", "longer than four bytes"),
        (SUBSCRIBE, b"\x0b\x01\x0b\x02", "there twice"),
        (CONNECT, b"\x21\x00\x00", "receive_maximum is 0"),
        (CONNECT, b"\x27\x00\x00\x00\x00", "maximum_packet_size is 0"),
    ],
)
def test_malformed_properties_are_named(packet: int, raw: bytes, message: str) -> None:
    with pytest.raises(MalformedPacket, match=message):
        decode_properties(raw, packet)


@pytest.mark.parametrize(
    "properties",
    [
        {"no_such_thing": 1},
        {"content_type": b"bytes"},
        {"correlation_data": "text"},
        {"topic_alias": 70_000},
        {"content_type": "a\0b"},
        {"correlation_data": bytes(65_536)},
        {"subscription_identifiers": [268_435_456]},
    ],
)
def test_properties_that_do_not_fit_are_refused(properties: Any) -> None:
    with pytest.raises(ValueError, match=r"property|NUL|fit"):
        encode_properties(properties)


def test_the_quick_message_properties_equal_the_general_ones() -> None:
    pairs_ = [("model", "watch"), ("ü", "")]
    quick = encode_message_properties(correlation_data=b"\x00id", user_properties=pairs_)
    assert quick == encode_properties({"correlation_data": b"\x00id", "user_properties": pairs_})
    assert encode_message_properties() == b""


wills = st.builds(Will, names, octets, st.integers(0, 2), st.booleans(), st.just(b""))


@fuzz(max_examples=80)
@given(
    connect=st.builds(
        Connect,
        client_id=texts,
        clean_start=st.booleans(),
        keep_alive_s=st.integers(0, 65_535),
        version=st.sampled_from([V311, V5]),
        username=texts,
        password=octets,
        will=st.none() | wills,
        properties=st.just(b""),
    )
)
def test_connect_survives_a_round_trip(connect: Connect) -> None:
    assert decode_connect(one_packet(encode_connect(connect), None)[1]) == connect


def test_connect_carries_the_properties_of_version_5() -> None:
    will = Will(b"w", b"x", 1, True, encode_properties({"will_delay_interval": 5, "content_type": "t"}))
    connect = Connect("c", version=V5, will=will, properties=encode_properties({"session_expiry_interval": 9}))
    assert decode_connect(one_packet(encode_connect(connect), None)[1]) == connect


def test_a_password_does_not_show() -> None:
    connect = Connect("c", username="user", password=b"hush")
    assert "hush" not in f"{connect} {connect!r}"
    assert "********" in repr(connect)


@pytest.mark.parametrize(
    ("body", "message", "code"),
    [
        (b"\x00\x06MQIsdp\x03\x02\x00\x0a\x00\x01x", "other than MQTT", 0x84),
        (b"\x00\x04MQTT\x06\x02\x00\x0a\x00\x01x", "other than MQTT", 0x84),
        (b"\x00\x04MQTT\x04\x03\x00\x0a\x00\x01x", "reserved flag", 0x81),
        (b"\x00\x04MQTT\x04\x1e\x00\x0a\x00\x01x\x00\x01t\x00\x00", "will flags", 0x81),
        (b"\x00\x04MQTT\x04\x22\x00\x0a\x00\x01x", "will flags", 0x81),
        (b"\x00\x04MQTT\x04\x42\x00\x0a\x00\x01x\x00\x01p", "password but no user", 0x81),
        (b"\x00\x04MQTT\x04\x02\x00\x0a\x00\x01xmore", "4 bytes follow", 0x81),
        (b"\x00\x04MQTT\x04\x02\x00", "cut short", 0x81),
        (b"\x00\x04MQTT\x05\x02\x00\x0a\x03\x17\x01\x00\x01x", "property|short", 0x81),
        (b"\x00\x04MQTT\x04\x06\x00\x0a\x00\x01x\x00\x01#\x00\x00", "wildcard", 0x90),
    ],
)
def test_a_malformed_connect_is_named(body: bytes, message: str, code: int) -> None:
    with pytest.raises(MalformedPacket, match=message) as caught:
        decode_connect(body)
    assert caught.value.reason_code == code


@each_version
def test_the_other_packets_survive_a_round_trip(version: int) -> None:
    user = encode_properties({"user_properties": [("k", "v" * 200)]}) if version == V5 else b""
    options: dict[str, Any] = (
        {"no_local": True, "retain_as_published": True, "retain_handling": 2} if version == V5 else {}
    )
    subscribe = Subscribe(
        5, (SubscribeFilter(b"a/+", 1), SubscribeFilter(b"$share/g/#", 2), SubscribeFilter(b"b", 0, **options)), user
    )
    unsuback = Unsuback(7, (0, 0x11), user) if version == V5 else Unsuback(7)
    disconnect = Disconnect(0x8E, user) if version == V5 else Disconnect()
    cases: tuple[tuple[Any, Callable[..., bytes], Callable[..., Any], int], ...] = (
        (Connack(True, 0, user), encode_connack, decode_connack, CONNACK),
        (subscribe, encode_subscribe, decode_subscribe, SUBSCRIBE),
        (Suback(5, (0, 1, 0x80), user), encode_suback, decode_suback, SUBACK),
        (Unsubscribe(7, (b"a/+", b"b"), user), encode_unsubscribe, decode_unsubscribe, UNSUBSCRIBE),
        (unsuback, encode_unsuback, decode_unsuback, UNSUBACK),
        (disconnect, encode_disconnect, decode_disconnect, DISCONNECT),
        (Disconnect(), encode_disconnect, decode_disconnect, DISCONNECT),
    )
    for value, encode, decode, first in cases:
        kind, body = one_packet(encode(value, version), version)
        assert (kind, decode(body, version)) == (first, value)
    assert one_packet(encode_pingreq(), version) == (PINGREQ, b"")
    assert one_packet(encode_pingresp(), version) == (PINGRESP, b"")


def test_a_disconnect_of_version_5_may_leave_its_properties_out() -> None:
    assert encode_disconnect(Disconnect(4), V5) == b"\xe0\x01\x04"
    assert decode_disconnect(b"\x04", V5) == Disconnect(4)
    assert one_packet(b"\xf0\x00", V5) == (AUTH, b"")


@pytest.mark.parametrize(
    ("decode", "body", "version", "message"),
    [
        (decode_connack, b"\x02\x00", V311, "CONNACK"),
        (decode_connack, b"\x00", V311, "CONNACK"),
        (decode_connack, b"\x00\x00\x00\x00", V5, "follow the end"),
        (decode_subscribe, b"\x00\x00\x00\x01a\x00", V311, "packet id of SUBSCRIBE is 0"),
        (decode_subscribe, b"\x00\x01", V311, "no filter"),
        (decode_subscribe, b"\x00\x01\x00\x01a", V311, "options are missing"),
        (decode_subscribe, b"\x00\x01\x00\x01a\x03", V311, "0x03"),
        (decode_subscribe, b"\x00\x01\x00\x01a\x04", V311, "0x04"),
        (decode_subscribe, b"\x00\x01\x00\x00\x01a\x30", V5, "0x30"),
        (decode_subscribe, b"\x00\x01\x00\x00\x01a\x40", V5, "0x40"),
        (decode_subscribe, b"\x00\x01\x00\x00\x0a$share/g/a\x04", V5, "no-local"),
        (decode_subscribe, b"\x00\x01\x00\x03a#b\x00", V311, "wildcard"),
        (decode_suback, b"\x00\x01", V311, "no reason code"),
        (decode_unsubscribe, b"\x00\x01", V311, "no filter"),
        (decode_unsuback, b"\x00\x01\x00", V311, "follow the end"),
        (decode_unsuback, b"\x00\x01\x00", V5, "no reason code"),
        (decode_disconnect, b"\x00", V311, "has a body"),
        (decode_disconnect, b"\x00\x01", V5, "cut short"),
    ],
)
def test_malformed_bodies_are_named(decode: Callable[..., Any], body: bytes, version: int, message: str) -> None:
    with pytest.raises(MalformedPacket, match=message):
        decode(body, version)


def test_acknowledgements_are_joined_and_read_back() -> None:
    ids = [1, 255, 256, 65_535]
    for kind in (PUBACK, PUBREC, PUBREL, PUBCOMP):
        for version in (V311, V5):
            acks = PacketParser(version).feed(encode_ack(kind, ids))
            found = [decode_ack(item[0], item[1], version) for item in acks if len(item) == 2]
            assert found == [(kind, number, 0) for number in ids]
    assert encode_ack(PUBACK, []) == b""
    assert decode_ack(*one_packet(encode_negative_ack(PUBACK, 9, 0x97), V5), V5) == (PUBACK, 9, 0x97)
    assert decode_ack(PUBACK, b"\x00\x09\x10\x04\x1f\x00\x01x", V5) == (PUBACK, 9, 0x10)


@pytest.mark.parametrize(
    ("first", "body", "version", "message"),
    [
        (PINGRESP, b"\x00\x01", V5, "no acknowledgement"),
        (PUBACK, b"\x00", V311, "cut short"),
        (PUBACK, b"\x00\x00", V311, "is 0"),
        (PUBACK, b"\x00\x01\x00", V311, "3 bytes"),
        (PUBACK, b"\x00\x01\x00\x05", V5, "cut short"),
        (PUBACK, b"\x00\x01\x00\x00x", V5, "follow the end"),
    ],
)
def test_malformed_acknowledgements_are_named(first: int, body: bytes, version: int, message: str) -> None:
    with pytest.raises(MalformedPacket, match=message):
        decode_ack(first, body, version)


def test_what_mqtt_cannot_carry_is_refused_before_it_is_sent() -> None:
    for call in (
        lambda: encode_publish(b"t", b"", qos=1),
        lambda: encode_publish(b"t", b"", properties=b"\x01\x00"),
        lambda: encode_connect(Connect("c", password=b"p")),
        lambda: encode_connect(Connect("c", properties=b"\x21\x00\x01")),
        lambda: encode_connect(Connect("c\0")),
        lambda: encode_subscribe(Subscribe(1, ()), V311),
        lambda: encode_subscribe(Subscribe(1, (SubscribeFilter(b"a", 0, True),)), V311),
        lambda: encode_unsubscribe(Unsubscribe(1, ()), V311),
        lambda: encode_variable(268_435_456),
        lambda: PacketParser(3),
    ):
        with pytest.raises(ValueError, match=r"needs|has no|allows|cannot|not fit|not known"):
            call()


@pytest.mark.parametrize("length", [127, 128, 16_383, 16_384, 2_097_151, 2_097_152])
def test_every_width_of_the_remaining_length(length: int) -> None:
    payload = bytes(length - 3)
    packet = encode_publish(b"t", payload)
    assert PacketParser(V311, 3_000_000).feed(packet) == [(b"t", payload, 0, 0, 0, None)]
    assert packet[1:-(length)] == encode_variable(length)


def test_the_public_names_exist() -> None:
    assert len(set(packets.__all__)) == len(packets.__all__)
    assert not [name for name in packets.__all__ if not hasattr(packets, name)]
