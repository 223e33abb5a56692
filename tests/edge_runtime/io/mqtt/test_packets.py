"""The parser: what it finds is what paho finds, whatever the splits; what is malformed raises and nothing else."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_runtime.errors import ConnectionFailed
from edge_runtime.io.mqtt import parser
from edge_runtime.io.mqtt.packets import (
    CONNACK,
    CONNECT,
    DISCONNECT,
    DUP,
    PINGRESP,
    PUBACK,
    PUBCOMP,
    PUBLISH,
    PUBREC,
    PUBREL,
    RETAIN,
    SUBACK,
    SUBSCRIBE,
    UNSUBACK,
    UNSUBSCRIBE,
    V5,
    V311,
    Connect,
    Item,
    MalformedPacket,
    PacketParser,
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
    encode_connect,
    encode_publish,
)
from tests.edge_runtime.io.mqtt.paho_oracle import as_paho_delivers, paho_messages
from tests.edge_runtime.io.mqtt.record_stream import DATA, NAMES
from tests.edge_runtime.io.mqtt.users import each_version

fuzz = partial(settings, deadline=None, derandomize=True)

TOPICS = (b"a", b"s/1", b"s/2", "größe/°c".encode(), b"x" * 127, b"y" * 129, b"deep/" * 60 + b"end")

# One block of a stream: how many messages like this, where, how large, with what QoS and properties.
blocks = st.tuples(
    st.sampled_from([1, 1, 1, 2, 5, 15, 16, 17, 40]),
    st.sampled_from(TOPICS),
    st.sampled_from([0, 1, 2, 100, 121, 122, 123, 124, 125, 126, 127, 128, 129, 200, 16_370, 16_384]),
    st.sampled_from([0, 0, 1, 1, 2]),
    st.booleans(),
    st.booleans(),
    st.sampled_from(
        [b"", b"", b"", b"\x09\x00\x03a#b", b"\x26\x00\x01k\x00\x01v", b"\x26\x00\x01k\x00\xc8" + b"v" * 200]
    ),
)
others = st.sampled_from([b"\xd0\x00", encode_ack(PUBACK, [7]), encode_ack(PUBREC, [8, 9]), encode_ack(PUBREL, [3])])
streams = st.lists(st.one_of(blocks, blocks, others), max_size=8)


def build(stream: list[Any], version: int) -> tuple[bytes, list[Item]]:
    """The bytes of a stream of blocks, and the items that it must give."""
    data: list[bytes] = []
    items: list[Item] = []
    packet_id = 0
    for block in stream:
        if isinstance(block, bytes):
            data.append(block)
            items += [(block[at], block[at + 2 : at + 2 + block[at + 1]]) for at in range(0, len(block), 4)]
            continue
        count, topic, size, qos, retain, dup, properties = block
        if version == V311:
            properties = b""
        for k in range(count):
            packet_id = packet_id % 65_535 + 1
            payload = k.to_bytes(2, "big")[-size:] + bytes(max(0, size - 2)) if size else b""
            number = packet_id if qos else 0
            again = dup and qos > 0
            data.append(encode_publish(topic, payload, qos, number, retain, again, version, properties))
            flags = (RETAIN if retain else 0) | (DUP if again else 0)
            items.append((topic, payload, number, qos, flags, properties or None))
            if qos == 2 and k % 2:
                data.append(encode_ack(PUBREL, [number]))
                items.append((PUBREL, number.to_bytes(2, "big")))
    return b"".join(data), items


def feed_split(parser_: PacketParser, data: bytes, cuts: list[int]) -> tuple[list[Item], str | None]:
    """Feed in portions; returns all items, and the message of the error that ended it."""
    items: list[Item] = []
    for start, end in pairwise([0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]):
        try:
            items += parser_.feed(data[start:end])
        except MalformedPacket as error:
            return items + error.parsed, str(error)
    return items, None


@pytest.mark.slow
@fuzz(max_examples=150)
@given(stream=streams, version=st.sampled_from([V311, V5]), cuts=st.lists(st.integers(0, 10**6), max_size=12))
def test_every_split_of_a_stream_gives_the_same_packets(stream: list[Any], version: int, cuts: list[int]) -> None:
    data, expected = build(stream, version)
    assert feed_split(PacketParser(version), data, cuts) == (expected, None)
    assert PacketParser(version).feed(data) == expected


@fuzz(max_examples=60)
@given(stream=streams, version=st.sampled_from([V311, V5]), cuts=st.lists(st.integers(0, 10**6), max_size=12))
def test_paho_sees_the_same_messages_in_the_same_order(stream: list[Any], version: int, cuts: list[int]) -> None:
    data, _ = build([block for block in stream if not isinstance(block, bytes)], version)
    items, error = feed_split(PacketParser(version), data, cuts)
    assert error is None
    assert as_paho_delivers(items) == paho_messages(version, data)


@each_version
@pytest.mark.parametrize("portion", [1, 7, 1000, 10**6])
def test_a_recorded_stream_of_mosquitto_gives_what_paho_makes_of_it(version: int, portion: int) -> None:
    data = (DATA / NAMES[version]).read_bytes()
    reader = PacketParser(version)
    items = [item for at in range(0, len(data), portion) for item in reader.feed(data[at : at + portion])]
    assert reader.pending_bytes == 0
    seen = as_paho_delivers(items)
    assert len(seen) == 167
    assert {qos for _, _, qos, _, _ in seen} == {0, 1, 2}
    assert seen == paho_messages(version, data, has_connack=True)


@pytest.mark.slow
@fuzz(max_examples=300)
@given(
    stream=streams,
    version=st.sampled_from([V311, V5]),
    damage=st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), min_size=1, max_size=4),
    cuts=st.lists(st.integers(0, 10**6), max_size=8),
)
def test_a_damaged_stream_raises_malformed_packet_or_nothing(
    stream: list[Any], version: int, damage: list[tuple[int, int]], cuts: list[int]
) -> None:
    data = bytearray(build(stream, version)[0])
    for at, value in damage:
        if data:
            data[at % len(data)] = value
    whole = PacketParser(version, 20_000, topic_alias_maximum=3)
    items, error = feed_split(whole, bytes(data), [])
    assert whole.pending_bytes <= 20_000
    # What comes out, and what is wrong, does not depend on how the bytes arrive.
    assert feed_split(PacketParser(version, 20_000, topic_alias_maximum=3), bytes(data), cuts) == (items, error)
    decode_all(items, version)


@fuzz(max_examples=500)
@given(data=st.binary(max_size=80), version=st.sampled_from([V311, V5, None]))
def test_random_bytes_raise_malformed_packet_or_nothing(data: bytes, version: int | None) -> None:
    items, _ = feed_split(PacketParser(version), data, [])
    decode_all(items, version or V5)


@pytest.mark.slow
@fuzz(max_examples=500)
@given(
    first=st.sampled_from([CONNECT, CONNACK, PUBACK, PUBREL, SUBSCRIBE, SUBACK, UNSUBSCRIBE, UNSUBACK, DISCONNECT]),
    body=st.one_of(st.binary(max_size=60), st.binary(max_size=40).map(lambda tail: b"\x00\x04MQTT\x05" + tail)),
    version=st.sampled_from([V311, V5]),
)
def test_random_bodies_raise_malformed_packet_or_nothing(first: int, body: bytes, version: int) -> None:
    decode_all([(first, body)], version)


def decode_all(items: list[Item], version: int) -> None:
    decoders: dict[int, Callable[..., Any]] = {
        CONNECT: lambda body, _: decode_connect(body),
        CONNACK: decode_connack,
        SUBSCRIBE: decode_subscribe,
        SUBACK: decode_suback,
        UNSUBSCRIBE: decode_unsubscribe,
        UNSUBACK: decode_unsuback,
        DISCONNECT: decode_disconnect,
    }
    for item in items:
        try:
            if len(item) == 6:
                decode_properties(item[5], PUBLISH)
            elif item[0] in {PUBACK, PUBREC, PUBREL, PUBCOMP}:
                decode_ack(item[0], item[1], version)
            elif item[0] in decoders:
                decoders[item[0]](item[1], version)
        except MalformedPacket:
            pass


MALFORMED = {
    "QoS 3": (V311, b"\x36\x00", "QoS 3"),
    "duplicate of QoS 0": (V311, b"\x38\x03\x00\x01a", "duplicate"),
    "packet id 0": (V311, b"\x32\x05\x00\x01a\x00\x00", "packet id of PUBLISH is 0"),
    "no packet id": (V311, b"\x32\x03\x00\x01a", "packet id of PUBLISH is cut short"),
    "no topic": (V311, b"\x30\x00", "topic of PUBLISH is cut short"),
    "half a topic length": (V311, b"\x30\x01\x00", "topic of PUBLISH is cut short"),
    "topic over the end": (V311, b"\x30\x04\x00\x03ab", "topic of PUBLISH is cut short"),
    "empty topic": (V311, b"\x30\x03\x00\x00x", "topic is empty"),
    "empty topic without alias": (V5, b"\x30\x04\x00\x00\x00x", "topic is empty"),
    "topic not UTF-8": (V311, b"\x30\x04\x00\x02\xff\xfe", "not valid UTF-8"),
    "topic with a surrogate": (V311, b"\x30\x05\x00\x03\xed\xa0\x80", "not valid UTF-8"),
    "topic with NUL": (V311, b"\x30\x04\x00\x02a\x00", "NUL"),
    "topic with +": (V311, b"\x30\x05\x00\x03a/+", "wildcard"),
    "topic with #": (V311, b"\x30\x03\x00\x01#", "wildcard"),
    "no property length": (V5, b"\x30\x03\x00\x01a", "property length of PUBLISH is cut short"),
    "properties over the end": (V5, b"\x30\x05\x00\x01a\x02\x26", "properties of PUBLISH are cut short"),
    "padded property length": (V5, b"\x30\x05\x00\x01a\x80\x00", "shortest form"),
    "padded remaining length": (V5, b"\xd0\x80\x00", "shortest form"),
    "five byte remaining length": (V311, b"\x30\x80\x80\x80\x80\x01", "longer than four bytes"),
    "type 0": (V311, b"\x00\x00", "0x00"),
    "type 15 in 3.1.1": (V311, b"\xf0\x00", "0xf0"),
    "flags of SUBSCRIBE": (V5, b"\x80\x00", "0x80"),
    "flags of PUBREL": (V5, b"\x60\x02\x00\x01", "0x60"),
    "ping with a body": (V311, b"\xc0\x01x", "ping"),
    "too large": (V311, b"\x30\xc8\x01", "packet of 203 bytes is over the limit of 200"),
    "alias over the maximum": (V5, b"\x30\x07\x00\x01a\x03\x23\x00\x05", "over the maximum of 4"),
    "alias 0": (V5, b"\x30\x07\x00\x01a\x03\x23\x00\x00", "topic_alias is 0"),
    "alias never set": (V5, b"\x30\x06\x00\x00\x03\x23\x00\x01", "never set"),
    "before CONNECT": (None, b"\x30\x03\x00\x01a", "not that of CONNECT"),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_packet_is_named_and_ends_the_stream(name: str) -> None:
    version, data, message = MALFORMED[name]
    reader = PacketParser(version, 200, topic_alias_maximum=4)
    good = b"" if version is None else encode_publish(b"fine", b"x", version=version)
    with pytest.raises(MalformedPacket, match=message) as caught:
        reader.feed(good + data + b"rest")
    assert caught.value.parsed == ([] if version is None else [(b"fine", b"x", 0, 0, 0, None)])
    assert isinstance(caught.value, ConnectionFailed)
    assert caught.value.reason_code >= 0x80
    with pytest.raises(MalformedPacket, match=message):
        reader.feed(good)


@each_version
@pytest.mark.parametrize("broken", [0, 3, 15, 16, 30])
def test_a_packet_id_of_0_within_a_burst_is_found(version: int, broken: int) -> None:
    """Bursts are unpacked together; what is wrong in the middle of one must not pass."""
    ids = [0 if k == broken else k + 1 for k in range(31)]
    good = [encode_publish(b"burst", b"payload", 1, max(1, k), version=version) for k in ids]
    at = good[broken].index(b"\x00\x01", 9)
    good[broken] = good[broken][:at] + b"\x00\x00" + good[broken][at + 2 :]
    with pytest.raises(MalformedPacket, match="packet id") as caught:
        PacketParser(version).feed(b"".join(good))
    assert [item[2] for item in caught.value.parsed] == ids[:broken]


@each_version
@pytest.mark.parametrize("strange", [1, 8, 16, 20])
@pytest.mark.parametrize("size", [60, 300])
def test_packets_of_equal_size_within_a_burst_keep_their_own_parts(version: int, strange: int, size: int) -> None:
    """Same first byte, same size, another topic length: the burst must not be unpacked as if all were alike."""
    topics = [b"topic/%02d/longer" % k if k == strange else b"topic/%02d" % k for k in range(40)]
    sent = [(topic, topic + b"p" * (size - 2 * len(topic)), k + 1) for k, topic in enumerate(topics)]
    data = b"".join(encode_publish(topic, payload, 1, k, version=version) for topic, payload, k in sent)
    for _ in range(2):  # the second time, all topics are known
        items = PacketParser(version).feed(data)
        assert [item[:3] for item in items] == sent


def test_properties_over_the_end_are_found_where_topic_and_layout_are_known_too() -> None:
    good = encode_publish(b"known/topic", b"payload", version=V5)
    bad = good.replace(b"topic\x00", b"topic\x0a")
    reader = PacketParser(V5)
    assert len(reader.feed(good * 2)) == 2
    with pytest.raises(MalformedPacket, match="properties of PUBLISH are cut short") as caught:
        reader.feed(good + bad + good)
    assert len(caught.value.parsed) == 1


def test_a_bad_topic_within_a_burst_is_found() -> None:
    burst = [encode_publish(b"topic/%02d" % k, b"payload") for k in range(40)]
    assert len(PacketParser(V311).feed(b"".join(burst))) == 40
    burst[33] = burst[33].replace(b"topic/33", b"topic/\xff\xff")
    with pytest.raises(MalformedPacket, match="UTF-8") as caught:
        PacketParser(V311).feed(b"".join(burst))
    assert len(caught.value.parsed) == 33


def test_a_padded_remaining_length_is_fine_in_3_1_1() -> None:
    assert PacketParser(V311).feed(b"\x30\x85\x80\x00\x00\x01abc\xd0\x80\x00") == [
        (b"a", b"bc", 0, 0, 0, None),
        (PINGRESP, b""),
    ]


def test_topic_aliases_are_resolved_and_replaced() -> None:
    def alias(topic: bytes, number: int, extra: bytes = b"") -> bytes:
        return encode_publish(topic, b"p", version=V5, properties=b"\x23" + number.to_bytes(2, "big") + extra)

    reader = PacketParser(V5, topic_alias_maximum=2)
    stream = (
        alias(b"one", 1)
        + alias(b"two", 2)
        + alias(b"", 1)
        + alias(b"new", 1, b"\x26\x00\x01#\x00\x01#")
        + alias(b"", 1)
    )
    items = reader.feed(stream)
    assert [item[0] for item in items] == [b"one", b"two", b"one", b"new", b"new"]
    assert decode_properties(items[3][5], PUBLISH) == {"topic_alias": 1, "user_properties": [("#", "#")]}  # type: ignore[misc]
    with pytest.raises(MalformedPacket, match="over the maximum of 0"):
        PacketParser(V5).feed(alias(b"one", 1))


@pytest.mark.parametrize("version", [V311, V5])
def test_a_server_learns_the_version_from_connect(version: int) -> None:
    stream = encode_connect(Connect("c", version=version)) + encode_publish(b"t", b"p", version=version) * 20
    for portion in (1, 20, 10_000):
        reader = PacketParser(None)
        items = [item for at in range(0, len(stream), portion) for item in reader.feed(stream[at : at + portion])]
        assert reader.version == version
        assert items[1:] == [(b"t", b"p", 0, 0, 0, None)] * 20


def test_equal_topics_are_one_object() -> None:
    items = PacketParser(V311).feed(b"".join(encode_publish(b"same/topic", bytes(k)) for k in range(5)))
    items += PacketParser(V5).feed(encode_publish(b"same/topic", b"", version=V5) * 20)
    assert len({id(item[0]) for item in items}) == 1


@pytest.mark.slow
def test_memory_stays_bounded_whatever_is_sent() -> None:
    largest = 100_000
    tracemalloc.start()
    try:
        waiting = PacketParser(V311, largest)
        packet = encode_publish(b"big", bytes(largest - 100))
        for at in range(0, len(packet) - 2, 2):
            waiting.feed(packet[at : min(at + 2, len(packet) - 2)])
        assert tracemalloc.get_traced_memory()[1] < 3 * largest
        assert len(waiting.feed(packet[-2:])) == 1
        assert waiting.pending_bytes == 0
        # Topics and sizes that never repeat
        reader = PacketParser(V311, largest)
        for number in range(17_000):
            reader.feed(encode_publish(b"t/%d/" % number + b"x" * 100, bytes(number % 5000)))
        assert tracemalloc.get_traced_memory()[0] < 8e6
    finally:
        tracemalloc.stop()
    assert len(parser._topics) <= parser._MAX_TOPICS
    assert len(parser._layouts(V311, largest)) <= parser._MAX_LAYOUTS


def test_bytes_like_input_gives_bytes() -> None:
    packet = encode_publish(b"t", b"payload")
    for data in (bytearray(packet), memoryview(packet)):
        items = PacketParser(V311).feed(data)  # type: ignore[arg-type]
        assert items == [(b"t", b"payload", 0, 0, 0, None)]
        assert [type(part) for part in items[0][:2]] == [bytes, bytes]
