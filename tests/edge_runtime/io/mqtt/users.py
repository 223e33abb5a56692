"""Who talks to a broker in these tests: a paho client that records, and a bare connection."""

from __future__ import annotations

import contextlib
import queue
import socket
from typing import Any

import paho.mqtt.client as paho
import pytest
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.properties import Properties as PahoProperties
from paho.mqtt.subscribeoptions import SubscribeOptions

from edge_runtime.io.mqtt.packets import (
    CONNACK,
    SUBACK,
    V5,
    V311,
    Connack,
    Connect,
    PacketParser,
    Subscribe,
    SubscribeFilter,
    decode_connack,
    encode_connect,
    encode_subscribe,
)

WAIT_S = 60.0
each_version = pytest.mark.parametrize("version", [pytest.param(V311, id="v3.1.1"), pytest.param(V5, id="v5")])

Received = tuple[str, bytes, int, bool]


class User:
    """A paho client that records what comes."""

    def __init__(self, port: int, client_id: str, version: int = V311, **options: Any) -> None:
        self.messages: queue.Queue[Received] = queue.Queue()
        self.properties: queue.Queue[Any] = queue.Queue()
        self._events: queue.Queue[tuple[str, Any]] = queue.Queue()
        clean = options.pop("clean", True)
        connect_properties = options.pop("properties", None)
        will = options.pop("will", None)
        keep_alive_s = options.pop("keep_alive_s", 30)
        credentials = options.pop("credentials", None)
        assert not options
        self.version = version
        self.client = paho.Client(
            CallbackAPIVersion.VERSION2,
            client_id,
            clean_session=clean if version == V311 else None,
            protocol=MQTTProtocolVersion(version),
            reconnect_on_failure=False,
        )
        if will is not None:
            self.client.will_set(**will)
        if credentials is not None:
            self.client.username_pw_set(*credentials)
        self.client.on_message = self._on_message
        self.client.on_connect = lambda _c, _u, flags, code, _p: self._events.put(("connect", (flags, code)))
        self.client.on_subscribe = lambda _c, _u, _m, codes, _p: self._events.put(("subscribe", codes))
        self.client.on_unsubscribe = lambda _c, _u, _m, codes, _p: self._events.put(("unsubscribe", codes))
        self.client.on_disconnect = lambda _c, _u, _f, code, _p: self._events.put(("disconnect", code))
        extra: dict[str, Any] = {"clean_start": clean, "properties": connect_properties} if version == V5 else {}
        self.client.connect("127.0.0.1", port, keep_alive_s, **extra)
        self.client.loop_start()
        flags, self.code = self.event("connect")
        self.session_present = flags.session_present

    def _on_message(self, _client: Any, _user: Any, message: paho.MQTTMessage) -> None:
        self.messages.put((message.topic, bytes(message.payload), message.qos, message.retain))
        self.properties.put(message.properties)

    def event(self, kind: str) -> Any:
        while True:
            found, value = self._events.get(timeout=WAIT_S)
            if found == kind:
                return value

    def subscribe(self, topic_filter: str, qos: int = 0, **options: Any) -> list[Any]:
        properties = options.pop("properties", None)
        if self.version == V5:
            self.client.subscribe(topic_filter, options=SubscribeOptions(qos, **options), properties=properties)
        else:
            self.client.subscribe(topic_filter, qos)
        codes: list[Any] = self.event("subscribe")
        return codes

    def unsubscribe(self, topic_filter: str) -> None:
        self.client.unsubscribe(topic_filter)
        self.event("unsubscribe")

    def publish(
        self, topic: str, payload: bytes, qos: int = 0, *, retain: bool = False, properties: Any = None
    ) -> None:
        self.client.publish(topic, payload, qos, retain, properties).wait_for_publish(WAIT_S)

    def next(self) -> Received:
        return self.messages.get(timeout=WAIT_S)

    def take(self, count: int) -> list[Received]:
        return [self.next() for _ in range(count)]

    def nothing_more(self, via: User, topic: str) -> None:
        """Check by a message of our own, sent after all others, that nothing else is on its way."""
        via.publish(topic, b"the end")
        assert self.next()[1] == b"the end"

    def leave(self) -> None:
        self.client.disconnect()
        self.client.loop_stop()

    def vanish(self) -> None:
        """Cut the connection without a DISCONNECT."""
        sock = self.client.socket()
        assert isinstance(sock, socket.socket)
        sock.shutdown(socket.SHUT_RDWR)
        self.client.loop_stop()


def properties_for(packet: int, **values: Any) -> PahoProperties:
    made = PahoProperties(packet)  # type: ignore[no-untyped-call]
    for name, value in values.items():
        setattr(made, name, value)
    return made


class Wire:
    """A bare connection, for what no client library would send."""

    def __init__(self, port: int, version: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=WAIT_S)
        self.version = version
        self._parser = PacketParser(version, 64 * 2**20)
        self._items: list[Any] = []

    def connect(self, client_id: str, **options: Any) -> Connack:
        self.send(encode_connect(Connect(client_id, version=self.version, **options)))
        first, body = self.next()
        assert first == CONNACK
        return decode_connack(body, self.version)

    def subscribe(self, topic_filter: bytes, qos: int) -> None:
        self.send(encode_subscribe(Subscribe(1, (SubscribeFilter(topic_filter, qos),)), self.version))
        assert self.next()[0] == SUBACK

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def next(self) -> Any:
        while not self._items:
            data = self.socket.recv(65536)
            if not data:
                raise EOFError
            self._items += self._parser.feed(data)
        return self._items.pop(0)

    def is_closed(self) -> bool:
        """Wait until the other side closes; what it says before that is read over."""
        with contextlib.suppress(ConnectionResetError):
            while self.socket.recv(65536):
                pass
        return True

    def close(self) -> None:
        self.socket.close()
