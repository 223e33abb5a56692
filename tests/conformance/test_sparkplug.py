"""A running application in the eyes of other people's Sparkplug software, over a real broker.

pysparkplug is the host: it subscribes, decodes by births, and asks for a rebirth. npm's sparkplug-payload decodes the
same bytes once more. Neither has a line of ours.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.conformance import environments
from tests.conformance.conftest import need
from tests.edge_runtime.io.mqtt.users import User
from tests.integration.running import PATIENCE_S, Process, Publisher, payload, streams, until
from tests.models import tiny_bundle
from tests.mosquitto import Mosquitto

pytestmark = pytest.mark.slow

APP = """
[model]
bundle = "tiny.edge"
unsigned = "allow"
[broker.sensors]
url = "mqtt://127.0.0.1:{port}"
[broker.scada]
url = "mqtt://127.0.0.1:{port}"
protocol = "{protocol}"
[[source]]
type = "mqtt"
broker = "sensors"
topics = ["watch/+/imu"]
[[sink]]
type = "sparkplug"
broker = "scada"
group = "plant 7"
node = "line-1"
max_hz = 0
max_keys = 2
[reading_log]
path = "readings.db"
"""
SCRIPTS = Path(__file__).parent / "servers"

Told = dict[str, Any]


class Host:
    """pysparkplug as a process of its own, and what it has decoded."""

    def __init__(self, port: int) -> None:
        script = SCRIPTS / "host_pysparkplug.py"
        self._process = subprocess.Popen(
            [need("pysparkplug"), script, str(port), "plant 7", "line-1"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={"PATH": os.environ["PATH"]},
        )
        self.lines: list[str] = []
        self._thread = threading.Thread(target=self._read)
        self._thread.start()
        self.until(lambda: "connected" in self.lines)

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.lines.append(line.strip())

    @property
    def told(self) -> list[Told]:
        return [json.loads(line) for line in [*self.lines] if line.startswith("{")]

    def verbs(self) -> list[str]:
        return [one["verb"] for one in self.told]

    def until(self, condition: Callable[[], object]) -> None:
        until(lambda: condition() or self._process.poll() is not None, lambda: self.lines[-3:])
        assert self._process.poll() is None, self._process.communicate()[1]

    def ask_for_rebirth(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("rebirth\n")
        self._process.stdin.flush()

    def close(self) -> None:
        self._process.kill()
        self._process.wait(PATIENCE_S)
        self._thread.join()
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            if pipe is not None:
                pipe.close()


class Plant(NamedTuple):
    """A broker, a host on it, and who hears the same bytes."""

    broker: Mosquitto
    host: Host
    bytes: User
    folder: Path
    sensors: Publisher

    def app(self, name: str) -> Process:
        process = Process(self.folder, "run", "app.toml", name=name)
        process.says("model ")
        until(lambda: process.err.count("connected to") == 2, lambda: process.err)
        process.subscribed(self.broker)
        return process

    def send(self, keys: int, *, first: int = 0) -> None:
        """80 samples of each key are four windows or five."""
        for stream in streams(keys, 80)[first:]:
            self.sensors.publish(f"watch/{stream.key}/imu", payload(stream.t, stream.values), 1)
        self.sensors.flush()


@pytest.fixture(params=["auto", "3.1.1"])
def plant(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Plant]:
    with opened(tmp_path, request.param) as made:
        yield made


@contextmanager
def opened(folder: Path, protocol: str) -> Iterator[Plant]:
    need("pysparkplug")
    tiny_bundle(folder / "tiny.edge")
    with Mosquitto() as broker:
        (folder / "app.toml").write_text(APP.format(port=broker.port, protocol=protocol))
        host, user = Host(broker.port), User(broker.port, "recorder")
        user.subscribe("spBv1.0/#", 1)
        try:
            with Publisher(broker.port) as sensors:
                yield Plant(broker, host, user, folder, sensors)
        finally:
            host.close()
            user.leave()


def since_birth(host: Host) -> list[Told]:
    """From the last NBIRTH on."""
    told = host.told
    last = max(i for i, one in enumerate(told) if one["verb"] == "NBIRTH")
    return told[last:]


def bd_seq(told: Told) -> int:
    (value,) = [metric["value"] for metric in told["metrics"] if metric["name"] == "bdSeq"]
    return int(value)


def of(host: Host, verb: str, device: str | None = None) -> list[Told]:
    return [one for one in host.told if one["verb"] == verb and device in (None, one["device"])]


def windows(host: Host, device: str) -> int:
    """Answers of a key that were told, births included."""
    ids = [m["value"] for one in host.told if one["device"] == device for m in one["metrics"] if m["name"] == "id"]
    return len({one for one in ids if one})


def assert_in_sequence(told: list[Told]) -> None:
    """Whatever comes after NBIRTH has one number more than the message before; deaths of the node have none."""
    seq = None
    for one in told:
        if one["verb"] == "NDEATH":
            seq = None
        elif one["verb"] != "NCMD":
            assert one["seq"] == (0 if one["verb"] == "NBIRTH" else (seq + 1) % 256 if seq is not None else -1), one
            seq = one["seq"]


def test_births_deaths_sequence_numbers_and_rebirth_as_a_host_sees_them(plant: Plant) -> None:
    host = plant.host
    with plant.app("first") as app:
        plant.send(2)
        host.until(lambda: min(windows(host, "watch-0"), windows(host, "watch-1")) >= 4)
        assert host.verbs()[0] == "NBIRTH"
        assert bd_seq(host.told[0]) == 0
        birth = {metric["name"]: metric for metric in of(host, "DBIRTH", "watch-0")[0]["metrics"]}
        assert {name: one["type"] for name, one in birth.items()} == {
            "id": "STRING", "label": "STRING", "confidence": "DOUBLE", "hard": "BOOLEAN", "route": "STRING",
            "suspect": "STRING", "scores/rest": "DOUBLE", "scores/walk": "DOUBLE", "scores/run": "DOUBLE",
            "correction/id": "STRING", "correction/label": "STRING", "correction/confidence": "DOUBLE",
            "correction/reason": "STRING",
        }  # fmt: skip
        assert birth["label"]["value"] in {"rest", "walk", "run"}
        assert birth["correction/id"]["null"]

        plant.send(3, first=2)  # a third key, where two are allowed
        host.until(lambda: windows(host, "watch-2") >= 4)
        assert len(of(host, "DBIRTH")) - len(of(host, "DDEATH")) == 2
        assert of(host, "DDEATH")[0]["device"] == "watch-0"

        host.ask_for_rebirth()
        host.until(lambda: host.verbs().count("NBIRTH") == 2 and len(since_birth(host)) >= 3)
        again = since_birth(host)
        assert [one["verb"] for one in again[:3]] == ["NBIRTH", "DBIRTH", "DBIRTH"]
        assert {one["device"] for one in again[1:3]} == {"watch-1", "watch-2"}
        assert bd_seq(again[0]) == 0

        app.kill()
        host.until(lambda: of(host, "NDEATH"))
        assert [bd_seq(one) for one in of(host, "NDEATH")] == [0]

    with plant.app("second") as app:
        host.until(lambda: len(of(host, "NBIRTH")) == 3)
        assert bd_seq(of(host, "NBIRTH")[-1]) == 1
        app.send(signal.SIGTERM)
        assert app.wait() == 0
        host.until(lambda: len(of(host, "NDEATH")) >= 2)
        assert {bd_seq(one) for one in of(host, "NDEATH")[1:]} == {1}

    with plant.app("third"):
        host.until(lambda: len(of(host, "NBIRTH")) == 4)
        assert bd_seq(of(host, "NBIRTH")[-1]) == 2

    told = host.told
    assert_in_sequence(told)
    assert not any(one["retain"] for one in told)
    assert {one["qos"] for one in told if one["verb"] != "NDEATH"} == {0}
    assert {one["qos"] for one in of(host, "NDEATH")} == {1}


def test_a_second_decoder_reads_the_same_bytes_alike(tmp_path: Path) -> None:
    if not environments.is_ready("sparkplug-payload") or shutil.which("node") is None:
        pytest.skip(f"needs Node.js, and: {environments.command_for('sparkplug-payload')}")
    with opened(tmp_path, "auto") as plant:
        host = plant.host
        with plant.app("only") as app:
            plant.send(2)
            host.until(lambda: min(windows(host, "watch-0"), windows(host, "watch-1")) >= 4)
            app.kill()
            host.until(lambda: of(host, "NDEATH"))
        told = host.told
        raw = [plant.bytes.next()[1].hex() for _ in told]
    module = environments.FOLDER / "sparkplug-payload" / "node_modules" / "sparkplug-payload"
    done = subprocess.run(
        ["node", SCRIPTS / "decode_sparkplug.js", module],
        input="\n".join(raw), capture_output=True, text=True, check=True, timeout=PATIENCE_S,
    )  # fmt: skip
    decoded = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(decoded) == len(told) > 5
    for theirs, ours in zip(decoded, told, strict=True):
        assert theirs.get("seq") == ours["seq"]
        metrics = theirs.get("metrics", [])
        assert len(metrics) == len(ours["metrics"])
        assert theirs["values"] == [metric["value"] for metric in ours["metrics"]]
        for one, other in zip(metrics, ours["metrics"], strict=True):
            assert one.get("timestamp") == other["timestamp"]
            assert one.get("alias") == other["alias"]
            if "BIRTH" in ours["verb"]:
                assert one["name"] == other["name"]
                assert one["type"].upper() == other["type"]
                assert one["value"] == other["value"]
