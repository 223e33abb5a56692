"""HTTP/1.1 as the RFCs want it, asked of a server over a socket: bytes in, status out. The rows of the framing itself
are in `test_http_parser`."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from edge_runtime.operate.server.server import ServeConfig, Server
from tests.oip_servers import linear_model

PATIENCE_S = 60.0
INFER = b"POST /v2/models/linear/infer HTTP/1.1\r\nHost: x\r\n"
LIVE = b"GET /v2/health/live HTTP/1.1\r\n"
HOST = b"Host: x\r\n"
END = b"\r\n"
CLOSE = b"Connection: close\r\n"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server({"linear": linear_model()}, ServeConfig(port=0)) as server:
        yield server


def answers(server: Server, data: bytes) -> list[bytes]:
    """What comes back for these bytes, by answer, when nothing follows them."""
    url = urlsplit(server.url)
    with socket.create_connection((url.hostname or "", url.port or 0), timeout=PATIENCE_S) as sock:
        sock.sendall(data)
        sock.shutdown(socket.SHUT_WR)
        got = b""
        while more := sock.recv(65536):
            got += more
    first, *rest = re.split(rb"HTTP/1\.1 (?=[0-9]{3} )", got)  # messages name the version, too
    assert first == b""
    return rest


ROWS = {
    "no Host": (LIVE + END, 400),
    "two Hosts": (LIVE + HOST + HOST + END, 400),
    "a Host that is none": (LIVE + b"Host: a b\r\n" + END, 400),
    "HTTP/1.0 without Host": (b"GET /v2/health/live HTTP/1.0\r\n\r\n", 200),
    "absolute form": (b"GET http://x/v2/health/live HTTP/1.1\r\n" + HOST + END, 200),
    "absolute form without Host": (b"GET http://x/v2/health/live HTTP/1.1\r\n\r\n", 400),
    "authority form": (b"CONNECT x:80 HTTP/1.1\r\n" + HOST + END, 501),
    "authority form with another method": (b"GET x:80 HTTP/1.1\r\n" + HOST + END, 400),
    "asterisk form": (b"OPTIONS * HTTP/1.1\r\n" + HOST + END, 501),
    "asterisk form with another method": (b"GET * HTTP/1.1\r\n" + HOST + END, 400),
    "two blank lines first": (END + END + LIVE + HOST + END, 200),
    "three blank lines first": (END * 3 + LIVE + HOST + END, 400),
    "folding": (LIVE + HOST + b"A: b\r\n c\r\n" + END, 400),
    "bare LF": (LIVE.replace(b"\r", b"") + HOST + END, 400),
    "bare CR": (LIVE + HOST + b"A: b\rc\r\n" + END, 400),
    "control character in the method": (b"G\x01T /v2 HTTP/1.1\r\n" + HOST + END, 400),
    "control character in the target": (b"GET /v2\x0b HTTP/1.1\r\n" + HOST + END, 400),
    "control character in a value": (LIVE + HOST + b"A: \x02\r\n" + END, 400),
    "vertical tab in a chunk size": (INFER + b"Transfer-Encoding: chunked\r\n\r\n2\x0b\r\n{}\r\n0\r\n\r\n", 400),
    "bare LF after a chunk size": (INFER + b"Transfer-Encoding: chunked\r\n\r\n2\n{}\r\n0\r\n\r\n", 400),
    "a bad trailer": (INFER + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\nA b\r\n\r\n", 400),
    "a long trailer": (INFER + b"Transfer-Encoding: chunked\r\n\r\n0\r\nA: " + b"b" * 9000 + END + END, 431),
    "chunked in HTTP/1.0": (INFER.replace(b"1.1", b"1.0") + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
    "chunked and a length": (INFER + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
    "a length that is no number": (INFER + b"Content-Length: x\r\n\r\n", 400),
    "a length over the limit": (INFER + b"Content-Length: 99999999999\r\n\r\n", 413),
    "a chunk size that is no number": (INFER + b"Transfer-Encoding: chunked\r\n\r\nxyz\r\n", 400),
    "two lengths": (INFER + b"Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}", 400),
    "another coding": (INFER + b"Transfer-Encoding: gzip, chunked\r\n\r\n", 501),
    "a long target": (b"GET /" + b"x" * 9000 + b" HTTP/1.1\r\n" + HOST + END, 414),
    "long fields": (LIVE + HOST + b"A: " + b"b" * 40_000 + END + END, 431),
    "another version": (b"GET /v2 HTTP/2.0\r\n" + HOST + END, 505),
    "another expectation": (INFER + b"Expect: tea\r\nContent-Length: 2\r\n\r\n{}", 417),
    "an expectation in HTTP/1.0": (LIVE.replace(b"1.1", b"1.0") + b"Expect: tea\r\n\r\n", 200),
    "a TLS greeting": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
    "a body where none belongs": (LIVE + HOST + b"Content-Length: 2\r\n\r\n{}", 200),
}


@pytest.mark.parametrize(("data", "status"), ROWS.values(), ids=ROWS)
def test_each_request_gets_the_status_of_its_rule(server: Server, data: bytes, status: int) -> None:
    (answer,) = answers(server, data)
    assert answer.startswith(b"%d " % status)
    if status != 200:
        assert b'{"error":' in answer


def test_a_refusal_of_the_framing_ends_the_connection_and_hides_nothing_behind_it(server: Server) -> None:
    """What follows bytes whose length is in doubt must never be taken for a request."""
    smuggled = LIVE + HOST + END
    for data, status in ROWS.values():
        if status in {400, 413, 431, 414, 505} and b" x:80 " not in data and b" * " not in data:
            (answer,) = answers(server, data + smuggled)
            assert b"Connection: close\r\n" in answer


@pytest.mark.parametrize("data", [b"", END, END + END])
def test_nothing_is_no_request(server: Server, data: bytes) -> None:
    assert answers(server, data) == []


def test_a_head_request_gets_no_body_and_the_next_answer_follows(server: Server) -> None:
    first, second = answers(server, LIVE.replace(b"GET", b"HEAD") + HOST + END + LIVE + HOST + CLOSE + END)
    assert first.endswith(b"Content-Length: 13\r\n\r\n")
    assert second.endswith(b'\r\n\r\n{"live":true}')


def test_pipelined_requests_of_all_kinds_are_answered_in_order(server: Server) -> None:
    empty = INFER + b"Content-Length: 2\r\n\r\n{}"
    chunked = INFER + b"Transfer-Encoding: chunked\r\n\r\n2;a=b\r\n{}\r\n0\r\nA: b\r\n\r\n"
    got = answers(server, LIVE + HOST + END + empty + chunked + END + LIVE + HOST + END)
    assert [answer[:3] for answer in got] == [b"200", b"400", b"400", b"200"]
    assert not any(b"Connection: close" in answer for answer in got)
