"""Shared test bench of the client: a loop with clients on it, and a broker that does exactly what a test tells it."""

from __future__ import annotations

import itertools
import os
import random
import select
import socket
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any

from edge_runtime.base.system.loop import Loop
from edge_runtime.base.system.retry import Retry
from edge_runtime.io.mqtt.client import BrokerClient
from edge_runtime.io.mqtt.config import BrokerConfig
from edge_runtime.io.mqtt.outbound_queue import Message
from edge_runtime.io.mqtt.packets import (
    CONNECT,
    SUBSCRIBE,
    V311,
    Connack,
    Connect,
    PacketParser,
    Publish,
    Suback,
    decode_connect,
    decode_subscribe,
    encode_connack,
    encode_suback,
)
from edge_runtime.metrics import Metrics
from edge_runtime.types import Done

WAIT_S = 60.0
QUICK = Retry(base_s=0.02, cap_s=0.1)
_ids = itertools.count()


def unique(prefix: str) -> str:
    """A client id or topic level that no other test uses."""
    return f"{prefix}-{next(_ids)}"


def pull_the_plug(broker_client: BrokerClient) -> None:
    """End the client's connection as a lost network does, with nothing said."""
    assert broker_client._connection is not None
    with socket.socket(fileno=os.dup(broker_client._connection.fileno())) as duplicate:
        duplicate.shutdown(socket.SHUT_RDWR)


class Inbox:
    """Takes messages as a source does; `ack` decides when they are safe."""

    def __init__(self, *, ack: bool = True) -> None:
        self.ack = ack
        self.got: list[Publish] = []
        self.deliveries: list[list[Publish]] = []
        self.owed: list[Done] = []

    def __call__(self, publishes: list[Publish], received: float, done: Done | None) -> None:
        self.got += publishes
        self.deliveries.append(publishes)
        if done is not None:
            if self.ack:
                done()
            else:
                self.owed.append(done)

    @property
    def payloads(self) -> list[bytes]:
        return [publish[1] for publish in self.got]

    def ack_all(self) -> None:
        owed, self.owed = self.owed, []
        for done in owed:
            done()


class Bench:
    """A loop and the clients on it; leaving closes them."""

    def __init__(self, linger_s: float = 0.0) -> None:
        self.loop = Loop(linger_s)
        self.broker_clients: list[BrokerClient] = []
        self.metrics = Metrics()

    def broker_client(
        self, url: str, inbox: Inbox | None = None, *filters: tuple[str, int], publish_qos: int = 0, **options: Any
    ) -> BrokerClient:
        """A client that connects in the next turn; its metrics are the bench's."""
        options.setdefault("client_id", unique("link"))
        config = BrokerConfig(url=url, **options)
        broker_client = BrokerClient(config, config.client_id, self.metrics, retry=QUICK, rng=random.Random(7))
        if inbox is not None:
            broker_client.subscribe(list(filters), inbox)
        broker_client.open(self.loop, publish_qos=publish_qos)
        self.broker_clients.append(broker_client)
        return broker_client

    def connected(self, *args: Any, **options: Any) -> BrokerClient:
        """A client that is connected, with its subscription granted."""
        broker_client = self.broker_client(*args, **options)
        self.until(lambda: broker_client.connected and not broker_client._subscribing)
        return broker_client

    def until(self, condition: Callable[[], object], timeout_s: float = WAIT_S) -> None:
        """Turn the loop until something is so."""
        deadline = time.monotonic() + timeout_s
        while not condition():
            if time.monotonic() > deadline:
                raise AssertionError("it did not happen in time")
            self.loop.iterate(0.02)

    def turns(self, seconds: float) -> None:
        """Turn the loop for a while."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self.loop.iterate(0.01)

    def __enter__(self) -> Bench:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for broker_client in self.broker_clients:
            while broker_client._users > 0:
                broker_client.close(0.5)
        self.loop.close()


def messages(count: int, qos: int, topic: bytes = b"t", size: int = 0, start: int = 0) -> list[Message]:
    """Numbered messages."""
    return [Message(topic, b"%06d" % i + bytes(size), b"", qos) for i in range(start, start + count)]


def numbers(payloads: list[bytes]) -> list[int]:
    """What `messages` numbered."""
    return [int(payload[:6]) for payload in payloads]


class ScriptedBroker:
    """One connection at a time, driven by the test on the test's own thread, while a bench turns."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._server = socket.create_server(("127.0.0.1", 0))
        self._server.setblocking(False)
        self.url = f"mqtt://127.0.0.1:{self._server.getsockname()[1]}"
        self._sock: socket.socket | None = None
        self._parser = PacketParser(None)
        self.items: list[Any] = []
        self.version = V311
        self.connect: Connect | None = None

    @property
    def sock(self) -> socket.socket:
        assert self._sock is not None
        return self._sock

    def accept(self) -> Connect:
        """Take the next connection and its CONNECT."""
        self.drop()
        self._bench.until(lambda: select.select([self._server], [], [], 0)[0])
        self._sock, _ = self._server.accept()
        self._sock.setblocking(False)
        self._parser = PacketParser(None)
        self.items = []
        first = self.wait(1)[0]
        assert first[0] == CONNECT
        self.connect = decode_connect(first[1])
        self.version = self.connect.version
        return self.connect

    def welcome(self, *, session_present: bool = False, properties: bytes = b"", subscribe: bool = True) -> None:
        """Accept a connection, answer CONNECT, and SUBSCRIBE if one is expected."""
        self.accept()
        self.send(encode_connack(Connack(session_present, 0, properties), self.version))
        if subscribe:
            first = self.wait(1)[0]
            assert first[0] == SUBSCRIBE
            wanted = decode_subscribe(first[1], self.version)
            granted = tuple(one.qos for one in wanted.subscriptions)
            self.send(encode_suback(Suback(wanted.packet_id, granted), self.version))

    def send(self, data: bytes | memoryview) -> None:
        """Send all of it, while the client reads."""
        view = memoryview(data)

        def more() -> bool:
            nonlocal view
            try:
                view = view[self.sock.send(view) :]
            except BlockingIOError:
                return False
            return not view

        self._bench.until(more)

    def wait(self, count: int) -> list[Any]:
        """The next packets, once that many are there."""

        def enough() -> bool:
            self.read()
            return len(self.items) >= count

        self._bench.until(enough)
        taken, self.items = self.items[:count], self.items[count:]
        return taken

    def read(self) -> list[Any]:
        """All packets that have come and were not taken yet."""
        try:
            data = self.sock.recv(2**20)
        except BlockingIOError:
            data = b""
        if data:
            self.items += self._parser.feed(data)
        return self.items

    def drop(self) -> None:
        """End the connection as a crash does."""
        if self._sock is not None:
            self._sock.close()
            self._sock = None

    def __enter__(self) -> ScriptedBroker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.drop()
        self._server.close()
