"""Batched connection: messages and their acknowledgements pass paho by, in bursts; the control packets reach it."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable
from itertools import groupby
from typing import Any, Final, cast

import paho.mqtt.client as paho
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.reasoncodes import ReasonCode

from edge_runtime.io.mqtt.config import BrokerConfig
from edge_runtime.io.mqtt.connection import Connection, ConnectionListener, Identity, describe, make_client
from edge_runtime.io.mqtt.inbound_acks import Acks
from edge_runtime.io.mqtt.outbound_queue import OutboundQueue
from edge_runtime.io.mqtt.packets import (
    PUBACK,
    PUBCOMP,
    PUBREC,
    PUBREL,
    V5,
    Item,
    MalformedPacket,
    Packet,
    Publish,
    decode_ack,
)
from edge_runtime.io.mqtt.transport import FAREWELL_S, OVERSIZE, Transport, decode_oversize, set_nodelay

OUT_BUFFER_BYTES: Final = 2**20
"""Bytes that a connection buffers when the kernel takes no more; the rest stays in the bounded queue."""

CAN_BATCH: Final = callable(getattr(paho.Client, "_create_socket", None))
"""True where this paho lets a subclass give it its socket."""

_ACKS: Final = frozenset({PUBACK, PUBREC, PUBCOMP, PUBREL})


class _Client(paho.Client):
    """A paho client that reads and writes through a socket of our making."""

    dial: Callable[[], Transport]

    def _create_socket(self) -> Any:
        # The one private hook: paho puts its own wrapper for websockets into the same place.
        return self.dial()


class BatchedConnection(Connection):
    """Messages and their acknowledgements never reach paho; everything else does."""

    def __init__(self, config: BrokerConfig, identity: Identity, listener: ConnectionListener) -> None:
        client = cast("_Client", make_client(_Client, config, identity))
        client.dial = self._dial
        super().__init__(client, config, identity, listener)
        self._tls: ssl.SSLContext | None = None
        self._transport: Transport | None = None

    def _use_tls(self, context: ssl.SSLContext) -> None:
        self._tls = context

    def _dial(self) -> Transport:
        address = self._config.address()
        sock = socket.create_connection((address.host, address.port), self._config.connect_timeout_s)
        try:
            set_nodelay(sock.fileno())
            if self._tls is not None:
                sock = self._tls.wrap_socket(sock, server_hostname=address.host)
        except BaseException:
            sock.close()
            raise
        self._transport = Transport(
            sock, self.identity.version, self._config.max_packet_bytes, self._config.max_held_bytes
        )
        return self._transport

    @property
    def transport(self) -> Transport:
        """The socket that paho believes to own."""
        if self._transport is None:
            raise OSError("the connection is closed")
        return self._transport

    @property
    def hides(self) -> bool:
        return self._tls is not None

    def read(self) -> bool:
        items: list[Item] = []
        more = False
        try:
            items, more = self.transport.read()
        except MalformedPacket as error:
            items = error.parsed
            self.failure = f"the broker sent what MQTT forbids: {error}"
            self._dispatch(items)
            self._refuse(error.reason_code)
            return False
        except OSError as error:
            self.abort(describe(error, self._config))
            return False
        self._dispatch(items)
        return more

    def _dispatch(self, items: list[Item]) -> None:
        if not items:
            return
        if 2 not in map(len, items):  # the burst of messages that this is all about
            publishes: Any = items
            self._listener.on_publishes(publishes)
            return
        for size, run in groupby(items, len):
            if size == 2:
                self._control(cast("list[Packet]", list(run)))
            else:
                self._listener.on_publishes(cast("list[Publish]", list(run)))

    def _control(self, packets: list[Packet]) -> None:
        version = self.identity.version
        on_ack = self._listener.on_ack
        for packet in packets:
            first, body = packet
            if first == OVERSIZE:
                self._listener.on_oversize(decode_oversize(body))
            elif first not in _ACKS:
                self._to_paho(packet)
            elif len(body) == 2:
                on_ack(first, body[0] << 8 | body[1], 0)
            else:
                try:
                    on_ack(*decode_ack(first, body, version))
                except MalformedPacket as error:
                    self.failure = f"the broker sent what MQTT forbids: {error}"
                    self._refuse(error.reason_code)
                    return

    def _to_paho(self, packet: Packet) -> None:
        if not self.is_open:
            return
        self.transport.hand_over(packet)
        self._let_paho_read()
        if self.is_open and self._client.want_write():
            self._client.loop_write()
        self._after_paho()

    def _refuse(self, reason_code: int) -> None:
        """End a connection whose bytes make no sense; MQTT 5 tells the broker why (section 4.13)."""
        if self.is_open and self.identity.version == V5:
            self._client.disconnect(ReasonCode(PacketTypes.DISCONNECT, identifier=reason_code))
        self.abort(self.failure)

    def disconnect(self, *, with_will: bool = False) -> None:
        self.transport.farewell_s = FAREWELL_S
        super().disconnect(with_will=with_will)

    def abort(self, failure: str) -> None:
        self.failure = self.failure or failure
        if self.is_open:
            self.transport.end()
            self._let_paho_read()

    def send(self, acks: Acks | None, outbound_queue: OutboundQueue) -> bool:
        transport = self.transport
        if acks is not None:
            transport.write(acks.encode())
        if outbound_queue.ready:
            for packet in outbound_queue.pump(transport.offered, OUT_BUFFER_BYTES - transport.unsent):
                transport.write(packet)
        try:
            empty = transport.flush()
        except OSError as error:
            self.abort(describe(error, self._config))
            return True
        outbound_queue.written(transport.written)
        return empty
