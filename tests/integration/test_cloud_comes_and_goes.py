"""Readings flow on while the cloud is away or talks nonsense, and in the end every hard case has its correction."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import orjson
import pytest

from edge_runtime.tools.demo.broker.broker import Broker
from tests.integration.cloud import Gateway, Nonsense, assert_right, plain, raw, serving
from tests.integration.running import (
    Message,
    Publisher,
    Running,
    Stream,
    corrections,
    cut,
    ids,
    interleave,
    load_model,
    predictions,
    running,
    streams,
)
from tests.mosquitto import free_port

pytestmark = pytest.mark.usefixtures("hasty")

APP = """
[model]
unsigned = "allow"
bundle = "unused.edge"
latency_budget_ms = {budget}
[broker.b]
url = "{broker}"
[[source]]
type = "mqtt"
broker = "b"
topics = ["watch/+/imu"]
[[sink]]
type = "jsonl"
path = "answers.jsonl"
[gate]
threshold = {threshold}
audit_share = {audit}
[cloud]
url = "{cloud}"
model = "teacher"
timeout_s = 2.0
[escalation]
deadline_s = {deadline}
[outbox]
path = "outbox.db"
"""


def app_text(
    broker: str, cloud: str, *, deadline: float = 60.0, threshold: float = 0.9, audit: float = 0.0, budget: float = 0.0
) -> str:
    return APP.format(
        broker=broker, cloud=cloud, deadline=deadline, threshold=threshold, audit=audit, budget=budget
    )  # fmt: skip


def feed(keys: int = 6, samples: int = 600, seed: int = 7) -> tuple[list[Stream], list[Message]]:
    rng = np.random.default_rng(seed)
    recorded = streams(keys, samples, seed=seed)
    return recorded, interleave(rng, [cut(stream, lambda: int(rng.integers(4, 20))) for stream in recorded])


def chunks(messages: list[Message], number: int) -> list[list[Message]]:
    size = -(-len(messages) // number)
    return [messages[at : at + size] for at in range(0, len(messages), size)]


def all_answered(app: Running) -> bool:
    """Nothing waits, and the books balance at this very moment as at every other."""
    assert app.app.outbox is not None
    counts = app.app.outbox.counts()
    assert counts.balances(), counts
    # What a turn found hard is on its way to the disk for a while, and not among the accepted yet.
    offered = app.counts["hard_total"] + app.counts["audit_total"]
    return offered > 0 and counts.queued == 0 and offered == counts.accepted == app.counts["corrections_total"]


def check_books(app: Running, folder: Path, recorded: list[Stream]) -> None:
    """Once per window a prediction, once per provisional one a correction, and it is the right one."""
    assert app.app.outbox is not None
    made, corrected = predictions(folder / "answers.jsonl"), corrections(folder / "answers.jsonl")
    promised = [answer for answer in made if answer["route"] == "provisional"]
    assert len(set(ids(made))) == len(made) == app.counts["predictions_total"]
    assert ids(corrected) == ids(promised)
    assert promised
    given = {answer["id"]: answer for answer in promised}
    for correction in corrected:
        assert_right(correction, recorded)
        assert correction["supersedes"] == given[correction["id"]]["label"]
        assert (correction["start"], correction["end"]) == tuple(given[correction["id"]][x] for x in ("start", "end"))


@pytest.mark.parametrize("budget", [0.0, 5.0])
def test_a_server_that_stops_and_starts_costs_time_and_no_correction(
    bundle: Path, tmp_path: Path, budget: float
) -> None:
    recorded, messages = feed()
    deadline_s, port = 0.4, free_port()
    text = app_text("{broker}", f"http://127.0.0.1:{port}", deadline=deadline_s, budget=budget)
    server = serving(port)
    with Broker() as broker, Publisher(broker.port) as publisher:
        with running(text.format(broker=broker.url), tmp_path, load_model(bundle, "onnx-fp32")) as app:
            publisher.reach(app)  # the cloud is not there yet
            sent = 0
            for i, part in enumerate(chunks(messages, 6)):
                publisher.send(part)
                publisher.flush()
                sent += len(part)
                if i % 2 == 0:
                    app.until(lambda: app.counts["readings_total"] >= sent)  # noqa: B023 - used within the turn
                    time.sleep(1.2 * deadline_s)  # long enough for what waits to be late
                    server.start()
                    app.until(lambda: all_answered(app))
                else:
                    server.stop()
            server.start()  # for what the last stop left waiting, if anything
            app.until(lambda: app.counts["readings_total"] >= sent)
            app.until(lambda: all_answered(app))
            assert app.counts["cloud_failures_total"] > 0
            assert app.stop()
    server.stop()
    check_books(app, tmp_path, recorded)
    corrected = corrections(tmp_path / "answers.jsonl")
    assert {c["late"] for c in corrected} == {True, False}
    assert all(c["late"] == (c["latency_ms"] > deadline_s * 1e3) for c in corrected)
    assert app.counts["late_total"] == sum(c["late"] for c in corrected)


NAN = orjson.dumps(
    {"model_name": "teacher", "outputs": [{"name": "p", "datatype": "FP32", "shape": [1, 3], "data": [0.0, 9.0, 7.0]}]}
)
NONSENSE: dict[str, Nonsense] = {
    "500": plain(500, b"Internal Server Error"),
    "503 without an end": plain(503, b'{"error": "overloaded"}', Retry_After="0"),
    "429": plain(429, b'{"error": "slow down"}', Retry_After="0"),
    "captive portal": plain(200, b"<html><body>Welcome to our hotel</body></html>", Content_Type="text/html"),
    "redirect": plain(302, b"", Location="http://portal.example/login"),
    "unauthorised": plain(401, b"who are you?"),
    "model unloaded": plain(404, b'{"error": "unknown model"}'),
    "not JSON": plain(200, b"\x00\xff\xfe garbage", Content_Type="application/json"),
    "wrong document": plain(200, b'{"outputs": 17}', Content_Type="application/json"),
    "impossible numbers": plain(200, NAN, Content_Type="application/json"),
    "not HTTP": raw(b"SSH-2.0-OpenSSH_9.6\r\n"),
    "half an answer": raw(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{"),
    "nothing": raw(b""),
}


REFUSALS: dict[str, Nonsense] = {
    "400 to every POST": plain(400, b'{"error": "the proxy does not like it"}'),
    "413 to every POST": plain(413, b"too large"),
}
"""To questions alone: readiness and metadata are as they should be, so each looks like a refusal of the case."""
BEFORE_THE_FIRST_ANSWER = ["500", "captive portal", "model unloaded", "impossible numbers", *REFUSALS]


@pytest.mark.parametrize(
    ("nonsense", "before_the_first_answer"),
    [(name, False) for name in (*NONSENSE, *REFUSALS)] + [(name, True) for name in BEFORE_THE_FIRST_ANSWER],
)
def test_a_cloud_that_answers_nonsense_for_a_while_costs_no_correction(
    bundle: Path, tmp_path: Path, nonsense: str, before_the_first_answer: bool
) -> None:
    """However long it lasts: what is wrong with the endpoint is not held against the cases."""
    recorded, messages = feed(keys=3, samples=160)
    half = len(messages) // 2
    server = serving()
    with server, Gateway(int(server.url.rsplit(":", 1)[1])).open() as gateway:
        with Broker() as broker, Publisher(broker.port) as publisher:
            text = app_text(broker.url, gateway.url)
            with running(text, tmp_path, load_model(bundle, "onnx-fp32")) as app:
                publisher.reach(app)
                if not before_the_first_answer:
                    publisher.send(messages[:half])
                    publisher.flush()
                    app.until(lambda: app.counts["messages_total"] >= half and all_answered(app))
                gateway.only_posts = nonsense in REFUSALS
                gateway.nonsense = (NONSENSE | REFUSALS)[nonsense]
                publisher.send(messages[half:] if not before_the_first_answer else messages)
                publisher.flush()
                app.until(lambda: gateway.nonsense_given >= 15)
                gateway.nonsense = None
                app.until(lambda: all_answered(app))
                assert app.stop()
    check_books(app, tmp_path, recorded)
    assert app.app.outbox is not None


def test_audits_are_asked_and_stay_local(bundle: Path, tmp_path: Path) -> None:
    recorded, messages = feed(keys=2, samples=200)
    with serving() as server, Broker() as broker, Publisher(broker.port) as publisher:
        text = app_text(broker.url, server.url, threshold=0.0, audit=0.5)
        with running(text, tmp_path, load_model(bundle, "onnx-fp32")) as app:
            publisher.reach(app)
            publisher.send(messages)
            publisher.flush()
            app.until(lambda: app.counts["samples_total"] == 400 and all_answered(app))
            assert app.stop()
    made, corrected = predictions(tmp_path / "answers.jsonl"), corrections(tmp_path / "answers.jsonl")
    assert {answer["route"] for answer in made} == {"local"}
    assert 0 < len(corrected) < len(made)
    assert set(ids(corrected)) < set(ids(made))
    assert not any(correction["hard"] for correction in corrected)
    for correction in corrected:
        assert_right(correction, recorded)
