"""A websocket in front of a plain broker, as a reverse proxy has it (RFC 6455, binary frames only)."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import select
import socket
import threading
from types import TracebackType

_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


class WebsocketBridge:
    """Passes one connection after another on to a broker."""

    def __init__(self, broker_port: int) -> None:
        self._broker_port = broker_port
        self._server = socket.create_server(("127.0.0.1", 0))
        self.url = f"ws://127.0.0.1:{self._server.getsockname()[1]}/mqtt"
        self._thread = threading.Thread(target=self._run, name="websocket-bridge", daemon=True)

    def _run(self) -> None:
        while True:
            try:
                client, _ = self._server.accept()
            except OSError:
                return
            with client, contextlib.suppress(OSError, EOFError):
                self._upgrade(client)
                with socket.create_connection(("127.0.0.1", self._broker_port)) as broker:
                    self._pass_on(client, broker)

    def _upgrade(self, client: socket.socket) -> None:
        request = b""
        while not request.endswith(b"\r\n\r\n"):
            request += client.recv(1)
        lines = dict(line.split(b": ", 1) for line in request.split(b"\r\n")[1:] if line)
        key = next(value for name, value in lines.items() if name.lower() == b"sec-websocket-key")
        accept = base64.b64encode(hashlib.sha1(key + _GUID).digest())
        client.sendall(
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Protocol: mqtt\r\nSec-WebSocket-Accept: " + accept + b"\r\n\r\n"
        )

    def _pass_on(self, client: socket.socket, broker: socket.socket) -> None:
        while True:
            for ready in select.select([client, broker], [], [])[0]:
                if ready is broker:
                    data = broker.recv(3000)
                    if not data:
                        return
                    size = len(data)
                    head = bytes((0x82, size)) if size < 126 else b"\x82\x7e" + size.to_bytes(2, "big")
                    client.sendall(head + data)
                else:
                    broker.sendall(self._frame(client))

    def _frame(self, client: socket.socket) -> bytes:
        opcode, size = _exactly(client, 2)
        size &= 127
        if size > 125:
            size = int.from_bytes(_exactly(client, 2 if size == 126 else 8), "big")
        mask = _exactly(client, 4)
        data = _exactly(client, size)
        if opcode & 15 == 8:
            raise EOFError
        return bytes(byte ^ mask[i & 3] for i, byte in enumerate(data))

    def __enter__(self) -> WebsocketBridge:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self._thread.join(5)


def _exactly(sock: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = sock.recv(size - len(data))
        if not more:
            raise EOFError
        data += more
    return data
