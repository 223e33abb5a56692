"""From a sensor on a live broker to its first label by ``init`` alone, and what it says of a broker that is silent."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import orjson
import paho.mqtt.client as paho
import pytest
from paho.mqtt.enums import CallbackAPIVersion

from edge_runtime.app.config import load_config
from edge_runtime.io.sources.mqtt import MqttSourceConfig
from tests.integration.running import PATIENCE_S, ROOT, Process, command, until
from tests.mosquitto import Mosquitto, needs_mosquitto

pytestmark = [needs_mosquitto, pytest.mark.slow]

READINGS = orjson.loads((ROOT / "examples/first-label/message.json").read_bytes())["values"]
NAMES = ("ax", "ay", "az", "gx", "gy", "gz")


@contextmanager
def sensor(port: int) -> Iterator[None]:
    """A watch that sends the movement of the first label over and over, 50 messages a second, with stamps."""
    client = paho.Client(CallbackAPIVersion.VERSION2)
    client.connect("127.0.0.1", port)
    client.loop_start()
    over = threading.Event()

    def send() -> None:
        n = 0
        while not over.wait(0.02):
            values = dict(zip(NAMES, READINGS[n % len(READINGS)], strict=True))
            client.publish("watch/me/imu", orjson.dumps({"ts": 1_700_000_000_000 + 20 * n, **values}))
            n += 1

    thread = threading.Thread(target=send)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(PATIENCE_S)
        client.disconnect()
        client.loop_stop()


def test_what_init_heard_answers_without_a_hand_on_the_file(tmp_path: Path) -> None:
    """Mutations that this finds: another topic or codec is written than was tried."""
    with Mosquitto() as broker, sensor(broker.port):
        given = ("--broker", f"127.0.0.1:{broker.port}", "--topic", "listen", "--bundle", "exercise-watch")
        done = command("init", *given, "--seconds", "5", "--no-service", cwd=tmp_path)
        assert done.code == 0, done.err + done.out
        (source,) = load_config(tmp_path / "app.toml").source
        assert isinstance(source, MqttSourceConfig)
        assert source.topics == ("watch/me/imu",)
        make, _run = done.out.split("next:\n")[1].splitlines()
        subprocess.run(["sh", "-c", make], check=True)
        heard: list[bytes] = []
        listener = paho.Client(CallbackAPIVersion.VERSION2)
        listener.on_message = lambda _client, _data, message: heard.append(bytes(message.payload))
        listener.connect("127.0.0.1", broker.port)
        listener.subscribe("edge/+/prediction")
        listener.loop_start()
        try:
            with Process(tmp_path, "run", "app.toml") as app:
                until(lambda: heard or not app.running(), lambda: app.err)
        finally:
            listener.disconnect()
            listener.loop_stop()
    assert heard, app.err
    assert orjson.loads(heard[0])["label"]


def test_a_silent_broker_and_one_that_is_away_leave_nothing(tmp_path: Path) -> None:
    given = ("--topic", "listen", "--bundle", "exercise-watch", "--seconds", "1")
    with Mosquitto() as broker:
        silent = command("init", "--broker", f"127.0.0.1:{broker.port}", *given, cwd=tmp_path)
    assert (silent.code, list(tmp_path.iterdir())) == (2, [])
    assert "let the sensor send, or give its topic" in silent.err
    away = command("init", "--broker", f"127.0.0.1:{broker.port}", *given, cwd=tmp_path)
    assert (away.code, list(tmp_path.iterdir())) == (1, [])
    assert "no connection within" in away.err
