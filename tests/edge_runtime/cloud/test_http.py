"""The HTTP client against servers that misbehave, each in a way that real ones have."""

from __future__ import annotations

import gzip
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from email.utils import formatdate
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_runtime.base.oip import Array, encode_response
from edge_runtime.clock import SystemClock
from edge_runtime.cloud.config import CloudConfig
from edge_runtime.cloud.http import HttpClient
from edge_runtime.errors import CloudError, CloudRejected, CloudUnavailable
from edge_runtime.operate.server.server import ServeConfig, Server
from tests.oip_servers import (
    CLASSES,
    Certificates,
    RawServer,
    Script,
    echo_model,
    http_answer,
    linear_model,
    make_certificates,
    read_request,
    say,
    say_for_ever,
    scores,
    windows,
)

RIGHT = http_answer()


def client(url: str, **changes: Any) -> HttpClient:
    fields: dict[str, Any] = {"model": "linear", "connect_timeout_s": 2.0, "timeout_s": 2.0, "deadline_s": 4.0}
    return HttpClient(CloudConfig(url=url, **{**fields, **changes}), SystemClock())


def ask(it: HttpClient, **changes: Any) -> Array:
    return it.infer({"window": windows(1)}, request_id="one", **changes)["scores"]


def check_right(got: Array) -> None:
    np.testing.assert_allclose(got, scores(windows(1)), rtol=1e-6)


def outcome(*scripts: Script, **changes: Any) -> Array:
    with RawServer(*scripts) as server, client(server.url, **changes) as it:
        return ask(it)


def binary_answer(**headers: str) -> bytes:
    body = encode_response(
        {"scores": scores(windows(1))}, model_name="m", model_version="1", request_id="one", binary={"scores"}
    )
    fields = {"Inference_Header_Content_Length": str(body.json_bytes), **headers}
    return http_answer(body=body.joined(), **fields)


# -- answers that are fine, if unusual ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "answer",
    [
        RIGHT,
        RIGHT.replace(b"200 OK", b"200"),
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + RIGHT,
        binary_answer(),
        binary_answer().replace(b"Inference-Header-Content-Length", b"inference-header-content-length"),
        http_answer(body=gzip.compress(RIGHT.partition(b"\r\n\r\n")[2]), Content_Encoding="gzip"),
        b"HTTP/1.0 200 OK\r\n\r\n" + RIGHT.partition(b"\r\n\r\n")[2],
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: Chunked\r\n\r\n"
        + b"".join(b"1\r\n%c\r\n" % byte for byte in RIGHT.partition(b"\r\n\r\n")[2])
        + b"0\r\n\r\n",
    ],
)
def test_unusual_but_valid_answers_are_read(answer: bytes) -> None:
    check_right(outcome(say(answer)))


# -- answers that are not ----------------------------------------------------------------------------------------------

HTML = b"<html><body><h1>502 Bad Gateway</h1></body></html>"
NAN = RIGHT.partition(b"\r\n\r\n")[2].replace(b'"data":[', b'"data":[NaN,')


@pytest.mark.parametrize(
    ("answer", "status", "words"),
    [
        (b"SSH-2.0-OpenSSH_9.2\r\n", None, "not HTTP"),
        (b"\0\xff" * 50, None, "not HTTP"),
        (http_answer(body=HTML, Content_Type="text/html"), 200, "it begins with '<html>"),
        (http_answer(body=b""), 200, "not JSON"),
        (http_answer("204 No Content", b""), 204, "answered 204"),
        (http_answer(body=NAN), 200, "not JSON"),
        (http_answer(body=b"[]"), 200, "object was expected"),
        (http_answer(body=b"{}"), 200, "'outputs' must be a list"),
        (http_answer(body=b'{"outputs":[]}'), 200, "without any output"),
        (http_answer(body=RIGHT.partition(b"\r\n\r\n")[2].replace(b'"one"', b'"two"')), 200, "id 'two'"),
        (http_answer(body=RIGHT.partition(b"\r\n\r\n")[2].replace(b"[1,4]", b"[4,1]")), 200, "1 windows"),
        (http_answer(body=RIGHT.partition(b"\r\n\r\n")[2][:-1]), 200, "not JSON"),
        (http_answer(Inference_Header_Content_Length="5"), 200, "not JSON"),
        (http_answer(Inference_Header_Content_Length="99999"), 200, "the body has"),
        (http_answer(Inference_Header_Content_Length="-1"), 200, "not a number"),
        (http_answer(Inference_Header_Content_Length="many"), 200, "not a number"),
        (binary_answer()[:-1].replace(b"Length: 16", b"Length: 15"), None, ""),
        (http_answer(body=b"x", Content_Encoding="gzip"), None, "compressed"),
        (http_answer(body=b"x", Content_Encoding="br"), None, "'br'"),
        (http_answer(body=gzip.compress(b" " * 3_000_000), Content_Encoding="gzip"), None, "over the limit"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 123456789012\r\n\r\n", None, "over the limit"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n", None, "two Content-Length"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"y" * 40_000 + b"\r\n\r\n", None, "headers are over"),
        (b"HTTP/1.1 100 Continue\r\n\r\n" * 20, None, "interim"),
        (http_answer("400 Bad Request", b'{"error":"no\\nsuch\\nshape"}'), 400, "400: no such shape"),
        (http_answer("404 Not Found", b'{"error":"unknown model"}'), 404, "404: unknown model"),
        (http_answer("413 Payload Too Large", b""), 413, "(no text)"),
        (http_answer("422 Unprocessable Entity", b'{"detail":[{"msg":"wrong"}]}'), 422, "wrong"),
        (http_answer("501 Not Implemented", HTML), 501, "501"),
    ],
)
def test_unreadable_and_refusing_answers_are_rejected(answer: bytes, status: int | None, words: str) -> None:
    with pytest.raises(CloudRejected) as caught:
        outcome(say_for_ever(answer), max_response_bytes=100_000, binary="always", timeout_s=0.5)
    assert words in str(caught.value)
    if status is not None:
        assert caught.value.status == status
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize("status", [301, 302, 401, 403, 408, 425, 429, 500, 502, 503, 504, 520])
def test_failures_that_time_may_heal_are_unavailable(status: int) -> None:
    with pytest.raises(CloudUnavailable, match=str(status)) as caught:
        outcome(say_for_ever(http_answer(f"{status} What Is This", HTML)))
    assert caught.value.retry_after_s is None
    assert "\n" not in str(caught.value)


def test_retry_after_is_passed_on_in_both_forms() -> None:
    with pytest.raises(CloudUnavailable) as caught:
        outcome(say(http_answer("503 Busy", b"", Retry_After="17")))
    assert caught.value.retry_after_s == 17
    now = time.time()
    for server_clock in (now, now - 50 * 365 * 86400):  # the answer's own date counts, whatever our clock says
        dates = {
            "Date": formatdate(server_clock, usegmt=True),
            "Retry_After": formatdate(server_clock + 90, usegmt=True),
        }
        with pytest.raises(CloudUnavailable) as caught:
            outcome(say(http_answer("429 Slow Down", b"", **dates)))
        assert caught.value.retry_after_s == pytest.approx(90, abs=1.5)
    with pytest.raises(CloudUnavailable) as caught:
        outcome(say(http_answer("503 Busy", b"", Retry_After="when it suits me")))
    assert caught.value.retry_after_s is None


def reset(after: bytes) -> Script:
    """Send some of an answer, then reset the connection."""

    def script(sock: socket.socket) -> None:
        read_request(sock)
        sock.sendall(after)
        time.sleep(0.05)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    return script


def silent(after: bytes) -> Script:
    """Send some of an answer, then nothing more."""

    def script(sock: socket.socket) -> None:
        read_request(sock)
        sock.sendall(after)
        read_request(sock)

    return script


@pytest.mark.parametrize("sent", [0, 5, 30, len(RIGHT) - 1])
@pytest.mark.parametrize("make", [reset, silent, say])
def test_an_answer_that_breaks_off_is_unavailable(make: Callable[[bytes], Script], sent: int) -> None:
    begin = time.monotonic()
    with pytest.raises(CloudUnavailable):
        outcome(make(RIGHT[:sent]), timeout_s=0.2)
    assert time.monotonic() - begin < 1.5


def test_a_body_cut_short_is_unavailable_also_without_keep_alive() -> None:
    with pytest.raises(CloudUnavailable, match="closed the connection after"):
        outcome(say(binary_answer(Connection="close")[:-3]))


@pytest.mark.parametrize("limits", [{"timeout_s": 0.5, "deadline_s": 3600.0}, {"timeout_s": 3600.0, "deadline_s": 0.5}])
@pytest.mark.parametrize("sent", [b"", RIGHT.partition(b"\r\n")[0], RIGHT.partition(b"\r\n\r\n")[0] + b"\r\n\r\n"])
def test_an_answer_that_drips_without_end_is_cut_off(sent: bytes, limits: dict[str, float]) -> None:
    """Each byte comes long before any silence would be too long; the exchange as a whole is bounded."""
    stop = threading.Event()

    def drip(sock: socket.socket) -> None:
        read_request(sock)
        sock.sendall(sent)
        rest = RIGHT[len(sent) :].replace(b"Length: ", b"Length: 9")
        while not stop.wait(0.02):
            sock.sendall(rest[:1] or b" ")
            rest = rest[1:]

    with RawServer(drip) as server, client(server.url, **limits) as it:
        with pytest.raises(CloudUnavailable, match="in time"):
            ask(it)
        stop.set()


def test_a_late_answer_is_not_taken_for_the_next_one() -> None:
    def late(sock: socket.socket) -> None:
        read_request(sock)
        time.sleep(0.3)
        sock.sendall(http_answer(body=b'{"outputs": "of the first request"}'))

    with RawServer(late, say_for_ever(RIGHT)) as server, client(server.url) as it:
        with pytest.raises(CloudUnavailable):
            ask(it, deadline_s=0.1)
        time.sleep(0.4)
        check_right(ask(it))
        assert server.connections == 2


def test_a_server_that_never_accepts_is_unavailable() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        fillers = [socket.socket() for _ in range(4)]
        for filler in fillers:  # fill the backlog: the next SYN is dropped, as by a firewall
            filler.setblocking(False)
            filler.connect_ex(listener.getsockname())
        begin = time.monotonic()
        with (
            client(f"http://127.0.0.1:{listener.getsockname()[1]}", connect_timeout_s=0.3) as it,
            pytest.raises(CloudUnavailable),
        ):
            ask(it, deadline_s=1.0)
        assert time.monotonic() - begin < 2
        for filler in fillers:
            filler.close()


def test_an_unknown_name_is_unavailable() -> None:
    with client("http://no-such-host.invalid") as it, pytest.raises(CloudUnavailable, match="cannot be reached"):
        ask(it)


@given(st.binary(max_size=120), st.booleans())
@settings(derandomize=True, max_examples=60, deadline=None)
def test_arbitrary_answers_raise_cloud_errors_and_nothing_else(garbage: bytes, as_body: bool) -> None:
    answer = http_answer(body=garbage) if as_body else garbage
    with pytest.raises(CloudError):
        outcome(say(answer), timeout_s=0.3)


@given(st.data())
@settings(derandomize=True, max_examples=80, deadline=None)
def test_damaged_answers_raise_cloud_errors_and_nothing_else(data: st.DataObject) -> None:
    damaged = bytearray(data.draw(st.sampled_from([RIGHT, binary_answer()])))
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    with suppress(CloudError):  # a flipped bit of a number goes unseen; any other exception fails the test
        assert outcome(say(bytes(damaged)), timeout_s=0.3).shape == (1, CLASSES)


# -- connections -------------------------------------------------------------------------------------------------------


def test_a_connection_is_used_again() -> None:
    with RawServer(say_for_ever(RIGHT)) as server, client(server.url) as it:
        for _ in range(5):
            check_right(ask(it))
        assert server.connections == 1


@pytest.mark.parametrize("goodbye", [b"Connection: close\r\n", b"Connection: keep-alive, close\r\n"])
def test_a_connection_the_server_gives_up_is_not_used_again(goodbye: bytes) -> None:
    answer = RIGHT.replace(b"Content-Length", goodbye + b"Content-Length")
    with RawServer(say_for_ever(answer)) as server, client(server.url) as it:
        for _ in range(3):
            check_right(ask(it))
        assert server.connections == 3


def test_a_kept_connection_that_was_closed_is_replaced_without_a_word() -> None:
    with RawServer(say(RIGHT)) as server, client(server.url) as it:
        for _ in range(4):
            check_right(ask(it))
            time.sleep(0.02)
        assert server.connections == 4


def test_a_kept_connection_closed_in_the_act_is_replaced_once() -> None:
    def close_on_second(sock: socket.socket) -> None:
        read_request(sock)
        sock.sendall(RIGHT)
        read_request(sock)  # read, and close without an answer

    with RawServer(close_on_second) as server, client(server.url) as it:
        for _ in range(3):
            check_right(ask(it))
        assert server.connections == 3

    def close(sock: socket.socket) -> None:
        read_request(sock)

    with RawServer(close_on_second, close) as server, client(server.url) as it:
        check_right(ask(it))
        with pytest.raises(CloudUnavailable):
            ask(it)
        assert server.connections == 2


def test_a_request_is_not_repeated_after_the_first_byte_of_an_answer() -> None:
    def half(sock: socket.socket) -> None:
        read_request(sock)
        sock.sendall(RIGHT)
        read_request(sock)
        sock.sendall(RIGHT[:40])

    with RawServer(half, say_for_ever(RIGHT)) as server, client(server.url) as it:
        check_right(ask(it))
        with pytest.raises(CloudUnavailable):
            ask(it)
        assert server.connections == 1


def test_unasked_bytes_spoil_a_kept_connection() -> None:
    with RawServer(say_for_ever(RIGHT + b"HTTP/1.1 200 OK\r\n\r\n")) as server, client(server.url) as it:
        check_right(ask(it))
        time.sleep(0.02)
        check_right(ask(it))
        assert server.connections == 2


def test_an_early_refusal_is_read_although_the_request_was_not_taken() -> None:
    def refuse(sock: socket.socket) -> None:
        sock.recv(1000)
        sock.sendall(http_answer("413 Payload Too Large", b'{"error":"at most 1 MiB"}', Connection="close"))
        sock.shutdown(socket.SHUT_WR)
        time.sleep(0.3)

    with (
        RawServer(refuse) as server,
        client(server.url) as it,
        pytest.raises(CloudRejected, match="at most 1 MiB") as caught,
    ):
        it.infer({"window": np.zeros((1, 4_000_000), np.float32)}, request_id="one")
    assert caught.value.status == 413


def test_idle_connections_are_bounded() -> None:
    gate = threading.Barrier(3)

    def together(sock: socket.socket) -> None:
        read_request(sock)
        gate.wait(5)
        sock.sendall(RIGHT)
        read_request(sock)

    with RawServer(together) as server, client(server.url, max_idle_connections=1) as it:
        threads = [threading.Thread(target=ask, args=(it,)) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(it._connections._idle) == 1
        it.close()
        assert it._connections._idle == []


# -- negotiation -------------------------------------------------------------------------------------------------------


def json_only(refusal: str, seen: list[bool]) -> Script:
    """A server without the binary extension: refuses bytes with that status, answers JSON."""

    def script(sock: socket.socket) -> None:
        while True:
            head, _ = read_request(sock)
            if not head:
                return
            binary = b"inference-header-content-length" in head.lower()
            seen.append(binary)
            sock.sendall(http_answer(refusal, b'{"error":"what?"}') if binary else RIGHT)

    return script


@pytest.mark.parametrize("refusal", ["400 Bad Request", "415 Unsupported", "422 Unprocessable", "500 Server Error"])
def test_json_is_tried_once_where_bytes_are_refused_and_remembered(refusal: str) -> None:
    seen: list[bool] = []
    with RawServer(json_only(refusal, seen)) as server, client(server.url) as it:
        assert it.format == "undecided"
        for _ in range(3):
            check_right(ask(it))
        assert it.format == "json"
    assert seen == [True, False, False, False]


def test_after_bytes_have_worked_a_refusal_is_a_refusal() -> None:
    answers = (binary_answer(), http_answer("400 Bad Request", b'{"error":"no"}'), RIGHT)
    with RawServer(say(*answers)) as server, client(server.url) as it:
        check_right(ask(it))
        assert it.format == "binary"
        with pytest.raises(CloudRejected):
            ask(it)
        check_right(ask(it))


def test_a_request_refused_both_ways_leaves_the_question_open() -> None:
    no = http_answer("400 Bad Request", b'{"error":"no"}')
    with RawServer(say(no, no, binary_answer())) as server, client(server.url) as it:
        with pytest.raises(CloudRejected, match="no"):
            ask(it)
        assert it.format == "undecided"
        check_right(ask(it))
        assert it.format == "binary"


def test_always_and_never_do_not_negotiate() -> None:
    seen: list[bool] = []
    with RawServer(json_only("400 Bad Request", seen)) as server:
        with client(server.url, binary="always") as it, pytest.raises(CloudRejected):
            ask(it)
        with client(server.url, binary="never") as it:
            check_right(ask(it))
    assert seen == [True, False]


def test_what_json_cannot_carry_keeps_the_first_refusal() -> None:
    window = windows(1)
    window[0, 0, 0] = np.nan
    seen: list[bool] = []
    with (
        RawServer(json_only("400 Bad Request", seen)) as server,
        client(server.url) as it,
        pytest.raises(CloudRejected, match=r"what\?"),
    ):
        it.infer({"window": window}, request_id="one")
    assert seen == [True]


def test_binary_is_asked_for_on_the_request_and_on_each_output() -> None:
    documents: list[dict[str, Any]] = []

    def keep(sock: socket.socket) -> None:
        head, body = read_request(sock)
        length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"inference-header"))
        documents.append(orjson.loads(body[: int(length.partition(b":")[2])]))
        sock.sendall(RIGHT)

    with RawServer(keep) as server, client(server.url) as it:
        ask(it, outputs=["scores"], parameters={"priority": 1})
    assert documents[0]["parameters"] == {"priority": 1, "binary_data_output": True}
    assert documents[0]["outputs"] == [{"name": "scores", "parameters": {"binary_data": True}}]


# -- headers, tokens, TLS ----------------------------------------------------------------------------------------------


def heads(n: int, seen: list[bytes], answer: bytes = RIGHT) -> Script:
    def script(sock: socket.socket) -> None:
        for _ in range(n):
            head, _ = read_request(sock)
            if not head:
                return
            seen.append(head)
            sock.sendall(answer)

    return script


def test_headers_are_sent_as_configured(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("abc\n")
    seen: list[bytes] = []
    changes = {"headers": {"host": "model.example", "X-Tenant": "7"}, "header_files": {"X-Api-Key": tmp_path / "key"}}
    with RawServer(heads(1, seen)) as server, client(server.url + "/base", **changes) as it:
        ask(it)
    lines = seen[0].decode().split("\r\n")
    assert lines[0] == "POST /base/v2/models/linear/infer HTTP/1.1"
    assert [line for line in lines if line.lower().startswith("host:")] == ["host: model.example"]
    assert "X-Tenant: 7" in lines
    assert "X-Api-Key: abc" in lines


def test_a_new_token_is_used_at_once_and_an_old_one_replaced_on_401(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("first")
    seen: list[bytes] = []

    def guarded(sock: socket.socket) -> None:
        while True:
            head, _ = read_request(sock)
            if not head:
                return
            seen.append(head.partition(b"Bearer ")[2].partition(b"\r\n")[0])
            if seen[-1] == b"stale":
                token.write_text("fresh")
                sock.sendall(http_answer("401 Unauthorized", b'{"error":"stale is no good"}'))
            else:
                sock.sendall(RIGHT)

    with RawServer(guarded) as server, client(server.url, token_file=token) as it:
        ask(it)
        token.write_text("second")
        ask(it)
        token.write_text("stale")
        check_right(ask(it))
    assert seen == [b"first", b"second", b"stale", b"fresh"]


def test_a_refused_token_keeps_the_case_and_is_never_shown(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("hunter2")
    answer = http_answer("401 Unauthorized", b'{"error":"bad token hunter2"}')
    with RawServer(say_for_ever(answer)) as server, client(server.url, token_file=token) as it:
        with pytest.raises(CloudUnavailable, match=r"bad token \*{8}; check token_file") as caught:
            ask(it)
        assert "hunter2" not in f"{caught.value!r} {it!r} {vars(it)!r} {it._config!r}"
        assert not it.ready()


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("tls"))


@pytest.fixture
def secure(certificates: Certificates) -> Iterator[Server]:
    config = ServeConfig(port=0, cert_file=certificates.server, key_file=certificates.server_key, drain_s=0.5)
    with Server({"linear": linear_model(), "echo_FP32": echo_model("FP32")}, config) as server:
        yield server


def named(server: Server) -> str:
    """The URL by the name that the certificate has."""
    return server.url.replace("127.0.0.1", "localhost")


def test_https_works_with_the_right_authority_and_reuses_the_connection(
    secure: Server, certificates: Certificates
) -> None:
    with client(named(secure), ca_file=certificates.ca) as it:
        for n in (1, 32, 3):
            got = it.infer({"window": windows(n)}, request_id="one")["scores"]
            np.testing.assert_allclose(got, scores(windows(n)), rtol=1e-6)
        assert it.ready()
        assert secure.stats().connections == 1
    large = np.random.default_rng(1).random((1000, 300)).astype(np.float32)
    with client(named(secure), ca_file=certificates.ca, model="echo_FP32") as it:
        assert np.array_equal(it.infer({"x": large}, request_id="one")["y"], large)


def test_https_refuses_other_authorities_and_other_names(secure: Server, certificates: Certificates) -> None:
    for url, changes in (
        (named(secure), {}),
        (secure.url, {"ca_file": certificates.ca}),  # by address, which the certificate does not have
    ):
        with client(url, **changes) as it, pytest.raises(CloudUnavailable, match="certificate is refused"):
            ask(it)


def test_mutual_tls_needs_the_clients_certificate(certificates: Certificates) -> None:
    config = ServeConfig(
        port=0,
        cert_file=certificates.server,
        key_file=certificates.server_key,
        client_ca_file=certificates.ca,
        drain_s=0.5,
    )
    with Server({"linear": linear_model()}, config) as server:
        with client(named(server), ca_file=certificates.ca) as it, pytest.raises(CloudUnavailable):
            ask(it)
        mine = {"client_cert_file": certificates.client, "client_key_file": certificates.client_key}
        with client(named(server), ca_file=certificates.ca, **mine) as it:
            check_right(ask(it))


def test_a_tls_handshake_that_drips_ends_at_the_connect_timeout() -> None:
    def handshake_drip(sock: socket.socket) -> None:
        sock.recv(10_000)
        for byte in b"\x16\x03\x03\x40\x00" + b"\x02" * 100:  # a record of 16 KiB that never ends
            sock.sendall(bytes([byte]))
            time.sleep(0.05)

    with RawServer(handshake_drip) as server:
        begin = time.monotonic()
        with client(server.url.replace("http", "https"), connect_timeout_s=0.3) as it, pytest.raises(CloudUnavailable):
            ask(it)
        assert time.monotonic() - begin < 1.0


def test_https_to_a_plain_server_is_unavailable() -> None:
    def plain(sock: socket.socket) -> None:
        sock.recv(10_000)
        sock.sendall(http_answer("400 Bad Request", b""))

    with (
        RawServer(plain) as server,
        client(server.url.replace("http", "https")) as it,
        pytest.raises(CloudUnavailable, match="TLS"),
    ):
        ask(it)


def test_metadata_that_is_nonsense_is_rejected() -> None:
    for body in (b"<html>", b"[]", b'{"inputs": 3}', b'{"inputs": [{"name": "x"}]}'):
        with (
            RawServer(say(http_answer(body=body))) as server,
            client(server.url) as it,
            pytest.raises(CloudRejected, match="unreadable metadata"),
        ):
            it.metadata()
    with RawServer(say(http_answer(body=b'{"versions": 3}'))) as server, client(server.url) as it:
        assert it.metadata().versions == ()


def test_a_secret_that_an_answer_repeats_is_hidden_though_the_answer_is_cut_off(tmp_path: Path) -> None:
    """An error page is quoted up to a length: what stands at that edge must not be told either."""
    token = "canary-" + "0123456789abcdef" * 4
    (tmp_path / "token").write_text(token)
    for fill in (0, 100, 150, 170, 190):
        for answer in (
            http_answer("500 Internal Server Error", orjson.dumps({"error": "x" * fill + token})),
            http_answer("400 Bad Request", b"x" * fill + token.encode()),
            http_answer("200 OK", token.encode() + b"x" * fill),
            f"{token} is no HTTP\r\n\r\n".encode(),
            f"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n{token}\r\n\r\n".encode(),
        ):
            with RawServer(say_for_ever(answer)) as server:
                with client(server.url, token_file=tmp_path / "token") as it, pytest.raises(CloudError) as caught:
                    it.infer({"window": windows(1)}, request_id="one")
            assert token[:8] not in str(caught.value)
            assert "89abcdef" not in str(caught.value)
