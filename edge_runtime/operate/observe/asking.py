"""Questions to a running application over its Unix socket: `edge_runtime.operate.observe.routes` from the other end."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

import orjson

from edge_runtime.base.http.framing import Stream
from edge_runtime.clock import Clock
from edge_runtime.errors import ConfigError, ConnectionFailed, InputError

_MOST_BYTES: Final = 16 * 2**20


class Asker:
    """Asks one application.

    Args:
        path: the application's socket; None where its configuration has none.
        clock: monotonic time for time-outs.
        timeout_s: longest time of an answer.

    Raises:
        ConfigError: there is no socket to ask on.
    """

    def __init__(self, path: Path | None, clock: Clock, timeout_s: float = 5.0) -> None:
        if path is None:
            raise ConfigError(
                "this application keeps no state, so it has no socket to be asked on: add [observe] with "
                'socket = "app.sock", and start it again'
            )
        self._path = path
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
            raise ConnectionFailed(f"what listens on {self._path} is no application of ours") from None
        if status != "200":
            raise InputError("refused", str(found.get("error", f"status {status}")))
        return found  # type: ignore[no-any-return]  # a JSON object

    def _fetch(self, path: str, document: Mapping[str, Any] | None) -> tuple[str, bytes]:
        """Return the status and the body of an answer."""
        body = b"" if document is None else orjson.dumps(document)
        sent = "" if document is None else f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        method = "GET" if document is None else "POST"
        head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{sent}\r\n"
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        stream = Stream(sock, self._clock)
        try:
            sock.settimeout(self._timeout_s)
            sock.connect(str(self._path))
            stream.limit_wait(self._clock.monotonic() + self._timeout_s, float("inf"))
            stream.send(head.encode("ascii"), (body,))
            answer = stream.read_head()
            return answer.start[1], bytes(stream.read_body(answer, _MOST_BYTES))
        except (FileNotFoundError, ConnectionRefusedError):
            raise ConnectionFailed(
                f"no application runs with the socket {self._path}; start it: edge-runtime run APP.toml"
            ) from None
        except PermissionError:
            raise ConnectionFailed(
                f"{self._path} belongs to another user: ask as the user that the application runs as"
            ) from None
        except OSError as error:
            raise ConnectionFailed(
                f"the application behind {self._path} did not answer: {error.strerror or error}"
            ) from None
        finally:
            stream.close()
