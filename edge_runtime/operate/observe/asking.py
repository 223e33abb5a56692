"""Questions to a running application, by its socket or its page: `edge_runtime.operate.observe.routes` from outside."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

import orjson

from edge_runtime.base.http.framing import SocketStream
from edge_runtime.clock import Clock
from edge_runtime.errors import ConfigError, ConnectionFailed, InputError

_MOST_BYTES: Final = 16 * 2**20


class Asker:
    """Asks one application.

    Args:
        place: the application's socket, or the URL of its page; None where its configuration has no socket.
        clock: monotonic time for time-outs.
        timeout_s: longest time of an answer.
        token: the page's token; empty: none is sent.

    Raises:
        ConfigError: there is no socket to ask on.
    """

    def __init__(self, place: Path | str | None, clock: Clock, timeout_s: float = 5.0, token: str = "") -> None:
        if place is None:
            raise ConfigError(
                "this application keeps no state, so it has no socket to be asked on: add [observe] with "
                'socket = "app.sock", and start it again'
            )
        self._place = place
        self._address: tuple[socket.AddressFamily, str | tuple[str, int]] = (socket.AF_UNIX, str(place))
        self._lines = "Host: localhost\r\nConnection: close\r\n"
        if isinstance(place, str):
            url = urlsplit(place)
            host = url.hostname or ""
            self._address = (socket.AF_INET6 if ":" in host else socket.AF_INET, (host, url.port or 80))
            self._lines = f"Host: {url.netloc}\r\nConnection: close\r\nAuthorization: Bearer {token}\r\n"
        self._clock = clock
        self._timeout_s = timeout_s

    def report(self, keys: int = 50, filter_text: str = "") -> dict[str, Any]:
        """Return one picture of the application; raises as `ask` does."""
        return self.ask(f"/api/report?{urlencode({'keys': keys, 'filter': filter_text})}")

    def key(self, key: str) -> dict[str, Any]:
        """Return one key with its last window; raises as `ask` does."""
        return self.ask(f"/api/key?{urlencode({'key': key})}")

    def explain(self, key: str) -> dict[str, Any]:
        """Return why the last window of a key has its answer; raises as `ask` does."""
        return self.ask("/api/explain", {"key": key})

    def metrics(self) -> str:
        """Return the page of metrics, as Prometheus has it; raises as `ask` does."""
        return self._fetch("/metrics", None)[1].decode()

    def ask(self, path: str, document: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Ask for a path, with a document as a POST.

        Raises:
            ConnectionFailed: the application does not run, or does not answer.
            InputError: it refuses; the message is its own.
        """
        status, body = self._fetch(path, document)
        try:
            found = orjson.loads(body)
        except orjson.JSONDecodeError:
            raise ConnectionFailed(f"what listens on {self._place} is no application of ours") from None
        if status != "200":
            raise InputError("refused", str(found.get("error", f"status {status}")))
        return found  # type: ignore[no-any-return]  # a JSON object

    def _fetch(self, path: str, document: Mapping[str, Any] | None) -> tuple[str, bytes]:
        """Return the status and the body of an answer."""
        body = b"" if document is None else orjson.dumps(document)
        sent = "" if document is None else f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        method = "GET" if document is None else "POST"
        head = f"{method} {path} HTTP/1.1\r\n{self._lines}{sent}\r\n"
        family, address = self._address
        sock = socket.socket(family, socket.SOCK_STREAM)
        stream = SocketStream(sock, self._clock)
        try:
            sock.settimeout(self._timeout_s)
            sock.connect(address)
            stream.limit_wait(self._clock.monotonic() + self._timeout_s, float("inf"))
            stream.send(head.encode("ascii"), (body,))
            answer = stream.read_head()
            return answer.start[1], bytes(stream.read_body(answer, _MOST_BYTES))
        except (FileNotFoundError, ConnectionRefusedError):
            raise ConnectionFailed(
                f"no application runs at {self._place}; start it: edge-runtime run APP.toml"
            ) from None
        except PermissionError:
            raise ConnectionFailed(
                f"{self._place} belongs to another user: ask as the user that the application runs as"
            ) from None
        except OSError as error:
            raise ConnectionFailed(
                f"the application behind {self._place} did not answer: {error.strerror or error}"
            ) from None
        finally:
            stream.close()
