from __future__ import annotations

import gzip
import http.client
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urlsplit

import numpy as np
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_runtime.base.oip import JSON_LENGTH_HEADER, Array, Body, OipTensor, decode_response, encode_request
from edge_runtime.errors import ConfigError
from edge_runtime.operate.server.server import ServeConfig, Server
from tests.oip_servers import CLASSES, WINDOW, Moody, echo_model, linear_model, make_certificates, scores, windows

PATIENCE_S = 60.0
INFER = "/v2/models/linear/infer"


@pytest.fixture
def moody() -> Moody:
    return Moody()


@pytest.fixture
def serve(moody: Moody) -> Iterator[Callable[..., Server]]:
    """Starts servers, and stops them at the end of the test."""
    servers: list[Server] = []

    def start(**config: Any) -> Server:
        models = (linear_model(version="3", platform="numpy"), moody.model(), echo_model("FP32"))
        settings = ServeConfig(**{"port": 0, "drain_s": 0.5, **config})
        server = Server({model.name: model for model in models}, settings)
        server.start()
        servers.append(server)
        return server

    yield start
    for server in servers:
        server.stop()


@pytest.fixture
def server(serve: Callable[..., Server]) -> Server:
    return serve()


class Caller:
    """One connection of the standard library's client, the neutral party; closed at the end of the test."""

    made: ClassVar[list[Caller]] = []

    def __init__(self, server: Server) -> None:
        self.connection = http.client.HTTPConnection(urlsplit(server.url).netloc, timeout=PATIENCE_S)
        self.made.append(self)

    def __call__(
        self, path: str, body: bytes | None = None, method: str | None = None, **headers: str
    ) -> tuple[int, http.client.HTTPMessage, bytes]:
        fields = {name.replace("_", "-"): value for name, value in headers.items()}
        self.connection.request(method or ("GET" if body is None else "POST"), path, body, fields)
        answer = self.connection.getresponse()
        return answer.status, answer.headers, answer.read()

    def error(self, path: str, body: bytes | None = None, method: str | None = None, **headers: str) -> tuple[int, str]:
        """Status and message of an answer that must be an error in the protocol's form."""
        status, got, data = self(path, body, method, **headers)
        assert got["Content-Type"] == "application/json"
        document = orjson.loads(data)
        assert list(document) == ["error"]
        return status, document["error"]

    def post(self, body: Body, path: str = INFER, **headers: str) -> tuple[int, http.client.HTTPMessage, bytes]:
        if body.json_bytes is not None:
            headers[JSON_LENGTH_HEADER] = str(body.json_bytes)
        return self(path, body.joined(), **headers)


@pytest.fixture(autouse=True)
def _close_callers() -> Iterator[None]:
    yield
    while Caller.made:
        Caller.made.pop().connection.close()


def request(n: int = 1, *, binary: bool = True, outputs: tuple[str, ...] = ("scores",)) -> Body:
    return encode_request({"window": windows(n)}, request_id="7", outputs=outputs, binary=binary)


def raw(server: Server, data: bytes = b"") -> socket.socket:
    url = urlsplit(server.url)
    sock = socket.create_connection((url.hostname or "", url.port or 0), timeout=PATIENCE_S)
    sock.sendall(data)
    return sock


def until(condition: Callable[[], bool]) -> None:
    """Wait until something is so."""
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.005)


def read_all(sock: socket.socket) -> bytes:
    data = b""
    with suppress(ConnectionResetError):
        while more := sock.recv(65536):
            data += more
    return data


# -- the protocol ------------------------------------------------------------------------------------------------------


def test_metadata_and_health_are_those_of_the_protocol(server: Server) -> None:
    call = Caller(server)
    status, _, body = call("/v2")
    assert status == 200
    assert orjson.loads(body)["extensions"] == ["binary_tensor_data"]
    assert call("/v2/health/live")[::2] == (200, b'{"live":true}')
    assert call("/v2/health/ready")[::2] == (200, b'{"ready":true}')
    assert call("/v2/models/linear/ready")[::2] == (200, b'{"name":"linear","ready":true}')
    for path in ("/v2/models/linear", "/v2/models/linear/versions/3", "/v2/models/linear?x=1", "/v2/models/line%61r/"):
        assert orjson.loads(call(path)[2]) == {
            "name": "linear",
            "versions": ["3"],
            "platform": "numpy",
            "inputs": [{"name": "window", "datatype": "FP32", "shape": [-1, 3, 8]}],
            "outputs": [
                {"name": "scores", "datatype": "FP32", "shape": [-1, CLASSES]},
                {"name": "label", "datatype": "INT64", "shape": [-1]},
            ],
        }
    assert server.stats().connections == 1


@pytest.mark.parametrize("path", [INFER, "/v2/models/linear/versions/3/infer"])
def test_json_in_json_out(server: Server, path: str) -> None:
    status, headers, body = Caller(server).post(request(2, binary=False, outputs=()), path)
    assert (status, headers["Content-Type"], headers[JSON_LENGTH_HEADER]) == (200, "application/json", None)
    document = orjson.loads(body)
    assert (document["model_name"], document["model_version"], document["id"]) == ("linear", "3", "7")
    assert [output["name"] for output in document["outputs"]] == ["scores", "label"]
    assert document["outputs"][0]["shape"] == [2, CLASSES]
    np.testing.assert_allclose(document["outputs"][0]["data"], scores(windows(2)).ravel(), rtol=1e-5)


def test_binary_in_binary_out(server: Server) -> None:
    status, headers, body = Caller(server).post(request(3))
    assert (status, headers["Content-Type"]) == (200, "application/octet-stream")
    response = decode_response(body, int(headers[JSON_LENGTH_HEADER]))
    assert list(response.outputs) == ["scores"]
    np.testing.assert_allclose(response.outputs["scores"], scores(windows(3)), rtol=1e-6)


def test_each_output_may_choose_its_form(server: Server) -> None:
    entry = {"name": "window", "datatype": "FP32", "shape": [1, 3, 8], "data": windows(1).ravel().tolist()}
    for wanted, flag, binary in (
        ([], True, {"scores", "label"}),
        ([], False, set()),
        ([{"name": "label"}, {"name": "scores", "parameters": {"binary_data": False}}], True, {"label"}),
        ([{"name": "label", "parameters": {"binary_data": True}}, {"name": "scores"}], False, {"label"}),
    ):
        document: dict[str, Any] = {"inputs": [entry], "parameters": {"binary_data_output": flag}}
        if wanted:
            document["outputs"] = wanted
        status, headers, body = Caller(server)(INFER, orjson.dumps(document))
        assert status == 200
        length = headers[JSON_LENGTH_HEADER]
        outputs = orjson.loads(body[: None if length is None else int(length)])["outputs"]
        assert {output["name"] for output in outputs if "data" not in output} == binary
        assert len(outputs) == 2


def test_an_id_that_was_not_sent_is_not_invented(server: Server) -> None:
    document = orjson.loads(request(1, binary=False).joined())
    del document["id"]
    assert "id" not in orjson.loads(Caller(server)(INFER, orjson.dumps(document))[2])


def test_compressed_requests_are_read_and_bombs_are_not(serve: Callable[..., Server]) -> None:
    call = Caller(serve(max_request_bytes=100_000))
    body = gzip.compress(request(1, binary=False).joined())
    assert call(INFER, body, Content_Encoding="gzip")[0] == 200
    assert call.error(INFER, gzip.compress(b" " * 1_000_000), Content_Encoding="gzip")[0] == 413
    assert call.error(INFER, body, Content_Encoding="br")[0] == 415


def test_chunked_requests_are_read(server: Server) -> None:
    body = request(1, binary=False).joined()
    sock = raw(
        server, f"POST {INFER} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n".encode()
    )
    for part in (body[:10], body[10:]):
        sock.sendall(f"{len(part):x}\r\n".encode() + part + b"\r\n")
    sock.sendall(b"0\r\n\r\n")
    assert read_all(sock).startswith(b"HTTP/1.1 200 OK\r\n")
    sock.close()


def test_a_client_that_asks_first_is_told_to_go_on_or_not_to(serve: Callable[..., Server]) -> None:
    server = serve(max_request_bytes=1000)
    body = request(1, binary=False).joined()
    head = f"POST {INFER} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nExpect: 100-continue\r\nContent-Length: "
    with raw(server, f"{head}{len(body)}\r\n\r\n".encode()) as sock:
        assert sock.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        sock.sendall(body)
        assert read_all(sock).startswith(b"HTTP/1.1 200 OK\r\n")
    with raw(server, f"{head}1001\r\n\r\n".encode()) as sock:
        assert sock.recv(1000).startswith(b"HTTP/1.1 413 ")


# -- refusals ----------------------------------------------------------------------------------------------------------


def tensor(**changes: Any) -> bytes:
    entry = {"name": "window", "datatype": "FP32", "shape": [1, 3, 8], "data": [0.0] * 24, **changes}
    return orjson.dumps({"inputs": [entry]})


@pytest.mark.parametrize(
    ("path", "body", "status", "words"),
    [
        ("/", None, 404, "no such path"),
        ("/v2/models", None, 404, "no such path"),
        ("/v2/models/nobody", None, 404, "'nobody' is not served here; there is linear, moody"),
        ("/v2/models/linear/versions/4", None, 404, "has version 3, not '4'"),
        ("/v2/models/linear/explain", None, 404, "'explain'"),
        ("/v2/models/linear/versions", None, 404, "'versions'"),
        ("/v2/models/nobody/infer", b"{}", 404, "not served"),
        (INFER, None, 405, "use POST"),
        ("/v2/health/live", b"{}", 405, "use GET"),
        (INFER, b"", 400, "not JSON"),
        (INFER, b"<html>", 400, "not JSON"),
        (INFER, b"{}", 400, "'inputs'"),
        (INFER, b'{"inputs": []}', 400, "input 'window' FP32 [-1, 3, 8] is missing"),
        (INFER, tensor(name="widow"), 400, "no input 'widow'; it takes window"),
        (INFER, tensor(datatype="FP64"), 400, "not float64"),
        (INFER, tensor(shape=[3, 8]), 400, "not float32 [3, 8]"),
        (INFER, tensor(shape=[1, 3, 9], data=[0] * 27), 400, "not float32 [1, 3, 9]"),
        (INFER, tensor(shape=[0, 3, 8], data=[]), 400, "batches of 1 to 32, not 0"),
        (INFER, tensor(shape=[33, 3, 8], data=[0] * 33 * 24), 400, "batches of 1 to 32, not 33"),
        (INFER, tensor(data=[None] * 24), 400, "numbers"),
        (INFER, tensor(parameters={"shared_memory_region": "x"}, data=None), 400, "'data'"),
        (INFER, tensor()[:-1] + b',"outputs":[{"name":"logits"}]}', 400, "no output 'logits'"),
        (INFER, b"x" * 200_001, 413, "over the limit of 90112 bytes"),
        ("/v2/models/nobody/infer", b"x" * 70_000, 413, "over the limit of 65536 bytes"),
    ],
)
def test_wrong_requests_get_the_right_status_and_a_reason(
    serve: Callable[..., Server], path: str, body: bytes | None, status: int, words: str
) -> None:
    call = Caller(serve(max_request_bytes=200_000))
    got, message = call.error(path, body)
    assert got == status
    assert words in message
    assert call("/v2/health/live")[0] == 200  # the same connection, or a new one: the server goes on


@given(st.binary(max_size=300), st.sampled_from([b"", b"GET /v2 HTTP/1.1\r\n", b"POST " + INFER.encode()]))
@settings(derandomize=True, max_examples=60, deadline=None)
def test_arbitrary_bytes_never_stop_the_server(data: bytes, prefix: bytes) -> None:
    with raw(FUZZED, prefix + data) as sock:
        sock.shutdown(socket.SHUT_WR)
        answer = read_all(sock)
    assert answer == b"" or answer.startswith(b"HTTP/1.1 ")
    assert Caller(FUZZED)("/v2/health/live")[0] == 200


FUZZED = Server({"linear": linear_model()}, ServeConfig(port=0))


@pytest.fixture(scope="module", autouse=True)
def _fuzzed() -> Iterator[None]:
    with FUZZED:
        yield


def test_a_failing_model_is_a_500_and_the_server_goes_on(server: Server, moody: Moody) -> None:
    def fail(_: Array) -> Array:
        raise MemoryError

    moody.behave = fail
    call = Caller(server)
    body = request(1, outputs=())
    status, _, text = call.post(body, "/v2/models/moody/infer")
    assert (status, orjson.loads(text)["error"]) == (500, "model 'moody' failed: MemoryError")
    moody.behave = scores
    assert call.post(body, "/v2/models/moody/infer")[0] == 200
    assert server.stats().model_failures == 1


def test_what_json_cannot_carry_is_said_and_bytes_carry_it(server: Server) -> None:
    body = encode_request({"x": np.array([[np.nan]], np.float32)}, request_id="1", binary=True)
    call = Caller(server)
    assert call.post(body, "/v2/models/echo_FP32/infer")[0] == 200
    head = orjson.loads(body.parts[0])
    del head["parameters"]
    text = orjson.dumps(head)
    status, message = call.error(
        "/v2/models/echo_FP32/infer", text + bytes(body.parts[1]), **{JSON_LENGTH_HEADER: str(len(text))}
    )
    assert status == 500
    assert "ask for binary data" in message


# -- load --------------------------------------------------------------------------------------------------------------


def test_callers_are_batched_together(serve: Callable[..., Server]) -> None:
    server = serve(max_queue_delay_ms=100)
    statuses: list[int] = []

    def ask() -> None:
        statuses.append(Caller(server).post(request(4))[0])

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert statuses == [200] * 8
    stats = server.stats()
    assert stats.windows == 32
    assert stats.batches < 8
    assert stats.answers == {200: 8}


def stopped_dawdling(moody: Moody) -> tuple[threading.Event, threading.Event]:
    """Make the model wait; events: a request is with it, and it may go on."""
    entered, go = threading.Event(), threading.Event()

    def hold(x: Array) -> Array:
        entered.set()
        go.wait(PATIENCE_S)
        return scores(x)

    moody.behave = hold
    return entered, go


def test_a_full_queue_is_a_503_with_retry_after(serve: Callable[..., Server], moody: Moody) -> None:
    server = serve(max_queue_windows=1, retry_after_s=7)
    entered, go = stopped_dawdling(moody)
    body = request(1, outputs=())
    threads = [threading.Thread(target=lambda: Caller(server).post(body, "/v2/models/moody/infer")) for _ in range(2)]
    threads[0].start()
    assert entered.wait(PATIENCE_S)
    threads[1].start()
    until(lambda: bool(server._batchers["moody"]._queue))
    status, headers, _ = Caller(server).post(body, "/v2/models/moody/infer")
    assert (status, headers["Retry-After"]) == (503, "7")
    go.set()
    for thread in threads:
        thread.join()


def test_a_newcomer_takes_the_place_of_who_has_waited_longest(serve: Callable[..., Server]) -> None:
    server = serve(max_connections=3)
    first, second = Caller(server), Caller(server)
    assert first("/v2")[0] == second("/v2")[0] == 200
    with raw(server) as silent:  # it has asked nothing yet, so it goes before those who have
        until(lambda: server.stats().connections == 3)
        assert Caller(server)("/v2")[0] == 200
        assert read_all(silent) == b""
    assert second("/v2")[0] == 200
    assert Caller(server)("/v2")[0] == 200  # now the first one, which has been idle for the longest time
    assert second("/v2")[0] == 200
    with pytest.raises((ConnectionError, http.client.HTTPException)):
        first("/v2")
    assert server.stats().evicted_connections == 2
    assert server.stats().refused_connections == 0


def test_no_caller_is_cut_off_for_a_newcomer_while_being_answered(serve: Callable[..., Server], moody: Moody) -> None:
    server = serve(max_connections=1, drain_s=PATIENCE_S)
    entered, go = stopped_dawdling(moody)
    got: list[int] = []
    body = request(1, outputs=())
    thread = threading.Thread(target=lambda: got.append(Caller(server).post(body, "/v2/models/moody/infer")[0]))
    thread.start()
    assert entered.wait(PATIENCE_S)
    with raw(server) as sock:
        assert read_all(sock).startswith(b"HTTP/1.1 503 ")
    go.set()
    thread.join()
    assert got == [200]
    assert server.stats().refused_connections == 1


def test_an_address_has_its_share_of_connections(serve: Callable[..., Server]) -> None:
    server = serve(max_connections_per_address=2)
    first, second = Caller(server), Caller(server)
    assert first("/v2")[0] == second("/v2")[0] == 200
    with raw(server) as sock:
        answer = read_all(sock)
    assert answer.startswith(b"HTTP/1.1 503 ")
    assert b"from this address" in answer
    first.connection.close()
    until(lambda: server.stats().connections < 2)
    assert Caller(server)("/v2")[0] == 200


def test_requests_that_are_received_share_a_bounded_memory(serve: Callable[..., Server]) -> None:
    server = serve(max_received_bytes=200_000)
    head = f"POST {INFER} HTTP/1.1\r\nHost: x\r\nContent-Length: 90000\r\n\r\n".encode()
    slow = [raw(server, head + b" " * 50_000) for _ in range(8)]
    until(lambda: server.stats().evicted_connections >= 5)
    assert server.stats().connections <= 3
    assert Caller(server).post(request(32))[0] == 200  # a quick caller is not denied
    for sock in slow:
        sock.close()
    until(lambda: server.stats().connections == 1)
    for _ in range(5):  # and what they held is given back
        assert Caller(server).post(request(32))[0] == 200
    assert server.stats().evicted_connections <= 6


def test_a_caller_that_drips_its_headers_is_cut_off(serve: Callable[..., Server]) -> None:
    server = serve(header_timeout_s=0.3)
    with raw(server) as sock:
        answer = b""
        sock.settimeout(0.05)
        for byte in b"GET /v2 HTTP/1.1\r\nX-Slow: " + b"x" * 1000:
            with suppress(TimeoutError, OSError):
                sock.sendall(bytes([byte]))
                answer += sock.recv(1000)
            if answer:
                break
    assert answer.startswith(b"HTTP/1.1 408 ")


def test_a_caller_that_drips_its_body_is_cut_off(serve: Callable[..., Server]) -> None:
    server = serve(request_timeout_s=0.3)
    begin = time.monotonic()
    with raw(server, f"POST {INFER} HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n".encode()) as sock:
        answer = b""
        sock.settimeout(0.05)
        while not answer and time.monotonic() - begin < PATIENCE_S:
            with suppress(TimeoutError, OSError):
                sock.sendall(b" ")
                answer += sock.recv(1000)
    assert answer.startswith(b"HTTP/1.1 408 ")


def test_an_idle_connection_is_closed(serve: Callable[..., Server]) -> None:
    server = serve(idle_timeout_s=0.1)
    with raw(server, b"GET /v2 HTTP/1.1\r\nHost: x\r\n\r\n") as sock:
        assert read_all(sock).startswith(b"HTTP/1.1 200 ")
    until(lambda: server.stats().connections == 0)
    assert server.stats().dropped_connections == 0


def test_who_connects_and_says_nothing_has_the_time_of_the_headers(serve: Callable[..., Server]) -> None:
    server = serve(header_timeout_s=0.1, idle_timeout_s=3600)
    with raw(server) as sock:
        assert read_all(sock) == b""
    until(lambda: server.stats().connections == 0)
    assert server.stats().dropped_connections == 1


def test_an_answer_that_is_not_read_is_given_up(serve: Callable[..., Server], moody: Moody) -> None:
    server = serve(request_timeout_s=0.2)
    moody.behave = lambda _: np.zeros((1, 4_000_000), np.float32)  # more than the system's buffers take
    body = request(1, outputs=())
    head = f"POST /v2/models/moody/infer HTTP/1.1\r\nHost: x\r\n{JSON_LENGTH_HEADER}: {body.json_bytes}\r\n"
    with raw(server) as sock:
        sock.sendall(f"{head}Content-Length: {sum(map(len, body.parts))}\r\n\r\n".encode() + body.joined())
        until(lambda: server.stats().dropped_connections == 1)
    assert server.stats().answers == {200: 1}


def test_a_model_that_takes_too_long_is_a_503(serve: Callable[..., Server], moody: Moody) -> None:
    server = serve(queue_timeout_s=0.1, retry_after_s=7)
    entered, go = stopped_dawdling(moody)
    call = Caller(server)
    status, headers, _ = call.post(request(1, outputs=()), "/v2/models/moody/infer")
    assert (status, headers["Retry-After"]) == (503, "7")
    assert entered.is_set()
    assert call("/v2")[0] == 200  # the connection goes on, and so do the other models
    assert call.post(request(1))[0] == 200
    go.set()


def test_the_next_request_waits_while_one_is_answered(serve: Callable[..., Server], moody: Moody) -> None:
    """Pipelining: however much follows, one request of a connection is worked on at a time, and none is lost."""
    server = serve(drain_s=PATIENCE_S)
    entered, go = stopped_dawdling(moody)
    body = request(1, binary=False, outputs=()).joined()
    asks = f"POST /v2/models/moody/infer HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body
    with raw(server, asks) as sock:
        assert entered.wait(PATIENCE_S)
        sock.sendall(asks * 9)
        sock.shutdown(socket.SHUT_WR)
        go.set()
        answer = read_all(sock)
    assert answer.count(b"HTTP/1.1 200 OK") == 10
    assert server.stats().answers == {200: 10}


def test_http_1_0_closes_unless_asked_to_stay(server: Server) -> None:
    with raw(server, b"GET /v2 HTTP/1.0\r\n\r\n") as sock:
        assert b"Connection: close" in read_all(sock)
    with raw(server, b"GET /v2 HTTP/1.0\r\nConnection: keep-alive\r\n\r\n") as sock:
        assert b"Connection: keep-alive" in sock.recv(1000)
        sock.sendall(b"GET /v2 HTTP/1.0\r\n\r\n")
        assert b"Connection: close" in read_all(sock)


# -- life --------------------------------------------------------------------------------------------------------------


def test_stop_lets_requests_finish_and_closes_idle_connections(serve: Callable[..., Server], moody: Moody) -> None:
    server = serve(drain_s=5)
    entered = threading.Event()

    def dawdle(x: Array) -> Array:
        entered.set()
        time.sleep(0.3)
        return scores(x)

    moody.behave = dawdle
    got: list[tuple[int, Any]] = []

    def ask() -> None:
        status, headers, _ = Caller(server).post(request(1, outputs=()), "/v2/models/moody/infer")
        got.append((status, headers["Connection"]))

    thread = threading.Thread(target=ask)
    with raw(server) as idle:
        thread.start()
        assert entered.wait(5)
        begin = time.monotonic()
        assert server.stop()
        assert 0.1 < time.monotonic() - begin < 2
        assert idle.recv(1) == b""
    thread.join()
    assert got == [(200, "close")]
    assert server.stats().connections == 0
    assert server.stop()


def test_stop_cuts_off_what_does_not_finish_in_time(serve: Callable[..., Server], moody: Moody) -> None:
    server = serve()
    entered, go = threading.Event(), threading.Event()

    def stuck(x: Array) -> Array:
        entered.set()
        go.wait(10)
        return scores(x)

    moody.behave = stuck
    with raw(server) as sock:
        body = request(1, binary=False, outputs=()).joined()
        head = f"POST /v2/models/moody/infer HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
        sock.sendall(head.encode() + body)
        assert entered.wait(5)
        begin = time.monotonic()
        assert not server.stop(0.2)
        assert time.monotonic() - begin < 3
        assert read_all(sock) == b""
    go.set()


def test_a_stopped_server_can_be_started_again(server: Server) -> None:
    assert server.stop()
    with pytest.raises(ConfigError, match="not started"):
        _ = server.url
    server.start()
    assert Caller(server).post(request(1))[0] == 200


def test_a_taken_port_is_an_error_of_configuration(server: Server) -> None:
    port = urlsplit(server.url).port
    other = Server({"linear": linear_model()}, ServeConfig(port=port or 0))
    with pytest.raises(
        ConfigError, match=f"cannot listen on 127.0.0.1:{port}: another program listens there; choose another port"
    ):
        other.start()
    with pytest.raises(ConfigError, match="no-such-host"):
        Server({"linear": linear_model()}, ServeConfig(host="no-such-host.invalid")).start()
    with pytest.raises(ConfigError, match="no model"):
        Server({})


def test_it_listens_on_the_loopback_address_unless_told_otherwise(server: Server) -> None:
    assert server.url.startswith("http://127.0.0.1:")
    with Server({"linear": linear_model()}, ServeConfig(host="::1", port=0)) as other:
        assert other.url.startswith("http://[::1]:")
        assert Caller(other)("/v2")[0] == 200


@pytest.mark.parametrize(
    "changes",
    [
        {"port": 70_000},
        {"max_connections": 0},
        {"max_connections_per_address": 0},
        {"max_received_bytes": 0},
        {"max_queue_windows": 0},
        {"header_timeout_s": 0},
        {"max_queue_delay_ms": -1},
        {"key_file": Path("key")},
    ],
)
def test_configuration_that_makes_no_sense_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(changes)) if "timeout" not in str(changes) else "time-outs"):
        ServeConfig(**changes)


# -- access ------------------------------------------------------------------------------------------------------------


def test_a_caller_without_tls_or_with_a_slow_handshake_does_not_stop_https(
    serve: Callable[..., Server], tmp_path: Path
) -> None:
    certificates = make_certificates(tmp_path)
    server = serve(cert_file=certificates.server, key_file=certificates.server_key, header_timeout_s=0.2)
    assert server.url.startswith("https://")
    with raw(server, b"GET /v2 HTTP/1.1\r\n\r\n") as sock:
        assert not read_all(sock).startswith(b"HTTP/1.1 2")
    with raw(server) as sock:
        assert read_all(sock) == b""
    until(lambda: server.stats().dropped_connections == 2)


def test_large_requests_and_answers_pass_through_tls_in_both_directions(
    serve: Callable[..., Server], tmp_path: Path
) -> None:
    """More than the system's buffers and many records of TLS, several times on one connection."""
    certificates = make_certificates(tmp_path)
    server = serve(cert_file=certificates.server, key_file=certificates.server_key)
    x = np.random.default_rng(0).normal(size=(500, 4000)).astype(np.float32)
    body = encode_request({"x": x}, request_id="1", binary=True)
    context = ssl.create_default_context(cafile=certificates.ca)
    connection = http.client.HTTPSConnection(
        "localhost", urlsplit(server.url).port, timeout=PATIENCE_S, context=context
    )
    with closing(connection):
        for _ in range(3):
            headers = {JSON_LENGTH_HEADER: str(body.json_bytes)}
            connection.request("POST", "/v2/models/echo_FP32/infer", body.joined(), headers)
            answer = connection.getresponse()
            response = decode_response(answer.read(), int(answer.headers[JSON_LENGTH_HEADER]))
            np.testing.assert_array_equal(response.outputs["y"], x)
    assert server.stats().answers == {200: 3}


def test_batches_of_several_inputs_must_be_even(serve: Callable[..., Server]) -> None:
    model = linear_model(
        inputs=(WINDOW, OipTensor("rate", "FP32", (-1,))),
        outputs=(OipTensor("scores", "FP32", (-1, CLASSES)),),
        predict=lambda x: {"scores": scores(x["window"]) * x["rate"][:, None]},
    )
    with Server({"linear": model}, ServeConfig(port=0)) as server:
        call = Caller(server)
        for n, status in ((2, 200), (3, 400)):
            inputs = {"window": windows(2), "rate": np.ones(n, np.float32)}
            assert call.post(encode_request(inputs, request_id="1", binary=True))[0] == status
