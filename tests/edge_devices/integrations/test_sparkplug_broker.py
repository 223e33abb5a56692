"""An edge node on a real mosquitto: its Will, its farewell, what an outage leaves, and a primary host."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from edge_devices.integrations.sparkplug import SparkplugSink, SparkplugSinkConfig

from edge_runtime.base.system.loop import Loop
from edge_runtime.clock import SystemClock
from edge_runtime.io.mqtt.client import BrokerClient
from edge_runtime.io.mqtt.config import BrokerConfig
from edge_runtime.metrics import Metrics
from tests.edge_devices.integrations.sparkplug_host import DESCRIBED, REBIRTH, Host
from tests.edge_runtime.io.mqtt.clients import QUICK, WAIT_S, pull_the_plug, unique
from tests.edge_runtime.io.mqtt.users import User
from tests.edge_runtime.io.sinks.answers import prediction
from tests.mosquitto import Mosquitto


class Plant:
    """A broker, an edge node on a loop, and a host that checks what it hears."""

    def __init__(self, broker: Mosquitto, file: Path, *, host: str = "", **settings: Any) -> None:
        self.broker = broker
        self.file = file
        self.node = unique("node")
        self._settings = settings
        self._host_id = host
        self.host = Host(node=self.node)
        self.user = User(broker.port, unique("host"))
        self.user.subscribe(f"spBv1.0/plant/+/{self.node}/#", 1)
        self.loop = Loop()
        self.begin()

    def begin(self) -> None:
        """Start the application, or start it again."""
        config = BrokerConfig(url=self.broker.url, client_id=self.node, **self._settings)
        self.metrics = Metrics()
        self.client = BrokerClient(config, "b", self.metrics, retry=QUICK)
        sink = SparkplugSinkConfig(broker="b", group="plant", node=self.node, max_hz=0, host=self._host_id)
        self.sink = SparkplugSink(
            sink, self.client, self.metrics, SystemClock(), describe=lambda: DESCRIBED, bd_seq_file=self.file
        )
        self.sink.open(self.loop)

    def until(self, condition: Callable[[], object]) -> None:
        end = time.monotonic() + WAIT_S
        while not condition():
            assert time.monotonic() < end, f"it did not happen: {self.host.verbs[-8:]}"
            self.loop.iterate(0.02)
            self.hear()

    def hear(self) -> None:
        while not self.user.messages.empty():
            topic, payload, _, retain = self.user.messages.get()
            assert not retain
            if "/NCMD/" not in topic:
                self.host.take(topic, payload)

    def until_heard(self, *verbs: str) -> None:
        self.until(lambda: tuple(self.host.verbs[-len(verbs) :]) == verbs)

    def close(self) -> None:
        self.sink.close(5.0)
        self.user.leave()
        self.loop.close()


@pytest.fixture(scope="module")
def broker() -> Iterator[Mosquitto]:
    with Mosquitto() as made:
        yield made


KINDS = [{"protocol": "5"}, {"protocol": "3.1.1"}, {"receive": "paho"}]


@pytest.fixture(params=KINDS, ids=["v5", "v3.1.1", "paho"])
def plant(request: pytest.FixtureRequest, broker: Mosquitto, tmp_path: Path) -> Iterator[Plant]:
    made = Plant(broker, tmp_path / "a.bdseq", **request.param)
    try:
        yield made
    finally:
        made.close()


def test_a_lost_connection_brings_the_will_of_its_own_birth_and_the_next_birth_the_next_number(plant: Plant) -> None:
    plant.until_heard("NBIRTH")
    plant.sink.send([prediction(0)], None)
    plant.until_heard("NBIRTH", "DBIRTH k")
    pull_the_plug(plant.client)
    plant.until(lambda: not plant.client.connected)
    plant.sink.send([prediction(1), prediction(2)], None)
    plant.until_heard("NDEATH", "NBIRTH", "DBIRTH k", "DDATA k")
    assert plant.host.bd_seq == 1
    assert plant.host.live["k", "id"] == "k@2"
    assert [one.value for one in plant.host.seen if one.historical and one.metric == "id"] == ["k@1"]


def test_an_application_that_stops_says_so_and_goes_on_with_the_next_number(plant: Plant) -> None:
    plant.sink.send([prediction(0)], None)
    plant.until_heard("NBIRTH", "DBIRTH k")
    plant.sink.close(5.0)
    plant.until(lambda: plant.host.alive == {})
    plant.begin()
    plant.until(lambda: plant.host.verbs[-1] == "NBIRTH")
    assert plant.host.bd_seq == 1


def test_what_waits_is_published_before_the_farewell(plant: Plant) -> None:
    plant.until_heard("NBIRTH")
    for i in range(300):
        plant.sink.send([prediction(i)], None)
    plant.sink.close(WAIT_S)
    plant.until(lambda: plant.host.alive == {})
    assert plant.host.values("id") == [f"k@{i}" for i in range(300)]
    assert plant.host.verbs[301] == "NDEATH"
    assert plant.metrics.dropped["publish_not_sent"] == 0
    plant.begin()


def test_a_rebirth_is_asked_for_by_a_command(plant: Plant) -> None:
    plant.sink.send([prediction(0)], None)
    plant.until_heard("NBIRTH", "DBIRTH k")
    plant.user.client.publish(f"spBv1.0/plant/NCMD/{plant.node}", REBIRTH)
    plant.until_heard("NBIRTH", "DBIRTH k", "NBIRTH", "DBIRTH k")


def test_connections_that_fail_before_they_begin_take_no_number(tmp_path: Path) -> None:
    with Mosquitto() as own:
        made = Plant(own, tmp_path / "a.bdseq")
        try:
            made.until_heard("NBIRTH")
            own.stop()
            made.user.client.loop_stop()
            made.until(lambda: not made.client.connected)
            made.sink.send([prediction(0)], None)
            until = time.monotonic() + 0.5
            while time.monotonic() < until:
                made.loop.iterate(0.02)
            assert made.file.read_bytes() == b"0\n", "nobody took a CONNECT meanwhile"
            own.start()
            made.until(lambda: made.client.connected)
            assert made.file.read_bytes() == b"1\n"
        finally:
            made.close()


def test_the_node_waits_for_its_primary_host_and_leaves_with_it(broker: Mosquitto, tmp_path: Path) -> None:
    host = unique("scada")
    made = Plant(broker, tmp_path / "a.bdseq", host=host)

    def say(online: bool, ms: int) -> None:
        made.user.client.publish(
            f"spBv1.0/STATE/{host}", json.dumps({"online": online, "timestamp": ms}), qos=1, retain=True
        )

    try:
        made.until(lambda: made.client.connected)
        made.sink.send([prediction(0)], None)
        say(True, 10)
        made.until_heard("NBIRTH", "DBIRTH k")
        say(False, 10)
        made.until(lambda: made.host.verbs[-1] == "NDEATH")
        made.until(lambda: made.file.read_bytes() == b"1\n" and made.client.connected)
        made.sink.send([prediction(1)], None)
        say(True, 20)
        made.until_heard("NBIRTH", "DBIRTH k")
        assert made.host.bd_seq == 1
        assert made.host.live["k", "id"] == "k@1"
    finally:
        made.close()
        broker_user = User(broker.port, unique("cleaner"))
        broker_user.client.publish(f"spBv1.0/STATE/{host}", b"", qos=1, retain=True).wait_for_publish(WAIT_S)
        broker_user.leave()
