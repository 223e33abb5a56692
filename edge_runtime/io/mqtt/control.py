"""The packets that are not PUBLISH or an acknowledgement: connect, subscribe, ping, disconnect; both directions.

A body is what follows the fixed header. Decoders check everything that sections 3.1 to 3.14 ask for and raise
`MalformedPacket`; encoders trust their caller with what types and value objects already state. `properties` are the
encoded MQTT 5 properties without their length, always empty in 3.1.1; decoders have checked them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from edge_runtime.io.mqtt.properties import WILL, decode_properties
from edge_runtime.io.mqtt.topics import validate_topic_filter, validate_topic_name
from edge_runtime.io.mqtt.wire import (
    CONNACK,
    CONNECT,
    DISCONNECT,
    PROTOCOL_ERROR,
    SUBACK,
    SUBSCRIBE,
    UNSUBACK,
    UNSUBSCRIBE,
    V5,
    V311,
    MalformedPacket,
    decode_binary,
    decode_string,
    decode_uint16,
    decode_variable,
    encode_binary,
    encode_string,
    encode_variable,
)

UNSUPPORTED_VERSION: Final = 0x84
"""Reason code of MQTT 5; 3.1.1 says 1."""


class Will(NamedTuple):
    """The message that the server publishes when the client leaves without a DISCONNECT."""

    topic: bytes
    payload: bytes
    qos: int = 0
    retain: bool = False
    properties: bytes = b""


class Connect(NamedTuple):
    """CONNECT, section 3.1. The password does not show in its repr."""

    client_id: str
    clean_start: bool = True
    keep_alive_s: int = 60
    version: int = V311
    username: str | None = None
    password: bytes | None = None
    will: Will | None = None
    properties: bytes = b""

    def __repr__(self) -> str:
        password = None if self.password is None else "********"
        return (
            f"Connect(client_id={self.client_id!r}, clean_start={self.clean_start}, keep_alive_s={self.keep_alive_s}, "
            f"version={self.version}, username={self.username!r}, password={password}, will={self.will!r})"
        )


class Connack(NamedTuple):
    """CONNACK, section 3.2; 3.1.1 knows the reason codes 0 to 5 only."""

    session_present: bool
    reason_code: int
    properties: bytes = b""


class SubscribeFilter(NamedTuple):
    """One filter of a SUBSCRIBE with its options (section 3.8.3.1); 3.1.1 has the QoS only."""

    topic_filter: bytes
    qos: int = 0
    no_local: bool = False
    retain_as_published: bool = False
    retain_handling: int = 0


class Subscribe(NamedTuple):
    """SUBSCRIBE, section 3.8."""

    packet_id: int
    subscriptions: tuple[SubscribeFilter, ...]
    properties: bytes = b""


class Suback(NamedTuple):
    """SUBACK, section 3.9: granted QoS, or 0x80 and above for a refusal, per filter."""

    packet_id: int
    reason_codes: tuple[int, ...]
    properties: bytes = b""


class Unsubscribe(NamedTuple):
    """UNSUBSCRIBE, section 3.10."""

    packet_id: int
    topic_filters: tuple[bytes, ...]
    properties: bytes = b""


class Unsuback(NamedTuple):
    """UNSUBACK, section 3.11; 3.1.1 has no reason codes."""

    packet_id: int
    reason_codes: tuple[int, ...] = ()
    properties: bytes = b""


class Disconnect(NamedTuple):
    """DISCONNECT, section 3.14; 3.1.1 has no reason code."""

    reason_code: int = 0
    properties: bytes = b""


def decode_packet_id(body: bytes, at: int, what: str) -> tuple[int, int]:
    """Decode a packet id; returns it and the index behind. Raises MalformedPacket if it is 0 or cut short."""
    packet_id, at = decode_uint16(body, at, f"packet id of {what}")
    if not packet_id:
        raise MalformedPacket(f"packet id of {what} is 0", PROTOCOL_ERROR)
    return packet_id, at


def decode_property_block(body: bytes, at: int, packet: int, *, last: bool = False) -> tuple[bytes, int]:
    """Take length and properties out of a body and check them.

    Args:
        body: the packet without its fixed header.
        at: index where the length begins.
        packet: first byte of the packet, or `WILL`.
        last: nothing may follow.

    Returns:
        The encoded properties, and the index behind.

    Raises:
        MalformedPacket: cut short, with something behind, or as `decode_properties`.
    """
    count, at = decode_variable(body, at, "property length")
    end = at + count
    if end > len(body):
        raise MalformedPacket("properties are cut short")
    if last and end != len(body):
        raise MalformedPacket(f"{len(body) - end} bytes follow the end of the packet")
    raw = body[at:end]
    decode_properties(raw, packet)
    return raw, end


def _packet(first: int, *parts: bytes) -> bytes:
    body = b"".join(parts)
    return bytes((first,)) + encode_variable(len(body)) + body


def _block(properties: bytes, version: int) -> bytes:
    if version == V5:
        return encode_variable(len(properties)) + properties
    if properties:
        raise ValueError("MQTT 3.1.1 has no properties")
    return b""


def encode_connect(connect: Connect) -> bytes:
    """Encode CONNECT.

    Raises:
        ValueError: a field is too long, or there are properties in 3.1.1, or a password without a user in 3.1.1.
    """
    version, will = connect.version, connect.will
    if connect.password is not None and connect.username is None and version != V5:
        raise ValueError("MQTT 3.1.1 allows a password only with a user name")  # MQTT-3.1.2-22
    flags = 2 if connect.clean_start else 0
    tail = [encode_string(connect.client_id)]
    if will is not None:
        flags |= 4 | will.qos << 3 | (32 if will.retain else 0)
        tail += [_block(will.properties, version), encode_binary(will.topic), encode_binary(will.payload)]
    if connect.username is not None:
        flags |= 128
        tail.append(encode_string(connect.username))
    if connect.password is not None:
        flags |= 64
        tail.append(encode_binary(connect.password))
    head = b"\0\4MQTT" + bytes((version, flags)) + connect.keep_alive_s.to_bytes(2, "big")
    return _packet(CONNECT, head, _block(connect.properties, version), *tail)


def decode_connect(body: bytes) -> Connect:
    """Decode CONNECT.

    1. The protocol comes first: the rest means something else in a version that is not spoken here.
    2. Flags that contradict each other are refused before the fields that they announce are read.
    3. Fields come in a fixed order, each where its flag is set, properties in MQTT 5 alone; nothing follows them.

    Raises:
        MalformedPacket: malformed; its `reason_code` is `UNSUPPORTED_VERSION` for a protocol that is not spoken here.
    """
    name, at = decode_binary(body, 0, "protocol name")
    if len(body) < at + 4:
        raise MalformedPacket("CONNECT is cut short")
    version, flags = body[at], body[at + 1]
    if name != b"MQTT" or version not in {V311, V5}:  # rule 1
        raise MalformedPacket("CONNECT asks for a protocol other than MQTT 3.1.1 or 5", UNSUPPORTED_VERSION)
    keep_alive_s, at = decode_uint16(body, at + 2, "keep alive")
    if flags & 1:  # rule 2
        raise MalformedPacket("reserved flag of CONNECT is set")  # MQTT-3.1.2-3
    will_qos = flags >> 3 & 3
    if will_qos == 3 or (flags & 0x38 and not flags & 4):  # rule 2
        raise MalformedPacket("will flags of CONNECT contradict each other")  # MQTT-3.1.2-11 to -15
    if flags & 0xC0 == 0x40 and version != V5:  # rule 2
        raise MalformedPacket("CONNECT has a password but no user name")  # MQTT-3.1.2-22
    properties = will_properties = b""
    if version == V5:  # rule 3
        properties, at = decode_property_block(body, at, CONNECT)
    client_id, at = decode_string(body, at, "client id")
    will = None
    if flags & 4:  # rule 3
        if version == V5:
            will_properties, at = decode_property_block(body, at, WILL)
        will_topic, at = decode_binary(body, at, "will topic")
        will_payload, at = decode_binary(body, at, "will payload")
        will = Will(validate_topic_name(will_topic), will_payload, will_qos, bool(flags & 32), will_properties)
    username = password = None
    if flags & 128:  # rule 3
        username, at = decode_string(body, at, "user name")
    if flags & 64:  # rule 3
        password, at = decode_binary(body, at, "password")
    if at != len(body):  # rule 3
        raise MalformedPacket(f"{len(body) - at} bytes follow the end of CONNECT")
    return Connect(client_id, bool(flags & 2), keep_alive_s, version, username, password, will, properties)


def encode_connack(connack: Connack, version: int) -> bytes:
    """Encode CONNACK for one of the versions."""
    flags = bytes((connack.session_present, connack.reason_code))
    return _packet(CONNACK, flags, _block(connack.properties, version))


def decode_connack(body: bytes, version: int) -> Connack:
    """Decode CONNACK. Raises MalformedPacket."""
    if len(body) < 2 or body[0] > 1 or (version != V5 and len(body) != 2):
        raise MalformedPacket("CONNACK is malformed")
    properties = b""
    if version == V5:
        properties, _ = decode_property_block(body, 2, CONNACK, last=True)
    return Connack(bool(body[0]), body[1], properties)


def encode_subscribe(subscribe: Subscribe, version: int) -> bytes:
    """Encode SUBSCRIBE.

    Raises:
        ValueError: an option of MQTT 5 is asked for in 3.1.1, or there is no filter.
    """
    if not subscribe.subscriptions:
        raise ValueError("a SUBSCRIBE needs at least one filter")
    parts = [subscribe.packet_id.to_bytes(2, "big"), _block(subscribe.properties, version)]
    for one in subscribe.subscriptions:
        options = one.qos | one.no_local << 2 | one.retain_as_published << 3 | one.retain_handling << 4
        if version != V5 and options > 2:
            raise ValueError("MQTT 3.1.1 has no subscription options but the QoS")
        parts += [encode_binary(one.topic_filter), options.to_bytes(1, "big")]
    return _packet(SUBSCRIBE, *parts)


def decode_subscribe(body: bytes, version: int) -> Subscribe:
    """Decode SUBSCRIBE; its filters are valid. Raises MalformedPacket."""
    packet_id, at = decode_packet_id(body, 0, "SUBSCRIBE")
    properties = b""
    if version == V5:
        properties, at = decode_property_block(body, at, SUBSCRIBE)
    subscriptions = []
    while at < len(body):
        topic_filter, at = decode_binary(body, at, "topic filter")
        if at == len(body):
            raise MalformedPacket("subscription options are missing")
        options = body[at]
        at += 1
        if options & 3 == 3 or options > (0x2F if version == V5 else 2) or options & 0x30 == 0x30:
            raise MalformedPacket(f"subscription options 0x{options:02x} are not allowed")
        one = SubscribeFilter(
            validate_topic_filter(topic_filter), options & 3, bool(options & 4), bool(options & 8), options >> 4
        )
        if one.no_local and topic_filter.startswith(b"$share/"):
            raise MalformedPacket("no-local is set on a shared subscription", PROTOCOL_ERROR)  # MQTT-3.8.3-4
        subscriptions.append(one)
    if not subscriptions:
        raise MalformedPacket("SUBSCRIBE has no filter", PROTOCOL_ERROR)
    return Subscribe(packet_id, tuple(subscriptions), properties)


def encode_suback(suback: Suback, version: int) -> bytes:
    """Encode SUBACK."""
    block = _block(suback.properties, version)
    return _packet(SUBACK, suback.packet_id.to_bytes(2, "big"), block, bytes(suback.reason_codes))


def decode_suback(body: bytes, version: int) -> Suback:
    """Decode SUBACK. Raises MalformedPacket."""
    packet_id, at = decode_packet_id(body, 0, "SUBACK")
    properties = b""
    if version == V5:
        properties, at = decode_property_block(body, at, SUBACK)
    if at == len(body):
        raise MalformedPacket("SUBACK has no reason code")
    return Suback(packet_id, tuple(body[at:]), properties)


def encode_unsubscribe(unsubscribe: Unsubscribe, version: int) -> bytes:
    """Encode UNSUBSCRIBE.

    Raises:
        ValueError: there is no filter.
    """
    if not unsubscribe.topic_filters:
        raise ValueError("an UNSUBSCRIBE needs at least one filter")
    parts = [encode_binary(topic_filter) for topic_filter in unsubscribe.topic_filters]
    block = _block(unsubscribe.properties, version)
    return _packet(UNSUBSCRIBE, unsubscribe.packet_id.to_bytes(2, "big"), block, *parts)


def decode_unsubscribe(body: bytes, version: int) -> Unsubscribe:
    """Decode UNSUBSCRIBE; its filters are valid. Raises MalformedPacket."""
    packet_id, at = decode_packet_id(body, 0, "UNSUBSCRIBE")
    properties = b""
    if version == V5:
        properties, at = decode_property_block(body, at, UNSUBSCRIBE)
    filters = []
    while at < len(body):
        topic_filter, at = decode_binary(body, at, "topic filter")
        filters.append(validate_topic_filter(topic_filter))
    if not filters:
        raise MalformedPacket("UNSUBSCRIBE has no filter", PROTOCOL_ERROR)
    return Unsubscribe(packet_id, tuple(filters), properties)


def encode_unsuback(unsuback: Unsuback, version: int) -> bytes:
    """Encode UNSUBACK; 3.1.1 leaves the reason codes out."""
    codes: Sequence[int] = unsuback.reason_codes if version == V5 else ()
    block = _block(unsuback.properties, version)
    return _packet(UNSUBACK, unsuback.packet_id.to_bytes(2, "big"), block, bytes(codes))


def decode_unsuback(body: bytes, version: int) -> Unsuback:
    """Decode UNSUBACK. Raises MalformedPacket."""
    packet_id, at = decode_packet_id(body, 0, "UNSUBACK")
    if version != V5:
        if at != len(body):
            raise MalformedPacket(f"{len(body) - at} bytes follow the end of UNSUBACK")
        return Unsuback(packet_id)
    properties, at = decode_property_block(body, at, UNSUBACK)
    if at == len(body):
        raise MalformedPacket("UNSUBACK has no reason code")
    return Unsuback(packet_id, tuple(body[at:]), properties)


def encode_pingreq() -> bytes:
    """Encode PINGREQ."""
    return b"\xc0\0"


def encode_pingresp() -> bytes:
    """Encode PINGRESP."""
    return b"\xd0\0"


def encode_disconnect(disconnect: Disconnect, version: int) -> bytes:
    """Encode DISCONNECT; in 3.1.1 it is empty."""
    if version != V5 or (not disconnect.reason_code and not disconnect.properties):
        return b"\xe0\0"
    code = disconnect.reason_code.to_bytes(1, "big")
    return _packet(DISCONNECT, code, _block(disconnect.properties, V5) if disconnect.properties else b"")


def decode_disconnect(body: bytes, version: int) -> Disconnect:
    """Decode DISCONNECT. Raises MalformedPacket."""
    if not body:
        return Disconnect()
    if version != V5:
        raise MalformedPacket(f"DISCONNECT of MQTT 3.1.1 has a body of {len(body)} bytes")
    properties = b""
    if len(body) > 1:
        properties, _ = decode_property_block(body, 1, DISCONNECT, last=True)
    return Disconnect(body[0], properties)
