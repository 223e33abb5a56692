"""Contract of every server of ours: the models', a running application's page, and the page of all workers."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from edge_runtime.app.workers.site import WorkersSite
from edge_runtime.clock import SystemClock
from edge_runtime.metrics import Metrics
from edge_runtime.operate.observe.config import ObserveConfig
from edge_runtime.operate.server.server import ServeConfig, Server
from tests.edge_runtime.operate.observe.looking import running
from tests.mosquitto import free_port
from tests.oip_servers import linear_model

PATIENCE_S = 60.0
TOKEN = "s3cret; %"


class Served(NamedTuple):
    """A server that listens, and paths of it."""

    port: int
    token: Path
    open: str
    """Needs no token."""
    guarded: str
    posted: str
    """Takes a POST, with the token."""
    page: bool
    """Is a page for browsers."""


@contextmanager
def _models(folder: Path) -> Iterator[Served]:
    with Server({"linear": linear_model()}, ServeConfig(port=0, token_file=folder / "token")) as server:
        port = int(server.url.rpartition(":")[2])
        yield Served(port, folder / "token", "/v2/health/live", "/v2", "/v2/models/linear/infer", page=False)


@contextmanager
def _application(folder: Path) -> Iterator[Served]:
    with running(folder, '[observe]\nlisten = "127.0.0.1:0"\ntoken_file = "token"') as (app, _):
        assert app.observation is not None
        yield Served(app.observation.address[1], folder / "token", "/", "/metrics", "/api/reset", page=True)


@contextmanager
def _workers(folder: Path) -> Iterator[Served]:
    config = ObserveConfig(listen=f"127.0.0.1:{free_port()}", token_file=folder / "token")
    site = WorkersSite(config, None, [], {}, clock=SystemClock(), metrics=Metrics(), name="app")
    try:
        port = int(config.listen.rpartition(":")[2])
        yield Served(port, folder / "token", "/", "/metrics", "/api/reset", page=True)
    finally:
        site.close()


SERVERS = {"models": _models, "application": _application, "workers": _workers}


@pytest.fixture(params=SERVERS)
def served(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Served]:
    (tmp_path / "token").write_text(TOKEN)
    with SERVERS[request.param](tmp_path) as served:
        yield served


def connected(served: Served, data: bytes) -> socket.socket:
    sock = socket.create_connection(("127.0.0.1", served.port), timeout=PATIENCE_S)
    sock.sendall(data)
    return sock


def answers(served: Served, data: bytes) -> list[bytes]:
    """What comes back for these bytes, by answer, when nothing follows them."""
    with connected(served, data) as sock:
        sock.shutdown(socket.SHUT_WR)
        got = b""
        while more := sock.recv(65536):
            got += more
    first, *rest = re.split(rb"HTTP/1\.1 (?=[0-9]{3} )", got)
    assert first == b""
    return rest


def head(path: str, method: str = "GET", token: str = TOKEN, **headers: str) -> bytes:
    """A request without a body."""
    fields = {"Host": "localhost", "Authorization": f"Bearer {token}", **headers}
    lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in fields.items() if value)
    return f"{method} {path} HTTP/1.1\r\n{lines}\r\n".encode()


def status(served: Served, data: bytes) -> int:
    (answer,) = answers(served, data)
    assert b"\r\nContent-Length: " in answer
    return int(answer[:3])


def test_a_connection_takes_one_request_after_another_and_a_head_has_no_body(served: Served) -> None:
    full, bare, last = answers(
        served, head(served.open) + head(served.open, "HEAD") + head(served.guarded, Connection="close")
    )
    assert [full[:3], bare[:3], last[:3]] == [b"200", b"200", b"200"]
    assert bare.endswith(b"\r\n\r\n")
    assert full.startswith(bare)
    assert b"Connection: close" not in full + bare
    assert b"\r\nConnection: close\r\n" in last


def test_a_path_without_a_route_and_another_method_are_refused_with_what_is_there(served: Served) -> None:
    (answer,) = answers(served, head("/nothing/here"))
    assert answer.startswith(b"404 ")
    assert b'{"error":"no such path; ' in answer
    for path, method, allowed in ((served.open, "DELETE", b"GET, HEAD"), (served.posted, "GET", b"POST")):
        (answer,) = answers(served, head(path, method))
        assert answer.startswith(b"405 ")
        assert b"\r\nAllow: " + allowed + b"\r\n" in answer


def test_the_token_opens_all_and_counts_as_it_is_in_its_file(served: Served) -> None:
    assert status(served, head(served.open, token="")) == 200
    for sent in ("", "Bearer wrong", f"Basic {TOKEN}", TOKEN):
        for path, method in ((served.guarded, "GET"), (served.posted, "POST"), ("/nothing/here", "GET")):
            (answer,) = answers(served, head(path, method, Authorization=sent))
            assert answer.startswith(b"401 ")
            assert b"\r\nWWW-Authenticate: Bearer realm=" in answer
    assert status(served, head(served.guarded, Authorization=f"bearer {TOKEN}")) == 200
    served.token.write_text("renewed")
    assert status(served, head(served.guarded)) == 401
    assert status(served, head(served.guarded, token="renewed")) == 200


def test_an_upload_is_refused_before_it_is_read(served: Served) -> None:
    for token, length, expected in (("wrong", 60_000, b"401"), (TOKEN, 99_000_000, b"413")):
        with connected(served, head(served.posted, "POST", token, Content_Length=str(length))) as sock:
            assert sock.recv(3 + len("HTTP/1.1 ")).endswith(expected)


def test_headers_have_a_bound(served: Served) -> None:
    (answer,) = answers(served, head(served.open, Long="x" * 40_000))
    assert answer.startswith(b"431 ")
    assert b"\r\nConnection: close\r\n" in answer


def test_a_page_is_held_to_its_own_name_and_its_own_forms(served: Served) -> None:
    """The models have no browsers: a name costs a gateway nothing."""
    other = {"Host": "evil.example"}, {"Origin": "http://evil.example"}
    assert [status(served, head(served.guarded, **fields)) for fields in other] == (
        [421, 403] if served.page else [200, 200]
    )
    form = head(served.posted, "POST", Content_Type="application/x-www-form-urlencoded", Content_Length="6")
    assert status(served, form + b"keys=a") == (415 if served.page else 400)


def test_who_leaves_in_the_middle_or_dawdles_keeps_no_one_waiting(served: Served) -> None:
    whole = head(served.posted, "POST", Content_Length="100") + b"{"
    with connected(served, whole[:30]), connected(served, whole):
        for cut in (whole[:5], whole[:40], whole):
            connected(served, cut).close()
        assert status(served, head(served.guarded)) == 200


# -- framing, whose other rows are in tests/edge_runtime/base/http/test_parser.py --------------------------------------

LIVE = b"GET $OPEN HTTP/1.1\r\n"
HOST = b"Host: localhost\r\n"
END = b"\r\n"
INFER = f"POST $POSTED HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n".encode()
ROWS = {
    "no Host": (LIVE + END, 400),
    "absolute form": (b"GET http://x$OPEN HTTP/1.1\r\n" + HOST + END, 200),
    "absolute form without Host": (b"GET http://x$OPEN HTTP/1.1\r\n\r\n", 400),
    "authority form": (b"CONNECT x:80 HTTP/1.1\r\n" + HOST + END, 501),
    "authority form with another method": (b"GET x:80 HTTP/1.1\r\n" + HOST + END, 400),
    "asterisk form": (b"OPTIONS * HTTP/1.1\r\n" + HOST + END, 501),
    "asterisk form with another method": (b"GET * HTTP/1.1\r\n" + HOST + END, 400),
    "a long trailer": (INFER + b"Transfer-Encoding: chunked\r\n\r\n0\r\nA: " + b"b" * 9000 + END + END, 431),
    "a length over the limit": (INFER + b"Content-Length: 99999999999\r\n\r\n", 413),
    "another coding": (INFER + b"Transfer-Encoding: gzip, chunked\r\n\r\n", 501),
    "a long target": (b"GET /" + b"x" * 9000 + b" HTTP/1.1\r\n" + HOST + END, 414),
    "long fields": (LIVE + HOST + b"A: " + b"b" * 40_000 + END + END, 431),
    "another version": (b"GET $OPEN HTTP/2.0\r\n" + HOST + END, 505),
    "another expectation": (INFER + b"Expect: tea\r\nContent-Length: 2\r\n\r\n{}", 417),
    "an expectation in HTTP/1.0": (LIVE.replace(b"1.1", b"1.0") + HOST + b"Expect: tea\r\n\r\n", 200),
    "a TLS greeting": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
    "a body where none belongs": (LIVE + HOST + b"Content-Length: 2\r\n\r\n{}", 200),
}


def filled(served: Served, row: bytes) -> bytes:
    return row.replace(b"$OPEN", served.open.encode()).replace(b"$POSTED", served.posted.encode())


def test_each_request_gets_the_status_of_its_rule_and_a_refusal_hides_nothing_behind_it(served: Served) -> None:
    """What follows bytes whose length is in doubt must never be taken for a request."""
    for name, (row, expected) in ROWS.items():
        data = filled(served, row)
        (answer,) = answers(served, data)
        assert answer.startswith(b"%d " % expected), name
        assert expected == 200 or b'{"error":' in answer, name
        if expected in {400, 413, 431, 414, 505} and b" x:80 " not in data and b" * " not in data:
            (answer,) = answers(served, data + filled(served, LIVE + HOST + END))
            assert b"Connection: close\r\n" in answer, name


def test_nothing_is_no_request(served: Served) -> None:
    assert [answers(served, data) for data in (b"", END, END + END)] == [[], [], []]


def test_pipelined_requests_of_all_kinds_are_answered_in_order(served: Served) -> None:
    empty = INFER + b"Content-Length: 2\r\n\r\n{}"
    chunked = INFER + b"Transfer-Encoding: chunked\r\n\r\n2;a=b\r\n{}\r\n0\r\nA: b\r\n\r\n"
    got = answers(served, filled(served, LIVE + HOST + END + empty + chunked + END + LIVE + HOST + END))
    refused = b"415" if served.page else b"400"
    assert [answer[:3] for answer in got] == [b"200", refused, refused, b"200"]
    assert not any(b"Connection: close" in answer for answer in got)
