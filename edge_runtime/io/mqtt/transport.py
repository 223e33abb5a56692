"""The socket that two share: paho sees a socket with control packets only, we see the messages.

::

    kernel ─► Transport.read ─► Parser ─┬─ PUBLISH, PUBACK, PUBREC, PUBREL, PUBCOMP ─► ours
                                        └─ CONNACK, SUBACK, PINGRESP, DISCONNECT … ──► recv() by paho
    kernel ◄─ Transport.flush ◄─ out-buffer ◄─┬─ write() by us
                                              └─ send() by paho (always a whole packet)

paho-mqtt 2 reads a packet with four `recv` and about 120 lines of Python; it accepts any socket-like object, as it does
for its own websockets. So it goes on to own connect, TLS, CONNECT, SUBSCRIBE, keep-alive and DISCONNECT, and a message
costs 20 times less (see docs/decisions/0006-mqtt-on-paho.md).
"""

from __future__ import annotations

import os
import selectors
import socket
import ssl
from contextlib import suppress
from typing import Final, Protocol

from edge_runtime.clock import SystemClock
from edge_runtime.io.mqtt.packets import (
    DUP,
    PUBLISH,
    RETAIN,
    Item,
    MalformedPacket,
    Packet,
    PacketParser,
    Publish,
    encode_variable,
)
from edge_runtime.io.mqtt.wire import PACKET_TOO_LARGE, decode_uint16, decode_variable

RECEIVE_BYTES: Final = 64 * 1024
"""Most bytes of one read. Unless the heap is kept (`edge_runtime.base.system.malloc`), glibc maps and unmaps a
buffer of 128 KiB or more for each read: a fifth of a lone message's read, a third of a flood's; see
docs/performance.md."""

FLOOD_BYTES: Final = 16 * RECEIVE_BYTES
"""Most bytes that one iteration reads where they wait already. Sound comes in messages of 1 to 10 kB, rows of features
in up to 16 kB: with one read of 64 KiB an iteration, a chain got 4 to 6 keys at a time, with 256 KiB 16 to 27. With
1 MiB, a step of a wake word takes 10 to 30 % less than with 256 KiB."""

FAREWELL_S: Final = 1.0
"""Longest wait for the broker to close its side; brokers do so in a round trip after DISCONNECT."""

_WOULD_BLOCK: Final = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class SocketLike(Protocol):
    """Socket, as far as paho and we use it; `socket.socket` and `ssl.SSLSocket` have it."""

    def recv(self, bufsize: int, /) -> bytes: ...
    def send(self, data: bytes | bytearray | memoryview, /) -> int: ...
    def close(self) -> None: ...
    def fileno(self) -> int: ...
    def setblocking(self, flag: bool, /) -> None: ...
    def shutdown(self, how: int, /) -> None: ...


def set_nodelay(fd: int) -> None:
    """Send small packets at once: with Nagle's algorithm a round trip took 20 to 30 ms on loopback, not under 1 ms."""
    with suppress(OSError), socket.socket(fileno=os.dup(fd)) as duplicate:
        duplicate.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


OVERSIZE: Final = 0x00
"""First byte of the stand-in for a PUBLISH that was skipped; no packet of MQTT has it."""


class SkippingParser(PacketParser):
    """A parser that gets over a PUBLISH larger than it takes, without ever holding it.

    To end the connection, as a parser must that knows no better, is no way out: the broker sends a QoS 1 message again,
    so one large message would block its session for good. A MQTT 5 broker knows our limit and should keep such a
    message to itself; 3.1.1 has no means to say it.
    """

    _skip = 0

    def feed(self, data: bytes) -> list[Item]:
        """As `PacketParser.feed`; a skipped message is ``(OVERSIZE, body)``, see `decode_oversize`."""
        if self._skip:
            skipped = min(self._skip, len(data))
            self._skip -= skipped
            data = data[skipped:]
        return super().feed(data) if data else []

    def _parse_one(self, data: bytes, at: int, items: list[Item]) -> int:
        try:
            return super()._parse_one(data, at, items)
        except MalformedPacket as error:
            if error.reason_code != PACKET_TOO_LARGE or data[at] & 0xF0 != PUBLISH:
                raise
        size, body_at = decode_variable(data, at + 1, "remaining length")
        needed = body_at + 2
        if len(data) >= needed:
            needed += int.from_bytes(data[body_at:needed], "big") + 2  # topic, and packet id or some of the payload
        if needed > body_at + size:
            raise MalformedPacket("topic of PUBLISH is cut short")
        if len(data) < needed:
            self._wanted = needed - at
            return at
        items.append((OVERSIZE, data[at : at + 1] + data[body_at:needed]))
        end = body_at + size
        self._skip = max(0, end - len(data))
        return min(end, len(data))


def decode_oversize(body: bytes) -> Publish:
    """Decode what is known of a skipped message: all but payload and properties."""
    qos = body[0] >> 1 & 3
    length, at = decode_uint16(body, 1, "topic length")
    topic = body[at : at + length]
    packet_id = int.from_bytes(body[at + length :], "big") if qos else 0
    return topic, b"", packet_id, qos, body[0] & (RETAIN | DUP), None


class Transport:
    """A socket as paho sees it, and the message stream as we see it. One thread at a time.

    Args:
        sock: connected, TLS handshake done.
        version: the MQTT version of the connection, `V311` or `V5`.
        max_packet_bytes: largest packet to accept.
        max_held_bytes: bytes of messages that may wait; a flood is read in parts of an eighth of it. None: no bound.

    Attributes:
        offered: bytes ever put into the out-buffer.
        written: bytes of them that the kernel has taken.
        farewell_s: how long `close` waits for the broker to close its side, seconds. 0 while the connection is in use.
    """

    def __init__(
        self, sock: SocketLike, version: int, max_packet_bytes: int, max_held_bytes: int | None = None
    ) -> None:
        self._sock = sock
        # What one iteration reads goes beyond what may be held back, so it is a part of that.
        self._most = FLOOD_BYTES if max_held_bytes is None else max_held_bytes // 8
        self._tls = isinstance(sock, ssl.SSLSocket)
        self._parser = SkippingParser(version, max_packet_bytes)
        self._control = bytearray()
        self._ended = False
        self._head = memoryview(b"")
        self._parts: list[bytes] = []
        self.offered = 0
        self.written = 0
        self.farewell_s = 0.0

    # -- paho's side ---------------------------------------------------------------------------------------------

    def recv(self, size: int) -> bytes:
        """Bytes of the control packets that `hand_over` was given; b"" when the connection has ended."""
        if not self._control:
            if self._ended:
                return b""
            raise BlockingIOError
        data = bytes(self._control[:size])
        del self._control[:size]
        return data

    def send(self, data: bytes | bytearray) -> int:
        """Take all of it; `flush` sends it."""
        self.write(bytes(data))
        return len(data)

    def close(self) -> None:
        """Send what the kernel takes at once (paho's DISCONNECT), wait for the broker's end, close."""
        if not self._ended:
            with suppress(OSError):
                self.flush()
                self._farewell()
        self._ended = True
        self._sock.close()

    def _farewell(self) -> None:
        """Close our side first and read the rest away.

        To close a socket that holds unread bytes resets the connection, and a reset discards what the broker has not
        read yet: our last acknowledgements, and the messages they are for would come again.
        """
        if not self.farewell_s:
            return
        clock = SystemClock()
        until = clock.monotonic() + self.farewell_s
        self._sock.shutdown(socket.SHUT_WR)
        with selectors.DefaultSelector() as selector:
            selector.register(self._sock.fileno(), selectors.EVENT_READ)
            while (left := until - clock.monotonic()) > 0 and selector.select(left):
                if not self._sock.recv(RECEIVE_BYTES):
                    return

    def fileno(self) -> int:
        """Return the real socket's descriptor."""
        return self._sock.fileno()

    def setblocking(self, flag: bool) -> None:
        """As on the real socket."""
        self._sock.setblocking(flag)

    # -- our side ------------------------------------------------------------------------------------------------

    def read(self) -> tuple[list[Item], bool]:
        """Read what is there and parse it: up to `RECEIVE_BYTES`; of a flood `FLOOD_BYTES`, or what may be held allows.

        Returns:
            Packets in wire order, with a stand-in for each message that was too large; and whether more may be waiting
            already.

        Raises:
            MalformedPacket: the broker sent what MQTT forbids; see its `parsed`.
            ConnectionError: the broker closed the connection.
            OSError: the connection broke.
        """
        try:
            data = self._sock.recv(RECEIVE_BYTES)
        except _WOULD_BLOCK:
            return [], False
        if not data:
            raise ConnectionResetError("the broker closed the connection")
        more = False
        if self._tls:
            data, more = self._drain(data, RECEIVE_BYTES)
        elif len(data) == RECEIVE_BYTES:
            data, more = self._drain(data, min(self._most, FLOOD_BYTES))
        return self._parser.feed(data), more

    def _drain(self, first: bytes, most: int) -> tuple[bytes, bool]:
        """TLS hands out one record (16 KiB at most) a call, and what it has decrypted does not wake a selector."""
        chunks = [first]
        size = len(first)
        while size < most:
            try:
                chunk = self._sock.recv(min(most - size, RECEIVE_BYTES))
            except _WOULD_BLOCK:
                return b"".join(chunks), False
            if not chunk:
                break  # the next read says so again
            chunks.append(chunk)
            size += len(chunk)
        return b"".join(chunks), True

    def hand_over(self, packet: Packet) -> None:
        """Let paho's next `recv` calls see this packet."""
        first, body = packet
        self._control.append(first)
        self._control += encode_variable(len(body))
        self._control += body

    def end(self) -> None:
        """From now on paho reads the end of the connection, and cleans up."""
        self._ended = True

    def write(self, data: bytes) -> None:
        """Queue one or more whole packets."""
        self._parts.append(data)
        self.offered += len(data)

    @property
    def unsent(self) -> int:
        """Bytes that wait in the out-buffer."""
        return self.offered - self.written

    def flush(self) -> bool:
        """Send as much as the kernel takes, all packets joined.

        Returns:
            Whether nothing is left.

        Raises:
            OSError: the connection broke.
        """
        while True:
            if not self._head:
                if not self._parts:
                    return True
                data = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
                self._parts.clear()
                self._head = memoryview(data)
            try:
                sent = self._sock.send(self._head)
            except _WOULD_BLOCK:
                return False
            self.written += sent
            self._head = self._head[sent:]
