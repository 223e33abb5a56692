"""Plain paho: every message goes through its public callbacks. For websockets, and for a paho that changed inside.

Slower by an order of magnitude, with the same order of messages and acknowledgements, which the tests compare. Two
things paho cannot do. With manual acknowledgement, a QoS 2 message whose PUBCOMP was lost with the connection is never
completed, and takes a slot of the broker's window until the session ends. And when two attempts to reconnect fail in a
row, it forgets which of our QoS 2 messages it has released, and publishes them again as new ones: at least once.
"""

from __future__ import annotations

import os
import select
import socket
from contextlib import suppress
from typing import Any

import paho.mqtt.client as paho
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode

from edge_runtime.io.mqtt.config import BrokerConfig, Secrets
from edge_runtime.io.mqtt.connection import Connection, ConnectionListener, Identity, make_client
from edge_runtime.io.mqtt.inbound_acks import Acks
from edge_runtime.io.mqtt.outbound_queue import BrokerLimits, Entry, Message, OutboundQueue
from edge_runtime.io.mqtt.packets import DUP, PUBACK, RETAIN, V5, Publish, encode_variable
from edge_runtime.io.mqtt.transport import set_nodelay

_PACKETS_AN_ITERATION = 256


class PahoOutboundQueue(OutboundQueue):
    """Paho numbers, resends and completes what it was given; this keeps the queue before it."""

    def begin(
        self, limits: BrokerLimits, *, session_present: bool, suspicious: bool = False, publishes_qos_2: bool = False
    ) -> None:
        """As in `OutboundQueue`, but what is in flight is paho's to send again, as much at a time as it likes."""
        del session_present, suspicious, publishes_qos_2
        self._limits = limits

    def end(self) -> None:
        """End the connection, and with it what paho had of QoS 0."""
        self._limits = None
        for packet_id in [k for k, (message, _) in self._inflight.items() if not message.qos]:
            self._drop(self._inflight.pop(packet_id), "publish_connection_lost")

    def pop(self) -> Entry | None:
        """Pop the next message to give to paho, None where the window or the queue ends."""
        if self._limits is None or not self._queue or self.inflight >= self._limits.window:
            return None
        entry = self._queue.popleft()
        message = entry[0]
        self._queue_bytes -= len(message.topic) + len(message.payload)
        return entry

    def given(self, packet_id: int, entry: Entry) -> None:
        """Paho has it, under this packet id."""
        self._inflight[packet_id] = entry

    def refused(self, entry: Entry, reason: str) -> None:
        """Paho or the broker does not take it."""
        self._drop(entry, reason)

    @property
    def limits(self) -> BrokerLimits | None:
        """Of the connection that stands."""
        return self._limits


class FallbackConnection(Connection):
    """One paho client for many connections in turn, because paho keeps the session's messages in it."""

    def __init__(self, config: BrokerConfig, identity: Identity, listener: ConnectionListener) -> None:
        super().__init__(make_client(paho.Client, config, identity), config, identity, listener)
        self._publishes: list[Publish] = []
        self._acks: list[tuple[int, int]] = []
        self._tls_set = False
        client = self._client
        client.on_message = self._on_message
        client.on_publish = self._on_publish
        client.on_socket_register_write = lambda *_: None  # so that paho leaves writing to `send`

    def connect(self, secrets: Secrets) -> None:
        super().connect(secrets)
        set_nodelay(self.fileno())

    def _use_tls(self, context: Any) -> None:
        if not self._tls_set:  # paho takes it once
            self._client.tls_set_context(context)
            self._tls_set = True

    @property
    def hides(self) -> bool:
        return True

    def read(self) -> bool:
        client = self._client
        poll = select.poll()
        poll.register(self.fileno(), select.POLLIN)
        more = True
        for _ in range(_PACKETS_AN_ITERATION):
            self._let_paho_read()
            if not self.is_open:
                more = False
                break
            pending: Any = getattr(client.socket(), "pending", None)
            more = bool(pending is not None and pending())
            if not more and not poll.poll(0):
                break
        self._after_paho()
        if self._publishes:
            publishes, self._publishes = self._publishes, []
            self._listener.on_publishes(publishes)
        for packet_id, reason_code in self._take_acks():
            self._listener.on_ack(PUBACK, packet_id, reason_code)
        return more

    def abort(self, failure: str) -> None:
        self.failure = self.failure or failure
        if self.is_open:
            with suppress(OSError), socket.socket(fileno=os.dup(self.fileno())) as duplicate:
                duplicate.shutdown(socket.SHUT_RDWR)
            self._let_paho_read()  # which finds it ended, and cleans up

    def send(self, acks: Acks | None, outbound_queue: OutboundQueue) -> bool:
        assert isinstance(outbound_queue, PahoOutboundQueue)
        client = self._client
        if acks is not None:
            for packet_id in acks.pubacks:
                client.ack(packet_id, 1)
            for packet_id in acks.pubrecs:
                client.ack(packet_id, 2)
        while (entry := outbound_queue.pop()) is not None:
            self._publish(outbound_queue, entry)
        if client.want_write():
            client.loop_write()
        for packet_id, reason_code in self._take_acks():
            outbound_queue.acknowledged(PUBACK, packet_id, reason_code)
        self._after_paho()
        return not (self.is_open and client.want_write())

    def _publish(self, outbound_queue: PahoOutboundQueue, entry: Entry) -> None:
        message, limits = entry[0], outbound_queue.limits
        assert limits is not None
        if _size(message) > limits.max_packet_bytes:
            outbound_queue.refused(entry, "publish_too_large")
            return
        properties: Any = None
        if self.identity.version == V5 and message.properties:
            properties = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
            properties.unpack(encode_variable(len(message.properties)) + message.properties)
        info = self._client.publish(
            message.topic.decode(),
            message.payload,
            min(message.qos, limits.max_qos),
            message.retain and limits.retain,
            properties,
        )
        outbound_queue.given(info.mid, entry)

    def _take_acks(self) -> list[tuple[int, int]]:
        acks, self._acks = self._acks, []
        return acks

    def _on_message(self, _client: Any, _userdata: Any, message: paho.MQTTMessage) -> None:
        flags = (RETAIN if message.retain else 0) | (DUP if message.dup else 0)
        self._publishes.append((message.topic.encode(), bytes(message.payload), message.mid, message.qos, flags, None))

    def _on_publish(self, _client: Any, _userdata: Any, packet_id: int, code: ReasonCode, _properties: Any) -> None:
        self._acks.append((packet_id, code.value))


def _size(message: Message) -> int:
    """Bound the packet's size from above: fixed header 5, topic length 2, packet id 2, property length 4."""
    return len(message.topic) + len(message.payload) + len(message.properties) + 13
