"""S6: who has the certificate of one device can do nothing in the name of another, nor order anybody about.

The broker is a real mosquitto with the configuration, the access list and the certificates that examples/broker ships.
Broken on purpose, each seen to fail here: a line ``topic readwrite #`` for device-b, ``require_certificate false`` with
``allow_anonymous true``, no ``use_username_as_clientid`` (the session of device-a is taken over), no ``acl_file``.
"""

from __future__ import annotations

import itertools
import ssl
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import paho.mqtt.client as paho
import pytest
from paho.mqtt.enums import CallbackAPIVersion

from edge_runtime.base.system.secrets import ClientTls
from tests.edge_runtime.io.mqtt.certificates import Authority
from tests.edge_runtime.io.mqtt.clients import Bench, Inbox
from tests.faults.conftest import Note
from tests.faults.security.certificates import sign_with
from tests.faults.security.shipped_broker import SHIPPED, ShippedBroker
from tests.mosquitto import needs_mosquitto

pytestmark = needs_mosquitto
WAIT_S = 20.0
OF_A = ("edge/device-a/x/prediction", "edge/device-a/status", "edge/device-a", "readings/watch-1/imu")
CONTROL = ("control/device-a/update", "control/device-b/update", "control/all/update", "control/all/keys")
ELSEWHERE = ("readings/watch-2/imu", "edge/operator/x", "somewhere/else", "edge", "$SYS/broker/clients/total", "#x")
LISTENING = (
    *("#", "+/#", "edge/#", "edge/+/#", "readings/#", "readings/+/imu", "readings/watch-1/imu", "control/#"),
    *("control/device-a/#", "edge/device-a/#", "+/device-a/+", "$share/g/readings/#", "$share/g/edge/device-a/#"),
)


class Heard(NamedTuple):
    topic: str
    payload: bytes


class Client:
    """A paho client that does what it likes."""

    def __init__(
        self, broker: ShippedBroker, files: tuple[Path, Path] | None, client_id: str = "", **options: Any
    ) -> None:
        self.heard: list[Heard] = []
        self.granted: list[int] = []
        self.connected = False
        self.refused: list[str] = []
        self._client = paho.Client(CallbackAPIVersion.VERSION2, client_id, protocol=paho.MQTTv5)
        self._client.tls_set_context(ClientTls(broker.ca, *(files or (None, None))).context())
        self._client.on_connect = self._on_connect
        self._client.on_message = lambda _c, _u, m: self.heard.append(Heard(m.topic, bytes(m.payload)))
        self._client.on_disconnect = lambda *_: self.refused.append("disconnected")
        self._client.on_subscribe = self._on_subscribe
        if "will" in options:
            self._client.will_set(options["will"], b"will", 1)
        if "username" in options:
            self._client.username_pw_set(options["username"], "guess")
        try:
            self._client.connect("127.0.0.1", broker.port)
            self._client.loop_start()
            self.until(lambda: self.connected or self.refused, 5.0)
        except (ssl.SSLError, OSError) as error:
            self.refused.append(str(error))

    def _on_connect(self, _client: object, _user: object, _flags: object, code: Any, _properties: object) -> None:
        self.connected = not code.is_failure
        if code.is_failure:
            self.refused.append(str(code))

    def _on_subscribe(self, _client: object, _user: object, _mid: int, codes: list[Any], _properties: object) -> None:
        self.granted += [code.value for code in codes]

    def until(self, condition: Callable[[], object], seconds: float = WAIT_S) -> bool:
        end = time.monotonic() + seconds
        while not condition() and time.monotonic() < end:
            time.sleep(0.005)
        return bool(condition())

    def subscribe(self, *topics: str) -> None:
        for topic in topics:
            before = len(self.granted)
            self._client.subscribe(topic, 1)
            assert self.until(lambda: len(self.granted) > before)  # noqa: B023 - used within the turn

    def publish(self, topic: str, payload: bytes = b"forged", *, retain: bool = False) -> int:
        """Returns the reason code with which the broker answers, -1 where it answers with nothing."""
        codes: list[int] = []
        self._client.on_publish = lambda _c, _u, _m, code, _p: codes.append(code.value)
        self._client.publish(topic, payload, 1, retain)
        self.until(lambda: codes, 5.0)
        return codes[0] if codes else -1

    def crash(self) -> None:
        """End without DISCONNECT, so that the will is published."""
        sock = self._client.socket()
        assert sock is not None
        self._client.loop_stop()
        sock.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.disconnect()
        self._client.loop_stop()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ShippedBroker]:
    with ShippedBroker(tmp_path_factory.mktemp("shipped")) as broker:
        yield broker


@pytest.fixture
def watched(broker: ShippedBroker) -> Iterator[tuple[Client, Client]]:
    """Device A and an operator, who hear all that they may."""
    with Client(broker, broker.client("device-a")) as device, Client(broker, broker.client("operator")) as operator:
        device.subscribe("readings/watch-1/#", "control/device-a/#", "control/all/#")
        operator.subscribe("edge/#", "readings/#", "control/#")
        yield device, operator


def test_each_may_do_its_own_work(broker: ShippedBroker, watched: tuple[Client, Client]) -> None:
    """Or the refusals below would prove nothing."""
    device, operator = watched
    with Client(broker, broker.client("watch-1")) as sensor:
        assert sensor.publish("readings/watch-1/imu", b"42") == 0
    assert device.publish("edge/device-a/watch-1/prediction", b"walk") == 0
    assert operator.publish("control/device-a/update", b"news") == 0
    assert operator.publish("control/all/keys", b"key") == 0
    assert device.until(lambda: len(device.heard) == 3), device.heard
    assert operator.until(lambda: Heard("edge/device-a/watch-1/prediction", b"walk") in operator.heard)


def test_a_device_writes_nothing_in_another_ones_name(
    broker: ShippedBroker, watched: tuple[Client, Client], note: Note
) -> None:
    device, operator = watched
    tried = 0
    for name in ("device-b", "watch-2"):
        with Client(broker, broker.client(name)) as other:
            assert other.connected
            for topic, retain in itertools.product((*OF_A, *CONTROL, *ELSEWHERE), (False, True)):
                if topic == "#x" or topic.startswith(f"readings/{name}/"):
                    continue
                assert other.publish(topic, b"forged", retain=retain) == 0x87, topic  # not authorised
                tried += 1
        for topic in (*OF_A, *CONTROL):
            with Client(broker, broker.client(name), will=topic) as other:
                other.crash()
                tried += 1
    for name, topics in (("device-a", CONTROL), ("watch-1", (*CONTROL, OF_A[0]))):
        with Client(broker, broker.client(name)) as other:
            for topic in topics:
                assert other.publish(topic) == 0x87, topic
                tried += 1
    with Client(broker, broker.client("device-a")) as again, Client(broker, broker.client("watch-1")) as sensor:
        again.subscribe("readings/watch-1/#", "control/device-a/#", "control/all/#")
        sensor.publish("readings/watch-1/imu", b"genuine")
        assert again.until(lambda: again.heard)
        assert again.heard == [Heard("readings/watch-1/imu", b"genuine")], "a forged message was retained"
    assert operator.until(lambda: operator.heard)
    assert {one.payload for one in (*device.heard, *operator.heard)} <= {b"genuine"}
    note("S6", f"{tried} forged messages and wills, 0 accepted")


def test_a_device_hears_nothing_that_is_another_ones(broker: ShippedBroker, note: Note) -> None:
    """However the filter is written: mosquitto may grant it, and then passes nothing on."""
    with (
        Client(broker, broker.client("device-b")) as nosy,
        Client(broker, broker.client("watch-1")) as sensor,
        Client(broker, broker.client("watch-2")) as own,
        Client(broker, broker.client("device-a")) as device,
        Client(broker, broker.client("operator")) as operator,
    ):
        nosy.subscribe(*LISTENING)
        for _ in range(3):
            assert sensor.publish("readings/watch-1/imu", b"private") == 0
            assert device.publish("edge/device-a/x/prediction", b"private") == 0
            assert operator.publish("control/device-a/update", b"private") == 0
        assert own.publish("readings/watch-2/imu", b"its own") == 0  # comes last, so what would leak had come
        assert nosy.until(lambda: nosy.heard)
        assert {one.payload for one in nosy.heard} == {b"its own"}
    note("S6", f"{len(LISTENING)} filters of a stranger, 0 messages heard")


def test_a_session_cannot_be_taken_over_by_its_client_id(broker: ShippedBroker) -> None:
    with Client(broker, broker.client("device-a"), client_id="device-a") as device:
        device.subscribe("readings/watch-1/#")
        with Client(broker, broker.client("device-b"), client_id="device-a") as thief:
            with Client(broker, broker.client("watch-1")) as sensor:
                assert sensor.publish("readings/watch-1/imu", b"private") == 0
            assert device.until(lambda: device.heard)
            assert thief.heard == []


def test_without_a_certificate_of_our_own_authority_nobody_comes_in(
    broker: ShippedBroker, tmp_path: Path, note: Note
) -> None:
    stranger = Authority(tmp_path, "stranger")
    as_a = stranger.issue("device-a")
    outsiders: list[dict[str, Any]] = [
        {"files": None},
        {"files": None, "username": "device-a"},
        {"files": None, "username": "operator"},
        {"files": as_a},
        {"files": stranger.issue("operator"), "username": "operator"},
    ]
    for outsider in outsiders:
        with Client(broker, **outsider) as other:
            assert not other.connected
    note("S6", f"{len(outsiders)} clients without a certificate of the authority, 0 connected")


@pytest.mark.parametrize("name", ["+", "#", "all"])
def test_a_name_that_is_a_wildcard_opens_nothing(tmp_path: Path, broker: ShippedBroker, name: str) -> None:
    """Somebody got the authority to sign an odd common name: ``%u`` must not become a pattern."""
    files = sign_with(broker.folder / "certs", tmp_path, name)
    with Client(broker, broker.client("device-a")) as device, Client(broker, broker.client("watch-1")) as sensor:
        device.subscribe("readings/watch-1/#", "control/#")
        with Client(broker, files) as odd:
            if odd.connected:
                for topic in (*OF_A, *CONTROL):
                    assert odd.publish(topic) in {0x87, -1}, topic
                odd.subscribe(*LISTENING[:8])
                assert sensor.publish("readings/watch-1/imu", b"private") == 0
                assert device.until(lambda: device.heard)
            assert odd.heard == []
        assert {one.payload for one in device.heard} <= {b"private"}


@pytest.mark.parametrize("name", ["device-a/x", "+", "a b", "-out", ""])
def test_the_script_signs_no_name_that_means_something_in_a_topic(broker: ShippedBroker, name: str) -> None:
    """With a slash it would be a level below another device: mosquitto cannot tell, so the authority has to."""
    before = set((broker.folder / "certs").iterdir())
    with pytest.raises(subprocess.CalledProcessError):
        broker.certificates(name)
    assert set((broker.folder / "certs").iterdir()) == before


def test_our_own_client_works_with_it(broker: ShippedBroker) -> None:
    """Subscription, answers, status and last will of a device, as the runtime makes them."""
    certificate, key = broker.client("device-a")
    inbox = Inbox()
    with Bench() as bench, Client(broker, broker.client("operator")) as operator:
        operator.subscribe("edge/#")
        bench.connected(
            broker.url, inbox, ("readings/watch-1/+", 1), publish_qos=1, ca_file=broker.ca, cert_file=certificate,
            key_file=key, status_topic="edge/device-a/status",
        )  # fmt: skip
        with Client(broker, broker.client("watch-1")) as sensor:
            sensor.publish("readings/watch-1/imu", b"42")
        bench.until(lambda: inbox.payloads == [b"42"])
        bench.until(lambda: any(one.topic == "edge/device-a/status" for one in operator.heard))


def test_nothing_shipped_is_a_secret_or_a_default_login() -> None:
    text = "".join(path.read_text() for path in SHIPPED.iterdir() if path.is_file())
    assert "password_file" not in text
    assert "PRIVATE KEY" not in text
    assert {path.name for path in SHIPPED.iterdir()} <= {"mosquitto.conf", "acl", "certificates.sh", "README.md"}
