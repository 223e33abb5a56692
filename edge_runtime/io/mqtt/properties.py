"""MQTT 5 properties: typed, and checked against the packet they stand in.

Source: MQTT 5 section 2.2.2 and table 2-4. Encoded properties travel here without their leading length; the
builder of a packet adds it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypedDict, cast

from edge_runtime.io.mqtt.wire import (
    PROTOCOL_ERROR,
    TOPIC_ALIAS_INVALID,
    MalformedPacket,
    decode_binary,
    decode_string,
    decode_variable,
    encode_binary,
    encode_string,
    encode_variable,
)


class Properties(TypedDict, total=False):
    """Properties of MQTT 5, table 2-4, under its own names; an absent key is an absent property."""

    payload_format_indicator: int
    message_expiry_interval: int
    """Seconds."""
    content_type: str
    response_topic: str
    correlation_data: bytes
    subscription_identifiers: list[int]
    session_expiry_interval: int
    """Seconds; 0xFFFFFFFF means never."""
    assigned_client_identifier: str
    server_keep_alive: int
    """Seconds."""
    authentication_method: str
    authentication_data: bytes
    request_problem_information: int
    will_delay_interval: int
    """Seconds."""
    request_response_information: int
    response_information: str
    server_reference: str
    reason_string: str
    receive_maximum: int
    topic_alias_maximum: int
    topic_alias: int
    maximum_qos: int
    retain_available: int
    user_properties: list[tuple[str, str]]
    maximum_packet_size: int
    """Bytes."""
    wildcard_subscription_available: int
    subscription_identifier_available: int
    shared_subscription_available: int


# Packet types as the high half of the first byte; the will's properties stand in CONNECT but are a set of their own.
WILL: Final = 0x00
_CONNECT, _CONNACK, _PUBLISH, _PUBACK, _PUBREC, _PUBREL, _PUBCOMP = 0x10, 0x20, 0x30, 0x40, 0x50, 0x60, 0x70
_SUBSCRIBE, _SUBACK, _UNSUBSCRIBE, _UNSUBACK, _DISCONNECT, _AUTH = 0x80, 0x90, 0xA0, 0xB0, 0xE0, 0xF0
_ACKS = (_PUBACK, _PUBREC, _PUBREL, _PUBCOMP, _SUBACK, _UNSUBACK)
_MESSAGE = (_PUBLISH, WILL)

_BYTE, _FLAG, _TWO, _FOUR, _VARIABLE, _STRING, _BINARY, _PAIR = range(8)
_WIDTH: Final = {_BYTE: 1, _FLAG: 1, _TWO: 2, _FOUR: 4}
_USER_PROPERTY: Final = 0x26

# identifier: (name, type, packets that may carry it)
_TABLE: Final[dict[int, tuple[str, int, frozenset[int]]]] = {
    identifier: (name, kind, frozenset(packets))
    for identifier, name, kind, packets in (
        (0x01, "payload_format_indicator", _FLAG, _MESSAGE),
        (0x02, "message_expiry_interval", _FOUR, _MESSAGE),
        (0x03, "content_type", _STRING, _MESSAGE),
        (0x08, "response_topic", _STRING, _MESSAGE),
        (0x09, "correlation_data", _BINARY, _MESSAGE),
        (0x0B, "subscription_identifiers", _VARIABLE, (_PUBLISH, _SUBSCRIBE)),
        (0x11, "session_expiry_interval", _FOUR, (_CONNECT, _CONNACK, _DISCONNECT)),
        (0x12, "assigned_client_identifier", _STRING, (_CONNACK,)),
        (0x13, "server_keep_alive", _TWO, (_CONNACK,)),
        (0x15, "authentication_method", _STRING, (_CONNECT, _CONNACK, _AUTH)),
        (0x16, "authentication_data", _BINARY, (_CONNECT, _CONNACK, _AUTH)),
        (0x17, "request_problem_information", _FLAG, (_CONNECT,)),
        (0x18, "will_delay_interval", _FOUR, (WILL,)),
        (0x19, "request_response_information", _FLAG, (_CONNECT,)),
        (0x1A, "response_information", _STRING, (_CONNACK,)),
        (0x1C, "server_reference", _STRING, (_CONNACK, _DISCONNECT)),
        (0x1F, "reason_string", _STRING, (_CONNACK, *_ACKS, _DISCONNECT, _AUTH)),
        (0x21, "receive_maximum", _TWO, (_CONNECT, _CONNACK)),
        (0x22, "topic_alias_maximum", _TWO, (_CONNECT, _CONNACK)),
        (0x23, "topic_alias", _TWO, (_PUBLISH,)),
        (0x24, "maximum_qos", _FLAG, (_CONNACK,)),
        (0x25, "retain_available", _FLAG, (_CONNACK,)),
        (0x27, "maximum_packet_size", _FOUR, (_CONNECT, _CONNACK)),
        (0x28, "wildcard_subscription_available", _FLAG, (_CONNACK,)),
        (0x29, "subscription_identifier_available", _FLAG, (_CONNACK,)),
        (0x2A, "shared_subscription_available", _FLAG, (_CONNACK,)),
        (
            _USER_PROPERTY,
            "user_properties",
            _PAIR,
            (_CONNECT, _CONNACK, _SUBSCRIBE, _UNSUBSCRIBE, _DISCONNECT, _AUTH, *_MESSAGE, *_ACKS),
        ),
    )
}
_IDENTIFIERS: Final = {name: (identifier, kind) for identifier, (name, kind, _) in _TABLE.items()}
# Zero is a protocol error for these (sections 3.1.2.11.3, 3.1.2.11.4, 3.3.2.3.4 and 3.8.2.1.2).
_NEVER_ZERO: Final = {"receive_maximum", "maximum_packet_size", "topic_alias", "subscription_identifiers"}


def encode_properties(properties: Properties) -> bytes:
    """Encode properties, without the leading length, in the order of the mapping.

    Raises:
        ValueError: an unknown name, or a value that does not fit its type.
    """
    out = []
    for name, value in properties.items():
        if name not in _IDENTIFIERS:
            raise ValueError(f"MQTT 5 has no property {name!r}")
        identifier, kind = _IDENTIFIERS[name]
        prefix = identifier.to_bytes(1, "big")
        if kind == _PAIR:
            for key, text in cast("list[tuple[str, str]]", value):
                out += [prefix, encode_string(key), encode_string(text)]
        elif kind == _VARIABLE:
            for number in cast("list[int]", value):
                out += [prefix, encode_variable(number)]
        else:
            out += [prefix, _encode_value(name, kind, value)]
    return b"".join(out)


def _encode_value(name: str, kind: int, value: object) -> bytes:
    if kind == _STRING and isinstance(value, str):
        return encode_string(value)
    if kind == _BINARY and isinstance(value, bytes):
        return encode_binary(value)
    if kind in _WIDTH and isinstance(value, int):
        try:
            return value.to_bytes(_WIDTH[kind], "big")
        except OverflowError as error:
            raise ValueError(f"{value} does not fit the {_WIDTH[kind]} byte property {name}") from error
    raise ValueError(f"property {name} cannot be a {type(value).__name__}")


def encode_message_properties(
    *, correlation_data: bytes | None = None, user_properties: Sequence[tuple[str, str]] = ()
) -> bytes:
    """Encode what a prediction carries beside its payload; the quick form of `encode_properties` for PUBLISH.

    Raises:
        ValueError: a part is longer than 65,535 bytes or holds a NUL.
    """
    out = [] if correlation_data is None else [b"\x09", encode_binary(correlation_data)]
    for key, text in user_properties:
        out += [b"\x26", encode_string(key), encode_string(text)]
    return b"".join(out)


def decode_properties(raw: bytes | None, packet: int) -> Properties:
    """Decode properties that stand in a packet of one type.

    1. Each stands only in packets that table 2-4 names for it.
    2. None repeats but user properties and, in PUBLISH, subscription identifiers: one for each filter that matched.
    3. A flag is 0 or 1, and what section 2.2.2 forbids to be 0 is not.

    Args:
        raw: the encoded properties without their leading length; None is the same as none at all.
        packet: first byte of the packet (its flags do not matter), or `WILL`.

    Raises:
        MalformedPacket: unknown, repeated, out of place, out of range or cut short.
    """
    found: dict[str, Any] = {}
    packet &= 0xF0
    at = 0
    raw = raw or b""
    while at < len(raw):
        entry = _TABLE.get(raw[at])
        if entry is None or packet not in entry[2]:  # rule 1
            raise MalformedPacket(f"property 0x{raw[at]:02x} does not belong into packet type 0x{packet:02x}")
        name, kind, _ = entry
        at += 1
        value: Any
        if kind == _PAIR:  # rule 2
            key, at = decode_string(raw, at, "user property name")
            text, at = decode_string(raw, at, "user property value")
            found.setdefault(name, []).append((key, text))
            continue
        if kind == _STRING:
            value, at = decode_string(raw, at, name)
        elif kind == _BINARY:
            value, at = decode_binary(raw, at, name)
        elif kind == _VARIABLE:
            value, at = decode_variable(raw, at, name)
        else:
            end = at + _WIDTH[kind]
            if end > len(raw):
                raise MalformedPacket(f"{name} is cut short")
            value = int.from_bytes(raw[at:end], "big")
            at = end
            if kind == _FLAG and value > 1:  # rule 3
                raise MalformedPacket(f"{name} is {value}, not 0 or 1", PROTOCOL_ERROR)
        if not value and name in _NEVER_ZERO:  # rule 3
            raise MalformedPacket(f"{name} is 0", TOPIC_ALIAS_INVALID if name == "topic_alias" else PROTOCOL_ERROR)
        if kind == _VARIABLE and packet == _PUBLISH:  # rule 2
            found.setdefault(name, []).append(value)
            continue
        if name in found:  # rule 2
            raise MalformedPacket(f"{name} is there twice", PROTOCOL_ERROR)
        found[name] = [value] if kind == _VARIABLE else value
    return cast("Properties", found)
