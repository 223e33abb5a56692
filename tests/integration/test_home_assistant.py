"""The bridge to Home Assistant in a whole process, with a broker and a client in Home Assistant's place."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import orjson
import pytest

from edge_runtime.io.mqtt.packets import V5
from edge_runtime.operate.observe.home_assistant.bridge import TICK_S
from tests.edge_runtime.io.mqtt.users import User
from tests.integration.running import Process, Publisher, answers, cut, streams, until
from tests.models import tiny_bundle
from tests.mosquitto import either_broker

pytestmark = pytest.mark.slow

APP = """
name = "gym"
[model]
bundle = "tiny.edge"
unsigned = "allow"
failover = "off"
[broker.b]
url = "{url}"
client_id = "gym"
status_topic = "edge-runtime/status"
[[source]]
type = "mqtt"
broker = "b"
topics = ["watch/+/imu"]
key = "{{1}}"
[[sink]]
type = "jsonl"
path = "answers.jsonl"
[home_assistant]
broker = "b"
device_id = "pi"
commands = ["restart"]
"""


@pytest.mark.parametrize("kind", ["mosquitto", "embedded"])
def test_a_restart_from_home_assistant_ends_in_order_with_the_code_that_starts_it_again(
    kind: str, tmp_path: Path
) -> None:
    tiny_bundle(tmp_path / "tiny.edge")
    with either_broker(kind) as broker:
        (tmp_path / "app.toml").write_text(APP.format(url=broker.url))
        user = User(broker.port, "home", version=V5)
        user.subscribe("homeassistant/#", 1)
        user.subscribe("edge-runtime/#", 1)
        with Process(tmp_path, "run", "app.toml") as process, Publisher(broker.port) as publisher:
            process.subscribed(broker)
            publisher.send(cut(streams(1, 64)[0], lambda: 32))
            discovery = _wait(user, "homeassistant/device/er-pi-gym-watch_0__", "/config")
            assert orjson.loads(discovery)["dev"]["name"] == "watch-0"
            assert orjson.loads(_wait(user, "edge-runtime/pi/gym/keys/watch_0__", "/state"))["route"] == "local"
            user.publish("edge-runtime/pi/gym/set/install", b"install", 1)
            user.publish("edge-runtime/pi/gym/set/restart", b"restart", 1)
            assert process.wait() == 4
            assert "command=restart" in process.err
            assert "reason=command_not_allowed" in process.err
            assert orjson.loads(_wait(user, "edge-runtime/status", ""))["status"] == "offline"
        user.leave()


@pytest.mark.parametrize("kind", ["mosquitto", "embedded"])
def test_echoes_that_wait_in_the_session_for_the_next_run_are_no_lost_readings(kind: str, tmp_path: Path) -> None:
    """Mutation: the bridge listens for them with its first tick: six `unexpected_topic`, one a key."""
    tiny_bundle(tmp_path / "tiny.edge")
    with either_broker(kind) as broker:
        (tmp_path / "app.toml").write_text(APP.format(url=broker.url))
        readings = cut(streams(1, 128)[0], lambda: 64)
        with Publisher(broker.port) as publisher:
            with Process(tmp_path, "run", "app.toml") as process:
                process.subscribed(broker)
                time.sleep(4 * TICK_S)
                process.kill()
            for number in range(6):
                publisher.publish(f"edge-runtime/pi/gym/keys/watch_{number}__/availability", b"online", 1)
            publisher.send(readings)
            publisher.flush()
            with Process(tmp_path, "run", "app.toml", "--json") as process:
                until(lambda: answers(tmp_path / "answers.jsonl"), lambda: process.err)
                process.send(signal.SIGTERM)
                assert process.wait() == 0
                assert orjson.loads(process.out)["dropped"] == {}


def _wait(user: User, begins: str, ends: str) -> bytes:
    """Wait for a message on such a topic; return its payload."""
    while True:
        topic, payload, _, _ = user.next()
        if topic.startswith(begins) and topic.endswith(ends):
            return payload
