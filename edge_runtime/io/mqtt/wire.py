"""The data types every MQTT packet is made of, and the one error that bytes from the wire can cause.

Source: OASIS MQTT 5.0 section 1.5 and MQTT 3.1.1 section 1.5.
"""

from __future__ import annotations

from typing import Any, Final

from edge_runtime.errors import ConnectionFailed

V311: Final = 4
"""Protocol level of MQTT 3.1.1 as it stands in CONNECT."""
V5: Final = 5
"""Protocol level of MQTT 5."""

# First bytes, flags included (table 2-2); a PUBLISH adds its own flags.
CONNECT: Final = 0x10
CONNACK: Final = 0x20
PUBLISH: Final = 0x30
PUBACK: Final = 0x40
PUBREC: Final = 0x50
PUBREL: Final = 0x62
PUBCOMP: Final = 0x70
SUBSCRIBE: Final = 0x82
SUBACK: Final = 0x90
UNSUBSCRIBE: Final = 0xA2
UNSUBACK: Final = 0xB0
PINGREQ: Final = 0xC0
PINGRESP: Final = 0xD0
DISCONNECT: Final = 0xE0
AUTH: Final = 0xF0

DUP: Final = 0x08
RETAIN: Final = 0x01

MAX_VARIABLE_INTEGER: Final = 268_435_455
"""Four groups of seven bits: the longest remaining length, property length and subscription identifier."""

PROTOCOL_ERROR: Final = 0x82
TOPIC_NAME_INVALID: Final = 0x90
TOPIC_FILTER_INVALID: Final = 0x8F
TOPIC_ALIAS_INVALID: Final = 0x94
PACKET_TOO_LARGE: Final = 0x95
MALFORMED_PACKET: Final = 0x81


class MalformedPacket(ConnectionFailed):
    """The other side sent bytes that MQTT forbids; the connection must be closed.

    Attributes:
        reason_code: what to put into a MQTT 5 DISCONNECT or CONNACK (MQTT 5 table 2-6).
        parsed: the items that came before it in the same `PacketParser.feed` call, in wire order.
    """

    def __init__(self, message: str, reason_code: int = MALFORMED_PACKET) -> None:
        super().__init__(message)
        self.reason_code = reason_code
        self.parsed: list[Any] = []


def encode_variable(value: int) -> bytes:
    """Encode a variable byte integer (MQTT 5 section 1.5.5) in its shortest form.

    Raises:
        ValueError: the value is negative or above `MAX_VARIABLE_INTEGER`.
    """
    if 0 <= value < 128:
        return value.to_bytes(1, "big")
    if not 0 <= value <= MAX_VARIABLE_INTEGER:
        raise ValueError(f"{value} does not fit a variable byte integer (0 to {MAX_VARIABLE_INTEGER})")
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def decode_variable(data: bytes, at: int, what: str) -> tuple[int, int]:
    """Decode a variable byte integer that must be complete and in its shortest form.

    Args:
        data: the bytes that hold it.
        at: index of its first byte.
        what: what it is, for the message.

    Returns:
        The value, and the index of the byte behind it.

    Raises:
        MalformedPacket: cut short, longer than four bytes, or padded.
    """
    value = shift = 0
    for k in range(at, at + 4):
        if k >= len(data):
            raise MalformedPacket(f"{what} is cut short")
        value |= (data[k] & 127) << shift
        shift += 7
        if data[k] < 128:
            if k > at and not data[k]:
                raise MalformedPacket(f"{what} is not in its shortest form")
            return value, k + 1
    raise MalformedPacket(f"{what} is longer than four bytes")


def encode_string(text: str) -> bytes:
    """Encode a UTF-8 string with its two-byte length (section 1.5.4).

    Raises:
        ValueError: longer than 65,535 bytes, a NUL, or a lone surrogate (UnicodeEncodeError).
    """
    if "\0" in text:
        raise ValueError("an MQTT string cannot hold a NUL character")
    return encode_binary(text.encode())


def encode_binary(data: bytes) -> bytes:
    """Encode binary data with its two-byte length (section 1.5.6).

    Raises:
        ValueError: longer than 65,535 bytes.
    """
    if len(data) > 65_535:
        raise ValueError(f"{len(data)} bytes do not fit an MQTT string or binary field (at most 65,535)")
    return len(data).to_bytes(2, "big") + data


def decode_binary(data: bytes, at: int, what: str) -> tuple[bytes, int]:
    """Decode two-byte length and data; returns them and the index behind. Raises MalformedPacket if cut short."""
    start = at + 2
    end = start + int.from_bytes(data[at:start], "big")
    if start > len(data) or end > len(data):
        raise MalformedPacket(f"{what} is cut short")
    return data[start:end], end


def decode_string(data: bytes, at: int, what: str) -> tuple[str, int]:
    """Decode a UTF-8 string; returns it and the index behind.

    Raises:
        MalformedPacket: cut short, not UTF-8, or with a NUL (MQTT-1.5.4-1 and -2).
    """
    raw, end = decode_binary(data, at, what)
    return decode_text(raw, what), end


def decode_text(raw: bytes, what: str) -> str:
    """Check and decode the bytes of an MQTT string. Raises MalformedPacket on bad UTF-8 or a NUL."""
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        raise MalformedPacket(f"{what} is not valid UTF-8") from error
    if "\0" in text:
        raise MalformedPacket(f"{what} holds a NUL character")
    return text


def decode_uint16(data: bytes, at: int, what: str) -> tuple[int, int]:
    """Decode a two-byte integer; returns it and the index behind. Raises MalformedPacket if cut short."""
    end = at + 2
    if end > len(data):
        raise MalformedPacket(f"{what} is cut short")
    return int.from_bytes(data[at:end], "big"), end
