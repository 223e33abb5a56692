"""A small web server for one file, which can be told to misbehave."""

from __future__ import annotations

import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class FileServer:
    """Serves `data` at `url`.

    Args:
        data: the file.
        ranges: whether it understands range requests.
    """

    def __init__(self, data: bytes, *, ranges: bool = True) -> None:
        self.data = data
        self.ranges = ranges
        self.status = 200
        self.headers: dict[str, str] = {}
        self.cut_after = -1
        """Close the connection after so many bytes of a body; -1: never."""
        self.requests: list[dict[str, str]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer._answer(self)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/new.edge"

    def _answer(self, handler: BaseHTTPRequestHandler) -> None:
        self.requests.append(dict(handler.headers.items()))
        if self.status != 200:
            handler.send_response(self.status)
            for name, value in self.headers.items():
                handler.send_header(name, value)
            handler.send_header("Content-Length", "0")
            handler.end_headers()
            return
        body, wanted = self.data, handler.headers.get("Range", "")
        if self.ranges and wanted.startswith("bytes="):
            first, _, last = wanted.removeprefix("bytes=").partition("-")
            if int(first) >= len(self.data):
                handler.send_response(416)
                handler.send_header("Content-Length", "0")
                handler.end_headers()
                return
            body = self.data[int(first) : int(last) + 1]
            handler.send_response(206)
            handler.send_header("Content-Range", f"bytes {first}-{int(first) + len(body) - 1}/{len(self.data)}")
        else:
            handler.send_response(200)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        if self.cut_after >= 0:
            body = body[: self.cut_after]
            handler.close_connection = True
        with suppress(ConnectionError):  # whoever asked has gone
            handler.wfile.write(body)

    def __enter__(self) -> FileServer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
