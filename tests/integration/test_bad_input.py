"""Poison among good readings: each bad message is counted under its reason, and every good window is answered."""

from __future__ import annotations

import logging
import math
import signal
import struct
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import cbor2
import numpy as np
import orjson
import ormsgpack
import pytest

from edge_runtime.tools.demo.broker.broker import Broker, EmbeddedBrokerConfig
from tests.integration.running import (
    Answer,
    Message,
    Process,
    Publisher,
    Running,
    assert_same_answers,
    cut,
    interleave,
    load_model,
    predictions,
    running,
    streams,
    until,
)
from tests.mosquitto import Mosquitto

KEYS, SAMPLES = 3, 400
GIANT = 5 * 2**20
APP = """
[model]
bundle = "{bundle}"
unsigned = "allow"
variant = "onnx-fp32"
latency_budget_ms = {budget}
[broker.b]
url = "{url}"
protocol = "{protocol}"
[[source]]
type = "mqtt"
broker = "b"
topics = ["watch/#"]
key = "{{1}}"
qos = {qos}
[source.codec]
type = "{codec}"
[[sink]]
type = "jsonl"
path = "answers.jsonl"
"""


def configuration(bundle: Path, url: str, *, protocol: str = "5", qos: int = 1, budget: float = 0.0, codec: str) -> str:
    return APP.format(bundle=bundle, url=url, protocol=protocol, qos=qos, budget=budget, codec=codec)


# -- poison ------------------------------------------------------------------------------------------------------------


class Poison(NamedTuple):
    reason: str
    """It is refused as this."""
    payload: bytes
    topic: str = "watch/watch-0/imu"


def document(**changes: object) -> bytes:
    return orjson.dumps({"t": 1_700_000_000.0, "values": [[0.0, 0.0, 0.0]]} | changes)


POISONS = {
    "topic without a key": Poison("unexpected_topic", document(), "watch"),
    "nothing": Poison("empty", b""),
    "random bytes": Poison("malformed", np.random.default_rng(0).bytes(40)),
    "random bytes for a new key": Poison("malformed", np.random.default_rng(1).bytes(7), "watch/stranger/imu"),
    "cut short": Poison("malformed", document()[:-4]),
    "nested deeply": Poison("malformed", b"[" * 5000),
    "just a text": Poison("malformed", b'"just a text"'),
    "no values": Poison("malformed", b'{"t": 1700000000.0}'),
    "a text for values": Poison("malformed", document(values="walk")),
    "true for a value": Poison("not_a_number", document(values=[[True, 0.0, 0.0]])),
    "null for a value": Poison("not_a_number", document(values=[[None, 0.0, 0.0]])),
    "no samples": Poison("empty", document(values=[])),
    "too few channels": Poison("wrong_channels", document(values=[[1.0, 2.0]])),
    "too many channels": Poison("wrong_channels", document(values=[[1.0, 2.0, 3.0, 4.0]] * 5)),
    "unequal samples": Poison("wrong_channels", document(values=[[1.0, 2.0, 3.0], [1.0]])),
    "NaN": Poison("not_finite", b'{"t": 1700000000.0, "values": [[NaN, 0, 0]]}'),  # JSON has none, printf does
    "beyond float32": Poison("not_finite", b'{"t": 1700000000.0, "values": [[1e39, 0, 0]]}'),
    "stamp in nanoseconds": Poison("bad_time", document(t=1.7e18)),
    "stamp long ago": Poison("bad_time", document(t=-1e15)),
    "a text for a stamp": Poison("bad_time", document(t="yesterday")),
    "more stamps than samples": Poison("bad_time", document(t=[1.0, 2.0, 3.0])),
    "beyond the codec's limit": Poison("too_large", document() + b" " * 300_000),
}


def good(seed: int = 1) -> list[Message]:
    rng = np.random.default_rng(seed)
    return interleave(rng, [cut(stream, lambda: int(rng.integers(5, 30))) for stream in streams(KEYS, SAMPLES)])


# -- who is there ------------------------------------------------------------------------------------------------------


def embedded() -> Broker:
    """A broker that keeps all of a flood."""
    return Broker(EmbeddedBrokerConfig(max_queued=100_000, max_buffered_bytes=2**28))


def mosquitto() -> Mosquitto:
    return Mosquitto("max_queued_messages 100000")


BROKERS: dict[str, Callable[[], Broker | Mosquitto]] = {"embedded": embedded, "mosquitto": mosquitto}


def reach(publisher: Publisher, app: Running) -> Counter[str]:
    """Wait until the application receives from the publisher; what has been refused until then."""
    publisher.reach(app)
    publisher.publish("watch/nobody/imu", b"{", 0)  # behind all that `reach` has sent, on the same topic with QoS 0
    app.until(lambda: set(app.dropped) - {"empty"})
    return Counter(app.dropped)


def some_windows(pack: Callable[[object], bytes] = orjson.dumps) -> bytes:
    """A good message that is long enough to be answered at once."""
    (stream,) = streams(1, 40)
    return pack({"t": stream.t.tolist(), "values": stream.values.astype(np.float64).tolist()})


def answered(file: Path, key: str) -> bool:
    return any(one["key"] == key for one in predictions(file))


def answer(
    bundle: Path,
    folder: Path,
    broker: Broker | Mosquitto,
    send: Callable[[Publisher], object],
    *,
    protocol: str = "5",
    qos: int = 1,
    budget: float = 0.0,
    codec: str = "json",
    last: bytes = b"",
) -> tuple[Running, Counter[str], list[Answer]]:
    """Run an application while `send` publishes, until a good message behind all that is answered.

    Returns:
        The application, what it has refused, and what it has answered.
    """
    text = configuration(bundle, broker.url, protocol=protocol, qos=qos, budget=budget, codec=codec)
    file = folder / "answers.jsonl"
    with Publisher(broker.port, version=protocol) as publisher:
        with running(text, folder, load_model(bundle, "onnx-fp32")) as app:
            before = reach(publisher, app)
            send(publisher)
            publisher.send([Message("the-last", last or some_windows())], qos)
            app.until(lambda: answered(file, "the-last"))
            assert app.stop()
    return app, Counter(app.dropped) - before, [one for one in predictions(file) if one["key"] != "the-last"]


@pytest.fixture(scope="module")
def clean(bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Answer]:
    """What the good messages alone are answered."""

    with embedded() as broker:
        folder = tmp_path_factory.mktemp("clean")
        _, refused, found = answer(bundle, folder, broker, lambda publisher: publisher.send(good()))
    assert not refused
    return found


# -- one at a time -----------------------------------------------------------------------------------------------------


class Served(NamedTuple):
    """An application that has been running for a while, and has seen some things."""

    app: Running
    publisher: Publisher
    answers: Path


@pytest.fixture(scope="module", params=BROKERS)
def served(bundle: Path, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("served")
    with BROKERS[request.param]() as broker, Publisher(broker.port) as publisher:
        text = configuration(bundle, broker.url, codec="json")
        with running(text, folder, load_model(bundle, "onnx-fp32")) as app:
            reach(publisher, app)
            yield Served(app, publisher, folder / "answers.jsonl")
            assert app.stop()


@pytest.mark.parametrize("kind", POISONS)
def test_each_poison_is_refused_under_its_reason_and_the_next_reading_is_answered(served: Served, kind: str) -> None:
    poison, key = POISONS[kind], f"after {kind}"
    before = Counter(served.app.dropped)
    served.publisher.publish(poison.topic, poison.payload, 1)
    served.publisher.send([Message(key, some_windows())])
    served.app.until(lambda: answered(served.answers, key))
    assert Counter(served.app.dropped) - before == {poison.reason: 1}


# -- binary formats, which can say NaN ---------------------------------------------------------------------------------


FORMATS: dict[str, Callable[[object], bytes]] = {"msgpack": ormsgpack.packb, "cbor": cbor2.dumps}


def bare(*numbers: float) -> bytes:
    return struct.pack(f"<{len(numbers)}f", *numbers)


@pytest.mark.parametrize("codec", ["raw", "msgpack", "cbor"])
def test_what_is_not_finite_is_refused_in_every_format(bundle: Path, tmp_path: Path, codec: str) -> None:
    pack = FORMATS.get(codec)

    def encode(*numbers: float) -> bytes:
        return pack({"t": 1_700_000_000.0, "values": [numbers]}) if pack else bare(*numbers)

    poisons = [
        encode(math.nan, 0.0, 0.0),
        encode(0.0, math.inf, 0.0),
        encode(0.0, 0.0, -math.inf),
        encode(0.0, 1.0),
        encode(0.1, 0.2, 0.3)[:-1],
    ]
    last = some_windows(pack) if pack else bare(*streams(1, 40)[0].values.ravel().tolist())

    def send(publisher: Publisher) -> None:
        for poison in poisons:
            publisher.publish("watch/k/imu", poison, 1)

    with embedded() as broker:
        app, refused, _ = answer(bundle, tmp_path, broker, send, codec=codec, last=last)
    assert app.counts["readings_total"] == 1
    # Bare samples that are cut short cannot be told from samples of fewer channels.
    other = ("malformed", "wrong_channels") if pack else ("wrong_size", "wrong_size")
    assert refused == Counter({"not_finite": 3}) + Counter(other)


# -- floods ------------------------------------------------------------------------------------------------------------


def flood(publisher: Publisher, seed: int, qos: int, each: int = 20) -> Counter[str]:
    """Send the good messages with poison before each; what should be refused, by reason."""
    rng = np.random.default_rng(seed)
    poisons = list(POISONS.values())
    sent: Counter[str] = Counter()
    for message in good():
        for kind in rng.integers(0, len(poisons), each).tolist():
            publisher.publish(poisons[kind].topic, poisons[kind].payload, qos)
            sent[poisons[kind].reason] += 1
        publisher.send([message], qos)
    return sent


@pytest.mark.slow
@pytest.mark.parametrize(("qos", "budget"), [(0, 5.0), (1, 0.0), (2, 5.0)])
def test_a_flood_of_poison_costs_no_good_window(
    bundle: Path, tmp_path: Path, clean: list[Answer], caplog: pytest.LogCaptureFixture, qos: int, budget: float
) -> None:
    sent: Counter[str] = Counter()

    def send(publisher: Publisher) -> None:
        sent.update(flood(publisher, qos, qos))

    began = time.monotonic()
    with embedded() as broker, caplog.at_level(logging.WARNING):
        app, refused, found = answer(bundle, tmp_path, broker, send, qos=qos, budget=budget)
    assert_same_answers(found, clean)
    assert app.counts["readings_total"] == len(good()) + 1
    assert refused == sent
    assert refused.total() > 1000
    lines = [record for record in caplog.records if "reason=" in record.message]
    assert {record.message.split("reason=")[1].split(":")[0] for record in lines} == set(sent)
    assert len(lines) <= few(time.monotonic() - began), "the log is flooded too"


def few(seconds: float) -> float:
    """Lines that a flood may cost: one for each reason every 10 s."""
    return len({poison.reason for poison in POISONS.values()}) * (2 + seconds / 10)


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["5", "3.1.1"])
def test_the_process_lives_through_a_flood_and_ends_with_the_books_in_order(
    bundle: Path, tmp_path: Path, clean: list[Answer], protocol: str
) -> None:
    """As a user runs it, over mosquitto: no word about it but one line for each reason now and then."""
    answers = tmp_path / "answers.jsonl"
    began = time.monotonic()
    with mosquitto() as broker, Publisher(broker.port, version=protocol) as publisher:
        (tmp_path / "app.toml").write_text(configuration(bundle, broker.url, protocol=protocol, codec="json"))
        with Process(tmp_path, "run", "app.toml", "--json") as process:
            greetings = greet(publisher, process, answers)
            sent = flood(publisher, 3, qos=1)
            for _ in range(2):
                publisher.publish("watch/watch-1/imu", b"x" * GIANT, 1)
            publisher.send([Message("the-last", some_windows())])
            until(lambda: answered(answers, "the-last") or not process.running(), lambda: process.err)
            process.send(signal.SIGTERM)
            assert process.wait() == 0, process.err
    found = [one for one in predictions(answers) if one["key"].startswith("watch-")]
    assert_same_answers(found, clean)
    if protocol == "3.1.1":  # MQTT 5 tells the broker what is taken, and it keeps the giants to itself
        sent["too_large"] += 2
    figures = orjson.loads(process.out)
    assert +Counter(figures["dropped"]) == sent
    assert len(good()) + 1 <= figures["counts"]["readings_total"] <= len(good()) + 1 + greetings
    lines = process.err.splitlines()
    assert all(line.startswith(("INFO ", "WARNING ")) for line in lines), process.err
    assert len([line for line in lines if "reason=" in line]) <= few(time.monotonic() - began)


def greet(publisher: Publisher, process: Process, file: Path) -> int:
    """Wait until the process answers; the number of messages that took, each with a key of its own."""
    sent = 0

    def greeted() -> bool:
        nonlocal sent
        publisher.send([Message(f"hello-{sent}", some_windows())])
        sent += 1
        time.sleep(0.05)
        return bool(predictions(file)) or not process.running()

    until(greeted, lambda: process.err)
    return sent


# -- giants ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", BROKERS)
@pytest.mark.parametrize("protocol", ["5", "3.1.1"])
def test_giants_are_skipped_and_the_connection_keeps_its_order(
    bundle: Path, tmp_path: Path, clean: list[Answer], kind: str, protocol: str
) -> None:
    """With MQTT 5 the broker keeps them to itself; with 3.1.1 it cannot be told how much is too much."""
    messages = good()
    places = range(10, len(messages), 20)

    def send(publisher: Publisher) -> None:
        for i, message in enumerate(messages):
            if i in places:
                publisher.publish("watch/watch-0/imu", b"x" * GIANT, 1)
            publisher.send([message])

    with BROKERS[kind]() as broker:
        app, refused, found = answer(bundle, tmp_path, broker, send, protocol=protocol)
        if isinstance(broker, Broker):
            assert broker.stats().dropped_too_large == len(places) * (protocol == "5")
    assert_same_answers(found, clean)
    assert refused == ({"too_large": len(places)} if protocol == "3.1.1" else {})
    assert app.counts["readings_total"] == len(messages) + 1


# -- stamps that are possible, and wrong -------------------------------------------------------------------------------

WRONG = (0.0, 4e9, 1e8, 2.5e10)


def test_a_wrong_stamp_costs_its_own_reading_and_nothing_else(
    bundle: Path, tmp_path: Path, clean: list[Answer]
) -> None:
    messages = good()
    strange = range(3, len(messages) - 4 * KEYS, 7)  # each key goes on after its last one

    def send(publisher: Publisher) -> None:
        for i, message in enumerate(messages):
            publisher.send([message])
            if i in strange:
                wrong = document(t=WRONG[i % len(WRONG)] + i, values=[[9.0, 9.0, 9.0]] * 2)
                publisher.publish(f"watch/{message.key}/imu", wrong, 1)

    with embedded() as broker:
        app, refused, found = answer(bundle, tmp_path, broker, send)
    assert_same_answers(found, clean)
    assert refused == {
        "stamp_jump": 2 * len(strange)
    }  # counted in samples: as messages there is nothing wrong with them
    assert app.counts["clock_jumps_total"] == 0


def test_a_key_that_begins_with_a_wrong_stamp_finds_its_time(bundle: Path, tmp_path: Path, clean: list[Answer]) -> None:
    """As a board without a battery clock does after a start."""
    messages = good()

    def send(publisher: Publisher) -> None:
        for key in sorted({message.key for message in messages}):
            publisher.publish(f"watch/{key}/imu", document(t=0.0), 1)
        publisher.send(messages)

    with embedded() as broker:
        app, refused, found = answer(bundle, tmp_path, broker, send)
    assert_same_answers(found, clean)
    assert not refused
    assert app.counts["clock_jumps_total"] == KEYS
