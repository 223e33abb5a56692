"""What plain paho makes of a byte stream: the oracle for our parser."""

from __future__ import annotations

import socket
from collections.abc import Iterable
from typing import Any

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode, MQTTProtocolVersion

from edge_runtime.io.mqtt.packets import PUBREL, Connack, Item, encode_connack, encode_publish

Seen = tuple[bytes, bytes, int, bool, int]
"""Topic, payload, QoS, retain, packet id."""

_CHUNK = 32 * 1024
_END = b"oracle/end"


class _OnSocketPair(paho.Client):
    """A paho client whose other side is in our hands."""

    def __init__(self, version: int) -> None:
        super().__init__(CallbackAPIVersion.VERSION2, "oracle", protocol=MQTTProtocolVersion(version))
        self.ours, self._theirs = socket.socketpair()
        self.ours.setblocking(False)
        self.seen: list[Seen] = []
        self.on_message = self._record

    def _create_socket(self) -> Any:
        return self._theirs

    def _record(self, _client: Any, _user: Any, message: paho.MQTTMessage) -> None:
        topic = message._topic
        self.seen.append((topic, bytes(message.payload), message.qos, message.retain, message.mid))

    def read_all(self) -> None:
        """Let paho handle every byte that lies in its socket, and throw away what it answers."""
        while True:
            before = self._theirs.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) if self._theirs.fileno() >= 0 else b""
            if not before:
                raise AssertionError("paho closed the connection")
            code = self.loop_read()
            if code != MQTTErrorCode.MQTT_ERR_SUCCESS:
                raise AssertionError(f"paho refuses the stream: {code.name}")
            try:
                while self.ours.recv(_CHUNK):
                    pass
            except BlockingIOError:
                pass


def paho_messages(version: int, data: bytes, *, has_connack: bool = False) -> list[Seen]:
    """All messages that paho hands to `on_message` for these bytes, in its order.

    Args:
        version: protocol level.
        data: a valid stream to a client, complete packets.
        has_connack: it begins with one; else one is put in front.
    """
    client = _OnSocketPair(version)
    client.connect("oracle")
    stream = data if has_connack else encode_connack(Connack(False, 0), version) + data
    stream += encode_publish(_END, b"", version=version)
    try:
        for at in range(0, len(stream), _CHUNK):
            client.ours.setblocking(True)
            client.ours.sendall(stream[at : at + _CHUNK])
            client.ours.setblocking(False)
            try:
                client.read_all()
            except BlockingIOError:
                continue
        assert client.seen.pop()[0] == _END
    finally:
        client.disconnect()
        client.ours.close()
        client._theirs.close()
    return client.seen


def as_paho_delivers(items: Iterable[Item]) -> list[Seen]:
    """Our items as paho would hand them over: QoS 0 and 1 on arrival, QoS 2 once when it is released."""
    held: dict[int, Seen] = {}
    seen: list[Seen] = []
    for item in items:
        if len(item) == 6:
            topic, payload, packet_id, qos, flags, _ = item
            message = (topic, payload, qos, bool(flags & 1), packet_id)
            if qos == 2:
                held[packet_id] = message
            else:
                seen.append(message)
        elif item[0] == PUBREL:
            released = held.pop(int.from_bytes(item[1][:2], "big"), None)
            if released is not None:
                seen.append(released)
    return seen
