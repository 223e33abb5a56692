"""What the server answers, without a socket; `test_serve` asks the same over HTTP."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_runtime.clock import SystemClock
from edge_runtime.credentials import SecretFile
from edge_runtime.http1 import Head
from edge_runtime.oip import JSON_LENGTH_HEADER, Body, decode_response, encode_request
from edge_runtime.serve_batch import Batcher
from edge_runtime.serve_routes import Reply, Routes
from tests.oip_servers import linear_model, scores, windows


def made(token: SecretFile | None = None) -> Routes:
    model = linear_model()
    batcher = Batcher(model, SystemClock(), max_queue_delay_s=0, max_queue_rows=8, queue_timeout_s=10)
    return Routes({model.name: batcher}, token=token, max_request_bytes=2**20, retry_after_s=7)


def head(path: str, method: str = "GET", **headers: str) -> Head:
    return Head((method, path, "HTTP/1.1"), {name.replace("_", "-"): value for name, value in headers.items()})


def document(reply: Reply) -> dict[str, object]:
    assert reply.body.json_bytes is None
    answer = orjson.loads(reply.body.joined())
    assert isinstance(answer, dict)
    return answer


PIECES = ["v2", "models", "linear", "nobody", "versions", "1", "infer", "ready", "health", "live", "%2F", "", "?x=/y"]


@given(
    path=st.lists(st.sampled_from(PIECES), max_size=6).map("/".join) | st.text(max_size=20),
    method=st.sampled_from(["GET", "HEAD", "POST", "PUT"]),
    body=st.sampled_from([b"", b"{}", b'{"inputs":[]}', b"\xff"]),
    ready=st.booleans(),
)
@settings(deadline=None, derandomize=True)
def test_every_request_has_an_answer(path: str, method: str, body: bytes, ready: bool) -> None:
    reply = made().answer(head(f"/{path}", method), body, ready=ready)
    assert reply.status in {200, 400, 404, 405, 503}
    assert (reply.status >= 400) == ("error" in (said := document(reply))) or said in (
        {"ready": False}, {"name": "linear", "ready": False},
    )  # fmt: skip
    assert reply.head().endswith(b"\r\n\r\n")


@pytest.mark.parametrize("path", ["/v2/health/ready", "/v2/models/linear/ready", "/v2/models/linear/versions/1/ready"])
def test_who_asks_whether_it_is_ready_is_told(path: str) -> None:
    assert made().answer(head(path), b"", ready=True).status == 200
    reply = made().answer(head(path), b"", ready=False)
    assert reply.status == 503
    assert document(reply)["ready"] is False


def test_an_inference_is_answered_as_it_was_asked_for() -> None:
    request = encode_request({"window": windows(2)}, request_id="7", binary=True)
    headers = {JSON_LENGTH_HEADER.lower(): str(request.json_bytes)}
    reply = made().answer(Head(("POST", "/v2/models/linear/infer", "HTTP/1.1"), headers), request.joined(), ready=True)
    answer = decode_response(reply.body.joined(), reply.body.json_bytes)
    assert reply.status == 200
    assert answer.id == "7"
    assert (answer.outputs["scores"] == scores(windows(2))).all()
    assert f"{JSON_LENGTH_HEADER}: {reply.body.json_bytes}\r\n".encode() in reply.head()


def test_a_token_opens_everything_and_health_needs_none(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("secret\n")
    routes = made(SecretFile(tmp_path / "token", "token_file"))
    assert routes.unauthorized(head("/v2/models/linear", authorization="Bearer secret")) is None
    assert routes.unauthorized(head("/v2/health/live")) is None
    for told in ({}, {"authorization": "Bearer other"}, {"authorization": "Basic secret"}):
        reply = routes.unauthorized(head("/v2/models/linear", **told))
        assert reply is not None
        assert reply.status == 401
        assert b"WWW-Authenticate: Bearer" in reply.head()


def test_the_head_of_an_answer_says_how_long_it_is_and_when_to_come_back() -> None:
    reply = made().error(503, "full", retry=True)
    assert reply.head("Connection: close\r\n") == (
        b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nRetry-After: 7\r\n"
        b"Connection: close\r\nContent-Length: 16\r\n\r\n"
    )
    assert b"Content-Length: 3\r\n" in Reply(200, Body((b"{", b"}\n"))).head()
