"""The other end of the wire for `edge-runtime bench`: a stand-in for a broker, in the same process and thread.

It listens on a free port of 127.0.0.1, answers CONNECT and SUBSCRIBE, and then sends what it is told to. Because it
only runs when it is called, its own time can be kept out of what is measured, while the program under test does all
that it does on a real connection: system calls, parsing, its own event loop.
"""

from __future__ import annotations

import select
import socket
from typing import Final

from edge_runtime.io.mqtt.packets import (
    CONNECT,
    PINGREQ,
    SUBSCRIBE,
    V311,
    Connack,
    Packet,
    PacketParser,
    Suback,
    decode_connect,
    decode_subscribe,
    encode_connack,
    encode_pingresp,
    encode_suback,
)

RESULTS: Final = b"results/"
_RECEIVE_BYTES: Final = 256 * 1024


def answer(packet: Packet, version: int, max_qos: int = 0) -> bytes:
    """Answer a control packet as a broker that grants everything; empty for those that need no answer."""
    first, body = packet
    if first == CONNECT:
        return encode_connack(Connack(session_present=False, reason_code=0), decode_connect(body).version)
    if first == SUBSCRIBE:
        subscribe = decode_subscribe(body, version)
        codes = tuple(min(max_qos, one.qos) for one in subscribe.subscriptions)
        return encode_suback(Suback(subscribe.packet_id, codes), version)
    return encode_pingresp() if first == PINGREQ else b""


class Feeder:
    """Serves one client, when called.

    Attributes:
        port: where it listens.
        results: payloads of the results received, in order.
        subscribed: the client has subscribed and got its SUBACK.
    """

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._peer: socket.socket | None = None
        self._parser = PacketParser(None, 2**24)
        self.results: list[bytes] = []
        self.subscribed = False

    def __enter__(self) -> Feeder:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close both sockets."""
        if self._peer is not None:
            self._peer.close()
        self._listener.close()

    def serve(self, timeout_s: float = 0.0) -> bool:
        """Handle what has come; returns whether anything had."""
        sock = self._peer or self._listener
        if not select.select([sock], [], [], timeout_s)[0]:
            return False
        if self._peer is None:
            self._peer, _ = self._listener.accept()
            self._peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return True
        data = self._peer.recv(_RECEIVE_BYTES)
        for item in self._parser.feed(data):
            if len(item) == 6:
                if item[0].startswith(RESULTS):
                    self.results.append(item[1])
                continue
            reply = answer(item, self._parser.version or V311)
            if reply:
                self._peer.sendall(reply)
            self.subscribed = self.subscribed or item[0] == SUBSCRIBE
        return bool(data)

    def send(self, data: bytes) -> None:
        """Send packets; small enough for the kernel's buffers, since nothing reads them meanwhile."""
        assert self._peer is not None, "no peer is connected"
        self._peer.sendall(data)
