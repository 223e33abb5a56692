"""A flood of new keys before an honest one: the whole program behind a real mosquitto, and the order of its answers."""

from __future__ import annotations

import signal
from pathlib import Path

import orjson
import pytest

from tests.integration.running import Message, Process, Publisher, payload, predictions, streams, until
from tests.models import tiny_bundle
from tests.mosquitto import Mosquitto, needs_mosquitto

FLOOD, WINDOW = 2000, 8
APP = """
[model]
bundle = "{bundle}"
unsigned = "allow"
[broker.b]
url = "{url}"
[[source]]
type = "mqtt"
broker = "b"
topics = ["+/+/imu"]
key = "{{0}}-{{1}}"
qos = 0
[[sink]]
type = "jsonl"
path = "answers.jsonl"
"""


@needs_mosquitto
@pytest.mark.slow
def test_an_honest_key_behind_a_flood_is_answered_before_most_of_it(tmp_path: Path) -> None:
    bundle = tiny_bundle(tmp_path / "tiny.edge", window=WINDOW)
    one = streams(1, 2 * WINDOW)[0]
    first, second = (payload(one.t[at : at + WINDOW], one.values[at : at + WINDOW]) for at in (0, WINDOW))
    found = tmp_path / "answers.jsonl"

    def keys() -> list[str]:
        return [str(answer["key"]) for answer in predictions(found)] if found.exists() else []

    with (
        Mosquitto("max_queued_messages 100000") as mosquitto,
        Publisher(mosquitto.port, topic="{key}/imu") as publisher,
    ):
        (tmp_path / "app.toml").write_text(APP.format(bundle=bundle, url=mosquitto.url))
        with Process(tmp_path, "run", tmp_path / "app.toml", "--json") as process:
            until(lambda: b"+/+/imu" in mosquitto.log().encode(), lambda: process.err)
            publisher.send([Message("watch/1", first)])
            until(keys, lambda: process.err)
            process.send(signal.SIGSTOP)  # what comes now becomes a backlog, on any machine
            publisher.send([Message(f"bad/{at}", first) for at in range(FLOOD)])
            publisher.send([Message("watch/1", second)])
            publisher.flush()
            process.send(signal.SIGCONT)
            until(lambda: len(keys()) == FLOOD + 2, lambda: process.err)
            process.send(signal.SIGTERM)
            assert process.wait() == 0, process.err
        figures = orjson.loads(process.out)
    answered = keys()
    assert answered[0] == "watch-1"
    assert answered.index("watch-1", 1) < FLOOD // 2, "in the order of arrival it would be the last"
    assert len(set(answered)) == FLOOD + 1, "each key of the flood is answered: nothing is lost"
    assert not any(figures["dropped"].values())
