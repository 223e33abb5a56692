"""MQTT 3.1.1 and 5 without I/O: bytes to packets and back.

`PacketParser.feed` takes what one `recv` returned and gives the packets in it; ``encode_*`` and ``decode_*`` do the
single packet. Nothing here knows sockets, threads or time. What is malformed raises `MalformedPacket`, naming what is
wrong; nothing is skipped. This module is the codec's public face; the parts lie in the modules beside it.

Source: OASIS MQTT 3.1.1 and 5.0, sections 2 and 3.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import pack
from typing import Final

from edge_runtime.io.mqtt.control import (
    Connack,
    Connect,
    Disconnect,
    Suback,
    Subscribe,
    SubscribeFilter,
    Unsuback,
    Unsubscribe,
    Will,
    decode_connack,
    decode_connect,
    decode_disconnect,
    decode_packet_id,
    decode_property_block,
    decode_suback,
    decode_subscribe,
    decode_unsuback,
    decode_unsubscribe,
    encode_connack,
    encode_connect,
    encode_disconnect,
    encode_pingreq,
    encode_pingresp,
    encode_suback,
    encode_subscribe,
    encode_unsuback,
    encode_unsubscribe,
)
from edge_runtime.io.mqtt.parser import Item, Packet, PacketParser, Publish
from edge_runtime.io.mqtt.properties import (
    Properties,
    decode_properties,
    encode_message_properties,
    encode_properties,
)
from edge_runtime.io.mqtt.topics import (
    TopicFilter,
    parse_shared_subscription,
    topic_matches,
    validate_topic_filter,
    validate_topic_name,
)
from edge_runtime.io.mqtt.wire import (
    AUTH,
    CONNACK,
    CONNECT,
    DISCONNECT,
    DUP,
    PINGREQ,
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
    MalformedPacket,
    encode_variable,
)

__all__ = [
    "AUTH",
    "CONNACK",
    "CONNECT",
    "DISCONNECT",
    "DUP",
    "PINGREQ",
    "PINGRESP",
    "PUBACK",
    "PUBCOMP",
    "PUBLISH",
    "PUBREC",
    "PUBREL",
    "RETAIN",
    "SUBACK",
    "SUBSCRIBE",
    "UNSUBACK",
    "UNSUBSCRIBE",
    "V5",
    "V311",
    "Connack",
    "Connect",
    "Disconnect",
    "Item",
    "MalformedPacket",
    "Packet",
    "PacketParser",
    "Properties",
    "Publish",
    "Suback",
    "Subscribe",
    "SubscribeFilter",
    "TopicFilter",
    "Unsuback",
    "Unsubscribe",
    "Will",
    "decode_ack",
    "decode_connack",
    "decode_connect",
    "decode_disconnect",
    "decode_properties",
    "decode_suback",
    "decode_subscribe",
    "decode_unsuback",
    "decode_unsubscribe",
    "encode_ack",
    "encode_connack",
    "encode_connect",
    "encode_disconnect",
    "encode_message_properties",
    "encode_negative_ack",
    "encode_pingreq",
    "encode_pingresp",
    "encode_properties",
    "encode_publish",
    "encode_suback",
    "encode_subscribe",
    "encode_unsuback",
    "encode_unsubscribe",
    "encode_variable",
    "parse_shared_subscription",
    "topic_matches",
    "validate_topic_filter",
    "validate_topic_name",
]

_ACKS: Final = frozenset({PUBACK, PUBREC, PUBREL, PUBCOMP})


def encode_publish(
    topic: bytes,
    payload: bytes,
    qos: int = 0,
    packet_id: int = 0,
    retain: bool = False,
    dup: bool = False,
    version: int = V311,
    properties: bytes = b"",
) -> bytes:
    """Encode a PUBLISH.

    Args:
        topic: a valid topic name (see `validate_topic_name`; checked once where topics come from, not here).
        payload: the message.
        qos: 0, 1 or 2.
        packet_id: 1 to 65,535; left out with QoS 0.
        retain: ask the broker to keep it.
        dup: this is sent again.
        version: `V311` or `V5`.
        properties: encoded properties without their length; only MQTT 5 has them.

    Raises:
        ValueError: a packet id of 0 with QoS above 0, properties in 3.1.1, or too long for MQTT.
    """
    head = len(topic).to_bytes(2, "big") + topic
    if qos:
        if not packet_id:
            raise ValueError("a PUBLISH above QoS 0 needs a packet id from 1 to 65,535")
        head += packet_id.to_bytes(2, "big")
    if version == V5:
        head += encode_variable(len(properties)) + properties if properties else b"\0"
    elif properties:
        raise ValueError("MQTT 3.1.1 has no properties")
    length = len(head) + len(payload)
    first = PUBLISH | qos << 1 | (RETAIN if retain else 0) | (DUP if dup else 0)
    if 127 < length < 16_384:
        return bytes((first, length & 127 | 128, length >> 7)) + head + payload
    return bytes((first,)) + encode_variable(length) + head + payload


def encode_ack(kind: int, packet_ids: Sequence[int]) -> bytes:
    """Encode acknowledgements of success, one packet for each id, in one piece.

    Args:
        kind: `PUBACK`, `PUBREC`, `PUBREL` or `PUBCOMP`.
        packet_ids: what to acknowledge, in this order.

    Returns:
        The packets in the short form, which both versions know (MQTT 5 section 3.4.2.1).
    """
    words = [kind << 8 | 2] * (2 * len(packet_ids))
    words[1::2] = packet_ids
    return pack(f">{len(words)}H", *words)


def encode_negative_ack(kind: int, packet_id: int, reason_code: int) -> bytes:
    """Encode one acknowledgement of MQTT 5 that carries a reason code and no properties."""
    return pack(">BBHB", kind, 3, packet_id, reason_code)


def decode_ack(first_byte: int, body: bytes, version: int) -> tuple[int, int, int]:
    """Decode PUBACK, PUBREC, PUBREL or PUBCOMP.

    Returns:
        Kind (`PUBACK`, ...), packet id, reason code as it came (0 where left out, and always in 3.1.1).

    Raises:
        MalformedPacket: no acknowledgement, packet id 0, or a wrong length.
    """
    if first_byte not in _ACKS:
        raise MalformedPacket(f"first byte 0x{first_byte:02x} is no acknowledgement")
    if len(body) == 2 and body != b"\0\0":
        return first_byte, body[0] << 8 | body[1], 0
    packet_id, at = decode_packet_id(body, 0, "acknowledgement")
    if version != V5:
        raise MalformedPacket(f"acknowledgement of MQTT 3.1.1 has {len(body)} bytes, not 2")
    if len(body) > 3:
        decode_property_block(body, at + 1, first_byte, last=True)
    return first_byte, packet_id, body[2]
