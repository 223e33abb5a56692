"""What the server answers, without a socket; `test_serve` asks the same over HTTP."""

from __future__ import annotations

import json

import numpy as np
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_runtime.base.http.parser import Head
from edge_runtime.base.oip import Body, OipTensor
from edge_runtime.base.system.secrets import SecretFile
from edge_runtime.clock import SystemClock
from edge_runtime.errors import InputError
from edge_runtime.operate.server.batcher import Batcher
from edge_runtime.operate.server.routes import router_of
from edge_runtime.operate.serving.answers import Refused, Reply
from edge_runtime.operate.serving.router import HttpRouter
from tests.oip_servers import linear_model


def made(token: SecretFile | None = None) -> HttpRouter:
    model = linear_model()
    batcher = Batcher(model, SystemClock())
    return router_of({model.name: batcher}, token=token, max_request_bytes=2**20, retry_after_s=7)


def head(path: str, method: str = "GET", **headers: str) -> Head:
    return Head((method, path, "HTTP/1.1"), {name.replace("_", "-"): value for name, value in headers.items()})


def ask(routes: HttpRouter, head: Head, body: bytes = b"", *, ready: bool = True) -> Reply:
    """What the caller of a request without inference gets."""
    try:
        reply = routes.answer(head, body, ready=ready)
    except (Refused, InputError) as error:
        return routes.refusal(error)
    assert isinstance(reply, Reply)
    return reply


def document(reply: Reply) -> dict[str, object]:
    assert reply.body.json_bytes is None
    answer = orjson.loads(reply.body.joined())
    assert isinstance(answer, dict)
    return answer


INFER = "/v2/models/linear/infer"
PIECES = ["v2", "models", "linear", "nobody", "versions", "1", "infer", "ready", "health", "live", "%2F", "", "?x=/y"]


@given(
    path=st.lists(st.sampled_from(PIECES), max_size=6).map("/".join) | st.text(max_size=20),
    form=st.sampled_from(["/", "http://h/", "HTTPS://h:1/", "http://u@h/", "", "*", "h:1"]),
    method=st.sampled_from(["GET", "HEAD", "POST", "PUT", "OPTIONS", "CONNECT"]),
    body=st.sampled_from([b"", b"{}", b'{"inputs":[]}', b"\xff"]),
    ready=st.booleans(),
)
@settings(deadline=None, derandomize=True)
def test_every_request_has_an_answer(path: str, form: str, method: str, body: bytes, ready: bool) -> None:
    reply = ask(made(), head(f"{form}{path}", method), body, ready=ready)
    assert reply.status in {200, 400, 404, 405, 501, 503}
    assert (reply.status >= 400) == ("error" in (said := document(reply))) or said in (
        {"ready": False}, {"name": "linear", "ready": False},
    )  # fmt: skip
    assert reply.head().endswith(b"\r\n\r\n")


@pytest.mark.parametrize("path", ["/v2/health/ready", "/v2/models/linear/ready", "/v2/models/linear/versions/1/ready"])
def test_who_asks_whether_it_is_ready_is_told(path: str) -> None:
    assert ask(made(), head(path)).status == 200
    reply = ask(made(), head(path), ready=False)
    assert reply.status == 503
    assert document(reply)["ready"] is False


def test_the_head_of_an_answer_says_how_long_it_is_and_when_to_come_back() -> None:
    reply = made().error(503, "full", retry=True)
    assert reply.head("Connection: close\r\n") == (
        b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nRetry-After: 7\r\n"
        b"Connection: close\r\nContent-Length: 16\r\n\r\n"
    )
    assert b"Content-Length: 3\r\n" in Reply(200, Body((b"{", b"}\n"))).head()


@pytest.mark.parametrize(
    ("method", "target", "status"),
    [
        ("GET", "/v2/health/live?x=1", 200),
        ("GET", "http://elsewhere/v2/health/live", 200),
        ("GET", "HTTP://elsewhere:80/v2/health/live?x=http://y", 200),
        ("GET", "http://[::1]:80/v2/health/live", 200),
        ("GET", "http://elsewhere", 404),
        ("GET", "http://elsewhere?x", 404),
        ("GET", "http:///v2/health/live", 400),
        ("GET", "http://user@elsewhere/v2/health/live", 400),
        ("GET", "ftp://elsewhere/v2/health/live", 400),
        ("GET", "elsewhere:80", 400),
        ("GET", "v2/health/live", 400),
        ("GET", "*", 400),
        ("GET", "/v2/health/live#x", 400),
        ("OPTIONS", "*", 501),
        ("OPTIONS", "/v2/health/live", 405),
        ("CONNECT", "elsewhere:80", 501),
    ],
)
def test_each_form_of_a_request_target_is_routed_or_refused(method: str, target: str, status: int) -> None:
    assert ask(made(), head(target, method)).status == status


def test_a_body_may_be_as_long_as_the_model_can_use() -> None:
    """The largest request in the wordiest JSON fits; much more does not, and other paths take next to nothing."""
    routes = made()
    largest = np.full((32, 3, 8), -1.2345678e-38, np.float32)
    tensor = {"name": "window", "datatype": "FP32", "shape": [32, 3, 8], "data": largest.astype(float).tolist()}
    body = json.dumps({"id": "x" * 100, "inputs": [tensor]}).encode()
    limit = routes.body_limit(head(INFER, "POST"))
    assert len(body) <= limit <= 2**17
    assert routes.body_limit(head("/v2/models/linear/versions/1/infer", "POST")) == limit
    for path in ("/v2", "/v2/models/nobody/infer", "/", "*"):
        assert routes.body_limit(head(path, "POST")) <= 2**16
    for known, expected in ((None, 2**20), (24, limit)):
        open_axis = linear_model(inputs=(OipTensor("window", "FP32", (-1, 3, -1)),), max_numbers=known)
        batchers = {"open": Batcher(open_axis, SystemClock())}
        routes = router_of(batchers, token=None, max_request_bytes=2**20, retry_after_s=7)
        assert routes.body_limit(head("/v2/models/open/infer", "POST")) == expected
