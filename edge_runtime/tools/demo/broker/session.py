"""Session of a client: its subscriptions, the messages on their way to it, and those that wait.

Source: MQTT 5 sections 4.1 (session state), 4.3 (quality of service), 4.4 (delivery retry) and 4.9 (flow control).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

from edge_runtime.io.mqtt.packets import (
    PUBACK,
    PUBCOMP,
    PUBREC,
    PUBREL,
    V5,
    encode_ack,
    encode_negative_ack,
    encode_publish,
)
from edge_runtime.io.mqtt.wire import encode_variable
from edge_runtime.tools.demo.broker.subscriptions import Grant

_PACKET_ID_NOT_FOUND: Final = 0x92
_SUBSCRIPTION_IDENTIFIER: Final = b"\x0b"


class PublishedMessage(NamedTuple):
    """A message as it was published; its properties hold no topic alias."""

    topic: bytes
    payload: bytes
    qos: int
    retain: bool
    properties: bytes


@dataclass(slots=True, kw_only=True)
class Counters:
    """Counters of the broker, for `Broker.stats`."""

    received: int = 0
    sent: int = 0
    dropped_queue_full: int = 0
    dropped_slow: int = 0
    dropped_offline: int = 0
    dropped_too_large: int = 0
    malformed: int = 0
    kept_alive_too_late: int = 0


class Outlet(NamedTuple):
    """Connection to the client of a session."""

    send: Callable[[bytes], None]
    is_slow: Callable[[], bool]
    version: int
    receive_maximum: int
    max_packet_bytes: int


@dataclass(slots=True)
class _Outbound:
    """A message above QoS 0 for one client."""

    message: PublishedMessage
    qos: int
    retain: bool
    identifiers: tuple[int, ...]
    released: bool = False  # QoS 2: PUBREC has come, what remains is PUBREL and PUBCOMP


class ClientSession:
    """The state of one client id, which may outlive its connection.

    Args:
        client_id: name that the client gave, or that the broker made up.
        max_queued: messages above QoS 0 that may wait; the newest is dropped beyond that.
        counters: counters of the drops.
    """

    def __init__(self, client_id: str, max_queued: int, counters: Counters) -> None:
        self.client_id = client_id
        self.subscriptions: dict[bytes, Grant] = {}
        self.received: set[int] = set()  # QoS 2 packet ids that the client has not released yet
        self.outlet: Outlet | None = None
        self.expires_at: float | None = None  # monotonic seconds; None while connected or for ever
        self._max_queued = max_queued
        self._counters = counters
        self._in_flight: dict[int, _Outbound] = {}  # in the order of sending
        self._waiting: deque[_Outbound] = deque()
        self._last_packet_id = 0

    @property
    def undelivered(self) -> int:
        """Messages above QoS 0 that the client has not acknowledged, waiting ones included."""
        return len(self._in_flight) + len(self._waiting)

    def attach(self, outlet: Outlet) -> None:
        """Attach the client: repeat what it has not acknowledged (section 4.4), then send what waits."""
        self.outlet = outlet
        self.expires_at = None
        unfinished = self._in_flight
        self._in_flight = {}
        for packet_id, delivery in unfinished.items():
            if delivery.released:
                self._in_flight[packet_id] = delivery
                outlet.send(encode_ack(PUBREL, (packet_id,)))
            else:
                self._transmit(outlet, packet_id, delivery, dup=True)
        self._send_waiting()

    def detach(self) -> None:
        """Detach the client that has gone."""
        self.outlet = None

    def deliver(self, message: PublishedMessage, grant: Grant, *, retain: bool) -> None:
        """Send a message, or keep it for later as far as its QoS and the limits allow."""
        qos = min(message.qos, grant.qos)
        delivery = _Outbound(message, qos, retain, grant.identifiers)
        outlet = self.outlet
        if not qos:
            if outlet is None:
                self._counters.dropped_offline += 1
            elif outlet.is_slow():
                self._counters.dropped_slow += 1
            else:
                self._transmit(outlet, 0, delivery)
        elif outlet is not None and not self._waiting and len(self._in_flight) < outlet.receive_maximum:
            self._transmit(outlet, self._next_packet_id(), delivery)
        elif len(self._waiting) < self._max_queued:
            self._waiting.append(delivery)
        else:
            self._counters.dropped_queue_full += 1

    def acknowledged(self, kind: int, packet_id: int, reason_code: int) -> None:
        """Take PUBACK, PUBREC or PUBCOMP of the client into account."""
        delivery = self._in_flight.get(packet_id)
        outlet = self.outlet
        if outlet is None:
            return
        if kind == PUBREC and reason_code < 0x80:
            if delivery is None or delivery.qos != 2:
                unknown = outlet.version == V5
                send = encode_negative_ack(PUBREL, packet_id, _PACKET_ID_NOT_FOUND) if unknown else None
                outlet.send(send or encode_ack(PUBREL, (packet_id,)))
                return
            delivery.released = True
            outlet.send(encode_ack(PUBREL, (packet_id,)))
            return
        if delivery is None or (kind == PUBACK) != (delivery.qos == 1) or (kind == PUBCOMP and not delivery.released):
            return  # a repetition of what is acknowledged already
        del self._in_flight[packet_id]
        self._send_waiting()

    def released(self, packet_id: int) -> bytes:
        """Take the client's PUBREL into account; returns the PUBCOMP."""
        known = packet_id in self.received
        self.received.discard(packet_id)
        if known or self.outlet is None or self.outlet.version != V5:
            return encode_ack(PUBCOMP, (packet_id,))
        return encode_negative_ack(PUBCOMP, packet_id, _PACKET_ID_NOT_FOUND)

    def _send_waiting(self) -> None:
        outlet = self.outlet
        while outlet is not None and self._waiting and len(self._in_flight) < outlet.receive_maximum:
            self._transmit(outlet, self._next_packet_id(), self._waiting.popleft())

    def _transmit(self, outlet: Outlet, packet_id: int, delivery: _Outbound, *, dup: bool = False) -> None:
        message = delivery.message
        properties = b""
        if outlet.version == V5:
            identifiers = [_SUBSCRIPTION_IDENTIFIER + encode_variable(number) for number in delivery.identifiers]
            properties = message.properties + b"".join(identifiers)
        packet = encode_publish(
            message.topic,
            message.payload,
            delivery.qos,
            packet_id,
            delivery.retain,
            dup,
            outlet.version,
            properties,
        )
        if len(packet) > outlet.max_packet_bytes:  # MQTT-3.1.2-24 and -25: as if it had been delivered
            self._counters.dropped_too_large += 1
            return
        if packet_id:
            self._in_flight[packet_id] = delivery
        self._counters.sent += 1
        outlet.send(packet)

    def _next_packet_id(self) -> int:
        """Return the next free one; fewer than 65,535 are ever in flight, since a receive maximum has 16 bits."""
        packet_id = self._last_packet_id
        while True:
            packet_id = packet_id % 65_535 + 1
            if packet_id not in self._in_flight:
                self._last_packet_id = packet_id
                return packet_id
