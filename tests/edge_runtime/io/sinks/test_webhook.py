"""Posting answers: to an endpoint that works, that refuses, that is away, and that talks nonsense."""

from __future__ import annotations

import logging
import random
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import orjson
import pytest

from edge_runtime.base.system.loop import Loop
from edge_runtime.base.system.retry import Retry
from edge_runtime.errors import ConfigError
from edge_runtime.io.sinks.webhook import WebhookSink, WebhookSinkConfig
from edge_runtime.metrics import Metrics
from tests.edge_runtime.io.mqtt.certificates import Authority
from tests.edge_runtime.io.sinks.answers import prediction
from tests.edge_runtime.io.sinks.endpoint import OK, Endpoint

QUICK = Retry(base_s=0.01, cap_s=0.02)


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    made = Endpoint()
    yield made
    made.close()


class Sender:
    def __init__(self, url: str, **config: Any) -> None:
        self.loop = Loop()
        self.metrics = Metrics()
        self.done: list[int] = []
        settings: dict[str, Any] = {"retry": QUICK, "timeout_s": 2.0} | config
        self.sink = WebhookSink(WebhookSinkConfig(url=url, **settings), self.metrics, rng=random.Random(1))
        self.sink.open(self.loop)

    def send(self, *numbers: int) -> None:
        self.sink.send([prediction(i) for i in numbers], lambda: self.done.append(numbers[0]))

    def until(self, condition: Callable[[], Any], seconds: float = 5.0) -> None:
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end, "it did not happen"
            self.loop.iterate(0.02)

    def close(self, timeout_s: float = 2.0) -> None:
        self.sink.close(timeout_s)
        self.sink.close(timeout_s)
        self.loop.close()


@pytest.fixture
def senders() -> Iterator[list[Sender]]:
    made: list[Sender] = []
    yield made
    for sender in made:
        sender.sink.close(0.0)
        sender.loop.close()


def start(senders: list[Sender], url: str, **config: Any) -> Sender:
    sender = Sender(url, **config)
    senders.append(sender)
    return sender


def test_answers_arrive_in_order_and_are_reported(endpoint: Endpoint, senders: list[Sender]) -> None:
    sender = start(senders, endpoint.url)
    for i in range(20):
        sender.send(10 * i, 10 * i + 1)
    sender.until(lambda: len(sender.done) == 20)
    assert sender.done == [10 * i for i in range(20)]
    assert endpoint.ids() == [f"k@{10 * i + j}" for i in range(20) for j in range(2)]
    assert endpoint.connections == 1, "the connection is kept"
    headers, body = endpoint.requests[0]
    assert headers["content-type"] == "application/json"
    assert headers["path"] == "/hook?x=1"
    assert body[0] == orjson.loads(prediction(0).to_json())


def test_one_answer_per_request_where_asked_for(endpoint: Endpoint, senders: list[Sender]) -> None:
    sender = start(senders, endpoint.url, body="single")
    sender.send(1, 2, 3)
    sender.until(lambda: sender.done)
    assert [body["id"] for _, body in endpoint.requests] == ["k@1", "k@2", "k@3"]


def test_what_waits_goes_together_up_to_the_limit(endpoint: Endpoint, senders: list[Sender]) -> None:
    sender = start(senders, endpoint.url, max_batch=4)
    sender.send(*range(10))
    sender.until(lambda: sender.done)
    assert [len(body) for _, body in endpoint.requests] == [4, 4, 2]


@pytest.mark.parametrize("status", [500, 502, 503, 429, 408, 401, 403, 302])
def test_what_time_may_heal_is_tried_again(status: int, endpoint: Endpoint, senders: list[Sender]) -> None:
    sender = start(senders, endpoint.url)
    endpoint.replies += [(status, {}, b"no")] * 3
    sender.send(1, 2)
    sender.until(lambda: sender.done)
    assert len(endpoint.requests) == 4
    assert not sender.metrics.dropped
    assert sender.metrics.counts["webhook_failures_total"] == 3


def test_retry_after_is_honoured(endpoint: Endpoint, senders: list[Sender]) -> None:
    sender = start(senders, endpoint.url)
    endpoint.replies.append((503, {"Retry-After": "1"}, b""))
    began = time.monotonic()
    sender.send(1)
    sender.until(lambda: sender.done)
    assert time.monotonic() - began >= 1.0


@pytest.mark.parametrize("status", [400, 404, 413, 422, 501])
def test_what_is_refused_for_good_is_dropped_and_reported(
    status: int, endpoint: Endpoint, senders: list[Sender]
) -> None:
    sender = start(senders, endpoint.url, body="single")
    endpoint.replies.append((status, {}, b"never"))
    sender.send(1)
    sender.send(2)
    sender.until(lambda: len(sender.done) == 2)
    assert sender.metrics.dropped == {"webhook_rejected": 1}
    assert endpoint.ids()[-1] == "k@2"


def test_an_answer_that_is_refused_takes_no_other_with_it(endpoint: Endpoint, senders: list[Sender]) -> None:
    sender = start(senders, endpoint.url)
    endpoint.judge = lambda body: (422, {}, b"") if any(answer["id"] == "k@5" for answer in body) else OK
    sender.send(*range(12))
    sender.until(lambda: sender.done)
    assert sender.metrics.dropped == {"webhook_rejected": 1}
    taken = [a["id"] for _, body in endpoint.requests for a in body if "k@5" not in [b["id"] for b in body]]
    assert taken == [f"k@{i}" for i in range(12) if i != 5]


def nonsense(handler: BaseHTTPRequestHandler, _body: bytes) -> None:
    handler.wfile.write(b"SSH-2.0-OpenSSH_9.2\r\n\r\n")
    handler.close_connection = True


def hang_up(handler: BaseHTTPRequestHandler, _body: bytes) -> None:
    handler.connection.shutdown(socket.SHUT_RDWR)
    handler.close_connection = True


def silence(handler: BaseHTTPRequestHandler, _body: bytes) -> None:
    time.sleep(0.4)
    handler.close_connection = True


def drip(handler: BaseHTTPRequestHandler, _body: bytes) -> None:
    try:
        for letter in b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n" * 3:
            handler.wfile.write(bytes([letter]))
            time.sleep(0.02)
    except OSError:
        pass
    handler.close_connection = True


@pytest.mark.parametrize("misbehave", [nonsense, hang_up, silence, drip])
def test_an_endpoint_that_misbehaves_is_tried_again(
    misbehave: Callable[[BaseHTTPRequestHandler, bytes], None], endpoint: Endpoint, senders: list[Sender]
) -> None:
    sender = start(senders, endpoint.url, timeout_s=0.3)
    endpoint.replies += [misbehave, misbehave]
    sender.send(1)
    sender.until(lambda: sender.done)
    assert sender.metrics.counts["webhook_failures_total"] >= 1
    assert not sender.metrics.dropped


def test_a_giant_answer_is_not_read_but_its_verdict_counts(endpoint: Endpoint, senders: list[Sender]) -> None:
    sender = start(senders, endpoint.url)
    endpoint.replies.append((200, {}, b"x" * 300_000))
    sender.send(1)
    sender.until(lambda: sender.done)
    sender.send(2)
    sender.until(lambda: len(sender.done) == 2)
    assert endpoint.ids() == ["k@1", "k@2"]


def test_a_kept_connection_that_was_closed_meanwhile_costs_nothing(endpoint: Endpoint, senders: list[Sender]) -> None:
    sender = start(senders, endpoint.url)
    endpoint.replies.append((200, {"Connection": "close"}, b""))
    for i in range(3):
        sender.send(i)
        sender.until(lambda i=i: len(sender.done) == i + 1)  # type: ignore[misc]
    assert sender.metrics.counts["webhook_failures_total"] == 0


def test_an_endpoint_that_is_away_is_waited_for_and_logged_once(
    senders: list[Sender], caplog: pytest.LogCaptureFixture
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]  # bound and not listening: refused
        sender = start(senders, f"http://127.0.0.1:{port}/")
        with caplog.at_level(logging.WARNING):
            sender.send(1, 2, 3)
            sender.until(lambda: sender.metrics.counts["webhook_failures_total"] > 20)
    assert not sender.done
    assert not sender.metrics.dropped, "it still waits to be sent"
    assert len([record for record in caplog.records if "cannot be reached" in record.message]) == 1


@pytest.mark.parametrize("reply", [(500, {}, b""), (503, {"Retry-After": "0"}, b""), "hangs up"])
@pytest.mark.parametrize("poison", [{70}, {0}, {199}, {10, 11, 12, 150}, set(range(0, 200, 10))])
def test_an_answer_that_fails_each_time_stops_no_other(
    reply: Any, poison: set[int], endpoint: Endpoint, senders: list[Sender]
) -> None:
    sender = start(senders, endpoint.url)
    taken: list[str] = []

    def judge(handler: BaseHTTPRequestHandler, body: bytes) -> None:
        found = [answer["id"] for answer in orjson.loads(body)]
        bad = bool(set(found) & {f"k@{i}" for i in poison})
        if bad and reply == "hangs up":
            handler.close_connection = True
            return
        taken.extend([] if bad else found)
        handler.send_response(reply[0] if bad else 204)
        for name, value in {"Content-Length": "0", **(reply[1] if bad else {})}.items():
            handler.send_header(name, value)
        handler.end_headers()

    endpoint.judge = lambda _: judge  # type: ignore[assignment, return-value]
    for i in range(200):
        sender.send(i)
    sender.send(1000)  # others are taken after the last one
    sender.until(lambda: len(taken) >= 201 - len(poison), 60)
    last = 1000
    while sender.metrics.dropped["webhook_undeliverable"] < len(poison):
        last += 1
        assert last < 2000
        sender.send(last)  # what shows that the endpoint works
        sender.until(lambda last=last: f"k@{last}" in taken, 60)  # type: ignore[misc]
        sender.loop.iterate(0.01)
    assert set(taken) == {f"k@{i}" for i in [*range(200), *range(1000, last + 1)] if i not in poison}
    assert len(taken) == len(set(taken))


def test_a_flood_of_answers_that_fail_does_not_hide_the_few_that_are_taken(
    endpoint: Endpoint, senders: list[Sender]
) -> None:
    sender = start(senders, endpoint.url, max_batch=10)
    taken: set[str] = set()

    def judge(answers: list[dict[str, str]]) -> Any:
        bad = any(answer["key"] == "bad" for answer in answers)
        taken.update(() if bad else {answer["id"] for answer in answers})
        return (500, {}, b"") if bad else OK

    endpoint.judge = judge
    good = {f"k@{i}" for i in range(0, 200, 40)}
    for i in range(200):
        sender.sink.send([prediction(i, key="k" if f"k@{i}" in good else "bad")], None)
    sender.until(lambda: taken >= good, 60)
    assert set(sender.metrics.dropped) <= {"webhook_undeliverable"}


def test_answers_of_ever_new_keys_that_fail_cost_few_waits(endpoint: Endpoint, senders: list[Sender]) -> None:
    """Every failure but those that follow an answer that was taken costs a wait, which grows to a minute."""
    failed = [False]
    waits: list[int] = []
    taken: list[str] = []

    def judge(answers: list[dict[str, str]]) -> Any:
        bad = any(answer["key"].startswith("bad") for answer in answers)
        taken.extend([] if bad else [answer["id"] for answer in answers])
        waits.extend([1] if bad and failed[0] else [])
        failed[0] = bad
        return (500, {}, b"") if bad else OK

    endpoint.judge = judge
    sender = start(senders, endpoint.url)
    for i in range(300):
        sender.sink.send([prediction(i, key=f"bad{i}" if i % 20 in (3, 4) else "k")], None)
    sender.until(lambda: len(taken) == 270, 60)
    assert len(waits) < 60


@pytest.mark.parametrize("reply", [(500, {}, b""), (429, {}, b""), (503, {"Retry-After": "0"}, b"")])
def test_an_endpoint_that_is_down_for_all_costs_no_answer(
    reply: Any, endpoint: Endpoint, senders: list[Sender]
) -> None:
    sender = start(senders, endpoint.url, max_batch=4)
    endpoint.judge = lambda _: reply
    for i in range(40):
        sender.send(i)
    sender.until(lambda: len(endpoint.requests) > 60, 60)
    taken: list[str] = []

    def take(answers: list[dict[str, str]]) -> tuple[int, dict[str, str], bytes]:
        taken.extend(answer["id"] for answer in answers)
        return OK

    endpoint.judge = take
    sender.until(lambda: len(sender.done) == 40, 60)
    assert not sender.metrics.dropped
    assert sorted(taken) == sorted(f"k@{i}" for i in range(40))


@pytest.mark.parametrize(("policy", "kept"), [("drop_oldest", [0, 6, 7, 8]), ("drop_newest", [0, 1, 2, 3])])
def test_the_queue_is_bounded_and_its_losses_are_counted_and_reported(
    policy: str, kept: list[int], endpoint: Endpoint, senders: list[Sender]
) -> None:
    sender = start(senders, endpoint.url, max_queued=3, max_batch=1, when_full=policy)
    gate = threading.Event()

    def wait(handler: BaseHTTPRequestHandler, _body: bytes) -> None:
        gate.wait(5)
        handler.send_response(204)
        handler.end_headers()

    endpoint.replies.append(wait)
    sender.send(0)
    sender.until(lambda: endpoint.requests)
    for i in range(1, 9):
        sender.send(i)
    assert sender.metrics.dropped == {"webhook_full": 5}
    assert len(sender.done) == 5
    gate.set()
    sender.until(lambda: len(sender.done) == 9)
    assert endpoint.ids() == [f"k@{i}" for i in kept]


def test_closing_gives_up_in_time_and_counts(endpoint: Endpoint) -> None:
    sender = Sender(endpoint.url, retry=Retry(base_s=30, cap_s=60))
    endpoint.judge = lambda _: (503, {}, b"")
    sender.send(1, 2, 3)
    sender.until(lambda: endpoint.requests)
    began = time.monotonic()
    sender.close(0.3)
    assert time.monotonic() - began < 20, "less than the wait between two attempts"
    assert sender.done == []
    assert sender.metrics.dropped == {"webhook_closed": 3}


def test_the_token_is_read_again_when_it_changes_and_never_shown(
    endpoint: Endpoint, senders: list[Sender], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    token = tmp_path / "token"
    token.write_text("first-canary\n")
    sender = start(senders, endpoint.url, token_file=token)
    with caplog.at_level(logging.DEBUG):
        sender.send(1)
        sender.until(lambda: sender.done)
        token.write_text("second-canary-longer\n")
        endpoint.replies.append((401, {}, b"canary"))
        sender.send(2)
        sender.until(lambda: len(sender.done) == 2)
    sent = [headers["authorization"] for headers, _ in endpoint.requests]
    assert sent == ["Bearer first-canary", "Bearer second-canary-longer", "Bearer second-canary-longer"]
    assert "canary" not in caplog.text
    assert "canary" not in repr(sender.sink.__dict__)


def test_a_token_that_is_sent_back_instead_of_an_answer_is_not_shown(
    endpoint: Endpoint, senders: list[Sender], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    token = tmp_path / "token"
    token.write_text("canary-of-some-length\n")

    def echo(handler: BaseHTTPRequestHandler, _body: bytes) -> None:
        handler.wfile.write(handler.headers["Authorization"].encode() + b"\r\n\r\n")
        handler.close_connection = True

    endpoint.replies.append(echo)
    sender = start(senders, endpoint.url, token_file=token)
    sender.send(1)
    sender.until(lambda: sender.done)
    assert "does not speak HTTP" in caplog.text
    assert "canary" not in caplog.text


@pytest.mark.parametrize("trusted", [True, False])
def test_certificates_are_always_verified(
    trusted: bool, endpoint: Endpoint, senders: list[Sender], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    authority = Authority(tmp_path, "authority")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.issue("server", host="127.0.0.1"))
    endpoint.server.socket = context.wrap_socket(endpoint.server.socket, server_side=True)
    url = endpoint.url.replace("http:", "https:")
    with caplog.at_level(logging.WARNING):
        sender = start(senders, url, ca_file=authority.file) if trusted else start(senders, url)
        sender.send(1)
        sender.until(lambda: sender.done or caplog.records)
    assert bool(sender.done) is trusted
    assert bool(endpoint.requests) is trusted
    assert ("certificate" in caplog.text.lower()) is not trusted


def test_no_answers_are_no_request(endpoint: Endpoint, senders: list[Sender]) -> None:
    sender = start(senders, endpoint.url)
    done: list[int] = []
    sender.sink.send([], lambda: done.append(1))
    assert done == [1]
    sender.sink.send([prediction(1)], None)
    sender.until(lambda: endpoint.requests)


def test_a_missing_token_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="token_file"):
        WebhookSink(WebhookSinkConfig(url="https://h/", token_file=tmp_path / "none"), Metrics())


@pytest.mark.parametrize(
    "wrong",
    [
        {"url": "http://example.org/", "token_file": Path("t")},
        {"url": "http://127.0.0.1/", "ca_file": Path("t")},
        {"url": "https://h/", "client_key_file": Path("t")},
        {"url": "https://h/", "headers": {"Authorization": "x"}},
        {"url": "https://h/", "timeout_s": 0},
        {"url": "https://h/", "max_batch": 0},
        {"url": "https://h/", "patience_s": -1},
    ],
)
def test_settings_that_make_no_sense_or_leak_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        WebhookSinkConfig(**wrong)


@pytest.mark.parametrize(
    "url",
    [
        "ftp://user:secret@h/secret?secret", "https://user:secret@h/", "https:user:secret@h",
        "https://h/secret?key=secret#x", "https://h:99999/secret", "//h/secret",
    ],
)  # fmt: skip
def test_no_error_shows_what_protects_a_webhook(url: str) -> None:
    with pytest.raises(ValueError, match="url: ") as caught:
        WebhookSinkConfig(url=url)
    assert "secret" not in str(caught.value)
