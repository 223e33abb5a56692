"""The main job's MQTT leg on brokers other than those that every test runs on.

``amqtt`` is started here; any other one, started by you on the loopback address, is tried by naming its port::

    python -m pytest tests/conformance/test_brokers.py --broker-port 1883

It has to let anybody in, and is left as it was. What was seen so: docs/decisions/0006-mqtt-on-paho.md.
"""

from __future__ import annotations

import subprocess
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import orjson
import pytest

from edge_runtime.io.mqtt.packets import V311
from edge_runtime.manifest import GateSpec
from tests.conformance.conftest import need
from tests.edge_runtime.io.mqtt.users import User
from tests.integration.broker_runs import APP, feed, undisturbed
from tests.integration.running import (
    Publisher,
    assert_same_answers,
    load_model,
    predictions,
    running,
    until,
)
from tests.models import tiny_bundle
from tests.mosquitto import free_port

pytestmark = pytest.mark.slow

AMQTT = """
listeners: {{default: {{type: tcp, bind: "127.0.0.1:{port}"}}}}
plugins: {{amqtt.plugins.authentication.AnonymousAuthPlugin: {{allow_anonymous: true}}}}
"""


@pytest.fixture(scope="module", params=["amqtt", "named"])
def port(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """Of a broker that runs."""
    if request.param == "named":
        named = request.config.getoption("--broker-port", None)
        if named is None:
            pytest.skip("name the port of your broker with --broker-port")
        yield named
        return
    program = need("amqtt").with_name("amqtt")
    folder, port = tmp_path_factory.mktemp("amqtt"), free_port()
    (folder / "amqtt.yaml").write_text(AMQTT.format(port=port))
    with (folder / "log").open("wb") as log:
        broker = subprocess.Popen([program, "-c", folder / "amqtt.yaml"], stdout=log, stderr=log)
    try:
        until(lambda: "bind to" in (folder / "log").read_text() or broker.poll() is not None)
        assert broker.poll() is None, (folder / "log").read_text()
        yield port
    finally:
        broker.kill()
        broker.wait(10)


@contextmanager
def forgotten(port: int, client: str) -> Iterator[None]:
    """At the end the broker keeps nothing of this one."""
    try:
        yield
    finally:
        User(port, client, version=V311).leave()  # a clean session ends the one that was kept


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_every_reading_is_answered_once_and_every_answer_is_heard(port: int, qos: int, tmp_path: Path) -> None:
    bundle = tmp_path / "watch.edge"
    tiny_bundle(bundle, hop=8, name="watch", variants=("onnx-fp32",), gate=GateSpec(threshold=0.6))
    messages = feed()
    expected = undisturbed(bundle, tmp_path, messages)
    name = f"tried-{uuid.uuid4().hex[:12]}"  # a broker keeps sessions, perhaps from an earlier run
    text = APP.format(port=port, protocol="auto", qos=qos, path="answers.jsonl")
    text = text.replace("under-test", name).replace("watch/", f"{name}/")
    text += f'[[sink]]\ntype = "mqtt"\nbroker = "b"\ntopic = "{name}/answers/{{key}}"\nqos = {qos}\n'
    with forgotten(port, name):
        # With a clean session: aedes 1.2.0 loses a few messages of QoS 2 for others, whoever they are.
        listener = User(port, "listener", version=V311)
        listener.subscribe(f"{name}/answers/+", qos)
        with running(text, tmp_path, load_model(bundle, "onnx-fp32")) as app:
            app.until(lambda: app.connected)
            with Publisher(port, version="3.1.1", topic=f"{name}/{{key}}/imu") as publisher:
                publisher.reach(app)
                publisher.send(messages, qos)
                publisher.flush()
                app.until(lambda: app.counts["predictions_total"] >= len(expected))
            assert app.stop()
        heard = [orjson.loads(listener.next()[1]) for _ in expected]
        listener.leave()
    assert_same_answers(predictions(tmp_path / "answers.jsonl"), expected)
    assert_same_answers(heard, expected)
