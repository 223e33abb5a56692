"""A cloud whose right answer to a window is known, and one that answers whatever the test wants for a while."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np

from edge_runtime.base.oip import Array, OipTensor
from edge_runtime.operate.server.batcher import ServedModel
from edge_runtime.operate.server.server import ServeConfig, Server
from tests.integration.running import Answer, Floats, Stream

CHANNELS, LABELS = 3, ("rest", "walk", "run")


def softmax(x: Floats) -> Floats:
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return np.asarray(e / e.sum(axis=-1, keepdims=True), np.float32)


def teacher() -> ServedModel:
    """Its answer is the softmax of the newest sample: every answer can be told from the readings.

    It takes windows of any length, as they are at the start of a stream.
    """

    def predict(inputs: dict[str, Array]) -> dict[str, Array]:
        return {"p": softmax(inputs["x"][:, :, -1])}

    return ServedModel(
        name="teacher",
        inputs=(OipTensor("x", "FP32", (-1, CHANNELS, -1)),),
        outputs=(OipTensor("p", "FP32", (-1, len(LABELS))),),
        predict=predict,
    )


def serving(port: int = 0) -> Server:
    """The teacher behind our own server, on a port that it can come back to."""
    return Server({"teacher": teacher()}, ServeConfig(port=port, drain_s=1.0))


def assert_right(correction: Answer, streams: Sequence[Stream], rate_hz: float = 50.0) -> None:
    """It is the teacher's answer to exactly this window."""
    (stream,) = [stream for stream in streams if stream.key == correction["key"]]
    newest = int(np.abs(stream.t - (correction["end"] - 1 / rate_hz)).argmin())
    expected = softmax(stream.values[newest])
    assert np.abs(np.array(correction["scores"]) - expected).max() < 1e-6, correction["id"]
    assert correction["label"] == LABELS[int(expected.argmax())]
    assert correction["model"] == "teacher/1"


Nonsense = Callable[[BaseHTTPRequestHandler], None]


class Gateway:
    """Stands before a real server: passes requests on, or answers them with the nonsense of the day."""

    def __init__(self, port: int) -> None:
        self.nonsense: Nonsense | None = None
        self.nonsense_given = 0
        self.only_posts = False
        """Nonsense is for questions only; who asks whether the model is there and ready hears the truth."""
        gateway = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            timeout = 30.0

            def handle_one_request(self) -> None:
                with suppress(ConnectionError, ValueError):  # the client may leave whenever it likes
                    super().handle_one_request()

            def do_GET(self) -> None:
                self._answer()

            def do_POST(self) -> None:
                self._answer()

            def _answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                nonsense = gateway.nonsense
                if nonsense is not None and (self.command == "POST" or not gateway.only_posts):
                    gateway.nonsense_given += 1
                    nonsense(self)
                    return
                onward = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
                onward.request(self.command, self.path, body, dict(self.headers))
                answer = onward.getresponse()
                content = answer.read()
                onward.close()
                self.send_response(answer.status)
                for name, value in answer.getheaders():
                    if name.lower() not in {"connection", "transfer-encoding", "server", "date"}:
                        self.send_header(name, value)
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    @contextmanager
    def open(self) -> Iterator[Gateway]:
        thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            self._server.server_close()
            thread.join()


def plain(status: int, body: bytes, **headers: str) -> Nonsense:
    """A complete answer with this body."""

    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        for name, value in ({"Content-Length": str(len(body))} | headers).items():
            handler.send_header(name.replace("_", "-"), value)
        handler.end_headers()
        handler.wfile.write(body)

    return answer


def raw(data: bytes) -> Nonsense:
    """Bytes as they are, and then the end of the connection."""

    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.wfile.write(data)
        handler.close_connection = True

    return answer
