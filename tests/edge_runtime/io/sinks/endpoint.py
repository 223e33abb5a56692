"""An HTTP endpoint that answers as it is told."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import orjson

Reply = tuple[int, dict[str, str], bytes]


OK: Reply = (200, {}, b"thanks")


class Endpoint:
    """An HTTP server that answers as it is told, and remembers what it was sent."""

    def __init__(self) -> None:
        self.replies: deque[Reply | Callable[[BaseHTTPRequestHandler, bytes], None]] = deque()
        self.judge: Callable[[Any], Reply] = lambda _: OK
        self.requests: list[tuple[dict[str, str], Any]] = []
        self.connections = 0
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self) -> None:
                endpoint.connections += 1
                super().setup()

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                document = orjson.loads(body)
                headers = {name.lower(): value for name, value in self.headers.items()}
                endpoint.requests.append((headers | {"path": self.path}, document))
                reply = endpoint.replies.popleft() if endpoint.replies else endpoint.judge(document)
                if callable(reply):
                    reply(self, body)
                    return
                status, more, text = reply
                self.send_response(status)
                for name, value in more.items():
                    self.send_header(name, value)
                if status != 204:
                    self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/hook?x=1"
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.02,))
        self.thread.start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()

    def ids(self) -> list[str]:
        return [answer["id"] for _, body in self.requests for answer in (body if isinstance(body, list) else [body])]
