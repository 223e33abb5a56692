"""A backlog of several keys and sensors, as processes behind a real broker: one source and two give equal windows."""

from __future__ import annotations

import itertools
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.integration.running import Process, Publisher, predictions, until
from tests.long_tier import some
from tests.models import tiny_bundle
from tests.mosquitto import Mosquitto

APP = """
[model]
unsigned = "allow"
bundle = "pair.edge"
[broker.b]
url = "{broker}"
client_id = "device"
{sources}
[[sink]]
type = "jsonl"
path = "answers.jsonl"
[outbox]
path = "outbox.db"
"""
ONE = """
[[source]]
type = "mqtt"
broker = "b"
channels = {{ c0 = "s/+/c0", c1 = "s/+/c1" }}
qos = {qos}
codec = {{ type = "json", {time} channels = {{ c0 = "x", c1 = "x" }}{samples} }}
"""
PART = """
[[source]]
type = "mqtt"
broker = "b"
topics = ["s/+/c{channel}"]
key = "{{1}}"
qos = {qos}
codec = {{ type = "json", {time} partial = true, channels = {{ c{channel} = "x" }}{samples} }}
"""
WHOLE = """
[[source]]
type = "mqtt"
broker = "b"
topics = ["s/+"]
qos = {qos}
codec = {{ type = "json", {time} channels = {{ c0 = "a", c1 = "b" }}{samples} }}
"""
SECONDS = 300
KEYS = ("k1", "k2")
Send = Callable[[str, bytes, int], None]


def application(folder: Path, broker: Mosquitto, form: str, qos: int, *, dated: bool) -> Path:
    tiny_bundle(folder / "pair.edge", channels=2, window=10, rate_hz=10.0)
    more: dict[str, Any] = {"time": "" if dated else 'time = "",', "samples": ', samples = "v"' if dated else ""}
    whole = {"one": ONE, "whole": WHOLE}.get(form, "")
    sources = whole.format(qos=qos, **more) or "".join(PART.format(channel=i, qos=qos, **more) for i in range(2))
    app = folder / "app.toml"
    app.write_text(APP.format(broker=broker.url, sources=sources))
    return app


def send_seconds(send: Send, qos: int, seconds: int) -> None:
    """Send blocks as two sensors of each device do: ten samples in one message, and twice five."""

    def block(per: int, number: int) -> bytes:
        stamps = [round(1.8e9 + (per * number + i) / 10, 3) for i in range(per)]
        return orjson.dumps({"v": [{"t": t, "x": t % 7} for t in stamps]})

    for second in range(seconds):
        for key in KEYS:
            send(f"s/{key}/c0", block(10, second), qos)
            send(f"s/{key}/c1", block(5, 2 * second), qos)
            send(f"s/{key}/c1", block(5, 2 * second + 1), qos)


def ended(process: Process) -> dict[str, int]:
    """End a process in good order; returns what it dropped."""
    process.send(signal.SIGTERM)
    assert process.wait() == 0, process.err
    told = orjson.loads(process.out.splitlines()[-1])
    return {reason: n for reason, n in told["dropped"].items() if n}


def acknowledged(broker: Mosquitto, qos: int) -> int:
    return broker.log().count(f"Received {'PUBACK' if qos == 1 else 'PUBCOMP'} from device")


@pytest.mark.slow
@pytest.mark.parametrize(
    "case", some(itertools.product(("one", "two"), (0, 1, 2)), [("one", 1), ("two", 0), ("two", 2)])
)
def test_two_sources_of_a_key_give_the_windows_of_one_after_a_backlog(case: tuple[str, int], tmp_path: Path) -> None:
    form, qos = case
    """Mutation: messages of a read handed over source by source, or taken topic by topic: most windows are missing."""
    with Mosquitto("max_queued_messages 100000") as broker, Publisher(broker.port) as publisher:
        app = application(tmp_path, broker, form, qos, dated=True)
        if qos:
            with Process(tmp_path, "run", "--json", app, name="before") as process:
                process.subscribed(broker)
                ended(process)
            send_seconds(publisher.publish, qos, SECONDS)
            publisher.flush()
        with Process(tmp_path, "run", "--json", app) as process:
            process.subscribed(broker)
            if not qos:
                send_seconds(publisher.publish, qos, SECONDS)
                publisher.flush()
            found = tmp_path / "answers.jsonl"
            until(lambda: len(predictions(found)) >= len(KEYS) * (SECONDS - 1), lambda: process.err)
            assert ended(process) == {}


@pytest.mark.slow
@pytest.mark.parametrize("qos", [1, 2])
def test_queued_readings_without_stamps_are_used(qos: int, tmp_path: Path) -> None:
    """Mutation: one stamp for all that is read together, and 78 of 80 are duplicates."""
    seconds = 40
    with Mosquitto("max_queued_messages 100000") as broker, Publisher(broker.port) as publisher:
        app = application(tmp_path, broker, "whole", qos, dated=False)
        with Process(tmp_path, "run", "--json", app, name="before") as process:
            process.subscribed(broker)
            ended(process)
        for i in range(10 * seconds):
            for key in KEYS:
                publisher.publish(f"s/{key}", orjson.dumps({"a": i % 7, "b": i % 5}), qos)
        publisher.flush()
        with Process(tmp_path, "run", "--json", app) as process:
            until(lambda: acknowledged(broker, qos) >= publisher.sent, lambda: process.err)
            assert ended(process) == {}
    found = predictions(tmp_path / "answers.jsonl")
    assert len(found) >= 0.95 * len(KEYS) * seconds
    assert len({answer["id"] for answer in found}) == len(found)


@pytest.mark.slow
@pytest.mark.parametrize("keys", ["topic", "payload"])
def test_a_backlog_of_long_messages_is_answered_whole(keys: str, tmp_path: Path) -> None:
    """Sixty messages of 40 kB at once, as a logger sends them that was away; each is decoded beside the loop."""
    with Mosquitto() as broker, Publisher(broker.port) as publisher:
        tiny_bundle(tmp_path / "pair.edge", channels=2, window=50, rate_hz=50.0)
        source = f'[[source]]\ntype = "mqtt"\nbroker = "b"\ntopics = ["s/+"]\nqos = 1\nkey = "{keys}"'
        (tmp_path / "app.toml").write_text(APP.format(broker=broker.url, sources=source))
        with Process(tmp_path, "run", tmp_path / "app.toml") as process:
            process.subscribed(broker)
            for number in range(60):
                values = [[i / 7, number / 3] for i in range(1000)]
                body = {"key": "k", "t": 1.8e9 + 20 * number, "values": values}
                publisher.publish("s/k1", orjson.dumps(body), 1)
            publisher.flush()
            until(lambda: len(predictions(tmp_path / "answers.jsonl")) >= 60 * 20 - 1, lambda: process.err)
            process.send(signal.SIGTERM)
            assert process.wait() == 0
            assert "dropped" not in process.err
