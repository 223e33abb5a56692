"""A real Home Assistant, headless: ready-made storage, so no browser and no onboarding; REST and websocket to look in.

The storage files are what Home Assistant itself writes when one user is made and the MQTT integration set up by hand
(developers.home-assistant.io, "Data entry flow" and "Authentication API"); the token is a JWT made here.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import secrets
import signal
import socket
import struct
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.integration.running import until
from tests.mosquitto import free_port

CONFIGURATION = """
homeassistant:
  name: Test
  unit_system: metric
  time_zone: UTC
  country: DE
http:
  server_host: 127.0.0.1
  server_port: {port}
api:
config:
websocket_api:
logger:
  default: warning
"""
START_S = 180.0
_EPOCH = "2026-01-01T00:00:00+00:00"


def _base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _token(name: str, key: str) -> str:
    """JWT of a long-lived refresh token (RFC 7519, HS256)."""
    now = int(time.time())
    head = _base64url(b'{"alg":"HS256","typ":"JWT"}')
    body = _base64url(json.dumps({"iss": name, "iat": now, "exp": now + 10**8}).encode())
    signature = hmac.new(key.encode(), f"{head}.{body}".encode(), hashlib.sha256).digest()
    return f"{head}.{body}.{_base64url(signature)}"


def _store(folder: Path, name: str, version: tuple[int, int], data: object) -> None:
    document = {"version": version[0], "minor_version": version[1], "key": name, "data": data}
    (folder / name).write_text(json.dumps(document))


def prepare(folder: Path, *, port: int, broker_port: int) -> str:
    """Write the configuration folder; return the token that opens it."""
    storage = folder / ".storage"
    storage.mkdir(parents=True)
    (folder / "configuration.yaml").write_text(CONFIGURATION.format(port=port))
    done = ["user", "core_config", "analytics", "integration"]
    _store(storage, "onboarding", (4, 1), {"done": done})
    entry = {
        "domain": "mqtt", "data": {"broker": "127.0.0.1", "port": broker_port}, "version": 1, "minor_version": 2,
        "options": {}, "source": "user", "subentries": [], "title": "mosquitto", "unique_id": None,
        "entry_id": "0123456789abcdef0123456789abcdef", "created_at": _EPOCH, "modified_at": _EPOCH,
        "disabled_by": None, "discovery_keys": {}, "pref_disable_new_entities": False, "pref_disable_polling": False,
    }  # fmt: skip
    _store(storage, "core.config_entries", (1, 5), {"entries": [entry]})
    user, refresh, key = secrets.token_hex(16), secrets.token_hex(16), secrets.token_hex(64)
    token = {
        "id": refresh, "user_id": user, "client_id": None, "client_name": "tests", "client_icon": None,
        "token_type": "long_lived_access_token", "created_at": _EPOCH, "access_token_expiration": 1e8,
        "token": secrets.token_hex(64), "jwt_key": key, "last_used_at": None, "last_used_ip": None,
        "expire_at": None, "credential_id": None, "version": None,
    }  # fmt: skip
    owner = {
        "id": user, "group_ids": ["system-admin"], "is_owner": True, "is_active": True, "name": "Owner",
        "system_generated": False, "local_only": False,
    }  # fmt: skip
    groups = [{"id": f"system-{name}", "name": name} for name in ("admin", "users", "read-only")]
    _store(storage, "auth", (1, 1), {"users": [owner], "groups": groups, "credentials": [], "refresh_tokens": [token]})
    return _token(refresh, key)


class HomeAssistant:
    """A process of it, over a configuration folder that outlives it.

    Args:
        command: what starts ``hass``.
        folder: of the configuration; made.
        broker_port: of the MQTT broker on 127.0.0.1.
    """

    def __init__(self, command: list[str], folder: Path, broker_port: int) -> None:
        self.port = free_port()
        self._command = [*command, "-c", str(folder), "--skip-pip"]
        self._log = folder.with_suffix(".log")
        self._token = prepare(folder, port=self.port, broker_port=broker_port)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it and wait until it answers."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, stdout=log, stderr=subprocess.STDOUT, env=os.environ | {"HOME": str(self._log.parent)}
            )
        until(self._answers, self.log, START_S)

    def stop(self) -> None:
        """End it in order, as its service does."""
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def log(self) -> str:
        """All that it has written, over all starts."""
        return self._log.read_text(errors="replace")

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, self.log()
        with suppress(OSError, ValueError):
            return "message" in self.get("")
        return False

    # -- REST ----------------------------------------------------------------------------------------------------------

    def get(self, path: str) -> Any:
        """Ask the REST API."""
        return self._ask(path, None)

    def call(self, service: str, entity: str, **data: object) -> None:
        """Call a service of an entity: ``button/press``."""
        self._ask(f"services/{service}", {"entity_id": entity, **data})

    def _ask(self, path: str, document: object) -> Any:
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/api/{path}",
            None if document is None else json.dumps(document).encode(),
            {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.loads(answer.read())

    def states(self) -> dict[str, dict[str, Any]]:
        """All states by unique id of the entity, for entities of MQTT."""
        by_entity = {one["entity_id"]: one for one in self.get("states")}
        entities = self.ask("config/entity_registry/list")
        return {
            one["unique_id"]: by_entity[one["entity_id"]]
            for one in entities
            if one["platform"] == "mqtt" and one["entity_id"] in by_entity
        }

    # -- websocket (RFC 6455) ------------------------------------------------------------------------------------------

    @contextmanager
    def websocket(self) -> Iterator[WebSocket]:
        """Open a connection that is let in."""
        with WebSocket(self.port) as connection:
            assert connection.receive()["type"] == "auth_required"
            connection.send({"type": "auth", "access_token": self._token})
            assert connection.receive()["type"] == "auth_ok"
            yield connection

    def ask(self, command: str, **data: object) -> Any:
        """Ask over the websocket."""
        with self.websocket() as connection:
            return connection.ask(command, **data)

    def devices(self) -> dict[str, dict[str, Any]]:
        """Devices of MQTT by identifier."""
        found = self.ask("config/device_registry/list")
        return {pair[1]: one for one in found for pair in one["identifiers"] if pair[0] == "mqtt"}

    def explain(self) -> str:
        """What it knows of each device, and what it has logged: for failures."""
        lines = []
        with suppress(OSError, KeyError, AssertionError):
            for name, device in self.devices().items():
                found = self.ask("mqtt/device/debug_info", device_id=device["id"])
                lines.append(f"{name}: {json.dumps(found, indent=1)[:6000]}")
        return "\n".join([*lines, self.log()[-6000:]])

    def until(self, condition: Callable[[], object], seconds: float = 60.0) -> None:
        """Wait for something, and explain where it does not come."""
        until(condition, self.explain, seconds)

    def __enter__(self) -> HomeAssistant:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


class WebSocket:
    """A client that sends and receives JSON, one text frame each."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=30)
        key = base64.b64encode(secrets.token_bytes(16)).decode()
        self._socket.sendall(
            f"GET /api/websocket HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nUpgrade: websocket\r\n"
            f"Connection: Upgrade\r\nSec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n".encode()
        )
        self._file = self._socket.makefile("rb")
        assert b" 101 " in self._file.readline()
        while self._file.readline().strip():
            pass
        self._last = 0

    def send(self, document: object) -> None:
        """Send a masked text frame."""
        payload, mask = json.dumps(document).encode(), secrets.token_bytes(4)
        length = bytes([0x80 | len(payload)]) if len(payload) < 126 else b"\xfe" + struct.pack(">H", len(payload))
        masked = bytes(byte ^ mask[i % 4] for i, byte in enumerate(payload))
        self._socket.sendall(b"\x81" + length + mask + masked)

    def receive(self) -> Any:
        """Wait for the next message."""
        first, second = self._file.read(2)
        assert first == 0x81, f"not a whole text frame: {first:#x}"
        length = second & 0x7F
        if length == 126:
            (length,) = struct.unpack(">H", self._file.read(2))
        elif length == 127:
            (length,) = struct.unpack(">Q", self._file.read(8))
        return json.loads(self._file.read(length))

    def ask(self, command: str, **data: object) -> Any:
        """Send a command, and wait for its result."""
        self._last += 1
        self.send({"id": self._last, "type": command, **data})
        while True:
            answer = self.receive()
            if answer.get("id") == self._last and answer["type"] == "result":
                assert answer["success"], answer
                return answer["result"]

    def __enter__(self) -> WebSocket:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()
        self._socket.close()
