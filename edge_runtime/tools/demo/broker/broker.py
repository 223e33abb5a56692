"""An embedded MQTT broker, **for the demo and for tests only**; in production run mosquitto or another real broker.

It spares a first try of this package the installation of a server, and gives the tests one that starts in a
millisecond. It speaks MQTT 3.1.1 and 5 in one thread over one selector, and needs nothing beyond this package.
It listens on 127.0.0.1 unless told otherwise, without TLS, and keeps everything in memory.

What it does: QoS 0, 1 and 2 both ways, retained messages, wills, persistent sessions with bounded queues, shared
subscriptions in turn, keep alive, receive maximum and maximum packet size, session take-over, topic aliases from
clients, user name and password.

What it leaves out of the specification: message expiry is passed on but nothing expires; a will delay is not waited
for; enhanced authentication is refused; a message that one member of a shared subscription has not acknowledged stays
with that member's session.
"""

from __future__ import annotations

import logging
import selectors
import socket
import threading
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final

from edge_runtime.clock import Clock, SystemClock
from edge_runtime.errors import ConnectionFailed
from edge_runtime.tools.demo.broker.protocol import BrokerProtocol, Client, EmbeddedBrokerConfig

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

__all__ = ["Broker", "BrokerStats", "EmbeddedBrokerConfig"]

_log = logging.getLogger(__name__)

_RECEIVE_BYTES: Final = 256 * 1024
_SWEEP_EVERY_S: Final = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerStats:
    """Counts of what the broker did and holds; of messages unless a name says otherwise."""

    clients: int
    sessions: int
    retained: int
    undelivered: int
    """Above QoS 0, in queues or on the way, of all sessions."""
    received: int
    sent: int
    dropped_queue_full: int
    dropped_slow: int
    """QoS 0 for clients that do not read fast enough."""
    dropped_offline: int
    """QoS 0 for sessions whose client is not there."""
    dropped_too_large: int
    """Larger than the client's maximum packet size."""
    malformed: int
    """Connections ended for breaking the protocol."""
    kept_alive_too_late: int
    """Connections ended for their silence."""


class _Connection:
    """A socket and its client."""

    __slots__ = ("client", "events", "socket", "unsent")

    def __init__(self, sock: socket.socket, client: Client) -> None:
        self.socket = sock
        self.client = client
        self.unsent = bytearray()
        self.events = selectors.EVENT_READ


class Broker:
    """The embedded broker. Start it with `start` or as a context manager.

    `stop` and `start` again is a restart of a broker with persistence: same port, same sessions and retained messages.

    1. What a turn has for a client is sent joined at its end, and again once a full socket takes more.
    2. Keep alive and session expiry are looked at now and then, also where nothing comes.
    3. At the end clients are told first; their connections are closed after an error, too.

    Args:
        config: address to listen on, and what to allow.
        clock: monotonic time of keep alive and session expiry.

    Attributes:
        port: where it listens; what the configuration says until `start` has picked one.
    """

    def __init__(self, config: EmbeddedBrokerConfig | None = None, clock: Clock | None = None) -> None:
        self._config = config or EmbeddedBrokerConfig()
        self._clock = clock or SystemClock()
        self._protocol = BrokerProtocol(self._config)
        self._connections: dict[Client, _Connection] = {}
        self._awake: list[Client] = []
        self._thread: threading.Thread | None = None
        self._stopping = False
        self.port = self._config.port

    @property
    def url(self) -> str:
        """Address for clients, such as ``mqtt://127.0.0.1:1883``; without credentials."""
        host = self._config.host
        return f"mqtt://[{host}]:{self.port}" if ":" in host else f"mqtt://{host}:{self.port}"

    def start(self) -> Broker:
        """Listen, and serve from a thread of its own.

        Raises:
            ConnectionFailed: the address cannot be listened on.
        """
        if self._thread is not None:
            raise RuntimeError("the broker is running already")
        family = socket.AF_INET6 if ":" in self._config.host else socket.AF_INET
        try:
            listener = socket.create_server((self._config.host, self.port), family=family, backlog=512)
        except OSError as error:
            raise ConnectionFailed(
                f"cannot listen on {self._config.host}:{self.port} ({error.strerror}); choose another host or port"
            ) from error
        listener.setblocking(False)
        self.port = listener.getsockname()[1]
        self._stopping = False
        self._wake_reader, self._wake_writer = socket.socketpair()
        self._thread = threading.Thread(target=self._run, args=(listener,), name="embedded-mqtt-broker", daemon=True)
        _log.warning("broker: started the embedded one, for demo and tests only: url=%s", self.url)
        self._thread.start()
        return self

    def stop(self) -> None:
        """Say goodbye to all clients and stop listening; does nothing if it is not running."""
        if self._thread is None:
            return
        self._stopping = True
        self._wake_writer.send(b"x")
        self._thread.join()
        self._thread = None
        self._wake_reader.close()
        self._wake_writer.close()

    def __enter__(self) -> Broker:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stats(self) -> BrokerStats:
        """Return counts so far; each is right, though not all from the same instant while the broker is busy."""
        protocol = self._protocol
        sessions = [*protocol.sessions.values()]
        return BrokerStats(
            clients=len(self._connections),
            sessions=len(sessions),
            retained=len(protocol.retained),
            undelivered=sum(session.undelivered for session in sessions),
            **asdict(protocol.counters),
        )

    def _run(self, listener: socket.socket) -> None:
        with listener, selectors.DefaultSelector() as selector:
            self._selector = selector
            selector.register(listener, selectors.EVENT_READ)
            selector.register(self._wake_reader, selectors.EVENT_READ)
            now = swept_at = self._clock.monotonic()
            try:
                while not self._stopping:
                    ready = selector.select(_SWEEP_EVERY_S)
                    now = self._clock.monotonic()
                    for key, events in ready:
                        if key.fileobj is listener:
                            self._accept(listener, now)
                        elif isinstance(key.data, _Connection):
                            if events & selectors.EVENT_READ:
                                self._receive(key.data, now)
                            if events & selectors.EVENT_WRITE:  # rule 1
                                self._awake.append(key.data.client)
                    if now - swept_at >= _SWEEP_EVERY_S:  # rule 2
                        swept_at = now
                        self._protocol.sweep([*self._connections], now)
                    self._flush(now)  # rule 1
                self._protocol.shut_down([*self._connections])  # rule 3
                self._flush(now)
            finally:
                for connection in [*self._connections.values()]:  # rule 3
                    self._drop(connection, now)
                self._awake.clear()

    def _accept(self, listener: socket.socket, now: float) -> None:
        try:
            sock, _ = listener.accept()
        except OSError as error:  # gone again, or no file descriptors left
            _log.warning("broker: could not accept a client: error=%s", error)
            return
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        client = Client(self._config.max_packet_bytes, now, self._awake.append)
        connection = self._connections[client] = _Connection(sock, client)
        self._selector.register(sock, selectors.EVENT_READ, connection)

    def _receive(self, connection: _Connection, now: float) -> None:
        client = connection.client
        if client.closing:
            return
        try:
            data = connection.socket.recv(_RECEIVE_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data:
            self._protocol.received(client, data, now)
        else:
            self._drop(connection, now)

    def _flush(self, now: float) -> None:
        """Write what this tick has produced: one send for each client."""
        awake = self._awake
        while awake:
            clients = [*awake]
            awake.clear()
            for client in clients:
                connection = self._connections.get(client)
                if connection is not None:
                    self._write(connection, now)

    def _write(self, connection: _Connection, now: float) -> None:
        client = connection.client
        data: bytes | bytearray = b"".join(client.outgoing)
        client.outgoing.clear()
        if connection.unsent:
            connection.unsent += data
            data = connection.unsent
        sent = 0
        if data:
            try:
                sent = connection.socket.send(data)
            except BlockingIOError:
                pass
            except OSError:
                self._drop(connection, now)
                return
        if data is connection.unsent:
            del connection.unsent[:sent]
        elif sent < len(data):
            connection.unsent += memoryview(data)[sent:]
        client.unsent_bytes = len(connection.unsent)
        if client.closing and not connection.unsent:
            self._drop(connection, now)
            return
        events = selectors.EVENT_READ
        if connection.unsent:
            events = selectors.EVENT_WRITE
            if client.unsent_bytes <= self._config.max_buffered_bytes and not client.closing:
                events |= selectors.EVENT_READ
        if events != connection.events:
            connection.events = events
            self._selector.modify(connection.socket, events, connection)

    def _drop(self, connection: _Connection, now: float) -> None:
        if self._connections.pop(connection.client, None) is None:
            return
        self._selector.unregister(connection.socket)
        connection.socket.close()
        self._protocol.lost(connection.client, now)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the embedded broker until Ctrl-C or SIGTERM; for hand tests.

    Returns:
        Exit code: 0, or 2 when it cannot listen there.
    """
    import argparse  # noqa: PLC0415 - for the command only
    import signal  # noqa: PLC0415
    import sys  # noqa: PLC0415

    parser = argparse.ArgumentParser(
        prog="python -m edge_runtime.tools.demo.broker.broker",
        description="Embedded MQTT broker, for demo and tests only.",
        epilog="example: python -m edge_runtime.tools.demo.broker.broker --port 1883",
    )
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    parser.add_argument("--port", type=int, default=0, help="port to listen on (default: a free one)")
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda _signal, _frame: ended.set())
    try:
        with Broker(EmbeddedBrokerConfig(host=options.host, port=options.port)) as broker:
            print(broker.url, flush=True)
            ended.wait()
            print(broker.stats(), flush=True)
    except (ConnectionFailed, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
